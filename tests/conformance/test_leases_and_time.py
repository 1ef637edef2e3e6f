"""Deadlines: reached when now >= deadline, processed in the order of their times, each at its own time."""

import pytest

from stoker.client.sync import Client
from stoker.model.errors import LostLease
from stoker.model.options import Backoff, Dependency
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import STEADY, all_events, pulled, push, push_many, start, story


def test_a_lease_ends_at_its_time_and_not_before(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000, backoff=STEADY)
    start(client, worker="w1")
    world.advance(999)
    assert client.get_state(job) is State.ACTIVE
    world.advance(1)
    view = client.get_job(job)
    assert (view.state, view.due, view.attempts, view.crashes) == (State.DELAYED, world.now + 1_000, 1, 1)
    (attempt,) = view.history
    assert (attempt.reason, attempt.worker, attempt.duration_ms) == ("stalled", "w1", 1_000)
    assert story(client, job) == ["pushed", "started", "retrying"]
    totals = client.get_stats("q").totals
    assert (totals.stalled, totals.timed_out, totals.retried) == (1, 0, 1)


def test_a_worker_that_comes_late_has_lost_its_lease(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000)
    token = start(client).token
    world.advance(1_000)
    for late in (client.ack, client.fail, client.release, client.extend):
        with pytest.raises(LostLease):
            late(job, token)
    assert client.get_state(job) is State.DELAYED


def test_an_ack_in_the_last_millisecond_counts(world: ContractWorld):
    job = push(world.client, lease_ms=1_000)
    token = start(world.client).token
    world.advance(999)
    world.client.ack(job, token)
    assert world.client.get_state(job) is State.COMPLETED


def test_a_late_worker_cannot_settle_the_next_delivery(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000, backoff=Backoff(base_ms=0))
    stale = start(client).token
    world.advance(1_000)
    current = start(client).token
    with pytest.raises(LostLease):
        client.ack(job, stale, b"stale")
    assert client.get_state(job) is State.ACTIVE
    client.ack(job, current, b"current")
    assert client.get_result(job) == b"current"


def test_the_last_attempt_that_stalls_makes_a_dead_letter(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000, max_attempts=1)
    start(client)
    world.advance(1_000)
    view = client.get_job(job)
    assert (view.state, view.reason, view.crashes) == (State.FAILED, "stalled", 1)
    assert view.dead is not None
    assert view.dead.reason == "stalled"


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_a_job_that_kills_its_workers_ends(world: ContractWorld, crashes: int):
    client = world.client
    job = push(client, lease_ms=1_000, max_attempts=0, max_crashes=crashes, backoff=Backoff(base_ms=0))
    for number in range(crashes):
        assert client.get_job(job).crashes == number
        start(client)
        world.advance(1_000)
    view = client.get_job(job)
    assert (view.state, view.reason, view.crashes) == (State.FAILED, "worker_lost", crashes)
    assert pulled(client) == []


def test_without_a_limit_of_crashes_attempts_decide_alone(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000, max_attempts=6, max_crashes=0, backoff=Backoff(base_ms=0))
    for _ in range(6):
        start(client)
        world.advance(1_000)
    assert client.get_job(job).reason == "stalled"


def test_failures_between_crashes_are_no_crashes(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000, max_attempts=0, max_crashes=2, backoff=Backoff(base_ms=0))
    start(client)
    world.advance(1_000)
    for _ in range(5):
        client.fail(start(client).id)
    assert client.get_job(job).crashes == 1
    start(client)
    world.advance(1_000)
    assert client.get_job(job).reason == "worker_lost"


def test_each_lease_of_a_pull_ends_alone(world: ContractWorld):
    client = world.client
    short, long = push(client, lease_ms=1_000), push(client, lease_ms=2_000)
    assert pulled(client) == [short, long]
    world.advance(1_000)
    assert [client.get_state(job) for job in (short, long)] == [State.DELAYED, State.ACTIVE]


def test_a_lost_slice_of_a_batch_comes_back_whole(world: ContractWorld):
    client = world.client
    ids = push_many(client, 10, lease_ms=1_000, backoff=STEADY)
    token = client.pull("q", 6).token
    client.ack_batch([ids[1], ids[4]], token)
    world.advance(1_000)
    lost = [ids[0], ids[2], ids[3], ids[5]]
    assert [client.get_state(job) for job in lost] == [State.DELAYED] * 4
    assert [client.get_job(job).crashes for job in lost] == [1] * 4
    world.advance(1_000)
    assert pulled(client) == [*lost, *ids[6:]]


# --- timeouts ------------------------------------------------------------------------------------


def test_a_timeout_ends_a_delivery_however_often_it_is_renewed(world: ContractWorld):
    client = world.client
    job = push(client, timeout_ms=2_500, lease_ms=1_000, backoff=STEADY)
    token = start(client).token
    for _ in range(3):
        world.advance(800)
        client.extend(job, token)
    world.advance(99)
    assert client.get_state(job) is State.ACTIVE
    world.advance(1)
    view = client.get_job(job)
    assert (view.state, view.crashes, view.due) == (State.DELAYED, 0, world.now + 1_000)
    assert view.history[0].reason == "timeout"
    totals = client.get_stats("q").totals
    assert (totals.timed_out, totals.stalled, totals.retried) == (1, 0, 1)
    with pytest.raises(LostLease):
        client.ack(job, token)


