"""Pushes a query's WHERE down to the queue: Spark offers its filters, and the read is narrowed by them.

Spark applies every filter again to the rows that come. So this may return too much, but never too little.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from stoker.model.events import EventKind
from stoker.model.ids import shard_of
from stoker.model.limits import NAME_PATTERN
from stoker.model.states import State
from stoker.records.codec import queue_check
from stoker.spark.connecting import is_tokens_own
from stoker.spark.options import ReadOptions


@dataclass(frozen=True)
class Narrowing:
    """What a query needs of the log, besides the options. None means everything."""

    shards: frozenset[int] | None = None
    after: int | None = None
    """Only records after this one, in every shard."""
    until: int | None = None
    """Only records up to this one."""
    since: datetime | None = None
    before: datetime | None = None
    """Only events up to this time, inclusive."""


EVERYTHING = Narrowing()


def narrowed(options: ReadOptions, filters: Sequence[Filter]) -> tuple[ReadOptions, Narrowing]:
    """The options and positions of a read that returns all rows which match these filters."""
    places = EVERYTHING
    for each in filters:
        inner = each.child if isinstance(each, Not) else each
        attribute: tuple[str, ...] = getattr(inner, "attribute", ())
        name = attribute[0].lower() if len(attribute) == 1 else ""
        if not fits(name, inner):
            continue
        if name in _LISTED:
            options = _LISTED[name](options, partial(holds, each))
        elif inner is each:
            options = _named(options, name, each)
            if options.table == "events":
                places = placed(places, name, values_of(each), each)
    return options, places


def fits(name: str, each: Filter) -> bool:
    """Whether a column is compared with values of its own type; anything else is left to Spark."""
    kind = _KINDS.get(name)
    values: tuple[Any, ...] = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    return type(each) in _COMPARISONS and kind is not None and all(type(one) is kind or one is None for one in values)


_KINDS = {
    **dict.fromkeys(("tenant", "queue", "event", "state", "reason"), str),
    **dict.fromkeys(("shard", "job", "sequence"), int),
    "time": datetime,
}

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
    StringStartsWith: lambda value, text: value.startswith(text),
    StringEndsWith: lambda value, text: value.endswith(text),
    StringContains: lambda value, text: text in value,
}


def holds(each: Filter, value: str) -> bool:
    """Whether a row with this value may match. A comparison with null is never true, nor is its opposite."""
    told: Any = each
    if isinstance(each, Not):
        told = each.child
        if isinstance(told, EqualNullSafe):
            return bool(value != told.value)
        says_null = None in told.value if isinstance(told, In) else told.value is None
        return not says_null and not holds(told, value)
    return told.value is not None and _COMPARISONS[type(each)](value, told.value)


def values_of(each: Filter) -> frozenset[Any] | None:
    """The values that a column may have; None if the filter says it another way. A null equals nothing."""
    found: tuple[Any, ...] = ()
    if isinstance(each, EqualTo) or (isinstance(each, EqualNullSafe) and each.value is not None):
        found = (each.value,)
    elif isinstance(each, In):
        found = each.value
    else:
        return None
    return frozenset(value for value in found if value is not None)


# --- columns whose values are all known ----------------------------------------------------------------

Fits = Callable[[str], bool]


def _tenants(options: ReadOptions, fits: Fits) -> ReadOptions:
    """The token's own tenant may have any name."""
    kept = (name for name in options.tenants if fits(name) or is_tokens_own(options.connection, name))
    return replace(options, tenants=tuple(kept))


def _events(options: ReadOptions, fits: Fits) -> ReadOptions:
    if options.table != "events":
        return options
    known = list(EventKind) if options.events is None else options.events
    return replace(options, events=tuple(str(kind) for kind in known if fits(str(kind))))


def _states(options: ReadOptions, fits: Fits) -> ReadOptions:
    if options.table != "jobs":
        return options
    known = tuple(State) if options.states is None else options.states
    return replace(options, states=tuple(state for state in known if fits(str(state))))


_LISTED: dict[str, Callable[[ReadOptions, Fits], ReadOptions]] = {
    "tenant": _tenants,
    "event": _events,
    "state": _states,
}


# --- columns with any values ---------------------------------------------------------------------------


def _named(options: ReadOptions, name: str, each: Filter) -> ReadOptions:
    values = values_of(each)
    if name == "queue" and values is not None:
        return _queues(options, values)
    if name == "queue" and isinstance(each, StringStartsWith):
        return _beginning(options, each.value)
    if name == "reason" and values is not None and options.table == "dead_letters":
        return _reasons(options, values)
    return options


def _queues(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    """Invalid names are dropped: no queue has one, and the server would refuse to look for it."""
    if options.table == "workers":
        return options
    chosen = queue_check(options.queues, options.prefixes)
    valid = sorted(value for value in values if NAME_PATTERN.fullmatch(value))
    return replace(options, queues=tuple(name for name in valid if chosen is None or chosen(name)), prefixes=None)


def _beginning(options: ReadOptions, text: str) -> ReadOptions:
    """Queues whose names begin like this, of those that were asked for."""
    if options.table not in BY_QUEUE:
        return options
    if not NAME_PATTERN.fullmatch(text or "x"):  # no queue has such a name
        return replace(options, queues=(), prefixes=None)
    if options.queues is None and options.prefixes is None:
        return replace(options, prefixes=(text,))
    if options.queues is not None:
        return replace(options, queues=tuple(name for name in options.queues if name.startswith(text)))
    known = (each for each in options.prefixes or () if text.startswith(each) or each.startswith(text))
    left = tuple(max(text, each, key=len) for each in known)
    return replace(options, prefixes=left) if left else replace(options, queues=(), prefixes=None)


BY_QUEUE = ("events", "jobs", "dead_letters", "results")
"""Tables whose rows are chosen by the beginnings of queues' names."""


def _reasons(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    wanted = sorted(values) if options.reasons is None else [reason for reason in options.reasons if reason in values]
    return replace(options, reasons=tuple(wanted))


# --- positions in the log ---------------------------------------------------------------------------


def placed(places: Narrowing, name: str, values: frozenset[Any] | None, each: Filter) -> Narrowing:
    if name in ("shard", "job") and values is not None:
        if name == "job" and 0 in values:  # events of queues, in any shard
            return places
        shards = values if name == "shard" else frozenset(map(shard_of, values))
        return replace(places, shards=shards if places.shards is None else places.shards & shards)
    if name not in ("sequence", "time"):
        return places
    low, high = bounds_of(each, values)
    if name == "sequence":
        after = None if low is None else low - 1
        return replace(places, after=_later(places.after, after), until=_sooner(places.until, high))
    return replace(places, since=_later(places.since, low), before=_sooner(places.before, high))


def bounds_of(each: Filter, values: frozenset[Any] | None) -> tuple[Any, Any]:
    """The smallest and largest value that may be wanted, both inclusive; None means no bound."""
    if values is not None:
        return (min(values), max(values)) if values else (None, None)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return each.value, None
    if isinstance(each, LessThan | LessThanOrEqual):
        return None, each.value
    return None, None


def _later(one: Any, other: Any) -> Any:
    return max((value for value in (one, other) if value is not None), default=None)


def _sooner(one: Any, other: Any) -> Any:
    return min((value for value in (one, other) if value is not None), default=None)
