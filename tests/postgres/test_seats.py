"""Seats and nodes: one holder at a time, whatever the clocks say."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from stoker.journal.postgres import seats as seats_module
from stoker.journal.postgres.database import Database
from stoker.journal.postgres.lease import Lease
from stoker.journal.postgres.schema import install
from stoker.journal.postgres.seats import LEASE_S, Seats
from stoker.model.errors import InUse
from tests.journal.toy_roles import until


class Boottime:
    """A clock of a machine that tests move."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._real = seats_module.boottime

    def __call__(self) -> float:
        return self._real() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Boottime:
    moved = Boottime()
    monkeypatch.setattr(seats_module, "boottime", moved)
    monkeypatch.setattr("stoker.journal.postgres.lease.boottime", moved)
    return moved


@pytest.fixture
def cluster(database: str) -> Database:
    install(database, shards=4, seats=2)
    return Database(database)


@pytest.fixture
def nodes(cluster: Database) -> Iterator[tuple[Seats, Seats]]:
    both = Seats(cluster, "a", "here:1"), Seats(cluster, "b", "there:1")
    yield both
    for node in both:
        node.close()


def changed(cluster: Database, statement: str) -> None:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_free_seat_is_taken_once(nodes: tuple[Seats, Seats]):
    with ThreadPoolExecutor(2) as pool:
        taken = list(pool.map(lambda node: node.take(1), nodes))
    (one,) = [found for found in taken if found is not None]
    row = nodes[0].read()[1]
    assert (row.epoch, row.is_held, row.node) == (one.epoch, True, "ab"[taken.index(one)])


def test_every_taking_raises_the_epoch_and_says_how_the_seat_was_left(nodes: tuple[Seats, Seats]):
    first = nodes[0].take(0)
    assert first is not None
    assert first.in_order, "a new seat needs no gap"
    nodes[0].free(first, in_order=True)
    second = nodes[1].take(0)
    assert second is not None
    assert second.in_order
    assert second.epoch > first.epoch
    nodes[1].free(second, in_order=False)
    third = nodes[0].take(0)
    assert third is not None
    assert not third.in_order


def test_a_seat_whose_lease_has_ended_is_taken(cluster: Database, nodes: tuple[Seats, Seats]):
    first = nodes[0].take(0)
    assert first is not None
    assert nodes[1].take(0) is None
    changed(cluster, "UPDATE stoker.seats SET until = clock_timestamp() WHERE seat = 0")
    second = nodes[1].take(0)
    assert second is not None
    nodes[0].free(first, in_order=True)  # it no longer has it
    assert nodes[0].read()[0].node == "b"


def test_a_dead_process_of_the_same_node_is_replaced_at_once(nodes: tuple[Seats, Seats]):
    first = nodes[0].take(0)
    assert first is not None
    again = nodes[0].take(0, instead_of=first.epoch)
    assert again is not None
    assert not again.in_order


def test_where_clocks_differ_a_whole_lease_is_waited_for(
    cluster: Database, nodes: tuple[Seats, Seats], clock: Boottime
):
    taken = nodes[0].take(0)
    assert taken is not None
    nodes[1].read()
    nodes[1].clocks_differ = True
    changed(cluster, "UPDATE stoker.seats SET until = clock_timestamp() - interval '1 h' WHERE seat = 0")
    nodes[1].read()
    nodes[1].clocks_differ = True
    assert nodes[1].take(0) is None, "by the clock of PostgreSQL it is free, but that clock cannot be trusted"
    clock.ahead_s += LEASE_S + 1
    assert nodes[1].take(0) is not None


def test_a_jump_of_the_clock_is_noticed(nodes: tuple[Seats, Seats], clock: Boottime):
    def differs(ahead_s: float) -> bool:
        clock.ahead_s += ahead_s
        nodes[1].read()
        return nodes[1].clocks_differ

    assert not differs(0)
    assert differs(10)
    assert differs(LEASE_S + 1), "that was another jump"
    assert not differs(0), "the seats have not changed for a whole lease since"


def test_a_lease_that_was_renewed_is_not_taken_by_one_that_has_not_looked(
    cluster: Database, nodes: tuple[Seats, Seats], clock: Boottime
):
    taken = nodes[0].take(0)
    assert taken is not None
    nodes[1].read()
    clock.ahead_s += 10 * LEASE_S
    changed(cluster, "UPDATE stoker.seats SET until = clock_timestamp() + interval '4 s' WHERE seat = 0")
    assert nodes[1].take(0) is None


def test_a_lease_is_renewed_by_a_thread_of_its_own(cluster: Database, nodes: tuple[Seats, Seats], clock: Boottime):
    taken = nodes[0].take(0)
    assert taken is not None
    lease = Lease(cluster, taken)
    assert lease.is_valid()
    clock.ahead_s += LEASE_S
    assert not lease.is_valid(), "it was not renewed for a whole lease"
    lease.start()
    until(lease.is_valid)
    lease.stop()
    assert not lease.is_valid()


def test_a_lost_seat_ends_the_lease(cluster: Database, nodes: tuple[Seats, Seats]):
    taken = nodes[0].take(0)
    assert taken is not None
    other = nodes[1].take(0, instead_of=taken.epoch)
    assert other is not None
    lease, lost = Lease(cluster, taken), list[bool]()
    lease.when_lost = lambda: lost.append(True)
    lease.start()
    until(lambda: lost)
    assert not lease.is_valid()
    lease.stop()


def test_a_living_node_keeps_its_name(cluster: Database, nodes: tuple[Seats, Seats]):
    nodes[0].beat()
    nodes[0].beat()
    double = Seats(cluster, "a", "elsewhere:1")
    with pytest.raises(InUse, match="is named 'a'"):
        double.beat()
    changed(cluster, "UPDATE stoker.nodes SET seen_at = seen_at - interval '1 h'")
    assert not nodes[0].nodes()[0].is_alive
    double.beat()
    assert [(row.address, row.is_alive) for row in double.nodes()] == [("elsewhere:1", True)]
    nodes[0].leave()
    assert double.nodes(), "it has another run"
    double.leave()
    assert not double.nodes()
    nodes[1].beat()
    changed(cluster, "UPDATE stoker.nodes SET seen_at = seen_at - interval '1 h'")
    assert nodes[0].forget_nodes(600) == 1
    double.close()
