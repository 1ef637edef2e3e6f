"""What stands on the page of a report besides its numbers."""

from typing import Any

from stoker.spark.report.page import growth, page
from tests.spark.test_report import point, told

EMPTY: dict[str, Any] = {"headline": {"events": 0}, "series": [], "grain": "minute"}


def test_one_is_no_plural_and_no_time_is_not_told():
    assert "<p>2026-11-16 08:00 UTC · 1 event · Stoker" in page(told())
    assert "<p>0 events · Stoker" in page(EMPTY)


def test_a_report_by_day_tells_its_days():
    numbers = told() | {"grain": "day", "series": [point(0, pushed=1, backlog=1)]}
    numbers["headline"] |= {"from": "2026-10-17T00:00:00Z", "until": "2026-11-15T00:00:00Z"}
    assert "<p>2026-10-17 to 2026-11-15 UTC · " in page(numbers)


def test_the_page_is_readable_in_the_dark():
    """Charts stand on no ground of their own: they are drawn for a light one, and turned around with the page."""
    written = page(told())
    assert "prefers-color-scheme: dark" in written
    assert "fill: #ffffff" not in written


def test_long_texts_leave_room_for_each_other():
    failure = {"fingerprint": "F" * 200, "reasons": ["failed"], "queues": ["mail"], "count": 1, "dead": 1}
    written = page(told(failures=[failure | {"example": "e" * 200}]))
    assert '<code class="long">FFF' in written
    assert '<span class="long">eee' in written


def test_a_queue_that_stands_still_has_no_sign():
    assert [growth(per_s) for per_s in (-1e-6, 0.0, 0.5, -20.0)] == ["0", "0", "+30.0", "-1,200.0"]
