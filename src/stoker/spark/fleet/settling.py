"""In the driver: what became of jobs, told to the queue. The only place of the fleet where jobs are settled.

Rows come as Arrow, thousands at a time. They are checked as a whole before the first of them is settled: a
transformation that gives a job twice, or one that it did not get, changes nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from stoker.client.batches import BATCH_BYTES
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.options import CODECS
from stoker.spark.fleet.work import ENDS_SCHEMA

EXPECTED = {
    "id": "bigint",
    "token": "bigint",
    "result": "binary or string",
    "codec": "string",
    "error": "string",
    "error_class": "string",
    "stack": "string",
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
    if expected == "bigint":
        return bool(kinds.is_integer(kind))
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
    return bool(is_text or (expected != "string" and (kinds.is_binary(kind) or kinds.is_large_binary(kind))))


@dataclass
class Ends:
    """What became of jobs, by columns; a column that has nothing in it is None."""

    ids: list[int]
    results: list[bytes | None] | None
    codecs: list[str | None] | None
    errors: list[str | None] | None
    classes: list[str | None] | None
    stacks: list[str | None] | None

    def at(self, places: Sequence[int]) -> "Ends":
        def picked(column: list[Any] | None) -> list[Any] | None:
            return None if column is None else [column[place] for place in places]

        ids = [self.ids[place] for place in places]
        columns = (self.results, self.codecs, self.errors, self.classes, self.stacks)
        return Ends(ids, *map(picked, columns))

    def between(self, start: int, stop: int) -> "Ends":
        if (start, stop) == (0, len(self.ids)):
            return self
        return self.at(range(start, stop))


def read_ends(table: pa.Table) -> Ends:
    """Raises `InvalidRequest` if a job is there twice, or has none of the codecs that there are."""
    ids = table.column("id").to_pylist()
    if table.column("id").null_count:
        raise InvalidRequest("a row has no id: keep the id of each job")
    codecs = column(table, "codec")
    strange = set(codecs or ()) - {None, *CODECS}
    if strange:
        raise InvalidRequest(f"column codec has {strange.pop()!r}: expected one of {', '.join(CODECS)}")
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
    )


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
class Outcome:
    """How many of some jobs were settled in which way, and some of the errors."""

    completed: int = 0
    failed: int = 0
    errors: tuple[str, ...] = ()


def settle(client: Client, token: int, ends: Ends, own: Sequence[int] | None = None) -> Outcome:
    """Acknowledge what was done and fail what failed, of one delivery.

    `own` are its ids, if they are known: if they are a range, and all of them are done, it is sent as that.
    """
    if ends.errors is None:
        ids: Sequence[int] = own if type(own) is range and len(own) == len(ends.ids) else ends.ids
        return acknowledged(client, token, ids, ends.results, ends.codecs)
    failed = [place for place, error in enumerate(ends.errors) if error is not None]
    done = ends.at([place for place, error in enumerate(ends.errors) if error is None])
    outcome = acknowledged(client, token, done.ids, done.results, done.codecs)
    for (error, error_class, stack), ids in by_error(ends.at(failed)).items():
        outcome.failed += fail(client, token, ids, error, error_class, stack)
        outcome.errors += (error,)
    return outcome


def acknowledged(
    client: Client,
    token: int,
    ids: Sequence[int],
    results: list[bytes | None] | None,
    codecs: list[str | None] | None,
) -> Outcome:
    outcome = Outcome()
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
    """As many results at a time as a request should carry."""
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
    client: Client, token: int, done: list[tuple[int, bytes | None]], codec: Any, outcome: Outcome
) -> None:
    """The queue takes a request or refuses it as a whole: a result that is too large is found by halves."""
    try:
        ids, results = zip(*done, strict=True)
        outcome.completed += client.ack_batch(ids, token, results, codec=codec).count
        return
    except LimitExceeded as error:
        if len(done) == 1:
            outcome.failed += fail(client, token, [done[0][0]], str(error), type(error).__name__, "")
            outcome.errors += (str(error),)
            return
    half = len(done) // 2
    with_results(client, token, done[:half], codec, outcome)
    with_results(client, token, done[half:], codec, outcome)


def by_error(failed: Ends) -> dict[tuple[str, str, str], list[int]]:
    """Jobs with the same error are failed at once."""
    found: dict[tuple[str, str, str], list[int]] = {}
    assert failed.errors is not None
    for place, job in enumerate(failed.ids):
        error_class = failed.classes[place] if failed.classes is not None else None
        stack = failed.stacks[place] if failed.stacks is not None else None
        found.setdefault((failed.errors[place] or "", error_class or "", stack or ""), []).append(job)
    return found


def fail(client: Client, token: int, ids: list[int], error: str, error_class: str, stack: str) -> int:
    """How many could be failed."""
    reply = client.fail_batch(ids, token, error, error_class=error_class, stack=stack)
    return len(ids) - len(reply.refused)
