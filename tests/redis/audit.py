"""Recounts the counters and indexes of a tenant in Redis from its jobs. It trusts no counter and no index."""

import struct
from collections import Counter, defaultdict
from typing import Any

import msgspec

from stoker.brokers.redis.views import FIELDS
from stoker.model.states import STATES, State
from tests.redis.audit_indexes import audit_indexes
from tests.redis.backing import InRedis

LIVE = (State.WAITING, State.DELAYED, State.BLOCKED, State.ACTIVE)
DEFAULTS = {"worker": "", "reason": ""}


def audit(world: InRedis, tenant: str) -> None:
    """Fails with the first thing that disagrees."""
    client = world.server.client()
    try:
        _audit(client, f"{world.prefix}:{{{tenant}/0}}:")
    finally:
        client.close()


def _audit(client: Any, prefix: str) -> None:
    assert client.hget(prefix + "n", "dirty") in (None, b"0"), "a script did not end"
    options = {int(number): raw for number, raw in client.hgetall(prefix + "o").items()}
    jobs = _jobs(client, prefix)
    used = Counter(job["option"] for job in jobs.values())
    assert set(used) == set(options), "options without a job, or jobs without options"
    shared = {number: count for number, count in used.items() if not options[number][0]}
    assert {int(n): int(count) for n, count in client.hgetall(prefix + "or").items()} == shared, "option references"
    by_queue: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for sequence, job in jobs.items():
        raw = options[job["option"]]
        length = struct.unpack(">H", raw[1:3])[0]
        by_queue[raw[3 : 3 + length].decode()][sequence] = job
    names = {name.decode() for name in client.smembers(prefix + "queues")}
    assert set(by_queue) <= names, "jobs of a queue that is not known"
    for name in names:
        _audit_queue(client, prefix, name, by_queue[name])
    _audit_deadlines(client, prefix, jobs)
    audit_indexes(client, prefix, by_queue)


def _jobs(client: Any, prefix: str) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for bucket in client.zrange(prefix + "b", 0, -1):
        heads = client.hgetall(f"{prefix}j:{bucket.decode()}")
        payloads = client.hgetall(f"{prefix}p:{bucket.decode()}")
        assert set(heads) == set(payloads), "a job without a payload, or a payload without a job"
        for sequence, raw in heads.items():
            values = msgspec.msgpack.decode(raw)
            defaults = {name: DEFAULTS.get(name, 0) for name in FIELDS}
            job = found[int(sequence)] = defaults | dict(zip(FIELDS, values, strict=False))
            assert job["size"] == len(payloads[sequence]), f"the size of job {sequence}"
    return found


def _audit_queue(client: Any, prefix: str, name: str, jobs: dict[int, dict[str, Any]]) -> None:
    key = f"{prefix}q:{len(name)}:{name}"
    counts = msgspec.msgpack.decode(client.hget(key, "counts"))
    states = Counter(job["state"] for job in jobs.values())
    for number, state in enumerate(STATES):
        assert counts[number] == states[number], f"{name}: the count of {state} jobs"
    live = sum(job["size"] for job in jobs.values() if STATES[job["state"]] in LIVE)
    assert counts[len(STATES)] == live, f"{name}: the bytes of live jobs"

    def members(kind: str) -> set[int]:
        return set(map(int, client.zrange(key + kind, 0, -1)))

    def having(*wanted: State) -> set[int]:
        return {sequence for sequence, job in jobs.items() if STATES[job["state"]] in wanted}

    for kind, state in (":active", State.ACTIVE), (":delayed", State.DELAYED), (":blocked", State.BLOCKED):
        assert members(kind) == having(state), f"{name}{kind}"
    assert members(":dead") == having(State.FAILED), f"{name}:dead"
    ended = having(State.COMPLETED, State.CANCELLED, State.EXPIRED)
    assert members(":ended") | members(":owned") == ended, f"{name}:ended"
    assert having(State.WAITING) <= _ready(client, key), f"{name}: a waiting job that no pull would find"


def _ready(client: Any, key: str) -> set[int]:
    """All that stands in a list of a level that has something, or waits in a group."""
    found: set[int] = set()
    for level in client.zrange(key + ":levels", 0, -1):
        for kind in ":f:", ":l:":
            found |= set(map(int, client.lrange(f"{key}{kind}{level.decode()}", 0, -1)))
        for kind in ":o:", ":m:":
            found |= set(map(int, client.zrange(f"{key}{kind}{level.decode()}", 0, -1)))
    for group in client.smembers(key + ":groups"):
        found |= set(map(int, client.zrange(f"{key}:g:{len(group)}:{group.decode()}", 0, -1)))
    return found


def _audit_deadlines(client: Any, prefix: str, jobs: dict[int, dict[str, Any]]) -> None:
    armed = {member.decode(): int(at) for member, at in client.zrange(prefix + "deadlines", 0, -1, withscores=True)}
    for letter, state, field in (
        ("a", State.DELAYED, "due"),
        ("c", State.ACTIVE, "fires"),
        ("e", State.FAILED, "expires"),
    ):
        expected = {
            f"{letter}{sequence * 64:016d}": job[field]
            for sequence, job in jobs.items()
            if STATES[job["state"]] is state
        }
        assert {name: at for name, at in armed.items() if name[0] == letter} == expected, f"deadlines of {state} jobs"
