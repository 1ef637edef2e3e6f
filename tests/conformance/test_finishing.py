"""Ack, fail, release, extend, progress, log, partial: who may do it, and what it does."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, LostLease, NotFound, StokerError, WrongState
from stoker.model.limits import Limits
from stoker.model.options import HOUR_MS, Backoff, BackoffKind, Jitter, Settings
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    NEVER,
    STEADY,
    all_events,
    check_not_settled,
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

# --- who may -------------------------------------------------------------------------------------

SETTLING: list[Callable[..., c.Command[Any]]] = [c.Ack, c.Fail, c.Release, c.Extend]
SPEAKING: list[Callable[[int, int | None], c.Command[Any]]] = [
    lambda job, token: c.SetProgress(job, 50, "half", token),
    lambda job, token: c.AppendPartial(job, b"chunk", None, token),
]


@pytest.mark.parametrize("command", SETTLING)
def test_another_token_than_the_current_one_is_refused(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    job = push(world.client)
    token = start(world.client).token
    for wrong in (token - 1, token + 1, 0, -1, token + 2**40):
        check_not_settled(world, "lost_lease", command([job], wrong))


@pytest.mark.parametrize("command", SETTLING)
def test_the_token_of_an_earlier_delivery_is_refused(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    job = push(world.client)
    stale = start(world.client).token
    world.client.release(job, stale)
    current = start(world.client).token
    check_not_settled(world, "lost_lease", command([job], stale))
    assert dict(world.client.execute(command([job], current)).refused) == {}


@pytest.mark.parametrize("command", SETTLING)
def test_without_a_token_the_current_delivery_is_meant(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    job = push(world.client)
    start(world.client)
    before = picture(world.client)
    assert dict(world.client.execute(command([job])).refused) == {}
    assert picture(world.client) != before


@pytest.mark.parametrize("command", SETTLING)
def test_a_job_that_is_not_active_cannot_be_settled(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    client = world.client
    waiting, delayed = push(client, "pending"), push(client, "pending", delay_ms=1_000)
    done, dead = finish(client), kill(client)
    cancelled = push(client)
    client.cancel(cancelled)
    for job in (waiting, delayed, done, dead, cancelled):
        check_not_settled(world, "wrong_state", command([job]))
        check_not_settled(world, "lost_lease", command([job], 1))


@pytest.mark.parametrize("command", SETTLING)
def test_a_job_that_never_was_cannot_be_settled(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    push(world.client)
    for job in (NEVER, 0, 1, 65, -64):
        check_not_settled(world, "not_found", command([job]))
        check_not_settled(world, "not_found", command([job], 1))


@pytest.mark.parametrize("command", SETTLING)
def test_a_foreign_job_cannot_be_settled(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    """It answers exactly as one that never was, whatever the token."""
    theirs = world.client_for("acme")
    job = push(theirs)
    token = start(theirs).token
    before = picture(theirs)
    check_not_settled(world, "not_found", command([job], token))
    check_not_settled(world, "not_found", command([job]))
    assert picture(theirs) == before


@pytest.mark.parametrize("command", SETTLING)
def test_refused_jobs_leave_the_others_alone(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    client = world.client
    ids = push_many(client, 3)
    token = client.pull("q", 2).token
    reply = client.execute(command([ids[0], NEVER, ids[2], ids[1]], token))
    assert dict(reply.refused) == {NEVER: "not_found", ids[2]: "lost_lease"}
    touched = {event.job for event in all_events(client) if event.kind not in ("pushed", "started")}
    assert touched == {ids[0], ids[1]}


@pytest.mark.parametrize("command", SETTLING)
def test_each_job_may_come_with_a_token_of_its_own(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    client = world.client
    ids = push_many(client, 3)
    tokens = [start(client).token for _ in ids]
    reply = client.execute(command(ids, [tokens[0], tokens[0], tokens[2]]))
    assert dict(reply.refused) == {ids[1]: "lost_lease"}


@pytest.mark.parametrize("command", SETTLING)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_tokens_must_be_as_many_as_jobs(world: ContractWorld, command: Callable[..., c.Command[Any]], count: int):
    ids = push_many(world.client, 2)
    token = world.client.pull("q", 2).token
    check_refused(world, InvalidRequest, command(ids, [token] * count))


@pytest.mark.parametrize("command", [c.Ack, c.Fail, c.Release])
def test_a_job_named_twice_is_settled_once(world: ContractWorld, command: Callable[..., c.Command[Any]]):
    client = world.client
    ids = push_many(client, 2)
    token = client.pull("q", 2).token
    reply = client.execute(command([ids[0], ids[0]], token))
    assert dict(reply.refused) == {ids[0]: "lost_lease"}
    settled = [event for event in all_events(client) if event.kind not in ("pushed", "started")]
    assert [event.job for event in settled] == [ids[0]]
    reply = client.execute(command([ids[1], ids[1]]))
    assert dict(reply.refused) == {ids[1]: "wrong_state"}


@pytest.mark.parametrize("command", SPEAKING, ids=["progress", "partial"])
def test_progress_and_partials_are_fenced_likewise(
    world: ContractWorld, command: Callable[[int, int | None], c.Command[Any]]
):
    client = world.client
    job, waiting = push(client), push(client, "other")
    stale = start(client).token
    client.release(job, stale)
    token = start(client).token
    check_refused(world, LostLease, command(job, stale))
    check_refused(world, LostLease, command(waiting, token))
    check_refused(world, WrongState, command(waiting, None))
    check_refused(world, NotFound, command(job, token), "acme")
    check_refused(world, NotFound, command(NEVER, token))
    before = picture(client)
    client.execute(command(job, token))
    client.execute(command(job, None))
    assert picture(client) != before
    client.ack(job, token)
    check_refused(world, LostLease, command(job, token))
    check_refused(world, WrongState, command(job, None))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client, job: client.ack(job, 1), LostLease),
        (lambda client, job: client.ack(job), WrongState),
        (lambda client, job: client.ack(NEVER), NotFound),
        (lambda client, job: client.fail(job, 1), LostLease),
        (lambda client, job: client.nack(job, 1), LostLease),
        (lambda client, job: client.release(job, 1), LostLease),
        (lambda client, job: client.snooze(job, 1, 5), LostLease),
        (lambda client, job: client.extend(job, 1), LostLease),
    ],
)
def test_calls_about_one_job_raise_its_refusal(
    client: Client, call: Callable[[Client, int], object], error: type[StokerError]
):
    job = push(client)
    with pytest.raises(error):
        call(client, job)


# --- ack -----------------------------------------------------------------------------------------


def test_an_acknowledged_job_is_completed(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    world.advance(700)
    reply = client.ack_batch([job], token)
    assert (reply.count, dict(reply.refused)) == (1, {})
    assert reply.level in ("memory", "commit", "fsync")
    view = client.get_job(job)
    assert (view.state, view.finished_at, view.result, view.reason) == (State.COMPLETED, world.now, None, "")
    assert view.lease_until == 0
    assert story(client, job) == ["pushed", "started", "completed"]
    assert client.get_counts("q").completed == 1
    assert client.get_stats("q").totals.completed == 1


@pytest.mark.parametrize("result", [b"", b"\x00\xff", b"x" * 100_000])
def test_the_result_is_kept_as_it_came(client: Client, result: bytes):
    job = finish(client, result=result)
    assert client.get_result(job) == result
    assert client.get_job(job).result == result
    assert client.wait_job(job, 0).result == result


def test_each_job_of_a_call_has_its_own_result(client: Client):
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    assert client.ack_batch(ids, token, [b"a", None, b""]).count == 3
    assert [client.get_result(job) for job in ids] == [b"a", None, b""]


def test_results_stay_with_their_jobs_when_some_are_refused(client: Client):
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    client.ack(ids[1], token, b"first")
    reply = client.ack_batch(ids, token, [b"a", b"second", b"c"])
    assert (reply.count, dict(reply.refused)) == (2, {ids[1]: "lost_lease"})
    assert [client.get_result(job) for job in ids] == [b"a", b"first", b"c"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_must_be_as_many_as_jobs(world: ContractWorld, count: int):
    ids = push_many(world.client, 2)
    token = world.client.pull("q", 2).token
    check_refused(world, InvalidRequest, c.Ack(ids, token, [b"r"] * count))


def test_jobs_of_several_queues_can_be_acknowledged_together(client: Client):
    client.set_concurrency("a", 1)
    client.set_concurrency("b", 1)
    a, b = push_many(client, 2, "a"), push_many(client, 2, "b")
    delivery = client.pull(["a", "b"], 10)
    assert client.ack_batch(list(delivery.ids), delivery.token).count == 2
    assert client.get_counts("a").completed == client.get_counts("b").completed == 1
    assert pulled(client, ["a", "b"]) == [a[1], b[1]]


def test_deliveries_may_be_acknowledged_in_any_order(client: Client):
    ids = push_many(client, 10)
    token = client.pull("q", 10).token
    for job in (ids[5], ids[0], ids[9], ids[4]):
        client.ack(job, token)
    rest = [job for number, job in enumerate(ids) if number not in (5, 0, 9, 4)]
    assert client.ack_batch(rest[::-1], token).count == 6
    assert client.get_counts("q").completed == 10


# --- fail ----------------------------------------------------------------------------------------


def test_a_failed_delivery_is_tried_again_after_its_backoff(world: ContractWorld):
    client = world.client
    job = push(client, backoff=STEADY)
    token = start(client, worker="w1").token
    world.advance(250)
    answer = client.fail(job, token, "no such host", error_class="gaierror", stack="line 1\nline 2")
    assert (answer.id, answer.state, answer.due) == (job, State.DELAYED, world.now + 1_000)
    view = client.get_job(job)
    assert (view.state, view.due, view.attempts, view.crashes) == (State.DELAYED, world.now + 1_000, 1, 0)
    assert (view.error, view.stack) == ("no such host", "line 1\nline 2")
    (attempt,) = view.history
    assert (attempt.attempt, attempt.reason, attempt.error) == (1, "failed", "no such host")
    assert (attempt.started_at, attempt.ended_at) == (world.now - 250, world.now)
    assert (attempt.duration_ms, attempt.worker) == (250, "w1")
    assert story(client, job) == ["pushed", "started", "retrying"]
    assert client.get_stats("q").totals.retried == 1
    world.advance(999)
    assert pulled(client) == []
    world.advance(1)
    assert start(client).attempt == 2


def test_the_last_attempt_that_fails_makes_a_dead_letter(world: ContractWorld):
    client = world.client
    job = push(client, max_attempts=2)
    client.fail(start(client).id, delay_ms=0)
    answer = client.fail(start(client).id, error="again")
    assert (answer.state, answer.due) == (State.FAILED, 0)
    view = client.get_job(job)
    assert (view.state, view.reason, view.error) == (State.FAILED, "max_attempts_exceeded", "again")
    assert view.finished_at == world.now
    assert view.dead is not None
    assert view.dead.reason == "max_attempts_exceeded"
    assert [attempt.attempt for attempt in view.history] == [1, 2]
    totals = client.get_stats("q").totals
    assert (totals.retried, totals.failed, totals.started) == (1, 1, 2)


@pytest.mark.parametrize("attempts", [1, 2, 3, 7])
def test_max_attempts_is_the_number_of_deliveries(client: Client, attempts: int):
    job = push(client, max_attempts=attempts)
    for number in range(1, attempts + 1):
        delivered = start(client)
        assert delivered.attempt == number
        client.fail(delivered.id, delay_ms=0)
    assert client.get_state(job) is State.FAILED
    assert pulled(client) == []


def test_by_default_a_job_is_tried_three_times(client: Client):
    job = push(client)
    states = [client.fail(start(client).id, delay_ms=0).state for _ in range(3)]
    assert states == [State.WAITING, State.WAITING, State.FAILED]
    assert client.get_job(job).attempts == 3


def test_without_a_limit_a_job_is_tried_for_ever(client: Client):
    job = push(client, max_attempts=0)
    for _ in range(50):
        client.fail(start(client).id, delay_ms=0)
    assert client.get_job(job).attempts == 50
    assert client.get_state(job) is State.WAITING


def test_without_retry_the_first_failure_is_the_last(client: Client):
    job = push(client, max_attempts=10)
    answer = client.fail(start(client).id, error="broken", retry=False)
    assert answer.state is State.FAILED
    view = client.get_job(job)
    assert (view.reason, view.error) == ("explicit_fail", "broken")


@pytest.mark.parametrize("reason", ["explicit_fail", "invalid_arguments", "invalid_result"])
def test_a_worker_may_say_why_a_job_is_not_tried_again(client: Client, reason: str):
    job = push(client, max_attempts=10)
    client.fail(start(client).id, error="broken", error_class="shop.Wrong", retry=False, reason=reason)
    view = client.get_job(job)
    assert (view.reason, view.error_class, view.history[0].error_class) == (reason, "shop.Wrong", "shop.Wrong")
    client.retry_dead("q")
    client.ack(start(client).id)
    view = client.get_job(job)
    assert (view.error, view.error_class) == ("", "")


@pytest.mark.parametrize("fields", [{"reason": "timeout", "retry": False}, {"reason": "invalid_arguments"}])
def test_a_reason_that_no_worker_can_give_is_refused(client: Client, fields: dict[str, Any]):
    push(client, max_attempts=10)
    job = start(client)
    with pytest.raises(InvalidRequest, match="reason"):
        client.fail(job.id, **fields)
    assert client.get_state(job.id) is State.ACTIVE


def test_without_retry_the_reason_is_explicit_even_on_the_last_attempt(client: Client):
    job = push(client, max_attempts=1)
    client.fail(start(client).id, retry=False)
    assert client.get_job(job).reason == "explicit_fail"


@pytest.mark.parametrize("delay_ms", [1, 50, 10_000_000])
def test_a_failure_may_say_when_to_try_again(world: ContractWorld, delay_ms: int):
    client = world.client
    job = push(client, backoff=STEADY)
    answer = client.fail(start(client).id, delay_ms=delay_ms)
    assert (answer.state, answer.due) == (State.DELAYED, world.now + delay_ms)
    world.advance(delay_ms - 1)
    assert pulled(client) == []
    world.advance(1)
    assert pulled(client) == [job]


def test_a_delay_of_nothing_makes_it_waiting_at_once(client: Client):
    job = push(client)
    answer = client.fail(start(client).id, delay_ms=0)
    assert (answer.state, answer.due) == (State.WAITING, 0)
    assert pulled(client) == [job]


def test_a_delay_does_not_give_another_attempt(client: Client):
    push(client, max_attempts=1)
    assert client.fail(start(client).id, delay_ms=5).state is State.FAILED


def test_nack_is_a_failure_with_a_delay(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    answer = client.nack(job, token, 500, "busy")
    assert (answer.state, answer.due) == (State.DELAYED, world.now + 500)
    assert client.get_job(job).error == "busy"
    assert client.get_job(job).attempts == 1


def test_failing_many_answers_for_each(client: Client):
    ids = [push(client, max_attempts=attempts) for attempts in (1, 5)]
    token = client.pull("q", 2).token
    reply = client.fail_batch([*ids, NEVER], token, "x", delay_ms=0)
    assert [(job.id, job.state) for job in reply.jobs] == [(ids[0], State.FAILED), (ids[1], State.WAITING)]
    assert dict(reply.refused) == {NEVER: "not_found"}


def test_failing_a_batch_fails_each_of_its_jobs(world: ContractWorld):
    client = world.client
    ids = push_many(client, 4, backoff=STEADY)
    token = client.pull("q", 4).token
    reply = client.fail_batch(ids[:3], token, "x")
    assert [job.id for job in reply.jobs] == ids[:3]
    assert {(job.state, job.due) for job in reply.jobs} == {(State.DELAYED, world.now + 1_000)}
    world.advance(1_000)
    assert [(job.id, job.attempt) for job in client.pull("q", 10)] == [(job, 2) for job in ids[:3]]


def test_errors_are_cut_not_refused(make_world: MakeWorld):
    client = make_world(limits=Limits(error_chars_max=10, stack_chars_max=20)).client
    job = push(client)
    client.fail(start(client).id, error="0123456789abc", stack="x" * 30, retry=False)
    view = client.get_job(job)
    assert (len(view.error), len(view.stack)) == (10, 20)
    assert view.error.startswith("012345678")
    assert view.history[0].error == view.error


def test_errors_at_the_limit_are_whole(make_world: MakeWorld):
    client = make_world(limits=Limits(error_chars_max=10, stack_chars_max=20)).client
    job = push(client)
    client.fail(start(client).id, error="0123456789", stack="x" * 20, retry=False)
    assert (client.get_job(job).error, client.get_job(job).stack) == ("0123456789", "x" * 20)


def test_the_history_keeps_the_latest_attempts(make_world: MakeWorld):
    client = make_world(limits=Limits(attempt_history_max=3)).client
    job = push(client, max_attempts=5)
    for number in range(5):
        client.fail(start(client).id, error=str(number), delay_ms=0)
    assert [(attempt.attempt, attempt.error) for attempt in client.get_job(job).history] == [
        (3, "2"),
        (4, "3"),
        (5, "4"),
    ]


# --- backoff -------------------------------------------------------------------------------------


def delays_of(world: ContractWorld, backoff: Backoff, count: int, queue: str = "q") -> list[int]:
    """How long the job waits after each of its failures."""
    job = push(world.client, queue, backoff=backoff, max_attempts=0)
    delays = []
    for _ in range(count):
        assert start(world.client, queue).id == job
        answer = world.client.fail(job)
        delays.append(answer.due - world.now if answer.due else 0)
        world.advance(delays[-1])
    return delays


GROWTH: list[tuple[BackoffKind, int, int, list[int]]] = [
    ("exponential", 1_000, HOUR_MS, [1_000, 2_000, 4_000, 8_000, 16_000]),
    ("exponential", 1_000, 5_000, [1_000, 2_000, 4_000, 5_000, 5_000]),
    ("exponential", 3, 3, [3, 3, 3]),
    ("linear", 1_000, HOUR_MS, [1_000, 2_000, 3_000, 4_000, 5_000]),
    ("linear", 1_000, 2_500, [1_000, 2_000, 2_500, 2_500]),
    ("fixed", 1_000, HOUR_MS, [1_000, 1_000, 1_000]),
    ("fixed", 1_000, 700, [700, 700]),
    ("exponential", 0, HOUR_MS, [0, 0, 0]),
    ("linear", 1_000, 0, [0, 0]),
]
"""Each kind with its base, its cap, and the delays that follow."""


@pytest.mark.parametrize(("kind", "base", "cap", "expected"), GROWTH)
def test_backoff_grows_by_its_kind_up_to_its_cap(
    world: ContractWorld, kind: BackoffKind, base: int, cap: int, expected: list[int]
):
    assert delays_of(world, Backoff(kind, base, cap, "none"), len(expected)) == expected


def test_every_kind_of_backoff_is_tried():
    """Not every broker has the engine's arithmetic: Redis has its own, and would take a new kind for a fixed one."""
    assert {kind for kind, *_ in GROWTH} == set(get_args(BackoffKind))


