"""Bulk operations: one action on every job that a filter finds, each at most once."""

from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.bulk import BulkView
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound, StokerError, WrongState
from stoker.model.filters import JobFilter
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, finish, kill, push, push_many, start


def ended(world: ContractWorld, key: str) -> BulkView:
    """The operation after it has come to its end."""
    view = world.client.get_bulk(key)
    for _ in range(1_000):
        view = world.client.get_bulk(key)
        if view.state != "running":
            return view
        world.advance(10)
    raise AssertionError(f"it never ends: {view}")


def done(world: ContractWorld, action: Any, wanted: JobFilter, **more: Any) -> BulkView:
    key = f"{action}-{len(world.client.list_bulks())}"
    begun = world.client.start_bulk(key, action, wanted, **more)
    assert (begun.key, begun.action, begun.filter) == (key, action, wanted)
    return ended(world, key)


def test_dead_letters_are_retried(world: ContractWorld):
    client = world.client
    dead = [kill(client, error=f"no user {number}") for number in range(5)]
    other = kill(client, error="broken")
    alive = push(client)
    view = done(world, "retry", JobFilter(queue="q", fingerprint="no user #"))
    assert (view.state, view.changed, view.refused) == ("done", 5, 0)
    assert view.looked >= 5
    assert [client.get_job(job).state for job in dead] == [State.WAITING] * 5
    assert client.get_job(other).state is State.FAILED
    assert client.get_job(alive).attempts == 0


def test_many_more_than_a_step_holds(world: ContractWorld):
    client = world.client
    for queue in ("a", "b"):
        push_many(client, 120, queue, max_attempts=1)
        batch = client.pull(queue, 120)
        client.fail_batch(batch.ids, batch.token, error="x")
    view = done(world, "retry", JobFilter())
    assert (view.state, view.changed) == ("done", 240)
    assert (client.get_counts().waiting, client.get_counts().failed) == (240, 0)


def test_live_jobs_are_cancelled(world: ContractWorld):
    client = world.client
    running = push(client)
    job = start(client)
    batch = push_many(client, 4)
    later = push(client, delay_ms=60_000)
    spared = push(client, "other")
    view = done(world, "cancel", JobFilter(queue="q"))
    assert view.changed == 6
    assert [client.get_job(one).state for one in (*batch, later)] == [State.CANCELLED] * 5
    assert client.get_job(running).cancel_requested
    assert client.get_job(spared).state is State.WAITING
    client.ack(job.id, job.token)


def test_ended_jobs_are_deleted_also_from_the_middle_of_a_batch(world: ContractWorld):
    client = world.client
    dead, ended_job = kill(client), finish(client)
    ids = list(client.push_batch("q", [b"a", b"needle", b"b", b"needle", b"c"]).ids)
    batch = client.pull("q", 5)
    client.ack_batch(batch.ids, batch.token)
    alive = push(client, payload=b"needle")
    view = done(world, "delete", JobFilter(text="needle"))
    assert view.changed == 2
    assert [job.id for job in client.browse("q", State.COMPLETED, ascending=True).jobs] == [
        *sorted((ended_job, ids[0], ids[2], ids[4]))
    ]
    done(world, "delete", JobFilter())
    assert (client.get_counts().completed, client.get_counts().failed) == (0, 0)
    with pytest.raises(NotFound):
        client.get_job(dead)
    assert client.get_job(alive).state is State.WAITING


def test_the_children_of_a_job_are_cancelled(world: ContractWorld):
    client = world.client
    parent, spared = push(client), push(client)
    children = [push(client, parent_id=parent), push(client, parent_id=parent)]
    assert done(world, "cancel", JobFilter(parent_id=parent)).changed == 2
    assert [client.get_job(one).state for one in children] == [State.CANCELLED] * 2
    assert [client.get_job(one).state for one in (parent, spared)] == [State.WAITING] * 2


def test_delayed_jobs_are_promoted_and_priorities_changed(world: ContractWorld):
    client = world.client
    delayed = [*push_many(client, 3, delay_ms=600_000), push(client, delay_ms=600_000, name="n")]
    assert done(world, "priority", JobFilter(name="n"), priority=7).changed == 1
    assert client.get_job(delayed[3]).options.priority == 7
    assert done(world, "promote", JobFilter()).changed == 4
    assert start(client).id == delayed[3]


