"""What a worker runs: a function with everything that is known about how to call it.

Handlers are made by `stoker.app` out of decorated functions, or by hand. They are values: a worker never changes one,
and nothing in here talks to a queue.
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
    """How jobs are collected for one call: until there are `size`, or `bytes_max` of payload, or `max_wait_ms` passed.

    The function gets a list with the value of each job (its only argument), or a list of tuples of arguments where a
    job has several, and returns a list with a result or an exception for each, or None.
    """

    size: int = 64
    bytes_max: int = 0
    """0 = no bound."""
    max_wait_ms: int = 20

    def __post_init__(self) -> None:
        if self.size < 1 or self.bytes_max < 0 or self.max_wait_ms < 0:
            raise BadHandler(f"{self}: expected a size of at least 1, and no negative number")


@dataclass(frozen=True, slots=True)
class Depends:
    """Gives a parameter its value: what `provider` returns or yields.

    A provider is a plain or `async` function, or a generator of either kind, whose second half cleans up. It may have
    parameters of its own with `Depends`, or one annotated with `Context`. `scope="job"` makes a value for each job,
    `scope="worker"` one for the worker's life, made when it is first asked for.
    """

    provider: Callable[..., Any]
    scope: Scope = "job"


class Middleware:
    """Something that happens around handlers. Override what you need; each may be plain or `async`.

    `around` is a generator (or an asynchronous one) that yields once: the handler runs at the `yield`, which gives its
    result; an exception of the handler is raised there. What `around` catches and does not raise again has not
    happened. With asynchronous hooks around a plain handler the hooks run on the worker's event loop.
    """

    def before(self, ctx: Any) -> Any:
        """Before the handler; whatever it raises ends the delivery as if the handler had raised it."""

    def after(self, ctx: Any, result: Any) -> Any:
        """After a handler that returned."""

    def failed(self, ctx: Any, error: BaseException) -> Any:
        """After a handler that raised."""

    around: Callable[[Any], Any] | None = None


def whole_payload(payload: bytes, codec: Codec) -> Arguments:
    """For handlers that are made by hand: the payload as it is, as the only argument."""
    return (payload,), {}


def plain_result(value: Any) -> bytes | None:
    """For handlers that are made by hand: bytes or nothing."""
    if value is None or type(value) is bytes:
        return value
    raise BadResult(f"the handler returned {type(value).__name__}: expected bytes or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function by its name, and how it wants to be run."""

    name: str
    function: Callable[..., Any]
    kind: Kind = "thread"
    queue: str = DEFAULT_QUEUE
    aliases: tuple[str, ...] = ()
    """Names under which jobs may still come, from before it was renamed."""
    decode: Decode = whole_payload
    """From a payload to arguments. Raises `BadArguments`, which names the path."""
    encode: Encode = plain_result
    """From a result to bytes; None is no result. Raises `BadResult`."""
    result_codec: Codec = "msgpack"
    options: Options = DEFAULT_OPTIONS
    """What a push takes where it says nothing else."""
    soft_timeout_ms: int = 0
    """0 = none."""
    batch: Batch | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    context: str | None = None
    """The parameter that gets the `Context`."""
    dependencies: Mapping[str, Depends] = field(default_factory=lambda: MappingProxyType({}))
    middleware: tuple[Middleware, ...] = ()
    """The first one is the outermost."""
    rate: RateLimit | None = None
    """How often this worker starts it; a limit for all workers together belongs to the queue."""
    origin: str = ""
    """`module:qualname`, by which another process finds the function."""

    @property
    def is_bare(self) -> bool:
        """Whether it is the function and nothing else that has to be called."""
        return self.context is None and not self.dependencies and not self.middleware
