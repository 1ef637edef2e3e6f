"""The options of the source, checked before any data moves.

Spark passes options as text and loses the case of their names; here they become values. Unknown or meaningless options
are refused with what would be right.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from stoker.model.errors import InvalidRequest
from stoker.model.events import EventKind
from stoker.model.hints import nearest
from stoker.model.limits import NAME_PATTERN
from stoker.model.states import STATES, State
from stoker.model.units import duration_ms, parse_bytes
from stoker.spark.payload_schema import checked
from stoker.spark.tables import EVENTS, PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW, TABLES, WITH_PAYLOAD, Column

Offsets = dict[int, int]
"""By shard: the sequence number of the last record that was read."""

CONNECTING = {
    "url": "the queue: `tcp://HOST:PORT`, `unix:///PATH`, `http://`, `grpc://` or `sqlite:///DIRECTORY`, as executors"
    " reach it; by default `STOKER_URL`",
    "token": "the token for a server; by default `STOKER_TOKEN`",
    "tenant": "whose queues; by default `default`",
}
LISTED = {
    "table": "events, jobs, dead_letters, results, schedules, workers; also as the path of `load()`; by default events",
    "tenants": "several tenants, separated by commas, instead of `tenant`; the token must be valid for each",
    "columns": "only these columns, in this order, separated by commas",
    "batchRows": "rows in one Arrow batch; by default 16384",
}
_QUEUES = {"queues": "only these queues, separated by commas; others never leave the server"}
_PATTERN = {
    "subscribePattern": "instead of queues: a regular expression (Python's) that the whole name of a queue matches,"
    " also of queues that come later. The server sends queues whose names begin as the pattern does"
}
_PAYLOAD = {
    "payloadSchema": "fields of the payload, as in `user_id bigint, mail string`: it is decoded from JSON or"
    " MessagePack into a column `payload` with them. Missing fields are null, other fields are ignored",
    "mode": "with payloadSchema, what happens to payloads that cannot be decoded. PERMISSIVE: `payload` is null,"
    " `payload_error` says why, and `payload_raw` has the bytes. FAILFAST: the read fails. By default PERMISSIVE; no"
    " mode drops rows",
}
_WITH_PAYLOAD = {"includePayload": "true adds a column `payload` with its bytes; by default false"}

READING: dict[str, dict[str, str]] = {
    "events": LISTED
    | _QUEUES
    | _PATTERN
    | {
        "events": "only these kinds of events, separated by commas; others never leave the server",
        "startingOffsets": "earliest, latest, or JSON: by shard, the last record that was read. By default a batch"
        " starts at the earliest, and a stream without a checkpoint at the latest",
        "startingTimestamp": "instead of startingOffsets: the first record at or after this time."
        " Milliseconds since 1970, or ISO 8601",
        "endingOffsets": "end of a batch, like startingOffsets; by default latest",
        "endingTimestamp": "instead of endingOffsets: the last record before this time",
        "maxRecordsPerTrigger": "of a stream: the most rows in one batch; by default no limit. Rows that one request"
        " caused stay together: if they are more than this, they are a batch of their own",
        "maxBytesPerTrigger": "of a stream: the most bytes that one batch reads of the log, in the same way;"
        " by default no limit. `64MiB` or a number",
        "minRecordsPerTrigger": "of a stream: wait until there are this many rows; by default 1. Without one new row"
        " there is no batch",
        "maxTriggerDelay": "with minRecordsPerTrigger: how long to wait at most after the last batch; by default `15m`",
        "minPartitions": "at least this many tasks; by default as many as the records are worth",
        "failOnDataLoss": "whether it is an error that records were dropped before they were read; by default true",
    }
    | _WITH_PAYLOAD
    | _PAYLOAD,
    "jobs": LISTED
    | _QUEUES
    | _PATTERN
    | {"states": "only jobs in these states, separated by commas. The server filters a single state"}
    | _WITH_PAYLOAD
    | _PAYLOAD,
    "dead_letters": LISTED
    | _QUEUES
    | _PATTERN
    | {"reasons": "only dead letters with these reasons, separated by commas"}
    | _PAYLOAD,
    "results": LISTED | _QUEUES | _PATTERN,
    "schedules": LISTED | _QUEUES,
    "workers": LISTED,
}
"""The options of each table, and their meaning."""
WRITING = CONNECTING | {
    "queue": "the queue of rows that have none in a column `queue`",
    "payloadColumns": "columns that belong to the payload although they are named like an option of jobs",
    "txnAppId": "with txnVersion, the name of a batch write: writing again under it within a day changes nothing",
    "txnVersion": "a whole number; belongs to txnAppId",
    "rejectedPath": "a folder for rows that cannot be jobs (no payload, no queue, too large, options that the queue"
    " refuses): they are written there as Parquet, with the reason in a column `rejection`, and the others become jobs."
    " Without it, one such row fails the write, and nothing is pushed",
    "batchRows": "the most jobs in one request; by default 5000",
}
"""The options of a write, and their meaning."""

SPARKS_OWN = frozenset(("checkpointlocation", "queryname"))
"""Options that Spark passes on to sources and sinks although they are its own."""
OF_BATCHES = ("endingOffsets", "endingTimestamp")
OF_STREAMS = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "minRecordsPerTrigger", "maxTriggerDelay")
KNOWN = {name.lower(): name for options in (*READING.values(), WRITING) for name in options}
"""The spelling of every option: Spark loses the case of names."""
EARLIEST, LATEST = "earliest", "latest"
STARTING, ENDING = "startingOffsets", "endingOffsets"
PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"


@dataclass(frozen=True)
class QueueConnection:
    """How executors and driver reach the queue."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    tenant: str = "default"


