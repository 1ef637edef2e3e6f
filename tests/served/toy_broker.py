"""A broker for tests: jobs in a dict, a few commands, no turns, no logs, no counters. The rest is `unsupported`.

It keeps to `server/served_broker.py` and to nothing else: what a server does over it, a server does over any broker.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import CommandType
from stoker.model.errors import LostLease, NotFound, Unsupported
from stoker.model.ids import make_id
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import DEFAULT_OPTIONS, DeadLetterPolicy, Options
from stoker.model.states import State

LEASE_MS = 3_600_000


class Job(msgspec.Struct):
    tenant: str
    view: r.JobView
    token: int = 0
    """Of the delivery that has it; 0 if no worker has it."""

    def become(self, state: State, token: int = 0, **changes: Any) -> None:
        self.token = token
        self.view = msgspec.structs.replace(self.view, state=state, **changes)


class ToyBroker:
    name = "toy"
    trouble = ""
    turns = logs = counters = remote = None

    def __init__(self) -> None:
        self.limits = DEFAULT_LIMITS
        self.jobs: dict[int, Job] = {}
        self.waiting = 0
        """Pulls that wait for a job."""
        self._tokens = 0
        self._news = asyncio.Event()
        self._commands: dict[CommandType, Callable[[str, Any], Any]] = {
            c.Push: lambda tenant, push: r.Pushed(self._add(tenant, push.queue, push.payload, push.options)),
            c.PushBatch: self._push_batch,
            **dict.fromkeys((c.Ack, c.Fail, c.Release), self._settle),
            c.GetJob: lambda tenant, command: self._find(tenant, command.id).view,
            c.ListQueues: lambda tenant, _: r.Queues(sorted({job.view.queue for job in self._of(tenant)})),
            c.GetStats: self._stats,
            c.GetQueues: self._queues,
        }
        missing = {kind.__name__ for kind in c.ALL if kind not in self._commands}
        self.lacks = frozenset(missing - {"Pull"} | {"Pull.claim"})

    async def execute_async(self, tenant: str, command: c.Command[Any]) -> Any:
        if type(command) is c.Pull:
            return await self._pull(tenant, command)
        return self._commands[type(command)](tenant, command)

    def close(self) -> None:
        """It has nothing to let go of."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def set_limits(self, limits: Limits) -> None:
        self.limits = limits

    def _push_batch(self, tenant: str, command: c.PushBatch) -> r.PushedBatch:
        each = command.each or [command.options] * len(command.payloads)
        pairs = zip(command.payloads, each, strict=True)
        return r.PushedBatch([self._add(tenant, command.queue, payload, options) for payload, options in pairs])

    def _add(self, tenant: str, queue: str, payload: bytes, options: Options) -> int:
        if options != msgspec.structs.replace(DEFAULT_OPTIONS, name=options.name, codec=options.codec):
            raise Unsupported.by(self.name, "a push with other options than name and codec")
        number, state, now = make_id(len(self.jobs) + 1, 0), State.WAITING, self.now()
        view = r.JobView(id=number, queue=queue, state=state, payload=payload, options=options, pushed_at=now)
        self.jobs[number] = Job(tenant, view)
        self._wake()
        return number

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _pull(self, tenant: str, command: c.Pull) -> r.Delivery:
        """Jobs are taken after the last `await`: a pull that is cancelled has none."""
        loop = asyncio.get_running_loop()
        until = loop.time() + command.wait_ms / 1000
        delivery = self._take(tenant, command)
        self.waiting += 1
        try:
            while not delivery.runs and loop.time() < until:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
                delivery = self._take(tenant, command)
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        return delivery

    def _take(self, tenant: str, command: c.Pull) -> r.Delivery:
        """The oldest jobs first, of whichever of the queues."""
        ready = [job for job in self._of(tenant, command.queues) if job.view.state is State.WAITING][: command.count]
        self._tokens += 1
        for job in ready:
            job.become(State.ACTIVE, self._tokens, attempts=job.view.attempts + 1, worker=command.worker)
        until, views = self.now() + LEASE_MS, [job.view for job in ready]
        runs = [r.Run(v.queue, [v.id], [v.payload], v.options, v.attempts, v.pushed_at, until) for v in views]
        return r.Delivery(self._tokens, runs)

    def _settle(self, tenant: str, command: Any) -> Any:
        """A job that failed is tried again at once, or never."""
        tokens = [command.tokens] * len(command.ids) if isinstance(command.tokens, int) else command.tokens
        settled, refused = list[r.FailedJob](), dict[int, str]()
        for place, job in enumerate([self._find(tenant, number) for number in command.ids]):
            if job.token != tokens[place]:
                refused[job.view.id] = LostLease.code
                continue
            if type(command) is c.Ack:
                job.become(State.COMPLETED, result=command.results and command.results[place])
            elif type(command) is c.Fail:
                job.become(State.WAITING if command.retry else State.FAILED, error=command.error)
            else:
                job.become(State.WAITING, attempts=job.view.attempts - 1)
            settled.append(r.FailedJob(job.view.id, job.view.state))
        self._wake()
        return r.Failed(settled, refused) if type(command) is c.Fail else r.Settled(len(settled), refused)

    def _find(self, tenant: str, number: int) -> Job:
        job = self.jobs.get(number)
        if job is None or job.tenant != tenant:
            raise NotFound(f"no job {number}: this broker has {len(self.jobs)} jobs of all tenants")
        return job

    def _of(self, tenant: str, queues: Any = None) -> list[Job]:
        return [job for job in self.jobs.values() if job.tenant == tenant and (not queues or job.view.queue in queues)]

    def _queues(self, tenant: str, command: c.GetQueues) -> r.QueuePage:
        names = sorted({job.view.queue for job in self._of(tenant)})
        stats = [(name, self._stats(tenant, c.GetStats(name))) for name in names]
        return r.QueuePage(
            [
                r.QueueSummary(r.QueueView(name=name, dead_letters=DeadLetterPolicy()), counted)
                for name, counted in stats
            ],
            None,
            len(names),
        )

    def _stats(self, tenant: str, command: c.GetStats) -> r.Stats:
        states = [job.view.state for job in self._of(tenant, command.queue and [command.queue])]
        return r.Stats(r.Counts(**{state: states.count(state) for state in set(states)}), r.Totals(pushed=len(states)))
