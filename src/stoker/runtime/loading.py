"""Payloads that lie in the journal are put into what leaves the runtime with one of them."""

from typing import Any

import msgspec

from stoker.engine.jobs import Batch
from stoker.engine.shard import Shard
from stoker.journal.contract import Journal
from stoker.model import replies as r
from stoker.model.ids import shard_of
from stoker.records.stored import Stored, StoredRun
from stoker.runtime.parts import Looked, Taken


def filled(journal: Journal, reply: Any) -> Any:
    """The reply with every payload in it."""
    kind = type(reply)
    if kind is r.Delivery:
        if any(is_stored(run.payloads) for run in reply.runs):
            return msgspec.structs.replace(reply, runs=[_filled_run(journal, run) for run in reply.runs])
    elif kind is r.JobView:
        return _filled_view(journal, reply)
    elif kind is r.Page:
        return msgspec.structs.replace(reply, jobs=[_filled_view(journal, view) for view in reply.jobs])
    elif kind is Taken:
        return msgspec.structs.replace(reply, delivery=filled(journal, reply.delivery))
    elif kind is Looked and reply.claimed is not None:
        return msgspec.structs.replace(reply, claimed=filled(journal, reply.claimed))
    return reply


def is_stored(payloads: Any) -> bool:
    return type(payloads) is StoredRun or (len(payloads) == 1 and type(payloads[0]) is Stored)


def _filled_run(journal: Journal, run: r.Run) -> r.Run:
    payloads: Any = run.payloads
    if not is_stored(payloads):
        return run
    shard = shard_of(run.ids[0])
    if type(payloads) is StoredRun:
        found = journal.payloads(shard, payloads.sequence)[payloads.places()]
    else:
        found = (journal.payloads(shard, payloads[0].sequence)[payloads[0].place],)
    return msgspec.structs.replace(run, payloads=found)


def _filled_view(journal: Journal, view: r.JobView) -> r.JobView:
    payload: Any = view.payload
    if type(payload) is not Stored:
        return view
    found = journal.payloads(shard_of(view.id), payload.sequence)[payload.place]
    return msgspec.structs.replace(view, payload=found)


def look_ahead(journal: Journal, shard: Shard, tenant: str, delivery: r.Delivery, now: int) -> None:
    """Tell the journal what a queue will need next, now that some of its stored payloads were delivered."""
    given: dict[str, dict[int, int]] = {}
    for run in delivery.runs:
        payloads: Any = run.payloads
        if is_stored(payloads):
            stored = payloads if type(payloads) is StoredRun else payloads[0]
            given.setdefault(run.queue, {})[stored.sequence] = run.ids[0]
    for name, sequences in given.items():
        queue = shard.known_queue(tenant, name)
        if queue is not None:
            found = [entry.payloads if type(entry) is Batch else entry.payload for entry in queue.ready.coming(AHEAD)]
            coming = [one.sequence for one in found if type(one) is StoredRun or type(one) is Stored]
            gone = [one for one, job in sequences.items() if one not in coming and not _still_waits(shard, job, one)]
            journal.expect(shard.number, coming, gone, now)


def _still_waits(shard: Shard, job_id: int, sequence: int) -> bool:
    """Whether others out of the same record wait: one that went its own way is often delivered long before its batch.

    Taken for the last of them, it kept the whole batch from being read ahead: a fifth of the time of a long drain.
    """
    found = shard.index.find_batch(job_id)
    if found is None or not found[0].waiting.left:
        return False
    payloads = found[0].payloads
    return type(payloads) is StoredRun and payloads.sequence == sequence


AHEAD = 4
"""Batches read ahead of a pull."""
