"""Bugs that the four systems had, by kind: each kind is excluded in every place where it could stand."""

from collections.abc import Callable
from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import LostLease
from stoker.model.options import Dependency, Options
from stoker.model.replies import DeliveredJob
from stoker.model.states import State
from stoker.testing import World
from tests.contradictions.support import STEADY, pulled, push, start

WayOut = Callable[[World, DeliveredJob], object]


def cancel(world: World, job: DeliveredJob) -> None:
    world.client.cancel(job.id)


def lose_the_lease(world: World, job: DeliveredJob) -> None:
    world.client.extend(job.id, job.token, 1)
    world.advance(1)


def run_too_long(world: World, job: DeliveredJob) -> None:
    world.advance(5_000)


ENDS: dict[str, list[WayOut]] = {
    "ack": [lambda world, job: world.client.ack(job.id, job.token)],
    "ack without a token": [lambda world, job: world.client.ack(job.id)],
    "ack in a batch": [lambda world, job: world.client.ack_batch([job.id, 640_000], job.token)],
    "ack by claim": [lambda world, job: world.client.ack_claim("c")],
    "fail for good": [lambda world, job: world.client.fail(job.id, job.token, retry=False)],
    "last attempt": [lambda world, job: world.client.fail(job.id, job.token)],
    "fail in a batch": [lambda world, job: world.client.fail_batch([job.id], job.token)],
    "timeout": [run_too_long],
    "lost lease": [lose_the_lease],
    "discard": [lambda world, job: world.client.discard(job.id)],
    "cancel, then fail": [cancel, lambda world, job: world.client.fail(job.id)],
    "cancel, then release": [cancel, lambda world, job: world.client.release(job.id)],
    "cancel, then snooze": [cancel, lambda world, job: world.client.snooze(job.id, None, 9)],
    "cancel, then move": [cancel, lambda world, job: world.client.move_to_delayed(job.id, 9)],
    "cancel, then timeout": [cancel, run_too_long],
    "cancel, then lost lease": [cancel, lose_the_lease],
    "cancel, then ack": [cancel, lambda world, job: world.client.ack(job.id)],
}
"""Every way for a running job to end, where its attempts are used up."""

RETURNS: dict[str, WayOut] = {
    "release": lambda world, job: world.client.release(job.id, job.token),
    "release in a batch": lambda world, job: world.client.release_batch([job.id], job.token),
    "release by claim": lambda world, job: world.client.release_claim("c"),
    "snooze": lambda world, job: world.client.snooze(job.id, job.token, 1_000),
    "move": lambda world, job: world.client.move_to_delayed(job.id, 1_000, job.token),
    "move by nothing": lambda world, job: world.client.move_to_delayed(job.id, 0, job.token),
    "fail": lambda world, job: world.client.fail(job.id, job.token),
    "fail at once": lambda world, job: world.client.fail(job.id, job.token, delay_ms=0),
    "timeout": run_too_long,
    "lost lease": lose_the_lease,
}
"""Every way for a running job to be tried again."""


@pytest.mark.parametrize("way", ENDS)
def test_every_end_frees_slot_group_key_claim_and_waiters(world: World, way: str):
    """Exit paths forgot one or the other; the slot, the group or the key was then taken for ever."""
    client = world.client
    client.set_concurrency("q", 1)
    job = push(client, group_id="g", unique_key="k", timeout_ms=5_000, max_attempts=1)
    behind = push(client, "other", depends_on=(Dependency(job, "continue"),))
    delivered = start(client, claim="c")
    assert delivered.id == job
    for step in ENDS[way]:
        step(world, delivered)
    assert client.get_job(job).state in (State.COMPLETED, State.FAILED, State.CANCELLED)
    assert client.get_counts("q").active == 0
    assert pulled(client, claim="c") == []
    assert client.wait_job(job, 0).finished
    assert pulled(client, "other") == [behind]
    again = client.push("q", b"", group_id="g", unique_key="k")
    assert again.created
    assert pulled(client) == [again.id]


@pytest.mark.parametrize("policy", ["hold", "skip"])
@pytest.mark.parametrize("way", RETURNS)
def test_every_return_frees_the_slot_and_keeps_the_key(world: World, way: str, policy: str):
    """A slot leaked when a job was moved to delayed; a key was freed while its job was still to be tried."""
    client = world.client
    client.set_concurrency("q", 1)
    client.set_queue_policy("q", group_on_retry="hold" if policy == "hold" else "skip")
    job = push(client, group_id="g", unique_key="k", timeout_ms=5_000, backoff=STEADY)
    behind = push(client, group_id="g", priority=-1)
    outside = push(client, priority=-2)
    delivered = start(client, claim="c")
    RETURNS[way](world, delivered)
    state = client.get_state(job)
    assert state in (State.WAITING, State.DELAYED)
    assert client.get_counts("q").active == 0
    assert pulled(client, claim="c") == []
    assert client.push("q", b"", unique_key="k").id == job
    expected = job if state is State.WAITING else behind if policy == "skip" else outside
    assert pulled(client) == [expected]
    with pytest.raises(LostLease):
        client.ack(delivered.id, delivered.token)