def test_a_job_that_dies_again_is_not_hit_again(world: ContractWorld):
    client = world.client
    dead = kill(client)
    world.advance(1)
    client.start_bulk("once", "retry", JobFilter(queue="q"), rate=1)
    for _ in range(5):
        world.advance(1_000)
        batch = client.pull("q", 10)
        for job in batch:
            client.fail(job.id, batch.token, error="again", retry=False)
    view = ended(world, "once")
    assert view.changed == 1
    assert client.get_job(dead).state is State.FAILED


def test_jobs_that_came_later_are_left_alone(world: ContractWorld):
    client = world.client
    kill(client)
    started = start_later = push(client)
    start(client)
    world.advance(5)
    client.start_bulk("b", "retry", JobFilter(queue="q"), rate=2)
    world.advance(5)
    client.fail(start_later, error="after it began", retry=False)
    late = kill(client, priority=9)
    view = ended(world, "b")
    assert view.changed == 1
    assert client.get_job(started).state is client.get_job(late).state is State.FAILED


def test_it_keeps_to_its_rate_and_can_be_stopped(world: ContractWorld):
    client = world.client
    for _ in range(8):
        kill(client)
    client.start_bulk("slow", "retry", JobFilter(queue="q"), rate=1)
    for _ in range(3):
        world.advance(1_000)
    assert 1 <= client.get_bulk("slow").changed <= 5
    stopped = client.stop_bulk("slow")
    assert (stopped.state, stopped.rate) == ("stopped", 1)
    world.advance(60_000)
    assert client.get_bulk("slow") == client.stop_bulk("slow") == stopped
    assert client.get_counts("q").failed == 8 - stopped.changed


def test_starting_it_again_changes_nothing(world: ContractWorld):
    client = world.client
    kill(client)
    client.start_bulk("one", "retry", JobFilter(queue="q"))
    first = ended(world, "one")
    assert client.start_bulk("one", "retry", JobFilter(queue="q")) == first
    check_refused(world, WrongState, c.StartBulk("one", "delete", JobFilter(queue="q")))
    assert [view.key for view in client.list_bulks()] == ["one"]
    assert list(client.as_tenant("other").list_bulks()) == []


def test_a_letter_whose_key_is_taken_is_refused(world: ContractWorld):
    client = world.client
    kill(client, unique_key="k")
    push(client, unique_key="k")
    view = done(world, "retry", JobFilter(queue="q"))
    assert (view.changed, view.refused) == (0, 1)


def test_only_so_many_run_at_once(world: ContractWorld):
    for _ in range(20):
        kill(world.client)
    for number in range(10):
        world.client.start_bulk(f"b{number}", "retry", JobFilter(queue="q", name="none"), rate=0.001)
    assert len(world.client.list_bulks()) == 10


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (c.StartBulk("", "retry"), InvalidRequest),
        (c.StartBulk("k", "burn"), InvalidRequest),  # type: ignore[arg-type]
        (c.StartBulk("k", "retry", JobFilter(state=State.WAITING)), InvalidRequest),
        (c.StartBulk("k", "delete", JobFilter(state=State.ACTIVE)), InvalidRequest),
        (c.StartBulk("k", "priority"), InvalidRequest),
        (c.StartBulk("k", "retry", priority=1), InvalidRequest),
        (c.StartBulk("k", "retry", rate=0.0), InvalidRequest),
        (c.StartBulk("k", "retry", JobFilter(text="")), InvalidRequest),
        (c.StartBulk("k" * 1_025, "retry"), LimitExceeded),
        (c.GetBulk("none"), NotFound),
        (c.StopBulk("none"), NotFound),
    ],
    ids=range(11),
)
def test_nonsense_is_refused(world: ContractWorld, command: c.Command[Any], error: type[StokerError]):
    check_refused(world, error, command)


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(tag="x", group_id="g", workflow=64, worker="w", priority=1, attempts_from=1),
        JobFilter(pushed_from=1, pushed_before=2, ended_from=1, ended_before=2, reason="timeout"),
    ],
    ids=["pushed", "ended"],
)
def test_a_filter_that_matches_nothing_ends_at_once(world: ContractWorld, wanted: JobFilter):
    push(world.client)
    assert done(world, "cancel", wanted).changed == 0


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_an_action(world: ContractWorld, state: State):
    action = "cancel" if state in (State.WAITING, State.DELAYED, State.BLOCKED, State.ACTIVE) else "delete"
    assert done(world, action, JobFilter(state=state)).state == "done"