def test_backoff_stays_at_its_cap_after_more_failures_than_a_number_has_bits(world: ContractWorld):
    """Any number of them: `tests/unit/test_backoff.py`."""
    delays = delays_of(world, Backoff("exponential", 1_000, 60_000, "none"), 70)
    assert delays[-1] == 60_000
    assert max(delays) == 60_000


@pytest.mark.parametrize(("jitter", "lowest"), [("equal", 500), ("full", 0)])
def test_jitter_draws_from_its_range(world: ContractWorld, jitter: Jitter, lowest: int):
    delays = delays_of(world, Backoff("fixed", 1_000, HOUR_MS, jitter), 60)
    assert lowest <= min(delays) < lowest + 100
    assert 900 < max(delays) <= 1_000


def test_equal_jitter_of_an_odd_delay_keeps_the_larger_half(world: ContractWorld):
    delays = delays_of(world, Backoff("fixed", 3, HOUR_MS, "equal"), 20)
    assert set(delays) == {2, 3}


def test_equal_jitter_is_the_default(world: ContractWorld):
    delays = delays_of(world, Backoff(), 4)
    for delay, whole in zip(delays, [1_000, 2_000, 4_000, 8_000], strict=True):
        assert whole // 2 <= delay <= whole


def test_jitter_is_decided_by_the_seed(make_world: MakeWorld):
    full = Backoff("fixed", 1_000_000, HOUR_MS, "full")
    first, again = (delays_of(make_world(Settings(seed=1)), full, 10) for _ in range(2))
    other = delays_of(make_world(Settings(seed=2)), full, 10)
    assert first == again != other


