"""`df.write.format("stoker")` and `writeStream`: each row becomes a job, exactly once.

A task attempt stages its rows under a key of its own, where nobody sees them. When Spark has decided which attempts
count, the driver publishes exactly their stages in one transaction. What failed attempts have staged is never seen, and
is dropped by the queue. The transaction of a stream is named by its query and batch, that of a batch write by
`txnAppId` and `txnVersion` if given: what is written a second time under the same name changes nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest, StokerError, TransactionOver
from stoker.spark.logs import connect
from stoker.spark.options import WRITING, Connection, connection, named, names, number
from stoker.spark.rows import Jobs, Shape


class WriteFailed(StokerError):
    """The jobs of a write were not published."""

    code = "write_failed"


@dataclass(frozen=True)
class WriteOptions:
    """The options of `df.write` and `df.writeStream`."""

    connection: Connection
    queue: str | None
    payload_columns: tuple[str, ...]
    transaction: str | None
    batch_rows: int


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises `InvalidRequest` that names the option and what it may be."""
    options = named(given, WRITING)
    if ("txnAppId" in options) != ("txnVersion" in options):
        raise InvalidRequest("options txnAppId and txnVersion belong together: give both, or neither")
    transaction = None
    if "txnAppId" in options:
        transaction = f"spark:{options['txnAppId']}:{number(options, 'txnVersion', 0)}"
    return WriteOptions(
        connection=connection(options),
        queue=options.get("queue"),
        payload_columns=names(options, "payloadColumns") or (),
        transaction=transaction,
        batch_rows=number(options, "batchRows", 5_000, 1),
    )


@dataclass
class Staged(WriterCommitMessage):
    """What a task attempt has done."""

    transaction: str
    stage: str | None
    """None if the transaction was over already: somebody has written all this before."""
    jobs: int


class Writer:
    """What both ways of writing share."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.options = options
        Shape(to_arrow_schema(schema), options.queue, options.payload_columns)  # refuses what cannot be written

    def stage(self, transaction: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        """In an executor: write the rows of a task where nobody sees them."""
        task = TaskContext.get()
        assert task is not None
        key = f"{task.partitionId()}/{task.taskAttemptId()}/{uuid4().hex[:8]}"
        jobs = 0
        with connect(self.options.connection) as client:
            try:
                for part, new in enumerate(self._requests(batches)):
                    client.stage(transaction, key, new.queue, new.payloads, new.options, each=new.each, part=part)
                    jobs += len(new.payloads)
            except TransactionOver:
                for _ in batches:
                    pass
                return Staged(transaction, None, 0)
        return Staged(transaction, key if jobs else None, jobs)

    def _requests(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Jobs]:
        shape: Shape | None = None
        for batch in batches:
            if shape is None:
                shape = Shape(batch.schema, self.options.queue, self.options.payload_columns)
            for start in range(0, batch.num_rows, self.options.batch_rows):
                yield from shape.jobs(batch.slice(start, self.options.batch_rows))

    def publish(self, messages: list[WriterCommitMessage | None]) -> int:
        """In the driver: make the jobs of the attempts that count visible, all at once. How many they are."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return 0
        stages = [message.stage for message in staged if message.stage is not None]
        with connect(self.options.connection) as client:
            return published(client, staged[0].transaction, stages)


def published(client: Client, transaction: str, stages: list[str]) -> int:
    try:
        return client.publish(transaction, stages).created
    except TransactionOver:
        raise WriteFailed(
            f"transaction {transaction} was aborted before: write again under another txnVersion"
        ) from None


class BatchWriter(Writer, DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        super().__init__(options, schema)
        self._transaction = options.transaction or f"spark:{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.stage(self._transaction, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged. Under a name that may be used again the queue drops it by itself, after a while."""
        if self.options.transaction is None:
            with connect(self.options.connection) as client:
                client.abort(self._transaction)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """The batches of a stream, each a transaction of its own."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise WriteFailed("Spark does not say which batch this is: it cannot be written exactly once")
        return self.stage(f"spark:{query}:{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch will be tried again under the same name; what was staged is dropped by the queue after a while."""
