"""`stoker.spark.push`: pushes a DataFrame as jobs, with a return value that says what happened to its rows.

It does what `df.write.format("stoker")` does, with the same guarantee. Spark's writers can only succeed or fail; this
function also returns how many jobs there are now, and the rows that could not become one.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import pyarrow as pa

from stoker.model.errors import InvalidRequest, StokerError
from stoker.spark.connecting import connect
from stoker.spark.error_text import ours
from stoker.spark.options import QueueConnection, check_name
from stoker.spark.staging import (
    REJECTION,
    StageResult,
    Terms,
    WriteFailed,
    check_open,
    outcome_of,
    publish,
    rejected_table,
    stage,
    tell_doubles,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGED = pa.schema([("stage", pa.string()), ("jobs", pa.int64()), ("rejected", pa.binary())])


@dataclass(frozen=True)
class PushOutcome:
    """The outcome of pushing a DataFrame."""

    created: int
    """New jobs. Rows with the `unique_key` or `custom_id` of an existing job make no new one."""
    rejected: "DataFrame"
    """The rows that could not become jobs, with the reason in a column `rejection`."""
    duplicates: int = 0
    """Rows that made no new job, because one with their `unique_key`, `custom_id` or `debounce_id` was there."""


def push(
    frame: "DataFrame",
    queue: str | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    tenant: str = "default",
    on_rejected: Literal["fail", "return"] = "fail",
    transaction: str | None = None,
    payload_columns: Sequence[str] = (),
    batch_rows: int = 5_000,
) -> PushOutcome:
    """Push each row of a DataFrame as a job, exactly once, even if Spark runs tasks again.

    Columns mean what they mean for `df.write.format("stoker")`. A row that cannot be a job fails the call, and nothing
    is pushed; with `on_rejected="return"`, it is returned and the others are pushed. A second push under the same
    `transaction` changes nothing: then rows are not even looked at, and none is returned.
    """
    from pyspark.errors import PySparkException

    from stoker.spark.schemas import arrow_schema

    if on_rejected not in ("fail", "return"):
        raise InvalidRequest(f"on_rejected = {on_rejected!r}: expected fail or return")
    if batch_rows < 1:
        raise InvalidRequest(f"batch_rows = {batch_rows}: expected at least 1")
    for option, name in (("queue", queue), ("tenant", tenant)):
        if name is not None:
            check_name(option, name)
    terms = Terms(
        QueueConnection(url, token, tenant), queue, tuple(payload_columns), batch_rows, on_rejected == "return"
    )
    terms.shape(arrow_schema(frame.schema))  # refuses what cannot be pushed
    name = f"spark:{uuid4().hex}" if transaction is None else f"spark:{transaction}"
    with connect(terms.connection) as client:
        check_open(client, terms)
        before = outcome_of(client, name)
        if before is not None:
            return PushOutcome(before.created, rejected_frame(frame, None))
        try:
            told = frame.mapInArrow(Rows(terms, name), "stage string, jobs bigint, rejected binary").toArrow()
            staged = [StageResult(name, **row) for row in told.to_pylist()]
            created = publish(client, name, staged)
        except BaseException as error:
            if transaction is None:
                with suppress(StokerError):  # the queue drops it after a while in any case
                    client.abort(name)
            if isinstance(error, PySparkException) and (reason := ours(error)) is not None:
                raise WriteFailed(reason) from None
            raise
    return PushOutcome(created, rejected_frame(frame, rejected_table(staged)), tell_doubles(staged, created))


class Rows:
    """In an executor: stages the rows of a task, and reports it in one row."""

    def __init__(self, terms: Terms, transaction: str) -> None:
        self._terms, self._transaction = terms, transaction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = stage(self._terms, self._transaction, batches)
        told = {"stage": [done.stage], "jobs": [done.jobs], "rejected": [done.rejected]}
        yield pa.RecordBatch.from_pydict(told, schema=STAGED)


def rejected_frame(frame: "DataFrame", rows: pa.Table | None) -> "DataFrame":
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(REJECTION, StringType())])
    if rows is None:
        return frame.sparkSession.createDataFrame([], schema)
    return frame.sparkSession.createDataFrame(rows, schema)
