"""How long ended jobs can be read."""

from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import NotFound
from stoker.model.options import HOUR_MS, Retention, Settings
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import check_refused, finish, kill, pulled, push, push_many, start, story


def readable(client: Client, queue: str = "q") -> list[int]:
    return [view.id for view in client.browse(queue, ascending=True, limit=1_000).jobs]


def end(world: ContractWorld, how: str, **options: Any) -> int:
    client = world.client
    if how == "completed":
        return finish(client, **options)
    job = push(client, **options, ttl_ms=1 if how == "expired" else 0)
    if how == "cancelled":
        client.cancel(job)
    else:
        world.advance(1)
    return job


ENDS = ["completed", "cancelled", "expired"]


@pytest.mark.parametrize("how", ENDS)
def test_an_ended_job_is_readable_for_an_hour(world: ContractWorld, how: str):
    job = end(world, how)
    world.advance(HOUR_MS - 1)
    assert readable(world.client) == [job]
    world.advance(1)
    assert readable(world.client) == []
    check_refused(world, NotFound, c.GetJob(job))
    counts = world.client.get_counts("q")
    assert (counts.completed, counts.cancelled, counts.expired) == (0, 0, 0)
    assert getattr(world.client.get_stats("q").totals, how) == 1


@pytest.mark.parametrize("how", ENDS)
def test_a_job_may_say_how_long_it_is_kept(world: ContractWorld, how: str):
    end(world, how, keep_completed_age_ms=1_000)
    world.advance(999)
    assert len(readable(world.client)) == 1
    world.advance(1)
    assert readable(world.client) == []


@pytest.mark.parametrize("how", ENDS)
def test_a_job_may_say_among_how_many_it_is_kept(world: ContractWorld, how: str):
    job = end(world, how, keep_completed_count=2)
    finish(world.client)
    assert job in readable(world.client)
    finish(world.client)
    assert job not in readable(world.client)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("option", ["keep_completed_age_ms", "keep_completed_count"])
def test_kept_for_nothing_it_is_forgotten_at_once(world: ContractWorld, how: str, option: str):
    job = end(world, how, **{option: 0})
    check_refused(world, NotFound, c.GetJob(job))
    assert readable(world.client) == []
    assert how in story(world.client, job)
    assert getattr(world.client.get_stats("q").totals, how) == 1


def test_remove_on_complete_forgets_completed_jobs(world: ContractWorld):
    job = finish(world.client, remove_on_complete=True, keep_completed_age_ms=HOUR_MS)
    check_refused(world, NotFound, c.GetJob(job))
    assert world.client.get_counts("q").completed == 0
    assert world.client.get_stats("q").totals.completed == 1


def test_remove_on_complete_says_nothing_about_other_ends(world: ContractWorld):
    for how in ("cancelled", "expired"):
        job = end(world, how, remove_on_complete=True)
        assert world.client.get_job(job).state == how
    assert world.client.get_state(kill(world.client, remove_on_complete=True)) is State.FAILED


def test_remove_on_complete_holds_in_a_batch(client: Client):
    ids = push_many(client, 3, remove_on_complete=True)
    token = client.pull("q", 3).token
    client.ack_batch(ids[:2], token, [b"a", b"b"])
    assert readable(client) == ids[2:]
    client.ack(ids[2], token)
    assert readable(client) == []


def test_all_three_ends_count_for_the_number_and_dead_letters_do_not(make_world: MakeWorld):
    world = make_world(Settings(retention=Retention(completed_count=3)))
    first = finish(world.client)
    for how in ("cancelled", "expired"):
        end(world, how)
    dead = kill(world.client)
    assert first in readable(world.client)
    end(world, "completed")
    assert first not in readable(world.client)
    assert dead in readable(world.client)


def test_jobs_that_are_not_retained_push_nobody_out(world: ContractWorld):
    job = finish(world.client, keep_completed_count=1)
    finish(world.client, remove_on_complete=True)
    finish(world.client, keep_completed_age_ms=0)
    assert readable(world.client) == [job]
    finish(world.client)
    assert job not in readable(world.client)


def test_the_number_is_counted_in_each_queue(world: ContractWorld):
    job = finish(world.client, keep_completed_count=1)
    finish(world.client, "other")
    finish(world.client_for("acme"))
    assert world.client.get_state(job) is State.COMPLETED


def test_the_last_to_end_are_kept_not_the_last_pushed(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3, keep_completed_count=2)
    token = client.pull("q", 3).token
    for job in (ids[2], ids[0], ids[1]):
        client.ack(job, token)
    assert readable(client) == [ids[0], ids[1]]


def test_each_jobs_own_number_counts(client: Client):
    """A job that is kept longer does not keep the others."""
    short, long = finish(client, keep_completed_count=1), finish(client, keep_completed_count=5)
    assert readable(client) == [long]
    for _ in range(4):
        finish(client, keep_completed_count=1)
    assert long in readable(client)
    finish(client, keep_completed_count=1)
    assert long not in readable(client)
    assert short not in readable(client)


def test_the_servers_settings_count_where_the_job_is_silent(make_world: MakeWorld):
    world = make_world(Settings(retention=Retention(completed_age_ms=1_000, completed_count=2)))
    client = world.client
    ids = [finish(client) for _ in range(3)]
    assert readable(client) == ids[1:]
    kept = finish(client, keep_completed_age_ms=HOUR_MS, keep_completed_count=100)
    world.advance(1_000)
    assert readable(client) == [kept]


def test_a_job_may_name_one_and_leave_the_other_to_the_server(make_world: MakeWorld):
    world = make_world(Settings(retention=Retention(completed_age_ms=1_000, completed_count=2)))
    job = finish(world.client, keep_completed_age_ms=HOUR_MS)
    world.advance(5_000)
    assert readable(world.client) == [job]
    finish(world.client)
    finish(world.client)
    assert job not in readable(world.client)


@pytest.mark.parametrize("retention", [Retention(completed_age_ms=0), Retention(completed_count=0)])
def test_a_server_may_keep_nothing(make_world: MakeWorld, retention: Retention):
    world = make_world(Settings(retention=retention))
    finish(world.client)
    assert readable(world.client) == []
    assert world.client.get_stats("q").totals.completed == 1


def test_forgetting_is_as_late_as_the_end_not_as_the_push(world: ContractWorld):
    client = world.client
    job = push(client, keep_completed_age_ms=1_000, lease_ms=HOUR_MS)
    token = start(client).token
    world.advance(50_000)
    client.ack(job, token)
    world.advance(999)
    assert readable(client) == [job]


def test_live_jobs_are_never_forgotten(world: ContractWorld):
    options: dict[str, Any] = {"keep_completed_age_ms": 0, "keep_completed_count": 0, "remove_on_complete": True}
    job = push(world.client, **options)
    world.advance(100 * HOUR_MS)
    assert readable(world.client) == [job]
    assert pulled(world.client) == [job]
