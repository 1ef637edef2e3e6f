"""Stages the rows of a task where they are invisible: the part of a write that Spark may run as often as it likes.

An attempt stages under its own key. What it returns to the driver (`StageResult`) is all that is needed to publish it,
or to let it be dropped. Rows that cannot be jobs fail the attempt, or are reported, as the options say.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from stoker.client.batches import BATCH_BYTES
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError, TransactionOver, UnknownStage
from stoker.model.replies import Transaction
from stoker.spark.arrow_bytes import packed, unpacked
from stoker.spark.connecting import connect
from stoker.spark.options import QueueConnection
from stoker.spark.rows import Jobs, Rejected, RowShape

REJECTION = "rejection"
"""The column with the reason why a row was rejected."""
log = logging.getLogger(__name__)
REJECTED_MAX = 100_000
"""Rejected rows of one task: they go through the driver, and a write with more of them is itself wrong."""


class WriteFailed(StokerError):
    """The jobs of a write were not published."""

    code = "write_failed"


@dataclass(frozen=True)
class Terms:
    """How rows become jobs."""

    connection: QueueConnection
    queue: str | None
    payload_columns: tuple[str, ...]
    batch_rows: int
    keeps_rejected: bool
    """Otherwise a row that cannot be a job fails the write."""

    def shape(self, schema: pa.Schema) -> RowShape:
        """Refuses a DataFrame that cannot be written."""
        if self.keeps_rejected and REJECTION in schema.names:
            raise InvalidRequest(f"the DataFrame has a column {REJECTION}, which is used for reasons: rename it")
        return RowShape(schema, self.queue, self.payload_columns)


@dataclass
class StageResult(WriterCommitMessage):
    """What a task attempt has done."""

    transaction: str
    stage: str | None
    """None if the transaction is already complete: all this was written before."""
    jobs: int
    rejected: bytes | None = None
    """A stream of Arrow batches."""


def check_open(client: Client, terms: Terms) -> None:
    """In the driver, before any row is computed: check that the queue is there and that we may write to it.

    It asks to stage nothing, which the queue refuses with one error to clients that may stage, and with another to
    those that may not.
    """
    with suppress(InvalidRequest):
        client.stage("spark:open", "open", terms.queue or "open", [])


def outcome_of(client: Client, transaction: str) -> Transaction | None:
    """The outcome of a transaction that is over; None if it is not.

    It asks to publish a stage that no attempt has, which changes nothing: a transaction that was published answers with
    its outcome, and any other refuses.
    """
    try:
        return client.publish(transaction, [NO_STAGE])
    except UnknownStage:
        return None
    except TransactionOver:
        raise aborted_before(transaction) from None


NO_STAGE = "none"


def stage(terms: Terms, transaction: str, batches: Iterable[pa.RecordBatch]) -> StageResult:
    """In an executor: stage the rows of a task. If the transaction is over, they are not even computed."""
    with connect(terms.connection) as client:
        if outcome_of(client, transaction) is not None:
            return StageResult(transaction, None, 0)
        attempt = StagedAttempt(client, terms, transaction)
        try:
            for batch in batches:
                attempt.add(batch)
        except TransactionOver:
            return StageResult(transaction, None, 0)
        return StageResult(transaction, attempt.key if attempt.jobs else None, attempt.jobs, attempt.rejected_rows())


class StagedAttempt:
    """The stage of one task attempt."""

    def __init__(self, client: Client, terms: Terms, transaction: str) -> None:
        task = TaskContext.get()
        assert task is not None
        self.key = f"{task.partitionId()}/{task.taskAttemptId()}/{uuid4().hex[:8]}"
        self.jobs = 0
        self._client, self._terms, self._transaction = client, terms, transaction
        self._shape: RowShape | None = None
        self._parts = 0
        self._rejected: list[pa.RecordBatch] = []
        self._rejected_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if self._shape is None:
            self._shape = self._terms.shape(batch.schema)
        found, rejected = self._shape.jobs(batch)
        self._check(batch, rejected)
        for jobs in found:
            for piece in jobs.pieces(self._terms.batch_rows, BATCH_BYTES):
                more = dict(self._stage(piece))
                self._check(batch, more)
                rejected |= more
        if rejected:
            self._reject(batch, rejected)

    def _check(self, batch: pa.RecordBatch, rejected: Rejected) -> None:
        """Fail for the first row that cannot be a job, unless such rows are kept."""
        if rejected and not self._terms.keeps_rejected:
            place, reason = next(iter(rejected.items()))
            raise InvalidRequest(
                f"a row cannot be a job: {reason}. Nothing was pushed. The row is {shown(batch, place)}"
            )

    def _stage(self, jobs: Jobs) -> Iterator[tuple[int, str]]:
        """Rows that the queue refuses. It accepts or refuses a request as a whole: the rest is tried without them, or
        only the first one is told if that fails the write.
        """
        try:
            self._client.stage(
                self._transaction, self.key, jobs.queue, jobs.payloads, jobs.options, each=jobs.each, part=self._parts
            )
        except (InvalidRequest, LimitExceeded) as error:
            number, reason = item_of(str(error))
            if not self._terms.keeps_rejected and number is None and len(jobs.payloads) > 1:
                raise
            if len(jobs.payloads) == 1 or (number is not None and not self._terms.keeps_rejected):
                yield jobs.places[number or 0], reason
                return
        else:
            self._parts += 1
            self.jobs += len(jobs.payloads)
            return
        half = len(jobs.payloads) // 2
        yield from self._stage(jobs.part(0, half))
        yield from self._stage(jobs.part(half, len(jobs.payloads)))

    def _reject(self, batch: pa.RecordBatch, rejected: Rejected) -> None:
        self._rejected_count += len(rejected)
        if self._rejected_count > REJECTED_MAX:
            raise WriteFailed(
                f"more than {REJECTED_MAX} rows of one task cannot be jobs, the last one because: "
                f"{list(rejected.values())[-1]}"
            )
        rows = batch.take(pa.array(list(rejected), pa.int64()))
        self._rejected.append(rows.append_column(REJECTION, pa.array(list(rejected.values()), pa.string())))

    def rejected_rows(self) -> bytes | None:
        return packed(self._rejected) if self._rejected else None


_ITEM = re.compile(r"(?:item (\d+): )?(.*?)(?:; nothing was staged)?", re.DOTALL)


def item_of(message: str) -> tuple[int | None, str]:
    """The item of a request that a refusal is about, if it names one, and the reason."""
    found = _ITEM.fullmatch(message)
    assert found is not None
    return (None if found[1] is None else int(found[1])), found[2]


def shown(batch: pa.RecordBatch, place: int) -> str:
    """A row for people: long values are cut."""
    cells = (f"{name}={cell(batch.column(name)[place])}" for name in batch.schema.names)
    return f"({', '.join(cells)})"


def cell(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py())
    except (ValueError, OverflowError):  # a time that Python does not have
        text = str(value)
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}..."


CELL_CHARS = 60


def tell_doubles(staged: Iterable[StageResult], created: int) -> int:
    """How many rows made no new job; a warning says so, because Spark's writers return nothing."""
    rows = sum(message.jobs for message in staged if message.stage is not None)
    doubles = max(0, rows - created)
    if doubles:
        log.warning(
            "%d of %d rows made no new job: jobs with their unique_key, custom_id or debounce_id are there already",
            doubles,
            rows,
        )
    return doubles


def aborted_before(transaction: str) -> WriteFailed:
    return WriteFailed(f"transaction {transaction} was aborted before: write again under another txnVersion")


def publish(client: Client, transaction: str, staged: Iterable[StageResult]) -> int:
    """In the driver: make the jobs of the attempts that count visible, all at once. Returns their number."""
    stages = [message.stage for message in staged if message.stage is not None]
    try:
        return client.publish(transaction, stages).created
    except TransactionOver:
        raise aborted_before(transaction) from None


def rejected_table(staged: Iterable[StageResult]) -> pa.Table | None:
    """The rejected rows of all attempts that count."""
    return unpacked([message.rejected for message in staged if message.rejected is not None])
