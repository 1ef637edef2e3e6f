"""Is a request well formed and within the limits? Nothing in here looks at jobs or queues."""

from collections.abc import Sequence
from typing import get_args

from stoker.model.errors import InvalidRequest, LimitExceeded, Refused
from stoker.model.limits import DURATION_MS_MAX, INT_MAX, NAME_PATTERN, Limits
from stoker.model.options import (
    Backoff,
    BackoffKind,
    Codec,
    DeadLetterPolicy,
    DependencyPolicy,
    GroupPolicy,
    Jitter,
    Options,
    RateLimit,
    UniquePolicy,
)


def name(value: str) -> None:
    if NAME_PATTERN.fullmatch(value) is None:
        raise InvalidRequest(f"{value!r} is not a name")


def key(value: str | None, limits: Limits) -> None:
    if value is None:
        return
    if not value:
        raise InvalidRequest("a key is not empty")
    if len(value) > limits.key_chars_max:
        raise LimitExceeded("key too long")


def duration(value: int | None, least: int = 0) -> None:
    if value is None:
        return
    if value < least:
        raise InvalidRequest(f"{value} ms is less than {least}")
    if value > DURATION_MS_MAX:
        raise InvalidRequest(f"{value} ms is more than ten years")


def number(value: int, least: int, most: int = INT_MAX) -> None:
    """A count. What no format can carry is malformed; over a limit is what a deployment forbids."""
    if not least <= value <= INT_MAX:
        raise InvalidRequest(f"{value} is not from {least} to {INT_MAX}")
    if value > most:
        raise LimitExceeded(f"{value} is more than {most}")


def chars(value: str | None, most: int) -> None:
    if value is not None and len(value) > most:
        raise LimitExceeded(f"longer than {most}")


def cut(value: str, most: int) -> str:
    """Too long is not refused but made shorter, and shows it."""
    return value if len(value) <= most else value[: most - 1] + "…"


def size(value: bytes | None, most: int) -> None:
    if value is not None and len(value) > most:
        raise LimitExceeded(f"more than {most} bytes")


def one_of(value: object, kind: object) -> None:
    if value not in get_args(kind):
        raise InvalidRequest(f"{value!r} is none of {get_args(kind)}")


def codec(value: str) -> None:
    one_of(value, Codec)


def priority(value: int) -> None:
    if abs(value) > INT_MAX:
        raise InvalidRequest("priority out of range")


def tags(values: Sequence[str], limits: Limits) -> None:
    if len(values) > limits.tags_max:
        raise LimitExceeded("too many tags")
    for tag in values:
        chars(tag, limits.tag_chars_max)


def backoff(value: Backoff) -> None:
    one_of(value.kind, BackoffKind)
    one_of(value.jitter, Jitter)
    duration(value.base_ms)
    duration(value.cap_ms)


def options(value: Options, limits: Limits) -> None:
    priority(value.priority)
    for ms in (value.delay_ms, value.ttl_ms, value.timeout_ms, value.unique_ttl_ms, value.custom_id_ttl_ms):
        duration(ms)
    duration(value.debounce_ms)
    duration(value.lease_ms, least=limits.lease_ms_min)
    duration(value.keep_completed_age_ms)
    if value.run_at is not None:
        number(value.run_at, 0)
    number(value.max_attempts, 0)
    number(value.max_crashes, 0)
    if value.keep_completed_count is not None:
        number(value.keep_completed_count, 0)
    backoff(value.backoff)
    one_of(value.on_conflict, UniquePolicy)
    codec(value.codec)
    for text in (value.unique_key, value.custom_id, value.debounce_id, value.group_id, value.schedule):
        key(text, limits)
    tags(value.tags, limits)
    chars(value.trace, limits.trace_chars_max)
    if value.name is not None and not (1 <= len(value.name) <= 256 and value.name.isprintable()):
        raise InvalidRequest("no name of a kind of job")
    if len(value.depends_on) > limits.depends_on_max:
        raise LimitExceeded("too many dependencies")
    for edge in value.depends_on:
        one_of(edge.on_failure, DependencyPolicy)
        if edge.id and edge.item is not None:
            raise InvalidRequest("an edge names a job or an item, not both")


def item(payload: bytes, value: Options, limits: Limits) -> Refused | None:
    """What is wrong with an item of a push in itself."""
    try:
        size(payload, limits.payload_bytes_max)
        options(value, limits)
    except Refused as error:
        return error
    return None


def batch(payloads: Sequence[bytes], each: Sequence[Options] | None, limits: Limits) -> None:
    if not payloads:
        raise InvalidRequest("an empty batch")
    if len(payloads) > limits.batch_jobs_max:
        raise LimitExceeded("too many jobs")
    if each is not None and len(each) != len(payloads):
        raise InvalidRequest("one option an item")


def rate_limit(value: RateLimit | None) -> None:
    if value is None:
        return
    number(value.count, 1)
    number(value.burst, 0)
    duration(value.per_ms, least=1)


def dead_letter_policy(value: DeadLetterPolicy | None) -> None:
    if value is None:
        return
    number(value.entries_max, 1)
    duration(value.age_ms_max, least=1)
    duration(value.auto_retry_interval_ms, least=1)
    number(value.auto_retries_max, 0)


def group_policy(value: str | None) -> None:
    if value is not None:
        one_of(value, GroupPolicy)
