"""A pull takes the ready job with the smallest (-priority, lane, order)."""

import random

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import NotFound, WrongState
from stoker.model.limits import INT_MAX
from stoker.model.options import Options
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import (
    NEVER,
    check_refused,
    finish,
    kill,
    pulled,
    push,
    push_many,
    start,
    story,
)


def test_the_oldest_comes_first(client: Client):
    ids = [push(client) for _ in range(5)]
    assert pulled(client) == ids


def test_one_pull_of_many_and_many_pulls_of_one_bring_the_same(client: Client):
    ids = [push(client, priority=priority) for priority in (0, 2, 1, 2, 0)]
    expected = [ids[1], ids[3], ids[2], ids[0], ids[4]]
    assert [start(client).id for _ in range(5)] == expected
    client.release_batch(expected)
    assert pulled(client) == expected


def test_a_higher_priority_comes_first(client: Client):
    low, normal, high = push(client, priority=-1), push(client), push(client, priority=1)
    assert pulled(client) == [high, normal, low]


def test_priorities_at_the_edges_of_the_range(client: Client):
    bottom, normal, top = push(client, priority=-INT_MAX), push(client), push(client, priority=INT_MAX)
    assert pulled(client) == [top, normal, bottom]


def test_lifo_jobs_come_newest_first_and_before_the_others(client: Client):
    old, lifo_old, new, lifo_new = (push(client, lifo=lifo) for lifo in (False, True, False, True))
    assert pulled(client) == [lifo_new, lifo_old, old, new]


def test_priority_stands_above_lifo(client: Client):
    lifo, high = push(client, lifo=True), push(client, priority=1)
    high_lifo = push(client, priority=1, lifo=True)
    assert pulled(client) == [high_lifo, high, lifo]


def test_a_batch_of_lifo_jobs_comes_newest_first(client: Client):
    ids = push_many(client, 4, lifo=True)
    assert pulled(client, count=2) == [ids[3], ids[2]]
    newer = push(client, lifo=True)
    assert pulled(client) == [newer, ids[1], ids[0]]


def test_a_batch_of_lifo_jobs_with_holes_at_both_ends(client: Client):
    ids = push_many(client, 6, lifo=True)
    for job in (ids[5], ids[4], ids[0], ids[2]):
        client.cancel(job)
    assert pulled(client, count=1) == [ids[3]]
    assert client.why(ids[1]).jobs_ahead == 0
    assert pulled(client, count=5) == [ids[1]]


def test_a_batch_is_cut_by_a_higher_priority(client: Client):
    ids = push_many(client, 4)
    assert pulled(client, count=1) == ids[:1]
    high = push(client, priority=1)
    assert pulled(client) == [high, *ids[1:]]


def test_a_delayed_job_stands_at_its_old_place_when_it_is_due(world: ContractWorld):
    late = push(world.client, delay_ms=1_000)
    ids = push_many(world.client, 3)
    world.advance(1_000)
    assert pulled(world.client) == [late, *ids]


def test_a_delayed_job_of_high_priority_blocks_nobody(world: ContractWorld):
    push(world.client, priority=9, delay_ms=60_000)
    ids = push_many(world.client, 3)
    assert pulled(world.client) == ids


def test_jobs_due_at_other_times_come_in_push_order_not_in_due_order(world: ContractWorld):
    first, second = push(world.client, delay_ms=2_000), push(world.client, delay_ms=1_000)
    world.advance(2_000)
    assert pulled(world.client) == [first, second]


def test_a_retried_job_keeps_its_place(world: ContractWorld):
    ids = push_many(world.client, 3)
    world.client.fail(start(world.client).id, delay_ms=0)
    assert pulled(world.client) == ids


def test_a_retried_job_stands_before_younger_ones_after_its_backoff(world: ContractWorld):
    ids = push_many(world.client, 3)
    world.client.fail(start(world.client).id, delay_ms=100)
    assert pulled(world.client, count=1) == [ids[1]]
    world.advance(100)
    assert pulled(world.client) == [ids[0], ids[2]]


