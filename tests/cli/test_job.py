"""`stoker job`: what one sees of a job in each state, and what one can do about it."""

import json
import threading

import pytest

from stoker import Backoff, Client, Dependency
from stoker.cli import exit_codes
from stoker.model.workflows import Edge, Step
from tests.cli.conftest import Stoker

NEVER = Backoff(kind="fixed", base_ms=3_600_000, jitter="none")


def dead(client: Client, queue: str = "mail", error: str = "boom") -> int:
    """A dead letter with one attempt."""
    job = client.push(queue, b'{"to": "ada"}', codec="json", max_attempts=1).id
    (taken,) = client.pull(queue, worker="w-1")
    client.fail(taken.id, taken.token, error, error_class="ValueError", stack="Traceback ...\n  line 1")
    return job


# --- show --------------------------------------------------------------------------------------------


def test_a_job_is_shown_with_all_that_matters(client: Client, at: Stoker):
    job = dead(client)
    shown = at("job", "show", job).out
    for text in (f"job {job} in mail: failed", '{"to": "ada"}', "1 of 1", "boom", "Traceback", "w-1", "(json, 13 B)"):
        assert text in shown


def test_a_job_as_json_has_its_payload_and_result_as_values(client: Client, at: Stoker):
    job = client.push("q", b"\x81\xa1a\x01", codec="msgpack").id
    (taken,) = client.pull("q")
    client.ack(job, taken.token, b"[1]", codec="json")
    shown = json.loads(at("job", "show", job, "--json").out)
    assert (shown["payload"], shown["result"], shown["state"]) == ({"a": 1}, [1], "completed")


def test_options_that_differ_from_the_default_are_shown(client: Client, at: Stoker):
    job = client.push("q", b"", priority=7, tags=("a", "b"), delay_ms=3_600_000).id
    shown = at("job", "show", job).out
    assert "priority=7" in shown
    assert 'tags=["a","b"]' in shown
    assert "(in 59m 59s)" in shown or "(in 1h 00m)" in shown


def test_a_job_that_there_is_not_exits_with_4(client: Client, at: Stoker):
    for command in ("show", "why", "logs", "wait", "cancel", "retry"):
        outcome = at("job", command, 1 << 20)
        assert (outcome.code, outcome.out) == (exit_codes.REFUSED, "")
        assert outcome.err.endswith("(not_found)\n")


def test_looking_makes_no_data_directory(stoker: Stoker):
    outcome = stoker("job", "list")
    assert outcome.code == exit_codes.REFUSED
    assert "there is no data directory 'stoker.db'" in outcome.err
    assert stoker("push", "q", "1").code == 0
    assert stoker("job", "list").code == 0


# --- list --------------------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_and_filtered(client: Client, at: Stoker):
    first = client.push("a", b"1", tags=("red",), name="paint").id
    second = client.push("b", b"2", group_id="g").id
    ids = [one["id"] for one in json.loads(at("job", "list", "--json").out)]
    assert ids == [second, first]
    wanted: list[tuple[list[object], list[int]]] = [
        (["--queue", "a"], [first]),
        (["--tag", "red"], [first]),
        (["--name", "paint"], [first]),
        (["--group", "g"], [second]),
        (["--state", "active"], []),
        (["--oldest", "--limit", "1"], [first]),
        (["--oldest", "--after", first], [second]),
        (["--since", "1h"], [second, first]),
    ]
    for filters, found in wanted:
        listed = json.loads(at("job", "list", "--json", *filters).out)
        assert [one["id"] for one in listed] == found


def test_a_list_says_the_one_thing_that_matters_in_each_state(client: Client, at: Stoker):
    blocker = client.push("q", b"", delay_ms=3_600_000).id
    client.push("q", b"", depends_on=(Dependency(blocker),))
    dead(client)
    client.push("active", b"")
    client.pull("active", worker="w-7")
    shown = at("job", "list").out
    for text in ("due 2", f"waits for {blocker}", "max_attempts_exceeded: ValueError: boom", "w-7"):
        assert text in shown
    assert "no such jobs" in at("job", "list", "--state", "expired").out


def test_a_long_list_says_how_to_go_on(client: Client, at: Stoker):
    ids = client.push_batch("q", [b""] * 30).ids
    outcome = at("job", "list")
    assert len(outcome.out.splitlines()) == 21
    assert f"--after {ids[10]}" in outcome.err
    assert len(json.loads(at("job", "list", "--limit", 30, "--json").out)) == 30


# --- retry and cancel --------------------------------------------------------------------------------


def test_a_dead_letter_goes_back_to_work(client: Client, at: Stoker):
    job = dead(client)
    assert at("job", "retry", job).out == f"{job} was failed, and waits for a worker now\n"
    assert client.get_state(job) == "waiting"


def test_a_delayed_job_is_let_go_at_once(client: Client, at: Stoker):
    job = client.push("q", b"", delay_ms=3_600_000).id
    assert json.loads(at("job", "retry", job, "--json").out) == [{"id": job, "was": "delayed"}]
    assert client.get_state(job) == "waiting"


def test_what_cannot_be_retried_does_not_hurt_the_others(client: Client, at: Stoker):
    waiting, letter = client.push("q", b"").id, dead(client)
    outcome = at("job", "retry", waiting, letter)
    assert outcome.code == exit_codes.REFUSED
    assert outcome.err.endswith("(wrong_state)\n")
    assert client.get_state(letter) == "waiting"


