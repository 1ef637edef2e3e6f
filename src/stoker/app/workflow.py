"""Workflows: graphs of an app's jobs that are pushed as one, and handles on them.

    flow = stoker.workflow(fetch.s(url) >> parse.map() >> report.s(), name="import")
    run = await flow.push()
    print(await run.result(timeout="5m"))

A graph is written with the nodes of `nodes.py`, turned into steps of the model here, and run by the queue. `inputs.py`
gives handlers the results of earlier steps.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stoker.app.errors import JobFailed, ResultTimeout
from stoker.app.handles import Job
from stoker.app.inputs import SPREAD, spread_payload
from stoker.app.jobtype import JobType
from stoker.app.jobtype import Step as Call
from stoker.app.nodes import Chain, Group, Map, Node, Nodes, node_of
from stoker.app.sync_or_async import Nap, Plan, carry_out, carry_out_async
from stoker.app.waiting import why_it_waits
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, NotFound, StokerError
from stoker.model.ids import STEP
from stoker.model.options import DependencyPolicy, Options
from stoker.model.states import State
from stoker.model.units import Duration, duration_ms
from stoker.model.workflows import Edge, Step, WorkflowState
from stoker.tracing import inject

if TYPE_CHECKING:
    from stoker.app.app import App

WAIT_MS = 30_000
NAPS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Pauses between two looks at a workflow with several ends; the last one repeats."""


def workflow(*nodes: Nodes, name: str = "") -> "Workflow":
    """A workflow of these pieces; several pieces stand side by side."""
    return Workflow(*nodes, name=name)


class Workflow:
    """A graph of jobs that has not been pushed yet.

    It is written with `>>`, `group` and `map`, or step by step with `add` where that is not enough.
    """

    def __init__(self, *nodes: Nodes, name: str = "") -> None:
        self.name = name
        self._drafts = _Drafts()
        for node in nodes:
            self._drafts.add(node_of(node), (), None)

    def __repr__(self) -> str:
        return f"<Workflow {self.name or 'without a name'} of {len(self._drafts.steps)} steps>"

    def add(
        self, node: Nodes, *, after: "Added | Iterable[Added]" = (), on_failure: DependencyPolicy | None = None
    ) -> "Added":
        """Add a piece that comes after others. Use the return value in the `after` of further pieces."""
        before = [after] if isinstance(after, Added) else list(after)
        numbers = tuple(dict.fromkeys(number for added in before for number in added.ends))
        return Added(self._drafts.add(node_of(node), numbers, on_failure))

    def steps(self) -> list[Step]:
        """The steps for the queue."""
        if not self._drafts.steps:
            raise InvalidRequest("the workflow is empty: expected at least one step")
        return [draft.step() for draft in self._drafts.steps]

    async def push(self, *, request_key: str | None = None) -> "WorkflowRun":
        """Push all of it, or nothing. With a `request_key`, pushing again is harmless."""
        app, command = self._command(request_key)
        return WorkflowRun(app, (await app.aclient.execute(command)).id)

    def push_sync(self, *, request_key: str | None = None) -> "WorkflowRun":
        app, command = self._command(request_key)
        return WorkflowRun(app, app.client.execute(command).id)

    def _command(self, request_key: str | None) -> "tuple[App, c.PushWorkflow]":
        steps, app = self.steps(), self._drafts.app
        assert app is not None, "a workflow with steps has an app"
        return app, c.PushWorkflow(steps, self.name, request_key)


class Added:
    """The ends of a piece, as `Workflow.add` returns them."""

    __slots__ = ("ends",)

    def __init__(self, ends: tuple[int, ...]) -> None:
        self.ends = ends


class _Draft:
    """A step of the model that may still get more jobs."""

    def __init__(self, queue: str, options: Options, after: tuple[Edge, ...], key: str) -> None:
        self.queue, self.options, self.after, self.key = queue, options, after, key
        self.payloads: list[bytes] = []
        self.is_open = False

    def step(self) -> Step:
        return Step(self.queue, self.payloads, self.options, self.after, self.key, None, self.is_open)


