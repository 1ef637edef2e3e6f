"""`--json` is one format: a command prints one document, and only a command that goes on prints a document a line."""

import json
from typing import Any

import pytest

from stoker import connect
from stoker.model.options import Options
from stoker.model.workflows import Step
from tests.cli.conftest import Place, Stoker
from tests.cli.test_job import dead
from tests.cli.test_main import ALL

SPARK = "stoker pipeline "
"""These have the same option; the tests of Spark read what they print."""


def commands_with_json() -> set[str]:
    options = {path: {name for param in command.params for name in param.opts} for path, command in ALL.items()}
    return {path for path, names in options.items() if "--json" in names and not path.startswith(SPARK)}


class Play:
    """Runs commands with --json on the data directory of a test, and notes which."""

    def __init__(self, stoker: Stoker) -> None:
        self._stoker = stoker
        self.seen: set[str] = set()

    def __call__(self, path: str, *arguments: object) -> Any:
        """The one document that the command prints."""
        self.seen.add(f"stoker {path}")
        (line,) = self._stoker(*path.split(), *arguments, "--json").out.splitlines()
        return json.loads(line)


def test_each_command_prints_one_document(stoker: Stoker, database: str):
    play = Play(stoker)
    with connect("sqlite:///stoker.db") as client:
        gone, other = dead(client), dead(client)
        flow = client.push_workflow([Step("late", [b"1"], Options(max_attempts=1))], name="nightly").id
    assert play("push", "mail", "1")["created"] is True
    assert len(play("job list", "--state", "failed")) == 2
    assert play("job list", "--queue", "none") == []
    assert play("job search", "--text", "no job has this") == []
    assert play("bulk start", "retry", "--name", "none", "--key", "k", "--yes")["key"] == "k"
    assert play("bulk show", "k")["action"] == play("bulk stop", "k")["action"] == "retry"
    assert [one["key"] for one in play("bulk list")] == ["k"]
    assert play("job show", gone)["error_class"] == "ValueError"
    assert next(event["kind"] for event in play("job story", gone)["events"]) == "pushed"
    assert play("job why", gone)["state"] == "failed"
    assert play("job wait", gone)["state"] == "failed"
    assert play("job logs", gone) == []
    assert {one["id"] for one in play("dlq list", "mail")} == {gone, other}
    assert play("dlq list")[0]["queue"] == "mail"
    assert play("dlq list", "none") == []
    assert play("dlq show", gone)["id"] == gone
    assert play("dlq retry", "mail", other, "--dry-run")["would"]
    assert play("dlq retry", "mail", other)["ids"] == [other]
    assert [one["id"] for one in play("job retry", gone)] == [gone]
    assert [one["state"] for one in play("job cancel", gone, other)] == ["cancelled", "cancelled"]
    assert play("dlq purge", "mail", "--yes")["count"] == 0
    assert [one["name"] for one in play("queue pause", "mail", "late")] == ["mail", "late"]
    assert [one["paused"] for one in play("queue resume", "mail", "late")] == [False, False]
    assert play("queue limit", "mail", "--concurrency", "7")["concurrency"] == 7
    assert {one["name"] for one in play("queue list")} == {"mail", "late"}
    assert play("queue show", "mail")["waiting_by_priority"] == {"0": 1}
    (pulled,) = play("pull", "mail", "--count", "5", "--ack")
    assert pulled["data"] == 1
    assert play("pull", "mail") == []
    assert play("queue drain", "mail", "--yes")["count"] == 0
    assert play("queue clean", "mail", "--yes")["count"] == 1
    assert play("stats")["totals"]["completed"] == 1
    assert [one["name"] for one in play("top")["queues"]] == ["late", "mail"]
    assert play("workflow list")[0]["id"] == flow
    assert play("workflow show", flow)["name"] == "nightly"
    (job,) = play("pull", "late")
    with connect("sqlite:///stoker.db") as client:
        client.fail(job["id"], job["token"], "no")
    assert play("workflow retry", flow)["state"] == "running"
    assert play("workflow cancel", flow, "--yes")["state"] == "cancelled"
    assert play("cron add", "pulse", "probes", "--every", "30s")["name"] == "pulse"
    assert [one["name"] for one in play("cron list")] == ["pulse"]
    assert play("cron show", "pulse")["queue"] == "probes"
    assert play("cron pause", "pulse")["state"] == "paused"
    assert play("cron resume", "pulse")["state"] != "paused"
    assert play("cron run", "pulse")["created"] is True
    assert play("cron delete", "pulse", "--yes")["deleted"] == 1
    assert play("queue obliterate", "probes", "--yes")["name"] == "probes"
    assert play("bench", "--seconds", "5ms", "--batch", 1)
    assert play("doctor")
    assert play("backup", "safe")["name"]
    assert play("restore", "safe", "again")["into"] == "again"
    assert play("config show")
    assert play("cluster init", database)["seats"] == len(play("cluster status", database)["seats"])
    assert play("cluster upgrade", database)["format"] == 1
    token = play("token create", "ci", "--file", "tokens")
    assert [one["name"] for one in play("token list", "--file", "tokens")] == ["ci"]
    assert play("token revoke", token["id"], "--file", "tokens")["id"] == token["id"]
    assert play.seen == commands_with_json()


def test_commands_that_go_on_print_a_document_a_line(stoker: Stoker):
    pushed = stoker("push", "mail", "-", "--lines", "--json", stdin=b"1\n2\n").out.splitlines()
    ids = [json.loads(line)["id"] for line in pushed]
    assert len(ids) == 2
    with connect("sqlite:///stoker.db") as client:
        client.discard(ids[1])
        for text in ("late", "later"):
            client.append_log(ids[1], text)
    follow = stoker("job", "logs", ids[1], "--follow", "--json").out.splitlines()
    assert [json.loads(line)["message"] for line in follow] == ["late", "later"]
    for path in ("stoker push", "stoker job logs"):
        assert "one JSON document per line" in (ALL[path].help or "")


@pytest.mark.parametrize("priorities", [[0, 0], [0, 5, 5, -1, 5]])
def test_waiting_jobs_are_counted_by_priority(stoker: Stoker, place: Place, priorities: list[int]):
    with place.connect() as client:
        for priority in priorities:
            client.push("mail", b"1", codec="json", priority=priority)
        client.push("mail", b"1", priority=9, delay_ms=3_600_000)
        wanted = {priority: priorities.count(priority) for priority in sorted(set(priorities), reverse=True)}
        assert list(client.get_priorities("mail").items()) == list(wanted.items())
        assert client.get_priorities("none") == {}
    shown = stoker("queue", "show", "mail", *place.flags).out
    assert ("3 with 5, 1 with 0, 1 with -1" in shown) == (len(wanted) > 1)
    assert ("by priority" in shown) == (len(wanted) > 1)
