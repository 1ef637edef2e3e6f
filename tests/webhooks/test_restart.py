"""A restart, even a crash, loses nothing: the log is the outbox."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stoker.brokers.local import LocalBroker
from stoker.journal.directory_store import DirectoryStore
from stoker.maintenance import restore
from stoker.server.reader import WHOLE
from stoker.server.webhooks import HookRequest
from stoker.server.webhooks.store import HookProgress, HookStore
from tests.webhooks.support import (
    PATIENCE_S,
    SECRET,
    Got,
    Receiver,
    answering,
    hook,
    push,
    run,
    serving,
    status_when,
)


def test_after_a_restart_every_event_was_posted_once(tmp_path: Path):
    async def claim():
        async with Receiver() as receiver:
            async with serving(tmp_path) as server:
                made = await hook(server, receiver.url(), "pushed")
                first = [await push(server) for _ in range(5)]
                await status_when(server, lambda status: status.delivered == 5)
            async with serving(tmp_path) as server:
                (seen,) = await server.webhooks.list("default")
                assert (seen.id, seen.url, seen.created_at) == (made.id, made.url, made.created_at)
                assert seen.status.delivered == 5
                second = [await push(server, f"q{number}") for number in range(5)]
                await status_when(server, lambda status: status.delivered == 10)
            assert sorted(one.json["job_id"] for one in receiver.got) == sorted(first + second)

    run(claim())


def test_what_happened_while_no_webhooks_were_posted_is_posted_later(tmp_path: Path):
    async def claim():
        async with Receiver() as receiver:
            async with serving(tmp_path) as server:
                await hook(server, receiver.url(), "pushed")
            async with serving(tmp_path, enabled=False) as server:
                meanwhile = [await push(server) for _ in range(3)]
            assert receiver.got == []
            async with serving(tmp_path):
                got = await receiver.count(3)
            assert [one.json["job_id"] for one in got] == meanwhile

    run(claim())


def test_events_that_wait_for_another_attempt_keep_their_count(tmp_path: Path):
    async def claim():
        async with Receiver(answering(*[500] * 4)) as receiver:
            async with serving(tmp_path, backoff_s=3600, backoff_s_max=3600) as server:
                await hook(server, receiver.url(), "pushed")
                await push(server)
                await push(server)
                await status_when(server, lambda status: status.waiting == 2)
            async with serving(tmp_path, attempts_max=3) as server:
                status = await status_when(server, lambda status: status.delivered == 2)
                assert (status.failures, status.waiting, status.given_up) == (4, 0, 0)
            numbers: dict[str, list[str]] = {}
            for one in receiver.got:
                numbers.setdefault(one.delivery, []).append(one.headers["x-stoker-attempt"])
            assert list(numbers.values()) == [["1", "2", "3"], ["1", "2", "3"]]

    run(claim())


def test_a_deleted_hook_stays_deleted_and_leaves_nothing(tmp_path: Path):
    async def claim():
        async with Receiver() as receiver:
            async with serving(tmp_path) as server:
                made = await hook(server, receiver.url(), "pushed")
                await push(server)
                await receiver.count(1)
                await server.webhooks.remove("default", made.id)
            async with serving(tmp_path) as server:
                assert await server.webhooks.list("default") == ()
                store = HookStore(server.dispatcher)
                assert await store.hooks() == []
                assert (await store._values([f"webhooks/progress/default/{made.id}"])) == []

    run(claim())


def test_a_disabled_hook_stays_disabled_and_forgets_nothing(tmp_path: Path):
    async def claim():
        async with Receiver() as receiver:
            async with serving(tmp_path) as server:
                made = await hook(server, receiver.url(), "pushed")
                off = HookRequest(url=receiver.url(), events=("pushed",), enabled=False, id=made.id)
                await server.webhooks.add("default", off)
            async with serving(tmp_path) as server:
                job = await push(server)
                (seen,) = await server.webhooks.list("default")
                assert not seen.enabled
                await server.webhooks.add("default", HookRequest(url=receiver.url(), events=("pushed",), id=made.id))
                (got,) = await receiver.count(1)
                assert got.json["job_id"] == job

    run(claim())


def test_a_position_beyond_the_end_of_the_log_skips_nothing(tmp_path: Path):
    """Where a crash took the end of one shard's log, positions are given anew: they were never seen."""

    async def claim():
        async with Receiver() as receiver:
            async with serving(tmp_path) as server:
                made = await hook(server, receiver.url(), "pushed")
                await server.webhooks.close()
                (stored,) = await HookStore(server.dispatcher).hooks()
                ahead = HookProgress(positions=dict.fromkeys(range(4), (1000, WHOLE)))
                await HookStore(server.dispatcher).note(stored, ahead)
            async with serving(tmp_path) as server:
                job = await push(server)
                (got,) = await receiver.count(1)
                assert got.json["job_id"] == job
                assert got.delivery.startswith(made.id)

    run(claim())


