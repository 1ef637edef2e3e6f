"""Shards that hear of each other late, twice, or after a restart: workflows and edges between them come out the same.

Each shard is on its own here, as if each lived in a process of its own. Messages lie in outboxes until the test
delivers one, perhaps again and again; any shard may be replaced by a replay of its records at any moment.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from stoker.engine import shard_messages, workflows
from stoker.engine.audit import audit
from stoker.engine.dependencies import is_known, settle
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.engine.workflow_state import ShardWorkflow, find, lets_start
from stoker.model import commands as c
from stoker.model.ids import shard_for, shard_of
from stoker.model.options import Dependency as On
from stoker.model.options import DependencyPolicy, Options, Retention, Settings
from stoker.model.states import State
from stoker.model.workflows import Edge, Step, WorkflowState
from stoker.records import records as rec

SHARDS = 4
QUEUES = ("a", "b", "c", "d", "e", "f")
TENANT = "acme"
SETTINGS = Settings(retention=Retention(completed_count=100_000))


class Apart:
    """Some shards, and what lies between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_000
        self.shards = [self.connected(Shard(number, SETTINGS)) for number in range(SHARDS)]
        self.logs: list[list[rec.Record]] = [[] for _ in range(SHARDS)]
        self.flows: list[int] = []
        self.retried: set[int] = set()
        self.jobs: list[int] = []
        self.edges: dict[int, tuple[int, str]] = {}
        """Jobs that wait for one job: which, and what its failure means."""
        self.started: set[int] = set()

    def connected(self, shard: Shard) -> Shard:
        shard.knows = lambda job_id: is_known(self.shards[shard_of(job_id)], job_id)
        return shard

    def home(self, queue: str) -> Shard:
        return self.shards[shard_for(TENANT, queue, SHARDS)]

    def keep(self) -> None:
        """What has happened is in the logs: nothing is lost from here on."""
        for shard, log in zip(self.shards, self.logs, strict=True):
            log += shard.take_records()
            shard.take_effects()

    # --- what happens --------------------------------------------------------------------------------

    def push_workflow(self) -> None:
        rng, count = self.random, self.random.randrange(2, 7)
        steps: list[Step] = []
        for number in range(count):
            before = rng.sample(range(number), min(number, rng.choice((0, 1, 1, 2))))
            policies: list[DependencyPolicy] = ["fail", "continue", "cancel"]
            after = [Edge(other, rng.choice(policies)) for other in before]
            is_open = bool(after) and rng.random() < 0.2
            payloads = () if is_open else [b"x"] * rng.choice((1, 3))
            steps.append(Step(rng.choice(QUEUES), payloads, Options(max_attempts=1), after, open=is_open))
        here = self.home(steps[0].queue)
        command = c.PushWorkflow(steps)
        reply = workflows.start({here.number: here}, lambda queue: self.home(queue).number, TENANT, command, self.now)
        settle(here, self.now)
        self.flows.append(reply.id)

    def push_job(self) -> None:
        edges: tuple[On, ...] = ()
        policy: DependencyPolicy = self.random.choice(("fail", "continue", "cancel"))
        if self.jobs and self.random.random() < 0.7:
            edges = (On(self.random.choice(self.jobs), policy),)
        queue = self.random.choice(QUEUES)
        options = Options(max_attempts=1, depends_on=edges)
        job = self.home(queue).execute(TENANT, c.Push(queue, b"", options), self.now).id
        self.jobs.append(job)
        if edges:
            self.edges[job] = (edges[0].id, policy)

    def deliver(self) -> None:
        """Some of what one shard has to say to another, in order; perhaps it is said again later."""
        ways = [(shard, to) for shard in self.shards for to in shard.outbox]
        if not ways:
            return
        shard, to = self.random.choice(ways)
        waiting = sorted(shard.outbox[to].items())[: self.random.choice((1, 2, 100))]
        for number, (tenant, message) in waiting:
            shard_messages.take(self.shards[to], shard.number, number, tenant, message, self.now)
        if self.random.random() < 0.7:
            shard_messages.arrived(shard, to, waiting[-1][0], TENANT, self.now)

    def restart(self) -> None:
        self.keep()
        number = self.random.randrange(SHARDS)
        again = self.connected(replay(self.logs[number], number, SETTINGS))
        audit(again)
        assert dump(again) == dump(self.shards[number]), "a replay leads elsewhere"
        self.shards[number] = again

    def work(self, well: float = 0.7, queue: str = "") -> bool:
        queue = queue or self.random.choice(QUEUES)
        shard = self.home(queue)
        delivery = shard.execute(TENANT, c.Pull([queue], self.random.choice((1, 5))), self.now)
        for job in delivery:
            self.check_start(job.id, job.options)
            self.fill(shard, job)
            if self.random.random() < well:
                shard.execute(TENANT, c.Ack([job.id], job.token), self.now)
            else:
                shard.execute(TENANT, c.Fail([job.id], job.token), self.now)
        return bool(delivery.runs)

    def fill(self, shard: Shard, job: Any) -> None:
        flow = find(shard, TENANT, job.options.workflow or 0)
        step = flow.step_of(job.id) if flow is not None else None
        for number, _ in step.before if flow is not None and step is not None else ():
            assert flow is not None
            if flow.steps[number].made.is_open:
                shard.execute(TENANT, c.FillStep(job.id, str(number), [b"f", b"g"], job.token), self.now)

    def check_start(self, job: int, options: Options) -> None:
        """Whatever a job depends on has ended as it should, in the shard that knows best."""
        assert job not in self.started or options.workflow in self.retried, "started twice"
        self.started.add(job)
        if job in self.edges:
            other, policy = self.edges[job]
            view = self.shards[shard_of(other)].execute(TENANT, c.GetJob(other), self.now)
            assert view.state is State.COMPLETED or (policy == "continue" and view.finished_at)
        if options.workflow is not None and options.workflow not in self.retried:
            flow = find(self.shards[shard_of(job)], TENANT, options.workflow)
            assert flow is not None
            step = flow.step_of(job)
            assert step is not None
            for number, policy_place in step.made.after:
                own = self.shards[flow.steps[number].made.shard]
                known = find(own, TENANT, options.workflow)
                assert known is not None
                assert lets_start(known.steps[number].standing, policy_place), "started before its time"

    def change_workflow(self) -> None:
        if not self.flows:
            return
        workflow = self.random.choice(self.flows)
        home = self.shards[shard_of(workflow)]
        flow = find(home, TENANT, workflow)
        assert flow is not None
        if self.random.random() < 0.2 and flow.state is WorkflowState.RUNNING:
            home.execute(TENANT, c.CancelWorkflow(workflow), self.now)
        elif not flow.cancelled and any(step.failing for step in flow.steps):
            home.execute(TENANT, c.RetryWorkflow(workflow), self.now)
            self.retried.add(workflow)

    def step(self) -> None:
        acts: list[Callable[[], object]] = [
            self.push_workflow,
            self.push_job,
            self.push_job,
            self.restart,
            self.change_workflow,
        ]
        act: Callable[[], object] = self.random.choice([*acts, *[self.deliver] * 6, *[self.work] * 5])
        act()
        self.now += 1
        self.keep()

    # --- in the end ----------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Everything is heard and everything worked off."""
        for _ in range(10_000):
            if any(shard.outbox for shard in self.shards):
                self.deliver()
            elif not sum(self.work(0.9, queue) for queue in QUEUES):
                break
            self.now += 1
        self.keep()

    def check_rest(self) -> None:
        for shard in self.shards:
            audit(shard)
            for owner in shard.tenants.values():
                for state in ("waiting", "blocked", "active"):
                    page = shard.execute(owner.name, c.Browse(state=State(state), limit=1), self.now)
                    assert not page.jobs, f"job {page.jobs[0].id} is {state} for ever"
        for workflow in self.flows:
            known = [flow for shard in self.shards if (flow := find(shard, TENANT, workflow)) is not None]
            home = find(self.shards[shard_of(workflow)], TENANT, workflow)
            assert home is not None
            assert home.finished_at, f"workflow {workflow} never ends"
            for flow in known:
                self.check_agreed(home, flow)

    def check_agreed(self, home: ShardWorkflow, flow: ShardWorkflow) -> None:
        """A step stands at home as it does where it lives."""
        assert flow.cancelled == home.cancelled
        for step in flow.steps:
            if self.shards[step.made.shard].number in (home.home, step.made.shard):
                own = find(self.shards[step.made.shard], TENANT, home.id)
                assert own is not None
                assert own.steps[step.number].standing == home.steps[step.number].standing


@pytest.mark.parametrize("seed", range(1_000 if os.environ.get("STOKER_SOAK") == "1" else 20))
def test_what_shards_say_to_each_other_arrives_late_but_once(seed: int):
    apart = Apart(seed)
    for _ in range(120):
        apart.step()
    apart.come_to_rest()
    apart.check_rest()