def test_jitter_differs_between_jobs_and_attempts(world: ContractWorld):
    full = Backoff("fixed", 1_000_000, HOUR_MS, "full")
    one, other = delays_of(world, full, 10, "one"), delays_of(world, full, 10, "other")
    assert len({*one, *other}) > 15


# --- release -------------------------------------------------------------------------------------


def test_a_released_job_was_never_pulled(client: Client):
    job = push(client, max_attempts=1)
    for _ in range(3):
        delivered = start(client)
        assert delivered.attempt == 1
        client.release(job, delivered.token)
        view = client.get_job(job)
        assert (view.state, view.attempts, view.history) == (State.WAITING, 0, ())
    assert story(client, job)[-2:] == ["started", "released"]


def test_a_released_job_keeps_the_attempts_it_had(client: Client):
    job = push(client)
    client.fail(start(client).id, delay_ms=0)
    client.release(start(client).id)
    assert client.get_job(job).attempts == 1
    assert start(client).attempt == 2


def test_a_snoozed_job_comes_back_later_and_costs_no_attempt(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    client.snooze(job, token, 500)
    view = client.get_job(job)
    assert (view.state, view.due, view.attempts) == (State.DELAYED, world.now + 500, 0)
    assert story(client, job) == ["pushed", "started", "snoozed"]
    world.advance(499)
    assert pulled(client) == []
    world.advance(1)
    assert start(client).attempt == 1


def test_releasing_many(client: Client):
    ids = push_many(client, 5)
    token = client.pull("q", 4).token
    reply = client.release_batch(ids[1:3], token)
    assert (reply.count, dict(reply.refused)) == (2, {})
    assert pulled(client) == [ids[1], ids[2], ids[4]]


def test_a_release_is_no_failure(client: Client):
    push(client)
    client.release(start(client).id)
    totals = client.get_stats("q").totals
    assert (totals.retried, totals.failed, totals.started) == (0, 0, 1)


def test_a_release_may_say_why(client: Client):
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    client.release_batch(ids[:2], token, 500, "no handler for it")
    client.snooze(ids[2], token, 500)
    assert [client.get_job(job).error for job in ids] == ["no handler for it", "no handler for it", ""]
    told = [client.story(job).events[-1] for job in ids]
    assert [(event.kind, event.message) for event in told] == [
        ("snoozed", "no handler for it"),
        ("snoozed", "no handler for it"),
        ("snoozed", ""),
    ]


def test_a_note_is_cut_where_an_error_would_be(make_world: MakeWorld):
    client = make_world(limits=Limits(error_chars_max=5)).client
    job = push(client)
    client.snooze(job, start(client).token, 0, "not at all")
    assert client.get_job(job).error == "not …"


# --- extend --------------------------------------------------------------------------------------


def test_a_look_at_leases_renews_nothing_and_tells_what_a_renewal_would(world: ContractWorld):
    client = world.client
    ids = push_many(client, 4, lease_ms=1_000)
    delivery = client.pull("q", 4)
    until = client.get_job(ids[0]).lease_until
    client.ack(ids[3], delivery.token)
    client.cancel(ids[1])
    world.advance(600)
    reply = client.extend_batch(ids, delivery.token, renew=False)
    assert (reply.count, reply.lease_until, list(reply.cancelled)) == (3, until, [ids[1]])
    assert dict(reply.refused) == {ids[3]: "lost_lease"}
    assert story(client, ids[0]) == ["pushed", "started"]
    world.advance(400)
    assert client.get_state(ids[0]) is State.DELAYED, "its lease ended when it would have ended without the look"


def test_a_heartbeat_renews_the_lease_by_its_own_length(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000)
    token = start(client).token
    for _ in range(5):
        world.advance(900)
        reply = client.extend(job, token)
        assert (reply.count, reply.lease_until, list(reply.cancelled)) == (1, world.now + 1_000, [])
        assert client.get_job(job).lease_until == world.now + 1_000
    assert client.get_state(job) is State.ACTIVE


def test_its_own_length_is_the_one_the_delivery_started_with(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=1_000)
    token = start(client, lease_ms=7_000).token
    client.extend(job, token, 50)
    assert client.extend(job, token).lease_until == world.now + 7_000


def test_a_heartbeat_may_say_another_length_even_a_shorter_one(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    assert client.extend(job, token, 100).lease_until == world.now + 100
    world.advance(99)
    assert client.get_state(job) is State.ACTIVE
    world.advance(1)
    assert client.get_state(job) is State.DELAYED


def test_extending_some_of_a_delivery(world: ContractWorld):
    client = world.client
    ids = push_many(client, 4, lease_ms=1_000)
    token = client.pull("q", 4).token
    world.advance(500)
    assert client.extend_batch(ids[1:3], token).count == 2
    world.advance(500)
    assert [client.get_state(job) for job in ids] == ["delayed", "active", "active", "delayed"]
    world.advance(500)
    assert [client.get_state(job) for job in ids[1:3]] == ["delayed", "delayed"]


def test_a_heartbeat_is_an_event(client: Client):
    job = push(client)
    client.extend(start(client).id)
    assert story(client, job) == ["pushed", "started", "extended"]


# --- progress, logs, partials --------------------------------------------------------------------


@pytest.mark.parametrize("percent", [0, 1, 100])
def test_progress_can_be_read(client: Client, percent: int):
    job = push(client)
    token = start(client).token
    client.set_progress(job, percent, "copying", token)
    progress = client.get_progress(job)
    assert (progress.percent, progress.message) == (percent, "copying")
    (event,) = [event for event in all_events(client) if event.kind == "progress"]
    assert (event.job, event.percent, event.message) == (job, percent, "copying")


def test_progress_may_go_back(client: Client):
    job = push(client)
    start(client)
    client.set_progress(job, 80)
    client.set_progress(job, 10)
    assert client.get_progress(job).percent == 10


def test_log_lines_are_kept_in_order(world: ContractWorld):
    client = world.client
    job = push(client)
    client.append_log(job, "pushed by hand")
    world.advance(10)
    token = start(client).token
    client.append_log(job, "careful", "warning", token)
    lines = client.get_logs(job)
    assert [(line.at, line.level, line.message) for line in lines] == [
        (world.now - 10, "info", "pushed by hand"),
        (world.now, "warning", "careful"),
    ]
    assert [event.message for event in all_events(client) if event.kind == "log"] == ["pushed by hand", "careful"]


def test_live_and_failed_jobs_have_a_log_and_others_have_not(world: ContractWorld):
    client = world.client
    first = push(client, "other", delay_ms=1_000)
    done = finish(client)
    cancelled = push(client)
    client.cancel(cancelled)
    for job in (first, kill(client)):
        client.append_log(job, "line")
        assert len(client.get_logs(job)) == 1
    for job in (done, cancelled):
        check_refused(world, WrongState, c.AppendLog(job, "line"))


def test_a_log_line_is_fenced_only_when_it_brings_a_token(world: ContractWorld):
    client = world.client
    job = push(client)
    token = start(client).token
    check_refused(world, LostLease, c.AppendLog(job, "line", "info", token + 1))
    client.append_log(job, "mine", token=token)
    client.append_log(job, "anybody's")
    client.release(job, token)
    check_refused(world, LostLease, c.AppendLog(job, "line", "info", token))
    client.append_log(job, "still anybody's")
    assert [line.message for line in client.get_logs(job)] == ["mine", "anybody's", "still anybody's"]


def test_a_full_log_forgets_its_oldest_lines(make_world: MakeWorld):
    client = make_world(limits=Limits(log_lines_max=3)).client
    job = push(client)
    for number in range(5):
        client.append_log(job, str(number))
    assert [line.message for line in client.get_logs(job)] == ["2", "3", "4"]


def test_a_job_may_ask_for_a_shorter_log_and_no_log_at_all(make_world: MakeWorld):
    client = make_world(limits=Limits(log_lines_max=3)).client
    for wanted, kept in ((2, ["c", "d"]), (0, []), (9, ["b", "c", "d"])):
        job = client.push("q", b"", log_lines_max=wanted).id
        for line in "abcd":
            client.append_log(job, line)
        assert [line.message for line in client.get_logs(job)] == kept


@pytest.mark.parametrize(("wanted", "kept"), [(None, "a\nb\nc"), (2, "b\nc"), (0, ""), (9, "a\nb\nc")])
def test_a_job_may_ask_for_the_end_of_a_stack_alone(client: Client, wanted: int | None, kept: str):
    client.push("q", b"", max_attempts=1, stack_lines_max=wanted)
    (job,) = client.pull("q")
    client.fail(job.id, job.token, "broken", stack="a\nb\nc")
    assert client.get_job(job.id).stack == kept


def test_the_log_stays_with_a_retried_and_an_ended_job(client: Client):
    job = push(client)
    client.append_log(start(client).id, "first attempt")
    client.fail(job, delay_ms=0)
    client.append_log(start(client).id, "second attempt")
    client.ack(job)
    assert [line.message for line in client.get_logs(job)] == ["first attempt", "second attempt"]


def test_partial_results_are_numbered_on(client: Client):
    job = push(client)
    token = start(client).token
    client.append_partial(job, b"a", token=token)
    client.append_partial(job, b"b")
    client.append_partial(job, b"c", 7)
    client.append_partial(job, b"d")
    assert [(chunk.index, chunk.data) for chunk in client.get_partials(job)] == [
        (0, b"a"),
        (1, b"b"),
        (7, b"c"),
        (8, b"d"),
    ]
    assert [event.data for event in all_events(client) if event.kind == "partial"] == [b"a", b"b", b"c", b"d"]


def test_only_the_latest_partials_are_kept(make_world: MakeWorld):
    client = make_world(limits=Limits(partials_max=2)).client
    job = push(client)
    start(client)
    for data in (b"a", b"b", b"c"):
        client.append_partial(job, data)
    assert [(chunk.index, chunk.data) for chunk in client.get_partials(job)] == [(1, b"b"), (2, b"c")]
    assert len([event for event in all_events(client) if event.kind == "partial"]) == 3


def test_logs_and_partials_of_a_forgotten_job_are_gone(world: ContractWorld):
    job = finish(world.client, remove_on_complete=True)
    check_refused(world, NotFound, c.GetLogs(job))
    check_refused(world, NotFound, c.GetPartials(job))


def test_a_fresh_job_has_no_log_and_no_partials(client: Client):
    job = push(client)
    assert list(client.get_logs(job)) == []
    assert list(client.get_partials(job)) == []
    assert client.get_progress(job).percent == 0


# --- cancelled while active ----------------------------------------------------------------------


def cancelled_while_active(world: ContractWorld, **options: Any) -> tuple[int, int]:
    job = push(world.client, backoff=STEADY, **options)
    token = start(world.client).token
    view = world.client.cancel(job)
    assert (view.id, view.state, view.cancel_requested) == (job, State.ACTIVE, True)
    return job, token


def test_the_worker_learns_of_it_with_its_next_heartbeat(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    assert list(client.extend_batch(ids, token).cancelled) == []
    client.cancel(ids[1])
    assert story(client, ids[1])[-1] == "cancel_requested"
    for _ in range(2):
        assert list(client.extend_batch(ids, token).cancelled) == [ids[1]]


def test_an_ack_still_completes_it(world: ContractWorld):
    job, token = cancelled_while_active(world)
    world.client.ack(job, token, b"done")
    assert world.client.get_state(job) is State.COMPLETED
    assert world.client.get_result(job) == b"done"


WAYS_OUT: dict[str, Callable[[ContractWorld, int, int], object]] = {
    "fail": lambda world, job, token: world.client.fail(job, token),
    "fail for good": lambda world, job, token: world.client.fail(job, token, retry=False),
    "release": lambda world, job, token: world.client.release(job, token),
    "snooze": lambda world, job, token: world.client.snooze(job, token, 500),
    "timeout": lambda world, job, token: world.advance(5_000),
    "lease": lambda world, job, token: world.advance(9_000),
    "move": lambda world, job, token: world.client.move_to_delayed(job, 500, token),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_whatever_else_ends_the_delivery_ends_the_job(world: ContractWorld, way: str):
    client = world.client
    client.set_concurrency("q", 1)
    job, token = cancelled_while_active(
        world, group_id="g", unique_key="k", lease_ms=9_000, timeout_ms=5_000 if way == "timeout" else 0
    )
    WAYS_OUT[way](world, job, token)
    view = client.get_job(job)
    assert (view.state, view.reason, view.finished_at) == (State.CANCELLED, "cancelled", world.now)
    assert list(client.list_dead("q").jobs) == []
    assert client.get_stats("q").totals.cancelled == 1
    again = client.push("q", b"", group_id="g", unique_key="k")
    assert again.created
    assert pulled(client) == [again.id]


def test_failing_it_answers_cancelled(world: ContractWorld):
    job, token = cancelled_while_active(world)
    answer = world.client.fail(job, token)
    assert (answer.id, answer.state, answer.due) == (job, State.CANCELLED, 0)


def test_cancelling_twice_is_cancelling_once(world: ContractWorld):
    job, token = cancelled_while_active(world)
    view = world.client.cancel(job)
    assert (view.state, view.cancel_requested) == (State.ACTIVE, True)
    world.client.release(job, token)
    assert world.client.get_state(job) is State.CANCELLED


def test_a_result_over_the_limit_is_refused_and_the_job_stays(make_world: MakeWorld):
    world = make_world(limits=Limits(result_bytes_max=3))
    client = world.client
    job = push(client)
    token = start(client).token
    before = picture(client)
    with pytest.raises(LimitExceeded):
        client.ack(job, token, b"long")
    assert picture(client) == before
    client.ack(job, token, b"fit")
    assert client.get_result(job) == b"fit"