def test_a_stale_client_cannot_touch_the_next_delivery(world: World):
    """Ownership by job id: a late release or ack hit whoever had the job by then."""
    client = world.client
    job = push(client, lease_ms=1_000, backoff=STEADY)
    stale = start(client).token
    world.advance(2_000)
    current = start(client)
    settling: list[c.Command[Any]] = [
        c.Ack([job], stale),
        c.Fail([job], stale),
        c.Release([job], stale),
        c.Extend([job], stale, 60_000),
    ]
    for command in settling:
        assert dict(client.execute(command).refused) == {job: "lost_lease"}
    for speaking in (c.SetProgress(job, 1, "", stale), c.AppendPartial(job, b"", None, stale)):
        with pytest.raises(LostLease):
            client.execute(speaking)
    view = client.get_job(job)
    assert (view.state, view.lease_until, view.attempts) == (State.ACTIVE, current.lease_until, 2)


def ack_singly(client: Client, ids: list[int], token: int) -> None:
    for job in ids:
        client.ack(job, token, b"result")


def ack_together(client: Client, ids: list[int], token: int) -> None:
    client.ack_batch(ids, token, [b"result"] * len(ids))


def test_a_batch_of_acks_does_what_single_acks_do():
    """It stored no result, made no event, ignored remove_on_complete, parents and those who waited."""
    seen = []
    for ack in (ack_singly, ack_together):
        with World() as world:
            client = world.client
            ids = [push(client, remove_on_complete=number == 1, tags=("t",)) for number in range(3)]
            behind = push(client, "other", depends_on=tuple(Dependency(job) for job in ids))
            token = client.pull("q", 3).token
            world.advance(10)
            ack(client, ids, token)
            ended = [(e.job, e.kind, e.run_ms, e.result_bytes) for e in client.read_events(kinds=["completed"]).events]
            results = [(view.id, view.result) for view in client.browse("q").jobs]
            seen.append((ended, results, client.get_stats(), client.get_state(behind)))
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 3
    assert seen[0][3] is State.WAITING


def test_a_batch_of_pushes_does_what_single_pushes_do():
    """It ignored custom ids and unique keys, and skipped validation."""
    each = [
        Options(custom_id="c"),
        Options(custom_id="c"),
        Options(unique_key="k", priority=3),
        Options(unique_key="k"),
        Options(delay_ms=50, tags=("t",)),
        Options(group_id="g", lifo=True),
    ]
    views = []
    for together in (True, False):
        with World() as world:
            client = world.client
            if together:
                ids = list(client.push_batch("q", [b""] * 6, each=each).ids)
            else:
                ids = [client.push("q", b"", options).id for options in each]
            views.append((ids, list(client.browse("q").jobs)))
    assert views[0] == views[1]


def test_a_pull_of_many_keeps_to_the_rate(world: World):
    """The batch pull went past the limiter."""
    world.client.set_rate_limit("q", 3)
    world.client.push_batch("q", [b""] * 10)
    assert len(world.client.pull("q", 10)) == 3


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_waiting_for_a_job_that_ended_badly_says_so(world: World, end: str):
    """It answered ok with nothing."""
    job = push(world.client)
    if end == "failed":
        world.client.fail(start(world.client).id, error="broken", retry=False)
    else:
        world.client.cancel(job)
    ended = world.client.wait_job(job, 0)
    assert (ended.finished, ended.state) == (True, end)
    assert ended.reason


def test_a_cancelled_job_with_open_dependencies_does_not_reappear(world: World):
    """It came back when they completed."""
    first = push(world.client, "first")
    behind = push(world.client, depends_on=(Dependency(first),))
    world.client.cancel(behind)
    world.client.ack(start(world.client, "first").id)
    assert pulled(world.client) == []


def test_a_blocked_job_waits_as_long_as_it_takes(world: World):
    """Jobs that waited for dependencies longer than an hour were deleted."""
    first = push(world.client, "first", delay_ms=30 * 86_400_000)
    behind = push(world.client, depends_on=(Dependency(first),))
    world.advance(30 * 86_400_000)
    world.client.ack(start(world.client, "first").id)
    assert pulled(world.client) == [behind]


