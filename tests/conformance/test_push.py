"""One job goes in: what comes back, what can be seen of it, and what is refused."""

from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.ids import SHARDS_MAX, sequence_of, shard_of
from stoker.model.options import DEFAULT_OPTIONS, Dependency, Options
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import NEVER, check_refused, finish, pulled, push, push_many, start, story

GOOD_NAMES = ["q", "Q.9_a:b-c", "0", "-", "a" * 256]
BAD_NAMES = ["", "a b", "a/b", "q\n", "\nq", "grün", "日本", "a" * 257, "a\0", "a,b", "*"]


def test_the_answer_is_a_new_job(client: Client):
    reply = client.push("q", b"hello")
    assert reply.created is True
    assert reply.duplicate_by is None
    assert reply.level in ("memory", "commit", "fsync")
    assert reply.id > 0


def test_ids_are_sequences_from_1_on_in_push_order(client: Client):
    ids = [push(client, queue) for queue in ("a", "b", "a", "c")]
    assert [sequence_of(job) for job in ids] == [1, 2, 3, 4]
    assert all(0 <= shard_of(job) < SHARDS_MAX for job in ids)


def test_a_refused_push_takes_no_sequence_number(world: ContractWorld):
    first = push(world.client)
    check_refused(world, InvalidRequest, c.Push("q", b"", Options(delay_ms=-1)))
    second = push(world.client)
    assert sequence_of(second) == sequence_of(first) + 1


def test_a_duplicate_takes_no_sequence_number(client: Client):
    first = push(client, custom_id="mine")
    push(client, custom_id="mine")
    assert sequence_of(push(client)) == sequence_of(first) + 1


def test_a_new_job_is_waiting_and_untouched(world: ContractWorld):
    job = push(world.client, "mail", b"hello", tags=("x",))
    view = world.client.get_job(job)
    assert view.id == job
    assert view.queue == "mail"
    assert view.state is State.WAITING
    assert view.payload == b"hello"
    assert view.options == Options(tags=("x",))
    assert view.pushed_at == world.now
    assert (view.attempts, view.crashes, view.due, view.started_at, view.finished_at) == (0, 0, 0, 0, 0)
    assert (view.blocked_by, view.history, view.dead) == ((), (), None)
    assert (view.result, view.reason, view.error, view.worker, view.claim) == (None, "", "", "", None)
    assert view.cancel_requested is False


@pytest.mark.parametrize("payload", [b"", b"\x00", bytes(range(256)), b"{not json", "grün".encode(), b"x" * 1_000_000])
def test_payloads_are_bytes_that_nobody_touches(client: Client, payload: bytes):
    job = push(client, payload=payload)
    assert client.get_job(job).payload == payload
    assert start(client).payload == payload


def test_the_default_options_are_the_documented_ones(client: Client):
    job = push(client)
    assert client.get_job(job).options == DEFAULT_OPTIONS
    assert start(client).options == DEFAULT_OPTIONS


def test_the_push_is_an_event(world: ContractWorld):
    job = push(world.client, payload=b"hello", priority=3)
    assert story(world.client, job) == ["pushed"]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_good_queue_name_is_taken(client: Client, name: str):
    job = push(client, name)
    assert list(client.list_queues()) == [name]
    assert pulled(client, name) == [job]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_queue_name_is_refused(world: ContractWorld, name: str):
    push(world.client)
    check_refused(world, InvalidRequest, c.Push(name, b""))
    check_refused(world, InvalidRequest, c.PushBatch(name, [b""]))
    if world.has_transactions:
        check_refused(world, InvalidRequest, c.Stage("t", "s", name, [b""]))
    check_refused(world, InvalidRequest, c.Pull([name]))
    check_refused(world, InvalidRequest, c.Pull(["q", name]))


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize(
    "command",
    [
        c.Pause,
        c.Resume,
        c.Drain,
        c.Obliterate,
        lambda name: c.SetRateLimit(name, None),
        lambda name: c.SetConcurrency(name, 1),
        lambda name: c.SetQueuePolicy(name, "skip"),
        lambda name: c.Clean(name, State.COMPLETED),
    ],
    ids=["pause", "resume", "drain", "obliterate", "rate", "concurrency", "policy", "clean"],
)
def test_a_bad_queue_name_is_refused_by_control(world: ContractWorld, name: str, command: Any):
    check_refused(world, InvalidRequest, command(name))


@pytest.mark.parametrize("tenant", BAD_NAMES)
def test_a_bad_tenant_name_is_refused(world: ContractWorld, tenant: str):
    check_refused(world, InvalidRequest, c.Push("q", b""), tenant)


@pytest.mark.parametrize("tenant", GOOD_NAMES)
def test_a_good_tenant_name_is_taken(world: ContractWorld, tenant: str):
    job = push(world.client_for(tenant))
    assert pulled(world.client_for(tenant)) == [job]


@pytest.mark.parametrize("payload", ["text", None, 7, ["list"]])
def test_a_payload_that_is_no_bytes_is_refused(world: ContractWorld, payload: Any):
    check_refused(world, InvalidRequest, c.Push("q", payload))


def test_a_queue_exists_from_its_first_job_on(client: Client):
    assert list(client.list_queues()) == []
    finish(client, remove_on_complete=True)
    assert list(client.list_queues()) == ["q"]


def test_unknown_options_are_refused_by_name(world: ContractWorld):
    with pytest.raises(InvalidRequest, match="dealy_ms"):
        world.client.push("q", b"", dealy_ms=5)
    assert list(world.client.list_queues()) == []


