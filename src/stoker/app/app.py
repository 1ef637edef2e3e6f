"""The app: where jobs are declared and pushed, and where a worker finds its handlers.

    app = stoker.App()                       # STOKER_URL, or sqlite:///stoker.db

    @app.job(queue="mail", max_attempts=8, timeout="2m")
    async def welcome(user_id: int) -> str: ...

    job = await welcome.push(7)
    print(await job.result(timeout=10))

Declaring opens nothing: the first push does. One app serves any number of threads and event loops. The worker decides
how jobs run.
"""

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack, overload

from stoker.app import options as friendly
from stoker.app.decorators import Anything, BatchDecorator, JobDecorator
from stoker.app.errors import UnknownJob
from stoker.app.handles import Job
from stoker.app.importing import imported
from stoker.app.inputs import spreader
from stoker.app.jobtype import AsyncJobType, Definition, JobType, PlainJobType, Step, kind_of
from stoker.app.options import Defaults, JobOptions, Layer
from stoker.app.schedules import OWNER, Declared, Rule, Synced, check_name, rule_of, step_of, sync
from stoker.app.sync_or_async import carry_out, carry_out_async
from stoker.brokers.connect import open_broker
from stoker.brokers.contract import Broker
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.model.schedules import Schedule
from stoker.model.units import Duration, duration_ms
from stoker.worker.context import Context
from stoker.worker.errors import BadHandler
from stoker.worker.handler import DEFAULT_QUEUE, Batch, Handler, Middleware

if TYPE_CHECKING:
    from stoker.app.workflow import WorkflowRun
    from stoker.brokers.connect import BrokerSettings
    from stoker.worker.recycling import Recycling
    from stoker.worker.worker import Queues, Worker

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=JobType[..., Any] | Step[Any])


class WorkerSettings(TypedDict, total=False):
    """The arguments of `app.worker(...)`: those of `Worker`, except the queue and the handlers."""

    tenant: str | None
    queues: "Queues | None"
    concurrency: int | None
    threads: int | None
    processes: int | None
    prefetch: int | None
    drain: Duration
    unknown_for: Duration
    recycling: "Recycling | None"
    health: tuple[str, int] | int | None
    registered: bool
    id: str | None
    poll_ms: int
    log_jobs: bool


