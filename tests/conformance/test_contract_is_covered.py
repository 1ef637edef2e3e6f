"""No command, no field and no choice of the contract is without a test that used it and passed.

What counts is what went through the broker, not what a test says of itself. This file runs last, and only when the
whole suite runs (see `conftest.py`).
"""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from stoker.model import commands as c
from stoker.model.filters import JobFilter
from stoker.model.limits import Limits
from stoker.model.options import (
    Backoff,
    DeadLetterPolicy,
    Dependency,
    Options,
    RateLimit,
    Retention,
    Settings,
)
from stoker.model.schedules import Schedule
from stoker.model.workflows import Edge, Step
from tests.conformance import dialect_gaps, redis_gaps
from tests.conformance.brokers import Coverage

VALUES: list[type[msgspec.Struct]] = [
    Options,
    Backoff,
    Dependency,
    RateLimit,
    DeadLetterPolicy,
    Retention,
    Settings,
    Limits,
    Step,
    Edge,
    Schedule,
    JobFilter,
]

UNSAID = {"Settings.batching"}
"""Said by the world that a broker brings along, not by any test."""

CANNOT_BE_REFUSED = {"ListQueues", "ListBulks"}


def choices(hint: Any) -> Iterator[str]:
    """The words that a field of this type may hold, where it is a choice."""
    if get_origin(hint) is Literal:
        yield from (word for word in get_args(hint) if isinstance(word, str))
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from choices(part)


def names_in(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield kind.__name__
    hints = get_type_hints(kind)
    for field in kind.__struct_fields__:
        yield f"{kind.__name__}.{field}"
        for word in choices(hints[field]):
            yield f"{kind.__name__}.{field}={word}"


def is_strangers(broker_name: str) -> bool:
    return broker_name.startswith(dialect_gaps.STRANGERS)


def test_everything_was_accepted_once(coverage: Coverage, broker_name: str):
    """Of strangers, who have other words for some things: every command that they have, and every option of a job."""
    expected = {name for kind in (*c.ALL, *VALUES) for name in names_in(kind)} - UNSAID
    assert {"Push", "Pull.claim", "Options.on_conflict=replace"} <= expected
    if is_strangers(broker_name):
        expected = {name for name in expected if "." not in name or name.startswith("Options.")}
        assert sorted(expected - coverage.accepted) == sorted(dialect_gaps.not_said(broker_name))
        return
    lacking = redis_gaps.not_accepted() if broker_name in redis_gaps.BROKERS else set()
    missing = {
        name for name in expected - coverage.accepted if name in lacking or name.partition(".")[0] not in lacking
    }
    assert sorted(missing) == sorted(lacking)


def test_every_command_was_refused_once(coverage: Coverage, broker_name: str):
    expected = {kind.__name__ for kind in c.ALL} - CANNOT_BE_REFUSED
    if is_strangers(broker_name):
        assert {"Push", "PushBatch", "Pull", "Ack", "Fail", "Cancel", "Pause", "RetryDead"} <= coverage.refused
        return
    if broker_name in redis_gaps.BROKERS:
        expected -= redis_gaps.not_accepted()
    assert sorted(expected - coverage.refused) == []
