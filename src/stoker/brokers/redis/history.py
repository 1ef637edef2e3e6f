"""Events, records and stories, out of the log of records."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stoker.brokers.redis.calls import LogRead, Plan, PlanContext, ScriptCall, decode
from stoker.engine import checks
from stoker.journal import story as stories
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.events import Event, EventKind
from stoker.model.limits import INT_MAX
from stoker.model.options import DeadLetterPolicy, RateLimit
from stoker.records import records as rec
from stoker.records.codec import open_record, queue_check
from stoker.records.events import events_of, size_of
from stoker.records.record_table import MEANS
from stoker.records.runs import count_events
from stoker.records.stored import Stored

PAGE = 1_000

Entries = Sequence[tuple[int, dict[bytes, bytes]]]


class LogPage(msgspec.Struct):
    """A page of the log, and how far the log reaches."""

    entries: Entries
    lowest: int
    last: int


def record_of(sequence: int, fields: dict[bytes, bytes]) -> rec.Record:
    """A record again; beside its head stand the bytes that a script could not write into it."""
    if b"c" in fields:
        return _configured(fields)
    record: Any = open_record(sequence, fields[b"h"])
    if b"d" in fields:
        record = msgspec.structs.replace(record, data=fields[b"d"])
    if b"s" in fields:
        sizes = decode(fields[b"s"])
        results = [None if size < 0 else Stored(sequence, place, size) for place, size in enumerate(sizes)]
        record = msgspec.structs.replace(record, results=results)
    return record  # type: ignore[no-any-return]


def _configured(fields: dict[bytes, bytes]) -> rec.QueueConfigured:
    rate, dead = decode(fields[b"c"])
    _, at, tenant, queue, paused, _, concurrency, group, _, refill, durability = decode(fields[b"h"])
    limit = RateLimit(*rate) if rate else None
    policy = DeadLetterPolicy(**dead)
    return rec.QueueConfigured(at, tenant, queue, paused, limit, concurrency, group, policy, refill, durability)


def read_events(context: PlanContext, command: c.ReadEvents) -> Plan[r.Events]:
    check_reading(context, command)
    after, kinds = command.after, frozenset(command.kinds) if command.kinds is not None else None
    done = yield TICK
    ends_at = done.now + command.wait_ms
    while True:
        found: list[Event] = []
        room = context.limits.reply_bytes_max
        while True:
            log: LogPage = yield LogRead(after, PAGE)
            for sequence, fields in log.entries:
                after = sequence
                events = [
                    event
                    for event in events_of(0, sequence, record_of(sequence, fields), kinds)
                    if command.queue in (None, event.queue) and (kinds is None or event.kind in kinds)
                ]
                found += events
                room -= sum(map(size_of, events))
                if len(found) >= command.limit or room <= 0:
                    break
            if len(log.entries) < PAGE or len(found) >= command.limit or room <= 0:
                break
        if found or done.now >= ends_at or not command.wait_ms:
            return r.Events(found, after, log.lowest)
        yield LogRead(after, 0, min(ends_at, done.next_at if done.next_at >= 0 else ends_at))
        done = yield TICK


TICK = ScriptCall("look", {"what": "tick"})
"""Let happen what is due."""


def check_reading(context: PlanContext, command: c.ReadEvents | c.ReadRecords) -> None:
    if command.shard != 0:
        raise errors.InvalidRequest(f"invalid shard {checks.short(command.shard)}: expected a whole number from 0 to 0")
    checks.number(command.after, "after", 0, INT_MAX)
    if isinstance(command, c.ReadEvents):
        checks.count(command.limit, "limit", context.limits.events_max)
        checks.count(command.wait_ms, "wait_ms", context.limits.wait_ms_max, 0)
        if command.queue is not None:
            checks.name(command.queue)
    for kind in command.kinds or ():
        if kind not in list(EventKind):
            raise errors.InvalidRequest(
                f"unknown kind of event {checks.short(kind)}: expected one of {', '.join(EventKind)}"
            )


def get_story(context: PlanContext, command: c.GetStory) -> Plan[r.Story]:
    """Reads the whole log that is kept: it is bounded, and a person asks."""
    checks.number(command.id, "id", 0, INT_MAX)
    records: list[tuple[int, rec.Record]] = []
    after, lowest = 0, 1
    yield TICK
    while True:
        log: LogPage = yield LogRead(after, PAGE)
        records += [(sequence, record_of(sequence, fields)) for sequence, fields in log.entries]
        lowest = log.lowest
        if len(log.entries) < PAGE:
            break
        after = records[-1][0]

    def read(shard: int, behind: int, limit: int) -> list[tuple[int, rec.Record]]:
        return [one for one in records if one[0] > behind][:limit]

    return stories.story(read, 0, command.id, context.tenant, lowest=lowest)


def read_records(context: PlanContext, command: c.ReadRecords) -> Plan[r.Records]:
    check_reading(context, command)
    checks.count(command.bytes_max, "bytes_max", context.limits.reply_bytes_max)
    if command.until is not None:
        checks.number(command.until, "until", 0, INT_MAX)
    checks.records(command)
    chosen = queue_check(command.queues, command.prefixes)
    kinds = frozenset(command.kinds) if command.kinds is not None else None
    yield TICK
    found: list[r.LoggedRecord] = []
    events = size = since = 0
    after, bytes_max = command.after, min(command.bytes_max, context.limits.reply_bytes_max)
    log: LogPage = yield LogRead(after, PAGE)
    for sequence, fields in log.entries:
        if (command.until is not None and sequence > command.until) or size >= bytes_max:
            break
        record: Any = record_of(sequence, fields)
        means = MEANS.get(type(record), frozenset())
        if (chosen is None or chosen(record.queue)) and (kinds is None or not means.isdisjoint(kinds)):
            more = count_events(record, kinds)
            if command.events_max is not None and events and events + more > command.events_max:
                break
            since = since or (record.at if more else 0)
            events += more
            head = fields[b"h"] if fields.keys() == {b"h"} else encode_head(record)
            size += len(head)
            if not command.counted:
                found.append(r.LoggedRecord(sequence, head))
        after = sequence
    return r.Records(found, after, log.lowest, log.last, 1, events, size, since)


def encode_head(record: rec.Record) -> bytes:
    """A record whose bytes stood beside its head, as the log of a data directory has it."""
    if type(record) is rec.Completed and record.results is not None:
        record = msgspec.structs.replace(
            record, results=[None if one is None else bytes(len(one)) for one in record.results]
        )
    return msgspec.msgpack.encode(record)
