"""A worker: its handlers, how many run at the same time, and when it stops.

    Worker("tcp://localhost:6789", handlers, concurrency=50).run()

`run` needs a process to itself and handles signals: the first SIGTERM or SIGINT lets running jobs finish, the second
hands them back at once; neither costs a job an attempt. `serve` does the same on the caller's event loop.
`run_until_idle` works until nothing is left.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from stoker.brokers.connect import open_broker
from stoker.brokers.contract import Broker
from stoker.brokers.remote.retrying import patient
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.model.hints import did_you_mean
from stoker.model.units import Duration, duration_ms
from stoker.model.version import __version__
from stoker.model.workers import WorkerView
from stoker.worker.coroutine_lane import CoroutineLane
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Handler
from stoker.worker.handler_lookup import HandlerLookup, is_own
from stoker.worker.health import HealthReport as HealthReport
from stoker.worker.health import HealthServer, Pulse, report_of
from stoker.worker.injection import WorkerScope
from stoker.worker.lane import Lane
from stoker.worker.pulling import FirstTask
from stoker.worker.queues import QueueSettings
from stoker.worker.recycling import Recycling, resident_bytes
from stoker.worker.registry import Registration, host_name, new_worker_id
from stoker.worker.session import WorkerRun
from stoker.worker.thread_lane import ThreadLane

log = logging.getLogger("stoker.worker")

COROUTINES = 100
THREADS = min(32, 4 * (os.cpu_count() or 1))
DRAIN = "25s"
NAMES_MAX = 500
"""A worker with more kinds of jobs does not list them, so that its entry in the list of workers stays small."""
BATCH_CALLS = 2
"""Calls of one batch handler at the same time: while one runs, the next is collected and begun."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_RELEASED = 7
"""Exit code: the worker ended before all begun jobs were finished, and handed the rest back."""

Queues = Mapping[str, "float | QueueSettings"] | Iterable[str]


