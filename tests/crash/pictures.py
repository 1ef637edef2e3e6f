"""What a broker holds, in a form that can be compared with another one's and sent over a pipe.

Numbers that restarts raise (the next id, the next token, records, epochs) are kept apart from the state: they may
differ, but only upwards.
"""

import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any
from zlib import crc32

import msgspec

from stoker.brokers.local import LocalBroker
from stoker.engine.audit import audit
from stoker.engine.shard import Shard
from stoker.engine.state_dump import dump
from stoker.model.options import DeadLetterPolicy, Options
from stoker.model.states import State
from stoker.records.records import PartStaged
from stoker.records.stored import StoredRun
from tests.histories.history import Seen, key_of

RAISED = ("sequence", "token", "epoch")


class Picture(msgspec.Struct, frozen=True):
    """A shard."""

    records: int
    """The number of its last record."""
    sequence: int
    token: int
    state: str
    """A hash of everything else, without the keys."""
    keys: str
    """A hash of the idempotency keys in memory. Old ones may have left it."""


def state_of(shard: Shard) -> dict[str, Any]:
    """All of it, and payloads as they are, wherever they lie."""
    state = {name: value for name, value in dump(shard).items() if name not in RAISED}
    for tenant in state["tenants"].values():
        for stages, *_ in tenant["transactions"].values():
            for parts, *_ in stages.values():
                parts[:] = [_with_payloads(shard, part) for part in parts]
    return state


def _with_payloads(shard: Shard, part: PartStaged) -> PartStaged:
    payloads: Any = part.payloads
    if type(payloads) is StoredRun:
        assert shard.stored_payloads is not None
        payloads = shard.stored_payloads(payloads.sequence)[payloads.places()]
    return msgspec.structs.replace(part, payloads=tuple(payloads))


def hash_of(value: object) -> str:
    return hashlib.sha256(repr(plain(value)).encode()).hexdigest()


def plain(value: Any) -> object:
    """Equal values in the same words: a list for any sequence, the bare word for that of an enum, dicts in order."""
    kind = type(value)
    if kind in SIMPLE:
        return value
    if kind is bytes:
        return value if len(value) < BYTES_SHOWN else (len(value), crc32(value))
    if kind in FROZEN:
        return repr(value)
    if kind is list or kind is tuple or kind is range:
        return list(map(plain, value))
    if isinstance(value, Mapping):
        return [(name, plain(value[name])) for name in sorted(value)]
    if isinstance(value, msgspec.Struct):
        return [plain(getattr(value, name)) for name in value.__struct_fields__]
    assert isinstance(value, Enum)
    return value.value


SIMPLE = frozenset((int, str, bool, float, type(None)))
FROZEN = frozenset((Options, DeadLetterPolicy))
"""These have one way to be written."""
BYTES_SHOWN = 64


def take_pictures(broker: LocalBroker) -> tuple[list[Picture], list[Seen]]:
    """All shards, audited, and all jobs in them."""
    pictures: list[Picture] = []
    jobs: list[Seen] = []
    with broker.guard:  # or the upkeep would remove files whose payloads are being read
        for shard in broker.runtime.shards:
            audit(shard)
            state = state_of(shard)
            last = broker.runtime.journal.last(shard.number)
            keys = [
                (name, queue.pop("keys"), queue.pop("requests"))
                for tenant in state["tenants"].values()
                for name, queue in tenant["queues"].items()
            ]
            pictures.append(Picture(last, shard.sequence, shard.token, hash_of(state), hash_of(keys)))
            jobs += [
                Seen(job["id"], key_of(job["payload"]), State(job["state"]), job["token"], job["lease_until"])
                for job in state["jobs"]
            ]
    return pictures, jobs


def differences(one: object, other: object, where: str = "") -> Iterator[str]:
    """Where two states differ, for whoever has to find out why."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys(), key=repr):
            yield from differences(one.get(name, "nothing"), other.get(name, "nothing"), f"{where}.{name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif one != other:
        yield f"{where}: {str(one)[:200]} and not {str(other)[:200]}"
