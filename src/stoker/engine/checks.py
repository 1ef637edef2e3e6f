"""Check what a caller sends. Checks raise the errors of `model/errors.py` and change nothing.

Messages say what was wrong, what was expected, and what to do.
"""

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from msgspec.structs import astuple

from stoker.model import errors
from stoker.model.commands import ReadRecords, Sending
from stoker.model.limits import DURATION_MS_MAX, INT_MAX, KIND_CHARS_MAX, NAME_PATTERN, Limits
from stoker.model.option_table import TYPES
from stoker.model.options import (
    CODECS,
    DEFAULT_OPTIONS,
    Backoff,
    BackoffKind,
    Codec,
    DeadLetterPolicy,
    Dependency,
    DependencyPolicy,
    GroupPolicy,
    Jitter,
    Options,
    RateLimit,
)
from stoker.records.stored import sizes_of

_name = NAME_PATTERN.fullmatch


def name(value: object, what: str = "queue") -> None:
    if type(value) is not str or _name(value) is None:
        raise errors.InvalidRequest(
            f"invalid {what} name {short(value)}: expected 1 to 256 characters out of A-Z a-z 0-9 _ . : -"
        )


def records(command: ReadRecords) -> None:
    """Check which records of a log are wanted."""
    for queue in command.queues or ():
        name(queue)
    for tenant in command.tenants or ():
        name(tenant, "tenant")
    for prefix in command.prefixes or ():
        if prefix:
            name(prefix, "prefix of a queue's")
    if command.events_max is not None:
        number(command.events_max, "events_max", 1, INT_MAX)


