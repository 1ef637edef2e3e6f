"""Slots of cron expressions in time zones: both switches of the clock, and years of slots.

The table is the one of docs/schedules.md. What the calendar says is held against `naive.py`, which looks at every day.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache

import pytest

from stoker.model.errors import InvalidRequest
from stoker.runtime.calendar import IanaCalendar, in_ms
from tests.schedules import naive
from tests.soaking import SOAKS

CALENDAR = IanaCalendar()
DAY = timedelta(days=1)


def ms(text: str) -> int:
    return in_ms(datetime.fromisoformat(text))


def calendar_slots(cron: str, zone: str, start: int, end: int) -> Iterator[int]:
    """All slots from `start` on, before `end`."""
    slot = CALENDAR.after(cron, zone, start - 1)
    while 0 < slot < end:
        yield slot
        slot = CALENDAR.after(cron, zone, slot)


def written(cron: str, zone: str, day: str, days: int = 2) -> list[str]:
    """The slots of a day and of the next one, as the clock there shows them."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - DAY
    found = calendar_slots(cron, zone, in_ms(start), in_ms(start + (days + 2) * DAY))
    shown = [CALENDAR.written(slot, zone) for slot in found]
    until = (datetime.fromisoformat(day) + (days - 1) * DAY).date().isoformat()
    return [text for text in shown if day <= text[:10] <= until]


