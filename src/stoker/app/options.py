"""Options as users write them: `timeout="2m"`, `run_at=tomorrow`, `unique_key="user:{user_id}"`.

They come in layers (app, queue, job, push). Each layer is converted to the fields of `model.options.Options` and laid
over the one before. `Options` says what they mean; this module only gives them a friendlier form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from string import Formatter
from typing import Any, TypeAlias, TypedDict

from stoker.model.errors import InvalidRequest
from stoker.model.limits import KIND_CHARS_MAX
from stoker.model.options import Backoff, Dependency, Options, RateLimit, UniquePolicy
from stoker.model.replies import Level
from stoker.model.units import Duration, duration_ms
from stoker.worker.handler import DEFAULT_QUEUE, Kind, Middleware
from stoker.worker.outcomes import RetryPolicy

Key: TypeAlias = str | Callable[..., str | None]
"""Text, or a function of the job's arguments that returns it."""


class Common(TypedDict, total=False):
    """Options at every level: app, queue, job and push."""

    priority: int
    """Any integer; higher first."""
    delay: Duration
    """Run it this long after the push."""
    ttl: Duration
    """Expire if the job has not started this long after the push."""
    timeout: Duration
    """Fail an attempt that runs longer than this."""
    lease: Duration
    """An attempt counts as failed if its worker does not renew the lease for this long."""
    max_attempts: int
    """Attempts at most; 0 = no limit."""
    max_crashes: int
    """How many of its workers may die; 0 = no limit."""
    backoff: Backoff | Duration
    """The pauses between attempts; a duration is the first pause, and they double."""
    unique_ttl: Duration
    """Free the unique key this long after the push, even if the job is still live."""
    on_conflict: UniquePolicy
    """What a push does when the unique key is taken: keep the old job, keep it and restart the key's ttl, or replace it
    if it waits.
    """
    custom_id_ttl: Duration
    """How long the custom id is remembered after the job's end."""
    debounce: Duration
    """How long further pushes with the same `debounce_id` return the first job."""
    lifo: bool
    """Newest first."""
    tags: Iterable[str]
    """The tags of all layers are combined."""
    remove_on_complete: bool
    """Delete the job with its result as soon as it has completed."""
    remove_on_fail: bool
    """Delete the job when it has failed for good, without a dead letter."""
    keep_completed_age: Duration
    """How long the ended job and its result stay readable."""
    keep_completed_count: int
    """Readable while it is among the last this many ended jobs of its queue."""
    log_lines_max: int
    """Keep this many of the last lines of its log."""
    stack_lines_max: int
    """Keep this many of the last lines of a failure's stack."""
    durability: Level
    """`memory`, `commit` or `fsync`."""


class Defaults(Common, total=False):
    """Defaults of an app or a queue for all jobs, or of a job for all its pushes."""

    soft_timeout: Duration
    """Ask an attempt that runs longer than this to stop, with an exception that it can catch."""
    retry: RetryPolicy
    """Decides about a failed attempt by the class of its exception."""


class PushOptions(Common, total=False):
    """Options that a push can have besides."""

    queue: str
    """Another queue than the job's or the app's."""
    run_at: datetime | int
    """A time with a zone, or milliseconds since the epoch. Wins over `delay`."""
    unique_key: Key | None
    """At most one live job with this key in a queue."""
    custom_id: Key | None
    """Your own id: a second push with it returns the first job."""
    debounce_id: Key | None
    """Of several pushes with this id within the window, only the first makes a job."""
    group_id: Key | None
    """Jobs of a group run one at a time, in push order."""
    depends_on: Any
    """Jobs, ids or `Dependency` values that must end before this one starts: one or several."""
    parent: Any
    """The job, or its id, that this one belongs to."""
    trace: str
    """W3C trace context; the default is that of the active span."""


