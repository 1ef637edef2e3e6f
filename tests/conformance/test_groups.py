"""Of a group at most one job is active, and only its head may be pulled."""

import pytest

from stoker.client.sync import Client
from stoker.model.options import Dependency
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import STEADY, pulled, push, push_many, start


def test_a_group_runs_one_at_a_time_in_push_order(client: Client):
    ids = [push(client, group_id="g") for _ in range(3)]
    for job in ids:
        assert pulled(client) == [job]
        assert pulled(client) == []
        client.ack(job)
    assert pulled(client) == []


def test_a_batch_of_one_group_runs_one_at_a_time(client: Client):
    ids = push_many(client, 3, group_id="g")
    for job in ids:
        assert pulled(client) == [job]
        client.ack(job)


def test_one_pull_takes_one_job_of_each_group_and_all_others(client: Client):
    a1, a2 = push(client, group_id="a"), push(client, group_id="a")
    free = push(client)
    b1, b2 = push(client, group_id="b"), push(client, group_id="b")
    assert pulled(client) == [a1, free, b1]
    client.ack_batch([a1, b1])
    assert pulled(client) == [a2, b2]


def test_a_group_belongs_to_its_queue(client: Client):
    one, other = push(client, "one", group_id="g"), push(client, "other", group_id="g")
    assert pulled(client, ["one", "other"]) == [one, other]


def test_a_group_belongs_to_its_tenant(world: ContractWorld):
    ours, theirs = push(world.client, group_id="g"), push(world.client_for("acme"), group_id="g")
    assert pulled(world.client) == [ours]
    assert pulled(world.client_for("acme")) == [theirs]


def test_the_head_stands_in_the_queue_with_its_own_priority(client: Client):
    """A more urgent job behind it neither overtakes it nor lends it its priority."""
    head, urgent = push(client, group_id="g"), push(client, group_id="g", priority=9)
    middle = push(client, priority=5)
    assert pulled(client) == [middle, head]
    client.ack(head)
    assert pulled(client) == [urgent]


def test_the_head_is_the_oldest_even_of_lifo_jobs(client: Client):
    old, new = push(client, group_id="g", lifo=True), push(client, group_id="g", lifo=True)
    plain = push(client)
    assert pulled(client) == [old, plain]
    client.ack(old)
    assert pulled(client) == [new]


def test_raising_the_priority_of_a_job_behind_the_head_does_not_help_it(client: Client):
    head, behind = push(client, group_id="g"), push(client, group_id="g")
    client.change_priority(behind, 9)
    assert pulled(client) == [head]
    client.ack(head)
    other = push(client)
    assert pulled(client) == [behind, other]


def test_raising_the_priority_of_the_head_counts(client: Client):
    other = push(client)
    head = push(client, group_id="g")
    client.change_priority(head, 1)
    assert pulled(client) == [head, other]


def test_cancelling_the_head_makes_the_next_one_head(client: Client):
    head, behind = push(client, group_id="g"), push(client, group_id="g")
    client.cancel(head)
    assert pulled(client) == [behind]


def test_a_job_that_is_delayed_holds_nobody_up(world: ContractWorld):
    late, now = push(world.client, group_id="g", delay_ms=100), push(world.client, group_id="g")
    assert pulled(world.client) == [now]
    world.advance(100)
    assert world.client.get_state(late) is State.WAITING
    assert pulled(world.client) == [], "the group is busy"
    younger = push(world.client, group_id="g")
    world.client.ack(now)
    assert pulled(world.client) == [late]
    world.client.ack(late)
    assert pulled(world.client) == [younger]


def test_a_job_that_is_due_becomes_head_before_younger_ones(world: ContractWorld):
    late = push(world.client, group_id="g", delay_ms=100)
    push(world.client, group_id="g")
    world.advance(100)
    assert pulled(world.client) == [late]


def test_a_blocked_job_holds_nobody_up(client: Client):
    first = push(client, "other")
    blocked = push(client, group_id="g", depends_on=(Dependency(first),))
    free = push(client, group_id="g")
    assert pulled(client) == [free]
    client.ack(start(client, "other").id)
    client.ack(free)
    assert pulled(client) == [blocked]


def test_a_waiting_head_moved_to_delayed_holds_nobody_up(world: ContractWorld):
    head, behind = push(world.client, group_id="g"), push(world.client, group_id="g")
    world.client.move_to_delayed(head, 100)
    assert pulled(world.client) == [behind]


# --- after a failed delivery ---------------------------------------------------------------------


def leave(world: ContractWorld, how: str) -> int:
    """The head of a group of two is pulled and becomes delayed; its id."""
    client = world.client
    head = start(client)
    if how == "fail":
        client.fail(head.id, head.token, delay_ms=1_000)
    elif how == "snooze":
        client.snooze(head.id, head.token, 1_000)
    elif how == "move":
        client.move_to_delayed(head.id, 1_000, head.token)
    elif how == "lease":
        world.advance(30_000)
    elif how == "timeout":
        world.advance(20_000)
    assert client.get_state(head.id) is State.DELAYED
    return head.id


