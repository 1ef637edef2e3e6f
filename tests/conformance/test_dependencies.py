"""Jobs that wait for other jobs, and what becomes of them when those end."""

from collections.abc import Sequence

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import DependencyCycle, NotFound, UnknownDependency
from stoker.model.options import DAY_MS, DeadLetterPolicy, Dependency, DependencyPolicy, Options
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    NEVER,
    check_refused,
    finish,
    kill,
    pulled,
    push,
    start,
    story,
)


def on(*jobs: int, policy: DependencyPolicy = "fail") -> tuple[Dependency, ...]:
    return tuple(Dependency(job, policy) for job in jobs)


def on_items(*items: int) -> Options:
    return Options(depends_on=tuple(Dependency(item=item) for item in items))


def test_a_job_waits_until_what_it_depends_on_has_completed(client: Client):
    first = push(client)
    second = push(client, depends_on=on(first))
    view = client.get_job(second)
    assert (view.state, view.blocked_by) == (State.BLOCKED, (first,))
    assert pulled(client) == [first]
    assert pulled(client) == []
    client.ack(first)
    view = client.get_job(second)
    assert (view.state, view.blocked_by) == (State.WAITING, ())
    assert story(client, second) == ["pushed", "unblocked"]
    assert pulled(client) == [second]


def test_a_job_waits_for_all_that_it_depends_on(client: Client):
    ids = [push(client) for _ in range(3)]
    last = push(client, depends_on=on(*ids))
    for number, job in enumerate(ids):
        assert client.get_job(last).blocked_by == tuple(ids[number:])
        assert start(client).id == job
        client.ack(job)
    assert pulled(client) == [last]


def test_many_may_wait_for_one(client: Client):
    first = push(client)
    behind = [push(client, depends_on=on(first)) for _ in range(5)]
    client.ack(start(client).id)
    assert pulled(client) == behind


def test_a_chain_runs_link_by_link(client: Client):
    chain = [push(client)]
    for _ in range(4):
        chain.append(push(client, depends_on=on(chain[-1])))
    for job in chain:
        assert pulled(client) == [job]
        client.ack(job)


def test_a_failed_delivery_is_not_yet_an_end(client: Client):
    first = push(client)
    behind = push(client, depends_on=on(first))
    client.fail(start(client).id, delay_ms=1_000)
    assert client.get_state(behind) is State.BLOCKED


def test_an_edge_may_cross_queues(client: Client):
    first = push(client, "one")
    second = push(client, "other", depends_on=on(first))
    client.ack(start(client, "one").id)
    assert pulled(client, "other") == [second]


def test_the_same_job_may_be_named_twice(client: Client):
    first = push(client)
    second = push(client, depends_on=on(first, first))
    client.ack(start(client).id)
    assert pulled(client) == [second]


def test_a_completed_job_is_no_hindrance(client: Client):
    job = push(client, depends_on=on(finish(client)))
    assert client.get_state(job) is State.WAITING
    assert client.get_job(job).blocked_by == ()


def test_a_blocked_job_keeps_its_due_time(world: ContractWorld):
    client = world.client
    first = push(client, "other")
    due = world.now + 1_000
    job = push(client, delay_ms=1_000, depends_on=on(first))
    assert client.get_state(job) is State.BLOCKED
    world.advance(400)
    client.ack(start(client, "other").id)
    view = client.get_job(job)
    assert (view.state, view.due) == (State.DELAYED, due)
    world.advance(599)
    assert pulled(client) == []
    world.advance(1)
    assert pulled(client) == [job]


def test_a_blocked_job_whose_due_time_has_passed_is_waiting_at_once(world: ContractWorld):
    client = world.client
    first = push(client, "other")
    job = push(client, delay_ms=1_000, depends_on=on(first))
    world.advance(1_000)
    assert client.get_state(job) is State.BLOCKED
    client.ack(start(client, "other").id)
    assert client.get_state(job) is State.WAITING
    assert pulled(client) == [job]


def test_an_unblocked_job_stands_at_its_old_place(client: Client):
    first = push(client, "other")
    job = push(client, depends_on=on(first))
    younger = push(client)
    client.ack(start(client, "other").id)
    assert pulled(client) == [job, younger]


