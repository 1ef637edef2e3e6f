"""`stoker top` and `stoker stats`: a page about a queue, its workers and its latest failures."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from stoker import Client, connect
from stoker.cli.queue_snapshot import Rates, rates_between, take_snapshot
from stoker.cli.screen import page, spark
from stoker.cli.top import pages
from stoker.model.workers import WORKER_KEYS, WorkerView
from tests.cli.conftest import Stoker
from tests.cli.test_job import dead


def register(client: Client, **more: object) -> None:
    """A worker that says that it is there."""
    view = WorkerView(id="host-1", queues=("mail",), slots=8, running=3, done=1_234, started_at=1, seen_at=60_001)
    body = msgspec.json.encode(msgspec.structs.replace(view, **more))
    client.kv_set(WORKER_KEYS + "host-1", body, codec="json")


def as_text(drawn: RenderableType) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(drawn)
    return console.export_text()


def test_one_page_shows_queues_workers_and_failures(client: Client, at: Stoker):
    client.push_batch("mail", [b""] * 1_500)
    client.pause("mail")
    dead(client, "bills", "no money")
    register(client)
    shown = at("top", "--once").out
    for text in ("1,500", "paused", "host-1", "3/8", "1,234", "bills", "no money", "memory://"):
        assert text in shown


def test_where_there_is_no_terminal_one_page_is_printed(client: Client, at: Stoker):
    assert "no queues yet" in at("top").out


def test_a_look_as_json(client: Client, at: Stoker):
    dead(client)
    register(client)
    found = json.loads(at("top", "--json", "--queue", "mail").out)
    assert [one["name"] for one in found["queues"]] == ["mail"]
    assert found["workers"][0]["id"] == "host-1"
    assert found["failures"][0]["payload"] == {"to": "ada"}


def test_rates_are_what_happened_between_two_looks(client: Client):
    client.push_batch("q", [b""] * 10)
    before = take_snapshot(client)
    delivery = client.pull("q", 10)
    client.ack_batch(delivery.ids, delivery.token)
    client.push_batch("q", [b""] * 4)
    after = take_snapshot(client)
    after = type(after)(**{**vars(after), "at": before.at + 2_000})
    rates = rates_between(before, after)
    assert (rates.pushed, rates.completed, rates.queues) == (2.0, 5.0, {"q": (2.0, 5.0)})
    assert rates_between(None, after) == Rates()


def test_what_looks_like_markup_is_text(client: Client, at: Stoker):
    client.push("q", b"", max_attempts=1, name="[/bold]")
    (taken,) = client.pull("q")
    client.fail(taken.id, taken.token, "[red]no[/] \x1b[2J")
    shown = at("top", "--once").out
    assert "[/bold]" in shown
    assert "[red]no[/] \\x1b[2J" in shown


def test_the_latest_failures_come_first_and_are_few(client: Client):
    ids = [dead(client) for _ in range(12)]
    assert [job.id for job in take_snapshot(client).failures][:1] == ids[-1:]
    assert len(take_snapshot(client).failures) == 8


def test_a_queue_that_does_not_answer_is_waited_for():
    with connect("memory://") as client:
        drawn = pages(client, "stoker", ())
        assert "stoker" in as_text(next(drawn))
    told = as_text(next(drawn))
    assert told.startswith("no answer: this broker is closed")
    assert "no queues yet" in told


def test_the_highest_value_is_a_full_bar():
    assert spark([]) == spark([0.0, 0.0]) == ""
    assert spark([0, 50, 100]) == "▁▅█"


def test_a_page_of_many_queues_says_how_many_more_there_are(client: Client):
    for number in range(25):
        client.push(f"q{number}", b"")
    assert "and 5 queues more" in as_text(page("stoker", take_snapshot(client), Rates()))


@pytest.mark.parametrize("way", ["q", "Ctrl-C"])
def test_on_a_terminal_the_page_lives_until_one_leaves_it(tmp_path: Path, way: str):
    url = f"sqlite:///{tmp_path}/jobs"
    above, below = pty.openpty()
    command = [sys.executable, "-m", "stoker.cli.main"]
    subprocess.run([*command, "push", "mail", "1", "--url", url], capture_output=True, check=True, timeout=60)
    process = subprocess.Popen(
        [*command, "top", "--url", url, "--interval", "100ms"],
        stdin=below,
        stdout=below,
        stderr=below,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(below)
    shown = b""
    try:
        while b"mail" not in shown:
            shown += os.read(above, 65_536)
        if way == "q":
            os.write(above, b"xq")
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(above)


def test_done_counts_no_failures(client: Client, at: Stoker):
    register(client, done=1_234, failed=34)
    (row,) = [line.split() for line in at("stats").out.splitlines() if line.startswith("host-1")]
    assert row[2:5] == ["3/8", "1,200", "34"]
    (shown,) = [line.split() for line in at("top", "--once").out.splitlines() if "host-1" in line]
    assert "1,200" in shown
    assert "1,234" not in shown


def test_stats_name_the_workers(client: Client, at: Stoker):
    client.push("mail", b"")
    register(client, stopping=True)
    shown = at("stats").out
    assert "host-1" in shown
    assert "stopping" in shown
    assert json.loads(at("stats", "--json").out)["workers"][0]["slots"] == 8
    assert json.loads(at("stats", "--json", "--queue", "other").out)["workers"] == []
