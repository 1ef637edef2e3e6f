"""The rest of the audit: keys, groups, edges, workflows; deadlines of keys, of times to live and of retention."""

from collections import defaultdict
from typing import Any

import msgspec

from stoker.brokers.redis.views import options_of
from stoker.model.options import Options
from stoker.model.states import STATES, State

LIVE = (State.WAITING, State.DELAYED, State.BLOCKED, State.ACTIVE)
EXPIRES = (State.WAITING, State.DELAYED, State.BLOCKED)
TTL, DEAD_RETRY, KEY, AGE = "b", "d", "f", "g"
STEP_OPEN, STEP_GOOD = range(2)

Jobs = dict[int, dict[str, Any]]
unpack = msgspec.msgpack.Decoder().decode
parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class Found:
    """A tenant in Redis: its jobs by queue, each with its options."""

    def __init__(self, client: Any, prefix: str, by_queue: dict[str, Jobs]) -> None:
        self.client, self.prefix, self.by_queue = client, prefix, by_queue
        self.jobs = {sequence: job for jobs in by_queue.values() for sequence, job in jobs.items()}
        self.options = {sequence: self._options(job["option"]) for sequence, job in self.jobs.items()}
        deadlines = client.zrange(prefix + "deadlines", 0, -1, withscores=True)
        self.armed = {member.decode(): int(at) for member, at in deadlines}

    def _options(self, number: int) -> Options:
        raw = self.client.hget(self.prefix + "o", str(number))
        return options_of(raw[3 + int.from_bytes(raw[1:3]) :])

    def key(self, queue: str, rest: str = "") -> str:
        return f"{self.prefix}q:{len(queue)}:{queue}{rest}"

    def state(self, sequence: int) -> State | None:
        return STATES[self.jobs[sequence]["state"]] if sequence in self.jobs else None

    def due(self, letter: str) -> dict[str, int]:
        return {member[1:]: at for member, at in self.armed.items() if member[0] == letter}


def audit_indexes(client: Any, prefix: str, by_queue: dict[str, Jobs]) -> None:
    found = Found(client, prefix, by_queue)
    keys: dict[str, int] = {}
    for queue in sorted(name.decode() for name in client.smembers(prefix + "queues")):
        keys |= _audit_keys(found, queue)
        _audit_groups(found, queue)
        _audit_ages(found, queue)
    assert found.due(KEY) == keys, "deadlines of keys"
    _audit_times_to_live(found)
    again = {place(seq): job["again"] for seq, job in found.jobs.items() if job["again"] and is_dead(found, seq)}
    assert found.due(DEAD_RETRY) == again, "deadlines of dead letters that are tried again"
    _audit_edges(found)
    _audit_workflows(found)


def place(sequence: int) -> str:
    return f"{sequence * 64:016d}"


def is_dead(found: Found, sequence: int) -> bool:
    return found.state(sequence) is State.FAILED