# --- what it depends on ends badly ---------------------------------------------------------------


def end_badly(world: ContractWorld, job: int, how: str) -> None:
    client = world.client
    if how == "failed":
        assert pulled(client, "first") == [job]
        client.fail(job, retry=False)
    elif how == "discarded":
        client.discard(job)
    elif how == "cancelled":
        client.cancel(job)
    elif how == "drained":
        client.drain("first")
    elif how == "cancelled while active":
        assert pulled(client, "first") == [job]
        client.cancel(job)
        client.fail(job)
    else:
        world.advance(1_000)


BAD_ENDS = ["failed", "discarded", "cancelled", "drained", "cancelled while active", "expired"]
POLICIES: list[tuple[DependencyPolicy, State, str]] = [
    ("fail", State.FAILED, "dependency_failed"),
    ("cancel", State.CANCELLED, "dependency_failed"),
    ("continue", State.WAITING, ""),
]


@pytest.mark.parametrize("how", BAD_ENDS)
@pytest.mark.parametrize(("policy", "state", "reason"), POLICIES)
def test_the_edge_says_what_a_bad_end_means(
    world: ContractWorld, how: str, policy: DependencyPolicy, state: State, reason: str
):
    client = world.client
    first = push(client, "first", ttl_ms=1_000)
    behind = push(client, depends_on=on(first, policy=policy))
    end_badly(world, first, how)
    view = client.get_job(behind)
    assert (view.state, view.reason) == (state, reason)
    assert pulled(client) == ([behind] if policy == "continue" else [])


@pytest.mark.parametrize("how", BAD_ENDS)
@pytest.mark.parametrize(("policy", "state", "reason"), POLICIES)
def test_a_push_behind_a_bad_end_is_created_and_ends_at_once(
    world: ContractWorld, how: str, policy: DependencyPolicy, state: State, reason: str
):
    client = world.client
    first = push(client, "first", ttl_ms=1_000)
    end_badly(world, first, how)
    reply = client.push("q", b"", depends_on=on(first, policy=policy))
    assert reply.created
    view = client.get_job(reply.id)
    assert (view.state, view.reason) == (state, reason)
    assert client.get_stats("q").totals.pushed == 1


def test_a_job_that_fails_by_an_edge_is_a_dead_letter(world: ContractWorld):
    client = world.client
    behind = push(client, depends_on=on(kill(client, "first")))
    (view,) = client.list_dead("q").jobs
    assert view.id == behind
    assert view.dead is not None
    assert (view.dead.reason, view.dead.entered_at, view.attempts) == ("dependency_failed", world.now, 0)
    assert client.get_stats("q").totals.failed == 1


def test_a_bad_end_goes_through_the_whole_chain(client: Client):
    first = push(client)
    second = push(client, depends_on=on(first))
    third = push(client, depends_on=on(second, policy="cancel"))
    fourth = push(client, depends_on=on(third, policy="continue"))
    fifth = push(client, depends_on=on(fourth))
    client.cancel(first)
    states = [client.get_state(job) for job in (second, third, fourth, fifth)]
    assert states == [State.FAILED, State.CANCELLED, State.WAITING, State.BLOCKED]


def test_a_bad_end_goes_through_a_long_chain(client: Client):
    """As deep as people build them, without a limit of the language in the way."""
    each = [Options(), *(on_items(item) for item in range(1_499))]
    ids = client.push_batch("q", [b""] * 1_500, each=each).ids
    client.cancel(ids[0])
    assert client.get_state(ids[-1]) is State.FAILED
    assert client.get_counts("q").blocked == 0


def test_one_bad_end_is_enough(client: Client):
    good, bad = push(client, "first"), push(client, "first")
    behind = push(client, depends_on=on(good, bad))
    client.cancel(bad)
    assert client.get_state(behind) is State.FAILED
    assert client.get_state(good) is State.WAITING


