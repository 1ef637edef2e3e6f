"""The way between processes, and what comes in over it: strangers are refused, order is kept, parts share the turn."""

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalSettings, open_part
from stoker.journal.resharding import open_root
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import Busy, InvalidRequest
from stoker.model.ids import shard_for
from stoker.runtime import process_requests
from stoker.server.auth.quotas import QuotaKeeper, Quotas
from stoker.server.config import Tls
from stoker.server.dispatcher import Dispatcher
from stoker.server.processes import links as linking
from stoker.server.processes.links import (
    LENGTH,
    Greeting,
    LinkChallenge,
    LinkHello,
    LinkProof,
    ProcessLinks,
    ProcessSeat,
)
from stoker.server.processes.ways import TcpWays, UnixWays, Ways, socket_name
from tests.http.test_stopping import certificate

BOUND_S = 60.0
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


def seat_of(number: int, secret: bytes = SECRET, epoch: int = 1) -> ProcessSeat:
    return ProcessSeat(number=number, seats=2, secret=secret, epoch=epoch)


async def linked(
    path: Path, number: int, secret: bytes = SECRET, *, epoch: int = 1, ways: Ways | None = None
) -> tuple[ProcessLinks, Ear]:
    links = ProcessLinks(seat_of(number, secret, epoch), ways or UnixWays(str(path), number))
    ear = links.receiver = Ear()
    await links.start()
    return links, ear


def run(claim: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S):
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


