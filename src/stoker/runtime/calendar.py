"""The calendar for schedules: cron expressions by `cronsim`, time zones by the IANA database.

Expressions mean what Debian's cron makes of them, also when the clock changes: docs/schedules.md has the table.
The engine asks the calendar when it decides. The calendar caches only answers that never change.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from stoker.model.errors import InvalidRequest

ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
ANSWERS_MAX = 16_384
"""Schedules with the same expression share one answer, however many they are."""
STEPS_BACK = 2
"""A search backwards starts this many slots earlier and then goes forward, because the forward search decides."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9900, 1, 1, tzinfo=UTC)
"""Beyond it there are no slots: the calendar itself ends soon after."""
MS = timedelta(milliseconds=1)


class IanaCalendar:
    """Asked by all shards of a process."""

    def check_zone(self, zone: str) -> None:
        if zone_of(zone) is None:
            raise InvalidRequest(
                f"unknown zone {zone[:80]!r}: expected a name of the IANA like Europe/Vienna or UTC; if it is one, the"
                " server's time zone data is too old"
            )

    def check_cron(self, cron: str) -> None:
        try:
            CronSim(spelled_out(cron), EPOCH)
        except CronSimError as error:
            raise InvalidRequest(
                f"invalid cron {cron[:80]!r}: {error}; expected five fields (minute hour day month weekday), six with"
                " the second first, or one of " + " ".join(SHORT)
            ) from None

    def after(self, cron: str, zone: str, time: int) -> int:
        found = zone_of(zone)
        return _after(spelled_out(cron), found, time) if found is not None else 0

    def until(self, cron: str, zone: str, time: int) -> int:
        found = zone_of(zone)
        return _until(spelled_out(cron), found, time) if found is not None else 0

    def written(self, time: int, zone: str) -> str:
        return local(time, zone_of(zone) or UTC).isoformat(timespec="seconds" if time % 1_000 == 0 else "milliseconds")


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> tzinfo | None:
    """None if there is no such zone. UTC is never looked for."""
    if name == "UTC":
        return UTC
    if len(name) > 64 or ZONE.fullmatch(name) is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there, not a name, a folder
        return None


def spelled_out(cron: str) -> str:
    return SHORT.get(cron.strip().lower(), cron)


def local(time: int, zone: tzinfo) -> datetime:
    return (EPOCH + time * MS).astimezone(zone)


def in_ms(moment: datetime) -> int:
    return (moment - EPOCH) // MS


@lru_cache(maxsize=ANSWERS_MAX)
def _after(cron: str, zone: tzinfo, time: int) -> int:
    """Times that the clock shows twice may come out before `time`: the hour that is repeated was over already."""
    start = EPOCH + time * MS
    if start >= LATEST:
        return 0
    fields = cron.split()
    if len(fields) == 6:
        return _second_after(cron, " ".join(fields[1:]), zone, time)
    for moment in _slots(cron, start.astimezone(zone)):
        slot = in_ms(moment)
        if slot > time:
            return slot
    return 0


def _second_after(cron: str, minutes: str, zone: tzinfo, time: int) -> int:
    """Seconds stand inside of minutes, which are found as if there were no seconds: so both obey the same rules."""
    minute = _after(minutes, zone, time - time % 60_000 - 1)
    while minute:
        for second in _seconds(cron):
            if minute + second * 1_000 > time:
                return minute + second * 1_000
        minute = _after(minutes, zone, minute)
    return 0


@lru_cache(maxsize=1_024)
def _seconds(cron: str) -> tuple[int, ...]:
    return tuple(sorted(CronSim(cron, EPOCH).seconds))


@lru_cache(maxsize=ANSWERS_MAX)
def _until(cron: str, zone: tzinfo, time: int) -> int:
    start = time
    for _ in range(STEPS_BACK):
        earlier = next(_slots(cron, local(start, zone), reverse=True), None)
        if earlier is None:
            break
        start = in_ms(earlier)
    slot, found = _after(cron, zone, start - 1), 0
    while 0 < slot <= time:
        slot, found = _after(cron, zone, slot), slot
    return found


def _slots(cron: str, start: datetime, **how: Any) -> Iterator[datetime]:
    """Slots from a moment on, until the calendar ends."""
    try:
        yield from CronSim(cron, start, **how)
    except (CronSimError, OverflowError):
        return
