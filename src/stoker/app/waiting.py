"""Explains why an awaited job has not ended, above all that no worker is there to run it.

It makes a sentence for the error of a wait that timed out. Plans only; nothing here waits.
"""

from collections.abc import Iterable

from stoker.app.sync_or_async import Plan
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError
from stoker.model.workers import WORKER_KEYS, WorkerView, worker_views

WORKERS_MAX = 1_000
"""Workers that are looked at; if there are more, the queue has workers."""


def why_it_waits(queues: Iterable[str]) -> Plan[str]:
    """The reason for jobs that are ready in these queues. Empty if there is none, or no permission to ask."""
    try:
        for queue in queues:
            told = yield from _why_of(queue)
            if told:
                return told
    except StokerError:
        pass
    return ""


def _why_of(queue: str) -> Plan[str]:
    policy: r.QueueView = yield c.GetQueue(queue)
    if policy.paused:
        return f"the queue {queue!r} is paused: stoker queue resume {queue}"
    stats: r.Stats = yield c.GetStats(queue)
    workers = yield from _workers()
    if stats.completed_last_minute or any(queue in worker.queues for worker in workers):
        return ""
    start = f"stoker worker MODULE:APP --queue {queue}"
    if not stats.totals.started:
        return f"no worker has pulled from {queue!r} so far: start one, {start}"
    return f"no worker has said in the last minute that it pulls from {queue!r}: start one, {start}"


def _workers() -> Plan[list[WorkerView]]:
    page: r.KvKeyPage = yield c.KvKeys(WORKER_KEYS + "*", limit=WORKERS_MAX)
    if not page.keys:
        return []
    entries: r.KvValues = yield c.KvGetMany(page.keys)
    return worker_views(entries.values)
