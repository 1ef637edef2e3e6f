"""`stoker dlq`: dead letters by reason, back to work, away, and out to a file."""

import json
from pathlib import Path

from stoker import Client
from stoker.cli import exit_codes
from tests.cli.conftest import Stoker
from tests.cli.test_job import dead


def discarded(client: Client, queue: str = "mail") -> int:
    """A dead letter with another reason."""
    job = client.push(queue, b"").id
    client.discard(job)
    return job


def reason_of(client: Client, job: int) -> str:
    return client.get_job(job).reason


def test_dead_letters_are_counted_by_queue_and_reason(client: Client, at: Stoker):
    assert at("dlq", "list").out == "no dead letters\n"
    dead(client)
    other = discarded(client)
    dead(client, "bills")
    shown = at("dlq", "list").out
    assert "max_attempts_exceeded 1" in shown
    assert f"{reason_of(client, other)} 1" in shown
    found = {one["queue"]: one["stats"]["total"] for one in json.loads(at("dlq", "list", "--json").out)}
    assert found == {"mail": 2, "bills": 1}


def test_dead_letters_of_a_queue_are_listed_oldest_first(client: Client, at: Stoker):
    first, second = dead(client), dead(client, error="bang")
    shown = at("dlq", "list", "mail")
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == [str(first), str(second)]
    assert "bang" in shown.out
    listed = json.loads(at("dlq", "list", "mail", "--json", "--since", "1h", "--limit", 1).out)
    assert [one["payload"] for one in listed] == [{"to": "ada"}]
    assert "2 in all" in at("dlq", "list", "mail", "--limit", 1).err
    assert at("dlq", "list", "mail", "--tag", "none").out == "no dead letters\n"


def test_a_dead_letter_is_shown_and_nothing_else_is(client: Client, at: Stoker):
    job = dead(client)
    assert "max_attempts_exceeded" in at("dlq", "show", job).out
    assert json.loads(at("dlq", "show", job, "--json").out)["dead"]["reason"] == "max_attempts_exceeded"
    outcome = at("dlq", "show", client.push("q", b"").id)
    assert outcome.code == exit_codes.REFUSED
    assert outcome.err.endswith("(wrong_state)\n")


def test_dead_letters_go_back_to_work_by_id_reason_or_all(client: Client, at: Stoker):
    first, second, third = dead(client), dead(client), discarded(client)
    assert at("dlq", "retry", "mail", "--dry-run").out == "would send 3 dead letters of mail back to work\n"
    assert at("dlq", "retry", "mail", first).out == "sent 1 dead letter of mail back to work\n"
    reason = reason_of(client, third)
    assert json.loads(at("dlq", "retry", "mail", "--reason", reason, "--json").out)["ids"] == [third]
    assert at("dlq", "retry", "mail", "--limit", 1, "--dry-run").out.startswith("would send 1 dead letter ")
    assert at("dlq", "retry", "mail").code == 0
    assert client.get_state(second) == "waiting"


def test_a_job_that_is_no_dead_letter_is_named(client: Client, at: Stoker):
    job = client.push("mail", b"").id
    outcome = at("dlq", "retry", "mail", job)
    assert outcome.code == exit_codes.REFUSED
    assert f"job {job} was left" in outcome.err


def test_dead_letters_are_removed_only_on_purpose(client: Client, at: Stoker):
    job, other = dead(client), discarded(client)
    outcome = at("dlq", "purge", "mail")
    assert outcome.code == exit_codes.USAGE
    assert "this would remove 2 dead letters of mail" in outcome.err
    assert at("dlq", "purge", "mail", job, "--dry-run").out == "would remove 1 dead letter of mail\n"
    assert json.loads(at("dlq", "purge", "mail", job, "--yes", "--json").out) == {"queue": "mail", "count": 1}
    assert at("dlq", "purge", "mail", job, "--yes").code == exit_codes.NOTHING
    assert at("dlq", "purge", "mail", "--reason", reason_of(client, other), "--yes").code == 0
    assert client.get_dead_stats("mail").total == 0


def test_dead_letters_are_exported_one_a_line(client: Client, at: Stoker, tmp_path: Path):
    job = dead(client)
    discarded(client)
    lines = at("dlq", "export", "mail").out.splitlines()
    assert json.loads(lines[0])["id"] == job
    outcome = at("dlq", "export", "mail", "--reason", "max_attempts_exceeded", "--file", "dead.jsonl")
    assert outcome == (0, "", "1 dead letter of mail in dead.jsonl\n")
    (only,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert json.loads(only)["error"] == "boom"
    assert client.get_dead_stats("mail").total == 2
