"""What a reader may ask of the source, checked before any data moves.

Spark hands options over as text with the case of their names lost; here they become values. Whatever is not known, or
means nothing, is refused with what would be right.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from stoker.model.errors import InvalidRequest
from stoker.model.events import EventKind
from stoker.spark.tables import EVENTS, PAYLOAD, Column

Offsets = dict[int, int]
"""By shard: the sequence number of the last record that was read."""

TABLES = ("events", "jobs", "dead_letters", "results", "schedules", "workers")

CONNECTING = ("url", "token", "tenant")
READING = (
    *CONNECTING,
    "table",
    "queues",
    "events",
    "columns",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxRecordsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includePayload",
    "batchRows",
)
SPARKS_OWN = frozenset(("checkpointlocation", "queryname"))
"""Options that Spark hands on to sources and sinks although they are meant for itself."""
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Connection:
    """How executors and driver reach the queue."""

    url: str | None = None
    token: str | None = None
    tenant: str = "default"


@dataclass(frozen=True)
class ReadOptions:
    """The options of `spark.read` and `spark.readStream`."""

    connection: Connection = Connection()
    table: str = "events"
    queues: tuple[str, ...] | None = None
    events: tuple[str, ...] | None = None
    columns: tuple[Column, ...] = EVENTS
    starting: Offsets | str | datetime = EARLIEST
    ending: Offsets | str | datetime = LATEST
    max_records_per_trigger: int = 0
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    batch_rows: int = 16_384
    said: frozenset[str] = field(default_factory=frozenset)
    """Which options were given at all."""


def read_options(given: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Raises `InvalidRequest` that names the option and what it may be."""
    options = named(given, READING)
    table = options.get("table", options.pop("path", "events"))
    if table not in TABLES:
        raise InvalidRequest(f"option table = {table!r}: expected one of {', '.join(TABLES)}")
    if table != "events" and streaming:
        raise InvalidRequest(f"option table = {table!r}: only events can be read as a stream; read {table} as a batch")
    starting = offsets(options, "starting", LATEST if streaming else EARLIEST)
    return ReadOptions(
        connection=connection(options),
        table=table,
        queues=names(options, "queues"),
        events=kinds(options),
        columns=columns(options),
        starting=starting,
        ending=offsets(options, "ending", LATEST),
        max_records_per_trigger=number(options, "maxRecordsPerTrigger", 0),
        min_partitions=number(options, "minPartitions", 0),
        fail_on_data_loss=flag(options, "failOnDataLoss", True),
        batch_rows=number(options, "batchRows", 16_384, 1),
        said=frozenset(options),
    )


def named(given: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The options with the names as they are written in the reference."""
    spelled = {name.lower(): name for name in (*known, "path")}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        if name.lower() not in spelled:
            near = difflib.get_close_matches(name.lower(), spelled, 1)
            hint = f"; did you mean {spelled[near[0]]}?" if near else ""
            raise InvalidRequest(f"unknown option {name}{hint} (known: {', '.join(known)})")
        found[spelled[name.lower()]] = value
    return found


def connection(options: Mapping[str, str]) -> Connection:
    return Connection(options.get("url"), options.get("token"), options.get("tenant", "default"))


def names(options: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    if option not in options:
        return None
    found = tuple(word.strip() for word in options[option].split(",") if word.strip())
    if not found:
        raise InvalidRequest(f"option {option} is empty: expected names with commas between them")
    return found


def kinds(options: Mapping[str, str]) -> tuple[str, ...] | None:
    found = names(options, "events")
    for kind in found or ():
        if kind not in list(EventKind):
            raise InvalidRequest(f"option events: there is no event {kind!r}; expected some of {', '.join(EventKind)}")
    return found


def columns(options: Mapping[str, str]) -> tuple[Column, ...]:
    table = (*EVENTS, PAYLOAD) if flag(options, "includePayload", False) else EVENTS
    wanted = names(options, "columns")
    if wanted is None:
        return table
    by_name = {column.name: column for column in (*EVENTS, PAYLOAD)}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise InvalidRequest(
            f"option columns: there is no column {unknown[0]!r}; expected some of {', '.join(by_name)}"
        )
    return tuple(by_name[name] for name in dict.fromkeys(wanted))


def number(options: Mapping[str, str], option: str, default: int, least: int = 0) -> int:
    text = options.get(option)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise InvalidRequest(f"option {option} = {text!r}: expected a whole number of at least {least}")
    return int(text)


def flag(options: Mapping[str, str], option: str, default: bool) -> bool:
    text = options.get(option)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"option {option} = {text!r}: expected true or false")
    return text.lower() == "true"


def offsets(options: Mapping[str, str], which: str, default: str) -> Offsets | str | datetime:
    """`startingOffsets` or `startingTimestamp`, and the same for the end."""
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    if by_offset in options and by_time in options:
        raise InvalidRequest(f"options {by_offset} and {by_time}: say only one of them")
    if by_time in options:
        return moment(by_time, options[by_time])
    text = options.get(by_offset, default)
    if text in (EARLIEST, LATEST):
        return text
    expected = f'expected {EARLIEST}, {LATEST}, or JSON such as {{"0": 1200, "1": 0}}: by shard, the last record read'
    try:
        found: Any = json.loads(text)
        return {int(shard): _position(value) for shard, value in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise InvalidRequest(f"option {by_offset} = {text[:80]!r}: {expected}") from None


def _position(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def moment(option: str, text: str) -> datetime:
    """Milliseconds since 1970, or a time as ISO 8601 writes it; without a zone it is UTC."""
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(
            f"option {option} = {text[:80]!r}: expected milliseconds since 1970 or a time such as 2026-11-16T08:00:00Z"
        ) from None
