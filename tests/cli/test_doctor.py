"""`stoker doctor`: it finds problems, says what helps, and is quiet about the rest."""

import json
import time
from pathlib import Path

import pytest

from stoker import Client, connect
from stoker.cli import doctor_checks, exit_codes
from stoker.maintenance import Finding
from tests.cli.conftest import Stoker

HOUR_MS = 3_600_000


def found_in(outcome: str) -> dict[str, Finding]:
    return {one["name"]: Finding(**one) for one in json.loads(outcome)}


def test_a_data_directory_is_examined_with_its_queues(stoker: Stoker):
    stoker("push", "mail", "1")
    outcome = stoker("doctor", "--json")
    found = found_in(outcome.out)
    assert {"versions", "open files", "clock", "space", "manifest", "lock", "jobs", "workers"} <= found.keys()
    assert "1 waiting" in found["jobs"].found
    shown = stoker("doctor").out
    assert "-> start one: stoker worker module:app" in shown


def test_a_directory_that_is_not_there_is_not_made(stoker: Stoker, tmp_path: Path):
    outcome = stoker("doctor")
    assert "can be created" in outcome.out
    assert not (tmp_path / "stoker.db").exists()


def test_damage_is_a_problem_and_exits_with_1(stoker: Stoker, tmp_path: Path):
    stoker("push", "mail", "1")
    (log,) = (tmp_path / "stoker.db").glob("log-*.db")
    log.unlink()
    outcome = stoker("doctor")
    assert outcome.code == exit_codes.FAILED
    assert "PROBLEM" in outcome.out


def test_every_record_is_read_if_asked(stoker: Stoker):
    stoker("push", "mail", "1")
    assert "sequence" in found_in(stoker("doctor", "--full", "--json").out)
    outcome = stoker("doctor", "--full", "--url", "tcp://127.0.0.1:1")
    assert outcome.code == exit_codes.USAGE


def test_a_server_that_does_not_answer_is_a_problem(stoker: Stoker):
    outcome = stoker("doctor", "--url", "tcp://127.0.0.1:1?retry_s=0", "--json")
    assert outcome.code == exit_codes.FAILED
    assert found_in(outcome.out)["connection"].status == "problem"


def test_a_warning_is_no_failure_unless_one_is_strict(client: Client, at: Stoker):
    client.push("mail", b"")
    client.pause("mail")
    assert at("doctor").code == 0
    assert at("doctor", "--strict").code == exit_codes.FAILED


# --- queues ------------------------------------------------------------------------------------------


def troubles(client: Client) -> dict[str, Finding]:
    return {one.name: one for one in doctor_checks.queues(client)}


def test_a_paused_queue_with_jobs_is_told_of(client: Client):
    client.pause("idle")
    client.push("mail", b"")
    client.pause("mail")
    found = troubles(client)
    assert found["queue mail"].found == "paused, and 1 job waits"
    assert found["queue mail"].advice == "stoker queue resume mail"
    assert "queue idle" not in found


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor comes two hours after whatever the test does."""
    for module in ("stoker.cli.doctor_checks", "stoker.cli.queue_snapshot"):
        monkeypatch.setattr(f"{module}.now_ms", lambda: time.time_ns() // 1_000_000 + 2 * HOUR_MS)


def test_a_queue_that_nobody_pulls_from_is_told_of(client: Client, later: None):
    client.push("mail", b"")
    found = troubles(client)["queue mail"]
    assert "no worker pulls" in found.found
    assert found.advice == "stoker worker module:app --queue mail"


def test_a_queue_held_back_for_long_by_its_limit_is_told_of(client: Client, later: None):
    client.push_batch("mail", [b""] * 2)
    client.set_concurrency("mail", 1)
    client.pull("mail")
    assert "held back by its limit on active jobs" in troubles(client)["queue mail"].found


def test_fresh_dead_letters_are_told_of(client: Client):
    client.push("mail", b"", max_attempts=1)
    (taken,) = client.pull("mail")
    client.fail(taken.id, taken.token, "boom")
    assert "1 dead letter in the last hour" in troubles(client)["queue mail"].found


def test_a_healthy_queue_is_not_worth_a_line(client: Client):
    client.push("mail", b"")
    delivery = client.pull("mail")
    client.ack_batch(delivery.ids, delivery.token)
    assert [name for name in troubles(client) if name.startswith("queue")] == []


def test_the_clock_of_a_queue_that_is_ahead_is_noticed(client: Client, monkeypatch: pytest.MonkeyPatch):
    client.push("mail", b"")
    for module in ("stoker.cli.doctor_checks", "stoker.cli.queue_snapshot"):
        monkeypatch.setattr(f"{module}.now_ms", lambda: time.time_ns() // 1_000_000 - HOUR_MS)
    assert "ahead" in troubles(client)["clocks"].found


def test_few_files_are_a_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("resource.getrlimit", lambda kind: (256, 1_024))
    assert doctor_checks.open_files().advice.endswith("ulimit -n 1024")


def test_a_clock_that_was_never_set_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert doctor_checks.clock().status == "problem"


def test_looking_at_an_open_directory_needs_nobody_to_close_it(stoker: Stoker, tmp_path: Path):
    with connect(f"sqlite:///{tmp_path}/stoker.db") as owner:
        owner.push("mail", b"")
        assert stoker("doctor").code == 0