@pytest.mark.parametrize(
    ("policies", "state"),
    [
        (("fail", "cancel"), State.FAILED),
        (("cancel", "fail"), State.CANCELLED),
        (("continue", "cancel"), State.CANCELLED),
        (("continue", "fail"), State.FAILED),
        (("continue", "continue"), State.WAITING),
    ],
)
def test_of_several_bad_ends_the_first_edge_that_does_not_go_on_decides(
    client: Client, policies: Sequence[DependencyPolicy], state: State
):
    """Both have ended before the push, the one named last first."""
    one, other = push(client, "first"), push(client, "first")
    client.cancel(other)
    client.cancel(one)
    edges = (Dependency(one, policies[0]), Dependency(other, policies[1]))
    assert client.get_state(push(client, depends_on=edges)) is state


def test_what_goes_on_over_one_bad_end_still_waits_for_the_others(client: Client):
    bad, good = push(client, "first"), push(client, "first")
    behind = push(client, depends_on=(Dependency(bad, "continue"), Dependency(good)))
    client.cancel(bad)
    assert client.get_job(behind).blocked_by == (good,)
    client.ack(start(client, "first").id)
    assert pulled(client) == [behind]


def test_a_bad_end_frees_the_keys_and_answers_those_who_wait(client: Client):
    first = push(client)
    behind = push(client, unique_key="k", depends_on=on(first))
    client.cancel(first)
    assert client.wait_job(behind, 0).finished
    assert client.push("q", b"", unique_key="k").created


def test_a_cancelled_blocked_job_does_not_come_back(client: Client):
    first = push(client, "first")
    behind = push(client, depends_on=on(first))
    client.cancel(behind)
    client.ack(start(client, "first").id)
    assert client.get_state(behind) is State.CANCELLED
    assert pulled(client) == []


def test_a_cancelled_job_that_became_a_dead_letter_is_a_bad_end_too(client: Client):
    client.set_queue_policy("first", dead_letters=DeadLetterPolicy(take_cancelled=True))
    first = push(client, "first")
    behind = push(client, depends_on=on(first, policy="cancel"))
    client.cancel(first)
    assert client.get_state(first) is State.FAILED
    assert client.get_state(behind) is State.CANCELLED


def test_a_revived_dependency_can_be_waited_for_again(client: Client):
    dead = kill(client, "first")
    client.retry_dead("first", [dead])
    behind = push(client, depends_on=on(dead))
    assert client.get_state(behind) is State.BLOCKED
    client.ack(start(client, "first").id)
    assert pulled(client) == [behind]


# --- ids that are gone ---------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "state", "reason"), POLICIES)
@pytest.mark.parametrize("how", BAD_ENDS)
def test_a_bad_end_is_remembered_after_the_job_is_forgotten(
    world: ContractWorld, how: str, policy: DependencyPolicy, state: State, reason: str
):
    client = world.client
    first = push(client, "first", ttl_ms=1_000, remove_on_fail=True, keep_completed_age_ms=0)
    end_badly(world, first, how)
    check_refused(world, NotFound, c.GetJob(first))
    world.advance(10 * DAY_MS)
    view = client.get_job(push(client, depends_on=on(first, policy=policy)))
    assert (view.state, view.reason) == (state, reason)


def test_a_forgotten_completed_job_counts_as_completed(world: ContractWorld):
    gone = finish(world.client, remove_on_complete=True)
    assert world.client.get_state(push(world.client, depends_on=on(gone))) is State.WAITING


def test_a_forgotten_dead_letter_still_counts_as_failed(client: Client):
    dead = kill(client, "first")
    client.purge_dead("first")
    assert client.get_state(push(client, depends_on=on(dead))) is State.FAILED


def test_a_revived_and_completed_job_counts_as_completed(client: Client):
    dead = kill(client, "first", remove_on_complete=True)
    client.retry_dead("first", [dead])
    client.ack(start(client, "first").id)
    assert client.get_state(push(client, depends_on=on(dead))) is State.WAITING


def test_bad_ends_are_remembered_of_exactly_the_jobs_that_had_them(client: Client):
    """Five neighbours: good, bad, revived and good, bad, good."""
    ids = list(client.push_batch("first", [b""] * 5, remove_on_complete=True, remove_on_fail=False).ids)
    token = client.pull("first", 5).token
    client.fail_batch(ids[1:4], token, retry=False)
    client.ack_batch([ids[0], ids[4]], token)
    client.retry_dead("first", [ids[2]])
    client.ack(start(client, "first").id)
    client.purge_dead("first")
    states = [client.get_state(push(client, depends_on=on(job))) for job in ids]
    assert states == [State.WAITING, State.FAILED, State.WAITING, State.FAILED, State.WAITING]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("job", [NEVER, 128, 0, 1, 65])
