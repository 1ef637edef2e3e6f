"""What is told about jobs beside the queue: log lines with the job's fields, Sentry's events, spans."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stoker
from stoker.client.sync import Client
from stoker.logs import JsonLines, PlainLines
from stoker.model.options import Options
from stoker.worker.handler import Batch
from stoker.worker.joblog import JobLog
from stoker.worker.lane import JobChunk, JobFailure
from stoker.worker.outcomes import Failure, Verdict
from stoker.worker.worker import Worker
from tests.worker import reporting
from tests.worker.running import WAIT_S, Beside, handler, happens, push, push_many

ROOT = Path(__file__).parent.parent.parent


class Told(NamedTuple):
    lines: list[dict[str, Any]]
    events: list[dict[str, Any]]
    spans: list[dict[str, Any]]
    ids: dict[str, int]

    def of(self, job: str, logger: str = "stoker.worker") -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("job_name") == job and line["logger"] == logger]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """One worker process that works off one job of each kind, over a data directory."""
    home = tmp_path_factory.mktemp("reporting")
    url = f"sqlite:///{home}/queue"
    reporting.app.url = url
    kinds = ("coroutine", "thread", "process", "together", "snooze", "slow", "large", "fine")
    with reporting.app as app:
        ids = {kind: app.job_named(kind).push_sync(1).id for kind in kinds}
        ids["second"] = app.job_named("together").push_sync(2).id
    command = [sys.executable, "-m", "stoker", "worker", "tests.worker.reporting:app", "--url", url, "--burst"]
    done = subprocess.run(
        [*command, "--log-jobs", "--log-format", "json", "--name", "worker-7", "--processes", "1"],
        cwd=ROOT,
        env={**os.environ, "REPORTING_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return Told(lines, written(home / "sentry"), written(home / "spans"), ids)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["coroutine", "thread", "process", "together"])
def test_what_a_handler_logs_has_the_fields_of_its_job(told: Told, kind: str):
    (line,) = told.of(kind, "shop")
    assert line["message"] == f"about to fail in {kind}"
    assert (line["job_id"], line["attempt"], line["worker"]) == (told.ids[kind], 1, "worker-7")
    assert line["queue"] == ("mail" if kind == "together" else "my own"), "what the handler says itself is left alone"
    assert line.get("job_ids") == ([told.ids["together"], told.ids["second"]] if kind == "together" else None)


@pytest.mark.parametrize("kind", ["coroutine", "thread", "process", "together"])
def test_a_failed_job_has_a_line_with_its_fields_and_times(told: Told, kind: str):
    line = next(line for line in told.of(kind) if line["level"] == "warning")
    assert line["message"] == f"job {told.ids[kind]} ({kind}) failed in attempt 1 of 1: LookupError: no {kind}"
    assert (line["job_id"], line["queue"], line["attempt"]) == (told.ids[kind], "mail", 1)
    assert (line["worker"], line["error_class"]) == ("worker-7", "LookupError")
    assert 0 <= line["duration_ms"] <= line["held_ms"]
    assert line["since_push_ms"] >= 0


def test_every_job_that_ends_has_a_line_when_asked(told: Told):
    (line,) = told.of("fine")
    assert line["message"].startswith(f"job {told.ids['fine']} (fine) completed in ")
    assert line["level"] == "info"
    assert line["duration_ms"] >= 0
    (line,) = told.of("snooze")
    assert line["message"] == f"job {told.ids['snooze']} (snooze) was snoozed: not now"
    assert [line["job_id"] for line in told.of("together") if line["level"] == "info"] == [told.ids["second"]]


def test_a_timeout_is_told(told: Told):
    """By the worker's own clock or, if the machine is slow, by the queue, which has ended the delivery first."""
    line = told.of("slow")[0]
    assert (line["level"], line["job_id"]) == ("warning", told.ids["slow"])
    assert "exceeded its timeout of 1 s" in line["message"] or "lost its lease while it was running" in line["message"]
    assert line["held_ms"] >= 1_000


def test_a_result_that_is_too_large_is_told(told: Told):
    line = next(line for line in told.of("large") if line["level"] == "warning")
    assert line["job_id"] == told.ids["large"]
    assert "failed because the queue refuses its result" in line["message"]


