"""Pushes dead letters again: selected with SQL, changed by expressions, exactly once, linked to the old jobs.

Spark selects and computes. The pushed job is the dead letter itself, changed only as requested. Each new job has the
old one as its `parent_id`, and a custom id made of the replay's ticket and the old job's id, which the queue remembers
for longer than it keeps the dead letter. So the same replay can be run again at any time, even after an interruption:
nothing is pushed twice.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.model.options import DAY_MS, Options
from stoker.model.replies import JobView
from stoker.spark.error_text import error_text, ours
from stoker.spark.listing import letters
from stoker.spark.options import check_name
from stoker.spark.payloads import Unfit, closed, opened
from stoker.spark.rows import OPTION_COLUMNS, converted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSH_JOBS = 1_000
SHOWN = ("job", "queue", "name", "reason", "error", "attempts", "entered_at")
"""The columns of a preview."""
NOT_SETTABLE = ("queue", "custom_id", "parent_id", "debounce_id", "depends_on")
SETTABLE = tuple(name for name in OPTION_COLUMNS if name not in NOT_SETTABLE)
FRESH: dict[str, Any] = {"delay_ms": 0, "run_at": None, "depends_on": (), "debounce_id": None, "slot": 0}
"""Options that were about the old job's own time and place, and their new values."""

_SET = re.compile(r"\s*(?P<target>\w+(?:\.\w+)*)\s*=(?!=)\s*(?P<expression>.+?)\s*", re.DOTALL)
_TICKET = re.compile(r"[\w.-]{1,64}")


class Assignment(NamedTuple):
    """`payload.user_id = payload.user_id + 1`, or `priority = 5`."""

    target: tuple[str, ...]
    expression: str


@dataclass(frozen=True)
class ReplayPlan:
    """A replay. The same plan has the same ticket, and pushes each dead letter once."""

    where: str
    assignments: tuple[Assignment, ...] = ()
    to: str | None = None
    queues: tuple[str, ...] | None = None
    ticket: str = ""

    @property
    def reads_payload(self) -> bool:
        return any("payload" in text for text in (self.where, *(each.expression for each in self.assignments)))

    def custom_id(self, job: int) -> str:
        return f"replay:{self.ticket}:{job}"


class Picked(NamedTuple):
    """A selected dead letter, and its new values."""

    job: int
    queue: str
    entered_at: int
    values: tuple[Any, ...]
    shown: dict[str, Any]


@dataclass
class Replayed:
    """The outcomes of the selected dead letters."""

    pushed: dict[int, int] = field(default_factory=dict)
    """New jobs by old ones."""
    known: dict[int, int] = field(default_factory=dict)
    """Jobs that an earlier run of the same replay pushed."""
    refused: dict[int, str] = field(default_factory=dict)
    """Dead letters that stay as they are, and why."""
    purged: int = 0


def plan(
    where: str,
    sets: Sequence[str] = (),
    to: str | None = None,
    queues: Sequence[str] = (),
    ticket: str | None = None,
) -> ReplayPlan:
    """Raises `InvalidRequest` for an invalid replay."""
    for option, name in (*(("--queue", queue) for queue in queues), *((("--to", to),) if to is not None else ())):
        check_name(option, name)
    found = tuple(assignment(text) for text in sets)
    targets = [each.target for each in found]
    if len(set(targets)) < len(targets):
        raise InvalidRequest("two --set change the same field: give each once")
    if ticket is None:
        said = json.dumps([where.strip(), [list(each) for each in found], to, sorted(queues)])
        ticket = hashlib.sha256(said.encode()).hexdigest()[:12]
    if not _TICKET.fullmatch(ticket):
        raise InvalidRequest(f"ticket {ticket[:80]!r}: expected up to 64 letters, digits, dots, dashes and underscores")
    return ReplayPlan(where, found, to, tuple(queues) or None, ticket)


def assignment(text: str) -> Assignment:
    found = _SET.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"--set {text!r}: expected FIELD = SQL, such as `priority = 5` or `payload.user_id = 7`")
    target = tuple(found["target"].split("."))
    if target[0] != "payload" and (len(target) > 1 or target[0] not in SETTABLE):
        raise InvalidRequest(
            f"--set {text!r}: {found['target']} cannot be set; expected payload, a field of it such as payload.user_id,"
            f" or one of {', '.join(SETTABLE)}"
        )
    return Assignment(target, found["expression"])


