"""`stoker queue`: looking, holding back, emptying; and that nothing is destroyed by mistake."""

import json

import pytest

from stoker import Client
from stoker.cli import exit_codes
from stoker.cli.queue import parse_rate
from tests.cli.conftest import Stoker


def complete(client: Client, queue: str, count: int) -> None:
    client.push_batch(queue, [b""] * count)
    delivery = client.pull(queue, count)
    client.ack_batch(delivery.ids, delivery.token)


# --- looking -----------------------------------------------------------------------------------------


def test_queues_are_listed_with_counts_and_what_holds_them_back(client: Client, at: Stoker):
    assert at("queue", "list").out == "no queues yet\n"
    client.push_batch("mail", [b""] * 3)
    client.pause("mail")
    client.set_rate_limit("mail", 100)
    client.set_concurrency("mail", 4)
    line = at("queue", "list").out.splitlines()[1]
    assert line.split()[:2] == ["mail", "3"]
    assert line.endswith("paused, at most 4, 100/s")
    (found,) = json.loads(at("queue", "list", "--json").out)
    assert (found["name"], found["stats"]["counts"]["waiting"], found["policy"]["paused"]) == ("mail", 3, True)


def test_a_queue_is_shown_with_its_oldest_job_and_its_dead_letters(client: Client, at: Stoker):
    client.push("mail", b"", max_attempts=1)
    (taken,) = client.pull("mail")
    client.fail(taken.id, taken.token, "boom")
    job = client.push("mail", b"").id
    complete(client, "other", 1)
    shown = at("queue", "show", "mail").out
    for text in (f"job {job}, pushed", "1: max_attempts_exceeded 1", "1 waiting", "none is registered"):
        assert text in shown
    assert json.loads(at("queue", "show", "mail", "--json").out)["dead_letters"]["total"] == 1
    assert "ran 0 ms" in at("queue", "show", "other").out


def test_a_queue_that_there_is_not_is_refused(client: Client, at: Stoker):
    for arguments in (["show"], ["drain", "--yes"], ["clean", "--yes"], ["obliterate", "--yes"]):
        outcome = at("queue", arguments[0], "nowhere", *arguments[1:])
        assert outcome.code == exit_codes.REFUSED
        assert outcome.err.endswith("(not_found)\n")


@pytest.mark.parametrize(
    "arguments",
    [["dlq", "list", "mial"], ["dlq", "retry", "mial"], ["job", "list", "--queue", "mial"]],
)
def test_a_queue_that_is_mistyped_is_guessed(client: Client, at: Stoker, arguments: list[str]):
    """Nothing is found in it, which would look like good news."""
    client.push("mail", b"")
    assert "there is no queue mial: did you mean mail?\n" in at(*arguments).err


# --- holding back ------------------------------------------------------------------------------------


def test_queues_are_paused_and_go_on(client: Client, at: Stoker):
    client.push("a", b"")
    said = at("queue", "pause", "a", "b").out.splitlines()
    assert said == ["a is paused, 1 job waits", "b is paused, 0 jobs wait; the queue is new"]
    assert client.get_queue("b").paused
    assert json.loads(at("queue", "resume", "a", "--json").out) == [{"name": "a", "paused": False, "waiting": 1}]
    assert not client.get_queue("a").paused