@pytest.mark.parametrize("kind", ["coroutine", "thread", "process", "together"])
def test_sentry_finds_the_exception_with_the_fields_of_its_job(told: Told, kind: str):
    found = [event for event in told.events if event["tags"]["job_name"] == kind]
    (event,) = found
    assert event["exception"]["values"][-1]["value"] == f"no {kind}"
    tags = {name: str(value) for name, value in event["tags"].items()}
    assert tags["job_id"] == str(told.ids[kind])
    assert (tags["queue"], tags["attempt"], tags["worker"]) == ("mail", "1", "worker-7")
    assert event["contexts"]["job"]["job_name"] == kind
    assert event["transaction"] == kind


def test_sentry_hears_nothing_of_a_job_that_only_waits(told: Told):
    assert sorted(event["tags"]["job_name"] for event in told.events) == ["coroutine", "process", "thread", "together"]


@pytest.mark.parametrize("kind", ["coroutine", "thread", "process", "together"])
def test_a_span_has_the_exception_and_the_fields_of_its_job(told: Told, kind: str):
    (span,) = [span for span in told.spans if span["attributes"]["stoker.job.name"] == kind]
    assert span["attributes"]["messaging.message.id"] == str(told.ids[kind])
    assert span["attributes"]["messaging.destination.name"] == "mail"
    assert span["attributes"]["stoker.job.attempt"] == 1
    assert span["attributes"]["stoker.worker.id"] == "worker-7"
    (error,) = span["errors"]
    assert (error["exception.type"], error["exception.message"]) == ("LookupError", f"no {kind}")


# --- without a process of its own ------------------------------------------------------------------


class Records(logging.Handler):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(stoker.JobFields())
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def about(self, job: int) -> list[str]:
        return [one.getMessage() for one in self.records if getattr(one, "job_id", None) == job]


@pytest.fixture
def records() -> Iterator[Records]:
    kept, root = Records(), logging.getLogger()
    level = root.level
    root.addHandler(kept)
    root.setLevel("INFO")
    yield kept
    root.removeHandler(kept)
    root.setLevel(level)


def test_bare_handlers_have_the_fields_too_and_nothing_else_has(queue: Client, records: Records):
    """Those are called without a context: also in a batch, and in a thread that a coroutine asks for."""
    log = logging.getLogger("shop")

    async def waits(value: int) -> None:
        await asyncio.to_thread(log.info, "waits")

    def plain(value: int) -> None:
        log.info("plain")

    def batch(values: list[int]) -> None:
        log.info("batch")

    handlers = [handler(waits), handler(plain), handler(batch, batch=Batch(size=3, max_wait_ms=5_000), queue="b")]
    ids = {"waits": push(queue, "waits", 1), "plain": push(queue, "plain", 1)}
    several = push_many(queue, "batch", range(3), queue="b")
    Worker(queue, handlers, id="worker-7").run_until_idle()
    log.info("outside")
    told = {one.getMessage(): one for one in records.records if one.name == "shop"}
    for name, job in ids.items():
        fields = [getattr(told[name], field) for field in ("job_id", "job_name", "queue", "attempt", "worker")]
        assert fields == [job, name, "default", 1, "worker-7"]
    assert (vars(told["batch"])["job_ids"], vars(told["batch"])["jobs"]) == (several, 3)
    assert not hasattr(told["outside"], "job_id")


def test_a_lost_lease_and_what_is_settled_too_late_are_told(queue: Client, records: Records):
    started, go_on = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        happens(go_on)

    with Beside(Worker(queue, [handler(work)], id="worker-7")):
        job = push(queue, "work")
        happens(started)
        queue.move_to_delayed(job, 600_000)
        until_told(records, job, "lost its lease while it was running")
        go_on.set()
        until_told(records, job, "was lost before it was settled")
    assert {getattr(one, "worker", None) for one in records.records if getattr(one, "job_id", 0) == job} == {"worker-7"}


