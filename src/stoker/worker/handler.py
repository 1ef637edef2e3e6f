"""A handler: a function with everything that a worker needs to call it.

`stoker.app` makes handlers from decorated functions; they can also be made by hand. They are values: a worker never
changes one, and nothing here talks to a queue.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from stoker.model.options import DEFAULT_OPTIONS, Codec, Options, RateLimit
from stoker.worker.errors import BadHandler, BadResult
from stoker.worker.outcomes import RetryPolicy

Kind = Literal["async", "thread", "process"]
Scope = Literal["job", "worker"]

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments."""
Decode: TypeAlias = Callable[[bytes, Codec], Arguments]
Encode: TypeAlias = Callable[[Any], bytes | None]

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """When to stop collecting jobs for one call: at `size` jobs, at `bytes_max` of payload, or after `max_wait_ms`.

    The function gets a list with the value of each job (its only argument), or a list of tuples where a job has several
    arguments. It returns a list with a result or an exception for each job, or None.
    """

    size: int = 64
    bytes_max: int = 0
    """0 means no limit."""
    max_wait_ms: int = 20

    def __post_init__(self) -> None:
        if self.size < 1 or self.bytes_max < 0 or self.max_wait_ms < 0:
            raise BadHandler(f"{self}: expected a size of at least 1 and no negative numbers")


@dataclass(frozen=True, slots=True)
class Depends:
    """Gives a parameter the value that `provider` returns or yields.

    A provider is a plain or `async` function, or a generator of either kind, which cleans up after its `yield`. It may
    have parameters with `Depends`, and one annotated with `Context`. `scope="job"` makes a value for each job;
    `scope="worker"` makes one when it is first needed and keeps it until the worker ends.
    """

    provider: Callable[..., Any]
    scope: Scope = "job"


class Middleware:
    """Code that runs around handlers. Override what you need; each method may be plain or `async`.

    `around` is a generator (plain or asynchronous) that yields once: the handler runs at the `yield`, which gives its
    result or raises its exception. An exception that `around` catches and does not raise again is dropped. Around a
    plain handler, asynchronous hooks run on the worker's event loop.
    """

    def before(self, ctx: Any) -> Any:
        """Runs before the handler. An exception here ends the delivery as if the handler had raised it."""

    def after(self, ctx: Any, result: Any) -> Any:
        """Runs after a handler that returned."""

    def failed(self, ctx: Any, error: BaseException) -> Any:
        """Runs after a handler that raised."""

    around: Callable[[Any], Any] | None = None


def whole_payload(payload: bytes, codec: Codec) -> Arguments:
    """The default for handlers made by hand: the payload as the only argument."""
    return (payload,), {}


def plain_result(value: Any) -> bytes | None:
    """The default for handlers made by hand: bytes or None."""
    if value is None or type(value) is bytes:
        return value
    raise BadResult(f"the handler returned {type(value).__name__}: expected bytes or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A named function, and how to run it."""

    name: str
    function: Callable[..., Any]
    kind: Kind = "thread"
    queue: str = DEFAULT_QUEUE
    aliases: tuple[str, ...] = ()
    """Earlier names under which jobs may still arrive."""
    decode: Decode = whole_payload
    """Turns a payload into arguments. Raises `BadArguments`, which names the path of the bad value."""
    encode: Encode = plain_result
    """Turns a result into bytes; None means no result. Raises `BadResult`."""
    result_codec: Codec = "msgpack"
    options: Options = DEFAULT_OPTIONS
    """Defaults for pushes of this kind."""
    soft_timeout_ms: int = 0
    """0 means none."""
    batch: Batch | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    context: str | None = None
    """The parameter that gets the `Context`."""
    dependencies: Mapping[str, Depends] = field(default_factory=lambda: MappingProxyType({}))
    middleware: tuple[Middleware, ...] = ()
    """The first one is the outermost."""
    rate: RateLimit | None = None
    """How often this worker starts it. A limit across all workers belongs to the queue."""
    origin: str = ""
    """`module:qualname`, by which a child process finds the function."""

    @property
    def is_bare(self) -> bool:
        """Whether the function can be called directly: no context, dependencies or middleware."""
        return self.context is None and not self.dependencies and not self.middleware