class App:
    """Jobs, the queue that they go to, and defaults for all of them.

    `url` is where the queue is; the default is STOKER_URL, then `sqlite:///stoker.db`. An app with a `name` can delete
    schedules that it made and that are gone from its code. `defaults` are options for every job, `queues` for the jobs
    of a queue, as in `App(queues={"mail": {"timeout": "1m"}})`. A job's own options win over its queue's, and those
    over the app's. `middleware` runs around every job. `dependencies` has a provider for a type (`db: Database =
    Depends()`), or replaces one provider by another. `include` names modules with jobs of this app, which a worker
    imports. `validate=False` checks the types of arguments only in the worker. `broker` is an open broker; the caller
    closes it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        tenant: str = "default",
        queue: str = DEFAULT_QUEUE,
        defaults: Defaults | None = None,
        queues: Mapping[str, Defaults] | None = None,
        middleware: Middleware | Sequence[Middleware] = (),
        dependencies: Mapping[Any, Any] | None = None,
        include: Sequence[str] = (),
        settings: "BrokerSettings | None" = None,
        tracing: bool = True,
        validate: bool = True,
        broker: Broker | None = None,
    ) -> None:
        self.url = url
        self.name = name
        self.tenant = tenant
        self.default_queue = queue
        try:
            self.middleware = friendly.middleware_of(middleware)
        except TypeError as error:
            raise InvalidRequest(f"App(middleware=...): {error}") from None
        self.dependencies = dict(dependencies or {})
        """Providers by the type that they provide, or by the provider that they replace, for example in tests."""
        self.include = (include,) if isinstance(include, str) else tuple(include)
        self.tracing = tracing
        self.validate = validate
        self._settings = settings
        self._defaults = friendly.layer_of(defaults or {}, friendly.DEFAULTS, "App(defaults=...)")
        self._queues = {
            name: friendly.layer_of(said, friendly.DEFAULTS, f"App(queues=...): {name}")
            for name, said in (queues or {}).items()
        }
        self._types: dict[str, JobType[..., Any]] = {}
        self._names: dict[str, str] = {}
        """Every name and alias, with the job's own name."""
        self._schedules: dict[str, Declared] = {}
        self._remembered: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()
        self._broker = broker
        self._owns_broker = broker is None
        self._client: Client | None = None
        self._aclient: AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<App of {len(self._types)} jobs>"

    # --- declaring -------------------------------------------------------------------------------

    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]], /
    ) -> AsyncJobType[..., R]: ...

    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncJobType[P, R]: ...

    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobType[P, R]: ...

    @overload
    def job(self, function: Callable[Concatenate[Anything, P], R], /) -> PlainJobType[..., R]: ...

    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> PlainJobType[P, R]: ...

    @overload
    def job(self, function: Callable[P, R], /) -> PlainJobType[P, R]: ...

    @overload
    def job(self, *, batch: Batch | int, max_wait: Duration = ..., **options: Unpack[JobOptions]) -> BatchDecorator: ...

    @overload
    def job(self, **options: Unpack[JobOptions]) -> JobDecorator: ...

    def job(  # type: ignore[misc]
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        batch: Batch | int | None = None,
        max_wait: Duration | None = None,
        **options: Any,
    ) -> Any:
        """Make a function a kind of job.

        Coroutine functions run on the worker's event loop, plain ones in its threads, and those with `kind="process"`
        in child processes. The worker fills in parameters annotated with `Context` and those with `Depends`; they are
        not part of a push. `batch=64, max_wait="20ms"` calls a function of a list once for up to 64 jobs, or for those
        that came within 20 ms; it returns a list with a result, or an exception, for each.
        """
        wanted = batch_of(batch, max_wait)

        def declare(function: Callable[..., Any]) -> JobType[..., Any]:
            return self._declare(function, wanted, options)

        return declare if function is None else declare(function)

    def _declare(
        self, function: Callable[..., Any], batch: Batch | None, given: Mapping[str, Any]
    ) -> JobType[..., Any]:
        if isinstance(function, JobType):
            raise BadHandler(f"{function.name} is already a job: decorate the function itself, or function.function")
        if not hasattr(function, "__qualname__"):
            raise BadHandler(f"{function!r} cannot be a job: expected a function")
        label = given.get("name") or function.__name__
        layer = friendly.layer_of(given, friendly.JOB, f"@app.job of {label}", templates=True)
        name: str = layer.pop("name", function.__name__)
        kind = kind_of(function, layer.pop("kind", None), name)
        definition = Definition(
            function=function,
            name=name,
            aliases=layer.pop("aliases", ()),
            kind=kind,
            batch=batch,
            rate=layer.pop("rate", None),
            middleware=layer.pop("middleware", ()),
            layer=layer,
        )
        made: type[JobType[..., Any]] = AsyncJobType if kind == "async" else PlainJobType
        return self._enter(made(self, definition))

    def schedule(
        self, cron: str | None = None, /, *, name: str | None = None, **rule: Unpack[Rule]
    ) -> Callable[[S], S]:
        """Let the queue push a job by the clock: `@app.schedule("0 8 * * *", zone="Europe/Vienna")` above `@app.job`.

        A job with arguments is scheduled as a step: `app.schedule(every="5m")(brew.s("tea"))`. A schedule has the name
        of its job, unless it gets another. The queue learns of it when a worker of this app starts, or from
        `sync_schedules`. From then on the queue pushes the jobs, even while no program of the app runs.
        """

        def declare(target: S) -> S:
            step = step_of(target)
            declared = Declared(name or step.job_type.name, step, rule_of(cron, rule, f"a schedule of {step!r}"))
            with self._lock:
                check_name(declared, self._schedules.get(declared.name))
                self._schedules[declared.name] = declared
            return target

        return declare

    @property
    def schedules(self) -> Mapping[str, Declared]:
        """Every schedule in the code, by name."""
        return dict(self._schedules)

    def sync_schedules(self) -> Synced:
        """Put the schedules of the code into the queue: those that are new or differ.

        An app with a name also deletes schedules that it made and that are gone from its code. An app without a name
        cannot tell its own from others', and deletes none.
        """
        self.load()
        return carry_out(self.client, sync(self._wanted_schedules(), self._owner))

    @property
    def _owner(self) -> str | None:
        return None if self.name is None else OWNER.format(self.name)

    def _wanted_schedules(self) -> dict[tuple[str, str], Schedule]:
        return {(one.step.queue, one.name): one.wanted(self._owner) for one in self._schedules.values()}

    def _enter(self, job_type: JobType[..., Any]) -> JobType[..., Any]:
        """A name can be used once. The same function may be declared again, because its module was imported again."""
        definition = job_type.definition
        names = (definition.name, *definition.aliases)
        with self._lock:
            for name in names:
                other = self._types.get(self._names.get(name, ""))
                if other is not None and other.definition.origin != definition.origin:
                    raise BadHandler(
                        f"there is already a job {name!r} ({other.definition.origin}): give {definition.origin} another"
                        f" name, @app.job(name=...)"
                    )
            self._names = {name: own for name, own in self._names.items() if own != definition.name}
            self._types[definition.name] = job_type
            self._names.update(dict.fromkeys(names, definition.name))
            for part in ("arguments", "results"):
                self._remembered.pop((definition.name, part), None)
        return job_type

    def remember(self, key: tuple[str, str], make: Callable[[], Any]) -> Any:
        """Make something costly once for all views of a job type."""
        with self._lock:
            if key not in self._remembered:
                self._remembered[key] = make()
            return self._remembered[key]

    def layers_for(self, queue: str) -> tuple[Layer, ...]:
        """The app's options for jobs in a queue; later layers win."""
        return self._defaults, self._queues.get(queue, {})

    # --- finding ---------------------------------------------------------------------------------

    @property
    def jobs(self) -> Mapping[str, JobType[..., Any]]:
        """Every kind of job, by name."""
        return dict(self._types)

    def job_named(self, name: str) -> JobType[..., Any]:
        """The job type with this name or alias. Raises `UnknownJob`."""
        found = self.find_job(name)
        if found is None:
            known = ", ".join(sorted(self._types)) or "none"
            raise UnknownJob(f"this app has no job {name!r}; it has {known}")
        return found

    def find_job(self, name: str | None) -> JobType[..., Any] | None:
        """The same, or None."""
        return self._types.get(self._names.get(name or "", ""))

    def handle(self, job: int) -> Job[Any]:
        """A handle on a job by its id. Its result is decoded by the return annotation of the function with the job's
        name.
        """
        return Job(self, None, job)

    def workflow_run(self, workflow: int) -> "WorkflowRun":
        """A handle on a workflow by its id."""
        from stoker.app.workflow import WorkflowRun

        return WorkflowRun(self, workflow)

    # --- talking to the queue --------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker, opened when first needed."""
        broker = self._broker
        if broker is None:
            with self._lock:
                broker = self._broker
                if broker is None:
                    broker = self._broker = open_broker(self.url, self._settings)
        return broker

    @property
    def client(self) -> Client:
        """The client for plain code, from any thread."""
        client = self._client
        if client is None:
            broker = self.broker
            client = self._client = Client(broker, self.tenant, owner=False, tracing=self.tracing)
        return client

    @property
    def aclient(self) -> AsyncClient:
        """The client for coroutines, in any event loop."""
        client = self._aclient
        if client is None:
            broker = self.broker
            client = self._aclient = AsyncClient(broker, self.tenant, owner=False, tracing=self.tracing)
        return client

    def use(self, broker: Broker | None) -> None:
        """For tests: use another broker from now on, which the caller closes; None goes back to the app's URL."""
        with self._lock:
            self.close()
            self._broker, self._owns_broker = broker, broker is None

    def close(self) -> None:
        """Close the connection to the queue. The next push opens it again. A second call does nothing."""
        with self._lock:
            broker, owned = self._broker, self._owns_broker
            self._client = self._aclient = None
            if owned:
                self._broker = None
        if owned and broker is not None:
            broker.close()

    async def aclose(self) -> None:
        """The same from a coroutine."""
        import asyncio

        await asyncio.to_thread(self.close)

    def __enter__(self) -> "App":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "App":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- working ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Import the modules of `include`, so that their jobs are known. Raises `CannotLoad`."""
        for module in self.include:
            imported(module)

    def handlers(self, only: Iterable[str] | None = None) -> list[Handler]:
        """Handlers for a worker: every job of the app, or those with these names. Raises `BadHandler` for an invalid
        one.
        """
        self.load()
        types = self._types.values() if only is None else [self.job_named(name) for name in only]
        return [job_type.handler() for job_type in types]

    def own_handlers(self, queue: str) -> list[Handler]:
        """Stoker's own handlers for workflows: found by name, in any of the app's queues; `queue` is one of them."""
        return [spreader(self, queue)]

    def worker(
        self, *, jobs: Iterable[str] | None = None, schedules: bool = True, **settings: "Unpack[WorkerSettings]"
    ) -> "Worker":
        """A worker for the jobs of this app, or for those named. `Worker` explains the settings.

        It first puts the app's schedules into the queue, unless `schedules` is false.
        """
        from stoker.worker.pulling import FirstTask
        from stoker.worker.worker import Worker

        handlers = self.handlers(jobs)
        if not handlers:
            raise InvalidRequest(
                "this app has no jobs: declare some with @app.job, or name their modules with include="
            )
        worker = Worker(self.client, [*handlers, *self.own_handlers(handlers[0].queue)], **settings)
        if schedules and self._schedules:
            wanted = self._wanted_schedules()  # raises here for a schedule whose arguments do not fit

            async def tell() -> None:
                await carry_out_async(self.aclient, sync(wanted, self._owner))

            worker.first = FirstTask("sending the schedules to the queue", tell)
        return worker


def batch_of(batch: Batch | int | None, max_wait: Duration | None) -> Batch | None:
    if batch is None:
        if max_wait is not None:
            raise BadHandler("max_wait needs batch: it says how long to collect jobs for one call")
        return None
    if isinstance(batch, Batch):
        if max_wait is not None:
            raise BadHandler("max_wait is given twice: once in Batch is enough")
        return batch
    if max_wait is None:
        return Batch(size=batch)
    try:
        return Batch(size=batch, max_wait_ms=duration_ms(max_wait))
    except ValueError as error:
        raise BadHandler(f"max_wait: {error}") from None