class Caller:
    """Speaks to the links of process 0 as if it were process 1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def at(cls, path: Path) -> "Caller":
        return cls(*await asyncio.open_unix_connection(str(path / socket_name(0))))

    def say(self, frame: bytes) -> None:
        self._writer.write(LENGTH.pack(len(frame)) + frame)

    async def hear(self) -> bytes:
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        return await self._reader.readexactly(length)

    async def is_cut(self) -> bool:
        try:
            rest = await self._reader.read()
        except ConnectionError:
            rest = b""
        self._writer.close()
        return rest == b""

    async def leave(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    async def greet(self, seat: ProcessSeat, nonce: bytes = b"n" * 32) -> bytes:
        """Say hello, and return the proof that belongs to the challenge."""
        hello = LinkHello(seat.number, 0, seat.epoch, nonce)
        self.say(msgspec.msgpack.encode(hello))
        challenge = msgspec.msgpack.decode(await self.hear(), type=LinkChallenge)
        greeting = Greeting(seat, hello, b"")
        greeting.challenged(challenge.epoch, challenge.nonce)
        return msgspec.msgpack.encode(LinkProof(greeting.proof("connects")))


def test_a_process_that_does_not_know_the_secret_is_refused(tmp_path: Path):
    async def claim() -> None:
        links, ear = await linked(tmp_path, 0)
        for frame in (b"anything", b"", msgspec.msgpack.encode(LinkProof(b"")), b"x" * 300):
            caller = await Caller.at(tmp_path)
            caller.say(frame)
            assert await caller.is_cut()
        caller = await Caller.at(tmp_path)
        caller.say(await caller.greet(seat_of(1, b"something else")))
        caller.say(b"ask")
        assert await caller.is_cut()
        assert ear.heard == []
        assert (tmp_path / socket_name(0)).stat().st_mode & 0o077 == 0
        await links.close()

    run(claim())


def test_a_greeting_that_was_recorded_is_of_no_use_later(tmp_path: Path):
    """What proves the secret on one connection proves nothing on the next: the challenge is another one."""

    async def claim() -> None:
        links, ear = await linked(tmp_path, 0)
        friend = await Caller.at(tmp_path)
        recorded = await friend.greet(seat_of(1))
        friend.say(recorded)
        await ear.until(1)
        replayed = await Caller.at(tmp_path)
        await replayed.greet(seat_of(1))
        replayed.say(recorded)
        assert await replayed.is_cut()
        assert ear.heard == [("up", 1, b"")]
        await friend.leave()
        await links.close()

    run(claim())


def test_the_side_that_accepts_proves_the_secret_too(tmp_path: Path):
    async def claim() -> None:
        stranger, _ = await linked(tmp_path, 0, b"something else")
        links, ear = await linked(tmp_path, 1)
        await asyncio.sleep(0.2)
        assert ear.heard == []
        await links.close()
        await stranger.close()

    run(claim())


def test_a_link_of_an_older_epoch_is_refused_and_one_that_is_there_is_cut(tmp_path: Path):
    async def claim() -> None:
        first, at_first = await linked(tmp_path, 0)
        old, at_old = await linked(tmp_path, 1, epoch=5)
        await at_first.until(1)
        await at_old.until(1)
        first.know(1, 6)
        await at_first.until(2)
        assert at_first.heard[1] == ("down", 1, b"")
        await at_old.until(2)
        refused = await Caller.at(tmp_path)
        refused.say(msgspec.msgpack.encode(LinkHello(1, 0, 5, b"n" * 32)))
        assert await refused.is_cut()
        assert not first.send(1, b"nothing for a process that was replaced")
        await old.close()
        new, at_new = await linked(tmp_path, 1, epoch=6)
        await at_new.until(1)
        await at_first.until(3)
        assert first.send(1, b"welcome")
        await at_new.until(2)
        await new.close()
        await first.close()

    run(claim())


def test_a_process_that_reaches_another_one_than_it_looked_for_is_refused(tmp_path: Path):
    async def claim() -> None:
        links, ear = await linked(tmp_path, 0)
        caller = await Caller.at(tmp_path)
        caller.say(msgspec.msgpack.encode(LinkHello(3, 2, 1, b"n" * 32)))
        assert await caller.is_cut()
        assert ear.heard == []
        await links.close()

    run(claim())


@pytest.mark.parametrize("encrypted", [False, True])
def test_links_over_tcp_carry_the_same_messages(tmp_path: Path, encrypted: bool):
    async def claim() -> None:
        tls = certificate(tmp_path) if encrypted else Tls()
        listening = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        first, at_first = await linked(tmp_path, 0, ways=TcpWays(listening, tls))
        far = TcpWays(None, tls)
        second, at_second = await linked(tmp_path, 7, ways=far)
        far.addresses = {0: address}
        await at_first.until(1)
        await at_second.until(1)
        assert second.send(0, b"x" * 1_000_000)
        await at_first.until(2)
        assert at_first.heard[1] == ("said", 7, b"x" * 1_000_000)
        await second.close()
        await first.close()

    run(claim())


def test_a_seat_that_has_moved_is_tried_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def claim() -> None:
        monkeypatch.setattr(linking, "AGAIN_S", 10 * BOUND_S)
        monkeypatch.setattr(linking, "AGAIN_S_MAX", 10 * BOUND_S)
        ways = TcpWays(None, Tls())
        second, at_second = await linked(tmp_path, 1, ways=ways)
        await asyncio.sleep(0)  # it has tried, and found no address
        listening = socket.create_server(("127.0.0.1", 0))
        first, _ = await linked(tmp_path, 0, epoch=3, ways=TcpWays(listening, Tls()))
        ways.addresses = {0: f"127.0.0.1:{listening.getsockname()[1]}"}
        second.know(0, 3)
        await at_second.until(1)
        assert at_second.heard == [("up", 0, b"")]
        await second.close()
        await first.close()

    run(claim())


def test_a_process_on_another_machine_that_falls_silent_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def claim() -> None:
        monkeypatch.setattr(linking, "PING_S", 0.02)
        monkeypatch.setattr(linking, "SILENT_S", 0.3)
        listening = socket.create_server(("127.0.0.1", 0))
        links, ear = await linked(tmp_path, 0, ways=TcpWays(listening, Tls()))
        caller = Caller(*await asyncio.open_connection("127.0.0.1", listening.getsockname()[1]))
        caller.say(await caller.greet(seat_of(1)))
        await ear.until(2)
        assert [what for what, _, _ in ear.heard] == ["up", "down"]
        await caller.leave()
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
