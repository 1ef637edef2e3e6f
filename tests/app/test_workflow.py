"""Graphs of an app's jobs: how they are written, what the queue gets, and what comes out."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from stoker import (
    App,
    Context,
    Input,
    Inputs,
    JobFailed,
    ResultTimeout,
    Retention,
    Settings,
    Workflow,
    chain,
    group,
    workflow,
)
from stoker.app.workflow import WorkflowRun
from stoker.brokers.local import LocalSettings
from stoker.model.errors import InvalidRequest, NotFound
from stoker.model.limits import Limits
from stoker.model.workflows import Edge, Step, WorkflowState
from tests.app.kinds import Address


@pytest.fixture
def jobs(app: App) -> Any:
    """Some kinds of jobs, as attributes."""

    class Jobs: ...

    @app.job
    def number(n: int) -> int:
        return n

    @app.job(queue="sums")
    async def add(numbers: list[int] = Inputs(), *, to: int = 0) -> int:
        return sum(numbers) + to

    @app.job
    def double(n: int = Input()) -> int:
        return 2 * n

    @app.job
    def numbers(up_to: int) -> list[int]:
        return list(range(up_to))

    @app.job
    async def square(n: int, *, plus: int = 0) -> int:
        return n * n + plus

    @app.job(max_attempts=1)
    def explode(n: int = 0) -> int:
        raise ValueError(f"no {n}")

    for job_type in (number, add, double, numbers, square, explode):
        setattr(Jobs, job_type.name, job_type)
    return Jobs


def run(app: App, flow: Any) -> WorkflowRun:
    pushed = workflow(flow).push_sync()
    app.worker(registered=False).run_until_idle()
    return pushed


# --- what the queue gets -----------------------------------------------------------------------------


def drawn(flow: Any) -> list[tuple[str, int, list[int]]]:
    """Key, number of jobs, and the steps that it comes after."""
    return [(step.key, len(step.payloads), [edge.step for edge in step.after]) for step in workflow(flow).steps()]


def test_a_chain_has_its_steps_one_after_another(jobs: Any):
    expected = [("number", 1, []), ("double", 1, [0]), ("double-2", 1, [1])]
    assert drawn(jobs.number.s(1) >> jobs.double.s() >> jobs.double.s()) == expected
    assert drawn(chain(jobs.number.s(1), jobs.double.s(), jobs.double.s())) == expected
    assert drawn(jobs.number.s(1) >> (jobs.double.s() >> jobs.double.s())) == expected


def test_a_group_has_its_steps_side_by_side(jobs: Any):
    expected = [("number", 1, []), ("double", 1, [0]), ("explode", 1, [0]), ("add", 1, [1, 2])]
    assert drawn(jobs.number.s(1) >> group(jobs.double.s(), jobs.explode.s()) >> jobs.add.s()) == expected
    assert drawn(jobs.number.s(1) >> [jobs.double.s(), jobs.explode.s()] >> jobs.add.s()) == expected
    assert drawn([jobs.double.s(), jobs.explode.s()] >> jobs.add.s())[-1] == ("add", 1, [0, 1])


def test_calls_that_differ_in_their_arguments_alone_are_one_step(jobs: Any):
    assert drawn(group(jobs.number.s(n) for n in range(1_000)) >> jobs.add.s()) == [
        ("number", 1_000, []),
        ("add", 1, [0]),
    ]
    mixed = group(jobs.number.s(1), jobs.number.s(2).options(priority=3), jobs.number.s(3))
    assert [count for _, count, _ in drawn(mixed)] == [2, 1]


def test_chains_may_stand_side_by_side(jobs: Any):
    flow = group(jobs.number.s(1) >> jobs.double.s(), jobs.number.s(2)) >> jobs.add.s()
    assert drawn(flow) == [("number", 1, []), ("double", 1, [0]), ("number-2", 1, []), ("add", 1, [1, 2])]


def test_a_step_has_the_queue_and_the_options_of_its_job(jobs: Any):
    first, second = workflow(jobs.number.s(7).options(priority=3) >> jobs.add.s(to=5).named("sum")).steps()
    assert (first.queue, first.options.priority, first.options.name) == ("default", 3, "number")
    assert msgspec.msgpack.decode(first.payloads[0]) == {"n": 7}
    assert (second.queue, second.key) == ("sums", "sum")
    assert msgspec.msgpack.decode(second.payloads[0]) == {"to": 5}


def test_a_policy_is_about_what_comes_before(jobs: Any):
    flow = jobs.explode.s() >> (jobs.number.s(1) >> jobs.double.s()).on_failure("continue") >> jobs.add.s()
    policies = [[edge.on_failure for edge in step.after] for step in workflow(flow).steps()]
    assert policies == [[], ["continue"], ["fail"], ["fail"]]
    flow = jobs.explode.s() >> group(jobs.number.s(1), jobs.number.s(2).on_failure("cancel")).on_failure("continue")
    assert [step.after for step in workflow(flow).steps()[1:]] == [(Edge(0, "continue"),), (Edge(0, "cancel"),)]


def test_any_graph_can_be_written_step_by_step(jobs: Any):
    flow = Workflow(name="diamond")
    top = flow.add(jobs.number.s(1))
    left = flow.add(jobs.double.s(), after=top)
    right = flow.add(jobs.explode.s(), after=top)
    flow.add(jobs.add.s(), after=[left, right], on_failure="continue")
    steps: list[Step] = flow.steps()
    assert [[edge.step for edge in step.after] for step in steps] == [[], [0], [0], [1, 2]]
    assert steps[3].after[0].on_failure == "continue"
    assert repr(flow) == "<Workflow diamond of 4 steps>"


def test_a_map_is_a_step_that_is_filled_while_it_runs(jobs: Any):
    numbers, between, squares, _ = workflow(jobs.numbers.s(3) >> jobs.square.map() >> jobs.add.s()).steps()
    assert (between.options.name, between.queue, between.open) == ("stoker.map", "default", False)
    assert (squares.key, squares.open, squares.payloads) == ("square", True, [])
    assert squares.options.name == "square"
    assert not numbers.open


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda jobs: workflow().steps(), "the workflow is empty"),
        (lambda jobs: group(), r"group\(\) is empty"),
        (lambda jobs: chain(), r"chain\(\) is empty"),
        (lambda jobs: jobs.number.s(1) >> 5, "5 is not a piece of a workflow"),
        (lambda jobs: group(jobs.number.s(1), cast(Any, "x")), "'x' is not a piece of a workflow"),
        (lambda jobs: jobs.number.s(1) >> jobs.double, "is not a piece of a workflow: expected a step"),
        (lambda jobs: workflow(jobs.square.map()), "square.map.. has nothing before it"),
    ],
)
def test_what_is_no_workflow_says_so(jobs: Any, write: Any, told: str):
    with pytest.raises(InvalidRequest, match=told):
        write(jobs)


def test_a_map_must_leave_one_argument_open(jobs: Any):
    with pytest.raises(TypeError, match="square: got an unexpected keyword argument 'by'"):
        jobs.square.map(by=2)
    with pytest.raises(TypeError, match="numbers: multiple values for argument 'up_to'"):
        jobs.numbers.map(up_to=2)


def test_a_workflow_has_jobs_of_one_app(jobs: Any):
    with App("memory://") as other:
        stranger = other.job(name="stranger")(lambda: None)
        with pytest.raises(InvalidRequest, match="stranger belongs to another app"):
            workflow(jobs.number.s(1) >> stranger.s())


def test_nodes_can_be_shown(jobs: Any):
    flow = jobs.number.s(1) >> group(jobs.square.map(plus=1), jobs.double.s()) >> jobs.add.s()
    assert repr(flow) == "number.s(1) >> group(square.map(plus=1), double.s()) >> add.s()"


# --- what comes out ----------------------------------------------------------------------------------


def test_results_go_from_step_to_step(app: App, jobs: Any):
    assert run(app, jobs.number.s(3) >> jobs.double.s() >> jobs.double.s()).result_sync(5) == 12


def test_a_fan_in_gets_all_results_in_order(app: App, jobs: Any):
    @app.job
    def collect(numbers: list[int] = Inputs()) -> list[int]:
        return numbers

    flow = group(group(jobs.number.s(n) for n in range(5)), jobs.number.s(9).options(priority=-1)) >> collect.s()
    assert run(app, flow).result_sync(5) == [0, 1, 2, 3, 4, 9]


def test_inputs_have_the_type_of_the_parameter(app: App):
    @app.job
    def address(street: str) -> Address:
        return Address(street, 1)

    @app.job
    def streets(them: list[Address] = Inputs(), ctx: Context | None = None) -> list[str]:
        assert ctx is not None
        return [one.street for one in them]

    assert run(app, group(address.s("a"), address.s("b")) >> streets.s()).result_sync(5) == ["a", "b"]


def test_a_map_has_a_job_for_each_element(app: App, jobs: Any):
    pushed = run(app, jobs.numbers.s(4) >> jobs.square.map(plus=1) >> jobs.add.s(to=100))
    assert pushed.result_sync(5) == 100 + 1 + 2 + 5 + 10
    assert [job.result_sync() for job in pushed.jobs_sync("square")] == [1, 2, 5, 10]


def test_a_map_needs_no_asynchronous_handler_beside_it(app: App):
    @app.job(queue="one")
    def numbers() -> list[int]:
        return [1, 2, 3]

    @app.job(queue="two")
    def cube(n: int) -> int:
        return n**3

    assert run(app, numbers.s() >> cube.map()).result_sync(5) == [1, 8, 27]


def test_a_workflow_that_ends_in_several_jobs_has_a_list(app: App, jobs: Any):
    assert run(app, jobs.numbers.s(3) >> jobs.square.map()).result_sync(5) == [0, 1, 4]
    assert run(app, jobs.numbers.s(0) >> jobs.square.map()).result_sync(5) == []
    assert run(app, [jobs.number.s(1), jobs.number.s(2)]).result_sync(5) == [1, 2]


def test_a_map_over_something_that_is_no_list_fails_and_says_so(app: App, jobs: Any):
    with pytest.raises(JobFailed, match="returned int: expected a list"):
        run(app, jobs.number.s(3) >> jobs.square.map()).result_sync(5)


def test_a_failure_is_told_with_the_job_that_is_to_blame(app: App, jobs: Any):
    pushed = run(app, group(jobs.number.s(1), jobs.explode.s(7)) >> jobs.add.s())
    assert pushed.wait_sync(5) is WorkflowState.FAILED
    with pytest.raises(JobFailed, match=r"\(explode\) has failed after 1 attempt .*ValueError: no 7") as caught:
        pushed.result_sync(5)
    assert caught.value.error_class == "ValueError"


def test_a_step_may_go_on_with_what_is_there(app: App, jobs: Any):
    @app.job
    def count(them: list[Any] = Inputs()) -> list[str]:
        return [type(one).__name__ for one in them]

    flow = group(jobs.number.s(1), jobs.explode.s()) >> count.s().on_failure("continue")
    assert run(app, flow).result_sync(5) == ["int", "JobFailed"]


def test_one_input_is_one(app: App, jobs: Any):
    with pytest.raises(JobFailed, match=r"comes after 2 jobs: Input\(\) takes exactly one, use Inputs\(\)"):
        run(app, [jobs.number.s(1), jobs.number.s(2)] >> jobs.double.s()).result_sync(5)
    alone = jobs.double.push_sync()
    app.worker(registered=False).run_until_idle()
    with pytest.raises(JobFailed, match="comes after 0 jobs"):
        alone.result_sync(5)


def test_a_result_that_is_not_kept_does_not_pass_for_none():
    settings = LocalSettings(limits=Limits(workflow_results_bytes_max=100))
    with App("memory://", settings=settings) as small:

        @small.job(remove_on_complete=True)
        def much() -> str:
            return "x" * 200

        @small.job(max_attempts=1)
        def length(text: str = Input()) -> int:
            return len(text)

        with pytest.raises(JobFailed, match=r"the result of job \d+ of the step 'much' is no longer kept"):
            run(small, much.s() >> length.s()).result_sync(5)


def test_a_result_is_read_although_its_job_is_forgotten(app: App, jobs: Any):
    flow = jobs.number.s(1).options(remove_on_complete=True) >> jobs.double.s()
    assert run(app, flow).result_sync(5) == 2


def test_results_that_another_step_reads_are_not_pushed_out_by_other_jobs(jobs: Any):
    settings = LocalSettings(engine=Settings(retention=Retention(completed_count=3)))
    with App("memory://", settings=settings) as small:

        @small.job
        def one(n: int) -> int:
            return n

        @small.job
        def total(numbers: list[int] = Inputs()) -> int:
            return sum(numbers)

        assert run(small, group(one.s(n) for n in range(10)) >> total.s()).result_sync(5) == 45


def test_a_failed_workflow_is_retried_from_where_it_failed(app: App, jobs: Any):
    broken = [True]

    @app.job(max_attempts=1)
    def mend(n: int = Input()) -> int:
        if broken.pop():
            raise ValueError("not yet")
        return n

    broken.insert(0, False)
    pushed = run(app, jobs.number.s(3) >> mend.s() >> jobs.double.s())
    assert pushed.status_sync() is WorkflowState.FAILED
    assert pushed.retry_sync() is WorkflowState.RUNNING
    app.worker(registered=False).run_until_idle()
    assert pushed.result_sync(5) == 6


def test_a_workflow_can_be_cancelled_and_waited_for(app: App, jobs: Any):
    pushed = workflow(jobs.number.s(1) >> jobs.double.s(), name="short").push_sync()
    with pytest.raises(ResultTimeout, match=f"workflow {pushed.id} is still running after '10ms'"):
        pushed.result_sync("10ms")
    several = workflow(jobs.number.s(1), jobs.number.s(2)).push_sync()
    with pytest.raises(ResultTimeout):
        several.wait_sync("10ms")
    assert pushed.view_sync().name == "short"
    pushed.cancel_sync()
    assert pushed.wait_sync(5) is WorkflowState.CANCELLED
    with pytest.raises(JobFailed, match="was cancelled"):
        pushed.result_sync(5)


def test_a_last_job_that_is_not_kept_can_still_be_waited_for(app: App, jobs: Any):
    @app.job(remove_on_complete=True)
    def last(n: int = Input()) -> int:
        return n

    assert run(app, jobs.number.s(3) >> last.s()).wait_sync(5) is WorkflowState.COMPLETED


def test_a_workflow_with_a_key_is_pushed_once(jobs: Any):
    flow = workflow(jobs.number.s(1) >> jobs.double.s())
    assert flow.push_sync(request_key="k").id == flow.push_sync(request_key="k").id


def test_coroutines_push_and_wait_too(app: App, jobs: Any):
    async def main() -> tuple[Any, ...]:
        pushed = await workflow(jobs.number.s(3) >> jobs.double.s()).push()
        worker = app.worker(registered=False)
        serving = asyncio.create_task(worker.serve())
        found = app.workflow_run(pushed.id)
        told = await found.result(5), await found.wait(5), await found.status(), len(await found.jobs("double"))
        worker.stop()
        await serving
        with pytest.raises(NotFound, match="has no step 'nowhere'; it has number, double"):
            await found.jobs("nowhere")
        return told

    assert asyncio.run(main()) == (6, WorkflowState.COMPLETED, WorkflowState.COMPLETED, 1)
