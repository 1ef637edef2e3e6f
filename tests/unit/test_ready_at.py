"""Every delivery says when it was due: delays, backoffs and stays among the dead letters end before it."""

from collections.abc import Callable

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model.options import Backoff, Dependency
from stoker.records import records as rec
from stoker.records.runs import runs_of
from stoker.testing import World

MINUTE = 60_000
LATER = Backoff("fixed", MINUTE, jitter="none")


def deliveries(world: World) -> list[tuple[str, int, int]]:
    """Of each start and completion: which it is, since when it was due, and when it started."""
    runs = [run for _, record in world.broker.runtime.journal.read(0, 0, 10_000) for run in runs_of(record)]
    return [(str(run.event), run.ready_at, run.started_at) for run in runs if run.event in ("started", "completed")]


def run_once(client: Client) -> None:
    for job in client.pull("mail", 10):
        client.ack(job.id, job.token)


def pushed_for_later(world: World) -> int:
    world.client.push_batch("mail", [b"x"] * 3, delay_ms=MINUTE)
    world.advance(MINUTE)
    return world.now


def one_pushed_for_later(world: World) -> int:
    world.client.push("mail", b"x", delay_ms=MINUTE)
    world.advance(MINUTE)
    return world.now


def promoted(world: World) -> int:
    job = world.client.push("mail", b"x", delay_ms=90 * MINUTE).id
    world.advance(MINUTE)
    world.client.promote(job)
    return world.now


def moved(world: World) -> int:
    job = world.client.push("mail", b"x").id
    world.client.move_to_delayed(job, MINUTE)
    world.advance(MINUTE)
    return world.now


def tried_again(world: World) -> int:
    world.client.push("mail", b"x", max_attempts=2, backoff=LATER)
    (job,) = world.client.pull("mail", 1)
    world.advance(5_000)
    world.client.fail(job.id, job.token, "no")
    world.advance(MINUTE)
    return world.now


def handed_back(world: World) -> int:
    world.client.push_batch("mail", [b"x"] * 2)
    delivery = world.client.pull("mail", 2)
    world.advance(5_000)
    world.client.release_batch(delivery.ids, delivery.token)
    return world.now


def unblocked(world: World) -> int:
    first = world.client.push("first", b"x").id
    world.client.push("mail", b"x", depends_on=(Dependency(first),))
    world.advance(MINUTE)
    (job,) = world.client.pull("first", 1)
    world.client.ack(job.id, job.token)
    return world.now


def revived(world: World) -> int:
    world.client.push("mail", b"x", max_attempts=1)
    (job,) = world.client.pull("mail", 1)
    world.client.fail(job.id, job.token, "no")
    world.advance(MINUTE)
    world.client.retry_dead("mail")
    return world.now


def just_pushed(world: World) -> int:
    world.client.push("mail", b"x")
    return world.now


WAYS = (
    just_pushed,
    pushed_for_later,
    one_pushed_for_later,
    promoted,
    moved,
    tried_again,
    handed_back,
    unblocked,
    revived,
)


@pytest.mark.parametrize("arrange", WAYS)
def test_a_delivery_is_due_from_the_moment_at_which_it_could_start(arrange: Callable[[World], int]):
    with World() as world:
        due = arrange(world)
        before = len(deliveries(world))
        world.advance(700)
        run_once(world.client)
        found = deliveries(world)[before:]
    assert {name for name, _, _ in found} == {"started", "completed"}
    assert {(ready_at, started_at - due) for _, ready_at, started_at in found} == {(due, 700)}


def test_a_run_of_an_earlier_release_does_not_know_it():
    old = msgspec.msgpack.encode([64, 1, 7_000, 1, 9_000, "w", 3, None])
    assert msgspec.msgpack.decode(old, type=rec.JobRun) == rec.JobRun(64, 1, 7_000, 1, 9_000, "w", 3)
    assert rec.JobRun.__struct_fields__[-1] == "ready_at", "it is read by position: later fields come after it"
