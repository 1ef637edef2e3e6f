"""A journal that commits after `append` has returned: no reply leaves before its ticket, and a death costs no more.

The journal is `toy_store.py`; the conformance suite runs over it, too.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.engine.state_dump import dump
from stoker.journal.checkpoint_files import made_anew
from stoker.journal.contract import keeps
from stoker.journal.needed import Needs
from stoker.journal.recovery import recover
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, NotFound, Unavailable, Unknown
from tests.grpc.support import LoopThread
from tests.journal.toy_roles import PATIENCE_S, check_death, journal_of, until
from tests.journal.toy_store import ToyJournal, ToyStore, open_toy
from tests.served.any_server import AnyServer

TENANT = "default"


class Toy:
    """A broker over the toy store, and one way to it."""

    def __init__(self, broker: LocalBroker, execute: Callable[[str, Any], Any]) -> None:
        self.broker = broker
        self.journal = journal_of(broker)
        self._execute = execute
        self._pool = ThreadPoolExecutor(8)

    def ask(self, command: c.Command[Any]) -> Future[Any]:
        """Carry a command out this way, on a thread of its own."""
        return self._pool.submit(self._execute, TENANT, command)

    def push_beside(self) -> Future[Any]:
        """Push by the embedded way, and return when the push waits for its commit."""
        waiting = self.waiting
        pushed = self._pool.submit(self.broker.execute, TENANT, c.Push("q", b"x"))
        self.until_waiting(waiting + 1)
        return pushed

    @property
    def waiting(self) -> int:
        """How many wait for a ticket."""
        return len(self.journal._tickets._waiting)

    def until_waiting(self, count: int) -> None:
        until(lambda: self.waiting >= count)

    def hold(self) -> None:
        """From now on nothing is committed."""
        self.journal.may_commit.clear()

    def release(self) -> None:
        self.journal.may_commit.set()

    def close(self) -> None:
        self.release()
        self._pool.shutdown()


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(params=["sync", "async", "served"])
def toy(request: pytest.FixtureRequest, tmp_path: Path, loop: LoopThread) -> Iterator[Toy]:
    broker = open_toy(tmp_path / "rows", LocalSettings(shards=2))
    if request.param == "served":
        server = AnyServer(loop, tmp_path, lambda: broker)
        with stoker.connect(server.urls["tcp"]) as client:
            found = Toy(broker, client.broker.execute)
            yield found
            found.close()
        server.close()
        return
    found = Toy(broker, broker.execute if request.param == "sync" else in_a_loop(broker))
    yield found
    found.close()
    broker.close()


def in_a_loop(broker: LocalBroker) -> Callable[[str, Any], Any]:
    return lambda tenant, command: asyncio.run(broker.execute_async(tenant, command))


def test_a_reply_leaves_when_its_ticket_is_reached(toy: Toy):
    for _ in range(2):  # the first command of a tenant is looked at more closely, and goes another way
        toy.hold()
        pushed = toy.ask(c.Push("q", b"x"))
        toy.until_waiting(1)
        assert not pushed.done()
        toy.release()
        assert pushed.result(PATIENCE_S).level == "commit"


def test_every_reply_of_such_a_journal_waits_also_one_that_promises_nothing(toy: Toy):
    toy.hold()
    pushed = toy.ask(c.Push("q", b"x", durability="memory"))
    toy.until_waiting(1)
    assert not pushed.done()
    toy.release()
    assert pushed.result(PATIENCE_S).level == "memory"


@pytest.mark.parametrize("command", [c.ListQueues(), c.GetStats("q"), c.ReadEvents(0), c.Pull(["empty"])], ids=repr)
def test_a_read_shows_nothing_that_is_not_committed(toy: Toy, command: c.Command[Any]):
    toy.hold()
    pushed = toy.push_beside()
    read = toy.ask(command)
    toy.until_waiting(2)
    assert not read.done()
    toy.release()
    assert read.result(PATIENCE_S) is not None
    assert pushed.result(PATIENCE_S).level == "commit"


def test_a_refusal_waits_too(toy: Toy):
    toy.hold()
    toy.push_beside()
    refused = toy.ask(c.GetJob(12345))
    toy.until_waiting(2)
    assert not refused.done()
    toy.release()
    with pytest.raises(NotFound):
        refused.result(PATIENCE_S)


def test_readers_begin_at_what_is_committed(toy: Toy):
    toy.ask(c.ListQueues()).result(PATIENCE_S)  # a read waits until the opening is committed
    shard = toy.broker.runtime.shards[0].number
    before = toy.broker.known_end("default", shard).last, toy.broker.known_end("default", 1 - shard).last
    toy.hold()
    pushed = toy.push_beside()
    assert (toy.broker.known_end("default", shard).last, toy.broker.known_end("default", 1 - shard).last) == before
    toy.release()
    assert pushed.result(PATIENCE_S)
    assert (toy.broker.known_end("default", shard).last, toy.broker.known_end("default", 1 - shard).last) > before


def test_a_waiting_pull_is_answered_when_its_delivery_is_committed(toy: Toy):
    pulled = toy.ask(c.Pull(["q"], wait_ms=60_000))
    until(lambda: any(shard.next_at is not None for shard in toy.broker.runtime.shards))
    toy.hold()
    toy.push_beside()
    toy.until_waiting(2)
    assert not pulled.done()
    toy.release()
    assert len(pulled.result(PATIENCE_S)) == 1


def test_what_was_never_committed_is_told_as_unknown(toy: Toy):
    toy.hold()
    pushed = toy.ask(c.Push("q", b"x"))
    toy.until_waiting(1)
    toy.journal.fail(OSError("another owner has taken over"))
    with pytest.raises((Unknown, Unavailable)):
        pushed.result(PATIENCE_S)
    with pytest.raises((Unknown, Unavailable)):
        toy.ask(c.ListQueues()).result(PATIENCE_S)


def test_reads_are_answered_at_once_where_the_journal_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ToyJournal, "reads_wait", False)
    broker = open_toy(tmp_path / "rows")
    toy = Toy(broker, broker.execute)
    toy.hold()
    pushed = toy.push_beside()
    assert broker.execute(TENANT, c.ListQueues()).names == ["q"]
    assert not pushed.done()
    toy.close()
    broker.close()


# --- death and recovery ------------------------------------------------------------------------------


def test_a_death_between_append_and_commit_costs_only_what_was_not_answered(tmp_path: Path):
    check_death(tmp_path / "rows")


def test_a_torn_end_is_cut_off(tmp_path: Path):
    path = tmp_path / "rows"
    with stoker.Client(open_toy(path)) as client:
        kept = client.push("q", b"x").id
    with path.open("ab") as file:
        file.write(b"\x40\0\0\0torn")
    for _ in range(2):
        with stoker.Client(open_toy(path)) as client:
            assert client.get_job(kept).id == kept


def test_a_store_without_a_directory_is_a_whole_store(tmp_path: Path):
    broker = open_toy(tmp_path / "rows")
    assert broker.data_directory is None
    assert keeps(broker.runtime.journal)
    with stoker.Client(broker) as client, pytest.raises(InvalidRequest, match="data directory"):
        stoker.maintenance.backup(client, str(tmp_path / "backup"))


def test_a_checkpoint_is_made_of_any_log_and_read_from_anywhere(tmp_path: Path):
    path, settings = tmp_path / "rows", LocalSettings(shards=2)
    with stoker.Client(open_toy(path, settings)) as client:
        for number in range(20):
            client.push_batch(f"q{number % 3}", [b"x" * 300, b"y" * 300])
        delivery = client.pull("q0", 5)
        client.ack_batch(delivery.ids[:3], delivery.token)
    store = ToyStore(path, settings, 0)
    store.close()
    needs, position = Needs[Any]([]), [0, 0]
    chunks = list(made_anew(range(2), (), [store], position, needs.add))
    saved = [(number, [data for _, data in group]) for number, group in groupby(chunks, key=lambda chunk: chunk[0])]
    found = recover(range(2), 2, saved, [store], 2)
    assert found.last == position == [store.journal.last(number) for number in range(2)]
    assert list(map(dump, found.shards)) == list(map(dump, store.shards))
