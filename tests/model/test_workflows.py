"""Random workflows against the naive reference, with every shard audited, replayed and loaded anew after every step."""

import os
import random
from typing import Any

import pytest

from stoker.engine.audit import audit
from stoker.engine.checkpoint_saving import load, save
from stoker.engine.shard import replay
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model.errors import NotFound
from stoker.model.options import DependencyPolicy, Options, Retention, Settings
from stoker.model.states import ENDED, State
from stoker.model.workflows import Edge, Step
from stoker.testing import World
from tests.model.reference_workflows import ReferenceWorkflow

QUEUES = ("a", "b", "c", "d")
SOAK = os.environ.get("STOKER_SOAK") == "1"
ROUNDS = 200 if SOAK else 5
STEPS_EACH = 35


def settings_of(seed: int, batching: bool) -> Settings:
    return Settings(seed=seed, batching=batching, retention=Retention(completed_count=10_000))


class Driver:
    """Does something at random, and the same to the reference."""

    def __init__(self, seed: int, shards: int, batching: bool, world: Any = None) -> None:
        """`world` is another one than the engine's: it has a client, and its time can be advanced."""
        self.random = random.Random(seed)
        self.world = world or World(settings_of(seed, batching), shards=shards)
        self.client = self.world.client
        self.flows: dict[int, ReferenceWorkflow] = {}
        self.active: dict[int, tuple[int, int]] = {}
        """Jobs that run: their workflow and token."""
        self.results: dict[int, bytes] = {}
        self.marked: set[int] = set()

    def graph(self) -> list[Step]:
        """Edges mostly point backwards, in any order of numbers; a step's edges share what failure means."""
        rng, count = self.random, self.random.randrange(1, 8)
        order = rng.sample(range(count), count)
        steps: list[Any] = [None] * count
        for place, number in enumerate(order):
            harsh: DependencyPolicy = rng.choice(("fail", "cancel"))
            before = rng.sample(order[:place], min(place, rng.choice((0, 1, 1, 2, 3))))
            after = [Edge(other, "continue" if rng.random() < 0.3 else harsh) for other in before]
            is_open = bool(after) and rng.random() < 0.15
            payloads = () if is_open else [b"x"] * rng.choice((1, 1, 2, 5))
            kept = rng.choice((None, None, None, 0, 1))
            options = Options(
                max_attempts=1, priority=rng.randrange(2), lifo=rng.random() < 0.1, keep_completed_count=kept
            )
            steps[number] = Step(rng.choice(QUEUES), payloads, options, after, open=is_open)
        return steps

    def push(self) -> None:
        steps = self.graph()
        reply = self.client.push_workflow(steps)
        ids = [list(reply.ids(number)) for number in range(len(steps))]
        self.flows[reply.id] = ReferenceWorkflow(steps, ids)

    def pull(self) -> None:
        rng = self.random
        delivery = self.client.pull(rng.choice(QUEUES), rng.choice((1, 2, 10)))
        for job in delivery:
            assert job.options.workflow is not None
            flow = self.flows[job.options.workflow]
            assert flow.step_of(job.id).jobs[job.id] is State.WAITING, "started before its time"
            flow.move(job.id, State.ACTIVE)
            self.active[job.id] = (job.options.workflow, job.token)

    def finish(self) -> None:
        if not self.active:
            return
        job = self.random.choice(list(self.active))
        workflow, token = self.active.pop(job)
        flow = self.flows[workflow]
        self.fill(flow, job, token)
        if self.random.random() < 0.75:
            self.results[job] = b"%d" % job
            self.client.ack(job, token, result=self.results[job])
            flow.move(job, State.COMPLETED)
        else:
            self.client.fail(job, token)
            flow.move(job, State.CANCELLED if job in self.marked else State.FAILED)
        self.marked.discard(job)

    def finish_many(self) -> None:
        """All of one workflow at once: batches stay batches."""
        if not self.active:
            return
        workflow = self.random.choice(list(self.active.values()))[0]
        jobs = {job: token for job, (own, token) in self.active.items() if own == workflow}
        results = [b"%d" % job if self.random.random() < 0.5 else None for job in jobs]
        self.results |= {job: result for job, result in zip(jobs, results, strict=True) if result is not None}
        self.client.ack_batch(list(jobs), list(jobs.values()), results)
        for job in jobs:
            self.flows[workflow].move(job, State.COMPLETED)
            del self.active[job]
            self.marked.discard(job)

    def fill(self, flow: ReferenceWorkflow, job: int, token: int) -> None:
        own = flow.steps.index(flow.step_of(job))
        for number, step in enumerate(flow.steps):
            if step.is_open and own in [other for other, _ in step.after] and self.random.random() < 0.7:
                count = self.random.choice((1, 2, 4))
                self.client.fill_step(job, str(number), [b"filled"] * count, token)
                workflow = self.client.get_job(job).options.workflow
                assert workflow is not None
                view = self.client.get_workflow(workflow).steps[number]
                if not step.jobs and not step.skipped and not flow.cancelled:
                    assert view.count == count
                    flow.fill(number, [view.first + n * 64 for n in range(count)])
                else:
                    assert view.count == len(step.jobs), "the first filling counts"

    def cancel_job(self) -> None:
        job = self.any_job()
        if job is None:
            return
        flow = next(flow for flow in self.flows.values() if any(job in step.jobs for step in flow.steps))
        state = flow.step_of(job).jobs[job]
        if state in ENDED:
            return
        self.client.cancel(job)
        if state is State.ACTIVE:
            self.marked.add(job)
        else:
            flow.move(job, State.CANCELLED)

    def any_job(self) -> int | None:
        jobs = [job for flow in self.flows.values() for step in flow.steps for job in step.jobs]
        return self.random.choice(jobs) if jobs else None

    def cancel(self) -> None:
        if self.flows:
            workflow = self.random.choice(list(self.flows))
            flow = self.flows[workflow]
            if flow.state == "running":
                self.client.cancel_workflow(workflow)
                flow.cancel()
                self.marked |= {job for job, (own, _) in self.active.items() if own == workflow}

    def retry(self) -> None:
        for workflow, flow in self.flows.items():
            if not flow.cancelled and any(step.failing for step in flow.steps) and self.random.random() < 0.5:
                self.client.retry_workflow(workflow)
                flow.retry()

    def change(self) -> None:
        """What takes a job out of its batch must not take it out of its step."""
        job = self.any_job()
        if job is not None and self.state_of(job) in (State.BLOCKED, State.WAITING):
            self.client.change_priority(job, self.random.randrange(3))

    def step(self) -> None:
        acts = [self.push] + [self.pull] * 5 + [self.finish] * 5 + [self.finish_many, self.cancel_job]
        acts += [self.cancel] * (self.random.random() < 0.3) + [self.retry, self.change]
        self.random.choice(acts)()
        self.world.advance(1)

    # --- what must be true ---------------------------------------------------------------------------

    def check(self) -> None:
        for workflow, flow in self.flows.items():
            view = self.client.get_workflow(workflow)
            expected = [step.jobs for step in flow.steps]
            found = [{job: self.state_of(job) or state for job, state in jobs.items()} for jobs in expected]
            assert found == expected, f"workflow {workflow}"
            assert view.state == flow.state
            states = [state for jobs in expected for state in jobs.values()]
            assert [getattr(view.counts, state.value) for state in State] == [states.count(state) for state in State]
            assert bool(view.finished_at) == all(step.ended for step in flow.steps)

    def state_of(self, job: int) -> State | None:
        """None: it has ended and is forgotten."""
        try:
            return self.client.get_job(job).state
        except NotFound:
            return None

    def check_inputs(self) -> None:
        """Whatever may run, now or after a retry, finds what all before it returned, however long ago."""
        for flow in self.flows.values():
            for step in flow.steps:
                before = [one for number, _ in step.after for one in flow.steps[number].jobs.items()]
                expected = [(job, state, self.results.get(job)) for job, state in before if state in ENDED]
                readers = [job for job, state in step.jobs.items() if self.reads(flow, state)]
                for job in readers[:1]:
                    inputs = self.client.get_inputs(job).inputs
                    assert [(one.id, one.state, one.result) for one in inputs if one.state in ENDED] == expected

    @staticmethod
    def reads(flow: ReferenceWorkflow, state: State) -> bool:
        return state not in ENDED or (state is State.FAILED and not flow.cancelled)

    def check_shards(self) -> None:
        runtime = self.world.broker.runtime
        for shard in runtime.shards:
            audit(shard)
            records = [record for _, record in runtime.journal.read(shard.number, 0, 1_000_000)]
            again = replay(records, shard.number, shard.settings, shard.limits)
            assert dump(again) == dump(shard), "a replay leads elsewhere"
            loaded, _ = load(save(again, 1))
            audit(loaded)
            assert dump(loaded) == dump(shard), "what was saved is something else"


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("batching", [True, False])
def test_workflows_do_what_the_reference_says(shards: int, batching: bool):
    for seed in range(ROUNDS):
        driver = Driver(seed, shards, batching)
        for _ in range(STEPS_EACH):
            driver.step()
            driver.check()
            driver.check_inputs()
        driver.check_shards()


