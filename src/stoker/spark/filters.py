"""Pushes a query's WHERE down to the queue: Spark offers its filters, and the read is narrowed by them.

Spark applies every filter again to the rows that come. So this may return too much, but never too little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
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
)

from stoker.model.events import EventKind
from stoker.model.ids import shard_of
from stoker.model.limits import NAME_PATTERN
from stoker.model.states import State
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
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) != 1:
            continue
        name = attribute[0].lower()
        values = values_of(each)
        if not fits(name, each):
            continue
        if values is not None and name in _CHOSEN:
            options = _CHOSEN[name](options, values)
        if options.table == "events":
            places = placed(places, name, values, each)
    return options, places


def fits(name: str, each: Filter) -> bool:
    """Whether a column is compared with values of its own type; anything else is left to Spark."""
    kind = _KINDS.get(name)
    values: tuple[Any, ...] = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    return kind is not None and all(one is None or type(one) is kind for one in values)


_KINDS = {
    **dict.fromkeys(("tenant", "queue", "event", "state", "reason"), str),
    **dict.fromkeys(("shard", "job", "sequence"), int),
    "time": datetime,
}


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


# --- what options say, too --------------------------------------------------------------------------


def _tenants(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    """The token's own tenant may have any name."""
    kept = (name for name in options.tenants if name in values or is_tokens_own(options.connection, name))
    return replace(options, tenants=tuple(kept))


def _queues(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    """Invalid names are dropped: no queue has one, and the server would refuse to look for it."""
    named = sorted(value for value in values if NAME_PATTERN.fullmatch(value))
    wanted = named if options.queues is None else [queue for queue in options.queues if queue in named]
    return options if options.table == "workers" else replace(options, queues=tuple(wanted))


def _events(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    known = list(EventKind) if options.events is None else options.events
    return replace(options, events=tuple(str(kind) for kind in known if str(kind) in values))


def _states(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    known = tuple(State) if options.states is None else options.states
    return replace(options, states=tuple(state for state in known if str(state) in values))


def _reasons(options: ReadOptions, values: frozenset[Any]) -> ReadOptions:
    wanted = sorted(values) if options.reasons is None else [reason for reason in options.reasons if reason in values]
    return replace(options, reasons=tuple(wanted))


def _of(table: str, choose: Callable[[ReadOptions, frozenset[Any]], ReadOptions]) -> Any:
    """The same for one table only."""
    return lambda options, values: choose(options, values) if options.table == table else options


_CHOSEN: dict[str, Callable[[ReadOptions, frozenset[Any]], ReadOptions]] = {
    "tenant": _tenants,
    "queue": _queues,
    "event": _of("events", _events),
    "state": _of("jobs", _states),
    "reason": _of("dead_letters", _reasons),
}


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