@dataclass(frozen=True)
class ReadOptions:
    """The options of `spark.read` and `spark.readStream`."""

    connection: QueueConnection = QueueConnection()
    tenants: tuple[str, ...] = ("default",)
    table: str = "events"
    queues: tuple[str, ...] | None = None
    prefixes: tuple[str, ...] | None = None
    """Queues whose names begin with one of these, besides `queues`."""
    pattern: str | None = None
    """What the whole name of a queue matches."""
    events: tuple[str, ...] | None = None
    columns: tuple[Column, ...] = EVENTS
    starting: Offsets | str | datetime = EARLIEST
    ending: Offsets | str | datetime = LATEST
    max_records_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    min_records_per_trigger: int = 0
    max_trigger_delay_ms: int = 0
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    batch_rows: int = 16_384
    states: tuple[State, ...] | None = None
    reasons: tuple[str, ...] | None = None
    payload_schema: str | None = None
    """The fields of decoded payloads, in Spark's notation."""
    fail_fast: bool = False
    """Whether a payload that cannot be decoded fails the read."""
    said: frozenset[str] = field(default_factory=frozenset)
    """The options that were given."""


def read_options(given: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Raises `InvalidRequest`, which names the option and its valid values."""
    table = table_of(given)
    options = named(given, (*CONNECTING, *READING[table]), f" of table {table}")
    if table != "events" and streaming:
        raise InvalidRequest(f"option table = {table!r}: only events can be read as a stream; read {table} as a batch")
    starting = offsets(options, "starting", LATEST if streaming else EARLIEST)
    ending = offsets(options, "ending", LATEST)
    check_order(starting, ending)
    check_batches(number(options, "maxRecordsPerTrigger", 0), number(options, "minRecordsPerTrigger", 0))
    return ReadOptions(
        connection=connection(options),
        tenants=tenants(options),
        table=table,
        queues=plain_names(options, "queues"),
        prefixes=prefixes(options),
        pattern=pattern(options),
        events=kinds(options),
        columns=columns(options, table),
        starting=starting,
        ending=ending,
        max_records_per_trigger=number(options, "maxRecordsPerTrigger", 0),
        max_bytes_per_trigger=size(options, "maxBytesPerTrigger"),
        min_records_per_trigger=number(options, "minRecordsPerTrigger", 0),
        max_trigger_delay_ms=delay_ms(options),
        min_partitions=number(options, "minPartitions", 0),
        fail_on_data_loss=flag(options, "failOnDataLoss", True),
        batch_rows=number(options, "batchRows", 16_384, 1),
        states=states(options),
        reasons=names(options, "reasons"),
        payload_schema=fields(options),
        fail_fast=fails_fast(options),
        said=frozenset(options),
    )


def check_kind(options: ReadOptions, *, streaming: bool) -> None:
    """Refuse options that mean nothing in a batch, or in a stream. Spark asks for a schema before it says which
    it is.
    """
    strange = options.said & frozenset(OF_BATCHES if streaming else OF_STREAMS)
    if strange:
        this, other = ("stream", "batch") if streaming else ("batch", "stream")
        raise InvalidRequest(f"option {min(strange)} is for a {other}, and this is a {this}: leave it out")
    if not streaming and options.starting == LATEST:
        raise InvalidRequest(
            f"option {STARTING} = {LATEST}: a batch ends there, and would be empty; only a stream can begin there"
        )
    if options.ending == EARLIEST:
        raise InvalidRequest(f"option {ENDING} = {EARLIEST}: a batch begins there, and would be empty")


def check_order(starting: Offsets | str | datetime, ending: Offsets | str | datetime) -> None:
    if isinstance(starting, datetime) and isinstance(ending, datetime) and ending < starting:
        raise InvalidRequest(f"options startingTimestamp and endingTimestamp: {ending} is before {starting}: swap them")


def table_of(given: Mapping[str, str]) -> str:
    plain = {name.lower(): value for name, value in given.items()}
    table = plain.get("table", plain.get("path", "events"))
    if table not in TABLES:
        raise InvalidRequest(f"option table = {table!r}: expected one of {', '.join(TABLES)}")
    if plain.get("path", table) != table:
        raise InvalidRequest(f"option table = {table!r}, and load({plain['path']!r}): give only one of them")
    return table


def named(given: Mapping[str, str], known: Collection[str], of: str = "") -> dict[str, str]:
    """The options with their names as in the reference. The path of `load()` is the table."""
    spelled = {name.lower(): name for name in (*known, *(("path",) if "table" in known else ()))}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        if name.lower() not in spelled:
            near = nearest(name.lower(), spelled)
            hint = f"; did you mean {spelled[near]}?" if near else ""
            raise InvalidRequest(
                f"unknown option {KNOWN.get(name.lower(), name)}{of}{hint} (known: {', '.join(known)})"
            )
        found[spelled[name.lower()]] = value
    return found


def connection(options: Mapping[str, str]) -> QueueConnection:
    tenant = options.get("tenant", "default")
    check_name("tenant", tenant)
    return QueueConnection(options.get("url"), options.get("token"), tenant)


def names(options: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    if option not in options:
        return None
    found = tuple(word.strip() for word in options[option].split(",") if word.strip())
    if not found:
        raise InvalidRequest(f"option {option} is empty: expected names separated by commas")
    return found


def plain_names(options: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    """Names of queues and tenants. An invalid name is refused, because it would never be found."""
    found = names(options, option)
    for name in found or ():
        check_name(option, name, "; separate several with commas, without brackets or quotes")
    return found


def pattern(options: Mapping[str, str]) -> str | None:
    text = options.get("subscribePattern")
    if text is None:
        return None
    if "queues" in options:
        raise InvalidRequest("options queues and subscribePattern: give only one of them")
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequest(f"option subscribePattern = {text[:80]!r}: it is no regular expression: {error}") from None
    return text


def prefixes(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """How the names begin that a pattern matches: its characters up to the first one with a meaning."""
    text = pattern(options)
    if text is None:
        return None
    literal = _LITERAL.match(text)
    assert literal is not None
    beginning, rest = literal[0], text[literal.end() :]
    if "|" in rest:
        return ("",)
    return (beginning[:-1] if rest[:1] in ("?", "*", "{") else beginning,)


_LITERAL = re.compile(r"[A-Za-z0-9_:-]*")


def size(options: Mapping[str, str], option: str) -> int:
    text = options.get(option, "0")
    try:
        return int(text) if text.isdecimal() else int(parse_bytes(text))
    except ValueError:
        raise InvalidRequest(f"option {option} = {text[:80]!r}: expected bytes, such as 64MiB or 1000000") from None


def delay_ms(options: Mapping[str, str]) -> int:
    text = options.get("maxTriggerDelay", "15m")
    try:
        return duration_ms(text)
    except ValueError:
        raise InvalidRequest(f"option maxTriggerDelay = {text[:80]!r}: expected a time such as 30s or 15m") from None


def check_batches(most: int, least: int) -> None:
    if 0 < most < least:
        raise InvalidRequest(
            f"options minRecordsPerTrigger = {least} and maxRecordsPerTrigger = {most}: the least is more than the most"
        )


def check_name(option: str, name: str, hint: str = "") -> None:
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(f"option {option}: {name[:80]!r} is not a valid name: use A-Z a-z 0-9 _ . : -{hint}")


def tenants(options: Mapping[str, str]) -> tuple[str, ...]:
    if "tenant" in options and "tenants" in options:
        raise InvalidRequest("options tenant and tenants: give only one of them")
    found = plain_names(options, "tenants") or (connection(options).tenant,)
    return tuple(dict.fromkeys(found))


def kinds(options: Mapping[str, str]) -> tuple[str, ...] | None:
    found = names(options, "events")
    for kind in found or ():
        if kind not in list(EventKind):
            raise InvalidRequest(f"option events: there is no event {kind!r}; expected some of {', '.join(EventKind)}")
    return found


def states(options: Mapping[str, str]) -> tuple[State, ...] | None:
    found = names(options, "states")
    if found is None:
        return None
    for state in found:
        if state not in list(State):
            raise InvalidRequest(f"option states: there is no state {state!r}; expected some of {', '.join(STATES)}")
    return tuple(State(state) for state in dict.fromkeys(found))


def columns(options: Mapping[str, str], table: str) -> tuple[Column, ...]:
    own = TABLES[table]
    extra = () if table not in WITH_PAYLOAD or PAYLOAD.name in [column.name for column in own] else (PAYLOAD,)
    is_decoded = "payloadSchema" in options
    if is_decoded and not fails_fast(options):
        extra = (*extra, PAYLOAD_ERROR, PAYLOAD_RAW)
    wanted = names(options, "columns")
    if wanted is None:
        with_payload = flag(options, "includePayload", False) or is_decoded
        return (*own, *(column for column in extra if with_payload))
    by_name = {column.name: column for column in (*own, *extra)}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise InvalidRequest(
            f"option columns: there is no column {unknown[0]!r}; expected some of {', '.join(by_name)}"
        )
    if is_decoded and not fails_fast(options):
        check_told(wanted)
    return tuple(by_name[name] for name in dict.fromkeys(wanted))


def check_told(wanted: Collection[str]) -> None:
    """A corrupt payload must not become a null that looks like a missing one."""
    told = PAYLOAD_ERROR.name in wanted
    if PAYLOAD.name in wanted and not told:
        raise InvalidRequest(
            "option columns: payload without payload_error would hide payloads that cannot be decoded; add"
            " payload_error, or set mode = FAILFAST"
        )
    if PAYLOAD.name not in wanted and (told or PAYLOAD_RAW.name in wanted):
        raise InvalidRequest("option columns: payload_error and payload_raw come with payload; add payload")


def fails_fast(options: Mapping[str, str]) -> bool:
    text = options.get("mode", PERMISSIVE)
    if text.upper() not in (PERMISSIVE, FAILFAST):
        hint = '; where("payload_error is null") leaves such rows out' if text.upper() == "DROPMALFORMED" else ""
        raise InvalidRequest(f"option mode = {text!r}: expected {PERMISSIVE} or {FAILFAST}{hint}")
    if "mode" in options and "payloadSchema" not in options:
        raise InvalidRequest("option mode: it is about payloads that payloadSchema decodes, which is missing")
    return text.upper() == FAILFAST


def fields(options: Mapping[str, str]) -> str | None:
    text = options.get("payloadSchema")
    return None if text is None else checked(text)


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
        raise InvalidRequest(f"options {by_offset} and {by_time}: give only one of them")
    if by_time in options:
        return moment(by_time, options[by_time])
    text = options.get(by_offset, default).strip()
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
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
    """Milliseconds since 1970, or an ISO 8601 time; without a zone it is UTC."""
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(
            f"option {option} = {text[:80]!r}: expected milliseconds since 1970 or a time such as 2026-11-16T08:00:00Z"
        ) from None
