"""The calendar that the engine needs, and the slots of schedules.

Cron expressions and time zones need a calendar, which the engine does not have. Decisions ask the calendar that the
runtime provides and put its answers into records. Intervals and single times are plain arithmetic.
"""

from typing import Protocol

from stoker.model.errors import InvalidRequest
from stoker.model.schedules import Schedule

NONE = 0
"""The answer for "no such slot"."""


class Calendar(Protocol):
    """Knows time zones and cron expressions. Only decisions ask it; applying a record never does."""

    def check_zone(self, zone: str) -> None:
        """Refuse an unknown zone."""
        ...

    def check_cron(self, cron: str) -> None:
        """Refuse an expression that cannot be parsed. One whose dates never come is allowed and has no slots."""
        ...

    def after(self, cron: str, zone: str, time: int) -> int:
        """The first slot later than `time`; 0 if there is none."""
        ...

    def until(self, cron: str, zone: str, time: int) -> int:
        """The last slot that is not later than `time`; 0 if there is none."""
        ...

    def written(self, time: int, zone: str) -> str:
        """A time as text, with its offset."""
        ...


class NoCalendar:
    """The calendar of a shard that was given none. Cron expressions and zones other than UTC are refused."""

    def check_zone(self, zone: str) -> None:
        if zone != "UTC":
            raise InvalidRequest(f"unknown zone {zone!r}: this broker has no calendar and only knows UTC")

    def check_cron(self, cron: str) -> None:
        raise InvalidRequest("cron expressions need a calendar, which this broker does not have: use every_ms or at")

    def after(self, cron: str, zone: str, time: int) -> int:
        return NONE

    def until(self, cron: str, zone: str, time: int) -> int:
        return NONE

    def written(self, time: int, zone: str) -> str:
        return str(time)


def first_after(calendar: Calendar, schedule: Schedule, anchor: int, time: int) -> int:
    """The first slot later than `time`; 0 if there is none. Intervals without a start count from the anchor."""
    slot = NONE
    if schedule.at is not None:
        slot = schedule.at if schedule.at > time else NONE
    elif schedule.every_ms:
        slot = _first_interval(schedule, anchor, time)
    elif schedule.cron is not None:
        start = time if schedule.start_at is None else max(time, schedule.start_at - 1)
        slot = calendar.after(schedule.cron, schedule.zone, start)
    return slot if schedule.end_at is None or slot < schedule.end_at else NONE


def _first_interval(schedule: Schedule, anchor: int, time: int) -> int:
    start = anchor + schedule.every_ms if schedule.start_at is None else schedule.start_at
    if time < start:
        return start
    return start + ((time - start) // schedule.every_ms + 1) * schedule.every_ms


def last_until(calendar: Calendar, schedule: Schedule, anchor: int, time: int) -> int:
    """The last slot that is not later than `time`; 0 if there is none."""
    if schedule.end_at is not None:
        time = min(time, schedule.end_at - 1)
    if schedule.at is not None:
        return schedule.at if schedule.at <= time else NONE
    if schedule.every_ms:
        start = anchor + schedule.every_ms if schedule.start_at is None else schedule.start_at
        return start + (time - start) // schedule.every_ms * schedule.every_ms if time >= start else NONE
    assert schedule.cron is not None
    slot = calendar.until(schedule.cron, schedule.zone, time)
    return slot if schedule.start_at is None or slot >= schedule.start_at else NONE