SWITCHES: list[tuple[str, str, str, list[str]]] = [
    # the clock is set forward: what falls into the gap comes when it is over
    ("Europe/Vienna", "30 2 * * *", "2027-03-28", ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]),
    ("Europe/Vienna", "0,15,30 2 * * *", "2027-03-28", ["2027-03-28T03:00:00+02:00"]),
    ("Europe/Vienna", "0 3 * * *", "2027-03-28", ["2027-03-28T03:00:00+02:00"]),
    ("America/New_York", "15 2 * * *", "2027-03-14", ["2027-03-14T03:00:00-04:00", "2027-03-15T02:15:00-04:00"]),
    ("Europe/London", "30 1 * * *", "2027-03-28", ["2027-03-28T02:00:00+01:00"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2027-10-03", ["2027-10-03T02:30:00+11:00"]),
    ("America/Santiago", "0 0 * * *", "2027-09-05", ["2027-09-05T01:00:00-03:00"]),
    ("Antarctica/Troll", "30 1 * * *", "2027-03-28", ["2027-03-28T03:00:00+02:00"]),
    # the clock is set back: what it shows twice comes the first time
    ("Europe/Vienna", "30 2 * * *", "2027-10-31", ["2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"]),
    ("America/New_York", "30 1 * * *", "2027-11-07", ["2027-11-07T01:30:00-04:00", "2027-11-08T01:30:00-05:00"]),
    ("Europe/London", "0 1 * * *", "2027-10-31", ["2027-10-31T01:00:00+01:00"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2027-04-04", ["2027-04-04T01:45:00+11:00"]),
    ("America/Santiago", "30 23 * * *", "2027-04-03", ["2027-04-03T23:30:00-03:00", "2027-04-04T23:30:00-04:00"]),
    ("Antarctica/Troll", "30 1 * * *", "2027-10-31", ["2027-10-31T01:30:00+02:00"]),
    # with a star in front, minutes or hours go by the time that really passes
    ("Europe/Vienna", "*/30 2 * * *", "2027-03-28", []),
    (
        "Europe/Vienna",
        "*/30 2 * * *",
        "2027-10-31",
        [f"2027-10-31T02:{m}:00{o}" for o in ("+02:00", "+01:00") for m in ("00", "30")],
    ),
    # seconds are counted inside of minutes, and change nothing of that
    ("Europe/Vienna", "15 30 2 * * *", "2027-03-28", ["2027-03-28T03:00:15+02:00", "2027-03-29T02:30:15+02:00"]),
    ("Europe/Vienna", "15 30 2 * * *", "2027-10-31", ["2027-10-31T02:30:15+02:00", "2027-11-01T02:30:15+01:00"]),
    # zones without a switch, and odd ones
    ("Asia/Kathmandu", "30 2 * * *", "2027-03-28", ["2027-03-28T02:30:00+05:45"]),
    ("UTC", "30 2 * * *", "2027-03-28", ["2027-03-28T02:30:00+00:00"]),
]


@pytest.mark.parametrize(("zone", "cron", "day", "expected"), SWITCHES, ids=lambda value: str(value)[:28])
def test_switches_of_the_clock(zone: str, cron: str, day: str, expected: list[str]):
    days = len({text[:10] for text in expected}) or 1
    assert written(cron, zone, day, days) == expected


@pytest.mark.parametrize("day", ["2027-03-28", "2027-10-31"])
def test_every_hour_is_every_hour_that_passes(day: str):
    start = in_ms(datetime.fromisoformat(day).replace(tzinfo=UTC) - DAY)
    found = list(calendar_slots("0 * * * *", "Europe/Vienna", start, start + 3 * 86_400_000))
    assert found == list(range(start, start + 3 * 86_400_000, 3_600_000))


ZONES = (
    "Europe/Vienna",
    "Europe/London",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Antarctica/Troll",
)
"""With switches at night, at midnight, by half an hour, by two hours, four times a year, and never."""

YEARS = (date(2026, 1, 1), date(2035 if SOAKS else 2029, 12, 31))
"""One of them has a 29th of February."""
DAILY = ("30 2 * * *", "0 0 * * MON-FRI", "0 2 29 2 *", "30 1,2 1,15 * SUN")


@pytest.mark.parametrize("cron", DAILY)
@pytest.mark.parametrize("zone", ZONES)
def test_years_of_slots(zone: str, cron: str):
    expected = [in_ms(moment) for moment in naive.slots(cron, zone, *YEARS)]
    assert expected
    assert list(calendar_slots(cron, zone, expected[0], expected[-1] + 1)) == expected


@cache
def around_switches(zone: str) -> list[date]:
    """Days on which the clock is changed, and the one before."""
    found: list[date] = []
    day = YEARS[0]
    while day <= YEARS[1]:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        before, after = (CALENDAR.written(in_ms(noon - back), zone)[-6:] for back in (DAY, timedelta()))
        if before != after:
            found.append(day - DAY)
        day += DAY
    return found


@pytest.mark.parametrize("cron", ["*/20 * * * *", "*/15 1-3 * * *", "7 * * * *", "30 */2 * * *"])
@pytest.mark.parametrize("zone", ZONES)
def test_what_goes_by_real_time_around_every_switch(zone: str, cron: str):
    for day in around_switches(zone)[:8]:
        found = [in_ms(moment) for moment in naive.slots(cron, zone, day - DAY, day + 3 * DAY)]
        start, end = found[len(found) // 4], found[-len(found) // 4]
        expected = [slot for slot in found if start <= slot < end]
        assert list(calendar_slots(cron, zone, start, end)) == expected, f"{zone} around {day}"


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0 0 29 2 *", "*/10 * * * * *", "5,9 30 2 * * *"])
@pytest.mark.parametrize("zone", ["Europe/Vienna", "Australia/Lord_Howe", "UTC"])
def test_looking_back_finds_the_slot_that_looking_forward_would_have(zone: str, cron: str):
    for text in ("2027-03-28T01:10:00+00:00", "2027-10-31T00:45:30+00:00", "2027-10-31T01:45:00+00:00"):
        slot = CALENDAR.after(cron, zone, ms(text))
        following = CALENDAR.after(cron, zone, slot)
        assert CALENDAR.until(cron, zone, slot) == slot
        assert CALENDAR.until(cron, zone, following - 1) == slot
        assert CALENDAR.until(cron, zone, slot - 1) < slot


def test_a_slot_that_the_clock_shows_again_is_not_taken_again():
    """Whoever asks in the hour that is repeated must not be sent back into the one before."""
    first = ms("2027-10-31T02:30:00+02:00")
    for minute in range(60):
        assert CALENDAR.after("30 2 * * *", "Europe/Vienna", first + minute * 60_000) == ms("2027-11-01T02:30:00+01:00")


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("0 0 * * sun", "0 0 * * 7"),
        ("0 0 * jan *", "0 0 * 1 *"),
        ("0 0 12 * * *", "0 12 * * *"),
        ("0 */5 * * *", "0 0-23/5 * * *"),
    ],
)
def test_spellings_of_the_same_times(short: str, long: str):
    CALENDAR.check_cron(short)
    time = ms("2026-11-16T08:00:00+00:00")
    assert CALENDAR.after(short, "UTC", time) == CALENDAR.after(long, "UTC", time)


def test_six_fields_begin_with_the_second():
    start = ms("2026-11-16T08:00:00+00:00")
    assert list(calendar_slots("*/20 * * * * *", "UTC", start, start + 60_000)) == [
        start,
        start + 20_000,
        start + 40_000,
    ]
    assert CALENDAR.after("30 15 8 * * *", "UTC", start) == ms("2026-11-16T08:15:30+00:00")


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "61 * * * *", "* 24 * * *", "* * 32 * *", "* * * 13 *", "* * * * 8", "0 0 30 2 *", "0 0 31 4,6 *",
     "*/0 * * * *", "a b c d e", "@never", "* * * * * * *", "1-0 * * * *", "¹ * * * *", "5/-1 * * * *"],
)  # fmt: skip
def test_what_says_no_time_is_refused(cron: str):
    with pytest.raises(InvalidRequest, match="cron"):
        CALENDAR.check_cron(cron)


@pytest.mark.parametrize("zone", ["", "Europe/Atlantis", "europe", "Europe", "../etc/passwd", "/etc/passwd", "x" * 99])
def test_zones_that_are_none_are_refused(zone: str):
    with pytest.raises(InvalidRequest, match="zone"):
        CALENDAR.check_zone(zone)
    assert CALENDAR.after("* * * * *", zone, 0) == 0


def test_the_calendar_ends_somewhere():
    assert CALENDAR.after("* * * * *", "UTC", ms("9999-01-01T00:00:00+00:00")) == 0
    assert CALENDAR.until("0 0 29 2 *", "UTC", ms("1970-01-02T00:00:00+00:00")) == 0