class JobOptions(PushOptions, Defaults, total=False):
    """The arguments of `@app.job(...)`. Keys are templates here: `unique_key="user:{user_id}"`."""

    name: str
    """The kind of job; the default is the function's name."""
    aliases: Sequence[str]
    """Earlier names under which jobs may still arrive."""
    kind: Kind
    """`async`, `thread` or `process`: where it runs. Coroutines are `async`, plain functions run in threads."""
    rate: str | RateLimit
    """How often one worker starts it: `"100/s"`, `"10/m"`."""
    middleware: Middleware | Sequence[Middleware]
    """Runs around this job, inside the app's own middleware."""


Layer: TypeAlias = dict[str, Any]
"""Fields of `Options` and of `BESIDE`, ready to be laid over another layer."""

DURATIONS = {
    "delay": "delay_ms",
    "ttl": "ttl_ms",
    "timeout": "timeout_ms",
    "soft_timeout": "soft_timeout_ms",
    "lease": "lease_ms",
    "unique_ttl": "unique_ttl_ms",
    "custom_id_ttl": "custom_id_ttl_ms",
    "debounce": "debounce_ms",
    "keep_completed_age": "keep_completed_age_ms",
}
KEYS = ("unique_key", "custom_id", "debounce_id", "group_id")
BESIDE = ("queue", "soft_timeout_ms", "retry", "durability")
"""What a layer may have besides fields of `Options`."""
DEFAULTS = frozenset(Defaults.__annotations__)
PUSH = frozenset(PushOptions.__annotations__)
JOB = frozenset(JobOptions.__annotations__)


def layer_of(given: Mapping[str, Any], allowed: frozenset[str], where: str, *, templates: bool = False) -> Layer:
    """Check the given options and convert them to the units of `Options`. Raises `InvalidRequest` with the option's
    name.
    """
    unknown = sorted(given.keys() - allowed)
    if unknown:
        raise InvalidRequest(
            f"{where}: unknown option {', '.join(unknown)}; the options are {', '.join(sorted(allowed))}"
        )
    layer: Layer = {}
    for name, value in given.items():
        try:
            layer[DURATIONS.get(name, RENAMED.get(name, name))] = converted(name, value, templates)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"{where}: {name}: {error}") from None
    return layer


def converted(name: str, value: Any, templates: bool) -> Any:
    if name in DURATIONS:
        return duration_ms(value)
    if name in KEYS:
        return key_of(value, templates)
    convert = CONVERTERS.get(name)
    return value if convert is None else convert(value)


def laid(*layers: Layer) -> Layer:
    """Merge layers; later ones win. Tags are combined, and a delay replaces an earlier `run_at`."""
    merged: Layer = {}
    for layer in layers:
        if "delay_ms" in layer and "run_at" not in layer:
            merged.pop("run_at", None)
        tags = (*merged.get("tags", ()), *layer.get("tags", ()))
        merged.update(layer)
        if tags:
            merged["tags"] = tuple(dict.fromkeys(tags))
    return merged


# --- single options ----------------------------------------------------------------------------------


