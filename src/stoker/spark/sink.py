"""`df.write.format("stoker")` and `writeStream`: each row becomes a job, exactly once.

A task attempt stages its rows under its own key, where they are invisible. When Spark has decided which attempts count,
the driver publishes exactly their stages in one transaction. Rows of failed attempts are never visible, and the queue
drops them. The transaction of a stream is named by its query and batch, that of a batch write by `txnAppId` and
`txnVersion` if given: writing again under the same name changes nothing.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from stoker.model.errors import InvalidRequest, StokerError
from stoker.spark.connecting import connect
from stoker.spark.options import WRITING, check_name, connection, named, names, number
from stoker.spark.staging import (
    StageResult,
    Terms,
    WriteFailed,
    check_open,
    publish,
    rejected_table,
    stage,
    tell_doubles,
)


@dataclass(frozen=True)
class WriteOptions:
    """The options of `df.write` and `df.writeStream`."""

    terms: Terms
    transaction: str | None
    rejected_path: str | None


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises `InvalidRequest`, which names the option and its valid values."""
    options = named(given, WRITING)
    if ("txnAppId" in options) != ("txnVersion" in options):
        raise InvalidRequest("options txnAppId and txnVersion belong together: give both or neither")
    transaction = None
    if "txnAppId" in options:
        transaction = f"spark:{options['txnAppId']}:{number(options, 'txnVersion', 0)}"
    rejected_path = options.get("rejectedPath")
    if rejected_path is not None and not rejected_path.strip():
        raise InvalidRequest("option rejectedPath is empty: expected a folder for rows that cannot be jobs")
    terms = Terms(
        connection=connection(options),
        queue=queue_of(options),
        payload_columns=names(options, "payloadColumns") or (),
        batch_rows=number(options, "batchRows", 5_000, 1),
        keeps_rejected=rejected_path is not None,
    )
    return WriteOptions(terms, transaction, rejected_path)


def queue_of(options: Mapping[str, str]) -> str | None:
    queue = options.get("queue")
    if queue is not None:
        check_name("queue", queue)
    return queue


class Writer:
    """What batch and stream writers share."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        from stoker.spark.schemas import arrow_schema

        self.options = options
        options.terms.shape(arrow_schema(schema))  # refuses what cannot be written
        with connect(options.terms.connection) as client:
            check_open(client, options.terms)

    def publish(self, transaction: str, staged: list[StageResult]) -> None:
        """In the driver. Rejected rows are written to their file before anything is pushed, so none can be
        forgotten.
        """
        rejected = rejected_table(staged)
        if rejected is not None:
            assert self.options.rejected_path is not None
            Folder(self.options.rejected_path).write(transaction, rejected)
        with connect(self.options.terms.connection) as client:
            tell_doubles(staged, publish(client, transaction, staged))


def staged_of(messages: list[WriterCommitMessage | None]) -> list[StageResult]:
    return [message for message in messages if isinstance(message, StageResult)]


class Folder:
    """The folder for rejected rows: one file for each transaction, rewritten if the transaction is."""

    def __init__(self, path: str) -> None:
        from pyarrow import fs as pafs  # rejected rows are rare: other writes need not wait for this import

        if "://" in path:
            self._files, self._path = pafs.FileSystem.from_uri(path)
        else:
            self._files, self._path = pafs.LocalFileSystem(), os.path.abspath(path.removeprefix("file:"))

    def _name(self, transaction: str) -> str:
        return f"rejected-{hashlib.sha256(transaction.encode()).hexdigest()[:20]}.parquet"

    def write(self, transaction: str, rows: pa.Table) -> None:
        """Readers see all of it or nothing: Spark ignores names that begin with a dot."""
        from pyarrow import parquet as pq

        name = self._name(transaction)
        self._files.create_dir(self._path, recursive=True)
        pq.write_table(rows, f"{self._path}/.{name}", filesystem=self._files)
        self._files.move(f"{self._path}/.{name}", f"{self._path}/{name}")

    def drop(self, transaction: str) -> None:
        try:
            self._files.delete_file(f"{self._path}/{self._name(transaction)}")
        except FileNotFoundError:
            pass


class BatchWriter(Writer, DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        super().__init__(options, schema)
        self._transaction = options.transaction or f"spark:{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self.options.terms, self._transaction, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes even if no task wrote anything: the transaction's name is used up then, too."""
        self.publish(self._transaction, staged_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the staged rows. Under a name that may be used again, the queue drops them after a while.

        The same if the queue cannot be reached: Spark should report the original error, not this one.
        """
        if self.options.transaction is not None:
            return
        with suppress(StokerError), connect(self.options.terms.connection) as client:
            outcome = client.abort(self._transaction)
            if outcome.outcome == "aborted" and self.options.rejected_path is not None:
                Folder(self.options.rejected_path).drop(self._transaction)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """The batches of a stream, each with its own transaction."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        if options.transaction is not None:
            raise InvalidRequest(
                "options txnAppId and txnVersion are for a batch write: a stream names its transactions by itself"
            )
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise WriteFailed("Spark does not say which batch this is: it cannot be written exactly once")
        return stage(self.options.terms, f"spark:{query}:{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = staged_of(messages)
        if staged:
            self.publish(staged[0].transaction, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: the batch is tried again under the same name, and the queue drops staged rows after a while."""
