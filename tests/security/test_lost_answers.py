"""Answers that get lost after the work was done, and peers that are gone without a word: all is there, and once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stoker.brokers.connect import open_broker
from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import LostLease, MemoryFull, StokerError, Unknown, Unreachable
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Backoff, Options
from stoker.server.config.tree import ServerLimits
from stoker.wire.frames import LENGTH
from tests.served.on_loop import Place, run, serving, until

JOBS = 60
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Between a client and the server. Knows frames, so that it can lose exactly one answer."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, Streams]]) -> None:
        """`connect` opens a connection to the server."""
        self._connect = connect
        self.port = 0
        self.loses: Callable[[int], bool] = lambda number: False
        """Whether the answer of this number, counted from the first greeting, is lost: both ends see a close."""
        self.is_dead = False
        """Swallows everything and closes nothing, like a cable that was pulled."""
        self.answers = self.lost = 0
        self.hang_up: Callable[[], None] = lambda: None
        """Nobody gets through any more."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        theirs, ours = await self._connect()
        there = asyncio.create_task(self._requests(reader, ours))
        try:
            await self._answers(theirs, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            there.cancel()
            ours.close()
            writer.close()
            self._tasks.discard(task)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if not self.is_dead:
                writer.write(data)
        writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_greeting = True
        while True:
            head = await reader.readexactly(4)
            body = await reader.readexactly(LENGTH.unpack(head)[0])
            if not is_greeting:
                self.answers += 1
                if self.loses(self.answers):
                    self.lost += 1
                    return
            is_greeting = False
            if not self.is_dead:
                writer.write(head + body)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def through_a_proxy(**options: Any) -> AsyncIterator[tuple[Place, Proxy]]:
    async with serving(**options) as place:
        proxy = Proxy(partial(asyncio.open_connection, "127.0.0.1", place.port))
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        proxy.hang_up = server.close
        try:
            yield place, proxy
        finally:
            server.close()
            await proxy.stop()


def every(count: int) -> Callable[[int], bool]:
    return lambda number: number % count == 0


async def in_thread(proxy: Proxy, act: Callable[[Any], Any], **parameters: Any) -> Any:
    """What a program does with a blocking client of its own."""
    url = f"tcp://127.0.0.1:{proxy.port}?" + "&".join(f"{key}={value}" for key, value in parameters.items())

    def whole() -> Any:
        broker = open_broker(url)
        try:
            return act(lambda command: broker.execute("default", command))
        finally:
            broker.close()

    return await asyncio.to_thread(whole)


def stats(place: Place) -> Any:
    return place.broker.execute("default", c.GetStats())


def payloads(place: Place) -> list[bytes]:
    return sorted(job.payload for job in place.broker.execute("default", c.Browse(limit=1_000)).jobs)


@pytest.mark.parametrize("batch", [False, True])
def test_pushes_whose_answers_are_lost_are_there_once(batch: bool):
    async def main() -> None:
        async with through_a_proxy() as (place, proxy):
            proxy.loses = every(3)

            def act(ask: Callable[[Any], Any]) -> list[int]:
                if batch:
                    return [job for n in range(JOBS) for job in ask(c.PushBatch("q", [b"%03d" % n])).ids]
                return [ask(c.Push("q", b"%03d" % n)).id for n in range(JOBS)]

            ids = await in_thread(proxy, act)
            assert proxy.lost >= JOBS // 3
            assert len(set(ids)) == JOBS
            assert payloads(place) == [b"%03d" % n for n in range(JOBS)]
            assert stats(place).totals.pushed == JOBS

    run(main)


def test_pushes_that_share_a_message_whose_answer_is_lost_are_there_once():
    """A hundred callers, each with one push after another."""
    callers, each = 100, 20

    async def main() -> None:
        async with through_a_proxy() as (place, proxy):
            broker = open_broker(f"tcp://127.0.0.1:{proxy.port}")
            proxy.loses = every(5)

            async def caller(number: int) -> list[int]:
                pushes = [c.Push(f"q{number % 7}", b"%03d.%02d" % (number, n)) for n in range(each)]
                return [(await broker.execute_async("default", push)).id for push in pushes]

            ids = [job for made in await asyncio.gather(*map(caller, range(callers))) for job in made]
            broker.close()
            assert proxy.lost >= each
            assert proxy.answers < callers * each // 4
            assert len(set(ids)) == callers * each
            assert stats(place).totals.pushed == callers * each

    run(main)


@pytest.mark.parametrize(("allowed", "most"), [(DEFAULT_LIMITS.sendings_max, 6), (40, 300)])
def test_thousands_of_pushes_at_once_whose_answers_are_lost_are_there_once_under_few_names(
    allowed: int, most: int, monkeypatch: pytest.MonkeyPatch
):
    """Each in a message of its own. The second server allows fewer open numbers than the client begins with."""
    monkeypatch.setattr("stoker.brokers.remote.loop_pushes.PAYLOAD_BYTES_MAX", 0)
    count = 3_000
    settings = LocalSettings(limits=Limits(sendings_max=allowed), shards=4)

    async def main() -> None:
        limits = ServerLimits(requests_in_flight_max=2 * count)
        async with through_a_proxy(limits=limits, settings=settings) as (place, proxy):
            broker = open_broker(f"tcp://127.0.0.1:{proxy.port}")
            proxy.loses = every(700)
            pushes = [c.Push(f"q{number % 7}", b"%04d" % number) for number in range(count)]
            replies = await asyncio.gather(*(broker.execute_async("default", push) for push in pushes))
            broker.close()
            assert proxy.lost >= 4
            assert len({reply.id for reply in replies}) == count
            assert stats(place).totals.pushed == count
            names = {name for shard in place.broker.runtime.shards for name in shard.senders}
            assert len(names) <= most

    run(main)


def test_what_is_refused_when_it_is_sent_again_may_have_happened(tmp_path: Path):
    """The answer is lost, and the second sending finds the memory full of the first: `memory_full` would be a lie."""
    small = LocalSettings(memory_bytes_max=100_000, journal=JournalSettings(disk_reserve_bytes=4096))

    async def main() -> None:
        async with through_a_proxy(settings=small, data=tmp_path / "data") as (place, proxy):
            proxy.loses = lambda number: number == 1
            with pytest.raises(Unknown, match=r"refused when it was sent again .memory_full: "):
                await in_thread(proxy, lambda ask: ask(c.KvSet("k", bytes(200_000))))
            assert proxy.lost == 1
            assert list(place.broker.execute("default", c.KvExists(["k"])).exists) == [True]
            with pytest.raises(MemoryFull):  # no answer was lost: it has certainly not happened
                await in_thread(proxy, lambda ask: ask(c.KvSet("l", bytes(10))))

    run(main)


def test_what_was_sent_to_a_server_that_is_gone_may_have_happened():
    async def main() -> None:
        async with through_a_proxy() as (place, proxy):

            def loses(number: int) -> bool:
                proxy.hang_up()
                return True

            proxy.loses = loses
            with pytest.raises(Unknown, match="unreachable: "):
                await in_thread(proxy, lambda ask: ask(c.Push("q", b"a")), retry_s=0.3)
            assert payloads(place) == [b"a"]
            with pytest.raises(Unreachable):
                await in_thread(proxy, lambda ask: ask(c.Push("q", b"b")), retry_s=0.3)

    run(main)


def test_without_losses_nothing_is_sent_again():
    """The control."""

    async def main() -> None:
        async with through_a_proxy() as (place, proxy):
            await in_thread(proxy, lambda ask: [ask(c.Push("q", b"")) for _ in range(JOBS)])
            assert (proxy.answers, proxy.lost, stats(place).totals.pushed) == (JOBS, 0, JOBS)

    run(main)


def test_what_cannot_be_sent_again_is_told_to_be_unknown_and_happened_at_most_once():
    async def main() -> None:
        async with through_a_proxy() as (place, proxy):
            proxy.loses = every(4)

            def act(ask: Callable[[Any], Any]) -> tuple[int, int]:
                sure = unsure = 0
                for _ in range(JOBS):
                    try:
                        ask(c.KvIncrement("n"))
                        sure += 1
                    except Unknown:
                        unsure += 1
                return sure, unsure

            sure, unsure = await in_thread(proxy, act)
            counted = int(place.broker.execute("default", c.KvGet("n")).value)
            assert sure + unsure == JOBS
            assert unsure == proxy.lost > 0
            assert sure <= counted <= JOBS

    run(main)


def test_a_worker_whose_answers_are_lost_ends_every_job_once():
    """A pull that got lost comes back by its lease or its claim, an ack that got lost is not done twice."""

    async def main() -> None:
        async with through_a_proxy() as (place, proxy):
            again = Options(max_attempts=0, max_crashes=0, backoff=Backoff(kind="fixed", base_ms=1))
            place.broker.execute("default", c.PushBatch("q", [b"%03d" % n for n in range(JOBS)], again))
            proxy.loses = every(5)

            def act(ask: Callable[[Any], Any]) -> list[bytes]:
                """Until the queue has seen all of them end: whoever lost a lease gets the job again."""
                done: list[bytes] = []
                idle = 0
                while idle < 200 and stats(place).counts.completed < JOBS:
                    try:
                        delivery = ask(c.Pull(["q"], 3, wait_ms=200, lease_ms=500, claim=None))
                    except Unknown:
                        continue
                    idle = 0 if delivery.runs else idle + 1
                    for job in delivery:
                        done.append(job.payload)
                        try:
                            ask(c.Ack([job.id], job.token))
                        except (Unknown, LostLease):
                            pass
                return done

            done = await in_thread(proxy, act)
            assert proxy.lost > 0
            assert sorted(set(done)) == [b"%03d" % n for n in range(JOBS)]
            assert (stats(place).counts.completed, stats(place).totals.completed) == (JOBS, JOBS)

    run(main)


def test_a_job_that_went_to_a_half_open_peer_comes_back_with_its_lease():
    async def main() -> None:
        async with through_a_proxy() as (place, proxy):
            waiting = asyncio.create_task(
                in_thread(proxy, ended(c.Pull(["q"], wait_ms=3_000, lease_ms=300)), timeout_s=1, retry_s=0)
            )
            await until(lambda: place.server.dispatcher.is_waiting)
            proxy.is_dead = True
            job = place.broker.execute("default", c.Push("q", b"x")).id
            await until(lambda: place.broker.execute("default", c.GetJob(job)).started_at > 0)
            delivery = await place.broker.execute_async("default", c.Pull(["q"], wait_ms=60_000))
            assert list(delivery.ids) == [job]
            assert place.broker.execute("default", c.GetJob(job)).crashes == 1
            assert await waiting == "an error"

    run(main)


def ended(command: Any) -> Callable[[Callable[[Any], Any]], str]:
    def act(ask: Callable[[Any], Any]) -> str:
        try:
            ask(command)
        except StokerError:
            return "an error"
        return "a reply"

    return act


def test_a_client_at_a_half_open_server_gives_up_in_time_and_its_push_is_there_once():
    async def main() -> None:
        async with through_a_proxy() as (place, proxy):

            def act(ask: Callable[[Any], Any]) -> int:
                ask(c.Push("q", b"first"))
                proxy.loses = lambda number: False
                proxy.is_dead = True
                asyncio.run_coroutine_threadsafe(revive(proxy), loop)
                return int(ask(c.Push("q", b"second")).id)

            loop = asyncio.get_running_loop()
            second = await in_thread(proxy, act, timeout_s=0.5)
            assert payloads(place) == [b"first", b"second"]
            assert place.broker.execute("default", c.GetJob(second)).payload == b"second"

    run(main)


async def revive(proxy: Proxy) -> None:
    """The cable is plugged in again once the connection was given up."""
    (first,) = proxy._tasks
    await until(first.done)
    proxy.is_dead = False