def test_the_last_attempt_that_times_out_makes_a_dead_letter(world: ContractWorld):
    job = push(world.client, timeout_ms=1_000, max_attempts=1)
    start(world.client)
    world.advance(1_000)
    view = world.client.get_job(job)
    assert (view.state, view.reason, view.crashes) == (State.FAILED, "timeout", 0)


def test_a_timeout_runs_anew_with_each_delivery(world: ContractWorld):
    client = world.client
    job = push(client, timeout_ms=1_000)
    token = start(client).token
    world.advance(900)
    client.release(job, token)
    start(client)
    world.advance(999)
    assert client.get_state(job) is State.ACTIVE
    world.advance(1)
    assert client.get_state(job) is State.DELAYED


@pytest.mark.parametrize(
    ("lease_ms", "timeout_ms", "reason"),
    [(1_000, 1_001, "stalled"), (1_001, 1_000, "timeout"), (1_000, 1_000, "timeout")],
)
def test_of_lease_and_timeout_the_first_counts_and_timeout_when_equal(
    world: ContractWorld, lease_ms: int, timeout_ms: int, reason: str
):
    job = push(world.client, lease_ms=lease_ms, timeout_ms=timeout_ms, max_attempts=1)
    start(world.client)
    world.advance(5_000)
    view = world.client.get_job(job)
    assert (view.reason, view.crashes) == (reason, 1 if reason == "stalled" else 0)


# --- however late somebody looks -----------------------------------------------------------------


def test_backoff_counts_from_the_end_of_the_lease(world: ContractWorld):
    client = world.client
    begin = world.now
    job = push(client, lease_ms=1_000, backoff=Backoff("fixed", 50_000, 50_000, "none"))
    start(client)
    world.advance(30_000)
    assert client.get_job(job).due == begin + 51_000


def test_many_deadlines_are_processed_in_one_look(world: ContractWorld):
    """Lease ends at 1 s, due again at 2 s: after one long jump it waits."""
    client = world.client
    begin = world.now
    job = push(client, lease_ms=1_000, backoff=STEADY)
    start(client)
    world.advance(100_000)
    assert client.get_state(job) is State.WAITING
    events = [(event.kind, event.at - begin) for event in all_events(client) if event.job == job]
    assert events == [("pushed", 0), ("started", 0), ("retrying", 1_000), ("ready", 2_000)]


def test_one_deadline_brings_others_forward_in_the_order_of_their_times(world: ContractWorld):
    """The lease of the first ends at 1 s: that fails it, which unblocks the second at 1 s, which expires at 3 s."""
    client = world.client
    begin = world.now
    first = push(client, "first", lease_ms=1_000, max_attempts=1)
    start(client, "first")
    second = push(client, depends_on=(Dependency(first, "continue"),), ttl_ms=3_000)
    third = push(client, depends_on=(Dependency(second),))
    world.advance(60_000)
    assert client.get_job(first).finished_at == begin + 1_000
    assert client.get_job(second).finished_at == begin + 3_000
    assert client.get_job(third).finished_at == begin + 3_000
    times = [event.at for event in all_events(client)]
    assert times == sorted(times)


def test_a_delivery_starts_at_the_real_now(world: ContractWorld):
    client = world.client
    push(client, delay_ms=1_000, lease_ms=500)
    world.advance(10_000)
    job = start(client)
    assert job.lease_until == world.now + 500
    assert client.get_job(job.id).started_at == world.now


def test_a_slot_freed_by_a_deadline_is_free_for_the_command_that_looks(world: ContractWorld):
    client = world.client
    client.set_concurrency("q", 1)
    ids = push_many(client, 2, lease_ms=1_000)
    assert pulled(client) == ids[:1]
    world.advance(1_000)
    assert pulled(client) == ids[1:]


def test_a_push_in_the_moment_a_key_is_freed_takes_it(world: ContractWorld):
    client = world.client
    push(client, unique_key="k", ttl_ms=1_000)
    world.advance(1_000)
    assert client.push("q", b"", unique_key="k").created


def test_advancing_in_steps_and_at_once_leads_to_the_same(make_world: MakeWorld):
    """Each deadline at its own time: it does not matter how often anybody looked."""
    steps, jump = make_world(), make_world()
    for world in (steps, jump):
        push(world.client, ttl_ms=700)
        push(world.client, delay_ms=1_200)
        lost = push(world.client, "lost", lease_ms=500, max_attempts=2, backoff=STEADY)
        push(world.client, depends_on=(Dependency(lost, "cancel"),))
        start(world.client, "lost")
    for _ in range(50):
        steps.advance(100)
        steps.client.get_stats()
    jump.advance(5_000)
    seen, missed = ([(event.kind, event.at, event.job) for event in all_events(w.client)] for w in (steps, jump))
    assert seen == missed
    assert [str(kind) for kind, _, _ in seen].count("expired") == 1


def test_nothing_is_early_when_time_stands_still(client: Client):
    push(client, delay_ms=1)
    for _ in range(10):
        assert pulled(client) == []
