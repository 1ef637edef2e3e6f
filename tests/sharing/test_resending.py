"""A call whose answer was lost is sent again: what was done the first time is not done twice, and is not refused.

Every command is carried out twice by a true engine; the caller sees only the second answer.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from stoker.brokers.resending import Plan, ResendAnswer, may_resend, resend_steps
from stoker.brokers.sending_window import SendingWindows
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, NotFound, StokerError, Unavailable, Unknown
from stoker.model.options import Backoff, DeadLetterPolicy, Options
from stoker.model.states import State
from stoker.model.steps import carry_out
from stoker.testing import World

R = TypeVar("R")

ONCE = Options(max_attempts=1)
RETRIED = Options(backoff=Backoff(kind="fixed", base_ms=1_000, jitter="none"))


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def lost(world: World, command: c.Command[R], between: int = 0) -> R:
    """The answer to the second sending of each command that carries this one out."""
    plan: Plan[R] = resend_steps(command, SendingWindows())
    try:
        step = next(plan)
        while True:
            try:
                answer = twice(world, step, between)
            except NotFound as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def twice(world: World, command: c.Command[Any], between: int) -> ResendAnswer:
    assert may_resend(command)
    world.client.execute(command)
    world.advance(between)
    return ResendAnswer(world.client.execute(command), again=True)


def pulled(world: World, options: Options = RETRIED, jobs: int = 1) -> tuple[list[int], int]:
    world.client.push_batch("q", [b""] * jobs, options)
    delivery = world.client.pull("q", jobs)
    return list(delivery.ids), delivery.token


def test_a_push_makes_one_job(world: World):
    reply = lost(world, c.Push("q", b"x"))
    assert reply.created
    assert world.client.get_counts().waiting == 1
    assert world.client.pull("q").payloads == [b"x"]


def test_a_push_that_is_a_duplicate_says_so(world: World):
    first = world.client.push("q", b"x", custom_id="mine")
    reply = lost(world, c.Push("q", b"x", Options(custom_id="mine")))
    assert (reply.id, reply.created, reply.duplicate_by) == (first.id, False, "custom_id")


def test_a_push_that_is_refused_is_refused(world: World):
    with pytest.raises(InvalidRequest):
        lost(world, c.Push("q", b"x", Options(lease_ms=-1)))
    assert world.client.get_counts().waiting == 0


def test_two_pushes_that_look_alike_are_two(world: World):
    windows = SendingWindows()
    for _ in range(2):
        plan = resend_steps(c.Push("q", b"x"), windows)
        answer = ResendAnswer(world.client.execute(next(plan)), again=False)
        with pytest.raises(StopIteration):
            plan.send(answer)
    assert world.client.get_counts().waiting == 2


def test_pushes_under_way_at_once_have_different_numbers():
    windows = SendingWindows()
    plans = [resend_steps(c.Push("q", b"x"), windows) for _ in range(3)]
    sendings = [next(plan).sending for plan in plans]  # type: ignore[attr-defined]
    assert len({sending.sender for sending in sendings}) == 1
    assert [(sending.number, sending.settled) for sending in sendings] == [(1, 1), (2, 1), (3, 1)]


def test_a_push_that_is_given_up_settles_its_number():
    windows = SendingWindows()
    plan = resend_steps(c.Push("q", b"x"), windows)
    next(plan)
    plan.close()
    again = next(resend_steps(c.Push("q", b"x"), windows)).sending  # type: ignore[attr-defined]
    assert (again.number, again.settled) == (2, 2)


@pytest.mark.parametrize("error", [Unknown("?"), InvalidRequest("no"), Unavailable("not now")])
def test_a_push_that_ends_with_an_error_settles_its_number(error: StokerError):
    windows = SendingWindows()
    plan = resend_steps(c.Push("q", b"x"), windows)

    def send(command: c.Command[Any]) -> ResendAnswer:
        raise error

    with pytest.raises(type(error)):
        carry_out(plan, send)
    again = windows.take()
    assert (again.number, again.settled) == (2, 2)


@pytest.mark.parametrize("key", [None, "mine"])
def test_a_batch_is_there_once(world: World, key: str | None):
    assert len(lost(world, c.PushBatch("q", [b"x"] * 5, request_key=key)).ids) == 5
    assert world.client.get_counts().waiting == 5


@pytest.mark.parametrize("part", [None, 7])
def test_a_part_of_a_stage_is_there_once(world: World, part: int | None):
    assert lost(world, c.Stage("t", "s", "q", [b"x"] * 5, part=part)).jobs == 5
    assert lost(world, c.Publish("t", ["s"])).created == 5
    assert world.client.get_counts().waiting == 5


@pytest.mark.parametrize("options", [RETRIED, Options(remove_on_complete=True)], ids=["kept", "removed"])
def test_an_ack_is_done(world: World, options: Options):
    ids, token = pulled(world, options, jobs=3)
    reply = lost(world, c.Ack(ids, token))
    assert (reply.count, dict(reply.refused)) == (3, {})


def test_an_ack_that_came_too_late_stays_refused(world: World):
    (job,), token = pulled(world, Options(lease_ms=1_000, backoff=Backoff(base_ms=0)))
    world.advance(5_000)
    assert world.client.pull("q"), "another worker has it"
    reply = lost(world, c.Ack([job], token))
    assert (reply.count, dict(reply.refused)) == (0, {job: "lost_lease"})


@pytest.mark.parametrize(("options", "state"), [(RETRIED, State.DELAYED), (ONCE, State.FAILED)])
def test_a_failure_is_counted_once(world: World, options: Options, state: State):
    (job,), token = pulled(world, options)
    reply = lost(world, c.Fail([job], token, error="broken", error_class="Broken"))
    assert not reply.refused
    assert [(failed.id, failed.state) for failed in reply.jobs] == [(job, state)]
    view = world.client.get_job(job)
    assert (view.state, view.attempts) == (state, 1)
    assert reply.jobs[0].due == view.due


def test_a_failure_is_found_though_the_job_runs_again(world: World):
    (job,), token = pulled(world, Options(backoff=Backoff(base_ms=0)))
    plan = resend_steps(c.Fail([job], token, error="broken"), SendingWindows())
    command = next(plan)
    world.client.execute(command)
    (again,) = world.client.pull("q")
    question = plan.send(ResendAnswer(world.client.execute(command), again=True))
    with pytest.raises(StopIteration) as end:
        plan.send(ResendAnswer(world.client.execute(question), again=False))
    assert not end.value.value.refused
    world.client.ack(job, again.token)


def test_a_failure_of_another_kind_is_not_taken_for_ours(world: World):
    (job,), token = pulled(world, Options(lease_ms=1_000, backoff=Backoff(base_ms=0)))
    world.advance(5_000)
    reply = lost(world, c.Fail([job], token, error="broken"))
    assert dict(reply.refused) == {job: "lost_lease"}


SETTLED = (lambda ids, token: c.Fail(ids, token, error="broken"), c.Release)


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("settle", SETTLED)
def test_a_job_that_was_to_be_cancelled_is_cancelled_by_its_worker(world: World, settle: Any, is_kept: bool):
    """The queue may keep cancelled jobs as dead letters."""
    world.client.set_queue_policy("q", dead_letters=DeadLetterPolicy(take_cancelled=is_kept))
    (job,), token = pulled(world)
    world.client.cancel(job)
    reply = lost(world, settle([job], token))
    assert not reply.refused
    assert world.client.get_job(job).state is (State.FAILED if is_kept else State.CANCELLED)


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("settle", SETTLED)
def test_a_job_that_was_cancelled_when_its_lease_ended_was_not_settled(world: World, settle: Any, is_kept: bool):
    """Else a worker hears that it settled a job whose lease was over long before it said so."""
    world.client.set_queue_policy("q", dead_letters=DeadLetterPolicy(take_cancelled=is_kept))
    (job,), token = pulled(world, Options(lease_ms=1_000))
    world.client.cancel(job)
    world.advance(5_000)
    reply = lost(world, settle([job], token))
    assert dict(reply.refused) == {job: "lost_lease"}


@pytest.mark.parametrize("delay_ms", [0, 1_000])
def test_a_job_is_handed_back_once(world: World, delay_ms: int):
    (job,), token = pulled(world)
    reply = lost(world, c.Release([job], token, delay_ms))
    assert (reply.count, dict(reply.refused)) == (1, {})
    assert world.client.get_job(job).attempts == 0


def test_each_job_is_held_against_its_own_token(world: World):
    """Of two jobs with tokens of their own, one was taken over and completed by another worker."""
    quick = Options(lease_ms=1_000, backoff=Backoff(base_ms=0))
    (slow,), first = pulled(world, quick)
    world.advance(5_000)
    (again,) = world.client.pull("q")
    (job,), second = pulled(world)
    world.client.ack(again.id, again.token)
    reply = lost(world, c.Ack([slow, job], [first, second]))
    assert (reply.count, dict(reply.refused)) == (1, {slow: "lost_lease"})


@pytest.mark.parametrize(("deliveries", "refused"), [(1, {}), (2, {64: "unknown"})])
def test_a_server_that_tells_no_tokens_is_believed_where_there_is_no_doubt(
    world: World, deliveries: int, refused: dict[int, str]
):
    """As servers of earlier releases answer."""
    (job,), token = pulled(world)
    for _ in range(deliveries - 1):
        world.client.release(job)
        token = world.client.pull("q").token
    plan = resend_steps(c.Ack([job], token), SendingWindows())
    command = next(plan)
    world.client.execute(command)
    question = plan.send(ResendAnswer(world.client.execute(command), again=True))
    story: Any = world.client.execute(question)
    tokenless = [msgspec.structs.replace(event, token=0) for event in story.events]
    with pytest.raises(StopIteration) as end:
        plan.send(ResendAnswer(msgspec.structs.replace(story, events=tokenless), again=False))
    assert dict(end.value.value.refused) == refused


@pytest.mark.parametrize(
    "command",
    [
        c.Fail([64], None),
        c.Release([64], None),
        c.AppendLog(64, "line"),
        c.AppendPartial(64, b""),
        c.Promote(64),
        c.RetryDead("q"),
        c.KvIncrement("n"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_would_be_done_twice_is_not_sent_twice(command: c.Command[Any]):
    """Without a token, settling might hit another worker's delivery. The caller is told that the outcome is unknown."""
    assert not may_resend(command)
