"""The page of a report: from the same numbers the same bytes, and something to see in every case."""

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner

from stoker.cli.main import stoker
from stoker.spark.report import charts
from stoker.spark.report.numbers import time_to_drain, without_gaps
from stoker.spark.report.page import page
from tests.spark.conftest import Past
from tests.spark.life import TENANTS, counters


def point(minute: int, **told: Any) -> dict[str, Any]:
    """One of a series, at which nothing happened but what is told."""
    counted = ("pushed", "started", "completed", "failed", "retrying", "cancelled", "expired", "ended", "missed")
    latencies = {f"{name}_ms_{word}": None for name in ("wait", "total") for word in ("p50", "p90", "p99")}
    start = {"start": f"2026-11-16T08:{minute:02}:00Z", "backlog": 0, "slo_burn": None}
    return dict.fromkeys(counted, 0) | latencies | start | told


def told(**more: Any) -> dict[str, Any]:
    """The numbers of a lake in which one job was pushed and nothing else has happened."""
    head: dict[str, Any] = {"events": 1, "pushed": 1, "completed": 0, "failed": 0, "success": None}
    head |= {
        "in_time": None,
        "slo_burn": None,
        "total_ms_p50": None,
        "total_ms_p99": None,
        "objective_ms": 60_000,
        "objective_share": 0.99,
        "cost": 0.0,
    }
    head |= {"retry_amplification": None, "backlog": 1, "drained_in_s": None}
    head |= {"from": "2026-11-16T08:00:00Z", "until": "2026-11-16T08:00:00Z"}
    lists = ("drains", "states", "kinds", "payloads", "tenants", "failures", "dead", "workers", "schedules")
    return {"grain": "minute", "headline": head, "series": [point(0, pushed=1, backlog=1)]} | {
        name: more.get(name, []) for name in lists
    }


def test_the_page_of_a_lake_tells_what_the_queue_counted(past: Past):
    """And what is typed prints the numbers from which the page is drawn."""
    given = ["pipeline", "report", "--lake", str(past.path), "--price-job", "0.5", "--json"]
    found = json.loads(CliRunner().invoke(stoker, given).stdout)
    own = counters(past.queue).values()
    head = found["headline"]
    for name in ("pushed", "started", "completed", "failed", "cancelled", "expired"):
        assert head[name] == sum(counted[name] for counted in own)
    live = sum(counted[f"now_{state}"] for counted in own for state in ("waiting", "delayed", "blocked", "active"))
    assert head["backlog"] == found["series"][-1]["backlog"] == live
    assert sum(state["now"] for state in found["states"]) == live
    assert {row["tenant"] for row in found["tenants"]} == set(TENANTS)
    assert sum(tenant["cost"] for tenant in found["tenants"]) == head["cost"] == head["pushed"] * 0.5
    assert sum(row["count"] for row in found["dead"]) == head["failed"]
    assert {row["schedule"] for row in found["schedules"]} == {"nightly"}
    assert all(0 < row["busy_ms"] <= row["span_ms"] * 1_000 for row in found["workers"])
    written = page(found)
    assert page(found) == written
    assert written.count("<svg") == len(charts.CHARTS)
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", written), "it needs nothing from elsewhere"


def test_a_lake_that_is_nearly_empty_has_a_page(recwarn: pytest.WarningsRecorder):
    written = page(told())
    assert "no job has completed yet" in written
    assert "no job has ended yet" in written
    assert charts.png(told()).startswith(b"\x89PNG")
    assert [str(warning.message) for warning in recwarn] == []


def test_an_empty_lake_has_a_page():
    assert "stoker pipeline run" in page({"headline": {"events": 0}, "series": [], "grain": "minute"})


def test_names_from_outside_are_text_and_nothing_else():
    evil = "<script>alert(1)</script>"
    failure = {"fingerprint": evil, "reasons": [evil], "queues": [evil], "count": 1, "dead": 1, "example": evil}
    kind = {"queue": evil, "name": evil, "completed": 1, "failed": 0, "retrying": 0}
    kind |= {"run_ms_p50": 1, "run_ms_p95": 2, "run_ms_p99": 3}
    assert "<script" not in page(told(failures=[failure], kinds=[kind]))


def test_a_backlog_is_gone_when_it_is_gone():
    assert time_to_drain(0, 5.0) == 0
    assert time_to_drain(100, -2.0) == 50
    assert time_to_drain(100, 0.0) is None
    assert time_to_drain(100, 1.0) is None


def test_times_at_which_nothing_happened_are_in_the_chart():
    series = without_gaps([point(0, pushed=3, backlog=3), point(3, completed=3)], "minute")
    assert [each["start"][14:16] for each in series] == ["00", "01", "02", "03"]
    assert [(each["pushed"], each["backlog"], each["total_ms_p50"]) for each in series[1:3]] == [(0, 3, None)] * 2