def number(value: object, what: str, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise errors.InvalidRequest(f"invalid {what} {short(value)}: expected a whole number from {low} to {high}")


def duration(value: object, what: str, low: int = 0) -> None:
    number(value, what, low, DURATION_MS_MAX)


def count(value: object, what: str, high: int, low: int = 1) -> None:
    """Check a number that has a limit of its own, which the error names."""
    number(value, what, low, INT_MAX)
    if value > high:  # type: ignore[operator]
        raise errors.LimitExceeded(f"{what} {value} is over the limit of {high}: ask for less at once")


def text(value: object, what: str, most: int, least: int = 0) -> None:
    if type(value) is not str or len(value) < least:
        raise errors.InvalidRequest(f"invalid {what} {short(value)}: expected a text of at least {least} characters")
    if len(value) > most:
        raise errors.LimitExceeded(f"{what} has {len(value)} characters, the limit is {most}: shorten it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise errors.InvalidRequest(f"invalid {what}: it contains a lone surrogate and cannot be encoded") from error


def key(value: object, what: str, limits: Limits) -> None:
    text(value, what, limits.key_chars_max, 1)


def flag(value: object, what: str) -> None:
    if type(value) is not bool:
        raise errors.InvalidRequest(f"invalid {what} {short(value)}: expected true or false")


def choice(value: object, what: str, allowed: object) -> None:
    if value not in get_args(allowed):
        raise errors.InvalidRequest(f"invalid {what} {short(value)}: expected one of {', '.join(get_args(allowed))}")


def payload(value: object, limits: Limits, what: str = "payload", most: int | None = None) -> None:
    if type(value) is not bytes:
        raise errors.InvalidRequest(f"invalid {what}: expected bytes, got {type(value).__name__}; encode it first")
    most = limits.payload_bytes_max if most is None else most
    if len(value) > most:
        raise errors.LimitExceeded(
            f"{what} has {len(value)} bytes, the limit is {most}: store it elsewhere and send a reference"
        )


NOT_PAYLOADS: tuple[type, ...] = (range,)
"""Types that are sequences but never hold payloads. A range may claim any length."""


def sizes_if_fine(values: Sequence[bytes], limits: Limits) -> int | list[int] | None:
    """A quick check of a whole batch: the sizes for its record, or None if a payload is malformed or too long.

    The record needs the sizes anyway. Each walk over 1,000 payloads takes 15 to 20 us; without walks, their push
    takes 10.
    """
    if set(map(type, values)) != {bytes}:
        return None
    sizes = sizes_of(values)
    longest = sizes if isinstance(sizes, int) else max(sizes)
    return sizes if longest <= limits.payload_bytes_max else None


def payloads_are_fine(values: Sequence[bytes], limits: Limits) -> bool:
    """The same for callers that need no sizes. `payload` finds out what is wrong with which item."""
    return sizes_if_fine(values, limits) is not None


def batch(values: Sequence[bytes], each: Sequence[Options] | None, limits: Limits) -> None:
    if not is_list(values) or isinstance(values, NOT_PAYLOADS):
        raise errors.InvalidRequest(f"invalid payloads {short(values)}: expected a list of bytes")
    if not values:
        raise errors.InvalidRequest("an empty batch: send at least one job")
    if len(values) > limits.batch_jobs_max:
        raise errors.LimitExceeded(
            f"a batch of {len(values)} jobs is over the limit of {limits.batch_jobs_max}: split it"
        )
    if each is not None and (not is_list(each) or len(each) != len(values)):
        raise errors.InvalidRequest(f"{len(values)} payloads: send one Options for each of them in `each`, or none")


def edges(count: int, each: Sequence[Options] | None, shared: Options, limits: Limits) -> None:
    """Check how many edges a batch has in all."""
    if each is None:
        total = count * len(shared.depends_on)
    else:
        total = sum(len(one.depends_on) for one in each if type(one) is Options and type(one.depends_on) is tuple)
    if total > limits.edges_per_batch_max:
        raise errors.LimitExceeded(
            f"a batch with {total} dependencies is over the limit of {limits.edges_per_batch_max}: split it"
        )


PLAIN_LISTS = frozenset((list, tuple, range))
"""What nearly every caller sends. Asking an abstract class costs more than the rest of the check."""


def is_list(values: object) -> bool:
    """Whether the value is meant as a list. Texts and bytes are sequences, too, but not lists of values."""
    if type(values) in PLAIN_LISTS:
        return True
    return isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray)


def ids(values: Sequence[int], limits: Limits, what: str = "ids") -> None:
    if not is_list(values) or (type(values) is not range and not set(map(type, values)) <= {int}):
        raise errors.InvalidRequest(f"invalid {what}: expected job ids, which are whole numbers")
    if not values:
        raise errors.InvalidRequest(f"no {what}: name at least one job")
    if len(values) > limits.batch_jobs_max:
        raise errors.LimitExceeded(
            f"{len(values)} {what} are over the limit of {limits.batch_jobs_max}: split the call"
        )


def rate_limit(value: RateLimit) -> None:
    number(value.count, "rate limit count", 1, 10**9)
    duration(value.per_ms, "rate limit per_ms", 1)
    number(value.burst, "rate limit burst", 0, 10**9)


def dead_letter_policy(value: DeadLetterPolicy) -> None:
    number(value.entries_max, "dead letter entries_max", 1, INT_MAX)
    duration(value.age_ms_max, "dead letter age_ms_max", 1)
    duration(value.auto_retry_interval_ms, "dead letter auto_retry_interval_ms", 1)
    number(value.auto_retries_max, "dead letter auto_retries_max", 0, INT_MAX)
    for field in ("auto_retry", "take_expired", "take_cancelled"):
        flag(getattr(value, field), f"dead letter {field}")


SENDER_CHARS_MAX = 1024
"""A fixed limit: clients generate these names, so no setting may make their pushes impossible."""


def sending(value: object) -> None:
    if type(value) is not Sending:
        raise errors.InvalidRequest(f"invalid sending: expected Sending, got {type(value).__name__}")
    text(value.sender, "sender", SENDER_CHARS_MAX, 1)
    number(value.number, "number", 0, INT_MAX)
    number(value.settled, "settled", 0, INT_MAX)


def kv_key(value: object, limits: Limits) -> None:
    text(value, "key", limits.kv_key_chars_max, 1)


def kv_batch(values: object, what: str, limits: Limits) -> None:
    """Check the keys or entries of a command about several entries."""
    if not is_list(values) or type(values) is range:
        raise errors.InvalidRequest(f"invalid {what} {short(values)}: expected a list")
    if not values:
        raise errors.InvalidRequest(f"no {what}: name at least one")
    if len(values) > limits.kv_batch_max:  # type: ignore[arg-type]
        count = len(values)  # type: ignore[arg-type]
        raise errors.LimitExceeded(f"{count} {what} are over the limit of {limits.kv_batch_max}: split the call")


def codec(value: object) -> None:
    if value not in CODECS:
        choice(value, "codec", Codec)


def group_policy(value: GroupPolicy) -> None:
    choice(value, "group_on_retry", GroupPolicy)


def options(value: Options, limits: Limits) -> None:
    """Check every option of a push. The jobs that edges name are checked later, against the state."""
    if value is DEFAULT_OPTIONS:
        return
    if type(value) is not Options:
        raise errors.InvalidRequest(f"invalid options: expected Options, got {type(value).__name__}")
    for found, (default, field, check) in zip(astuple(value), _RULES, strict=True):
        if found is not default:
            check(found, field, limits)


def _whole(low: int, high: int) -> "Check":
    return lambda value, what, limits: number(value, what, low, high)


def _optional(check: "Check") -> "Check":
    return lambda value, what, limits: None if value is None else check(value, what, limits)


def _one_of(allowed: object) -> "Check":
    return lambda value, what, limits: choice(value, what, allowed)


def _flag(value: Any, what: str, limits: Limits) -> None:
    flag(value, what)


def _lease(value: Any, what: str, limits: Limits) -> None:
    number(value, what, limits.lease_ms_min, DURATION_MS_MAX)


def _trace(value: Any, what: str, limits: Limits) -> None:
    text(value, what, limits.trace_chars_max)


def _backoff(value: Any, what: str, limits: Limits) -> None:
    if type(value) is not Backoff:
        raise errors.InvalidRequest(f"invalid backoff: expected Backoff, got {type(value).__name__}")
    choice(value.kind, "backoff kind", BackoffKind)
    choice(value.jitter, "backoff jitter", Jitter)
    duration(value.base_ms, "backoff base_ms")
    duration(value.cap_ms, "backoff cap_ms")


def _kind(value: Any, what: str, limits: Limits) -> None:
    text(value, what, KIND_CHARS_MAX, 1)
    if not value.isprintable():
        raise errors.InvalidRequest(f"invalid {what} {short(value)}: expected printable characters only")


def _tags(value: Any, what: str, limits: Limits) -> None:
    if type(value) is not tuple:
        raise errors.InvalidRequest(f"invalid tags: expected a tuple of texts, got {type(value).__name__}")
    if len(value) > limits.tags_max:
        raise errors.LimitExceeded(f"{len(value)} tags are over the limit of {limits.tags_max}: use fewer")
    for tag in value:
        text(tag, "tag", limits.tag_chars_max, 1)


def _depends_on(value: Any, what: str, limits: Limits) -> None:
    if type(value) is not tuple:
        raise errors.InvalidRequest(f"invalid depends_on: expected a tuple, got {type(value).__name__}")
    if len(value) > limits.depends_on_max:
        raise errors.LimitExceeded(
            f"{len(value)} dependencies are over the limit of {limits.depends_on_max}: use fewer"
        )
    for edge in value:
        if type(edge) is not Dependency:
            raise errors.InvalidRequest(f"invalid dependency {short(edge)}: expected Dependency(id)")
        choice(edge.on_failure, "on_failure", DependencyPolicy)
        if edge.item is None:
            number(edge.id, "dependency id", 0, INT_MAX)
        else:
            number(edge.item, "dependency item", 0, INT_MAX)


Check = Callable[[Any, str, Limits], None]

_duration = _whole(0, DURATION_MS_MAX)
_counter = _whole(0, INT_MAX)
_time = _whole(0, INT_MAX // 2)
_id = _whole(1, INT_MAX)
_OWN: dict[str, Check] = {
    "priority": _whole(-INT_MAX, INT_MAX),
    "run_at": _time,
    "lease_ms": _lease,
    "backoff": _backoff,
    "depends_on": _depends_on,
    "tags": _tags,
    "trace": _trace,
    "parent_id": _id,
    "name": _kind,
    "workflow": _id,
    "slot": _time,
}
"""Rules for options whose type does not say enough."""


def _check_for(name: str) -> Check:
    """The check for an option: its own rule, or what its type and unit allow."""
    hint = TYPES[name]
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if NoneType in get_args(hint) else [hint]
    (kind,) = kinds
    found = _OWN.get(name)
    if found is None and get_origin(kind) is Literal:
        found = _one_of(kind)
    if found is None:
        found = {bool: _flag, str: key, int: _duration if name.endswith("_ms") else _counter}[kind]
    return found if kind is hint else _optional(found)


_RULES = [(getattr(DEFAULT_OPTIONS, name), name, _check_for(name)) for name in TYPES]


def not_found(what: str, number: object) -> errors.NotFound:
    """The refusal of a job or a workflow: a tenant cannot tell one of another tenant from one that never existed."""
    return errors.NotFound(
        f"{what} {short(number)} not found: it never existed, is forgotten, or belongs to another tenant"
    )


def short(value: Any) -> str:
    """A value as short text for an error message. Never long, never raises."""
    try:
        shown = ascii(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, deeply nested lists, ...
        return f"({type(value).__name__})"
    return shown if len(shown) <= 80 else shown[:77] + "..."
