"""Check a schedule. Checks raise the errors of `model/errors.py` and change nothing."""

from collections.abc import Sequence
from itertools import pairwise

from stoker.engine import checks, payload_templates
from stoker.engine.calendars import first_after
from stoker.engine.shard_state import ShardState
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.limits import INT_MAX, Limits
from stoker.model.schedules import NEXT_RUNS, Misfire, Overlap, Schedule

TIME_MAX = INT_MAX // 2
NOT_FOR_MANY = ("depends_on", "run_at", "schedule", "slot")
"""Options that make sense for one job only, or that the schedule fills in."""


def name(value: object, limits: Limits) -> None:
    checks.key(value, "schedule name", limits)
    if not str(value).isprintable():
        raise InvalidRequest(f"invalid schedule name {checks.short(value)}: expected printable characters only")


def schedule(shard: ShardState, value: object) -> None:
    """Check everything that does not depend on when the schedule is created."""
    limits = shard.limits
    if type(value) is not Schedule:
        raise InvalidRequest(f"invalid schedule: expected Schedule, got {type(value).__name__}")
    _rule(shard, value)
    _bounds(value)
    checks.number(value.runs_max, "runs_max", 0, INT_MAX)
    checks.choice(value.overlap, "overlap", Overlap)
    checks.choice(value.misfire, "misfire", Misfire)
    checks.count(value.misfires_max, "misfires_max", limits.schedule_catch_up_max)
    checks.duration(value.grace_ms, "grace_ms")
    checks.duration(value.jitter_ms, "jitter_ms")
    checks.flag(value.skip_if_no_worker, "skip_if_no_worker")
    _job(value, limits)


def _rule(shard: ShardState, value: Schedule) -> None:
    limits = shard.limits
    if type(value.zone) is not str:
        raise InvalidRequest(f"invalid zone {checks.short(value.zone)}: expected a name like Europe/Vienna")
    shard.calendar.check_zone(value.zone)
    checks.duration(value.every_ms, "every_ms")
    if (value.cron is not None) + bool(value.every_ms) + (value.at is not None) != 1:
        raise InvalidRequest("a schedule needs exactly one of cron, every_ms and at")
    if value.cron is not None:
        checks.text(value.cron, "cron", limits.schedule_cron_chars_max, 1)
        shard.calendar.check_cron(value.cron)
    elif value.every_ms and value.every_ms < limits.schedule_interval_ms_min:
        least = limits.schedule_interval_ms_min
        raise LimitExceeded(f"every_ms {value.every_ms} is below the minimum of {least}: use a longer interval")


def _bounds(value: Schedule) -> None:
    for field in ("at", "start_at", "end_at"):
        time = getattr(value, field)
        if time is not None:
            checks.number(time, field, 0, TIME_MAX)
    if value.at is not None and (value.start_at is not None or value.end_at is not None):
        raise InvalidRequest("invalid start_at or end_at: a schedule with `at` has one slot, so leave both out")
    if value.start_at is not None and value.end_at is not None and value.end_at <= value.start_at:
        raise InvalidRequest(f"invalid end_at {value.end_at}: expected a time after start_at {value.start_at}")


def _job(value: Schedule, limits: Limits) -> None:
    most = min(limits.schedule_payload_bytes_max, limits.payload_bytes_max)
    checks.payload(value.payload, limits, "payload", most)
    checks.options(value.options, limits)
    for field in NOT_FOR_MANY:
        if getattr(value.options, field):
            raise InvalidRequest(f"invalid option {field}: the jobs of a schedule cannot have it")
    checks.flag(value.template, "template")
    if value.template:
        payload_templates.check(value.payload, value.options.codec)


def slots(shard: ShardState, value: Schedule, anchor: int, first: int) -> None:
    """Check the slots: there is at least one, and they are not too close to each other."""
    if not first:
        raise InvalidRequest(f"invalid {_last_word(value)}: the schedule has no slot left and would never run")
    gaps = [later - earlier for earlier, later in pairwise(upcoming(shard, value, anchor, first, NEXT_RUNS))]
    least = min(gaps, default=0)
    if not least:
        return
    if value.jitter_ms >= least:
        raise InvalidRequest(
            f"invalid jitter_ms {value.jitter_ms}: expected less than the {least} ms between two slots"
        )
    most = shard.limits.schedule_catch_up_max
    if value.grace_ms > least * most:
        raise LimitExceeded(
            f"grace_ms {value.grace_ms} covers more than {most} slots, which may all be pushed at once: make it shorter"
        )


def _last_word(value: Schedule) -> str:
    """The field because of which no slot is left."""
    if value.at is not None:
        return f"at {value.at}"
    return f"end_at {value.end_at}" if value.end_at is not None else f"cron {checks.short(value.cron)}"


def upcoming(shard: ShardState, value: Schedule, anchor: int, first: int, most: int) -> Sequence[int]:
    """This slot and those that follow."""
    found = [first] if first else []
    while found and len(found) < most:
        slot = first_after(shard.calendar, value, anchor, found[-1])
        if not slot:
            break
        found.append(slot)
    return found