def _audit_keys(found: Found, queue: str) -> dict[str, int]:
    """The deadlines that its keys must have."""
    raw = found.client.hgetall(found.key(queue, ":keys"))
    stored = {field.decode(): [unpack(part) for part in parts(value)[:2]] for field, value in raw.items()}
    for field, (job_id, expires) in stored.items():
        if field[0] == "u" or (field[0] == "c" and not expires):
            assert found.state(job_id // 64) in LIVE, f"{queue}: {field} is held by a job that has ended"
    for sequence in found.by_queue.get(queue, {}):
        own = found.options[sequence].custom_id
        if own is not None and found.state(sequence) in LIVE:
            assert stored.get(f"c:{own}", [0])[0] == sequence * 64, f"{queue}: the custom id of job {sequence * 64}"
    return {f"{field[0]}{len(queue)}:{queue}:{field[2:]}": value[1] for field, value in stored.items() if value[1]}


def _audit_groups(found: Found, queue: str) -> None:
    client = found.client
    waiting: dict[str, set[int]] = defaultdict(set)
    for sequence in found.by_queue.get(queue, {}):
        group = found.options[sequence].group_id
        if group is not None and found.state(sequence) is State.WAITING:
            waiting[group].add(sequence)
    names = {name.decode() for name in client.smembers(found.key(queue, ":groups"))}
    held = {name.decode(): int(job) for name, job in client.hgetall(found.key(queue, ":h")).items()}
    offered = {name.decode(): int(job) for name, job in client.hgetall(found.key(queue, ":offered")).items()}
    assert waiting.keys() <= names, f"{queue}: a group that is not known"
    for name in names:
        members = set(map(int, client.zrange(found.key(queue, f":g:{len(name)}:{name}"), 0, -1)))
        assert members == waiting[name], f"{queue}: the jobs that wait in group {name}"
    for name, sequence in held.items():
        assert found.state(sequence) in LIVE, f"{queue}: group {name} is held by a job that has ended"
        assert found.state(sequence) is not State.WAITING, f"{queue}: group {name} is held by a job that waits"
        assert found.options[sequence].group_id == name, f"{queue}: group {name} is held by a job of another"
    heads = {name: min(members) for name, members in waiting.items() if name not in held}
    assert offered == heads, f"{queue}: the heads of its groups"
    active = {found.options[seq].group_id: seq for seq in found.by_queue.get(queue, {}) if is_held(found, seq)}
    assert active.items() <= held.items(), f"{queue}: a group that works and is not held"


def is_held(found: Found, sequence: int) -> bool:
    return found.state(sequence) is State.ACTIVE and found.options[sequence].group_id is not None


def _audit_ages(found: Found, queue: str) -> None:
    """Each job that has ended goes by its own deadline, or by the one of its queue."""
    ended = [seq for seq in found.by_queue.get(queue, {}) if found.state(seq) not in (*LIVE, State.FAILED)]
    own = found.due(AGE)
    without = [sequence for sequence in ended if place(sequence) not in own]
    assert not without or "q" + queue in own, f"{queue}: jobs {without} stay for ever"
    for name in own:
        if name[0] != "q":
            assert found.state(int(name) // 64) not in (*LIVE, State.FAILED, None), f"deadline {name} of no ended job"


def _audit_times_to_live(found: Found) -> None:
    due = found.due(TTL)
    for name in due:
        assert found.state(int(name) // 64) in EXPIRES, f"the time to live of job {name}, which runs or has ended"
    for sequence, job in found.jobs.items():
        options = found.options[sequence]
        if options.ttl_ms and found.state(sequence) in EXPIRES:
            assert due.get(place(sequence), 0) >= job["at"] + options.ttl_ms, f"the time to live of job {sequence * 64}"


def _audit_edges(found: Found) -> None:
    client = found.client
    expected: dict[int, set[int]] = defaultdict(set)
    for sequence in found.jobs:
        raw = client.hget(f"{found.prefix}x:{sequence * 64}", "b")
        if raw is not None and found.state(sequence) is State.BLOCKED:
            for edge in unpack(raw):
                expected[edge[0]].add(sequence * 64)
    edged = {int(job) for job in client.smembers(found.prefix + "edged")}
    assert expected.keys() <= edged, "a job that others wait for, and that does not know"
    for job in edged:
        waiting = set(map(int, client.zrange(f"{found.prefix}e:{job}", 0, -1)))
        assert expected[job] <= waiting, f"jobs that wait for job {job}"


def _audit_workflows(found: Found) -> None:
    for flow_id in map(int, found.client.zrange(found.prefix + "flows", 0, -1)):
        stored = {name.decode(): value for name, value in found.client.hgetall(f"{found.prefix}w:{flow_id}").items()}
        flow = unpack(stored["flow"])
        open_steps, sinks, good_sinks = flow[6], flow[8], flow[9]
        numbers = range(flow[7])
        steps = [(unpack(parts(stored[f"m:{number}"])[3]), unpack(stored[f"s:{number}"])) for number in numbers]
        said = f"workflow {flow_id}"
        assert open_steps == sum(now[7] == STEP_OPEN for _, now in steps), f"{said}: open steps"
        assert sinks == sum(not before for before, _ in steps), f"{said}: last steps"
        good = sum(not before and now[7] == STEP_GOOD for before, now in steps)
        assert good_sinks == good, f"{said}: last steps that ended well"
        for number, (_, now) in enumerate(steps):
            jobs = range(now[0] // 64, now[0] // 64 + now[1])
            live = sum(found.state(sequence) in LIVE for sequence in jobs)
            assert sum(now[5]) == now[1] - live, f"{said}: ended jobs of step {number}"