def test_options_by_name_come_on_top_of_options_by_value(client: Client):
    job = client.push("q", b"", Options(priority=1, tags=("a",)), priority=2).id
    assert client.get_job(job).options == Options(priority=2, tags=("a",))


# --- when it becomes ready -----------------------------------------------------------------------


def test_a_delayed_job_is_due_after_its_delay(world: ContractWorld):
    job = push(world.client, delay_ms=1_000)
    view = world.client.get_job(job)
    assert (view.state, view.due) == (State.DELAYED, world.now + 1_000)
    world.advance(999)
    assert pulled(world.client) == []
    world.advance(1)
    assert world.client.get_job(job).state is State.WAITING
    assert world.client.get_job(job).due == 0
    assert pulled(world.client) == [job]


def test_run_at_is_a_time_and_wins_over_delay_ms(world: ContractWorld):
    job = push(world.client, run_at=world.now + 500, delay_ms=60_000)
    assert world.client.get_job(job).due == world.now + 500
    world.advance(499)
    assert pulled(world.client) == []
    world.advance(1)
    assert pulled(world.client) == [job]


@pytest.mark.parametrize("ago", [0, 1, 1_000_000])
def test_a_run_at_that_is_not_in_the_future_means_now(world: ContractWorld, ago: int):
    job = push(world.client, run_at=world.now - ago, delay_ms=60_000)
    assert world.client.get_state(job) is State.WAITING
    assert pulled(world.client) == [job]


def test_a_whole_delayed_batch_is_due_at_once(world: ContractWorld):
    ids = push_many(world.client, 5, delay_ms=100)
    world.advance(99)
    assert pulled(world.client) == []
    world.advance(1)
    assert pulled(world.client) == ids


# --- ttl -----------------------------------------------------------------------------------------


def test_a_job_that_nobody_starts_expires(world: ContractWorld):
    job = push(world.client, ttl_ms=1_000)
    world.advance(999)
    assert world.client.get_state(job) is State.WAITING
    world.advance(1)
    view = world.client.get_job(job)
    assert (view.state, view.reason, view.finished_at) == (State.EXPIRED, "ttl_expired", world.now)
    assert pulled(world.client) == []


def test_a_job_that_was_started_in_time_does_not_expire(world: ContractWorld):
    job = push(world.client, ttl_ms=1_000, lease_ms=10_000)
    world.advance(999)
    assert pulled(world.client) == [job]
    world.advance(5_000)
    assert world.client.get_state(job) is State.ACTIVE


def test_a_retried_job_has_a_counted_attempt_and_does_not_expire(world: ContractWorld):
    job = push(world.client, ttl_ms=1_000)
    client = world.client
    client.fail(start(client).id, delay_ms=5_000)
    world.advance(4_999)
    assert client.get_state(job) is State.DELAYED
    world.advance(1)
    assert pulled(client) == [job]


def test_a_released_job_has_no_counted_attempt_and_expires(world: ContractWorld):
    job = push(world.client, ttl_ms=1_000)
    world.client.release(start(world.client).id)
    world.advance(1_000)
    assert world.client.get_state(job) is State.EXPIRED


def test_a_job_released_after_its_ttl_expires(world: ContractWorld):
    """The ttl is long reached when the attempt is taken back."""
    job = push(world.client, ttl_ms=1_000)
    token = start(world.client).token
    world.advance(1_500)
    world.client.release(job, token)
    world.advance(0)
    assert world.client.get_state(job) is State.EXPIRED
    assert pulled(world.client) == []


def test_delayed_and_blocked_jobs_expire_too(world: ContractWorld):
    first = push(world.client, delay_ms=60_000)
    delayed = push(world.client, delay_ms=5_000, ttl_ms=1_000)
    blocked = push(world.client, depends_on=(Dependency(first),), ttl_ms=1_000)
    world.advance(1_000)
    assert world.client.get_state(delayed) is State.EXPIRED
    assert world.client.get_state(blocked) is State.EXPIRED
    assert world.client.get_state(first) is State.DELAYED


def test_a_job_due_at_the_moment_of_its_ttl_is_never_delivered(world: ContractWorld):
    """At equal times due comes before ttl, and both before any pull."""
    job = push(world.client, delay_ms=1_000, ttl_ms=1_000)
    world.advance(1_000)
    assert pulled(world.client) == []
    assert world.client.get_state(job) is State.EXPIRED


def test_a_batch_expires_as_its_jobs_do(world: ContractWorld):
    ids = push_many(world.client, 5, ttl_ms=1_000)
    assert pulled(world.client, count=2) == ids[:2]
    world.advance(1_000)
    states = [world.client.get_state(job) for job in ids]
    assert states == [State.ACTIVE] * 2 + [State.EXPIRED] * 3


def test_a_job_of_the_past_is_stamped_with_its_own_times(world: ContractWorld):
    """However late somebody looks, a deadline is processed at its own time."""
    pushed = world.now
    job = push(world.client, ttl_ms=1_000)
    world.advance(1_000_000)
    assert world.client.get_job(job).finished_at == pushed + 1_000


# --- what decides nothing ------------------------------------------------------------------------


def test_trace_parent_and_tags_are_carried_along(client: Client):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    job = push(client, trace=trace, parent_id=NEVER, tags=("a", "b", "a"))
    options = start(client).options
    assert (options.trace, options.parent_id, options.tags) == (trace, NEVER, ("a", "b", "a"))
    assert client.get_job(job).options == options