def test_an_id_that_was_never_given_is_refused(world: ContractWorld, job: int):
    """128 would be the next one: the job itself."""
    assert push(world.client) == 64
    check_refused(world, UnknownDependency, c.Push("q", b"", Options(depends_on=on(job))))


def test_one_unknown_id_among_good_ones_is_refused(world: ContractWorld):
    job = push(world.client)
    check_refused(world, UnknownDependency, c.Push("q", b"", Options(depends_on=on(job, NEVER))))


def test_a_single_push_has_no_items_to_name(world: ContractWorld):
    for item in (0, 1):
        check_refused(world, UnknownDependency, c.Push("q", b"", on_items(item)))


# --- among the items of a batch ------------------------------------------------------------------


def test_items_may_name_items_backward_and_forward(client: Client):
    each = [on_items(1), Options(), on_items(0, 1)]
    ids = client.push_batch("q", [b"a", b"b", b"c"], each=each).ids
    assert client.get_job(ids[0]).blocked_by == (ids[1],)
    assert set(client.get_job(ids[2]).blocked_by) == {ids[0], ids[1]}
    for job in (ids[1], ids[0], ids[2]):
        assert pulled(client) == [job]
        client.ack(job)


def test_item_numbers_start_at_0_and_end_with_the_batch(client: Client):
    each = [on_items(3), on_items(4), on_items(-1), Options()]
    reply = client.push_batch("q", [b"a", b"b", b"c", b"d"], each=each)
    codes = {item: refusal.code for item, refusal in reply.refused.items()}
    assert codes == {1: "unknown_dependency", 2: "invalid"}
    assert pulled(client) == [reply.ids[3]]


def test_an_item_may_not_wait_for_itself(client: Client):
    reply = client.push_batch("q", [b"a", b"b"], each=[Options(), on_items(1)])
    assert reply.refused[1].code == "unknown_dependency"
    assert reply.created == 1


def test_an_item_may_not_wait_for_a_refused_one(client: Client):
    each = [Options(ttl_ms=-1), on_items(0), on_items(1)]
    reply = client.push_batch("q", [b"a", b"b", b"c"], each=each)
    codes = {item: refusal.code for item, refusal in reply.refused.items()}
    assert codes == {0: "invalid", 1: "unknown_dependency", 2: "unknown_dependency"}


def test_a_cycle_is_refused_with_all_behind_it_and_nobody_else(client: Client):
    each = [
        on_items(1),
        on_items(2),
        on_items(0),  # 0 -> 1 -> 2 -> 0
        on_items(0),  # behind it
        Options(),
        on_items(4),
    ]
    reply = client.push_batch("q", [b"x"] * 6, each=each)
    codes = {item: refusal.code for item, refusal in reply.refused.items()}
    assert codes == dict.fromkeys(range(4), "dependency_cycle")
    assert reply.created == 2
    assert pulled(client) == [reply.ids[4]]


def test_an_atomic_cycle_changes_nothing(world: ContractWorld):
    push(world.client)
    check_refused(world, DependencyCycle, c.PushBatch("q", [b"a", b"b"], each=[on_items(1), on_items(0)], atomic=True))


def test_an_item_that_is_a_duplicate_stands_for_the_job_that_is_there(client: Client):
    there = push(client, custom_id="c")
    reply = client.push_batch("q", [b"a", b"b"], each=[Options(custom_id="c"), on_items(0)])
    assert client.get_job(reply.ids[1]).blocked_by == (there,)


def test_an_item_that_is_a_duplicate_of_a_dead_job_is_a_bad_end(client: Client):
    kill(client, custom_id="c")
    reply = client.push_batch("q", [b"a", b"b"], each=[Options(custom_id="c"), on_items(0)])
    assert client.get_state(reply.ids[1]) is State.FAILED