class _Drafts:
    """Turns nodes into steps. Calls side by side that differ only in their arguments become one step."""

    def __init__(self) -> None:
        self.steps: list[_Draft] = []
        self.app: App | None = None
        self._keys: set[str] = set()

    def add(self, node: Node, after: tuple[int, ...], policy: DependencyPolicy | None) -> tuple[int, ...]:
        """Add a node. Returns the numbers of the steps that it ends in."""
        policy = node.policy or policy
        if isinstance(node, Chain):
            for place, part in enumerate(node.parts):  # the policy applies to what comes before all of it
                after = self.add(part, after, policy if place == 0 else None)
            return after
        if isinstance(node, Group):
            return tuple(self._group(node.members, after, policy))
        if isinstance(node, Map):
            return (self._map(node, after, policy),)
        if isinstance(node, Call):
            payload, options = node.written()
            return (self._step(node.job_type, [payload], options, after, policy, node.key),)
        raise InvalidRequest(f"{node!r} is not a piece of a workflow")

    def _group(
        self, members: tuple[Node, ...], after: tuple[int, ...], policy: DependencyPolicy | None
    ) -> Iterator[int]:
        alike: dict[Any, int] = {}
        for place, member in enumerate(members):
            if not isinstance(member, Call):
                yield from self.add(member, after, policy)
                continue
            payload, options = self._written(member, place)
            kind = (member.job_type.queue, options, member.policy, member.key)
            number = alike.get(kind)
            if number is not None:
                self.steps[number].payloads.append(payload)
                continue
            alike[kind] = number = self._step(
                member.job_type, [payload], options, after, member.policy or policy, member.key
            )
            yield number

    def _written(self, member: Call[Any], place: int) -> tuple[bytes, Options]:
        try:
            return member.written()
        except StokerError as error:
            raise type(error)(f"item {place} of a group: {error.message}") from error

    def _map(self, node: Map, after: tuple[int, ...], policy: DependencyPolicy | None) -> int:
        """Add a job that reads the previous results and makes a job of each element."""
        if not after:
            raise InvalidRequest(f"{node!r} has nothing before it: expected a step whose results it maps")
        job_type = node.job_type
        options = job_type.wanted.options
        if job_type.wanted.keys:
            raise InvalidRequest(
                f"{node!r}: the jobs of a map cannot have unique keys or ids of their own: leave the keys out"
            )
        key = self._key(node.key or job_type.name)
        between = self._step(
            job_type,
            [spread_payload(job_type, key, node.kwargs)],
            Options(name=SPREAD, codec="msgpack"),
            after,
            policy,
            "",
        )
        number = self._step(job_type, [], options, (between,), None, key, is_new=False)
        self.steps[number].is_open = True
        return number

    def _step(
        self,
        job_type: JobType[..., Any],
        payloads: list[bytes],
        options: Options,
        after: tuple[int, ...],
        policy: DependencyPolicy | None,
        key: str,
        *,
        is_new: bool = True,
    ) -> int:
        self._belongs(job_type)
        edges = tuple(Edge(number, policy or "fail") for number in after)
        wanted = inject(options) if job_type.app.tracing else options
        draft = _Draft(job_type.queue, wanted, edges, self._key(key or options.name or "") if is_new else key)
        draft.payloads = payloads
        self.steps.append(draft)
        return len(self.steps) - 1

    def _belongs(self, job_type: JobType[..., Any]) -> None:
        if self.app is None:
            self.app = job_type.app
        elif self.app is not job_type.app:
            raise InvalidRequest(f"{job_type.name} belongs to another app: a workflow has jobs of one app")

    def _key(self, wanted: str) -> str:
        """A name that no other step has: the second `parse` is `parse-2`."""
        key, number = wanted, 1
        while key in self._keys:
            number += 1
            key = f"{wanted}-{number}"
        self._keys.add(key)
        return key


