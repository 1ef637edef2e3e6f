"""What stands on the page of a report besides its numbers."""

import re
from typing import Any

from stoker.spark.report.page import compared, page
from stoker.spark.report.page_tables import growth
from tests.spark.test_report import point, told

EMPTY: dict[str, Any] = told() | {"headline": {"events": 0}, "series": []}


def test_one_is_no_plural_and_no_time_is_not_told():
    assert "<p>2026-11-16 08:00 UTC · 1 event · Stoker" in page(told())
    assert "<p>0 events · Stoker" in page(EMPTY)


def test_a_report_by_day_tells_its_days():
    numbers = told() | {"grain": "day", "series": [point(0, pushed=1, backlog=1)]}
    numbers["headline"] |= {"from": "2026-10-17T00:00:00Z", "until": "2026-11-15T00:00:00Z"}
    assert "<p>2026-10-17 to 2026-11-15 UTC · " in page(numbers)


def test_the_page_is_readable_in_the_dark():
    """Charts stand on no ground of their own, and have the colours of the page."""
    written = page(told())
    assert "prefers-color-scheme: dark" in written
    assert not re.findall("#[0-9a-f]{6}", written.partition("<main>")[2])


def test_long_texts_leave_room_for_each_other():
    failure = {"fingerprint": "F" * 200, "reasons": ["failed"], "queues": ["mail"], "count": 1, "dead_letters": 1}
    written = page(told(failures=[failure | {"example": "e" * 200, "example_job": 64}]))
    assert '<code class="long">FFF' in written
    assert '<span class="long">eee' in written


def test_a_queue_that_stands_still_has_no_sign():
    assert [growth(per_s) for per_s in (-1e-6, 0.0, 0.5, -20.0)] == ["0", "0", "+30.0", "-1,200.0"]


def test_a_number_stands_beside_that_of_the_period_before():
    head = {"pushed": 30, "success": 0.9}
    told = [
        ({"pushed": 20}, "+50 %"),
        ({"pushed": 1}, "30 times as much"),
        ({"pushed": 30}, "as before"),
        ({}, "nothing"),
    ]
    for before, says in told:
        assert says in compared("pushed", head, before)
    assert "-5 points" in compared("success", head, {"success": 0.95})
    assert compared("pushed", head, None) == ""
