"""Loads payloads from the journal into replies that leave the runtime."""

from collections.abc import Iterator, Sequence, Set
from typing import Any, Protocol

import msgspec

from stoker.engine.jobs import UniformBatch
from stoker.engine.shard import Shard
from stoker.journal.contract import Journal
from stoker.model import replies as r
from stoker.model.errors import StokerError, Unavailable
from stoker.model.ids import shard_of
from stoker.model.reasons import Reason
from stoker.records.stored import Stored, StoredRun
from stoker.runtime.process_requests import Looked, TakenJobs


class Payloads(Protocol):
    """Where payloads are read: a journal."""

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]: ...


class NoPayloads:
    """Where nothing can be read now."""

    def __init__(self, why: Unavailable) -> None:
        self._why = why

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        raise self._why


def read_and_filled(journal: Journal, reply: Any, unread: dict[int, Exception]) -> Any:
    """`filled`, where it may wait: what has to be read is read together, or none of it if the journal is away."""
    try:
        journal.read_together(stored_in(reply))
    except Unavailable as error:
        return filled(NoPayloads(error), reply, unread)
    return filled(journal, reply, unread)


def filled(journal: Payloads, reply: Any, unread: dict[int, Exception]) -> Any:
    """The reply with every payload in it. Deliveries whose payloads cannot be read are left out and told in `unread`.

    One damaged record must not keep a pull from the sound jobs that it took along with it.
    """
    kind = type(reply)
    if kind is r.Delivery:
        if any(is_stored(run.payloads) for run in reply.runs):
            runs = [_filled_run(journal, run, unread) for run in reply.runs]
            return msgspec.structs.replace(reply, runs=[run for run in runs if run is not None])
    elif kind is r.JobView:
        return _filled_view(journal, reply)
    elif kind is r.Ended or kind is r.Input:
        return _filled_result(journal, reply)
    elif kind is r.Inputs:
        return msgspec.structs.replace(reply, inputs=[_filled_result(journal, one) for one in reply.inputs])
    elif kind is list and reply and type(reply[0]) is r.Input:
        return [_filled_result(journal, one) for one in reply]
    elif kind is r.Page:
        return msgspec.structs.replace(reply, jobs=[_filled_view(journal, view) for view in reply.jobs])
    elif kind is TakenJobs:
        return msgspec.structs.replace(reply, delivery=filled(journal, reply.delivery, unread))
    elif kind is Looked and reply.claimed is not None:
        return msgspec.structs.replace(reply, claimed=filled(journal, reply.claimed, unread))
    return reply


def without(reply: Any, lost: Set[int]) -> Any:
    """A reply without some of the jobs that it gives out."""
    delivery = delivery_in(reply)
    if not lost or delivery is None:
        return reply
    runs = [run if lost.isdisjoint(run.ids) else _run_without(run, lost) for run in delivery.runs]
    kept = msgspec.structs.replace(delivery, runs=[run for run in runs if run.ids])
    if type(reply) is TakenJobs:
        return msgspec.structs.replace(reply, delivery=kept)
    return msgspec.structs.replace(reply, claimed=kept) if type(reply) is Looked else kept


def _run_without(run: r.Run, lost: Set[int]) -> r.Run:
    pairs = [(job_id, payload) for job_id, payload in zip(run.ids, run.payloads, strict=True) if job_id not in lost]
    return msgspec.structs.replace(run, ids=[job_id for job_id, _ in pairs], payloads=[payload for _, payload in pairs])


def stored_in(reply: Any) -> Iterator[tuple[int, int]]:
    """The records in which payloads and results of a reply lie, each as a shard and a sequence number."""
    kind = type(reply)
    if kind is r.Delivery:
        for run in reply.runs:
            payloads: Any = run.payloads
            if is_stored(payloads):
                stored = payloads if type(payloads) is StoredRun else payloads[0]
                yield shard_of(run.ids[0]), stored.sequence
    elif kind is r.Page:
        for view in reply.jobs:
            for value in (view.payload, view.result):
                if type(value) is Stored:
                    yield shard_of(view.id), value.sequence
    elif (delivery := delivery_in(reply)) is not None:
        yield from stored_in(delivery)


def delivery_in(reply: Any) -> r.Delivery | None:
    """The jobs that a reply gives out."""
    found = reply.delivery if type(reply) is TakenJobs else reply.claimed if type(reply) is Looked else reply
    return found if type(found) is r.Delivery else None


def is_passing(why: Exception) -> bool:
    """Whether a payload can be read later: the place where it lies does not answer."""
    return isinstance(why, Unavailable)


def is_stored(payloads: Any) -> bool:
    return type(payloads) is StoredRun or (len(payloads) == 1 and type(payloads[0]) is Stored)


def _filled_run(journal: Payloads, run: r.Run, unread: dict[int, Exception]) -> r.Run | None:
    payloads: Any = run.payloads
    if not is_stored(payloads):
        return run
    shard = shard_of(run.ids[0])
    try:
        if type(payloads) is StoredRun:
            found = journal.payloads(shard, payloads.sequence)[payloads.places()]
        else:
            found = (journal.payloads(shard, payloads[0].sequence)[payloads[0].place],)
    except (StokerError, IndexError) as error:
        unread.update(dict.fromkeys(run.ids, error))
        return None
    return msgspec.structs.replace(run, payloads=found)


def _filled_view(journal: Payloads, view: r.JobView) -> r.JobView:
    payload: Any = view.payload
    if type(payload) is Stored:
        try:
            found = _found(journal, view.id, payload)
        except StokerError:
            if view.reason != Reason.CORRUPT:
                raise
            found = b""  # which its reason tells: the dead letters around it must stay readable
        view = msgspec.structs.replace(view, payload=found)
    return _filled_result(journal, view)  # type: ignore[no-any-return]


def _filled_result(journal: Payloads, told: Any) -> Any:
    """Anything that tells what a job returned."""
    if type(told.result) is not Stored:
        return told
    return msgspec.structs.replace(told, result=_found(journal, told.id, told.result))


def _found(journal: Payloads, job_id: int, stored: Stored) -> bytes:
    return journal.payloads(shard_of(job_id), stored.sequence)[stored.place]


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
            found = [
                entry.payloads if type(entry) is UniformBatch else entry.payload for entry in queue.ready.coming(AHEAD)
            ]
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
