"""Settles jobs from the driver: the only place of the fleet that does.

Rows come as Arrow, thousands at a time. All of them are checked before the first job is settled: a transformation that
returns a job twice, or one that it did not get, changes nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as kinds

from stoker.client.batches import BATCH_BYTES
from stoker.client.sync import Client
from stoker.model.errors import Forbidden, InvalidRequest, LimitExceeded
from stoker.model.options import CODECS
from stoker.spark.fleet.work import ENDS_SCHEMA, VERDICTS
from stoker.worker.outcomes import VerdictKind

EXPECTED = {
    "id": "bigint",
    "token": "bigint",
    "result": "binary or string",
    "codec": "string",
    "error": "string",
    "error_class": "string",
    "stack": "string",
    "verdict": "string",
    "after_ms": "bigint",
}


def check_columns(schema: pa.Schema, needed: Collection[str]) -> list[str]:
    """The columns that count. Raises `InvalidRequest` before any job is worked on."""
    missing = [name for name in needed if name not in schema.names]
    if missing:
        raise InvalidRequest(
            f"the rows have no column {missing[0]}: keep {' and '.join(needed)} of each job, and add result or error"
        )
    names = [name for name in ENDS_SCHEMA.names if name in schema.names]
    for name in names:
        if not has_type(schema.field(name).type, EXPECTED[name]):
            raise InvalidRequest(f"column {name} is {schema.field(name).type}: expected {EXPECTED[name]}")
    return names


def has_type(kind: pa.DataType, expected: str) -> bool:
    if kinds.is_null(kind):  # a column of nothing but nulls
        return True
    if expected == "bigint":
        return bool(kinds.is_integer(kind))
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
    return bool(is_text or (expected != "string" and (kinds.is_binary(kind) or kinds.is_large_binary(kind))))


@dataclass
class Ends:
    """Outcomes of jobs, by column; an empty column is None."""

    ids: list[int]
    results: list[bytes | None] | None
    codecs: list[str | None] | None
    errors: list[str | None] | None
    classes: list[str | None] | None
    stacks: list[str | None] | None
    verdicts: list[VerdictKind | None] | None = None
    delays: list[int | None] | None = None

    def at(self, places: Sequence[int]) -> "Ends":
        def picked(column: list[Any] | None) -> list[Any] | None:
            return None if column is None else [column[place] for place in places]

        ids = [self.ids[place] for place in places]
        columns = (self.results, self.codecs, self.errors, self.classes, self.stacks, self.verdicts, self.delays)
        return Ends(ids, *map(picked, columns))

    def between(self, start: int, stop: int) -> "Ends":
        if (start, stop) == (0, len(self.ids)):
            return self
        return self.at(range(start, stop))


def read_ends(table: pa.Table) -> Ends:
    """Raises `InvalidRequest` if a job is there twice, or a value is unknown."""
    ids = table.column("id").to_pylist()
    if table.column("id").null_count:
        raise InvalidRequest("a row has no id: keep the id of each job")
    codecs, verdicts = one_of(table, "codec", CODECS), one_of(table, "verdict", VERDICTS)
    if len(set(ids)) != len(ids):
        seen: set[int] = set()
        double = next(job for job in ids if job in seen or seen.add(job))  # type: ignore[func-returns-value]
        raise InvalidRequest(f"job {double} is there twice: give one row for each job")
    return Ends(
        ids,
        column(table, "result"),
        codecs,
        column(table, "error"),
        column(table, "error_class"),
        column(table, "stack"),
        verdicts,
        column(table, "after_ms"),
    )


def one_of(table: pa.Table, name: str, known: Collection[str]) -> list[Any] | None:
    values = column(table, name)
    strange = set(values or ()) - {None, *known}
    if strange:
        raise InvalidRequest(f"column {name} has {strange.pop()!r}: expected one of {', '.join(known)}")
    return values


def column(table: pa.Table, name: str) -> list[Any] | None:
    if name not in table.column_names:
        return None
    found = table.column(name)
    if found.null_count == len(found):
        return None
    if name == "result" and has_type(found.type, "string"):
        found = found.cast(pa.binary())
    values: list[Any] = found.to_pylist()
    return values


@dataclass
class SettleOutcome:
    """How many jobs were settled in which way, and some of the errors."""

    completed: int = 0
    failed: int = 0
    snoozed: int = 0
    errors: tuple[str, ...] = ()


def settle(client: Client, token: int, ends: Ends, own: Sequence[int] | None = None) -> SettleOutcome:
    """Acknowledge the completed jobs of a delivery and fail the failed ones.

    `own` are its ids, if known: if they are a range and all of them completed, they are sent as a range.
    """
    if ends.errors is None and ends.verdicts is None:
        ids: Sequence[int] = own if type(own) is range and len(own) == len(ends.ids) else ends.ids
        return acknowledged(client, token, ids, ends.results, ends.codecs)
    failures = by_failure(ends)
    not_done = {job for jobs in failures.values() for job in jobs}
    done = ends.at([place for place, job in enumerate(ends.ids) if job not in not_done])
    outcome = acknowledged(client, token, done.ids, done.results, done.codecs)
    for why, jobs in failures.items():
        fail(client, token, jobs, why, outcome)
    return outcome


def acknowledged(
    client: Client,
    token: int,
    ids: Sequence[int],
    results: list[bytes | None] | None,
    codecs: list[str | None] | None,
) -> SettleOutcome:
    outcome = SettleOutcome()
    if not ids:
        return outcome
    if results is None:
        outcome.completed = client.ack_batch(ids, token).count
        return outcome
    by_codec: dict[str, list[int]] = {}
    for place in range(len(ids)):
        by_codec.setdefault((codecs[place] if codecs is not None else None) or "bytes", []).append(place)
    for codec, places in by_codec.items():
        for piece in pieces(places, results):
            with_results(client, token, [(ids[place], results[place]) for place in piece], codec, outcome)
    return outcome


def pieces(places: list[int], results: list[bytes | None]) -> Iterator[list[int]]:
    """Cut into requests of a reasonable size."""
    piece: list[int] = []
    size = 0
    for place in places:
        length = len(results[place] or b"")
        if piece and size + length > BATCH_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(place)
        size += length
    if piece:
        yield piece


def with_results(
    client: Client, token: int, done: list[tuple[int, bytes | None]], codec: Any, outcome: SettleOutcome
) -> None:
    """The queue accepts or refuses a request as a whole, so a result that is too large is found by halving."""
    try:
        ids, results = zip(*done, strict=True)
        outcome.completed += client.ack_batch(ids, token, results, codec=codec).count
        return
    except LimitExceeded as error:
        if len(done) == 1:
            fail(client, token, [done[0][0]], FailureReason(str(error), type(error).__name__), outcome)
            return
    half = len(done) // 2
    with_results(client, token, done[:half], codec, outcome)
    with_results(client, token, done[half:], codec, outcome)


class FailureReason(NamedTuple):
    """Why a job did not complete."""

    error: str
    error_class: str = ""
    stack: str = ""
    verdict: VerdictKind | None = None
    """None leaves the decision to the job's own options."""
    delay_ms: int | None = None


