"""Taking jobs out of their way, and queues out of service."""

from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, LostLease, NotFound, QueueActive, WrongState
from stoker.model.limits import Limits
from stoker.model.options import DeadLetterPolicy, Dependency, Options, RateLimit
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    NEVER,
    all_events,
    check_refused,
    finish,
    kill,
    picture,
    pulled,
    push,
    push_many,
    start,
    story,
)


def ended_jobs(client: Client) -> list[int]:
    """One completed, one failed, one cancelled."""
    cancelled = push(client)
    client.cancel(cancelled)
    return [finish(client), kill(client), cancelled]


# --- cancel --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked"])
def test_a_pending_job_is_cancelled_at_once(world: ContractWorld, state: str):
    client = world.client
    first = push(client, "other")
    edges = (Dependency(first),) if state == "blocked" else ()
    job = push(client, delay_ms=1_000 if state == "delayed" else 0, depends_on=edges)
    view = client.cancel(job)
    assert (view.id, view.state, view.reason, view.finished_at) == (job, State.CANCELLED, "cancelled", world.now)
    assert view == client.get_job(job)
    assert story(client, job) == ["pushed", "cancelled"]
    world.advance(10_000)
    assert pulled(client) == []
    assert client.get_stats("q").totals.cancelled == 1


def test_a_job_in_the_middle_of_a_batch_can_be_cancelled(client: Client):
    ids = push_many(client, 5)
    client.cancel(ids[2])
    client.cancel(ids[0])
    assert pulled(client) == [ids[1], ids[3], ids[4]]


def test_an_ended_job_cannot_be_cancelled(world: ContractWorld):
    for job in ended_jobs(world.client):
        check_refused(world, WrongState, c.Cancel(job))
    check_refused(world, NotFound, c.Cancel(NEVER))


# --- promote -------------------------------------------------------------------------------------


def test_a_promoted_job_is_ready_now(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3, delay_ms=10_000)
    client.promote(ids[1])
    view = client.get_job(ids[1])
    assert (view.state, view.due) == (State.WAITING, 0)
    assert story(client, ids[1]) == ["pushed", "promoted"]
    assert pulled(client) == [ids[1]]
    world.advance(10_000)
    assert pulled(client) == [ids[0], ids[2]]
    assert "ready" not in story(client, ids[1])


def test_a_retry_in_backoff_can_be_promoted(client: Client):
    job = push(client)
    client.fail(start(client).id)
    client.promote(job)
    assert start(client).attempt == 2


def test_only_delayed_jobs_can_be_promoted(world: ContractWorld):
    client = world.client
    waiting = push(client, "other")
    blocked = push(client, "other", depends_on=(Dependency(waiting),))
    active = push(client)
    assert pulled(client) == [active]
    for job in (waiting, blocked, active, *ended_jobs(client)):
        check_refused(world, WrongState, c.Promote(job))


# --- move to delayed -----------------------------------------------------------------------------


def test_a_waiting_job_can_be_put_off(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3)
    client.move_to_delayed(ids[1], 500)
    view = client.get_job(ids[1])
    assert (view.state, view.due) == (State.DELAYED, world.now + 500)
    assert story(client, ids[1]) == ["pushed", "delayed"]
    assert pulled(client) == [ids[0], ids[2]]
    world.advance(499)
    assert pulled(client) == []
    world.advance(1)
    assert pulled(client) == [ids[1]]


@pytest.mark.parametrize("delay_ms", [100, 5_000])
def test_a_delayed_job_can_be_moved_forward_and_back(world: ContractWorld, delay_ms: int):
    client = world.client
    job = push(client, delay_ms=1_000)
    client.move_to_delayed(job, delay_ms)
    assert client.get_job(job).due == world.now + delay_ms
    world.advance(delay_ms - 1)
    assert pulled(client) == []
    world.advance(1)
    assert pulled(client) == [job]


def test_moved_by_nothing_it_waits(client: Client):
    waiting, delayed = push(client), push(client, delay_ms=1_000)
    client.move_to_delayed(waiting, 0)
    client.move_to_delayed(delayed, 0)
    assert pulled(client) == [waiting, delayed]


