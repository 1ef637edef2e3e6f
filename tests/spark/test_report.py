"""The page of a report: from the same numbers the same bytes, and something to see in every case."""

import json
import re
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

from stoker.cli.main import stoker
from stoker.spark.report import charts
from stoker.spark.report.numbers import time_to_drain, without_gaps
from stoker.spark.report.page import page
from tests.spark.conftest import Past
from tests.spark.life import QUEUES, TENANTS, counters
from tests.spark.test_counts import rows_of


def point(minute: int, **told: Any) -> dict[str, Any]:
    """One of a series, at which nothing happened but what is told."""
    counted = ("pushed", "started", "completed", "failed", "retrying", "cancelled", "expired", "ended", "missed")
    measured = ("wait", "total", "ready", "latency")
    latencies = {f"{name}_ms_{word}": None for name in measured for word in ("p50", "p90", "p99")}
    start = {"start": f"2026-11-16T08:{minute:02}:00Z", "backlog": 0, "slo_burn": None}
    return dict.fromkeys(counted, 0) | latencies | start | told


def told(**more: Any) -> dict[str, Any]:
    """The numbers of a lake in which one job was pushed and nothing else has happened."""
    head: dict[str, Any] = {"events": 1, "pushed": 1, "completed": 0, "dead_letters": 0, "success": None}
    head |= {
        "in_time": None,
        "slo_burn": None,
        "latency_ms_p50": None,
        "latency_ms_p99": None,
        "total_ms_p99": None,
        "objective_ms": 60_000,
        "objective_share": 0.99,
        "cost": 0.0,
    }
    head |= {"retry_amplification": None, "backlog": 1, "drained_in_s": None}
    head |= {"from": "2026-11-16T08:00:00Z", "until": "2026-11-16T08:00:00Z"}
    lists = ("drains", "queues", "kinds", "payloads", "tenants", "failures", "dead", "letters", "workers", "schedules")
    scope = dict.fromkeys(("from", "until", "queue", "tenant"))
    return {"scope": scope, "grain": "minute", "headline": head, "series": [point(0, pushed=1, backlog=1)]} | {
        name: more.get(name, []) for name in (*lists, "markers")
    }


LIVE = ("waiting", "delayed", "blocked", "active")


def report(past: Past, *given: str) -> dict[str, Any]:
    """What is typed, and what is printed."""
    run = CliRunner().invoke(stoker, ["pipeline", "report", "--lake", str(past.path), *given, "--json"])
    assert run.exit_code == 0, run.output
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def check_against(found: dict[str, Any], own: list[dict[str, int]]) -> None:
    """The report says what the queues themselves have counted: events, and jobs by where they are now."""
    head = found["headline"]
    for name in ("pushed", "started", "completed", "failed", "cancelled", "expired"):
        assert head[name] == sum(counted[name] for counted in own), name
    live = sum(counted[f"now_{state}"] for counted in own for state in LIVE)
    assert head["backlog"] == found["series"][-1]["backlog"] == live
    assert sum(row["backlog"] for row in found["drains"]) == live
    dead = sum(counted["now_failed"] for counted in own)
    assert 0 < dead < head["jobs"]["failed"] < head["failed"], "some were removed, and some were revived"
    assert sum(row["count"] for row in found["dead"]) == head["dead_letters"] == dead
    assert sum(row["dead_letters"] for row in found["tenants"]) == dead
    assert head["success"] > head["completed"] / (head["completed"] + head["failed"]), "jobs, not events"