def until_told(records: Records, job: int, text: str) -> None:
    until = time.monotonic() + WAIT_S
    while not any(text in line for line in records.about(job)):
        assert time.monotonic() < until, f"nobody said {text!r}: {records.about(job)}"
        time.sleep(0.005)


def test_a_worker_that_stops_names_what_it_hands_back(queue: Client, records: Records):
    started, never = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        never.wait()

    with Beside(Worker(queue, [handler(work)], id="worker-7")) as beside:
        job = push(queue, "work")
        happens(started)
        beside.worker.stop_now()
        beside.join()
    never.set()
    assert records.about(job) == [f"job {job} (work) is not finished when the worker stops, and is handed back"]
    assert any(one.getMessage().startswith("worker-7 has stopped: ") for one in records.records)


def test_without_being_asked_a_worker_says_nothing_of_jobs_that_go_well(queue: Client, records: Records):
    job = push(queue, "work")
    Worker(queue, [handler(lambda: None, name="work")]).run_until_idle()
    assert records.about(job) == []


def test_jobs_that_fail_alike_are_one_line_unless_every_job_is_logged(records: Records):
    failed = [failed_in(chunk(1, 2, 3), job) for job in (1, 2, 3)]
    JobLog("worker-7").settled(failed)
    JobLog("worker-7").settled(failed[:2])
    JobLog("worker-7", every=True).settled(failed)
    assert [one.getMessage() for one in records.records] == [
        "job 1 (work) and 2 others failed in attempt 1 of 3: ValueError: no",
        "job 1 (work) and 1 other failed in attempt 1 of 3: ValueError: no",
        *(f"job {job} (work) failed in attempt 1 of 3: ValueError: no" for job in (1, 2, 3)),
    ]
    assert vars(records.records[0])["job_ids"] == [1, 2, 3]


def test_many_that_time_out_together_are_a_few_lines_and_their_number(records: Records):
    many = chunk(*range(1, 101))
    JobLog("worker-7").timed_out(many, list(many.ids))
    lines = [one.getMessage() for one in records.records]
    assert (len(lines), lines[-1][:23]) == (21, "and 80 more jobs (work)")
    assert vars(records.records[-1])["jobs"] == 100


def chunk(*ids: int) -> JobChunk:
    return JobChunk(handler(print, name="work"), 1, "q", ids, [b"[]"] * len(ids), Options(timeout_ms=1_000), 1, 0)


def failed_in(held: JobChunk, job: int) -> JobFailure:
    return JobFailure(held, job, Failure("no", "ValueError"), Verdict("retry"), 0.5)


def test_a_plain_line_names_the_job_of_what_a_handler_logged_and_does_not_repeat_it_for_the_worker():
    record = logging.makeLogRecord(
        {
            "name": "shop",
            "msg": "hello",
            "levelname": "INFO",
            "job_id": 7,
            "job_name": "mail",
            "worker": "w",
            "queue": "q",
        }
    )
    assert PlainLines().format(record).endswith("INFO    shop: hello job_id=7 job_name=mail")
    record.name = "stoker.worker"
    assert PlainLines().format(record).endswith("INFO    worker: hello")
    assert json.loads(JsonLines().format(record))["worker"] == "w"


# --- queues that are not there yet -----------------------------------------------------------------


def test_a_worker_says_once_that_its_queue_is_not_there_yet(queue: Client, records: Records):
    queue.push("mail", b"")
    done = threading.Event()
    with Beside(Worker(queue, [handler(done.set, name="send", queue="mail")], queues=["mial", "nothing", "mail"])):
        push(queue, "send", queue="nothing")
        happens(done)
        until_said(records, "queue 'mial' has no jobs and no configuration yet; did you mean 'mail'?")
    said = [one.getMessage() for one in records.records if "no configuration yet" in one.getMessage()]
    assert said.count("queue 'mial' has no jobs and no configuration yet; did you mean 'mail'?") == 1
    assert not [line for line in said if "queue 'mail'" in line]


def until_said(records: Records, text: str) -> None:
    until = time.monotonic() + WAIT_S
    while text not in [one.getMessage() for one in list(records.records)]:
        assert time.monotonic() < until, "nobody said it"
        time.sleep(0.005)
