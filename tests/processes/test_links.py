"""The way between processes, and what comes in over it: strangers are refused, order is kept, parts share the turn."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from stoker.brokers.local import LocalSettings, open_part
from stoker.journal.resharding import open_root
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import Busy, InvalidRequest
from stoker.model.ids import shard_for
from stoker.runtime import process_requests
from stoker.server.auth.quotas import QuotaKeeper, Quotas
from stoker.server.dispatcher import Dispatcher
from stoker.server.processes.links import LENGTH, LinkGreeting, ProcessLinks, ProcessSeat, socket_name

SECRET = b"known to both"


class Ear:
    """Hears what happens on the links of one process."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, bytes]] = []
        self.news = asyncio.Event()

    def receive(self, process: int, data: bytes) -> None:
        self._note("said", process, data)

    def peer_up(self, process: int) -> None:
        self._note("up", process)

    def peer_down(self, process: int) -> None:
        self._note("down", process)

    def _note(self, what: str, process: int, data: bytes = b"") -> None:
        self.heard.append((what, process, data))
        self.news.set()

    async def until(self, count: int) -> None:
        while len(self.heard) < count:
            self.news.clear()
            await self.news.wait()


async def linked(path: Path, number: int, secret: bytes = SECRET) -> tuple[ProcessLinks, Ear]:
    links = ProcessLinks(ProcessSeat(number=number, processes=2, directory=str(path), secret=secret))
    ear = links.receiver = Ear()
    await links.start()
    return links, ear


def run(claim: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await claim

    asyncio.run(bounded())


def test_messages_come_in_order_and_a_peer_that_comes_back_is_found_again(tmp_path: Path):
    async def claim() -> None:
        first, at_first = await linked(tmp_path, 0)
        assert not first.send(1, b"nobody is there")
        second, at_second = await linked(tmp_path, 1)
        await at_first.until(1)
        await at_second.until(1)
        for number in range(1_000):
            assert second.send(0, b"%d" % number * 100)
        await at_first.until(1_001)
        assert [data for _, _, data in at_first.heard[1:]] == [b"%d" % number * 100 for number in range(1_000)]
        await second.close()
        await at_first.until(1_002)
        assert at_first.heard[-1] == ("down", 1, b"")
        assert not first.send(1, b"nobody is there")
        again, at_again = await linked(tmp_path, 1)
        await at_first.until(1_003)
        await at_again.until(1)
        assert first.send(1, b"welcome back")
        await at_again.until(2)
        assert at_again.heard == [("up", 0, b""), ("said", 0, b"welcome back")]
        await again.close()
        await first.close()

    run(claim())


def test_who_does_not_know_the_secret_is_nobody(tmp_path: Path):
    async def claim() -> None:
        links, ear = await linked(tmp_path, 0)
        stranger = ProcessSeat(number=1, processes=2, directory=str(tmp_path), secret=b"something else")
        for greeting in (
            msgspec.msgpack.encode(LinkGreeting(1, stranger.proof(1, 0))),
            msgspec.msgpack.encode(LinkGreeting(1, b"")),
            b"anything",
        ):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / socket_name(0)))
            writer.write(LENGTH.pack(len(greeting)) + greeting + LENGTH.pack(3) + b"ask")
            assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / socket_name(0)))
        writer.write(LENGTH.pack(2**31))
        assert await reader.read() == b"", "a greeting of that length is none"
        writer.close()
        assert ear.heard == []
        assert (tmp_path / socket_name(0)).stat().st_mode & 0o077 == 0
        await links.close()

    run(claim())


def test_a_part_that_asks_for_the_disk_is_answered_when_everything_before_it_is_there(tmp_path: Path):
    """It goes through the turn of the dispatcher, with commands that ask for less."""

    async def claim() -> None:
        root = open_root(tmp_path / "data", 2, 2)
        journal = JournalSettings(disk_reserve_bytes=4096, fsync_interval_ms=3_600_000)
        broker = open_part(str(root.parts[0]), LocalSettings(shards=2, journal=journal))
        dispatcher = Dispatcher(broker)
        queue = next(name for name in ("a", "b", "c", "d", "e") if broker.runtime.shards.has(home(name)))
        await dispatcher.call_here("default", c.Push(queue, b"1"))
        written = broker.runtime.journal.ticket()
        assert not broker.runtime.journal.reached(written)
        pushed, letters = await asyncio.gather(
            dispatcher.call_here("default", c.Push(queue, b"2")),
            dispatcher.call_here("default", process_requests.Letters([1])),
        )
        assert letters == []
        assert pushed.id
        assert broker.runtime.journal.reached(written)
        await dispatcher.close()
        broker.close()
        root.close()

    run(claim())


def home(queue: str) -> int:
    return shard_for("default", queue, 2)


def test_a_part_that_is_refused_changes_nothing_and_others_of_its_turn_are_answered(tmp_path: Path):
    async def claim() -> None:
        root = open_root(tmp_path / "data", 2, 2)
        settings = LocalSettings(shards=2, journal=JournalSettings(disk_reserve_bytes=4096))
        broker = open_part(str(root.parts[0]), settings)
        dispatcher = Dispatcher(broker)
        queue = next(name for name in ("a", "b", "c", "d", "e") if broker.runtime.shards.has(home(name)))
        replies = await asyncio.gather(
            dispatcher.call_here("default", c.Push(queue, b"1")),
            dispatcher.call_here("default", c.Push("no queue name", b"2")),
            dispatcher.call_here("default", process_requests.Look([queue])),
            return_exceptions=True,
        )
        assert isinstance(replies[1], InvalidRequest)
        looked = replies[2]
        assert isinstance(looked, process_requests.Looked)
        assert looked.ready == [queue]
        assert (await dispatcher.call_here("default", c.GetStats(queue))).counts.waiting == 1
        await dispatcher.close()
        broker.close()
        root.close()

    run(claim())


def test_each_process_keeps_its_share_of_a_rate():
    keepers = [QuotaKeeper(2) for _ in range(2)]
    taken = 0
    for keeper in keepers:
        for _ in range(20):
            try:
                keeper.check_rate("t", Quotas(requests_per_second=7), 1.0)
                taken += 1
            except Busy:
                pass
    assert taken == 8, "rounded up in each"
