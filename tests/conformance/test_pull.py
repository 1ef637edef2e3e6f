"""What a pull brings, from where, how many, and what it waits for."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.limits import Limits
from stoker.model.options import HOUR_MS, Dependency, Options, RateLimit
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    OUT_OF_BOUNDS,
    check_refused,
    picture,
    pulled,
    push,
    push_many,
    start,
    story,
)


def test_a_delivery_says_everything_a_worker_needs(world: ContractWorld):
    job = push(world.client, "mail", b"hello", tags=("t",))
    pushed_at = world.now
    world.advance(500)
    delivered = start(world.client, "mail", worker="w1")
    assert delivered.id == job
    assert delivered.token > 0
    assert delivered.queue == "mail"
    assert delivered.payload == b"hello"
    assert delivered.options == Options(tags=("t",))
    assert delivered.attempt == 1
    assert delivered.pushed_at == pushed_at
    assert delivered.lease_until == world.now + 30_000


def test_a_delivered_job_is_active(world: ContractWorld):
    job = push(world.client)
    world.advance(500)
    start(world.client, worker="w1")
    view = world.client.get_job(job)
    assert (view.state, view.attempts, view.worker) == (State.ACTIVE, 1, "w1")
    assert (view.started_at, view.lease_until) == (world.now, world.now + 30_000)
    assert story(world.client, job) == ["pushed", "started"]
    counts = world.client.get_counts("q")
    assert (counts.waiting, counts.active) == (0, 1)
    assert world.client.get_stats("q").totals.started == 1


def test_an_active_job_is_pulled_by_nobody_else(client: Client):
    push(client)
    assert len(client.pull("q")) == 1
    assert len(client.pull("q")) == 0


def test_a_pull_brings_what_is_there_up_to_count(client: Client):
    ids = push_many(client, 5)
    assert pulled(client, count=3) == ids[:3]
    assert pulled(client, count=3) == ids[3:]


def test_the_views_of_one_delivery_agree(client: Client):
    push_many(client, 3)
    push(client, payload=b"x", priority=1)
    delivery = client.pull("q", 10)
    jobs = list(delivery)
    assert len(delivery) == 4
    assert list(delivery.ids) == [job.id for job in jobs]
    assert list(delivery.payloads) == [job.payload for job in jobs] == [b"x", b"0", b"1", b"2"]
    assert {job.token for job in jobs} == {delivery.token}
    assert sum(len(run.ids) for run in delivery.runs) == 4


def test_every_token_is_greater_than_all_before(client: Client):
    push_many(client, 6)
    push(client, "other")
    tokens = [client.pull(queue, 2).token for queue in ("q", "other", "q", "q")]
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 0


def test_the_same_job_gets_a_greater_token_each_time(client: Client):
    push(client)
    tokens = []
    for _ in range(3):
        job = start(client)
        tokens.append(job.token)
        client.release(job.id, job.token)
    assert tokens == sorted(set(tokens))


def test_the_attempt_counts_deliveries(client: Client):
    push(client, max_attempts=0)
    for attempt in (1, 2, 3, 4, 5):
        job = start(client)
        assert job.attempt == attempt
        client.fail(job.id, job.token, delay_ms=0)


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_is_as_long_as_the_job_says(world: ContractWorld):
    push(world.client, lease_ms=123)
    assert start(world.client).lease_until == world.now + 123


def test_the_pull_may_say_how_long_the_lease_is(world: ContractWorld):
    job = push(world.client, lease_ms=123)
    assert start(world.client, lease_ms=456).lease_until == world.now + 456
    assert world.client.get_job(job).lease_until == world.now + 456


def test_each_job_of_a_pull_has_its_own_lease(world: ContractWorld):
    push(world.client, lease_ms=1_000)
    push(world.client, lease_ms=2_000)
    assert [job.lease_until - world.now for job in world.client.pull("q", 2)] == [1_000, 2_000]


# --- several queues ------------------------------------------------------------------------------


def test_queues_are_emptied_in_the_order_given(client: Client):
    a, b = push_many(client, 2, "a"), push_many(client, 2, "b", priority=9)
    assert pulled(client, ["a", "b"], 3) == [*a, b[0]]


def test_the_order_is_the_pulls_not_that_of_names_or_pushes(client: Client):
    a, b = push(client, "a"), push(client, "b")
    delivery = client.pull(["b", "a"], 10)
    assert [(job.queue, job.id) for job in delivery] == [("b", b), ("a", a)]


def test_a_queue_that_nobody_knows_is_empty_and_stays_unknown(world: ContractWorld):
    client = world.client
    job = push(client)
    assert pulled(client, ["never", "q"]) == [job]
    before = picture(client)
    assert pulled(client, "never") == []
    assert picture(client) == before


def test_an_empty_answer_is_empty(client: Client):
    delivery = client.pull("q", 10)
    assert (len(delivery), list(delivery), list(delivery.ids), delivery.next_at) == (0, [], [], None)


def test_an_empty_pull_changes_nothing(world: ContractWorld):
    push(world.client, delay_ms=1_000)
    before = picture(world.client)
    world.client.pull("q", 10)
    assert picture(world.client) == before


# --- what a pull may ask for ---------------------------------------------------------------------


def test_a_count_over_the_limit_is_refused(make_world: MakeWorld):
    world = make_world(limits=Limits(pull_jobs_max=3))
    ids = push_many(world.client, 5)
    check_refused(world, LimitExceeded, c.Pull(["q"], 4))
    assert pulled(world.client, count=3) == ids[:3]


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_of_nothing_is_refused(world: ContractWorld, count: int):
    push(world.client)
    check_refused(world, OUT_OF_BOUNDS, c.Pull(["q"], count))


def test_a_pull_from_no_queue_is_refused(world: ContractWorld):
    check_refused(world, InvalidRequest, c.Pull([]))


# --- next_at -------------------------------------------------------------------------------------


def test_an_empty_answer_names_the_earliest_due_time(world: ContractWorld):
    push(world.client, delay_ms=2_000)
    push(world.client, delay_ms=1_000)
    push(world.client, "other", delay_ms=500)
    assert world.client.pull("q").next_at == world.now + 1_000
    assert world.client.pull(["q", "other"]).next_at == world.now + 500


def test_an_empty_answer_names_the_next_refill_where_jobs_wait(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 1_000)
    push_many(client, 2)
    assert len(client.pull("q", 10)) == 1
    assert client.pull("q").next_at == world.now + 1_000
    client.cancel(client.browse("q", State.WAITING).jobs[0].id)
    assert client.pull("q").next_at is None


def test_a_paused_queue_offers_no_chance(world: ContractWorld):
    push(world.client, delay_ms=1_000)
    world.client.pause("q")
    assert world.client.pull("q").next_at is None


def test_blocked_and_active_jobs_are_no_known_chance(client: Client):
    first = push(client)
    push(client, depends_on=(Dependency(first),))
    assert pulled(client) == [first]
    assert client.pull("q").next_at is None


# --- waiting -------------------------------------------------------------------------------------


def test_a_pull_waits_until_a_job_is_due(world: ContractWorld):
    job = push(world.client, delay_ms=300)
    due = world.now + 300
    delivered = start(world.client, wait_ms=10_000)
    assert delivered.id == job
    assert world.now == due
    assert delivered.lease_until == due + 30_000


def test_a_pull_waits_no_longer_than_it_said(world: ContractWorld):
    push(world.client, delay_ms=5_000)
    begin = world.now
    delivery = world.client.pull("q", wait_ms=1_000)
    assert len(delivery) == 0
    assert delivery.next_at == begin + 5_000
    assert world.now == begin + 1_000


def test_a_job_due_at_the_end_of_the_wait_is_still_delivered(world: ContractWorld):
    """Waiting pulls are served before they time out."""
    job = push(world.client, delay_ms=1_000)
    assert pulled(world.client, wait_ms=1_000) == [job]


def test_a_pull_that_finds_something_does_not_wait(world: ContractWorld):
    push(world.client)
    begin = world.now
    assert len(world.client.pull("q", 10, wait_ms=10_000)) == 1
    assert world.now == begin


def test_waiting_ends_with_the_first_job_not_with_all(world: ContractWorld):
    first = push(world.client, delay_ms=100)
    push(world.client, delay_ms=200)
    assert pulled(world.client, count=2, wait_ms=1_000) == [first]


def test_a_pull_waits_for_the_refill_of_a_rate(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 1_000)
    ids = push_many(client, 2)
    assert pulled(client) == ids[:1]
    begin = world.now
    assert pulled(client, wait_ms=5_000) == ids[1:]
    assert world.now == begin + 1_000


def test_a_pull_waits_for_a_retry(world: ContractWorld):
    client = world.client
    job = push(client)
    client.fail(start(client).id, delay_ms=700)
    begin = world.now
    assert pulled(client, wait_ms=5_000) == [job]
    assert world.now == begin + 700


def test_a_pull_waits_for_a_slot_that_a_lost_lease_frees(world: ContractWorld):
    client = world.client
    client.set_concurrency("q", 1)
    lost = push(client, lease_ms=1_000, max_attempts=1)
    waiting = push(client)
    assert pulled(client) == [lost]
    begin = world.now
    assert pulled(client, wait_ms=5_000) == [waiting]
    assert world.now == begin + 1_000


def test_a_pull_waits_for_a_group_that_a_lost_lease_frees(world: ContractWorld):
    client = world.client
    lost = push(client, group_id="g", lease_ms=1_000, max_attempts=1)
    waiting = push(client, group_id="g")
    assert pulled(client) == [lost]
    assert pulled(client, wait_ms=5_000) == [waiting]


def test_a_pull_waits_for_a_dependency_that_a_timeout_settles(world: ContractWorld):
    client = world.client
    first = push(client, "first", timeout_ms=1_000, max_attempts=1)
    behind = push(client, depends_on=(Dependency(first, "continue"),))
    assert pulled(client, "first") == [first]
    assert pulled(client, wait_ms=5_000) == [behind]


def test_a_pull_over_several_queues_waits_for_the_first_of_them(world: ContractWorld):
    push(world.client, "a", delay_ms=500)
    job = push(world.client, "b", delay_ms=300)
    assert pulled(world.client, ["a", "b"], wait_ms=1_000) == [job]


def test_a_paused_queue_is_waited_for_in_vain(world: ContractWorld):
    world.client.pause("q")
    push(world.client)
    begin = world.now
    assert pulled(world.client, wait_ms=1_000) == []
    assert world.now == begin + 1_000


def test_waiting_longer_than_the_limit_is_refused(make_world: MakeWorld):
    world = make_world(limits=Limits(wait_ms_max=1_000))
    check_refused(world, LimitExceeded, c.Pull(["q"], wait_ms=1_001))
    check_refused(world, LimitExceeded, c.ReadEvents(wait_ms=1_001))
    job = push(world.client)
    check_refused(world, LimitExceeded, c.WaitJob(job, 1_001))
    assert pulled(world.client, wait_ms=1_000) == [job]


# --- pause ---------------------------------------------------------------------------------------


def test_a_paused_queue_gives_nothing_and_takes_everything(client: Client):
    client.pause("q")
    job = push(client)
    other = push(client, "other")
    assert pulled(client, ["q", "other"]) == [other]
    client.resume("q")
    assert pulled(client) == [job]


def test_pausing_leaves_running_jobs_alone(client: Client):
    job = push(client)
    token = start(client).token
    client.pause("q")
    client.extend(job, token)
    client.ack(job, token)
    assert client.get_state(job) is State.COMPLETED


# --- concurrency ---------------------------------------------------------------------------------


def test_a_concurrency_limit_bounds_the_active_jobs(client: Client):
    client.set_concurrency("q", 3)
    ids = push_many(client, 6)
    assert pulled(client, count=2) == ids[:2]
    assert pulled(client, count=5) == ids[2:3]
    assert pulled(client) == []
    client.ack(ids[1])
    assert pulled(client) == ids[3:4]


def test_one_queue_at_its_limit_does_not_stop_the_next_one(client: Client):
    client.set_concurrency("a", 1)
    a, b = push_many(client, 2, "a"), push_many(client, 2, "b")
    assert pulled(client, ["a", "b"]) == [a[0], *b]


def test_lowering_the_limit_takes_nothing_from_running_jobs(client: Client):
    ids = push_many(client, 5)
    assert pulled(client, count=3) == ids[:3]
    client.set_concurrency("q", 2)
    assert client.get_counts("q").active == 3
    client.ack(ids[0])
    assert pulled(client) == []
    client.ack(ids[1])
    assert pulled(client) == ids[3:4]


def test_raising_and_lifting_the_limit_counts_at_once(client: Client):
    client.set_concurrency("q", 1)
    ids = push_many(client, 5)
    assert pulled(client) == ids[:1]
    client.set_concurrency("q", 2)
    assert pulled(client) == ids[1:2]
    client.clear_concurrency("q")
    assert pulled(client) == ids[2:]


# --- rate ----------------------------------------------------------------------------------------


def test_a_rate_limit_starts_full_and_refills_continuously(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 2, 1_000)
    ids = push_many(client, 10, lease_ms=HOUR_MS)
    assert pulled(client) == ids[:2], "burst is as much as count where it is not given"
    assert pulled(client) == []
    world.advance(499)
    assert pulled(client) == []
    world.advance(1)
    assert pulled(client) == ids[2:3]
    world.advance(1_000)
    assert pulled(client) == ids[3:5]
    world.advance(100_000)
    assert pulled(client) == ids[5:7], "never more than burst are saved up"


def test_burst_and_rate_are_two_things(world: ContractWorld):
    client = world.client
    client.execute(c.SetRateLimit("q", RateLimit(1, 1_000, 5)))
    ids = push_many(client, 20, lease_ms=HOUR_MS)
    assert pulled(client) == ids[:5]
    world.advance(2_000)
    assert pulled(client) == ids[5:7]
    world.advance(100_000)
    assert pulled(client) == ids[7:12]


def test_a_burst_smaller_than_the_rate(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 10, 1_000, burst=1)
    ids = push_many(client, 5)
    assert pulled(client) == ids[:1]
    world.advance(100)
    assert pulled(client) == ids[1:2]
    world.advance(5_000)
    assert pulled(client) == ids[2:3]


def test_every_job_costs_a_token(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 5, 1_000)
    ids = push_many(client, 10)
    assert pulled(client, count=3) == ids[:3]
    assert pulled(client, count=10) == ids[3:5]


def test_pulls_that_bring_nothing_cost_nothing(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 2, 1_000)
    for _ in range(10):
        assert pulled(client) == []
    ids = push_many(client, 3)
    assert pulled(client) == ids[:2]


def test_a_pull_at_the_concurrency_limit_costs_no_token(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 3, 1_000)
    client.set_concurrency("q", 1)
    ids = push_many(client, 4)
    for job in ids[:3]:
        assert pulled(client) == [job]
        assert pulled(client) == []
        client.ack(job)
    assert pulled(client) == []


def test_a_released_job_does_not_give_its_token_back(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 1_000)
    job = push(client)
    client.release(start(client).id)
    assert pulled(client) == []
    world.advance(1_000)
    assert pulled(client) == [job]


def test_fractions_of_a_token_are_kept(world: ContractWorld):
    """Three a second, taken as soon as they are there: the sixth comes after 2 s, not later by rounding."""
    client = world.client
    client.set_rate_limit("q", 3, 1_000, burst=2)
    push_many(client, 100)
    begin, times = world.now, []
    expected = [0, 0, 334, 667, 1_000, 1_334, 1_667, 2_000]
    for moment in sorted({*range(20), *range(0, 2_000, 31), *(due + by for due in expected[2:] for by in (-1, 0, 1))}):
        world.advance(moment - (world.now - begin))
        times += [moment] * len(client.pull("q", 10))
    assert times == expected


def test_a_bucket_that_is_partly_filled_says_when_it_is_full_enough(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 1_000)
    ids = push_many(client, 2)
    assert pulled(client) == ids[:1]
    refill = world.now + 1_000
    world.advance(400)
    assert client.pull("q").next_at == refill
    assert client.why(ids[1]).rate_limited_until == refill
    assert pulled(client, wait_ms=5_000) == ids[1:]
    assert world.now == refill


def test_a_full_bucket_keeps_nothing_beside(world: ContractWorld):
    """With a burst of one the time between the refill and the pull is lost: never above burst."""
    client = world.client
    client.set_rate_limit("q", 3, 1_000, burst=1)
    push_many(client, 10)
    assert len(client.pull("q")) == 1
    world.advance(900)
    assert len(client.pull("q", 10)) == 1
    assert client.pull("q").next_at == world.now + 334


def test_setting_a_limit_fills_its_bucket(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 60_000)
    ids = push_many(client, 5)
    assert pulled(client) == ids[:1]
    client.set_rate_limit("q", 2, 60_000)
    assert pulled(client) == ids[1:3]
    client.clear_rate_limit("q")
    assert pulled(client) == ids[3:]


def test_a_rate_limit_bounds_one_queue_only(client: Client):
    client.set_rate_limit("a", 1, 1_000)
    a, b = push_many(client, 3, "a"), push_many(client, 3, "b")
    assert pulled(client, ["a", "b"]) == [a[0], *b]


# --- bytes -----------------------------------------------------------------------------------------


def test_a_delivery_is_bounded_in_bytes(make_world: MakeWorld):
    """What does not fit comes with the next pull; nothing is lost and nothing comes twice."""
    client = make_world(limits=Limits(reply_bytes_max=100)).client
    ids = list(client.push_batch("q", [b"x" * 30] * 10).ids)
    ids += [client.push("q", b"y" * size).id for size in (60, 60, 10)]
    got = [list(client.pull("q", 100).ids) for _ in range(7)]
    assert [len(delivery) for delivery in got] == [3, 3, 3, 2, 2, 0, 0]
    assert [job for delivery in got for job in delivery] == ids


def test_a_job_larger_than_a_reply_comes_alone(make_world: MakeWorld):
    client = make_world(limits=Limits(reply_bytes_max=100)).client
    client.push_batch("q", [b"x" * 500, b"x" * 40, b"x" * 70, b"x" * 30])
    assert [len(client.pull("q", 100)) for _ in range(4)] == [1, 1, 2, 0]


def test_several_queues_share_the_bytes_of_a_delivery(make_world: MakeWorld):
    client = make_world(limits=Limits(reply_bytes_max=100)).client
    client.push_batch("a", [b"x" * 40] * 2)
    client.push_batch("b", [b"x" * 40] * 2)
    assert [[job.queue for job in client.pull(["a", "b"], 10)] for _ in range(3)] == [["a", "a"], ["b", "b"], []]


def test_a_page_is_bounded_in_bytes(make_world: MakeWorld):
    client = make_world(limits=Limits(reply_bytes_max=100)).client
    ids = list(client.push_batch("q", [b"x" * 60] * 5).ids)
    found, after = [], None
    while True:
        page = client.browse("q", after=after, ascending=True)
        assert 0 < len(page.jobs) <= 2
        found += [job.id for job in page.jobs]
        after = page.next_after
        if after is None:
            break
    assert found == ids


def test_a_page_of_dead_letters_is_bounded_in_bytes(make_world: MakeWorld):
    client = make_world(limits=Limits(reply_bytes_max=100)).client
    ids = list(client.push_batch("q", [b"x" * 60] * 3).ids)
    for job in ids:
        client.discard(job)
    first = client.list_dead("q")
    assert [job.id for job in first.jobs] == ids[:2]
    assert [job.id for job in client.list_dead("q", after=first.next_after).jobs] == ids[2:]