def test_a_job_delayed_for_days_is_not_swept_away(world: World):
    """Bodies were removed 24 hours after the push, whatever the state."""
    job = world.client.push("q", b"body", delay_ms=8 * 86_400_000).id
    world.advance(8 * 86_400_000)
    assert [(each.id, each.payload) for each in world.client.pull("q")] == [(job, b"body")]


def test_a_long_job_that_is_renewed_stays(world: World):
    """Jobs of more than half an hour fell to a cleanup, or ran twice for a heartbeat without a token."""
    job = push(world.client)
    token = start(world.client).token
    for _ in range(200):
        world.advance(29_000)
        world.client.extend(job, token)
        assert pulled(world.client) == []
    world.client.ack(job, token)
    assert world.client.get_job(job).attempts == 1


def test_no_number_of_keys_makes_older_ones_forgotten(world: World):
    """Beyond a thousand keys a queue forgot half of them every ten seconds."""
    ids = [push(world.client, unique_key=f"k{number}") for number in range(3_000)]
    world.advance(60_000)
    assert world.client.push("q", b"", unique_key="k0").id == ids[0]
    assert world.client.push("q", b"", unique_key="k2999").id == ids[-1]


@pytest.mark.parametrize("key", ["unique_key", "custom_id"])
def test_a_duplicate_is_one_while_the_first_job_runs(world: World, key: str):
    """Deduplication was bypassed while the job was active."""
    options = Options(unique_key="k") if key == "unique_key" else Options(custom_id="k")
    job = world.client.push("q", b"", options).id
    start(world.client)
    assert world.client.push("q", b"", options).id == job


def test_an_expired_job_leaves_nothing_behind(world: World):
    """Its index entry, key and counter leaked."""
    client = world.client
    job = push(client, ttl_ms=100, unique_key="k", group_id="g")
    push(client, group_id="g")
    world.advance(100)
    assert client.push("q", b"", unique_key="k").created
    assert client.get_counts("q").waiting == 2
    assert len(pulled(client)) == 2
    assert client.get_state(job) is State.EXPIRED


def test_cleaning_keeps_to_its_queue_and_age(world: World):
    """Cleaning completed jobs ignored both."""
    client = world.client
    for queue in ("a", "b"):
        push(client, queue)
        client.ack(start(client, queue).id)
    world.advance(100)
    kept = push(client, "a")
    client.ack(start(client, "a").id)
    assert len(client.clean("a", State.COMPLETED, age_ms=100)) == 1
    assert client.get_state(kept) is State.COMPLETED
    assert client.get_counts("b").completed == 1


def test_an_obliterated_queue_leaves_no_busy_group(world: World):
    """The groups of its running jobs stayed busy."""
    push(world.client, group_id="g")
    start(world.client)
    world.client.obliterate("q", force=True)
    job = push(world.client, group_id="g")
    assert pulled(world.client) == [job]


def test_a_slot_fires_once_however_often_its_schedule_is_changed_and_not_at_its_making(world: World):
    """Crons fired twice because of old entries in a heap, and when they were made or loaded."""
    client, made = world.client, world.now
    for payload in (b"1", b"2", b"3"):
        client.put_schedule("q", "s", every_ms=60_000, payload=payload)
        client.pause_schedule("q", "s")
        client.resume_schedule("q", "s")
    assert client.get_stats("q").totals.pushed == 0
    for _ in range(3):
        world.advance(60_000)
    assert [job.options.slot - made for job in client.pull("q", 9)] == [60_000, 120_000, 180_000]


def test_a_slot_that_is_skipped_uses_up_no_run(world: World):
    """It did, so that a schedule with a limit was over before its time."""
    client = world.client
    client.put_schedule("q", "s", every_ms=60_000, runs_max=2, overlap="skip")
    for _ in range(3):
        world.advance(60_000)
    assert client.get_schedule("q", "s").runs == 1
    client.ack(client.pull("q").ids[0])
    world.advance(60_000)
    assert (client.get_schedule("q", "s").runs, client.get_schedule("q", "s").state) == (2, "over")


def test_a_worker_gets_no_more_than_it_asked_for(world: World):
    """Workers pulled a hundred jobs whatever their concurrency, and others starved."""
    world.client.push_batch("q", [b""] * 10)
    assert len(world.client.pull("q")) == 1
    assert len(world.client.pull("q", 4)) == 4
    assert world.client.get_counts("q").waiting == 5


def test_a_mass_of_jobs_that_cannot_run_does_not_slow_the_others_out_of_sight(world: World):
    """Fifty thousand ineligible jobs made one pull scan them all; nobody behind them is missed."""
    client = world.client
    client.push_batch("q", [b""] * 10_000, group_id="busy", priority=9)
    assert len(client.pull("q", 10)) == 1
    ids = list(client.push_batch("q", [b""] * 100).ids)
    for job in ids:
        assert pulled(client, count=1) == [job]
