"""Seats in PostgreSQL that die and move between any two messages and appends: nothing is lost or done twice."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.options import Options
from tests.postgres.seat import carried_out, copied
from tests.processes.seats_world import SEATS, SeatsWorld, Trouble, stepped
from tests.processes.test_death import QUEUES, SETTINGS, Client, run_workflow, work
from tests.processes.world import end
from tests.soaking import SOAKS

Work = Callable[[Client], None]
WORKS: list[Work] = [work, run_workflow]


@pytest.fixture(autouse=True)
def in_steps() -> Iterator[None]:
    with stepped():
        yield


def played(work: Work, prepare: Callable[[SeatsWorld], None]) -> tuple[SeatsWorld, Client]:
    """The world after the work, and its client."""
    world = SeatsWorld(SETTINGS)
    client = Client(world)
    prepare(world)
    try:
        work(client)
    except (AssertionError, StokerError) as error:
        happened = f"death {world.die_at}, move {world.move_at}, trouble {world.trouble_at}"
        raise AssertionError(f"{happened}: {error}") from error
    finally:
        end(world)
    return world, client


@cache
def undisturbed(work: Work) -> SeatsWorld:
    return played(work, lambda world: None)[0]


def some(begin: int, end: int, few: int, shift: int) -> range:
    """All numbers in between in the soak, else a few; other ones for each `shift`."""
    step = 1 if SOAKS else max(1, (end - begin) // few)
    return range(begin + 1 + shift % step, end, step)


@pytest.mark.parametrize("work", WORKS)
def test_the_work_goes_through_when_no_seat_moves(work: Work):
    world, client = played(work, lambda world: None)
    assert not client.told
    assert world.messages > 50
    assert world.statements > 20


@pytest.mark.parametrize("dead", range(SEATS))
@pytest.mark.parametrize("work", WORKS)
def test_a_death_between_any_two_messages_loses_nothing(work: Work, dead: int):
    found = undisturbed(work)
    told: Counter[str] = Counter()
    for point in some(found.began, found.messages, 4, 5 * dead):

        def prepare(world: SeatsWorld, point: int = point) -> None:
            world.die_at = point, dead

        told += played(work, prepare)[1].told
    assert told["unavailable"] + told["unknown"] > 0


@pytest.mark.parametrize("trouble", ["death before", "death after", "lost answer"])
@pytest.mark.parametrize("work", WORKS)
def test_trouble_with_any_append_loses_and_doubles_nothing(work: Work, trouble: Trouble):
    found = undisturbed(work)
    told: Counter[str] = Counter()
    for point in some(0, found.statements, 4, len(trouble)):

        def prepare(world: SeatsWorld, point: int = point) -> None:
            world.trouble_at = point, trouble

        told += played(work, prepare)[1].told
    assert bool(told) == (trouble != "lost answer"), "an append whose answer was lost is made again; no client hears"


@pytest.mark.parametrize("later", [0, 4, 30])
@pytest.mark.parametrize("moved", range(SEATS))
@pytest.mark.parametrize("work", WORKS)
def test_a_seat_that_is_taken_while_its_old_owner_still_speaks_loses_and_doubles_nothing(
    work: Work, moved: int, later: int
):
    found = undisturbed(work)
    for point in some(found.began, found.messages, 2, 7 * moved + later):

        def prepare(world: SeatsWorld, point: int = point) -> None:
            world.move_at = point, moved, later

        world, _ = played(work, prepare)
        assert world.moves == 1


def test_an_end_that_postgresql_lost_is_noticed_by_each_seat_and_no_number_is_given_twice():
    """As after a failover to a replica that was behind. What was lost is lost, and the rest goes on."""
    world = SeatsWorld(SETTINGS)
    client = Client(world)

    def push_to_all(name: str) -> set[int]:
        return {client.do(c.Push(queue, name.encode(), Options(custom_id=name))).id for queue in QUEUES}

    kept = push_to_all("kept")
    restore = copied(world.url)
    lost = push_to_all("lost")
    carried_out(world.url, *restore)
    failures = [node.broker.failure for node in world.nodes if node.broker is not None]
    assert failures == ["", ""]
    later = push_to_all("later")
    assert client.told["unknown"] + client.told["unavailable"] >= SEATS
    assert not later & (kept | lost)
    assert {job.id for job in client.jobs()} == kept | later
    again = push_to_all("lost")
    assert not again & (kept | lost | later), "a new job, because PostgreSQL knows nothing of the old one"
    client.work_off({b"kept", b"later", b"lost"}, None)
    end(world)