def moment(value: datetime | int) -> int:
    """Milliseconds since the epoch."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, datetime):
        raise TypeError(f"expected a datetime or milliseconds since the epoch, got {type(value).__name__}")
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone: expected one, as in datetime.now(timezone.utc)")
    return round(value.timestamp() * 1_000)


def backoff_of(value: Backoff | Duration) -> Backoff:
    return value if isinstance(value, Backoff) else Backoff(base_ms=duration_ms(value))


def tags_of(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def job_id(value: Any) -> int:
    """The id of a handle, or the id itself."""
    found = getattr(value, "id", value)
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"expected a job or its id, got {type(value).__name__}")
    return found


def dependencies_of(value: Any) -> tuple[Dependency, ...]:
    many = value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)
    return tuple(one if isinstance(one, Dependency) else Dependency(job_id(one)) for one in many)


def rate_of(value: str | RateLimit) -> RateLimit:
    """`100/s`, `5/10s`."""
    if isinstance(value, RateLimit):
        return value
    count, slash, per = value.partition("/")
    if not slash or not per.strip() or not count.strip().isdigit() or int(count) < 1:
        raise ValueError(f'{value!r} is not a rate: expected text like "100/s" or "5/10s"')
    per = per.strip()
    return RateLimit(int(count), duration_ms(per if per[:1].isdigit() else f"1{per}"))


def name_of(value: str) -> str:
    """Check the name of a kind of job."""
    if type(value) is not str or not value.isprintable() or not 0 < len(value) <= KIND_CHARS_MAX:
        raise ValueError(f"{value!r} is not a valid name: expected 1 to {KIND_CHARS_MAX} printable characters")
    return value


def names_of(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(name_of(one) for one in tags_of(value))


def instance_of(kind: type[Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return checked


def middleware_of(value: Middleware | Iterable[Middleware]) -> tuple[Middleware, ...]:
    """One, or several."""
    several = tuple(value) if isinstance(value, Iterable) else (value,)
    for one in several:
        if not isinstance(one, Middleware):
            raise TypeError(
                f"{one!r} is not a middleware: expected an instance of a class that extends stoker.Middleware"
            )
    return several


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "run_at": moment,
    "backoff": backoff_of,
    "tags": tags_of,
    "depends_on": dependencies_of,
    "parent": job_id,
    "rate": rate_of,
    "retry": instance_of(RetryPolicy),
    "queue": instance_of(str),
    "name": name_of,
    "aliases": names_of,
    "middleware": middleware_of,
}
RENAMED = {"parent": "parent_id"}


# --- keys that depend on the arguments ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Template:
    """A key with placeholders for arguments: `user:{user_id}`, `{order.customer}`."""

    text: str
    names: frozenset[str] = field(default=frozenset())

    def fill(self, given: Mapping[str, Any]) -> str:
        try:
            return self.text.format_map(given)
        except (AttributeError, KeyError, IndexError, ValueError, TypeError) as error:
            raise InvalidRequest(
                f"the key {self.text!r} cannot be filled in: {type(error).__name__}: {error}"
            ) from None


def key_of(value: Key | None, templates: bool) -> Any:
    """Text is a template only where it is written once for all pushes."""
    if value is None or callable(value):
        return value
    if not isinstance(value, str):
        raise TypeError(f"expected text or a function of the arguments, got {type(value).__name__}")
    if not templates:
        return value
    try:
        pieces = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a template: {error}") from None
    names = frozenset(name.partition(".")[0].partition("[")[0] for _, name, _, _ in pieces if name is not None)
    if "" in names or any(name.isdigit() for name in names):
        raise ValueError(f"{value!r} needs names in its braces, as in {{user_id}}")
    return Template(value, names) if names else value.format()


def wrong_templates(keys: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """What is wrong with the templates for a function with these parameters, or None."""
    for option, key in keys.items():
        for name in sorted(key.names) if isinstance(key, Template) else ():
            if name not in names:
                return f"{option}={key.text!r}: there is no parameter {name!r}; the parameters are {', '.join(names)}"
    return None


# --- all layers together -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PushWish:
    """The options of a push, with all layers merged."""

    queue: str
    options: Options
    keys: Mapping[str, Any]
    """Fields of the options that depend on the arguments."""
    durability: Level | None
    soft_timeout_ms: int
    retry: RetryPolicy | None

    @classmethod
    def of(cls, layer: Layer, name: str) -> "PushWish":
        said = dict(layer)
        keys = {key: said.pop(key) for key in KEYS if callable(said.get(key)) or isinstance(said.get(key), Template)}
        beside = {part: said.pop(part, None) for part in BESIDE}
        options = Options(**said, codec="msgpack", name=name)
        return cls(
            beside["queue"] or DEFAULT_QUEUE,
            options,
            keys,
            beside["durability"],
            beside["soft_timeout_ms"] or 0,
            beside["retry"],
        )