def test_limits_are_set_shown_and_lifted(client: Client, at: Stoker):
    outcome = at("queue", "limit", "q", "--rate", "100/s", "--burst", "500", "--concurrency", "20")
    assert "100/s, 500 at once" in outcome.out
    policy = client.get_queue("q")
    assert policy.rate_limit is not None
    assert (policy.rate_limit.count, policy.rate_limit.burst, policy.concurrency) == (100, 500, 20)
    shown = json.loads(at("queue", "limit", "q", "--rate", "off", "--concurrency", "off", "--json").out)
    assert (shown["rate_limit"], shown["concurrency"]) == (None, 0)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100/s", (100, 1_000)), ("5_000/h", (5_000, 3_600_000)), ("10/30s", (10, 30_000)), ("off", (0, 0))],
)
def test_rates_are_written_as_people_say_them(text: str, rate: tuple[int, int]):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "arguments",
    [[], ["--rate", "fast"], ["--rate", "100"], ["--rate", "0/s"], ["--concurrency", "-1"], ["--burst", "5"]],
)
def test_limits_that_make_no_sense_change_nothing(client: Client, at: Stoker, arguments: list[str]):
    client.push("q", b"")
    assert at("queue", "limit", "q", *arguments).code == exit_codes.USAGE
    policy = client.get_queue("q")
    assert (policy.rate_limit, policy.concurrency) == (None, 0)


# --- emptying ----------------------------------------------------------------------------------------


DESTROYING = [
    (["queue", "drain", "q"], "cancel 3 waiting jobs of q"),
    (["queue", "clean", "q", "--state", "waiting"], "remove 3 waiting jobs of q"),
    (["queue", "obliterate", "q"], "remove the queue q with 3 live jobs, 0 dead letters, 0 results"),
]


@pytest.mark.parametrize(("arguments", "what"), DESTROYING, ids=lambda value: value[1] if type(value) is list else "")
def test_nothing_is_destroyed_unless_somebody_said_so(client: Client, at: Stoker, arguments: list[str], what: str):
    client.push_batch("q", [b""] * 3)
    outcome = at(*arguments)
    assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")
    assert f"this would {what}" in outcome.err
    assert "--yes" in outcome.err
    assert at(*arguments, "--dry-run").out == f"would {what}\n"
    assert json.loads(at(*arguments, "--dry-run", "--json").out) == {"would": what}
    assert client.get_counts("q").waiting == 3
    assert at(*arguments, "--yes").code == 0
    assert client.get_counts("q").waiting == 0


@pytest.mark.parametrize(("answer", "left", "code"), [(b"n\n", 1, exit_codes.INTERRUPTED), (b"y\n", 0, exit_codes.OK)])
def test_somebody_at_a_terminal_is_asked(
    client: Client, at: Stoker, monkeypatch: pytest.MonkeyPatch, answer: bytes, left: int, code: int
):
    client.push("q", b"")
    monkeypatch.setattr("stoker.cli.parameters.is_attended", lambda: True)
    outcome = at("queue", "drain", "q", stdin=answer)
    assert "This will cancel 1 waiting job of q" in outcome.err
    assert outcome.code == code
    assert client.get_counts("q").waiting == left


def test_drain_leaves_what_is_delayed_unless_asked(client: Client, at: Stoker):
    client.push("q", b"")
    client.push("q", b"", delay_ms=3_600_000)
    assert at("queue", "drain", "q", "--yes").out == "cancelled 1 job of q\n"
    assert json.loads(at("queue", "drain", "q", "--delayed", "--yes", "--json").out) == {"name": "q", "count": 1}


def test_clean_goes_on_until_all_is_gone_or_the_limit_is_reached(client: Client, at: Stoker):
    complete(client, "q", 2_500)
    assert at("queue", "clean", "q", "--older", "1h", "--yes").out == "removed 0 completed jobs of q\n"
    assert at("queue", "clean", "q", "--limit", "1200", "--yes").out == "removed 1,200 completed jobs of q\n"
    assert at("queue", "clean", "q", "--dry-run").out == "would remove 1,300 completed jobs of q\n"
    assert at("queue", "clean", "q", "--yes").out == "removed 1,300 completed jobs of q\n"


def test_a_queue_with_running_jobs_is_removed_only_by_force(client: Client, at: Stoker):
    client.push("q", b"")
    client.pull("q")
    outcome = at("queue", "obliterate", "q", "--yes")
    assert outcome.code == exit_codes.REFUSED
    assert outcome.err.endswith("(queue_active)\n")
    assert at("queue", "obliterate", "q", "--force", "--yes").code == 0
    assert client.list_queues() == []
