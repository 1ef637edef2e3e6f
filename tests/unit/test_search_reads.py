"""A server that searches payloads in the journal reads them in another thread than that of its event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.client.sync import Client
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.sqlite import JournalSettings, SqliteJournal
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Closed, InvalidRequest
from stoker.records.codec import LogRow
from stoker.server.dispatcher import Dispatcher

JOBS, EACH = 240, 8
NEEDLE = b"needle"
SETTINGS = LocalSettings(
    shards=2,
    memory_bytes_max=100_000,
    journal=JournalSettings(wal_bytes_max=50_000, checkpoint_process=False, disk_reserve_bytes=4_096),
)


def payload_of(number: int) -> bytes:
    return b"%d %s %s" % (number, NEEDLE if number % 7 == 0 else b"hay", b"x" * 2_000)


class Reads:
    """What was read from files of the log that are written no more, and in which threads."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._find, self._journal = journal.ahead._find, journal
        self.threads: list[int] = []
        self.hold: threading.Event | None = None
        """A read waits for it, if there is one."""
        self.began = threading.Event()
        journal.ahead._find = self.find

    def find(self, shard: int, sequence: int) -> LogRow:
        if self._journal.is_settled(shard, sequence):
            self.threads.append(threading.get_ident())
            self.began.set()
            if self.hold is not None:
                assert self.hold.wait(60)
        return self._find(shard, sequence)


class Stored:
    """A queue whose payloads lie in the journal, most of them in files that are written no more."""

    def __init__(self, path: Path) -> None:
        self.broker: LocalBroker = open_sqlite(str(path), {}, SETTINGS)
        store = self.broker.store
        assert isinstance(store, DirectoryStore)
        assert store.upkeep is not None
        self._upkeep = store.upkeep
        self._held = ExitStack()
        self._held.enter_context(self._upkeep.work_lock)  # no file is finished in the middle of a test
        self.client = Client(self.broker)
        self.wanted: dict[int, bytes] = {}
        for first in range(0, JOBS, EACH):
            payloads = [payload_of(number) for number in range(first, first + EACH)]
            ids = self.client.push_batch(f"q{first % 5}", payloads).ids
            self.wanted |= {job: payload for job, payload in zip(ids, payloads, strict=True) if NEEDLE in payload}
            self._upkeep.work()
        self.reads = Reads(store.journal)
        self._forget_what_was_read()

    def close(self) -> None:
        self._held.close()
        self.broker.close()

    def _forget_what_was_read(self) -> None:
        ahead = self.reads._journal.ahead
        ahead._read.clear()
        ahead._bytes = 0


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    found = Stored(tmp_path / "data")
    yield found
    found.close()


def served(stored: Stored, use: Callable[[Dispatcher], Any]) -> Any:
    """Run it on an event loop with a dispatcher, as a server does."""

    async def run() -> Any:
        dispatcher = Dispatcher(stored.broker)
        try:
            return await use(dispatcher)
        finally:
            await dispatcher.close()

    return asyncio.run(run())


async def found_by(dispatcher: Dispatcher, browse: c.Browse) -> list[r.JobView]:
    jobs: list[r.JobView] = []
    while True:
        page = await dispatcher.call("default", browse)
        jobs += page.jobs
        if page.next_after is None:
            return jobs
        browse = msgspec.structs.replace(browse, after=page.next_after)


async def counted(dispatcher: Dispatcher, command: c.CountJobs) -> int:
    count = 0
    while True:
        step = await dispatcher.call("default", command)
        count += step.count
        if step.next_after is None:
            return count
        command = msgspec.structs.replace(command, after=step.next_after)


@pytest.mark.parametrize("ascending", [False, True])
def test_a_search_finds_everything_and_reads_no_payload_on_the_loop(stored: Stored, ascending: bool):
    jobs = served(stored, lambda at: found_by(at, c.Browse(text="needle", limit=7, ascending=ascending)))
    assert [(job.id, job.payload) for job in jobs] == sorted(stored.wanted.items(), reverse=not ascending)
    assert len(stored.reads.threads) > 10
    assert threading.get_ident() not in stored.reads.threads


def test_a_count_reads_no_payload_on_the_loop(stored: Stored):
    assert served(stored, lambda at: counted(at, c.CountJobs(text="needle"))) == len(stored.wanted)
    assert threading.get_ident() not in stored.reads.threads
    assert stored.reads.threads


def test_a_page_of_jobs_reads_no_payload_on_the_loop(stored: Stored):
    jobs = served(stored, lambda at: found_by(at, c.Browse(limit=50)))
    assert len(jobs) == JOBS
    assert {job.id: job.payload for job in jobs}.items() >= stored.wanted.items()
    assert threading.get_ident() not in stored.reads.threads
    assert stored.reads.threads


def test_other_commands_go_on_while_a_search_reads(stored: Stored):
    async def use(dispatcher: Dispatcher) -> tuple[int, bool]:
        searching = asyncio.ensure_future(counted(dispatcher, c.CountJobs(text="needle")))
        await asyncio.to_thread(stored.reads.began.wait, 60)
        pushed = await dispatcher.call("default", c.Push("other", b"new"))
        assert pushed.id
        assert not searching.done()
        assert stored.reads.hold is not None
        stored.reads.hold.set()
        return await searching, True

    stored.reads.hold = threading.Event()
    assert served(stored, use) == (len(stored.wanted), True)


def test_a_search_that_is_given_up_or_cut_off_ends(stored: Stored):
    """The client leaves, and then the broker is closed, while a payload is being read."""

    async def use(dispatcher: Dispatcher) -> None:
        left = asyncio.ensure_future(counted(dispatcher, c.CountJobs(text="needle")))
        await asyncio.to_thread(stored.reads.began.wait, 60)
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
        waits = asyncio.ensure_future(counted(dispatcher, c.CountJobs(text="needle")))
        await asyncio.sleep(0)
        assert stored.reads.hold is not None
        closing = asyncio.ensure_future(asyncio.to_thread(stored.close))
        with pytest.raises(Closed):
            await waits
        stored.reads.hold.set()
        await closing

    stored.reads.hold = threading.Event()
    served(stored, use)


def test_a_malformed_search_is_refused_at_once(stored: Stored):
    with pytest.raises(InvalidRequest):
        served(stored, lambda at: at.call("default", c.Browse(text="")))


def test_an_embedded_queue_searches_in_the_thread_of_its_caller(stored: Stored):
    assert {job.id for job in stored.client.execute(c.Browse(text="needle", limit=100)).jobs} <= set(stored.wanted)
    assert set(stored.reads.threads) == {threading.get_ident()}