def test_a_released_job_keeps_its_place(client: Client):
    ids = push_many(client, 4)
    assert pulled(client, count=3) == ids[:3]
    client.release(ids[1])
    assert pulled(client) == [ids[1], ids[3]]


def test_a_promoted_job_keeps_its_place(client: Client):
    late = push(client, delay_ms=60_000)
    ids = push_many(client, 2)
    client.promote(late)
    assert pulled(client) == [late, *ids]


def test_a_revived_dead_letter_stands_at_its_old_place(client: Client):
    dead = kill(client)
    ids = push_many(client, 2)
    client.retry_dead("q", [dead])
    assert pulled(client) == [dead, *ids]


def test_a_retried_lifo_job_keeps_its_place(client: Client):
    old, new = push(client, lifo=True), push(client, lifo=True)
    job = start(client)
    assert job.id == new
    newest = push(client, lifo=True)
    client.release(new)
    assert pulled(client) == [newest, new, old]


def test_any_mix_is_sorted(world: ContractWorld):
    """Against the sentence itself, with singles and batches, in pulls of any size."""
    chance = random.Random(7)
    expected: list[tuple[int, int, int, int]] = []

    def note(job: int, options: Options) -> None:
        expected.append((-options.priority, 0 if options.lifo else 1, -job if options.lifo else job, job))

    for _ in range(40):
        options = Options(priority=chance.randint(-2, 2), lifo=chance.random() < 0.3)
        if chance.random() < 0.5:
            note(world.client.push("q", b"", options).id, options)
        else:
            for job in world.client.push_batch("q", [b""] * chance.randint(1, 9), options).ids:
                note(job, options)
        if chance.random() < 0.3:
            expected.sort()
            count = chance.randint(1, 5)
            assert pulled(world.client, count=count) == [row[3] for row in expected[:count]]
            del expected[:count]
    expected.sort()
    assert pulled(world.client, count=1_000) == [row[3] for row in expected]


# --- changing the priority -----------------------------------------------------------------------


def test_a_waiting_jobs_new_priority_counts_at_once(client: Client):
    ids = push_many(client, 3)
    client.change_priority(ids[2], 1)
    assert client.get_job(ids[2]).options.priority == 1
    assert story(client, ids[2]) == ["pushed", "reprioritised"]
    assert pulled(client) == [ids[2], ids[0], ids[1]]


def test_the_priority_may_be_lowered_and_put_back(client: Client):
    ids = push_many(client, 3)
    client.change_priority(ids[0], -1)
    client.change_priority(ids[1], -1)
    client.change_priority(ids[1], 0)
    assert pulled(client) == [ids[1], ids[2], ids[0]]


def test_a_delayed_jobs_new_priority_counts_when_it_is_due(world: ContractWorld):
    late = push(world.client, delay_ms=100)
    other = push(world.client)
    world.client.change_priority(late, 1)
    assert world.client.get_state(late) is State.DELAYED
    world.advance(100)
    assert pulled(world.client) == [late, other]


def test_an_active_jobs_new_priority_counts_for_its_next_delivery(client: Client):
    ids = push_many(client, 3)
    token = client.pull("q", 2).token
    client.change_priority(ids[1], 5)
    assert client.get_state(ids[1]) is State.ACTIVE
    client.release_batch(ids[:2], token)
    assert pulled(client) == [ids[1], ids[0], ids[2]]


@pytest.mark.parametrize("priority", [INT_MAX, -INT_MAX])
def test_the_greatest_and_least_priorities_can_be_given(client: Client, priority: int):
    job = push(client)
    client.change_priority(job, priority)
    assert client.get_job(job).options.priority == priority


def test_ended_jobs_have_no_priority_to_change(world: ContractWorld):
    for job in (finish(world.client), kill(world.client)):
        check_refused(world, WrongState, c.ChangePriority(job, 1))
    check_refused(world, NotFound, c.ChangePriority(NEVER, 1))