# --- choosing ---------------------------------------------------------------------------------------


def pick(
    spark: "SparkSession", client: Client, wanted: ReplayPlan, connection: Mapping[str, str], schema: str | None = None
) -> list[Picked]:
    """The dead letters of a plan. `schema` has the payload's fields; by default they are inferred."""
    from pyspark.errors import PySparkException

    try:
        frame = chosen(table(spark, client, wanted, connection, schema), wanted)
        rows = frame.collect()
    except PySparkException as error:
        raise InvalidRequest(ours(error) or f"Spark cannot do this: {error_text(error)}") from None
    found = []
    for row in rows:
        values = tuple(plain(row[f"set_{number}"]) for number in range(len(wanted.assignments)))
        shown = {name: row[name] for name in SHOWN} | {"entered_at": moment_text(row["entered_ms"])}
        shown |= {".".join(each.target): value for each, value in zip(wanted.assignments, values, strict=True)}
        found.append(Picked(row["job"], row["queue"], row["entered_ms"], values, shown))
    return sorted(found, key=lambda each: (each.queue, each.entered_at, each.job))


def moment_text(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def table(
    spark: "SparkSession", client: Client, wanted: ReplayPlan, connection: Mapping[str, str], schema: str | None
) -> "DataFrame":
    reader = spark.read.format("stoker").option("table", "dead_letters")
    for name, value in connection.items():
        reader = reader.option(name, value)
    if wanted.queues is not None:
        reader = reader.option("queues", ",".join(wanted.queues))
    if wanted.reads_payload:
        seen = schema or fields_of(known_payloads(client, wanted.queues))
        if seen:
            reader = reader.option("payloadSchema", seen)
    return reader.load()


def chosen(frame: "DataFrame", wanted: ReplayPlan) -> "DataFrame":
    """Without jobs that came from this same replay and died again."""
    values = [f"({each.expression}) AS set_{number}" for number, each in enumerate(wanted.assignments)]
    others = f"coalesce(NOT startswith(custom_id, 'replay:{wanted.ticket}:'), true)"
    return frame.where(others).where(wanted.where).selectExpr(*SHOWN, "unix_millis(entered_at) AS entered_ms", *values)


def known_payloads(client: Client, queues: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    for queue in client.list_queues() if queues is None else queues:
        for job in letters(client, queue):
            try:
                yield opened(job.payload)
            except Unfit:
                continue


def fields_of(values: Iterator[dict[str, Any]]) -> str:
    """The fields of payloads, in Spark's notation. Fields without a recognisable type are left out."""
    columns: dict[str, list[Any]] = {}
    for value in values:
        for name, inner in value.items():
            columns.setdefault(name, []).append(inner)
    found: dict[str, str] = {}
    for name, inside in columns.items():
        kind = type_of(inside)
        # Spark's names are case-insensitive
        if kind is not None and name.lower() not in {known.lower() for known in found}:
            found[name] = kind
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in found.items())


def type_of(values: Sequence[Any]) -> str | None:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return "double"
    if len(kinds) != 1:
        return None if kinds else "string"
    (kind,) = kinds
    if kind is int:
        return "bigint" if all(-(2**63) <= value < 2**63 for value in values if value is not None) else None
    if kind is dict:
        inside = fields_of(value for value in values if value is not None)
        return f"struct<{inside}>" if inside else None
    if kind is list:
        inner = type_of([item for value in values if value is not None for item in value])
        return None if inner is None else f"array<{inner}>"
    return {bool: "boolean", float: "double", str: "string", bytes: "binary", datetime: "timestamp"}.get(kind)


def plain(value: Any) -> Any:
    """A cell of Spark's as a value of a payload or an option."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {name: plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


# --- pushing back -----------------------------------------------------------------------------------


class Mended(NamedTuple):
    """A job that is ready to be pushed in place of a dead one."""

    old: int
    old_queue: str
    queue: str
    payload: bytes
    options: Options


def push_back(client: Client, wanted: ReplayPlan, picked: Sequence[Picked], *, purge: bool = False) -> Replayed:
    """Push them, and with `purge` remove the dead letters whose jobs are pushed. Nothing is pushed if a value is
    wrong.
    """
    done = Replayed()
    ready = list(mended_all(client, wanted, picked, done))
    for queue, group in groupby(sorted(ready, key=lambda each: each.queue), key=lambda each: each.queue):
        jobs = list(group)
        for start in range(0, len(jobs), PUSH_JOBS):
            push(client, queue, jobs[start : start + PUSH_JOBS], done)
    if purge:
        done.purged = purged(client, ready, done)
    return done


def mended_all(client: Client, wanted: ReplayPlan, picked: Sequence[Picked], done: Replayed) -> Iterator[Mended]:
    """The dead letters as they are now, without those that have left, or died again since they were selected."""
    for queue, group in groupby(picked, key=lambda each: each.queue):
        left = {each.job: each for each in group}
        for job in letters(client, queue):
            each = left.pop(job.id, None)
            if each is None:
                continue
            if job.dead is None or job.dead.entered_at != each.entered_at:
                done.refused[job.id] = "it died again since it was selected: run this again"
                continue
            try:
                yield mended(job, wanted, each.values)
            except Unfit as error:
                done.refused[job.id] = str(error)
        done.refused |= dict.fromkeys(left, "it is not a dead letter any more")


def mended(job: JobView, wanted: ReplayPlan, values: Sequence[Any]) -> Mended:
    """Raises `Unfit` for a payload without such a field, `InvalidRequest` for a value that no job may have."""
    changes: dict[str, Any] = {}
    payload = job.payload
    inside: dict[str, Any] | None = None
    for each, value in zip(wanted.assignments, values, strict=True):
        if each.target == ("payload",):
            inside, payload = whole(value, job.payload)
        elif each.target[0] == "payload":
            inside = opened(payload) if inside is None else inside
            put(inside, each.target[1:], value)
        elif value is not None:
            changes[each.target[0]] = converted(each.target[0], value)
    if inside is not None:
        payload = closed(inside, job.payload)
    return Mended(job.id, job.queue, wanted.to or job.queue, payload, options_of(job, wanted, changes))


def whole(value: Any, old: bytes) -> tuple[dict[str, Any] | None, bytes]:
    if isinstance(value, dict):
        return value, old
    if isinstance(value, str):
        return None, value.encode()
    if isinstance(value, bytes):
        return None, value
    raise Unfit(f"payload would be of type {type(value).__name__}: expected a struct, text or bytes")


def put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *outer, last = path
    for name in outer:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise Unfit(f"payload has a {name} that is not a map")
    values[last] = value


def options_of(job: JobView, wanted: ReplayPlan, changes: dict[str, Any]) -> Options:
    assert job.dead is not None
    kept_ms = job.dead.expires_at - round(time.time() * 1000) if job.dead.expires_at else 365 * DAY_MS
    own = {
        "parent_id": job.id,
        "custom_id": wanted.custom_id(job.id),
        "custom_id_ttl_ms": max(0, kept_ms) + DAY_MS,  # longer than the dead letter is kept
    }
    made = msgspec.structs.replace(job.options, **(FRESH | changes | own))
    try:
        return msgspec.convert(msgspec.to_builtins(made), Options)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"job {job.id} cannot have {changes}: {error}") from None


def push(client: Client, queue: str, jobs: Sequence[Mended], done: Replayed) -> None:
    reply = client.push_batch(queue, [job.payload for job in jobs], each=[job.options for job in jobs])
    for place, job in enumerate(jobs):
        if place in reply.refused:
            done.refused[job.old] = reply.refused[place].message
        elif reply.duplicates.get(place) == "custom_id":
            done.known[job.old] = reply.ids[place]
        elif place in reply.duplicates:
            done.refused[job.old] = f"job {reply.ids[place]} has its {reply.duplicates[place]}"
        else:
            done.pushed[job.old] = reply.ids[place]


def purged(client: Client, jobs: Sequence[Mended], done: Replayed) -> int:
    """Remove only dead letters whose jobs are pushed."""
    count = 0
    over = [job for job in jobs if job.old in done.pushed or job.old in done.known]
    for queue, group in groupby(sorted(over, key=lambda each: each.old_queue), key=lambda each: each.old_queue):
        count += client.purge_dead(queue, [job.old for job in group])
    return count
