"""A function as a kind of job: `welcome.push(7)` takes what `welcome(7)` takes, and type checkers know it.

A job type is the function with its name, its options, and the encoding of its arguments and results. `options(...)`
returns another view of it. Nothing here runs a job, except `__call__`, which calls the function.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, get_args

import msgspec

from stoker.app import options as friendly
from stoker.app.arguments import Arguments
from stoker.app.converting import type_name
from stoker.app.depends import by_annotation
from stoker.app.handles import Job, JobBatch
from stoker.app.hints import OF_JOB_TYPES, OF_STEPS, missing
from stoker.app.inbox_jobs import InboxJob
from stoker.app.inputs import provider_of
from stoker.app.nodes import Map, Node
from stoker.app.options import Layer, PushOptions, PushWish
from stoker.app.results import Results
from stoker.app.signatures import Signature, signature_of
from stoker.client.batches import BATCH_JOBS, joined, pieces
from stoker.inbox import AsyncInboxConnection, InboxConnection, NewRow, insert, insert_sync
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError
from stoker.model.options import Options, RateLimit
from stoker.tracing import inject
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Batch, Depends, Handler, Kind, Middleware
from stoker.worker.outcomes import RetryPolicy

if TYPE_CHECKING:
    from stoker.app.app import App

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What the decorator said about a function, for all of its pushes."""

    function: Callable[..., Any]
    name: str
    aliases: tuple[str, ...]
    kind: Kind
    batch: Batch | None
    rate: RateLimit | None
    middleware: tuple[Middleware, ...]
    layer: Layer

    @property
    def origin(self) -> str:
        return f"{self.function.__module__}:{self.function.__qualname__}"


class Step(Node, Generic[R]):
    """A call that is not made yet: a job type with arguments and options, as `welcome.s(7)` makes it."""

    __slots__ = ("args", "job_type", "kwargs")

    def __init__(self, job_type: "JobType[..., R]", args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.job_type = job_type
        self.args = args
        self.kwargs = kwargs

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_STEPS, repr(self) if name in OF_STEPS else "")

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.job_type.name}.s({', '.join(given)})"

    def options(self, **changes: Unpack[PushOptions]) -> "Step[R]":
        """The same call with other options."""
        changed = copy.copy(self)
        changed.job_type = self.job_type.options(**changes)
        return changed

    @property
    def queue(self) -> str:
        """Where a push would go."""
        return self.job_type.wanted.queue

    def written(self, *, validate: bool | None = None) -> tuple[bytes, Options]:
        """Payload and options, as a push would send them."""
        return self.job_type.written(self.args, self.kwargs, validate=validate)

    async def push(self) -> Job[R]:
        """Make the call: push the job."""
        return await self.job_type.push(*self.args, **self.kwargs)

    def push_sync(self) -> Job[R]:
        return self.job_type.push_sync(*self.args, **self.kwargs)


