"""Cron written down naively: look at every day, at every hour and minute in it, and ask what the clocks there show.

It knows nothing of the library that Stoker uses, and of time zones only the way from a local time to UTC and back.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

DAYS = "SUN MON TUE WED THU FRI SAT".split()
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
MINUTE = timedelta(minutes=1)


def numbers(field: str, low: int, high: int, names: list[str] | None = None, base: int = 0) -> set[int]:
    """The numbers that a field names: `*`, `*/n`, `a`, `a-b`, `a-b/n`, and lists of those."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = str(low), str(high)
        ends = [names.index(one) + base if names and one in names else int(one) for one in (first, last or first)]
        found |= set(range(ends[0], ends[1] + 1, int(step or 1)))
    return found


def slots(cron: str, zone_name: str, first: date, last: date) -> list[datetime]:
    """All slots on these days, in UTC and in order."""
    minute, hour, day, month, weekday = cron.split()
    zone = ZoneInfo(zone_name)
    by_the_clock = not minute.startswith("*") and not hour.startswith("*")
    found: set[datetime] = set()
    for one in days(first, last, day, month, weekday):
        for h in numbers(hour, 0, 23):
            for m in numbers(minute, 0, 59):
                shown = datetime(one.year, one.month, one.day, h, m)
                found |= {once(shown, zone)} if by_the_clock else set(whenever(shown, zone))
    return sorted(found)


def days(first: date, last: date, day: str, month: str, weekday: str) -> Iterator[date]:
    in_months, in_days = numbers(month, 1, 12, MONTHS, 1), numbers(day, 1, 31)
    in_weekdays = {number % 7 for number in numbers(weekday, 0, 7, DAYS)}
    one = first
    while one <= last:
        by_day, by_weekday = one.day in in_days, one.isoweekday() % 7 in in_weekdays
        either = not day.startswith("*") and not weekday.startswith("*")
        if one.month in in_months and (by_day or by_weekday if either else by_day and by_weekday):
            yield one
        one += timedelta(days=1)


def whenever(shown: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """The moments in which the clock there shows this time: one, none, or two."""
    for fold in (0, 1):
        moment = shown.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == shown:
            yield moment


def once(shown: datetime, zone: ZoneInfo) -> datetime:
    """The first moment in which the clock there shows this time, or the first time after it that it ever shows."""
    while not (moments := sorted(whenever(shown, zone))):
        shown += MINUTE
    return moments[0]