def test_an_active_job_that_is_moved_loses_its_delivery_not_an_attempt(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    client.move_to_delayed(job, 500, token)
    view = client.get_job(job)
    assert (view.state, view.due, view.attempts) == (State.DELAYED, world.now + 500, 0)
    with pytest.raises(LostLease):
        client.ack(job, token)
    world.advance(500)
    assert start(client).attempt == 1


def test_an_active_job_moved_by_nothing_is_released(client: Client):
    job = push(client)
    start(client)
    client.move_to_delayed(job, 0)
    assert client.get_state(job) is State.WAITING
    assert start(client).attempt == 1


def test_moving_an_active_job_is_fenced_where_a_token_is_given(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    check_refused(world, LostLease, c.MoveToDelayed(job, 500, token + 1))
    client.move_to_delayed(job, 500)
    assert client.get_state(job) is State.DELAYED


def test_blocked_and_ended_jobs_cannot_be_moved(world: ContractWorld):
    client = world.client
    first = push(client, "other")
    blocked = push(client, "other", depends_on=(Dependency(first),))
    for job in (blocked, *ended_jobs(client)):
        check_refused(world, WrongState, c.MoveToDelayed(job, 500))


# --- update payload ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked", "failed"])
def test_a_payload_can_be_changed_before_the_next_delivery(world: ContractWorld, state: str):
    client = world.client
    first = push(client, "other")
    edges = (Dependency(first),) if state == "blocked" else ()
    job = push(client, payload=b"old", delay_ms=1_000 if state == "delayed" else 0, depends_on=edges)
    if state == "failed":
        client.fail(start(client).id, retry=False)
    client.update_payload(job, b"new")
    assert client.get_job(job).payload == b"new"
    assert client.get_state(job) == state
    assert story(client, job)[-1] == "updated"


def test_one_job_of_a_batch_gets_another_payload(client: Client):
    ids = push_many(client, 3)
    client.update_payload(ids[1], b"new")
    assert [job.payload for job in client.pull("q", 10)] == [b"0", b"new", b"2"]


def test_a_running_delivery_keeps_what_it_got_and_the_next_one_gets_the_new(client: Client):
    job = push(client, payload=b"old")
    assert start(client).payload == b"old"
    client.update_payload(job, b"new")
    client.release(job)
    assert start(client).payload == b"new"


def test_a_completed_or_cancelled_jobs_payload_stays(world: ContractWorld):
    done, _, cancelled = ended_jobs(world.client)
    for job in (done, cancelled):
        check_refused(world, WrongState, c.UpdatePayload(job, b"new"))


def test_a_new_payload_keeps_to_the_limit(make_world: MakeWorld):
    world = make_world(limits=Limits(payload_bytes_max=3))
    job = push(world.client, payload=b"old")
    check_refused(world, LimitExceeded, c.UpdatePayload(job, b"long"))
    not_bytes: Any = "new"
    check_refused(world, InvalidRequest, c.UpdatePayload(job, not_bytes))


# --- drain ---------------------------------------------------------------------------------------


def test_draining_cancels_what_waits(world: ContractWorld):
    client = world.client
    first = push(client, "other")
    active = push(client)
    assert pulled(client) == [active]
    waiting, delayed = push_many(client, 3), push(client, delay_ms=1_000)
    blocked = push(client, depends_on=(Dependency(first),))
    assert client.drain("q") == 3
    view = client.get_job(waiting[0])
    assert (view.state, view.reason) == (State.CANCELLED, "drained")
    assert [client.get_state(job) for job in waiting] == [State.CANCELLED] * 3
    assert [client.get_state(job) for job in (active, delayed, blocked)] == ["active", "delayed", "blocked"]
    assert client.get_stats("q").totals.cancelled == 3


def test_draining_the_delayed_as_well(client: Client):
    waiting, delayed = push(client), push(client, delay_ms=1_000)
    retried = push(client, priority=1)
    client.fail(start(client).id)
    assert client.get_state(retried) is State.DELAYED
    assert client.drain("q", delayed=True) == 3
    assert {client.get_job(job).reason for job in (waiting, delayed, retried)} == {"drained"}


def test_a_retry_in_backoff_is_not_drained_with_the_waiting(client: Client):
    job = push(client)
    client.fail(start(client).id)
    assert client.drain("q") == 0
    assert client.get_state(job) is State.DELAYED


def test_draining_an_empty_or_unknown_queue_does_nothing(world: ContractWorld):
    push(world.client, "other")
    before = picture(world.client)
    assert world.client.drain("q", delayed=True) == 0
    assert picture(world.client) == before


def test_draining_settles_edges(client: Client):
    first = push(client)
    behind = push(client, "other", depends_on=(Dependency(first, "continue"),))
    client.drain("q")
    assert client.get_state(behind) is State.WAITING


def test_draining_a_chain_within_the_queue(client: Client):
    """The second is blocked when the drain begins; the end of the first takes it along by its edge."""
    first = push(client)
    second = push(client, depends_on=(Dependency(first),))
    assert client.drain("q") == 1
    assert client.get_job(second).reason == "dependency_failed"


# --- clean ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "expired"])
def test_ended_jobs_are_forgotten_oldest_first(world: ContractWorld, state: str):
    client = world.client
    ids = push_many(client, 4, ttl_ms=40 if state == "expired" else 0)
    if state in ("completed", "failed"):
        pulled(client)
    order = [ids[1], ids[0], ids[3], ids[2]]
    for job in order:
        if state == "completed":
            client.ack(job)
        elif state == "failed":
            client.fail(job, retry=False)
        elif state == "cancelled":
            client.cancel(job)
        world.advance(10)
    if state == "expired":
        order = ids
    assert list(client.clean("q", State(state), limit=2)) == order[:2]
    assert [view.id for view in client.browse("q", State(state), ascending=True).jobs] == sorted(order[2:])
    assert story(client, order[0])[-1] == "removed"
    assert list(client.clean("q", State(state))) == order[2:]
    assert getattr(client.get_counts("q"), state) == 0
    assert getattr(client.get_stats("q").totals, state) == 4
    check_refused(world, NotFound, c.GetJob(ids[0]))


def test_only_those_old_enough_are_cleaned(world: ContractWorld):
    client = world.client
    old = finish(client)
    world.advance(1_000)
    new = finish(client)
    assert list(client.clean("q", State.COMPLETED, 1_001)) == []
    assert list(client.clean("q", State.COMPLETED, 1_000)) == [old]
    assert client.get_state(new) is State.COMPLETED


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked"])
def test_pending_jobs_are_cancelled_in_id_order(world: ContractWorld, state: str):
    client = world.client
    first = push(client, "other")
    options = Options(
        delay_ms=60_000 if state == "delayed" else 0,
        depends_on=(Dependency(first),) if state == "blocked" else (),
    )
    ids = []
    for priority in (0, 5, 3):
        ids.append(client.push("q", b"", options, priority=priority).id)
        world.advance(10)
    assert list(client.clean("q", State(state), age_ms=20, limit=1)) == ids[:1]
    view = client.get_job(ids[0])
    assert (view.state, view.reason) == (State.CANCELLED, "cleaned")
    assert list(client.clean("q", State(state), age_ms=20)) == ids[1:2]
    assert list(client.clean("q", State(state))) == ids[2:]


def test_active_jobs_are_not_cleaned(world: ContractWorld):
    push(world.client)
    start(world.client)
    check_refused(world, InvalidRequest, c.Clean("q", State.ACTIVE))


def test_cleaning_stays_in_its_queue_state_and_tenant(world: ContractWorld):
    client = world.client
    finish(client, "other")
    finish(world.client_for("acme"))
    kill(client)
    push(client)
    before, theirs = picture(client), picture(world.client_for("acme"))
    assert list(client.clean("q", State.COMPLETED)) == []
    assert picture(client) == before
    assert picture(world.client_for("acme")) == theirs


# --- obliterate ----------------------------------------------------------------------------------


def furnish(client: Client) -> dict[str, int]:
    """A queue with something of everything."""
    client.set_rate_limit("q", 1_000)
    client.set_concurrency("q", 50)
    client.set_queue_policy("q", group_on_retry="skip", dead_letters=DeadLetterPolicy(entries_max=9))
    first = push(client, "other")
    return {
        "completed": finish(client, custom_id="c"),
        "failed": kill(client),
        "waiting": push(client, unique_key="k", debounce_id="d"),
        "delayed": push(client, delay_ms=1_000),
        "blocked": push(client, depends_on=(Dependency(first),)),
    }


def test_an_obliterated_queue_leaves_nothing(world: ContractWorld):
    client = world.client
    jobs = furnish(client)
    client.pause("q")
    client.obliterate("q")
    assert list(client.list_queues()) == ["other"]
    for job in jobs.values():
        check_refused(world, NotFound, c.GetJob(job))
    counts = client.get_counts()
    assert (counts.waiting, counts.completed, counts.failed, counts.cancelled) == (1, 0, 0, 0)
    kinds = {str(event.kind) for event in all_events(client)}
    assert "queue_obliterated" in kinds
    reasons = {event.job: event.reason for event in all_events(client) if event.kind == "cancelled"}
    assert reasons == {jobs[state]: "obliterated" for state in ("waiting", "delayed", "blocked")}


def test_a_queue_can_begin_anew_after_it(world: ContractWorld):
    client = world.client
    old = furnish(client)
    client.pause("q")
    client.obliterate("q")
    job = client.push("q", b"new", custom_id="c", unique_key="k", debounce_id="d")
    assert job.created
    assert job.id > max(old.values())
    assert pulled(client) == [job.id]
    view = client.get_queue("q")
    assert (view.paused, view.rate_limit, view.concurrency, view.group_on_retry) == (False, None, 0, "hold")
    assert view.dead_letters == DeadLetterPolicy()


def test_a_queue_with_running_jobs_is_not_obliterated_unless_forced(world: ContractWorld):
    client = world.client
    jobs = furnish(client)
    delivered = start(client)
    assert delivered.id == jobs["waiting"]
    check_refused(world, QueueActive, c.Obliterate("q"))
    client.obliterate("q", force=True)
    assert list(client.list_queues()) == ["other"]
    with pytest.raises((NotFound, LostLease)):
        client.ack(delivered.id, delivered.token)
    world.advance(1_000_000)
    assert pulled(client) == []


def test_obliterating_frees_what_was_running(world: ContractWorld):
    client = world.client
    client.set_concurrency("q", 1)
    push(client, group_id="g", unique_key="k")
    start(client, claim="c" if world.has_claims else None)
    client.obliterate("q", force=True)
    client.set_concurrency("q", 1)
    job = push(client, group_id="g", unique_key="k")
    assert pulled(client) == [job]


def test_obliterating_says_how_many_jobs_it_touched(client: Client):
    push_many(client, 3)
    push(client, delay_ms=1_000)
    assert client.obliterate("q") == 4


def test_obliterating_settles_edges_and_answers_those_who_wait(client: Client):
    first = push(client)
    behind = push(client, "other", depends_on=(Dependency(first, "cancel"),))
    client.obliterate("q")
    view = client.get_job(behind)
    assert (view.state, view.reason) == (State.CANCELLED, "dependency_failed")


def test_obliterating_an_unknown_queue_does_nothing_bad(world: ContractWorld):
    client = world.client
    job = push(client, "other")
    before = client.get_stats()
    assert client.obliterate("q") == 0
    assert client.get_stats() == before
    assert list(client.list_queues()) == ["other"]
    assert client.get_state(job) is State.WAITING


def test_obliterating_stays_in_its_queue_and_tenant(world: ContractWorld):
    client, theirs = world.client, world.client_for("acme")
    kept, foreign = push(client, "other"), push(theirs)
    push(client)
    client.obliterate("q")
    assert client.get_state(kept) is State.WAITING
    assert theirs.get_state(foreign) is State.WAITING


# --- configuration -------------------------------------------------------------------------------


def test_a_configured_queue_exists_and_can_be_read(client: Client):
    policy = DeadLetterPolicy(
        entries_max=5,
        age_ms_max=6,
        auto_retry=True,
        auto_retry_interval_ms=7,
        auto_retries_max=8,
        take_expired=True,
        take_cancelled=True,
    )
    client.pause("q")
    client.execute(c.SetRateLimit("q", RateLimit(1, 2, 3)))
    client.set_concurrency("q", 4)
    client.set_queue_policy("q", group_on_retry="skip", dead_letters=policy)
    assert list(client.list_queues()) == ["q"]
    view = client.get_queue("q")
    assert (view.name, view.paused, view.rate_limit, view.concurrency) == ("q", True, RateLimit(1, 2, 3), 4)
    assert (view.group_on_retry, view.dead_letters) == ("skip", policy)


def test_a_plain_queue_has_the_defaults(client: Client):
    push(client)
    view = client.get_queue("q")
    assert (view.name, view.paused, view.rate_limit, view.concurrency) == ("q", False, None, 0)
    assert (view.group_on_retry, view.dead_letters) == ("hold", DeadLetterPolicy())


@pytest.mark.parametrize(
    "command",
    [
        c.Pause("q"),
        c.Resume("q"),
        c.SetRateLimit("q", RateLimit(1)),
        c.SetRateLimit("q", None),
        c.SetConcurrency("q", 1),
        c.SetConcurrency("q", 0),
        c.SetQueuePolicy("q", "skip"),
        c.SetQueuePolicy("q", "hold"),
    ],
)
def test_any_configuration_makes_the_queue_and_an_event(world: ContractWorld, command: c.Command[Any]):
    client = world.client
    client.execute(command)
    assert list(client.list_queues()) == ["q"]
    assert [(str(event.kind), event.queue, event.job) for event in all_events(client)] == [("queue_configured", "q", 0)]


def test_what_a_policy_does_not_name_stays(client: Client):
    policy = DeadLetterPolicy(entries_max=5)
    client.set_queue_policy("q", group_on_retry="skip", dead_letters=policy)
    client.set_queue_policy("q", group_on_retry="hold")
    assert client.get_queue("q").dead_letters == policy
    client.set_queue_policy("q", dead_letters=DeadLetterPolicy())
    assert client.get_queue("q").group_on_retry == "hold"


def test_pausing_twice_is_pausing_once(client: Client):
    push(client)
    client.pause("q")
    client.pause("q")
    assert client.get_queue("q").paused is True
    client.resume("q")
    assert client.get_queue("q").paused is False
    assert len(pulled(client)) == 1


def test_limits_can_be_lifted(client: Client):
    client.set_rate_limit("q", 1, 60_000)
    client.set_concurrency("q", 1)
    client.clear_rate_limit("q")
    client.clear_concurrency("q")
    view = client.get_queue("q")
    assert (view.rate_limit, view.concurrency) == (None, 0)
    push_many(client, 3)
    assert len(pulled(client)) == 3