class JobType(Generic[P, R]):
    """A kind of job: push it with the arguments of its function."""

    __name__: str

    def __init__(self, app: "App", definition: Definition, changes: Layer | None = None) -> None:
        self.app = app
        self.definition = definition
        self._changes: Layer = changes or {}
        functools.update_wrapper(self, definition.function, updated=())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} in {self.queue}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function directly: nothing is pushed."""
        return self.definition.function(*args, **kwargs)

    if not TYPE_CHECKING:  # type checkers should still report missing attributes

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_JOB_TYPES, self.name if name in OF_JOB_TYPES else "")

    @property
    def function(self) -> Callable[..., Any]:
        """The undecorated function."""
        return self.definition.function

    @property
    def name(self) -> str:
        """The kind of job, by which a worker finds the function."""
        return self.definition.name

    @property
    def queue(self) -> str:
        """Where pushes go."""
        return self.wanted.queue

    # --- pushing ---------------------------------------------------------------------------------

    async def push(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Push a job that will call the function with these arguments."""
        payload, options = self.written(args, kwargs)
        client = self.app.aclient
        try:
            pushed = await client.push(self.queue, payload, options, durability=self.wanted.durability)
        except LimitExceeded as error:
            raise self._too_large(error, payload, args, kwargs) from None
        return Job(self.app, self, pushed.id, pushed)

    def push_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same for plain code."""
        payload, options = self.written(args, kwargs)
        client = self.app.client
        try:
            pushed = client.push(self.queue, payload, options, durability=self.wanted.durability)
        except LimitExceeded as error:
            raise self._too_large(error, payload, args, kwargs) from None
        return Job(self.app, self, pushed.id, pushed)

    async def push_in(self, connection: AsyncInboxConnection, /, *args: P.args, **kwargs: P.kwargs) -> InboxJob[R]:
        """Push a job in your own transaction in PostgreSQL: there will be a job if, and only if, it commits.

        `connection` is psycopg's or asyncpg's, or an AsyncSession or AsyncConnection of SQLAlchemy. The job is a row in
        the table `stoker_inbox`, until a reader pushes it. So it gets its id later, and has a custom id from the start.
        `durability` is not used: readers always push at `fsync`.
        """
        row = self._inbox_row(args, kwargs)
        await insert(connection, row)
        return InboxJob(self.app, self, row.queue, row.custom_id)

    def push_in_sync(self, connection: InboxConnection, /, *args: P.args, **kwargs: P.kwargs) -> InboxJob[R]:
        """The same for plain code. `connection` is psycopg's or Django's, or a Session or Connection of SQLAlchemy."""
        row = self._inbox_row(args, kwargs)
        insert_sync(connection, row)
        return InboxJob(self.app, self, row.queue, row.custom_id)

    async def push_batch(
        self, items: "Iterable[Step[R] | tuple[Any, ...] | Mapping[str, Any] | Any]", *, request_key: str | None = None
    ) -> JobBatch[R]:
        """Push many jobs at once: each item is a step (`welcome.s(7)`), a tuple of arguments, a mapping of arguments by
        name, or the only argument itself.

        There may be any number of items; a thousand go in one request. If a request fails, its error is raised, and the
        requests before it stay pushed. With a `request_key` the same call can be repeated until it succeeds: nothing is
        pushed twice. A refused item does not affect the others: see `JobBatch.refused`.
        """
        replies = [await self.app.aclient.execute(command) for command in self._batches(items, request_key)]
        return JobBatch(self.app, self, joined(replies) if replies else r.PushedBatch(()))

    def push_batch_sync(
        self, items: "Iterable[Step[R] | tuple[Any, ...] | Mapping[str, Any] | Any]", *, request_key: str | None = None
    ) -> JobBatch[R]:
        """The same for plain code."""
        replies = [self.app.client.execute(command) for command in self._batches(items, request_key)]
        return JobBatch(self.app, self, joined(replies) if replies else r.PushedBatch(()))

    def options(self, **changes: Unpack[PushOptions]) -> "JobType[P, R]":
        """The same kind of job with other options: `welcome.options(delay="5m").push(7)`."""
        layer = friendly.layer_of(changes, friendly.PUSH, f"{self.name}.options")
        return type(self)(self.app, self.definition, friendly.laid(self._changes, layer))

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """A step of a workflow, or an item of a batch: the call with its arguments, not made yet."""
        try:
            self.arguments.check(args, kwargs)
        except TypeError as error:
            raise self._explained(error, kwargs, "s(...)") from None
        return Step(self, args, kwargs)

    step = s

    def map(self, **kwargs: Any) -> Map:
        """A piece of a workflow: a job for each element of the previous jobs' results, as its first argument."""
        self.arguments.check((None,), kwargs)
        return Map(self, kwargs)

    def handle(self, job: int) -> Job[R]:
        """A handle on a job of this kind, by its id."""
        return Job(self.app, self, job)

    # --- parts -----------------------------------------------------------------------------------

    @functools.cached_property
    def wanted(self) -> PushWish:
        """The options of a push: layers of the app, the queue, the job and this view, merged."""
        queue = self._changes.get("queue") or self.definition.layer.get("queue") or self.app.default_queue
        layers = self.app.layers_for(queue)
        layer = friendly.laid(*layers, self.definition.layer, self._changes, {"queue": queue})
        try:
            return PushWish.of(layer, self.name)
        except TypeError as error:
            raise InvalidRequest(f"{self.name}: {error}") from None

    @functools.cached_property
    def signature(self) -> Signature:
        signature = signature_of(self.function, self.name, is_batch=self.definition.batch is not None)
        names = [one.name for one in signature.pushed]
        wrong = friendly.wrong_templates(self.definition.layer, names)
        if wrong is not None:
            raise BadHandler(f"{self.name}: {wrong}")
        return signature

    @functools.cached_property
    def arguments(self) -> Arguments:
        """The encoding of the arguments."""
        arguments: Arguments = self._shared("arguments", lambda: Arguments(self.signature, self.name))
        return arguments

    @functools.cached_property
    def results(self) -> Results:
        """The encoding of the results."""
        results: Results = self._shared("results", lambda: Results(self.signature.returns, self.name))
        return results

    def _shared(self, part: str, make: Callable[[], Any]) -> Any:
        """Made once for all views of a job type: it is the same for all of them."""
        return self.app.remember((self.name, part), make)

    def handler(self) -> Handler:
        """The handler for a worker."""
        definition, wanted, signature = self.definition, self.wanted, self.signature
        return Handler(
            name=self.name,
            function=self.function,
            kind=definition.kind,
            queue=wanted.queue,
            aliases=definition.aliases,
            decode=self.arguments.read,
            encode=self.results.encode,
            options=wanted.options,
            soft_timeout_ms=wanted.soft_timeout_ms,
            batch=definition.batch,
            retry=wanted.retry or RetryPolicy(),
            context=signature.context,
            dependencies={name: self._dependency(name) for name in signature.dependencies},
            middleware=(*self.app.middleware, *definition.middleware),
            rate=definition.rate,
            origin=definition.origin,
        )

    def _dependency(self, name: str) -> Depends:
        """The app's provider, for this provider or for the parameter's type, wins over the one in the code."""
        asked, kind = self.signature.dependencies[name], self.signature.kinds[name]
        before = provider_of(asked, kind, self.definition.kind, self.name)
        if before is not None:
            return before
        known = self.app.dependencies
        found = known.get(kind) if asked.provider is by_annotation else known.get(asked.provider, asked)
        if found is None:
            raise BadHandler(
                f"{self.name}: {name!r} has no provider: give one to Depends, or to the app for the type"
                f" {type_name(kind)}, App(dependencies={{{type_name(kind)}: ...}})"
            )
        return found if isinstance(found, Depends) else Depends(found, asked.scope)

    # --- writing ---------------------------------------------------------------------------------

    def written(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, validate: bool | None = None
    ) -> tuple[bytes, Options]:
        """Payload and options of a call. Raises `TypeError` for a call that the function would not take, or
        `BadArguments` for a value that cannot be encoded or has the wrong type.
        """
        arguments = self.arguments
        try:
            payload = arguments.encode(args, kwargs)
        except TypeError as error:
            raise self._explained(error, kwargs, "push_sync(...)") from None
        if self.app.validate if validate is None else validate:
            arguments.read(payload, "msgpack")
        wanted = self.wanted
        if not wanted.keys:
            return payload, wanted.options
        return payload, msgspec.structs.replace(wanted.options, **self._keys(wanted.keys, args, kwargs))

    def _inbox_row(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewRow:
        payload, options = self.written(args, kwargs)
        return NewRow.of(self.queue, payload, inject(options) if self.app.tracing else options, self.app.tenant)

    def _explained(self, error: TypeError, kwargs: Mapping[str, Any], call: str) -> TypeError:
        """Add what to write, if an option was passed as if it were an argument of the function."""
        options = [name for name in kwargs if name in friendly.PUSH and name not in self.arguments.names]
        if not options:
            return error
        said = ", ".join(f"{name}={kwargs[name]!r}" for name in options)
        return TypeError(f"{error}; {options[0]} is an option of the job: {self.name}.options({said}).{call}")

    def _keys(self, keys: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str | None]:
        given = self.arguments.given(args, kwargs)
        filled: dict[str, str | None] = {}
        for option, key in keys.items():
            filled[option] = key.fill(given) if isinstance(key, friendly.Template) else key(*args, **kwargs)
            if filled[option] is not None and not isinstance(filled[option], str):
                kind = type(filled[option]).__name__
                raise InvalidRequest(f"{self.name}: the function for {option} returned {kind}: expected text or None")
        return filled

    def _batches(self, items: Iterable[Any], request_key: str | None) -> Iterator[c.PushBatch]:
        """Check everything before pushing anything, so that a bad item raises without leaving half a batch behind."""
        written = [self._item(item, place) for place, item in enumerate(items)]
        wanted = self.wanted
        shared = inject(wanted.options) if self.app.tracing else wanted.options
        own = [inject(options) if self.app.tracing else options for _, options in written] if wanted.keys else None
        start = 0
        for number, piece in enumerate(pieces((payload for payload, _ in written), BATCH_JOBS)):
            key = None if request_key is None else f"{request_key}:{number}"
            each = None if own is None else own[start : start + len(piece)]
            start += len(piece)
            yield c.PushBatch(wanted.queue, piece, shared, each, False, key, wanted.durability)

    def _item(self, item: Any, place: int) -> tuple[bytes, Options]:
        try:
            if isinstance(item, Step):
                return self._step_written(item)
            if isinstance(item, tuple):
                return self.written(item, {})
            if isinstance(item, Mapping):
                return self.written((), item)
            return self.written((item,), {})
        except TypeError as error:
            raise TypeError(f"item {place}: {error}") from None
        except StokerError as error:
            raise type(error)(f"item {place}: {error.message}") from error

    def _step_written(self, step: Step[Any]) -> tuple[bytes, Options]:
        if step.job_type.definition is not self.definition:
            raise InvalidRequest(f"{step!r} is not a {self.name}: a batch has jobs of one kind")
        if step.job_type._changes and step.job_type is not self:
            raise InvalidRequest(f"{step!r} has its own options: give them to the batch, {self.name}.options(...)")
        return self.written(step.args, step.kwargs)

    def _too_large(
        self, error: LimitExceeded, payload: bytes, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> LimitExceeded:
        """Name the largest argument, if the error is about the payload."""
        if "payload" not in error.message:
            return error
        sizes = self.arguments.sizes(args, kwargs)
        if not sizes:
            return error
        largest = max(sizes, key=lambda name: sizes[name])
        return LimitExceeded(
            f"{self.name}: {error.message}; {largest} takes {sizes[largest]:,} of {len(payload):,} bytes: keep large"
            " things in a file or an object store, and push where they are"
        )


class PlainJobType(JobType[P, R]):
    """A job type of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.definition.function(*args, **kwargs)  # type: ignore[no-any-return]

    if TYPE_CHECKING:

        def options(self, **changes: Unpack[PushOptions]) -> "PlainJobType[P, R]": ...


class AsyncJobType(JobType[P, R]):
    """A job type of a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.definition.function(*args, **kwargs)  # type: ignore[no-any-return]

    if TYPE_CHECKING:

        def options(self, **changes: Unpack[PushOptions]) -> "AsyncJobType[P, R]": ...


def kind_of(function: Callable[..., Any], kind: Kind | None, label: str) -> Kind:
    """Where a function runs. Raises `BadHandler` if it cannot run there."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadHandler(f"{label} is a generator: a job must return; use ctx.emit(...) for partial results")
    is_async = inspect.iscoroutinefunction(function)
    if kind is None:
        return "async" if is_async else "thread"
    if kind not in get_args(Kind):
        raise BadHandler(f"{label}: kind {kind!r}: expected one of {', '.join(get_args(Kind))}")
    if is_async != (kind == "async"):
        what = "a coroutine function" if is_async else "a plain function"
        raise BadHandler(f"{label} is {what} and cannot be of kind {kind!r}")
    if kind == "process" and "<locals>" in function.__qualname__:
        raise BadHandler(
            f"{label} is defined inside a function, where another process cannot find it: move it to module level"
        )
    return kind