def test_a_restored_backup_knows_its_hooks_and_posts_nothing_twice(tmp_path: Path):
    """What was posted before the backup is not posted again; what was waiting then, and what comes later, is."""
    data, backups = tmp_path / "data", f"file://{tmp_path / 'backups'}"

    async def claim():
        async with Receiver() as receiver:
            async with serving(data) as server:
                made = await hook(server, receiver.url(), "pushed")
                before = [await push(server) for _ in range(5)]
                await status_when(server, lambda status: status.delivered == 5)
            async with serving(data, enabled=False) as server:
                waiting = [await push(server) for _ in range(2)]
                broker = server.dispatcher.broker
                assert isinstance(broker, LocalBroker)
                assert isinstance(broker.store, DirectoryStore)
                await asyncio.to_thread(broker.store.backup, backups)
                lost = await push(server)
            restore(backups, str(tmp_path / "restored"))
            async with serving(tmp_path / "restored") as server:
                (seen,) = await server.webhooks.list("default")
                assert (seen.id, seen.url, seen.created_at) == (made.id, made.url, made.created_at)
                later = await push(server)
                await status_when(server, lambda status: status.delivered == 8)
            posted = [one.json["job_id"] for one in receiver.got]
            assert sorted(posted) == sorted([*before, *waiting, later])
            assert posted.count(lost) == (lost == later), "it is in no backup, and its id may have been given anew"

    run(claim())


# --- a real process, killed ------------------------------------------------------------------------


class Served:
    """`stoker serve` in a process of its own, spoken to in JSON lines."""

    def __init__(self, process: subprocess.Popen[str], reader: asyncio.StreamReader, writer: Any) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer

    async def call(self, cmd: str, **body: Any) -> Any:
        self._writer.write(json.dumps({"cmd": cmd, "body": body}).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(self._reader.readline(), PATIENCE_S))
        assert answer["ok"], answer
        return answer["body"]


def started(command: list[str], environment: dict[str, str], directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=directory)


@asynccontextmanager
async def stoker_serve(data: Path, *flags: str) -> AsyncIterator[Served]:
    """On leaving it is killed -9, if it still lives."""
    command = [sys.executable, "-m", "stoker.cli.main", "serve", "--data", str(data), "--tcp", "127.0.0.1:0"]
    command += ["--http=off", "--grpc=off", "--set", 'webhooks.allow=["127.0.0.0/8"]', *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    process = started(command, environment, data.parent)
    try:
        assert process.stdout is not None
        line = await asyncio.get_running_loop().run_in_executor(None, process.stdout.readline)
        port = int(line.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield Served(process, reader, writer)
        writer.close()
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()


async def push_many(served: Served, count: int) -> list[int]:
    return [(await served.call("push", queue=f"q{number % 3}", payload="e30="))["id"] for number in range(count)]


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path):
    async def claim():
        async with Receiver() as receiver:
            async with stoker_serve(tmp_path / "data") as served:
                await served.call("set_webhook", url=receiver.url(), events=["pushed"], secret=SECRET)
                jobs = await push_many(served, 300)
                await receiver.count(120)
                served.process.send_signal(signal.SIGKILL)
            before = len(receiver.got)
            async with stoker_serve(tmp_path / "data") as served:
                got = await receiver.until(lambda self: {one.json["job_id"] for one in self.got} >= {*jobs})
                (seen,) = (await served.call("list_webhooks"))["webhooks"]
                assert seen["url"] == receiver.url()
            assert before >= 120
            assert {one.json["job_id"] for one in got} == {*jobs}
            by_delivery = {one.delivery: one.json["job_id"] for one in got}
            assert len(by_delivery) == 300  # repetitions have the ids of what they repeat

    run(claim())


def test_a_server_that_was_killed_while_its_receiver_was_down_delivers_everything(tmp_path: Path):
    async def down(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n")

    async def claim():
        flags = ("--set", "webhooks.backoff_s=0.01", "--set", "webhooks.circuit_open_s=0.05")
        async with Receiver(down) as receiver:
            async with stoker_serve(tmp_path / "data", *flags) as served:
                await served.call("set_webhook", url=receiver.url(), events=["pushed"], secret=SECRET)
                jobs = await push_many(served, 20)
                await receiver.count(5)
                served.process.send_signal(signal.SIGKILL)
            receiver.respond = answering()
            refused = len(receiver.got)
            async with stoker_serve(tmp_path / "data", *flags):
                got = await receiver.until(lambda self: {one.json["job_id"] for one in self.got[refused:]} >= {*jobs})
            assert len({one.delivery for one in got[refused:]}) == 20

    run(claim())
