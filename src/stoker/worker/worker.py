"""A worker: handlers, how much of them at the same time, and when to stop.

    Worker("tcp://localhost:6789", handlers, concurrency=50).run()

`run` has a process to itself and listens to signals: the first SIGTERM or SIGINT lets what runs finish, the second
hands it back at once; neither costs a job an attempt. `serve` does the same on an event loop of the caller,
`run_until_idle` works off what is there.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stoker.brokers.connect import open_broker
from stoker.brokers.contract import Broker
from stoker.brokers.remote.patience import patient
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.model.hints import did_you_mean
from stoker.model.units import Duration, duration_ms
from stoker.model.version import __version__
from stoker.model.workers import WorkerView
from stoker.worker.coroutines import CoroutineLane
from stoker.worker.directory import Directory, is_own
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Handler
from stoker.worker.health import HealthServer, Pulse, report_of
from stoker.worker.health import Report as HealthReport
from stoker.worker.injection import WorkerScope
from stoker.worker.lane import Lane
from stoker.worker.pulling import Task
from stoker.worker.queues import QueueSettings
from stoker.worker.recycling import Recycling
from stoker.worker.registry import Registration, host_name, new_worker_id
from stoker.worker.session import Session
from stoker.worker.threads import ThreadLane

log = logging.getLogger("stoker.worker")

COROUTINES = 100
THREADS = min(32, 4 * (os.cpu_count() or 1))
DRAIN = "25s"
NAMES_MAX = 500
"""A worker with more kinds of jobs does not list them: its entry in the list of workers stays small."""
BATCH_CALLS = 2
"""Of one batch handler at the same time: while one runs, the next is collected and begun."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_RELEASED = 7
"""It ended, and not everything that it had begun was finished: the rest was handed back."""

Queues = Mapping[str, "float | QueueSettings"] | Iterable[str]


class Worker:
    """Runs handlers. The same worker may be run again after it has ended.

    `client` is a client, a broker or a URL; one that is opened here is closed here. `concurrency` is how many `async`
    handlers run at the same time, and how many `threads` and `processes` there are where these do not say. `queues`
    names those to work on, each with a weight or `QueueSettings`; without it they are those of the handlers. `prefetch`
    is how many jobs each lane may fetch ahead: by itself it does so for short ones. `drain` is how long what runs may
    take to finish after `stop`: less than the 30 seconds after which orchestrators kill. `unknown_for` is how long jobs
    that no handler is for are sent back before they are failed: longer than a deploy.
    `recycling` replaces child processes, `health` is a port, or host and port, for `/health` and `/ready`, and
    `registered=False` keeps the worker out of the list of workers, and from looking whether its queues exist.
    `log_jobs` logs a line for each job that ends, at level info; failures, timeouts, refused results, lost leases and
    stops are always logged.
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
        self._directory = Directory(handlers, duration_ms(unknown_for) / 1_000, worker=self.id)
        if not self._directory.handlers:
            raise BadHandler("a worker without handlers has nothing to do: give it some")
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
        """Where `/health` is served, once it is."""
        self.first: Task | None = None
        """To be done before the first pull."""
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._stops = 0
        self._started_at = 0

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._queues)

    @property
    def handlers(self) -> list[Handler]:
        """Without those that Stoker brings along."""
        return [handler for handler in self._directory.handlers if not is_own(handler)]

    @property
    def stopping(self) -> bool:
        """Whether it takes nothing more."""
        return self._session is not None and self._session.stopping

    # --- running ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until a signal says to stop; the exit code for the process. Nothing else may run an event loop here."""
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
            log.warning("%s again: what runs is handed back", signal.Signals(number).name)
            self.stop_now()
        else:
            log.info("%s: no new jobs; what runs has %g s to finish", signal.Signals(number).name, self._drain_s)
            self.stop()

    async def serve(self) -> bool:
        """Work on this event loop until `stop`. Whether everything that was begun was finished."""
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
            if stops:  # told so before there was anything to stop
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

    def _tell_end(self, session: Session) -> None:
        books = session.books
        log.info(
            "%s has stopped: %d deliveries settled, %d of them failed, %d handed back, %d lost",
            self.id,
            books.done,
            books.failed,
            books.released,
            books.lost,
            extra={"worker": self.id},
        )

    async def _listen(self, health: HealthServer) -> int:
        try:
            return await health.start()
        except OSError as error:
            raise BadHandler(f"the health endpoint cannot listen on {self._health}: {error}; choose another") from error

    async def drain(self) -> int:
        """Work off what is ready now, and whatever becomes ready while it does; how many deliveries were settled."""
        with patient():
            return await self._work_off()

    async def _work_off(self) -> int:
        session, broker = await self._open()
        try:
            await session.start()
            await session.run_until_idle()
            return session.books.done + session.books.released
        finally:
            await self._close(session, broker)

    def run_until_idle(self) -> int:
        """The same, for callers without an event loop."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self.drain())

    def stop(self) -> None:
        """From any thread: take nothing more, and let what runs finish. `drain` says how long it may take."""
        with self._lock:
            self._stops += 1
            session = self._session
        if session is not None:
            _on(session, session.stop)

    def stop_now(self) -> None:
        """From any thread: hand back what runs, and end. No attempt is counted."""
        with self._lock:
            self._stops += 1
            session = self._session
        if session is not None:
            _on(session, session.stop_now)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand: all that was taken is settled, or was given up."""
        session = self._session
        return session is None or session.books.is_empty

    # --- what it says of itself ------------------------------------------------------------------

    def report(self) -> HealthReport:
        """What the health endpoint tells."""
        session = self._session
        pulses: list[Pulse] = [] if session is None else [session.pulse]
        return report_of(
            pulses,
            running=0 if session is None else session.running,
            slots=0 if session is None else session.slots,
            done=0 if session is None else session.books.done,
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
            done=0 if session is None else session.books.done,
            failed=0 if session is None else session.books.failed,
            started_at=self._started_at,
            polled_at=0 if session is None else session.pulse.polled_at,
            stopping=bool(self._stops),
            version=__version__,
        )

    # --- putting it together ---------------------------------------------------------------------

    async def _open(self) -> tuple[Session, Broker]:
        if self._session is not None:
            raise BadHandler("this worker runs already: make another one, or stop it first")
        broker = self._broker()
        scope = WorkerScope()
        lanes, lane_of = self._lanes(scope)
        session = Session(
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

    async def _close(self, session: Session, broker: Broker) -> None:
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
            from stoker.worker.processes import ProcessLane

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
            else:
                lane = lanes.get("thread") or ThreadLane(self._threads, scope, prefetch=self._prefetch)
                lanes["thread"] = lane
            lane_of[handler.name] = lane
        return lanes, lane_of


async def tell_new_queues(client: AsyncClient, queues: Sequence[str], answered: asyncio.Event) -> None:
    """Log once which queues are not there yet, when the first pull was answered: perhaps a name is mistyped."""
    await answered.wait()
    try:
        known = set(await client.list_queues())
    except StokerError:
        return  # it may work there and not look around
    for name in queues:
        if name not in known:
            close = did_you_mean(name, known)
            text = "queue %r has no jobs and no configuration yet%s"
            log.log(logging.WARNING if close else logging.INFO, text, name, close, extra={"queue": name})


def told_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if len(names) <= NAMES_MAX else ()


def _on(session: Session, what: Any) -> None:
    try:
        session.loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass  # its loop is closed: it has ended


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
    """uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