LEAVING = ["fail", "snooze", "move", "lease", "timeout"]


def group_of_two(client: Client, how: str) -> tuple[int, int]:
    timeout_ms = 20_000 if how == "timeout" else 0
    head, behind = push_many(client, 2, group_id="g", backoff=STEADY, timeout_ms=timeout_ms)
    return head, behind


@pytest.mark.parametrize("how", LEAVING)
def test_by_default_the_group_waits_for_a_job_that_will_be_tried_again(world: ContractWorld, how: str):
    head, behind = group_of_two(world.client, how)
    assert leave(world, how) == head
    assert pulled(world.client) == []
    world.advance(999)
    assert pulled(world.client) == []
    world.advance(1)
    assert pulled(world.client) == [head]
    world.client.ack(head)
    assert pulled(world.client) == [behind]


@pytest.mark.parametrize("how", LEAVING)
def test_with_skip_the_group_goes_on(world: ContractWorld, how: str):
    client = world.client
    client.set_queue_policy("q", group_on_retry="skip")
    head, behind = group_of_two(client, how)
    leave(world, how)
    assert pulled(client) == [behind]
    world.advance(1_000)
    assert pulled(client) == [], "one at a time, whoever it is"
    client.ack(behind)
    assert pulled(client) == [head]


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("end", ["cancel", "discard", "clean", "drain"])
def test_a_held_group_goes_on_when_the_job_ends(world: ContractWorld, how: str, end: str):
    client = world.client
    head, behind = group_of_two(client, how)
    leave(world, how)
    if end == "cancel":
        client.cancel(head)
    elif end == "discard":
        client.discard(head)
    elif end == "clean":
        assert list(client.clean("q", State.DELAYED)) == [head]
    else:
        assert client.drain("q", delayed=True) == 2
        behind = push(client, group_id="g")
    assert pulled(client) == [behind]


def test_a_held_group_goes_on_when_the_job_is_promoted(world: ContractWorld):
    head, behind = group_of_two(world.client, "fail")
    leave(world, "fail")
    world.client.promote(head)
    assert pulled(world.client) == [head]
    world.client.ack(head)
    assert pulled(world.client) == [behind]


def test_a_held_group_goes_on_when_the_snoozed_job_expires(world: ContractWorld):
    client = world.client
    head, behind = push(client, group_id="g", ttl_ms=500), push(client, group_id="g")
    client.snooze(start(client).id, delay_ms=1_000)
    assert pulled(client) == []
    world.advance(500)
    assert client.get_state(head) is State.EXPIRED
    assert pulled(client) == [behind]


def test_a_job_that_is_waiting_at_once_again_is_head_again(client: Client):
    head, behind = push(client, group_id="g"), push(client, group_id="g")
    client.fail(start(client).id, delay_ms=0)
    assert pulled(client) == [head]
    client.release(head)
    assert pulled(client) == [head]
    client.ack(head)
    assert pulled(client) == [behind]


def test_an_older_job_that_became_due_meanwhile_comes_before_the_released_one(world: ContractWorld):
    late = push(world.client, group_id="g", delay_ms=100)
    running = push(world.client, group_id="g")
    assert pulled(world.client) == [running]
    world.advance(100)
    world.client.release(running)
    assert pulled(world.client) == [late]


def test_a_dead_job_lets_its_group_go(client: Client):
    head, behind = push(client, group_id="g", max_attempts=1), push(client, group_id="g")
    client.fail(start(client).id)
    assert client.get_state(head) is State.FAILED
    assert pulled(client) == [behind]


def test_groups_and_a_concurrency_limit_agree(client: Client):
    client.set_concurrency("q", 2)
    a1, a2 = push(client, group_id="a"), push(client, group_id="a")
    b1, c1 = push(client, group_id="b"), push(client, group_id="c")
    assert pulled(client) == [a1, b1]
    client.ack(a1)
    assert pulled(client) == [a2]
    client.ack(b1)
    assert pulled(client) == [c1]


def test_a_revived_dead_letter_takes_its_old_place_in_the_group(client: Client):
    head, second, third = (push(client, group_id="g") for _ in range(3))
    client.fail(start(client).id, retry=False)
    assert pulled(client) == [second]
    client.retry_dead("q", [head])
    assert pulled(client) == []
    client.ack(second)
    assert pulled(client) == [head]
    client.ack(head)
    assert pulled(client) == [third]


def test_many_groups_do_not_disturb_each_other(client: Client):
    ids = [[push(client, group_id=f"g{group}") for _ in range(4)] for group in range(20)]
    for turn in range(4):
        column = sorted(group[turn] for group in ids)
        assert pulled(client, count=1_000) == column
        client.ack_batch(column)


def test_a_busy_group_can_be_looked_through(client: Client):
    head, behind = push(client, group_id="g"), push(client, group_id="g")
    assert client.why(behind).group_busy_with == head
    assert client.why(head).group_busy_with is None
    assert pulled(client) == [head]
    assert client.why(behind).group_busy_with == head
    client.fail(head, delay_ms=1_000)
    assert client.why(behind).group_busy_with == head
