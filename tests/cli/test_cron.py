"""`stoker cron`: making, looking at, pausing, running and deleting schedules."""

import json
from datetime import UTC, datetime

import pytest

from stoker import Client
from stoker.cli import exit_codes
from stoker.cli.cron import read_time
from stoker.model.errors import NotFound
from tests.cli.conftest import Stoker

DIGEST = ("cron", "add", "digest", "mail", '{"kind": "digest"}', "--cron", "0 8 * * MON-FRI", "--zone", "Europe/Vienna")


def test_a_schedule_is_made_and_shown(client: Client, at: Stoker):
    made = at(*DIGEST, "--job", "send", "--overlap", "skip", "--tag", "daily", "-o", "group_id=g", "--limit", "9")
    assert "no worker" not in made.out
    for text in ("schedule digest of queue mail", "0 8 * * MON-FRI, Europe/Vienna", "9 runs", "next runs", "08:00:00"):
        assert text in made.out
    view = client.get_schedule("mail", "digest")
    assert (view.schedule.payload, view.schedule.overlap, view.schedule.runs_max) == (b'{"kind": "digest"}', "skip", 9)
    options = view.schedule.options
    assert (options.name, options.tags, options.group_id, options.codec) == ("send", ("daily",), "g", "json")
    shown = json.loads(at("cron", "show", "digest", "--json").out)
    assert (shown["name"], shown["schedule"]["payload"], len(shown["next_runs"])) == ("digest", {"kind": "digest"}, 5)


def test_a_schedule_that_needs_a_worker(client: Client, at: Stoker):
    made = at("cron", "add", "pulse", "probes", "--every", "30s", "--skip-if-no-worker")
    assert "no worker" in made.out
    assert client.get_schedule("probes", "pulse").schedule.skip_if_no_worker


def test_intervals_and_single_times(client: Client, at: Stoker):
    at(
        "cron",
        "add",
        "pulse",
        "probes",
        "--every",
        "1h30m",
        "--jitter",
        "5s",
        "--misfire",
        "all",
        "--misfires-max",
        "3",
    )
    at("cron", "add", "once", "probes", "raw data", "--raw", "--at", "2099-01-01T09:00", "--zone", "America/New_York")
    pulse, once = (client.get_schedule("probes", name).schedule for name in ("pulse", "once"))
    assert (pulse.every_ms, pulse.jitter_ms, pulse.misfire, pulse.misfires_max, pulse.payload) == (
        5_400_000,
        5_000,
        "all",
        3,
        b"null",
    )
    assert (once.payload, once.options.codec) == (b"raw data", "bytes")
    assert once.at == round(datetime(2099, 1, 1, 14, tzinfo=UTC).timestamp() * 1_000)


def test_schedules_are_listed(client: Client, at: Stoker):
    assert at("cron", "list").out == "no schedules yet\n"
    at(*DIGEST)
    at("cron", "add", "pulse", "probes", "--every", "30s")
    client.pause_schedule("probes", "pulse")
    lines = at("cron", "list").out.splitlines()
    assert lines[0].split() == ["QUEUE", "NAME", "WHEN", "ZONE", "STATE", "RUNS", "NEXT"]
    assert ("mail" in lines[1], "active" in lines[1], "every 30.0 s" in lines[2], "paused" in lines[2]) == (True,) * 4
    assert [one["name"] for one in json.loads(at("cron", "list", "--queue", "mail", "--json").out)] == ["digest"]


def test_pausing_resuming_and_running(client: Client, at: Stoker):
    at(*DIGEST)
    assert at("cron", "pause", "digest").out == "digest is paused\n"
    assert at("cron", "resume", "digest").out.startswith("digest is active, next 2")
    job = int(at("cron", "run", "digest").out)
    assert client.get_job(job).options.schedule == "digest"
    assert f"job {job}, waiting by hand" in at("cron", "show", "digest").out
    assert json.loads(at("cron", "pause", "digest", "--json").out)["state"] == "paused"
    assert json.loads(at("cron", "run", "digest", "--json").out)["created"] is True


def test_deleting_is_asked_for(client: Client, at: Stoker):
    at(*DIGEST)
    assert at("cron", "delete", "digest").code == exit_codes.USAGE
    assert at("cron", "delete", "digest", "--dry-run").out.startswith("would delete the schedule digest of queue mail")
    assert client.get_schedule("mail", "digest").state == "active"
    assert at("cron", "delete", "digest", "--yes").out == "deleted digest of queue mail\n"
    with pytest.raises(NotFound):
        client.get_schedule("mail", "digest")
    assert at("cron", "delete", "digest", "--yes").code == exit_codes.exit_code_for(NotFound())


def test_a_name_in_several_queues_needs_a_queue(client: Client, at: Stoker):
    for queue in ("a", "b"):
        at("cron", "add", "same", queue, "--every", "1m")
    asked = at("cron", "pause", "same")
    assert (asked.code, "--queue" in asked.err) == (exit_codes.USAGE, True)
    assert at("cron", "pause", "same", "--queue", "b").code == exit_codes.OK
    assert [client.get_schedule(queue, "same").state for queue in ("a", "b")] == ["active", "paused"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--cron", "61 * * * *"], "cron"),
        (["--cron", "0 0 30 2 *"], "cron"),
        (["--every", "10ms"], "every_ms"),
        (["--cron", "@daily", "--zone", "Europe/Atlantis"], "zone"),
        (["--every", "1m", "--cron", "@daily"], "exactly one"),
        (["--every", "1m", "--start", "2030-01-01", "--end", "2029-01-01"], "end_at"),
        (["--at", "soon"], "2027-01-01T09:00"),
        (["--every", "1m", "-o", "nothing=1"], "NAME=VALUE"),
        ([], "exactly one"),
    ],
)
def test_what_cannot_be_is_refused_and_the_field_is_named(client: Client, at: Stoker, arguments: list[str], told: str):
    refused = at("cron", "add", "bad", "mail", *arguments)
    assert refused.code != exit_codes.OK
    assert told in refused.err
    assert list(client.list_schedules().schedules) == []


def test_times_are_read_in_the_zone_unless_they_have_an_offset():
    noon = round(datetime(2027, 6, 1, 12, tzinfo=UTC).timestamp() * 1_000)
    assert read_time("2027-06-01T14:00", "Europe/Vienna") == noon
    assert read_time("2027-06-01T14:00+02:00", "America/New_York") == noon
    assert read_time(None, "UTC") is None
