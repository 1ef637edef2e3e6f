"""Keys that outlive their jobs, and how they leave memory.

Custom ids of ended jobs and answers to batches with a request key are remembered for hours. They may move from memory
to a store of old keys, which is asked only for keys that are not in memory. This module chooses the keys that may move,
moves them, and finds them again. It knows nothing of files: any store with the methods of `OldKeys` will do.
"""

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from stoker.engine.state import KeyHolder, QueueState, RememberedRequest
from stoker.model.ids import STEP
from stoker.model.replies import PushedBatch, Refusal
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard_state import ShardState

Kind = Literal["custom_ids", "requests"]
"""The tables of a queue whose keys may leave memory."""

Runs = list[tuple[int, int]]
Refused = list[tuple[int, str, str]]
Duplicates = list[tuple[int, str]]


class OldKey(msgspec.Struct, frozen=True, gc=False):
    """A remembered key, with everything that the answer needs."""

    tenant: str
    queue: str
    kind: Kind
    key: str
    expires_at: int
    job: int = 0
    """For a custom id: the job that had it."""
    runs: Runs = []
    """For a request, like the next two: the fields of `RequestRemembered`."""
    refused: Refused = []
    duplicates: Duplicates = []


class OldKeys(Protocol):
    """The store of keys that have left memory. Only decisions ask it; applying a record never does."""

    def find(self, tenant: str, queue: str, kind: Kind, key: str, now: int) -> OldKey | None:
        """The key, unless it has expired by `now`."""
        ...

    def forget_queue(self, tenant: str, queue: str) -> None:
        """From now on, find no key of this queue that was stored before."""
        ...


# --- finding ---------------------------------------------------------------------------------------


def old_job(shard: "ShardState", queue: QueueState, custom_id: str, now: int) -> int:
    """The job of a custom id that is no longer in memory; 0 if none is remembered."""
    if shard.old_keys is None:
        return 0
    found = shard.old_keys.find(queue.tenant.name, queue.name, "custom_ids", custom_id, now)
    return found.job if found is not None else 0


def old_reply(shard: "ShardState", queue: QueueState, request_key: str, now: int) -> PushedBatch | None:
    """The answer to a request that is no longer in memory."""
    if shard.old_keys is None:
        return None
    found = shard.old_keys.find(queue.tenant.name, queue.name, "requests", request_key, now)
    return reply_of(found.runs, found.refused, found.duplicates) if found is not None else None


def holder_of(shard: "ShardState", queue: QueueState, custom_id: str, now: int) -> int:
    """The job that has a custom id in the queue, from memory or the store; 0 if the id is free."""
    key = queue.custom_ids.get(custom_id)
    return key.job if key is not None else old_job(shard, queue, custom_id, now)


# --- leaving memory --------------------------------------------------------------------------------


def keys_to_store(shard: "ShardState", most: int, expires_after: int = 0) -> list[OldKey]:
    """Up to `most` keys that may leave memory: keys whose jobs have ended, and remembered requests.

    Keys that expire by `expires_after` stay, because moving them does not pay. This looks at every key in memory until
    it has enough, so do not call it for every command.
    """
    found: list[OldKey] = []
    for tenant in shard.tenants.values():
        for queue in tenant.queues.values():
            for key in _leaving(queue, expires_after):
                if len(found) >= most:
                    return found
                found.append(key)
    return found


def _leaving(queue: QueueState, expires_after: int) -> Iterator[OldKey]:
    for name, key in queue.custom_ids.items():
        if key.expires_at > expires_after:  # 0 while the job is live
            yield _custom_id(queue, name, key)
    for name, request in queue.requests.items():
        if request.expires_at > expires_after:
            yield _request(queue, name, request)


def _custom_id(queue: QueueState, name: str, key: KeyHolder) -> OldKey:
    return OldKey(queue.tenant.name, queue.name, "custom_ids", name, key.expires_at, key.job)


def _request(queue: QueueState, name: str, request: RememberedRequest) -> OldKey:
    runs, refused, duplicates = fields_of(request.reply)
    return OldKey(queue.tenant.name, queue.name, "requests", name, request.expires_at, 0, runs, refused, duplicates)


def store_keys(shard: "ShardState", keys: Sequence[OldKey], now: int) -> list[OldKey]:
    """Drop keys from memory that are in the store by now. Returns the keys that have changed since; they stay in
    memory.

    While the keys were written, a job may have come back from the dead letters, a queue may have been obliterated, or a
    key may have expired. Memory is right then; the store may keep such keys or forget them.
    """
    stored: dict[tuple[str, str], list[tuple[str, str]]] = {}
    changed: list[OldKey] = []
    for key in keys:
        if in_memory(shard, key) == key:
            stored.setdefault((key.tenant, key.queue), []).append((key.kind, key.key))
        else:
            changed.append(key)
    for (tenant, queue), own in stored.items():
        shard.emit(rec.KeysStored(now, tenant, queue, own))
    return changed


def in_memory(shard: "ShardState", key: OldKey) -> OldKey | None:
    """What memory holds for a key that was given to the store."""
    tenant = shard.tenants.get(key.tenant)
    queue = tenant.queues.get(key.queue) if tenant is not None else None
    if queue is None:
        return None
    if key.kind == "custom_ids":
        held = queue.custom_ids.get(key.key)
        return _custom_id(queue, key.key, held) if held is not None else None
    request = queue.requests.get(key.key)
    return _request(queue, key.key, request) if request is not None else None


# --- answers to requests, to be kept ----------------------------------------------------------------


def fields_of(reply: PushedBatch) -> tuple[Runs, Refused, Duplicates]:
    """An answer in the form in which it is recorded and stored."""
    refused = [(item, refusal.code, refusal.message) for item, refusal in sorted(reply.refused.items())]
    duplicates = [(item, str(by)) for item, by in sorted(reply.duplicates.items())]
    return runs_of(reply.ids), refused, duplicates


def reply_of(runs: Runs, refused: Refused, duplicates: Duplicates) -> PushedBatch:
    """The answer of a recorded request. It is read-only, because every client that repeats the request gets the same
    object.
    """
    refusals = {item: Refusal(code, message) for item, code, message in refused}
    pieces = [range(first, first + jobs * STEP, STEP) if first else (0,) * jobs for first, jobs in runs]
    ids: Sequence[int] = pieces[0] if len(pieces) == 1 else tuple(job_id for piece in pieces for job_id in piece)
    return PushedBatch(ids, MappingProxyType(refusals), MappingProxyType(dict(duplicates)))  # type: ignore[arg-type]


def runs_of(ids: Sequence[int]) -> Runs:
    """Ids as runs of neighbours; zeros as runs of zeros."""
    if isinstance(ids, range):
        return [(ids[0], len(ids))]
    runs: Runs = []
    for job_id in ids:
        first, count = runs[-1] if runs else (-1, 0)
        if runs and job_id == (first + count * STEP if first else 0):
            runs[-1] = (first, count + 1)
        else:
            runs.append((job_id, 1))
    return runs
