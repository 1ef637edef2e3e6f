"""A server whose log cannot be written any more: it says why, ends with a code of its own, and can be started again."""

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.cli.exit_codes import LOG_FAILED
from stoker.journal.sqlite import JournalSettings, SqliteJournal
from stoker.model import commands as c
from stoker.model.errors import Unavailable, Unknown
from stoker.server.dispatcher import Dispatcher
from tests.served.test_stopping import Serve

MIB = 1 << 20
SMALL = ("--set", "journal.disk_reserve_bytes=4096")


def break_writes(pid: int) -> None:
    """From now on no file of that process grows beyond a megabyte: the system refuses the write."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (MIB, MIB))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def push_much(client: stoker.Client, acknowledged: list[int]) -> None:
    while len(acknowledged) < 40:
        acknowledged.append(client.push(f"q{len(acknowledged) % 8}", bytes(400_000)).id)


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one process", "two processes"])
def test_the_server_ends_and_says_why(tmp_path: Path, options: tuple[str, ...]):
    server = Serve(tmp_path, *SMALL, *options)
    acknowledged: list[int] = []
    try:
        with stoker.connect(server.url) as client:
            acknowledged.append(client.push("q", bytes(1000)).id)
            for pid in [server.process.pid, *children_of(server.process.pid)]:
                break_writes(pid)
            with pytest.raises((Unknown, Unavailable)):
                push_much(client, acknowledged)
        code, errors = server.ended()
    finally:
        server.process.kill()
    assert code == LOG_FAILED
    said = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, errors
    assert said[0].endswith("(log_failed)")
    assert "could not be written" in said[0]
    again = Serve(tmp_path, *SMALL, *options)
    try:
        with stoker.connect(again.url) as client:
            assert [client.get_job(job).id for job in acknowledged] == acknowledged
    finally:
        again.process.terminate()
        again.ended()


# --- what the callers hear ---------------------------------------------------------------------------


def opened(path: Path) -> LocalBroker:
    return open_sqlite(str(path / "data"), {}, LocalSettings(journal=JournalSettings(disk_reserve_bytes=4096)))


def fail(broker: LocalBroker) -> None:
    """As the upkeep does when a flush has failed."""
    assert isinstance(broker.runtime.journal, SqliteJournal)
    error = OSError("the disk is broken")
    broker.runtime.journal.fail(error)
    broker.stop(error)


async def submitted(dispatcher: Dispatcher, command: c.Command[Any]) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    dispatcher.submit("t", command, future.set_result)
    return future


def test_what_cannot_have_happened_is_unavailable(tmp_path: Path):
    """Over every transport: the dispatcher is behind all of them."""
    broker = opened(tmp_path)

    async def work() -> list[Any]:
        dispatcher = Dispatcher(broker)
        begun = await submitted(dispatcher, c.PushBatch("q", [b"begun, and not written"]))
        fail(broker)
        later = await submitted(dispatcher, c.Push("q", b"never begun"))
        invalid = await submitted(dispatcher, c.GetJob(-1))
        waiting = await submitted(dispatcher, c.Pull(["q"], wait_ms=60_000))
        replies = [await each for each in (begun, later, invalid, waiting)]
        await dispatcher.close()
        return replies

    replies = asyncio.run(work())
    broker.close()
    assert [type(reply) for reply in replies] == [Unavailable] * 4
    assert "the disk is broken" in str(replies[0])
    again = opened(tmp_path)
    assert again.execute("t", c.Browse()).jobs == []
    again.close()


def test_an_embedded_broker_refuses_what_comes_later(tmp_path: Path):
    broker = opened(tmp_path)
    fail(broker)
    for _ in range(2):
        with pytest.raises(Unavailable, match="its journal failed: the disk is broken") as refused:
            broker.execute("t", c.Push("q", b""))
        assert refused.value.code == "unavailable"
        assert refused.value.retryable
    broker.close()


def test_whoever_looks_after_a_broker_hears_that_it_stopped(tmp_path: Path):
    broker = opened(tmp_path)
    told: list[str] = []
    broker.when_stopped(lambda: told.append("before"))
    fail(broker)
    broker.when_stopped(lambda: told.append("after"))
    assert told == ["before", "after"]
    broker.close()
    closed = opened(tmp_path)
    closed.when_stopped(lambda: told.append("closed in good order"))
    closed.close()
    assert len(told) == 2
