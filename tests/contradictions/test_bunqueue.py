"""bunqueue: where its domain layer contradicts itself or its code."""

from pathlib import Path

import pytest

from stoker.model.ids import shard_of
from stoker.model.options import DeadLetterPolicy, Dependency
from stoker.model.states import State
from stoker.testing import World
from tests.contradictions.support import STEADY, pulled, push, start

ROOT = Path(__file__).parent.parent.parent


def test_b1_a_timeout_is_a_failed_delivery_not_yet_a_dead_letter(world: World):
    """Drawn as a way straight to the dead letters, written as a reason to fail, coded as a retry."""
    job = push(world.client, timeout_ms=1_000, max_attempts=2, backoff=STEADY)
    for state in (State.DELAYED, State.FAILED):
        start(world.client)
        world.advance(1_000)
        assert world.client.get_state(job) is state
        world.advance(1_000)
    assert world.client.get_job(job).reason == "timeout"


def test_b2_an_expired_job_has_a_state_an_event_and_a_count(world: World):
    """`ttl_expired` was a reason that nothing produced; the job was just deleted."""
    job = push(world.client, ttl_ms=1_000)
    world.advance(1_000)
    view = world.client.get_job(job)
    assert (view.state, view.reason) == (State.EXPIRED, "ttl_expired")
    assert [event.job for event in world.client.read_events(kinds=["expired"]).events] == [job]
    assert world.client.get_stats("q").totals.expired == 1


def test_b2_an_expired_job_can_be_a_dead_letter(world: World):
    """It deserves to be seen, where the queue says so."""
    world.client.set_queue_policy("q", dead_letters=DeadLetterPolicy(take_expired=True))
    job = push(world.client, ttl_ms=1_000)
    world.advance(1_000)
    assert [(view.id, view.reason) for view in world.client.list_dead("q").jobs] == [(job, "ttl_expired")]


def test_b2_a_job_that_kills_its_workers_says_so(world: World):
    """`worker_lost` was a reason that nothing produced."""
    job = push(world.client, lease_ms=1_000, max_crashes=2, max_attempts=0, backoff=STEADY)
    for _ in range(2):
        start(world.client)
        world.advance(3_000)
    assert world.client.get_job(job).reason == "worker_lost"


def test_b3_the_limit_is_of_attempts_not_of_retries(world: World):
    """`Max retries` in the drawing, attempts in the text: one execution more or less."""
    job = push(world.client, max_attempts=1)
    world.client.fail(start(world.client).id)
    assert world.client.get_state(job) is State.FAILED


def test_b4_a_job_whose_dependencies_are_done_is_waiting(world: World):
    """It was pushed to the `active queue`; active is what a worker has."""
    first = push(world.client, "other")
    behind = push(world.client, depends_on=(Dependency(first),))
    world.client.ack(start(world.client, "other").id)
    view = world.client.get_job(behind)
    assert (view.state, view.attempts, view.lease_until) == (State.WAITING, 0, 0)


def test_b5_dependents_are_ready_in_the_moment_of_the_ack(world: World):
    """A check every 100 ms by the text, a sweep every 30 s by the code."""
    first = push(world.client, "other")
    behind = push(world.client, depends_on=(Dependency(first),))
    begin = world.now
    world.client.ack(start(world.client, "other").id)
    assert pulled(world.client) == [behind]
    assert world.now == begin


@pytest.mark.parametrize("policy", ["hold", "skip"])
def test_b6_a_group_keeps_its_order_over_a_retry_unless_told_otherwise(world: World, policy: str):
    """Any failure freed the group: the second job ran while the first waited for its backoff."""
    client = world.client
    if policy == "skip":
        client.set_queue_policy("q", group_on_retry="skip")
    first, second = push(client, group_id="g", backoff=STEADY), push(client, group_id="g")
    client.fail(start(client).id)
    assert pulled(client) == ([second] if policy == "skip" else [])
    client.ack_batch([second])
    world.advance(1_000)
    assert pulled(client) == [first]


def test_b7_a_key_is_held_during_backoff(world: World):
    """Freed by the failure: a second live job with the same key could be pushed."""
    job = push(world.client, unique_key="k")
    world.client.fail(start(world.client).id)
    assert world.client.get_state(job) is State.DELAYED
    assert world.client.push("q", b"", unique_key="k").id == job


def test_b8_a_queue_lives_in_one_shard_and_the_documents_say_so():
    """Shards were said to bring parallelism; one hot queue got none of it, and nobody said that."""
    with World(shards=8) as world:
        for queue in ("hot", "other"):
            ids = world.client.push_batch(queue, [b"job"] * 100).ids
            assert len({shard_of(job) for job in ids}) == 1
    assert "a queue lives in one shard, and a shard in one process" in (ROOT / "docs" / "server.md").read_text()


def test_b9_an_evicted_dead_letter_leaves_an_event_and_a_count(world: World):
    """Beyond the limit the oldest failures vanished in silence."""
    client = world.client
    client.set_queue_policy("q", dead_letters=DeadLetterPolicy(entries_max=2))
    ids = [push(client) for _ in range(3)]
    client.fail_batch(pulled(client), retry=False)
    assert [event.job for event in client.read_events(kinds=["evicted"]).events] == ids[:1]
    assert client.get_stats("q").totals.evicted == 1


def test_b10_an_automatic_retry_gives_all_attempts_back_and_is_counted(world: World):
    """One try or all of them? The text did not say."""
    client = world.client
    client.set_queue_policy("q", dead_letters=DeadLetterPolicy(auto_retry=True, auto_retry_interval_ms=1_000))
    job = push(client, max_attempts=2)
    for round_number in range(3):
        for attempt in (1, 2):
            assert start(client).attempt == attempt
            client.fail(job, delay_ms=0)
        dead = client.get_job(job).dead
        assert dead is not None
        assert dead.retry_count == round_number
        world.advance(1_000)


def test_b11_jobs_that_are_not_due_do_not_stand_among_the_ready_ones(world: World):
    """One heap for both, beside another one for the delayed: pulling scanned what could not be pulled."""
    for _ in range(2_000):
        push(world.client, priority=5, delay_ms=3_600_000)
    ready = push(world.client)
    assert pulled(world.client) == [ready]
    assert world.client.why(push(world.client)).jobs_ahead == 0
