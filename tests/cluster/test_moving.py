"""Seats that move, in one process: one router for each seat, over PostgreSQL, with messages that the test carries."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_seat
from stoker.journal.postgres.schema import install
from stoker.journal.postgres.store import PostgresStore
from stoker.model import commands as c
from stoker.model.errors import InUse, StokerError, Unavailable, Unknown
from stoker.model.ids import process_of, shard_for
from stoker.runtime.process_router import ProcessRouter
from tests.postgres_server import fresh_database, shared
from tests.processes.world import Node, Processes, Wire, end

SHARDS = 4
SETTINGS = LocalSettings(shards=SHARDS)
HERE, THERE = (
    next(name for name in "abcdefgh" if process_of(shard_for("default", name, SHARDS), 2) == seat) for seat in (0, 1)
)
"""A queue of each seat."""


class MovingSeats(Processes):
    """Two seats over PostgreSQL. The owner of one can be replaced while it still speaks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replaced: list[LocalBroker] = []
        super().__init__(SETTINGS)

    def start(self, node: Node, instead_of: int = 0) -> None:
        node.broker = open_seat(self.url, node.number, "test", "", SETTINGS, self.clock, instead_of=instead_of)
        wire = Wire(self, node.number, self.lives[node.number])
        local: Any = node.broker
        node.router = ProcessRouter(local, wire, node.number, len(self.nodes), SHARDS, SETTINGS.limits)
        node.broker.runtime.letters = node.router.has_letters

    def epoch(self, number: int) -> int:
        broker = self.nodes[number].broker
        assert broker is not None
        assert isinstance(broker.store, PostgresStore)
        return broker.store.lease.taken.epoch

    def take_over(self, number: int) -> Node:
        """Another process takes the seat. Neither the old one nor the others know yet."""
        old = self.nodes[number]
        assert old.broker is not None
        self.replaced.append(old.broker)
        new = Node(number)
        self.start(new, instead_of=self.epoch(number))
        return new

    def switch(self, new: Node) -> None:
        """The others hear of the new one: its links take the place of the old ones."""

        async def meet() -> None:
            self.lives[new.number] += 1
            for other in self.nodes:
                if other.number != new.number and other.router is not None:
                    other.router.peer_down(new.number)
            self.nodes[new.number] = new
            wire = Wire(self, new.number, self.lives[new.number])
            assert new.router is not None
            new.router._peers = wire
            self.connect(new)

        self.call(meet())


@pytest.fixture
def world() -> Iterator[MovingSeats]:
    with fresh_database(shared()) as name:
        url = shared().url(name)
        install(url, SHARDS, 2)
        world = MovingSeats(url)
        try:
            yield world
        finally:
            end(world)
            for broker in world.replaced:
                with suppress(StokerError):
                    broker.close()


def at(world: MovingSeats, seat: int, command: c.Command[Any]) -> Any:
    return world.call(world.at(seat).execute_async("default", command))


def test_an_owner_that_was_replaced_and_still_speaks_acknowledges_nothing(world: MovingSeats):
    """The other seat asks the old owner; only the new one has what was pushed again."""
    at(world, 1, c.Push(HERE, b"before"))
    new = world.take_over(0)
    push = c.Push(HERE, b"after", sending=c.Sending("sender", 1, 1))
    with pytest.raises((Unavailable, Unknown)):
        at(world, 1, push)
    with pytest.raises((Unavailable, Unknown)):
        at(world, 1, c.GetStats(HERE))
    world.switch(new)
    at(world, 1, push)
    assert at(world, 1, c.GetStats(HERE)).counts.waiting == 2
    payloads = [bytes(job.payload) for job in at(world, 1, c.Pull([HERE], 9))]
    assert payloads == [b"before", b"after"]


def test_a_transaction_over_two_seats_is_whole_whichever_of_them_moves(world: MovingSeats):
    for number, moving in enumerate((0, 1)):
        name = f"t{number}"
        for queue in (HERE, THERE):
            at(world, 0, c.Stage(name, "s", queue, [b""]))
        new = world.take_over(moving)
        with suppress(Unavailable, Unknown):
            at(world, 1 - moving, c.Publish(name, ["s"]))
        world.switch(new)
        at(world, 1 - moving, c.Publish(name, ["s"]))
        counts = [at(world, 0, c.GetStats(queue)).counts.waiting for queue in (HERE, THERE)]
        assert counts == [number + 1, number + 1]


def test_of_two_that_take_a_seat_at_once_one_has_it(world: MovingSeats):
    epoch = world.epoch(0)
    outcomes: list[Any] = []

    def take() -> None:
        try:
            outcomes.append(open_seat(world.url, 0, "test", "", SETTINGS, world.clock, instead_of=epoch))
        except StokerError as error:
            outcomes.append(error)

    openers = [threading.Thread(target=take) for _ in range(2)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(60)
    opened = [one for one in outcomes if isinstance(one, LocalBroker)]
    assert len(opened) == 1
    assert [type(one) for one in outcomes if not isinstance(one, LocalBroker)] == [InUse]
    opened[0].close()
