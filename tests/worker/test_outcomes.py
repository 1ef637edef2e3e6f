"""What a handler raises decides what becomes of its job."""

import pickle
from datetime import timedelta
from typing import Any

import pytest

from stoker.model.states import State
from stoker.testing import World
from stoker.worker.errors import BadHandler
from stoker.worker.outcomes import Cancel, Dead, Failure, Outcome, Retry, RetryPolicy, Snooze, Verdict
from stoker.worker.worker import Worker
from tests.worker.running import handler, push


def run_raising(world: World, error: BaseException, kind: str, *, retry: RetryPolicy | None = None, **options):
    """One delivery of a job whose handler raises."""

    async def run() -> None:
        raise error

    def run_plain() -> None:
        raise error

    job = push(world.client, "run", **options)
    function = run if kind == "async" else run_plain
    Worker(world.client, [handler(function, name="run", retry=retry or RetryPolicy())]).run_until_idle()
    return world.client.get_job(job)


kinds = pytest.mark.parametrize("kind", ["thread", "async"])


@kinds
def test_an_exception_is_kept_as_data_and_tried_again_by_the_backoff(world: World, kind: str):
    view = run_raising(world, ValueError("no such user"), kind)
    assert (view.state, view.attempts, view.error) == (State.DELAYED, 1, "no such user")
    assert "ValueError: no such user" in view.stack
    assert "raise error" in view.stack
    assert "stoker/worker" not in view.stack, "it begins in the handler"
    assert world.now < view.due <= world.now + 1_000


@kinds
def test_attempts_that_are_used_up_make_a_dead_letter(world: World, kind: str):
    assert run_raising(world, ValueError("no"), kind, max_attempts=1).state is State.FAILED


@kinds
def test_snooze_costs_no_attempt(world: World, kind: str):
    view = run_raising(world, Snooze("30s"), kind)
    assert (view.state, view.attempts, view.due) == (State.DELAYED, 0, world.now + 30_000)


@kinds
def test_retry_says_when(world: World, kind: str):
    view = run_raising(world, Retry(after=timedelta(minutes=5), reason="busy"), kind)
    assert (view.state, view.attempts, view.due) == (State.DELAYED, 1, world.now + 300_000)
    assert (view.error, view.stack) == ("busy", "")


@kinds
def test_cancel_ends_the_job_as_cancelled(world: World, kind: str):
    view = run_raising(world, Cancel("nobody wants it"), kind)
    assert view.state is State.CANCELLED


@kinds
def test_dead_ends_the_job_at_once(world: World, kind: str):
    view = run_raising(world, Dead("bad address"), kind, max_attempts=5)
    assert (view.state, view.attempts, view.error) == (State.FAILED, 1, "bad address")


@kinds
def test_an_exit_in_a_handler_ends_the_job_and_not_the_worker(world: World, kind: str):
    view = run_raising(world, SystemExit(3), kind)
    assert (view.state, view.error) == (State.DELAYED, "3")


@kinds
def test_a_policy_decides_by_the_class(world: World, kind: str):
    policy = RetryPolicy(retry_on=(OSError,), dead_on=(FileNotFoundError,), cancel_on=(LookupError,))
    states = [
        run_raising(world, error, kind, retry=policy).state
        for error in (ConnectionError(), FileNotFoundError(), KeyError(), ValueError())
    ]
    assert states == [State.DELAYED, State.FAILED, State.CANCELLED, State.FAILED]


def test_a_policy_counts_the_attempts(world: World):
    policy = RetryPolicy(delay=lambda error, attempt: attempt * 10)
    for attempt in (1, 2, 3):
        assert policy.decide(ValueError(), attempt) == Verdict("retry", attempt * 10_000)


def test_a_policy_may_give_a_verdict_itself():
    policy = RetryPolicy(delay=lambda error, attempt: Verdict("snooze", 5))
    assert policy.decide(ValueError(), 1) == Verdict("snooze", 5)


def test_a_policy_that_fails_itself_leaves_the_job_to_its_backoff():
    policy = RetryPolicy(delay=lambda error, attempt: 1 / 0)
    assert policy.decide(ValueError(), 1) == Verdict("retry")


@kinds
def test_a_policy_that_is_broken_does_not_cost_the_job_its_end(world: World, kind: str):
    class Broken(RetryPolicy):
        def decide(self, error: BaseException, attempt: int) -> Verdict:
            raise RuntimeError("not my day")

    assert run_raising(world, ValueError("no"), kind, retry=Broken()).state is State.DELAYED


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(retry_on=ConnectionError, dead_on=KeyError, cancel_on=EOFError),
        RetryPolicy(retry_on=[ConnectionError], dead_on={KeyError}, cancel_on=(EOFError,)),  # type: ignore[arg-type]
    ],
)
def test_a_policy_takes_one_class_or_several(policy: RetryPolicy):
    decided = [policy.decide(kind(), 1).kind for kind in (ConnectionResetError, KeyError, EOFError, ValueError)]
    assert decided == ["retry", "dead", "cancel", "dead"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"retry_on": "ConnectionError"}, r"retry_on=...\): 'ConnectionError' is not an exception class"),
        ({"retry_on": ("ConnectionError",)}, "retry_on=...\\): 'ConnectionError' is not an exception class"),
        ({"dead_on": ValueError("x")}, "dead_on=...\\): ValueError\\('x'\\) is not an exception class"),
        ({"cancel_on": (EOFError, int)}, "cancel_on=...\\): <class 'int'> is not an exception class"),
        ({"delay": "5 parsecs"}, "delay='5 parsecs'\\): expected text like"),
        ({"delay": -1}, "delay=-1\\): -1 is not a duration"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(said: dict[str, Any], told: str):
    with pytest.raises(BadHandler, match=told):
        RetryPolicy(**said)


@pytest.mark.parametrize("outcome", [Snooze("1m", "later"), Retry(5, "again"), Retry(), Cancel("no"), Dead("never")])
def test_outcomes_pass_from_one_process_to_another(outcome: Outcome):
    copy = pickle.loads(pickle.dumps(outcome))
    assert (type(copy), copy.verdict, str(copy)) == (type(outcome), outcome.verdict, str(outcome))


@pytest.mark.parametrize("wrong", ["soon", -1, True, None, "11000d"])
def test_what_is_no_duration_is_refused(wrong: object):
    with pytest.raises(ValueError, match="expected"):
        Snooze(wrong)  # type: ignore[arg-type]


def test_an_exception_that_cannot_be_shown_still_ends_its_job():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    failure = Failure.of(Broken())
    assert failure.error.endswith("Broken")
    assert failure.error_class.endswith("Broken")


def test_a_huge_error_is_cut():
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError as error:
        failure = Failure.of(error)
    assert len(failure.error) <= 16_384
    assert len(failure.stack) <= 65_536


def test_errors_of_many_jobs_are_each_their_own(world: World):
    def fail(number: int) -> None:
        raise ValueError(f"number {number}")

    ids = [push(world.client, "fail", number, max_attempts=1) for number in range(20)]
    Worker(world.client, [handler(fail)]).run_until_idle()
    assert [world.client.get_job(job).error for job in ids] == [f"number {number}" for number in range(20)]
