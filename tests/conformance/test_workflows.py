"""Graphs of jobs over several queues: what starts when, what a failure means, and how one looks at all of it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import (
    DependencyCycle,
    InvalidRequest,
    LimitExceeded,
    LostLease,
    NotFound,
    UnknownDependency,
    WrongState,
)
from stoker.model.limits import Limits
from stoker.model.options import DAY_MS, HOUR_MS, Dependency, Options, Retention, Settings
from stoker.model.states import State
from stoker.model.workflows import Edge, Step, WorkflowState
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import NEVER, all_events, check_refused, picture, pulled, start, story

ONCE = Options(max_attempts=1)


def chain(*queues: str, **options: Any) -> list[Step]:
    """One job in each queue, one after the other."""
    return [
        Step(queue, [queue.encode()], Options(**options), [Edge(number - 1)] if number else ())
        for number, queue in enumerate(queues)
    ]


def diamond() -> list[Step]:
    """One, then three and two beside each other, then one."""
    return [
        Step("a", [b"root"], ONCE, key="root"),
        Step("b", [b"1", b"2", b"3"], ONCE, [Edge(0)], key="left"),
        Step("c", [b"4", b"5"], ONCE, [Edge(0)], key="right"),
        Step("a", [b"join"], ONCE, [Edge(1), Edge(2)], key="join"),
    ]


def work(client: Client, queue: str, well: bool = True, count: int = 100, wait_ms: int = 0) -> list[int]:
    """Pull all that is there and end it."""
    delivery = client.pull(queue, count, wait_ms=wait_ms)
    for job in delivery:
        if well:
            client.ack(job.id, job.token, result=b"result of %d" % job.id)
        else:
            client.fail(job.id, job.token, "broken", retry=False)
    return list(delivery.ids)


def states(client: Client, ids: Sequence[int]) -> list[State]:
    return [client.get_job(job).state for job in ids]


# --- order ---------------------------------------------------------------------------------------


def test_a_workflow_is_pushed_as_a_whole(client: Client):
    reply = client.push_workflow(diamond(), name="nightly")
    assert reply.created
    assert [count for _, count in reply.steps] == [1, 3, 2, 1]
    assert states(client, [*reply.ids(0)]) == [State.WAITING]
    assert states(client, [*reply.ids(1), *reply.ids(2), *reply.ids(3)]) == [State.BLOCKED] * 6
    assert client.get_job(reply.ids(1)[0]).options.workflow == reply.id


def test_a_step_starts_when_all_jobs_of_the_steps_before_it_have_completed(client: Client):
    reply = client.push_workflow(diamond())
    assert pulled(client, ["b", "c"]) == []
    assert work(client, "a") == list(reply.ids(0))
    assert work(client, "b") == list(reply.ids(1))
    assert pulled(client, "a") == []
    assert work(client, "c", count=1) == [reply.ids(2)[0]]
    assert pulled(client, "a") == []
    assert work(client, "c") == [reply.ids(2)[1]]
    assert work(client, "a") == list(reply.ids(3))
    assert client.get_workflow(reply.id).state is WorkflowState.COMPLETED


def test_a_blocked_job_says_what_it_waits_for(client: Client):
    reply = client.push_workflow(diamond())
    last = reply.ids(3)[0]
    waits_for = (reply.ids(1)[0], reply.ids(2)[0])
    assert client.get_job(last).blocked_by == client.why(last).blocked_by == waits_for
    work(client, "a")
    work(client, "b")
    assert client.get_job(last).blocked_by == waits_for[1:]


def test_a_delay_counts_from_the_push_but_starts_no_job_early(world: ContractWorld):
    client = world.client
    reply = client.push_workflow(chain("a", "b", "c", delay_ms=5_000))
    world.advance(5_000)
    work(client, "a")
    assert states(client, [reply.ids(1)[0]]) == [State.WAITING]
    reply = client.push_workflow([Step("d", [b"d"]), Step("e", [b"e"] * 2, Options(delay_ms=5_000), [Edge(0)])])
    work(client, "d")
    assert states(client, reply.ids(1)) == [State.DELAYED] * 2
    world.advance(5_000)
    assert pulled(client, "e") == list(reply.ids(1))


def test_a_waiting_pull_is_served_when_a_step_is_let_go(client: Client):
    """The pull is there before the job may start."""
    reply = client.push_workflow([Step("a", [b"1"]), Step("b", [b"2"], after=[Edge(0)])])
    work(client, "a")
    assert list(client.pull("b", wait_ms=5_000).ids) == list(reply.ids(1))


def test_steps_may_stand_in_any_order(client: Client):
    reply = client.push_workflow([Step("last", [b""], after=[Edge(1)]), Step("first", [b""])])
    assert pulled(client, "last") == []
    work(client, "first")
    assert pulled(client, "last") == list(reply.ids(0))


def test_a_job_that_is_taken_out_of_its_batch_stays_in_its_step(client: Client):
    reply = client.push_workflow(diamond())
    first, second, third = reply.ids(1)
    client.change_priority(second, 5)
    client.update_payload(third, b"changed")
    assert states(client, [first, second, third]) == [State.BLOCKED] * 3
    work(client, "a")
    assert pulled(client, "b") == [second, first, third]


def test_a_group_runs_one_at_a_time_also_in_a_step(client: Client):
    steps = [Step("a", [b"1"]), Step("b", [b"2", b"3"], Options(group_id="g"), [Edge(0)])]
    reply = client.push_workflow(steps)
    work(client, "a")
    assert pulled(client, "b") == [reply.ids(1)[0]]


# --- failure -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "state", "outcome"),
    [
        ("fail", State.FAILED, WorkflowState.FAILED),
        ("cancel", State.CANCELLED, WorkflowState.FAILED),
        ("continue", State.COMPLETED, WorkflowState.COMPLETED),
    ],
)
def test_an_edge_says_what_a_failure_means(client: Client, policy: Any, state: State, outcome: WorkflowState):
    steps = [Step("a", [b"1", b"2"], ONCE), Step("b", [b"3", b"4"], after=[Edge(0, policy)])]
    reply = client.push_workflow(steps)
    first, second = client.pull("a", 2)
    client.fail(first.id, first.token, "broken")
    if policy == "continue":
        assert states(client, reply.ids(1)) == [State.BLOCKED] * 2, "all of the step have to end first"
    else:
        assert states(client, reply.ids(1)) == [state] * 2, "it is known at once that this cannot come out well"
        assert {client.get_job(job).reason for job in reply.ids(1)} == {"dependency_failed"}
    client.ack(second.id, second.token)
    work(client, "b")
    assert states(client, reply.ids(1)) == [state] * 2
    assert client.get_workflow(reply.id).state is outcome


def test_a_failure_reaches_every_descendant(client: Client):
    reply = client.push_workflow(chain("a", "b", "c", "d", max_attempts=1))
    work(client, "a", well=False)
    assert states(client, [job for n in range(4) for job in reply.ids(n)]) == [State.FAILED] * 4
    view = client.get_workflow(reply.id)
    assert (view.state, view.failed, view.remaining) == (WorkflowState.FAILED, 4, 0)


def test_a_failure_that_is_tolerated_does_not_fail_the_workflow(client: Client):
    steps = [Step("a", [b"1"], ONCE), Step("b", [b"2"], after=[Edge(0, "continue")]), Step("c", [b"3"])]
    reply = client.push_workflow(steps)
    work(client, "a", well=False)
    work(client, "b")
    assert client.get_workflow(reply.id).state is WorkflowState.RUNNING
    work(client, "c")
    view = client.get_workflow(reply.id)
    assert (view.state, view.failed, view.remaining) == (WorkflowState.COMPLETED, 1, 0)
    assert [step.state for step in view.steps] == ["failed", "completed", "completed"]


@pytest.mark.parametrize("how", ["cancel", "expire", "discard", "clean", "obliterate"])
def test_whatever_ends_a_job_badly_counts_as_its_failure(world: ContractWorld, how: str):
    client = world.client
    ttl = 1_000 if how == "expire" else 0
    reply = client.push_workflow([Step("a", [b"1"], Options(ttl_ms=ttl)), Step("b", [b"2"], after=[Edge(0)])])
    (first,) = reply.ids(0)
    if how == "cancel":
        client.cancel(first)
    elif how == "expire":
        world.advance(1_000)
    elif how == "discard":
        client.discard(first)
    elif how == "clean":
        client.clean("a", State.WAITING)
    else:
        client.obliterate("a")
    assert states(client, reply.ids(1)) == [State.FAILED]


def test_a_retried_delivery_is_no_failure(client: Client):
    reply = client.push_workflow(chain("a", "b"))
    client.fail(start(client, "a").id, delay_ms=0)
    assert states(client, reply.ids(1)) == [State.BLOCKED]
    work(client, "a")
    assert states(client, reply.ids(1)) == [State.WAITING]


def test_blocked_jobs_of_a_step_can_be_cleaned_away(client: Client):
    reply = client.push_workflow([Step("a", [b"1"]), Step("b", [b"2"] * 3, after=[Edge(0)])])
    assert list(client.clean("b", State.BLOCKED)) == list(reply.ids(1))
    work(client, "a")
    view = client.get_workflow(reply.id)
    assert (view.state, view.counts.cancelled) == (WorkflowState.FAILED, 3)


# --- results -------------------------------------------------------------------------------------


def test_a_job_reads_the_results_of_the_steps_before_it_in_order(client: Client):
    reply = client.push_workflow(diamond())
    for queue in ("a", "c", "b"):
        work(client, queue)
    (last,) = client.pull("a")
    found = client.get_inputs(last.id)
    ids = [*reply.ids(1), *reply.ids(2)]
    assert [one.id for one in found.inputs] == ids
    assert [one.result for one in found.inputs] == [b"result of %d" % job for job in ids]
    assert [one.step for one in found.inputs] == ["left"] * 3 + ["right"] * 2
    assert {one.state for one in found.inputs} == {State.COMPLETED}
    assert (found.total, found.next_after) == (5, None)


def test_results_are_read_in_pages(client: Client):
    reply = client.push_workflow(diamond())
    for queue in ("a", "b", "c"):
        work(client, queue)
    first = client.get_inputs(reply.ids(3)[0], limit=2)
    assert ([one.id for one in first.inputs], first.next_after) == ([*reply.ids(1)][:2], 2)
    second = client.get_inputs(reply.ids(3)[0], after=2, limit=2)
    assert [one.id for one in second.inputs] == [reply.ids(1)[2], reply.ids(2)[0]]
    third = client.get_inputs(reply.ids(3)[0], after=4, limit=2)
    assert ([one.id for one in third.inputs], third.next_after) == ([reply.ids(2)[1]], None)


def test_a_failed_input_says_so(client: Client):
    steps = [Step("a", [b"1"], ONCE), Step("b", [b"2"], after=[Edge(0, "continue")])]
    reply = client.push_workflow(steps)
    work(client, "a", well=False)
    (found,) = client.get_inputs(reply.ids(1)[0]).inputs
    assert (found.state, found.result, found.error) == (State.FAILED, None, "broken")


FORGOTTEN = Options(max_attempts=1, remove_on_complete=True, remove_on_fail=True)
"""Jobs that are gone with their end."""


def test_a_result_is_kept_for_the_steps_that_read_it(client: Client):
    steps = [
        Step("a", [b"1", b"2", b"3"], FORGOTTEN, key="many"),
        Step("b", [b"4"], FORGOTTEN, [Edge(0)]),
        Step("c", [b"5"], after=[Edge(0), Edge(1)]),
    ]
    reply = client.push_workflow(steps)
    many = client.pull("a", 10)
    client.ack_batch(many.ids, many.token, [b"one", None, b"three"])
    assert client.browse("a").jobs == []
    work(client, "b")
    first, second = [r.Input(job, "many", State.COMPLETED) for job in reply.ids(0)][:2]
    found = client.get_inputs(reply.ids(2)[0]).inputs
    assert found[1] == second
    assert [one.result for one in found] == [b"one", None, b"three", b"result of %d" % reply.ids(1)[0]]
    assert found[0] == msgspec.structs.replace(first, result=b"one")


def test_how_a_forgotten_job_failed_is_kept_for_the_steps_that_read_it(client: Client):
    reply = client.push_workflow([Step("a", [b"1"], FORGOTTEN), Step("b", [b"2"], after=[Edge(0, "continue")])])
    work(client, "a", well=False)
    (found,) = client.get_inputs(reply.ids(1)[0]).inputs
    assert (found.state, found.result, found.error) == (State.FAILED, None, "broken")


def test_a_result_that_retention_pushed_out_is_kept(make_world: MakeWorld):
    client = make_world(Settings(retention=Retention(completed_count=2))).client
    reply = client.push_workflow([Step("a", [b"x"] * 5), Step("b", [b"y"], after=[Edge(0)])])
    work(client, "a")
    for _ in range(3):  # others of the queue push the rest out
        client.push("a", b"z")
        work(client, "a")
    found = client.get_inputs(reply.ids(1)[0]).inputs
    assert [one.result for one in found] == [b"result of %d" % job for job in reply.ids(0)]


def test_a_result_that_grew_old_is_kept_until_a_workflow_has_ended_well(world: ContractWorld):
    client = world.client
    reply = client.push_workflow([Step("a", [b"1"]), Step("b", [b"2"], after=[Edge(0)])])
    work(client, "a")
    world.advance(DAY_MS)
    (job,) = client.pull("b")
    (found,) = client.get_inputs(job.id).inputs
    assert (found.state, found.result) == (State.COMPLETED, b"result of %d" % reply.ids(0)[0])
    client.ack(job.id, job.token)
    assert client.get_inputs(job.id).inputs == [r.Input(reply.ids(0)[0], "0")]


def test_a_workflow_that_is_retried_finds_the_results_of_forgotten_jobs(world: ContractWorld):
    client = world.client
    reply = client.push_workflow([Step("a", [b"1"], FORGOTTEN), Step("b", [b"2"], ONCE, [Edge(0)])])
    work(client, "a")
    work(client, "b", well=False)
    world.advance(HOUR_MS)
    client.retry_workflow(reply.id)
    (job,) = client.pull("b")
    assert [one.result for one in client.get_inputs(job.id).inputs] == [b"result of %d" % reply.ids(0)[0]]


def test_a_running_job_of_a_cancelled_workflow_still_reads_its_inputs(client: Client):
    reply = client.push_workflow([Step("a", [b"1"], FORGOTTEN), Step("b", [b"2"], ONCE, [Edge(0)])])
    work(client, "a")
    job = start(client, "b")
    client.cancel_workflow(reply.id)
    assert [one.result for one in client.get_inputs(job.id).inputs] == [b"result of %d" % reply.ids(0)[0]]
    client.fail(job.id, job.token)
    assert client.get_workflow(reply.id).finished_at


def test_results_that_are_too_much_to_keep_are_gone_with_their_jobs(make_world: MakeWorld):
    """The oldest workflow that has ended makes room; of those that run, the oldest."""
    client = make_world(limits=Limits(workflow_results_bytes_max=1_000)).client
    steps = [Step("a", [b"1"], FORGOTTEN), Step("b", [b"2"], ONCE, [Edge(0)])]
    first, second, third = [client.push_workflow(steps) for _ in range(3)]

    def returned(reply: r.PushedWorkflow) -> bytes | None:
        (found,) = client.get_inputs(reply.ids(1)[0]).inputs
        assert (found.state is None) == (found.result is None)
        return found.result

    for reply in (first, second):
        (job,) = client.pull("a")
        client.ack(job.id, job.token, result=b"x" * 250)
        assert returned(reply) == b"x" * 250
    client.cancel(second.ids(1)[0])
    (job,) = client.pull("a")
    client.ack(job.id, job.token, result=b"y" * 250)
    assert [returned(one) for one in (first, second, third)] == [b"x" * 250, None, b"y" * 250]
    fourth = client.push_workflow(steps)
    (job,) = client.pull("a")
    client.ack(job.id, job.token, result=b"z" * 250)
    assert [returned(one) for one in (first, third, fourth)] == [None, b"y" * 250, b"z" * 250]


def test_an_obliterated_queue_leaves_no_results_behind(client: Client):
    reply = client.push_workflow([Step("a", [b"1", b"2"], FORGOTTEN), Step("b", [b"3"], after=[Edge(0)])])
    work(client, "a")
    client.obliterate("a")
    assert client.get_inputs(reply.ids(1)[0]).inputs == [r.Input(job, "0") for job in reply.ids(0)]


def test_a_page_of_results_is_no_larger_than_a_reply_may_be(make_world: MakeWorld):
    client = make_world(limits=Limits(reply_bytes_max=100)).client
    reply = client.push_workflow([Step("a", [b"x"] * 4), Step("b", [b"y"], after=[Edge(0)])])
    delivery = client.pull("a", 4)
    client.ack_batch(delivery.ids, delivery.token, [b"1" * 60, b"2" * 40, b"3", b"4" * 500])
    found: list[tuple[int, int | None]] = []
    after: int | None = 0
    while after is not None:
        page = client.get_inputs(reply.ids(1)[0], after=after)
        after = page.next_after
        found.append((len(page.inputs), after))
        assert page.total == 4
    assert found == [(2, 2), (1, 3), (1, None)]


def test_a_job_with_edges_of_its_own_reads_results_too(client: Client):
    first = client.push("a", b"1").id
    second = client.push("b", b"2", depends_on=(Dependency(first),)).id
    work(client, "a")
    (found,) = client.get_inputs(second).inputs
    assert (found.id, found.result) == (first, b"result of %d" % first)
    assert client.get_inputs(first) == r.Inputs([], None, 0)


def test_inputs_of_a_job_that_never_was_are_not_found(world: ContractWorld):
    check_refused(world, NotFound, c.GetInputs(NEVER))


# --- open steps ----------------------------------------------------------------------------------


def fan_out() -> list[Step]:
    return [
        Step("a", [b"list"], ONCE, key="list"),
        Step("b", options=ONCE, after=[Edge(0)], key="each", open=True),
        Step("c", [b"sum"], ONCE, [Edge(1)], key="sum"),
    ]


def test_a_running_job_makes_the_jobs_of_an_open_step(client: Client):
    reply = client.push_workflow(fan_out())
    assert reply.steps[1] == (0, 0)
    job = start(client, "a")
    assert client.fill_step(job.id, "each", [b"1", b"2", b"3"], job.token) == 3
    step = client.get_workflow(reply.id).steps[1]
    assert (step.count, step.state, step.counts.blocked) == (3, "blocked", 3)
    assert pulled(client, "b") == []
    client.ack(job.id, job.token)
    assert len(work(client, "b")) == 3
    (last,) = client.pull("c")
    assert len(client.get_inputs(last.id).inputs) == 3


def test_the_first_filling_counts(client: Client):
    reply = client.push_workflow(fan_out())
    job = start(client, "a")
    client.fill_step(job.id, "each", [b"1", b"2"])
    client.fill_step(job.id, "each", [b"1", b"2", b"3"])
    assert client.get_workflow(reply.id).steps[1].count == 2


def test_an_open_step_that_nobody_fills_has_no_jobs(client: Client):
    reply = client.push_workflow(fan_out())
    work(client, "a")
    assert work(client, "c") == list(reply.ids(2))
    assert client.get_workflow(reply.id).state is WorkflowState.COMPLETED


def test_an_open_step_fails_with_the_step_before_it(client: Client):
    reply = client.push_workflow(fan_out())
    work(client, "a", well=False)
    assert states(client, reply.ids(2)) == [State.FAILED]
    assert client.get_workflow(reply.id).state is WorkflowState.FAILED


def test_only_a_running_job_of_a_step_right_before_it_may_fill_one(world: ContractWorld):
    client = world.client
    reply = client.push_workflow(fan_out())
    alone = client.push("d", b"").id
    check_refused(world, WrongState, c.FillStep(reply.ids(0)[0], "each", [b"1"]))
    job = start(client, "a")
    check_refused(world, LostLease, c.FillStep(job.id, "each", [b"1"], job.token + 1))
    check_refused(world, NotFound, c.FillStep(job.id, "sum", [b"1"], job.token))
    check_refused(world, NotFound, c.FillStep(job.id, "other", [b"1"], job.token))
    check_refused(world, NotFound, c.FillStep(NEVER, "each", [b"1"]))
    start(client, "d")
    check_refused(world, WrongState, c.FillStep(alone, "each", [b"1"]))


# --- cancelling and retrying -----------------------------------------------------------------------


def test_cancelling_reaches_every_job(client: Client):
    reply = client.push_workflow(diamond())
    work(client, "a")
    running = start(client, "b")
    view = client.cancel_workflow(reply.id)
    assert view.state is WorkflowState.CANCELLED
    left = [job for n in (1, 2, 3) for job in reply.ids(n) if job != running.id]
    assert states(client, left) == [State.CANCELLED] * 5
    assert list(client.execute(c.Extend([running.id], running.token)).cancelled) == [running.id]
    client.fail(running.id, running.token)
    view = client.get_workflow(reply.id)
    assert (view.state, view.remaining, bool(view.finished_at)) == (WorkflowState.CANCELLED, 0, True)


def test_a_cancelled_workflow_starts_nothing_more(client: Client):
    reply = client.push_workflow(fan_out())
    job = start(client, "a")
    client.cancel_workflow(reply.id)
    client.fill_step(job.id, "each", [b"1"], job.token)
    client.ack(job.id, job.token)
    assert pulled(client, ["a", "b", "c"]) == []
    assert client.cancel_workflow(reply.id).state is WorkflowState.CANCELLED, "once more changes nothing"


def test_what_has_ended_cannot_be_cancelled(world: ContractWorld):
    reply = world.client.push_workflow([Step("a", [b"1"])])
    work(world.client, "a")
    check_refused(world, WrongState, c.CancelWorkflow(reply.id))
    check_refused(world, NotFound, c.CancelWorkflow(NEVER))


def test_a_workflow_is_retried_from_the_step_that_failed(client: Client):
    reply = client.push_workflow(diamond())
    work(client, "a")
    work(client, "c")
    first, *others = client.pull("b", 3)
    client.fail(first.id, first.token, "broken")
    for job in others:
        client.ack(job.id, job.token)
    assert client.get_workflow(reply.id).state is WorkflowState.FAILED
    view = client.retry_workflow(reply.id)
    assert (view.state, view.retries) == (WorkflowState.RUNNING, 1)
    assert states(client, reply.ids(3)) == [State.BLOCKED], "it waits for the step that failed, as before"
    assert work(client, "b") == [first.id]
    assert work(client, "a") == list(reply.ids(3))
    assert client.get_workflow(reply.id).state is WorkflowState.COMPLETED


def test_a_retry_may_fail_again(client: Client):
    reply = client.push_workflow(chain("a", "b", "c", max_attempts=1))
    for _ in range(3):
        work(client, "a", well=False)
        assert client.get_workflow(reply.id).state is WorkflowState.FAILED
        assert states(client, [job for n in range(3) for job in reply.ids(n)]) == [State.FAILED] * 3
        client.retry_workflow(reply.id)
    work(client, "a")
    assert states(client, reply.ids(1)) == [State.WAITING]
    assert client.get_workflow(reply.id).retries == 3


def test_what_cannot_be_retried_fails_again_at_once(client: Client):
    reply = client.push_workflow(chain("a", "b", max_attempts=1))
    work(client, "a", well=False)
    client.purge_dead("a")
    view = client.retry_workflow(reply.id)
    assert view.state is WorkflowState.FAILED
    assert states(client, reply.ids(1)) == [State.FAILED]


def test_there_must_be_something_to_retry(world: ContractWorld):
    client = world.client
    reply = client.push_workflow(chain("a", "b"))
    check_refused(world, WrongState, c.RetryWorkflow(reply.id))
    client.cancel_workflow(reply.id)
    check_refused(world, WrongState, c.RetryWorkflow(reply.id))
    check_refused(world, NotFound, c.RetryWorkflow(NEVER))


def test_a_dead_letter_that_is_retried_by_hand_ends_its_step_well(client: Client):
    reply = client.push_workflow([Step("a", [b"1"], ONCE), Step("b", [b"2"], after=[Edge(0, "continue")])])
    work(client, "a", well=False)
    client.retry_dead("a", [reply.ids(0)[0]])
    assert client.get_workflow(reply.id).steps[0].state == "running"
    work(client, "a")
    work(client, "b")
    view = client.get_workflow(reply.id)
    assert (view.state, view.failed) == (WorkflowState.COMPLETED, 0)


# --- looking -------------------------------------------------------------------------------------


def test_a_workflow_says_how_far_it_is(world: ContractWorld):
    client = world.client
    reply = client.push_workflow(diamond(), name="nightly")
    work(client, "a")
    start(client, "b")
    view = client.get_workflow(reply.id)
    assert (view.id, view.name, view.state, view.pushed_at) == (reply.id, "nightly", "running", world.now)
    assert (view.total, view.remaining, view.failed, view.percent) == (7, 6, 0, 14)
    assert view.counts == r.Counts(waiting=4, blocked=1, active=1, completed=1)
    assert [step.state for step in view.steps] == ["completed", "running", "running", "blocked"]
    assert [(step.key, step.queue) for step in view.steps] == [
        ("root", "a"),
        ("left", "b"),
        ("right", "c"),
        ("join", "a"),
    ]
    assert view.steps[3].after == (Edge(1), Edge(2))
    assert (view.steps[1].first, view.steps[1].count) == reply.steps[1]
    assert view.steps[1].counts == r.Counts(waiting=2, active=1)


def test_steps_show_the_kind_of_their_jobs(client: Client):
    reply = client.push_workflow([Step("a", [b"1"], Options(name="extract"))])
    assert client.get_workflow(reply.id).steps[0].name == "extract"


def test_workflows_are_listed_newest_first(client: Client):
    first = client.push_workflow(chain("a"), name="one").id
    second = client.push_workflow(chain("a", "b"), name="two").id
    work(client, "a", count=1)
    page = client.list_workflows()
    assert [(one.id, one.name, one.state) for one in page.workflows] == [
        (second, "two", WorkflowState.RUNNING),
        (first, "one", WorkflowState.COMPLETED),
    ]
    assert (page.workflows[0].steps, page.workflows[0].ended) == (2, 0)
    assert [one.id for one in client.list_workflows(WorkflowState.COMPLETED).workflows] == [first]
    assert [one.id for one in client.list_workflows(name="two").workflows] == [second]
    page = client.list_workflows(limit=1)
    assert (page.workflows[0].id, page.next_after) == (second, second)
    page = client.list_workflows(limit=1, after=page.next_after)
    assert (page.workflows[0].id, page.next_after) == (first, None)


def test_a_list_asks_for_states_that_there_are(world: ContractWorld):
    check_refused(world, (InvalidRequest,), c.ListWorkflows("asleep"))  # type: ignore[arg-type]
    check_refused(world, (InvalidRequest, LimitExceeded), c.ListWorkflows(limit=0))


def test_jobs_can_be_browsed_by_workflow(client: Client):
    reply = client.push_workflow(chain("a", "b"))
    client.push("a", b"other")
    found = client.browse(workflow=reply.id, ascending=True)
    assert sorted(job.id for job in found.jobs) == sorted([*reply.ids(0), *reply.ids(1)])


def test_events_name_the_workflow_and_the_parent(client: Client):
    steps = [Step("a", [b"1"], parent=1), Step("b", [b"2"], after=[Edge(0)])]
    reply = client.push_workflow(steps)
    work(client, "a")
    (first,), (second,) = reply.ids(0), reply.ids(1)
    events = [event for event in all_events(client) if event.job]
    assert {event.workflow for event in events} == {reply.id}
    assert {event.parent_id for event in events if event.job == first} == {second}
    assert story(client, first) == ["pushed", "started", "completed"]
    assert story(client, second) == ["pushed", "unblocked"]


def test_a_workflow_is_forgotten_with_its_jobs(world: ContractWorld):
    reply = world.client.push_workflow(chain("a"))
    work(world.client, "a")
    world.advance(HOUR_MS - 1)
    assert world.client.get_workflow(reply.id).state is WorkflowState.COMPLETED
    world.advance(1)
    check_refused(world, NotFound, c.GetWorkflow(reply.id))
    assert world.client.list_workflows().workflows == []


def test_a_failed_workflow_is_kept_as_long_as_dead_letters(world: ContractWorld):
    reply = world.client.push_workflow(chain("a", max_attempts=1))
    work(world.client, "a", well=False)
    world.advance(7 * DAY_MS - 1)
    assert world.client.get_workflow(reply.id).state is WorkflowState.FAILED
    world.advance(1)
    check_refused(world, NotFound, c.GetWorkflow(reply.id))


def test_of_ended_workflows_the_latest_are_kept(make_world: MakeWorld):
    client = make_world(Settings(retention=Retention(completed_count=2))).client
    ids = []
    for _ in range(3):
        ids.append(client.push_workflow(chain("a")).id)
        work(client, "a")
    assert [one.id for one in client.list_workflows().workflows] == ids[:0:-1]


def test_a_workflow_belongs_to_its_tenant(world: ContractWorld):
    reply = world.client.push_workflow(chain("a", "b"))
    for command in (c.GetWorkflow(reply.id), c.CancelWorkflow(reply.id), c.GetInputs(reply.ids(1)[0])):
        check_refused(world, NotFound, command, tenant="acme")
    assert world.client_for("acme").list_workflows().workflows == []


# --- sending again ---------------------------------------------------------------------------------


def test_a_workflow_with_a_key_is_pushed_once(client: Client):
    first = client.push_workflow(diamond(), request_key="today")
    second = client.push_workflow(diamond(), request_key="today")
    assert (second.id, second.created) == (first.id, False)
    assert [tuple(step) for step in second.steps] == [tuple(step) for step in first.steps]
    assert client.get_stats().totals.pushed == 7
    assert client.push_workflow(diamond(), request_key="tomorrow").created
    assert client.push_batch("a", [b"x"], request_key="today").created, "a batch has keys of its own"


@pytest.mark.parametrize("level", ["memory", "commit", "fsync"])
def test_a_workflow_may_ask_for_a_level(client: Client, level: Any):
    assert client.push_workflow(chain("a", "b"), durability=level).level in ("memory", "commit", "fsync")


# --- bad input -------------------------------------------------------------------------------------

X = [b"x"]
BAD: list[tuple[Any, list[Step], str]] = [
    (InvalidRequest, [], "at least one"),
    (InvalidRequest, [Step("a")], "payloads"),
    (InvalidRequest, [Step("not a name", X)], "step 0"),
    (InvalidRequest, [Step("a", X, key="k"), Step("a", X, key="k")], "'k'"),
    (InvalidRequest, [Step("a", X, key="7")], "number"),
    (InvalidRequest, [Step("a", X, Options(delay_ms=-1), key="first")], "first"),
    (InvalidRequest, [Step("a", X, Options(unique_key="u"))], "unique_key"),
    (InvalidRequest, [Step("a", X, Options(custom_id="u"))], "custom_id"),
    (InvalidRequest, [Step("a", X, Options(debounce_id="u"))], "debounce_id"),
    (InvalidRequest, [Step("a", X, Options(depends_on=(Dependency(64),)))], "depends_on"),
    (InvalidRequest, [Step("a", X, Options(workflow=64))], "workflow"),
    (InvalidRequest, [Step("a", X, open=True)], "open"),
    (InvalidRequest, [Step("a", X), Step("a", X, after=[Edge(0)], open=True)], "open"),
    (InvalidRequest, [Step("a", X), Step("a", X, after=[Edge(0), Edge(0)])], "twice"),
    (InvalidRequest, [Step("a", X), Step("a", X, after=[Edge(0, "hope")])], "on_failure"),  # type: ignore[arg-type]
    (UnknownDependency, [Step("a", X), Step("a", X, after=[Edge(2)], key="b")], "step 1 (b): edge to step 2"),
    (UnknownDependency, [Step("a", X, after=[Edge(-1)])], "edge to step -1"),
    (UnknownDependency, [Step("a", X, parent=1)], "parent 1"),
    (DependencyCycle, [Step("a", X, after=[Edge(0)])], "step 0"),
    (
        DependencyCycle,
        [
            Step("a", X),
            Step("a", X, after=[Edge(0), Edge(3)], key="p"),
            Step("a", X, after=[Edge(1)], key="q"),
            Step("a", X, after=[Edge(2)], key="r"),
            Step("a", X, after=[Edge(3)], key="behind"),
        ],
        "-> ",
    ),
]


def test_a_bad_graph_is_refused_whole_and_says_where(world: ContractWorld):
    before = picture(world.client)
    for error, steps, word in BAD:
        with pytest.raises((error, InvalidRequest)) as refusal:
            world.client.push_workflow(steps)
        assert word in refusal.value.message, steps
    assert picture(world.client) == before


def test_a_circle_is_named_step_by_step(world: ContractWorld):
    refusal = check_refused(world, DependencyCycle, c.PushWorkflow(BAD[-1][1]))
    assert all(f"({key})" in refusal.message for key in "pqr")
    assert "behind" not in refusal.message


def test_a_graph_over_a_limit_is_refused_whole(make_world: MakeWorld):
    limits = Limits(workflow_jobs_max=4, workflow_steps_max=3, workflow_edges_max=2, workflows_per_tenant_max=2)
    world = make_world(limits=limits)
    check_refused(world, LimitExceeded, c.PushWorkflow([Step("a", [b""] * 5)]))
    check_refused(world, LimitExceeded, c.PushWorkflow(chain("a", "b", "c", "d")))
    many = [Step("a", X), Step("a", X, after=[Edge(0)]), Step("a", X, after=[Edge(0), Edge(1)])]
    check_refused(world, LimitExceeded, c.PushWorkflow(many))
    world.client.push_workflow(chain("a", "b", "c"))
    world.client.push_workflow([Step("a", [b""] * 4)])
    check_refused(world, LimitExceeded, c.PushWorkflow(chain("a")))


def test_a_payload_over_the_limit_is_named(make_world: MakeWorld):
    world = make_world(limits=Limits(payload_bytes_max=10))
    refusal = check_refused(world, LimitExceeded, c.PushWorkflow([Step("a", [b"", b"x" * 11], key="big")]))
    assert "step 0 (big)" in refusal.message
    assert "job 1" in refusal.message


def test_a_workflow_may_not_make_one_queue_too_many(make_world: MakeWorld):
    world = make_world(limits=Limits(queues_per_tenant_max=2))
    world.client.push("a", b"")
    check_refused(world, LimitExceeded, c.PushWorkflow(chain("a", "b", "c")))
    assert world.client.push_workflow(chain("a", "b")).created


# --- over several shards -----------------------------------------------------------------------------
# Where these live in several processes, what follows from an end in another shard comes a moment later.

SOON = 5_000


def test_a_workflow_over_several_shards(make_world: MakeWorld):
    client = make_world(shards=8).client
    reply = client.push_workflow([*diamond(), Step("d", [b"after"], ONCE, [Edge(3)])])
    shards = {job & 63 for number in range(5) for job in reply.ids(number)}
    assert len(shards) > 1, "the test is about several"
    for queue in ("a", "b", "c", "a"):
        assert work(client, queue, wait_ms=SOON)
    (last,) = client.pull("d", wait_ms=SOON)
    assert [one.id for one in client.get_inputs(last.id).inputs] == list(reply.ids(3))
    client.ack(last.id, last.token)
    client.wait_job(last.id, SOON)
    view = ended(client, reply.id)
    assert (view.state, view.total, view.remaining) == (WorkflowState.COMPLETED, 8, 0)
    assert [one.id for one in client.list_workflows().workflows] == [reply.id]


def test_results_are_kept_over_several_shards(make_world: MakeWorld):
    client = make_world(shards=8).client
    steps = [msgspec.structs.replace(step, options=FORGOTTEN) for step in diamond()[:3]]
    reply = client.push_workflow([*steps, diamond()[3]])
    for queue in ("a", "b", "c"):
        assert work(client, queue, wait_ms=SOON)
    (last,) = client.pull("a", wait_ms=SOON)
    ids = [*reply.ids(1), *reply.ids(2)]
    assert [one.result for one in client.get_inputs(last.id).inputs] == [b"result of %d" % job for job in ids]
    client.ack(last.id, last.token)
    ended(client, reply.id)
    for _ in range(500):  # the shards of the steps before it hear of it, too
        if client.get_inputs(last.id).inputs == [
            r.Input(job, step) for job, step in zip(ids, ["left"] * 3 + ["right"] * 2, strict=True)
        ]:
            return
    raise AssertionError("kept for nobody")


def test_failing_retrying_and_cancelling_over_several_shards(make_world: MakeWorld):
    client = make_world(shards=8).client
    reply = client.push_workflow(diamond())
    work(client, "a")
    work(client, "b", well=False, wait_ms=SOON)
    work(client, "c", wait_ms=SOON)
    assert client.wait_job(reply.ids(3)[0], SOON).state is State.FAILED
    assert ended(client, reply.id).state is WorkflowState.FAILED
    client.retry_workflow(reply.id)
    assert states(client, reply.ids(3)) == [State.BLOCKED]
    work(client, "b", wait_ms=SOON)
    (last,) = client.pull("a", wait_ms=SOON)
    client.release(last.id, last.token)
    client.cancel_workflow(reply.id)
    assert states(client, reply.ids(3)) == [State.CANCELLED]


def test_open_steps_over_several_shards(make_world: MakeWorld):
    client = make_world(shards=8).client
    reply = client.push_workflow(fan_out())
    job = start(client, "a")
    client.fill_step(job.id, "each", [b"1", b"2"], job.token)
    client.ack(job.id, job.token)
    ids = work(client, "b", wait_ms=SOON)
    assert len(ids) == 2
    (last,) = client.pull("c", wait_ms=SOON)
    assert [one.id for one in client.get_inputs(last.id).inputs] == ids
    client.ack(last.id, last.token)
    assert ended(client, reply.id).state is WorkflowState.COMPLETED


def ended(client: Client, workflow: int) -> r.WorkflowView:
    """The workflow once its home has heard of the end of all its steps."""
    for _ in range(500):
        view = client.get_workflow(workflow)
        if view.finished_at:
            return view
    raise AssertionError(f"workflow {workflow} never ended")