def by_failure(ends: Ends) -> dict[FailureReason, list[int]]:
    """Group jobs with the same failure, which are failed together."""
    found: dict[FailureReason, list[int]] = {}
    told: tuple[list[Any] | None, ...] = (ends.errors, ends.classes, ends.stacks, ends.verdicts, ends.delays)
    for place, job in enumerate(ends.ids):
        error, error_class, stack, verdict, delay_ms = (None if column is None else column[place] for column in told)
        if error is not None or verdict is not None:
            found.setdefault(FailureReason(error or "", error_class or "", stack or "", verdict, delay_ms), []).append(
                job
            )
    return found


def fail(client: Client, token: int, ids: list[int], why: FailureReason, outcome: SettleOutcome) -> None:
    """End deliveries as the verdict says. Jobs that another worker has by now are not counted."""
    if why.verdict == "snooze":
        outcome.snoozed += client.release_batch(ids, token, why.delay_ms or 0).count
        return
    if why.verdict == "cancel":
        cancel(client, token, ids)
    retries = why.verdict not in ("dead", "cancel")
    reply = client.fail_batch(
        ids, token, why.error, error_class=why.error_class, stack=why.stack, retry=retries, delay_ms=why.delay_ms
    )
    outcome.failed += len(ids) - len(reply.refused)
    outcome.errors += (why.error,)


def cancel(client: Client, token: int, ids: list[int]) -> None:
    """Cancel the jobs that we still own: when they then fail, they end as cancelled. Not every token may do that."""
    refused = client.extend_batch(ids, token).refused
    with suppress(Forbidden):
        for job in ids:
            if job not in refused:
                client.cancel(job)