class Worker:
    """Runs handlers. The same worker may run again after it has ended.

    `client` is a client, a broker or a URL; a client that the worker opens it also closes. `concurrency` is how many
    `async` handlers run at the same time, and the default for `threads` and `processes`. `queues` names the queues to
    work on, each with a weight or `QueueSettings`; the default is the queues of the handlers. `prefetch` is how many
    jobs each lane may fetch ahead; by default short jobs are fetched ahead. `drain` is how long running jobs may take
    to finish after `stop`; keep it below the 30 seconds after which orchestrators kill. `unknown_for` is how long jobs
    without a handler are sent back before they fail; make it longer than a deploy. `recycling` replaces child
    processes. `health` is a port, or host and port, for `/health` and `/ready`. `registered=False` keeps the worker out
    of the list of workers and skips the check whether its queues exist. `log_jobs` logs a line at level info for each
    job that ends; failures, timeouts, refused results, lost leases and stops are always logged.
    """

    def __init__(
        self,
        client: Client | AsyncClient | Broker | str | None,
        handlers: Iterable[Handler],
        *,
        tenant: str | None = None,
        queues: Queues | None = None,
        concurrency: int | None = None,
        threads: int | None = None,
        processes: int | None = None,
        prefetch: int | None = None,
        drain: Duration = DRAIN,
        unknown_for: Duration = "10m",
        recycling: Recycling | None = None,
        health: tuple[str, int] | int | None = None,
        registered: bool = True,
        id: str | None = None,
        poll_ms: int = 20_000,
        log_jobs: bool = False,
    ) -> None:
        self._client, self._own_tenant = client, tenant
        self.id = id or new_worker_id()
        self._directory = HandlerLookup(handlers, duration_ms(unknown_for) / 1_000, worker=self.id)
        if not self._directory.handlers:
            raise BadHandler("this worker has no handlers: pass at least one")
        self._queues = queues_of(queues, self._directory.handlers)
        for number, what in ((concurrency, "concurrency"), (threads, "threads"), (processes, "processes")):
            if number is not None and number < 1:
                raise BadHandler(f"{what}={number}: expected at least 1")
        if prefetch is not None and prefetch < 0:
            raise BadHandler(f"prefetch={prefetch}: expected 0 (none) or more")
        self._coroutines = concurrency or COROUTINES
        self._threads = threads or concurrency or THREADS
        self._processes = processes or min(concurrency or 1_000, os.cpu_count() or 1)
        self._prefetch, self._poll_ms = prefetch, poll_ms
        self._drain_s = duration_ms(drain) / 1_000
        self._recycling = recycling
        self._health = ("127.0.0.1", health) if isinstance(health, int) else health
        self._is_registered = registered
        self._log_jobs = log_jobs
        self.health_port = 0
        """The port of `/health`, once it is served."""
        self.first: FirstTask | None = None
        """Done before the first pull."""
        self._session: WorkerRun | None = None
        self._lock = threading.Lock()
        self._stops = 0
        self._started_at = 0

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._queues)

    @property
    def handlers(self) -> list[Handler]:
        """Without Stoker's own."""
        return [handler for handler in self._directory.handlers if not is_own(handler)]

    @property
    def stopping(self) -> bool:
        """Whether it takes no more jobs."""
        return self._session is not None and self._session.stopping

    # --- running ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until a signal says to stop. Returns the exit code for the process. Needs a thread without a running
        event loop.
        """
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self._run_with_signals())

    async def _run_with_signals(self) -> int:
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, number)
        try:
            is_finished = await self.serve()
        except StokerError as error:
            log.error("the worker ends: %s (%s)", error, error.code)
            return EXIT_FAILED
        return EXIT_OK if is_finished else EXIT_RELEASED

    def _signalled(self, number: int) -> None:
        if self._stops:
            log.warning("%s again: running jobs are handed back", signal.Signals(number).name)
            self.stop_now()
        else:
            log.info("%s: no new jobs; running jobs have %g s to finish", signal.Signals(number).name, self._drain_s)
            self.stop()

    async def serve(self) -> bool:
        """Work on this event loop until `stop`. Returns whether all begun jobs were finished."""
        with patient():
            return await self._serve()

    async def _serve(self) -> bool:
        session, broker = await self._open()
        beside: list[asyncio.Task[None]] = []
        health: HealthServer | None = None
        registration: Registration | None = None
        try:
            await session.start()
            if self._health is not None:
                health = HealthServer(self.report, *self._health)
                self.health_port = await self._listen(health)
            if self._is_registered:
                client = AsyncClient(broker, self._tenant, owner=False)
                beside.append(asyncio.create_task(tell_new_queues(client, self.queues, session.answered)))
                registration = Registration(client, self.view)
                beside.append(asyncio.create_task(registration.keep()))
            with self._lock:
                stops = self._stops
            if stops:  # `stop` was called before there was anything to stop
                session.stop()
            is_finished = await session.run(self._drain_s)
            self._tell_end(session)
            return is_finished
        finally:
            for task in beside:
                task.cancel()
            if registration is not None:
                await registration.leave()
            if health is not None:
                await health.stop()
            await self._close(session, broker)

    def _tell_end(self, session: WorkerRun) -> None:
        held_jobs = session.held_jobs
        log.info(
            "%s has stopped: %d deliveries settled, %d of them failed, %d handed back, %d lost",
            self.id,
            held_jobs.done,
            held_jobs.failed,
            held_jobs.released,
            held_jobs.lost,
            extra={"worker": self.id},
        )

    async def _listen(self, health: HealthServer) -> int:
        try:
            return await health.start()
        except OSError as error:
            raise BadHandler(
                f"the health endpoint cannot listen on {self._health}: {error}; choose another address"
            ) from error

    async def drain(self) -> int:
        """Work through all jobs that are ready, including those that become ready meanwhile. Returns the number of
        settled deliveries.
        """
        with patient():
            return await self._work_off()

    async def _work_off(self) -> int:
        session, broker = await self._open()
        try:
            await session.start()
            await session.run_until_idle()
            return session.held_jobs.done + session.held_jobs.released
        finally:
            await self._close(session, broker)

    def run_until_idle(self) -> int:
        """The same as `drain`, for callers without an event loop."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self.drain())

    def stop(self) -> None:
        """Take no more jobs and let running ones finish, within `drain`. May be called from any thread."""
        with self._lock:
            self._stops += 1
            session = self._session
        if session is not None:
            _on(session, session.stop)

    def stop_now(self) -> None:
        """Hand back running jobs and end. No attempt is counted. May be called from any thread."""
        with self._lock:
            self._stops += 1
            session = self._session
        if session is not None:
            _on(session, session.stop_now)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand: all jobs were settled or given up."""
        session = self._session
        return session is None or session.held_jobs.is_empty

    # --- reporting -------------------------------------------------------------------------------

    def report(self) -> HealthReport:
        """What the health endpoint shows."""
        session = self._session
        pulses: list[Pulse] = [] if session is None else [session.pulse]
        return report_of(
            pulses,
            running=0 if session is None else session.running,
            slots=0 if session is None else session.slots,
            done=0 if session is None else session.held_jobs.done,
            worker=self.id,
            stopping=bool(self._stops),
        )

    def view(self) -> WorkerView:
        """What the list of workers shows."""
        session = self._session
        return WorkerView(
            id=self.id,
            host=host_name(),
            pid=os.getpid(),
            queues=self.queues,
            names=told_names(self._directory.names),
            slots=0 if session is None else session.slots,
            running=0 if session is None else session.running,
            done=0 if session is None else session.held_jobs.done,
            failed=0 if session is None else session.held_jobs.failed,
            started_at=self._started_at,
            polled_at=0 if session is None else session.pulse.polled_at,
            stopping=bool(self._stops),
            version=__version__,
            memory_bytes=resident_bytes(),
        )

    # --- putting it together ---------------------------------------------------------------------

    async def _open(self) -> tuple[WorkerRun, Broker]:
        if self._session is not None:
            raise BadHandler("this worker runs already: make another one, or stop it first")
        broker = self._broker()
        scope = WorkerScope()
        lanes, lane_of = self._lanes(scope)
        session = WorkerRun(
            broker,
            self._tenant,
            self._directory,
            lanes,
            lane_of,
            self._queues,
            scope,
            self.id,
            self._poll_ms,
            self.first,
            log_jobs=self._log_jobs,
        )
        self._started_at = time.time_ns() // 1_000_000
        with self._lock:
            self._session = session
        return session, broker

    async def _close(self, session: WorkerRun, broker: Broker) -> None:
        try:
            await session.close()
        finally:
            with self._lock:
                self._session, self._stops = None, 0
            if self._client is None or isinstance(self._client, str):
                broker.close()

    @property
    def _tenant(self) -> str:
        if self._own_tenant is not None:
            return self._own_tenant
        return self._client.tenant if isinstance(self._client, Client | AsyncClient) else "default"

    def _broker(self) -> Broker:
        if self._client is None or isinstance(self._client, str):
            return open_broker(self._client)
        return self._client.broker if isinstance(self._client, Client | AsyncClient) else self._client

    def _lanes(self, scope: WorkerScope) -> tuple[dict[str, Lane], dict[str, Lane]]:
        """The lanes that the handlers need, and the lane of each handler."""
        lanes: dict[str, Lane] = {}
        lane_of: dict[str, Lane] = {}
        processes: Any = None
        in_processes = [handler for handler in self._directory.handlers if handler.kind == "process"]
        if in_processes:
            from stoker.worker.process_lane import ProcessLane

            processes = lanes["process"] = ProcessLane(
                self._processes, in_processes, prefetch=self._prefetch, recycling=self._recycling
            )
        for handler in self._directory.handlers:
            if handler.batch is not None:
                from stoker.worker.batch_lane import BatchLane

                calls = self._processes if handler.kind == "process" else BATCH_CALLS
                lane: Lane = BatchLane(handler, calls, scope, prefetch=self._prefetch, processes=processes)
                lanes[f"batch {handler.name}"] = lane
            elif handler.kind == "process":
                lane = processes
            elif handler.kind == "async":
                lane = lanes.get("async") or CoroutineLane(self._coroutines, scope, prefetch=self._prefetch)
                lanes["async"] = lane
            elif handler.kind == "thread":
                lane = lanes.get("thread") or ThreadLane(self._threads, scope, prefetch=self._prefetch)
                lanes["thread"] = lane
            else:
                assert_never(handler.kind)
            lane_of[handler.name] = lane
        return lanes, lane_of


async def tell_new_queues(client: AsyncClient, queues: Sequence[str], answered: asyncio.Event) -> None:
    """After the first answered pull, log which queues do not exist yet: a name may be mistyped."""
    await answered.wait()
    try:
        known = set(await client.list_queues())
    except StokerError:
        return  # this client may work on the queue but not list queues
    for name in queues:
        if name not in known:
            close = did_you_mean(name, known)
            text = "queue %r has no jobs and no configuration yet%s"
            log.log(logging.WARNING if close else logging.INFO, text, name, close, extra={"queue": name})


def told_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if len(names) <= NAMES_MAX else ()


def _on(session: WorkerRun, what: Any) -> None:
    try:
        session.loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass  # its loop is closed: the worker has ended


def queues_of(queues: Queues | None, handlers: Sequence[Handler]) -> dict[str, QueueSettings]:
    """The queues to work on, with their settings."""
    if queues is None:
        queues = [handler.queue for handler in handlers]
    if isinstance(queues, str):
        queues = [queues]
    if not isinstance(queues, Mapping):
        return dict.fromkeys(queues, QueueSettings())
    return {
        name: wanted if isinstance(wanted, QueueSettings) else QueueSettings(weight=wanted)
        for name, wanted in queues.items()
    }


def loop_factory() -> Any:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