class WorkflowRun:
    """A pushed workflow. Each method exists for coroutines and, with `_sync`, for plain code."""

    __slots__ = ("_app", "id")

    def __init__(self, app: "App", workflow: int) -> None:
        self._app = app
        self.id = workflow

    def __repr__(self) -> str:
        return f"<WorkflowRun {self.id}>"

    async def view(self) -> r.WorkflowView:
        """Its progress and its graph."""
        return await self._app.aclient.get_workflow(self.id)

    def view_sync(self) -> r.WorkflowView:
        return self._app.client.get_workflow(self.id)

    async def status(self) -> WorkflowState:
        """`running`, `completed`, `failed` or `cancelled`."""
        return (await self.view()).state

    def status_sync(self) -> WorkflowState:
        return self.view_sync().state

    async def wait(self, timeout: Duration | None = None) -> WorkflowState:
        """Wait for its end and return the final state. Raises `ResultTimeout`."""
        return (await carry_out_async(self._app.aclient, self._ended(timeout))).state

    def wait_sync(self, timeout: Duration | None = None) -> WorkflowState:
        return carry_out(self._app.client, self._ended(timeout)).state

    async def result(self, timeout: Duration | None = None) -> Any:
        """The result of the last job; a list where it ends in several jobs. Raises `JobFailed` or `ResultTimeout`."""
        return await carry_out_async(self._app.aclient, self._result(timeout))

    def result_sync(self, timeout: Duration | None = None) -> Any:
        return carry_out(self._app.client, self._result(timeout))

    async def jobs(self, key: str) -> list[Job[Any]]:
        """Handles on the jobs of a step, by its name in the workflow."""
        return self._jobs(await self.view(), key)

    def jobs_sync(self, key: str) -> list[Job[Any]]:
        return self._jobs(self.view_sync(), key)

    async def cancel(self) -> WorkflowState:
        """Cancel it: waiting jobs end at once, running ones are told, and no more jobs of it start."""
        return (await self._app.aclient.cancel_workflow(self.id)).state

    def cancel_sync(self) -> WorkflowState:
        return self._app.client.cancel_workflow(self.id).state

    async def retry(self) -> WorkflowState:
        """Retry its failed jobs; jobs that failed because of them wait for them again."""
        return (await self._app.aclient.retry_workflow(self.id)).state

    def retry_sync(self) -> WorkflowState:
        return self._app.client.retry_workflow(self.id).state

    # --- plans -----------------------------------------------------------------------------------

    def _jobs(self, view: r.WorkflowView, key: str) -> list[Job[Any]]:
        for step in view.steps:
            if step.key == key:
                return [Job(self._app, self._app.find_job(step.name), job) for job in ids_of(step)]
        known = ", ".join(step.key for step in view.steps)
        raise NotFound(f"workflow {self.id} has no step {key!r}; it has {known}")

    def _ended(self, timeout: Duration | None) -> Plan[r.WorkflowView]:
        left_ms = None if timeout is None else duration_ms(timeout)
        naps = iter(NAPS_S)
        while True:
            view: r.WorkflowView = yield c.GetWorkflow(self.id)
            if view.state is not WorkflowState.RUNNING:
                return view
            if left_ms is not None and left_ms <= 0:
                waits = [step.queue for step in view.steps if step.counts.waiting]
                why = yield from why_it_waits(dict.fromkeys(waits))
                raise ResultTimeout(f"workflow {self.id} is still running after {timeout!r}; {why or 'ask again'}")
            nap_ms = round(next(naps, NAPS_S[-1]) * 1_000)
            last = [job for step in ends_of(view) for job in ids_of(step)]
            if len(last) == 1:  # its last job says when it has ended
                wait_ms = WAIT_MS if left_ms is None else min(left_ms, WAIT_MS)
                is_over = yield from self._waited_for(last[0], wait_ms)
                if not is_over:
                    left_ms = None if left_ms is None else left_ms - wait_ms
                    continue
            yield Nap(nap_ms)
            left_ms = None if left_ms is None else left_ms - nap_ms

    def _waited_for(self, job: int, wait_ms: int) -> Plan[bool]:
        try:
            ended: r.Ended = yield c.WaitJob(job, wait_ms)
        except NotFound:  # it has ended and was not kept
            return True
        return ended.finished

    def _result(self, timeout: Duration | None) -> Plan[Any]:
        view = yield from self._ended(timeout)
        if view.state is not WorkflowState.COMPLETED:
            raise (yield from self._failure(view))
        ends = ends_of(view)
        jobs = [job for step in ends for job in self._jobs(view, step.key)]
        results: list[Any] = []
        for job in jobs:
            result = yield from job._ended_result()
            results.append(result)
        return results[0] if len(results) == 1 and not ends[0].open else results

    def _failure(self, view: r.WorkflowView) -> Plan[JobFailed]:
        """The error of the first of its jobs that failed."""
        for state in (State.FAILED, State.EXPIRED, State.CANCELLED):
            page: r.Page = yield c.Browse(state=state, workflow=self.id, limit=100, ascending=True)
            while not page.jobs and page.next_after is not None:
                after = page.next_after
                page = yield c.Browse(state=state, workflow=self.id, limit=100, ascending=True, after=after)
            guilty = [job for job in page.jobs if job.reason != "dependency_failed"] or list(page.jobs)
            if guilty:
                job: Job[Any] = Job(self._app, None, guilty[0].id)
                return (yield from job._failure(guilty[0].state, guilty[0].reason, guilty[0].error))
        return JobFailed(0, State.CANCELLED, f"workflow {self.id} is {view.state}")


def ends_of(view: r.WorkflowView) -> list[r.StepView]:
    """The steps that nothing comes after."""
    before = {edge.step for step in view.steps for edge in step.after}
    return [step for number, step in enumerate(view.steps) if number not in before]


def ids_of(step: r.StepView) -> range:
    return range(step.first, step.first + step.count * STEP, STEP) if step.first else range(0)