def test_the_policy_of_an_edge_to_an_item_counts(client: Client):
    edges = Options(depends_on=(Dependency(item=0, on_failure="cancel"),))
    ids = client.push_batch("q", [b"a", b"b"], each=[Options(), edges]).ids
    client.cancel(ids[0])
    assert client.get_state(ids[1]) is State.CANCELLED


def test_a_diamond_joins_again(client: Client):
    each = [Options(), on_items(0), on_items(0), on_items(1, 2)]
    ids = list(client.push_batch("q", [b"x"] * 4, each=each).ids)
    assert pulled(client) == ids[:1]
    client.ack(ids[0])
    assert pulled(client) == ids[1:3]
    client.ack(ids[2])
    assert pulled(client) == []
    client.ack(ids[1])
    assert pulled(client) == ids[3:]


def test_a_fan_in_of_a_whole_batch(client: Client):
    each = [*[Options()] * 500, on_items(*range(500))]
    ids = list(client.push_batch("q", [b"x"] * 501, each=each).ids)
    token = client.pull("q", 500).token
    client.ack_batch(ids[:499], token)
    assert client.get_job(ids[500]).blocked_by == (ids[499],)
    client.ack(ids[499], token)
    assert pulled(client) == ids[500:]


def test_an_edge_settled_by_an_ack_of_a_whole_batch(client: Client):
    ids = list(client.push_batch("q", [b"x"] * 10).ids)
    behind = push(client, "other", depends_on=on(ids[3], ids[7]))
    token = client.pull("q", 10).token
    client.ack_batch(ids, token)
    assert pulled(client, "other") == [behind]


# --- over several shards -----------------------------------------------------------------------------
# Where these live in several processes, what follows from an end in another shard comes a moment later.

SOON = 5_000


def test_a_job_may_wait_for_a_job_of_another_shard(make_world: MakeWorld):
    client = make_world(shards=8).client
    first, second = push(client, "a"), push(client, "b")
    last = push(client, "c", depends_on=on(first, second))
    assert len({job & 63 for job in (first, second, last)}) > 1, "the test is about several"
    assert client.get_job(last).blocked_by == (first, second)
    client.ack(start(client, "a").id)
    assert pulled(client, "c") == []
    client.ack(start(client, "b").id)
    assert pulled(client, "c", wait_ms=SOON) == [last]


@pytest.mark.parametrize(("policy", "state"), [("fail", State.FAILED), ("cancel", State.CANCELLED)])
def test_a_failure_in_another_shard_means_what_the_edge_says(
    make_world: MakeWorld, policy: DependencyPolicy, state: State
):
    client = make_world(shards=8).client
    first = push(client, "a")
    before = push(client, "b", depends_on=on(first, policy=policy))
    client.fail(start(client, "a").id, retry=False)
    after = push(client, "c", depends_on=on(first, policy=policy))
    assert client.wait_job(before, SOON).state is client.wait_job(after, SOON).state is state
    going_on = push(client, "c", depends_on=on(first, policy="continue"))
    assert pulled(client, "c", wait_ms=SOON) == [going_on]


def test_what_ended_in_another_shard_is_known_for_ever(make_world: MakeWorld):
    world = make_world(shards=8)
    client = world.client
    good, bad = finish(client, "a"), kill(client, "a")
    world.advance(30 * DAY_MS)
    assert client.wait_job(push(client, "b", depends_on=on(bad)), SOON).state is State.FAILED
    job = push(client, "b", depends_on=on(good))
    assert pulled(client, "b", wait_ms=SOON) == [job]


def test_a_job_that_never_was_is_unknown_in_every_shard(make_world: MakeWorld):
    world = make_world(shards=8)
    push(world.client, "a")
    for shard in range(8):
        check_refused(world, UnknownDependency, c.Push("b", b"", Options(depends_on=on(NEVER | shard))))


def test_a_batch_may_wait_for_jobs_of_other_shards(make_world: MakeWorld):
    client = make_world(shards=8).client
    first = push(client, "a")
    ids = client.push_batch("b", [b"1", b"2", b"3"], depends_on=on(first)).ids
    assert pulled(client, "b") == []
    client.ack(start(client, "a").id)
    assert pulled(client, "b", wait_ms=SOON) == list(ids)