@pytest.mark.parametrize("seed", [17, 44, 92])
def test_a_cancelled_workflow_fails_nothing_in_other_shards(seed: int):
    """In these histories a shard hears from a step that ended by a cancellation before it hears of that."""
    driver = Driver(seed, 4, True)
    for _ in range(STEPS_EACH):
        driver.step()
        driver.check()


@pytest.mark.parametrize("seed", range(40 if SOAK else 2))
def test_every_step_of_a_workflow_survives_a_restart(seed: int):
    driver = Driver(1_000 + seed, 4, True)
    for _ in range(25):
        driver.step()
        driver.check_shards()


def test_fan_in_reads_results_in_order():
    with World(shards=4) as world:
        steps = [Step("a", [b"x"] * 3), Step("b", [b"y"]), Step("c", [b"z"], after=[Edge(1), Edge(0)])]
        reply = world.client.push_workflow(steps)
        for queue in ("a", "b"):
            for job in world.client.pull(queue, 10):
                world.client.ack(job.id, job.token, result=b"%d" % job.id)
        (last,) = world.client.pull("c")
        found = world.client.execute(c.GetInputs(last.id))
        ids = [*reply.ids(1), *reply.ids(0)]
        assert [(one.id, one.result) for one in found.inputs] == [(job, b"%d" % job) for job in ids]