def test_a_job_is_cancelled_and_a_running_one_is_told(client: Client, at: Stoker):
    waits, runs = client.push("q", b"").id, client.push("r", b"").id
    client.pull("r", worker="w-1")
    outcome = at("job", "cancel", waits, runs)
    assert outcome.out.splitlines() == [f"{waits} is cancelled", f"{runs} runs on w-1, which is told to stop it"]
    assert client.get_job(runs).cancel_requested


# --- logs and waiting --------------------------------------------------------------------------------


def test_logs_are_printed_and_followed_to_the_end(client: Client, at: Stoker):
    job = client.push("q", b"").id
    (taken,) = client.pull("q")
    client.append_log(job, "first\x1b[2J", token=taken.token)
    assert "info     first\\x1b[2J" in at("job", "logs", job).out

    def finish() -> None:
        client.append_log(job, "second", "warning", token=taken.token)
        client.ack(job, taken.token)

    worker = threading.Thread(target=finish)
    worker.start()
    lines = [json.loads(line) for line in at("job", "logs", job, "--follow", "--json").out.splitlines()]
    worker.join()
    assert [(line["level"], line["message"]) for line in lines] == [("info", "first\x1b[2J"), ("warning", "second")]


def test_waiting_for_a_job_gives_its_result(client: Client, at: Stoker):
    job = client.push("q", b"").id
    (taken,) = client.pull("q")
    client.ack(job, taken.token, b'{"sent": true}', codec="json")
    assert at("job", "wait", job) == (0, '{"sent": true}\n', "")
    assert json.loads(at("job", "wait", job, "--json").out)["result"] == {"sent": True}


def test_waiting_for_a_job_that_fails_exits_with_1(client: Client, at: Stoker):
    job = dead(client)
    outcome = at("job", "wait", job)
    assert (outcome.code, outcome.out) == (exit_codes.FAILED, "")
    assert f"job {job} failed: boom" in outcome.err


def test_waiting_ends_when_the_time_is_over(client: Client, at: Stoker):
    job = client.push("q", b"").id
    outcome = at("job", "wait", job, "--timeout", "10ms")
    assert (outcome.code, outcome.out) == (exit_codes.NOT_YET, "")
    assert "still waiting" in outcome.err


# --- why and story -----------------------------------------------------------------------------------


def test_why_names_every_hindrance_and_what_helps(client: Client, at: Stoker):
    job = client.push("q", b"").id
    assert "no worker seems to pull from q" in at("job", "why", job).out
    client.pause("q")
    client.set_concurrency("q", 1)
    shown = at("job", "why", job).out
    assert "stoker queue resume q" in shown
    assert "no worker seems" not in shown
    assert json.loads(at("job", "why", job, "--json").out)["paused"] is True


def test_why_tells_of_groups_limits_and_delays(client: Client, at: Stoker):
    first = client.push("q", b"", group_id="g").id
    second = client.push("q", b"", group_id="g").id
    client.set_rate_limit("q", 1, 3_600_000)
    client.pull("q")
    shown = at("job", "why", second).out
    assert f"job {first} of its group 'g' comes first" in shown
    assert "--rate" in shown
    later = client.push("later", b"", delay_ms=3_600_000).id
    assert f"stoker job retry {later}" in at("job", "why", later).out
    assert "its lease ends" in at("job", "why", first).out


def test_a_job_of_a_workflow_says_what_it_waits_for(client: Client, at: Stoker):
    pushed = client.push_workflow([Step("a", [b""]), Step("b", [b""], after=[Edge(0)])])
    first, last = pushed.ids(0)[0], pushed.ids(1)[0]
    shown = at("job", "why", last).out
    assert f"jobs to end: {first}" in shown or f"earlier steps of workflow {pushed.id}" in shown
    assert ["workflow", str(pushed.id)] in [line.split() for line in at("job", "show", last).out.splitlines()]


def test_a_job_that_a_schedule_pushed_says_so(client: Client, at: Stoker):
    client.put_schedule("q", "nightly", every_ms=3_600_000)
    job = client.run_schedule("q", "nightly").id
    assert "schedule  nightly, for 2" in at("job", "show", job).out


def test_why_of_an_ended_job_is_how_it_ended(client: Client, at: Stoker):
    job = dead(client)
    shown = at("job", "why", job).out
    assert "boom" in shown
    assert f"stoker job retry {job}" in shown


def test_a_story_is_told_in_order(client: Client, at: Stoker):
    job = dead(client)
    lines = at("job", "story", job).out.splitlines()
    kinds = [word for line in lines for word in ("pushed", "started", "failed") if f" {word}" in line]
    assert kinds[:3] == ["pushed", "started", "failed"]
    assert lines[-1].startswith("3 steps in ")
    assert [event["kind"] for event in json.loads(at("job", "story", job, "--json").out)["events"]] == kinds[:3]


def test_a_story_of_nobody_exits_with_5(client: Client, at: Stoker):
    assert at("job", "story", 1 << 20).code == exit_codes.NOTHING


@pytest.mark.parametrize("command", ["show", "retry", "cancel", "logs", "wait", "why", "story"])
def test_an_id_is_a_number(at: Stoker, command: str):
    assert at("job", command, "first").code == exit_codes.USAGE
