"""An application under test: its own handlers, the real engine in memory, and a clock that only the test moves.

    with harness(app) as world:
        welcome.push_sync(7)
        world.assert_pushed(welcome, user_id=7)
        world.drain().check()          # runs what is due, with the worker's own code
        world.advance("5m")            # lets time pass
        world.run_for("1h")            # both: everything that comes due in an hour, each at its time

Nothing happens by itself: handlers run only in `drain`, `run_for` and `run_until`, and time passes only in `advance`
and the latter two. Waiting for a job while no worker runs raises an error that says so.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

from stoker.app.app import App
from stoker.app.jobtype import JobType
from stoker.brokers.contract import Broker
from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.client.sync import Client
from stoker.journal.directory import DEFAULT_SHARDS
from stoker.model.errors import InvalidRequest, StokerError
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import DAY_MS, Retention, Settings
from stoker.model.replies import JobView
from stoker.testing import history, pushes
from stoker.testing.broker import HeldBroker
from stoker.testing.clock import FakeClock, to_ms
from stoker.testing.faults import CommandName, Fault
from stoker.testing.harness_worker import Working
from stoker.testing.outcomes import Drained, StillBusy
from stoker.testing.pushes import PushedJob
from stoker.worker.worker import Worker

WORKER = "test-worker"
DRAIN_S = 30.0
"""How long a drain may take in real time: a handler that hangs should fail its test, not block the whole run."""
STEPS_MAX = 100_000
"""How many moments `run_for` may stop at."""
DELIVERIES_MAX = 100_000
"""How many deliveries a drain may make: a job that always comes back at once would keep it busy forever."""

REMEMBERING = Settings(retention=Retention(completed_age_ms=365 * DAY_MS))


def harness(app: App, **settings: Any) -> "Harness":
    """The App in its own world until the end of the `with` block."""
    return Harness(app, **settings)


class Harness:
    """The world around an application under test."""

    def __init__(
        self,
        app: App,
        *,
        start: datetime | None = None,
        concurrency: int = 10,
        settings: Settings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Time starts at `start`, or now. `concurrency` is the worker's: with 1, jobs run one after another.

        Ended jobs can be looked at for a year, so that a test that runs a week in one go finds what it asks for;
        `settings=Settings()` forgets them after an hour, as a queue does by default. The queue has as
        many shards as a new data directory, so what happens between shards there happens in tests, too.
        """
        self.app = app
        self.clock = FakeClock(wall_ms(start or datetime.now(UTC)))
        local = LocalSettings(engine=settings or REMEMBERING, limits=limits, shards=DEFAULT_SHARDS)
        self._journal = history.KeepingJournal(DEFAULT_SHARDS, local.events_bytes_max)
        self._engine = LocalBroker(local, self.clock, journal=self._journal)
        self.broker = HeldBroker(self._engine, WORKER)
        self.client = Client(self.broker, app.tenant)
        """The App's queue itself: jobs of any kind, dead letters, limits, ..."""
        self._working = Working(self._worker, self._worker_ended)
        self._concurrency = concurrency
        self._broken: BaseException | None = None
        self._before: Broker | None = None
        self._is_entered = False
        self._since = len(self._journal.records)

    def __enter__(self) -> "Harness":
        self._before = None if self.app._owns_broker else self.app.broker
        self.app.use(self.broker)
        self._is_entered = True
        try:
            self.app.sync_schedules()  # as a worker does when it starts
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the worker and restore the App. A second call does nothing."""
        self._working.stop()  # first: a closed broker answers pulls at once, and the worker would ask without a pause
        self.broker.close()
        if self._is_entered:
            self._is_entered = False
            self.app.use(self._before)
        self._engine.close()

    # --- time ------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time in this world."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def advance(self, duration: str | timedelta) -> datetime:
        """Let time pass: delays and leases end in the queue, but no handler runs."""
        self._advance_to(self.clock.now_ms() + to_ms(duration))
        return self.now

    def _advance_to(self, at: int) -> None:
        self.clock.advance(at - self.clock.now_ms())
        self._engine.advance()
        self.broker.changed()

    # --- running ---------------------------------------------------------------------------------

    def drain(self, *, timeout_s: float = DRAIN_S) -> Drained:
        """Run everything that is due, and what that pushes, until nothing is left to do at this moment."""
        since = len(self._journal.records)
        self._drain(timeout_s)
        return history.outcome_since(self._journal, self.app.tenant, since)

    def _drain(self, timeout_s: float) -> None:
        self._working.start()
        self.broker.open_gate(DELIVERIES_MAX)
        try:
            if not self.broker.wait_idle(self._working.is_idle, timeout_s):
                raise StillBusy(f"after {timeout_s:g} s still running: {self._running()}")
            if self._broken is not None:
                raise StillBusy(f"the worker ended: {self._broken!r}") from self._broken
            if self.broker.is_overrun:
                raise StillBusy(f"{DELIVERIES_MAX} deliveries at one moment: does a job push or snooze itself forever?")
        finally:
            self.broker.shut_gate()

    async def drain_async(self, *, timeout_s: float = DRAIN_S) -> Drained:
        """The same for asynchronous tests: `async` handlers run on the test's own event loop."""
        since = len(self._journal.records)
        await self._drain_here(timeout_s)
        return history.outcome_since(self._journal, self.app.tenant, since)

    async def _drain_here(self, timeout_s: float) -> None:
        self.broker.open_gate(0)  # for handlers that wait for each other; this worker's pulls do not wait
        try:
            async with asyncio.timeout(timeout_s):
                await self._worker().drain()
        except TimeoutError:
            raise StillBusy(f"after {timeout_s:g} s handlers still run, or a job keeps coming back") from None
        finally:
            self.broker.shut_gate()

    def run_for(self, duration: str | timedelta) -> Drained:
        """Run everything that comes due in that time, each at its moment: delays, retries, expiries, schedules."""
        return self._run_to(self.clock.now_ms() + to_ms(duration))

    async def run_for_async(self, duration: str | timedelta) -> Drained:
        """The same for asynchronous tests."""
        return await self._run_to_async(self.clock.now_ms() + to_ms(duration))

    def run_until(self, time: datetime) -> Drained:
        """The same as `run_for`, up to a time."""
        return self._run_to(wall_ms(time))

    async def run_until_async(self, time: datetime) -> Drained:
        """The same for asynchronous tests."""
        return await self._run_to_async(wall_ms(time))

    def _run_to(self, at: int) -> Drained:
        since = len(self._journal.records)
        for _ in self._moments(at):
            self._drain(DRAIN_S)
        return history.outcome_since(self._journal, self.app.tenant, since)

    async def _run_to_async(self, at: int) -> Drained:
        since = len(self._journal.records)
        for _ in self._moments(at):
            await self._drain_here(DRAIN_S)
        return history.outcome_since(self._journal, self.app.tenant, since)

    def _moments(self, at: int) -> Iterator[None]:
        """Move the clock from one moment at which something comes due to the next, up to `at`."""
        if at < self.clock.now_ms():
            raise InvalidRequest(f"that time has passed: it is {self.now}, and the clock cannot run backwards")
        yield
        for _ in range(STEPS_MAX):
            next_at = self._engine.runtime.next_at
            if next_at is None or next_at > at:
                break
            self._advance_to(max(next_at, self.clock.now_ms()))
            yield
        else:
            raise StillBusy(f"after {STEPS_MAX} steps it is only {self.now}: does a job come back all the time?")
        self._advance_to(at)
        yield

    def _running(self) -> str:
        names = [str(self.client.get_job(job).options.name) for job in sorted(self.broker.held)[:5]]
        return ", ".join(names) or "nothing, but the worker does not pull more"

    def _worker_ended(self, error: BaseException | None) -> None:
        self._broken = error
        self.broker.give_up()

    def _worker(self) -> Worker:
        """Handlers for processes run in threads, without rate limits: no test should wait for real time to pass."""
        handlers = [
            replace(one, kind="thread" if one.kind == "process" else one.kind, rate=None) for one in self.app.handlers()
        ]
        if handlers:
            handlers += self.app.own_handlers(handlers[0].queue)
        return Worker(self.client, handlers, concurrency=self._concurrency, registered=False, id=WORKER)

    # --- what was pushed -------------------------------------------------------------------------

    def pushed(self, job_type: "JobType[..., Any] | None" = None) -> list[PushedJob]:
        """The jobs that were pushed, oldest first: all, or those of one kind. Duplicates that made no job are not."""
        found = [self._with_arguments(job) for job in pushes.pushed_since(self._journal, self.app.tenant, self._since)]
        return found if job_type is None else [job for job in found if job.name == job_type.name]

    def assert_pushed(self, job_type: "JobType[..., Any]", /, **arguments: Any) -> PushedJob:
        """Check that such a job was pushed, with at least these arguments. Returns the last match."""
        jobs = self.pushed(job_type)
        for job in reversed(jobs):
            if fits(job, arguments):
                return job
        wanted = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        others = "\n  ".join(map(str, jobs or self.pushed())) or "nothing"
        raise AssertionError(f"{job_type.name}({wanted}) was not pushed; these were pushed:\n  {others}")

    def assert_not_pushed(self, job_type: "JobType[..., Any]", /, **arguments: Any) -> None:
        """Check that no such job was pushed with these arguments."""
        for job in self.pushed(job_type):
            if fits(job, arguments):
                raise AssertionError(f"{job} was pushed (job {job.id})")

    def forget_pushed(self) -> None:
        """Let `pushed` begin anew."""
        self._since = len(self._journal.records)

    def _with_arguments(self, job: PushedJob) -> PushedJob:
        """A payload that cannot be decoded is left as it is: the job will fail with the reason."""
        job_type = self.app.find_job(job.name)
        if job_type is None:
            return job
        try:
            args, kwargs = job_type.arguments.decode(job.payload, job.options.codec)
        except StokerError:
            return job
        return replace(job, arguments=job_type.arguments.given(args, kwargs))

    # --- faults ----------------------------------------------------------------------------------

    def fail_call(self, command: CommandName, number: int = 1, error: StokerError | None = None) -> Fault:
        """Let the `number`-th such call from now on (`"push"`, `"ack"`, ...) not arrive: it raises, and nothing
        happens.
        """
        return self.broker.faults.fail_call(command, number, error)

    def lose_reply(self, command: CommandName, number: int = 1, error: StokerError | None = None) -> Fault:
        """Let the `number`-th such call from now on take effect, but lose its reply: it raises all the same."""
        return self.broker.faults.lose_reply(command, number, error)

    def lose_worker(self, job_type: "JobType[..., Any] | str") -> int:
        """Let a worker take the next job of this kind's queue and disappear. Returns the job."""
        queue = job_type if isinstance(job_type, str) else job_type.queue
        delivery = self.client.pull(queue, worker="lost")
        if not delivery:
            raise InvalidRequest(f"there is no job in {queue!r} for a lost worker to take")
        self.expire_lease(delivery.ids[0])
        return delivery.ids[0]

    def expire_lease(self, job: int) -> JobView:
        """Let the lease of a running job end now, as if its worker had been silent for too long."""
        self.client.extend(job, lease_ms=1)
        self._advance_to(self.clock.now_ms() + 1)
        return self.client.get_job(job)

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Simulate a full disk: pushes are refused with `disk_full`, existing jobs can still run."""
        journal = self._engine.runtime.journal
        journal.is_full = True
        try:
            yield
        finally:
            journal.is_full = False


def wall_ms(time: datetime) -> int:
    if time.tzinfo is None:
        raise InvalidRequest(f"{time!r} has no time zone: write datetime(..., tzinfo=UTC)")
    return round(time.timestamp() * 1000)


def fits(job: PushedJob, arguments: Mapping[str, Any]) -> bool:
    return all(name in job.arguments and job.arguments[name] == value for name, value in arguments.items())