def test_the_report_of_a_lake_tells_what_the_queue_counted(past: Past, tmp_path: Path):
    """Each tenant had a random life of its own. With `--json`, page and picture are written as well."""
    drawn, picture = tmp_path / "report.html", tmp_path / "report.png"
    found = report(past, "--price-job", "0.5", "--out", str(drawn), "--png", str(picture))
    head, own = found["headline"], counters(past.queue)
    check_against(found, list(own.values()))
    assert {row["tenant"] for row in found["tenants"]} == set(TENANTS)
    assert sum(tenant["cost"] for tenant in found["tenants"]) == head["cost"] == head["pushed"] * 0.5
    for table in ("kinds", "failures"):  # the first rows of it
        assert 0 < sum(row["dead_letters"] for row in found[table]) <= head["dead_letters"], table
    assert {row["schedule"] for row in found["schedules"]} == {"nightly"}
    assert all(0 < row["busy_ms"] <= row["span_ms"] * 1_000 for row in found["workers"])
    assert {row["kind"] for row in found["markers"]} > {"worker lost", "queue paused", "queue changed", "limit reached"}
    assert head["latency_ms_p50"] < head["total_ms_p50"], "delays that were asked for are no latency"
    dead = {
        job.id for tenant in TENANTS for queue in QUEUES for job in past.queue.as_tenant(tenant).list_dead(queue).jobs
    }
    assert {row["job"] for row in found["letters"]} <= dead
    written = drawn.read_text()
    assert f"stoker job show {found['letters'][0]['job']}<" in written
    assert page(found) == written
    assert written.count("<svg") == len(charts.CHARTS)
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", written), "it needs nothing from elsewhere"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_report_is_about_a_period_a_queue_and_a_tenant(past: Past):
    whole = rows_of(past.lake.read("minutes", tenant="other", queue="mail"))
    middle = sorted(row["minute"] for row in whole.select("minute").distinct().collect())
    since = middle[len(middle) // 2].astimezone(UTC)
    given = ("--tenant", "other", "--queue", "mail", "--from", since.isoformat())
    found = report(past, *given, "--compare")
    own = counters(past.queue)["other", "mail"]
    assert found["scope"]["from"] == since.isoformat().replace("+00:00", "Z")
    inside = whole.where(F.col("minute") >= F.lit(since)).agg(F.sum("pushed"), F.sum("failed")).first()
    assert (found["headline"]["pushed"], found["headline"]["failed"]) == tuple(inside or ())
    assert 0 < found["headline"]["pushed"] < own["pushed"]
    assert found["headline"]["backlog"] == sum(own[f"now_{state}"] for state in LIVE), "with those from before"
    assert found["headline"]["dead_letters"] == own["now_failed"]
    moved = found["headline"]["dead_letters"] - found["headline"]["dead_letters_then"]
    assert moved == sum(row["count"] - row["then"] for row in found["dead"])
    assert [row["queue"] for row in found["queues"]] == ["mail"]
    assert found["before"]["events"] > 0
    assert "compared with the period before" in page(found)


def test_a_period_that_makes_no_sense_is_refused():
    for given in (["--compare"], ["--last", "2h", "--from", "1h"], ["--from", "1h", "--until", "2h"], ["--last", "1s"]):
        assert CliRunner().invoke(stoker, ["pipeline", "report", *given]).exit_code == 2, given


def test_a_lake_that_is_nearly_empty_has_a_page(recwarn: pytest.WarningsRecorder):
    written = page(told())
    assert "no job has completed yet" in written
    assert "no job has ended yet" in written
    assert charts.png(told()).startswith(b"\x89PNG")
    assert [str(warning.message) for warning in recwarn] == []


def test_an_empty_lake_has_a_page():
    empty = {"headline": {"events": 0}, "series": [], "grain": "minute"}
    nowhere: dict[str, Any] = dict.fromkeys(("from", "until", "queue", "tenant"))
    assert "stoker pipeline run" in page({"scope": nowhere, **empty})
    assert "choose another period" in page({"scope": nowhere | {"queue": "mail"}, **empty})


def test_names_from_outside_are_text_and_nothing_else():
    evil = "<script>alert(1)</script>"
    failure = {"fingerprint": evil, "reasons": [evil], "queues": [evil], "count": 1, "dead_letters": 1, "example": evil}
    failure |= {"example_job": 64}
    kind = {"queue": evil, "name": evil, "completed": 1, "failed": 0, "retrying": 0, "dead_letters": 0}
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
