"""A queue as a stream of jobs: `spark.readStream.format("stoker_jobs")`, its sink, and `process_stream` over both.

A batch of the stream is a set of claims, named by the stream and the batch. Spark may replay a batch, in another task
or after a restart, and gets the same jobs. The stream's offset lists the claims, so a checkpoint has them. Jobs are
settled when Spark has committed their batch, or by the sink's commit with a result or error for each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest, NotFound
from stoker.model.units import Duration, duration_ms
from stoker.spark.arrow_bytes import packed, unpacked
from stoker.spark.connecting import connect
from stoker.spark.fleet.leases import Leases
from stoker.spark.fleet.settling import check_columns, read_ends, settle
from stoker.spark.fleet.work import ENDS, ENDS_SCHEMA, JOBS, Applied, Claiming, Handler, as_rows
from stoker.spark.options import CONNECTING, connection, named, number, plain_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from stoker.spark.fleet.rounds import Transformation

NEEDED = ("id", "token")
"""Columns that every row needs in order to be settled."""
CLAIM_JOBS_MAX = 10_000
"""The most that a pull returns with a server's default limits."""

TAKING: dict[str, str] = CONNECTING | {
    "queues": "whose jobs, separated by commas: those of the first queue first",
    "settle": "needed. `rows`: the sink `stoker_jobs` settles each job by its row, and jobs without a row go back to"
    " their queue. `batch`: every job of a batch is done when Spark has committed the batch to any sink",
    "maxJobsInFlight": "the most jobs in hand: a batch takes no more, and the next one waits for its end; by default"
    " 10000",
    "slots": "tasks of a batch; by default 2",
    "lease": "how long the queue waits for a renewal before it gives the jobs to others; by default 60s. Make it longer"
    " than a restart takes, or a replayed batch finds its jobs gone",
}
"""The options of a stream of jobs."""


@dataclass(frozen=True)
class TakeOptions:
    """The options of `spark.readStream.format("stoker_jobs")`."""

    claiming: Claiming
    slots: int
    acks_batches: bool
    """Otherwise the sink settles."""


def take_options(given: Mapping[str, str]) -> TakeOptions:
    """Raises `InvalidRequest`, which names the option and its valid values."""
    options = named(given, TAKING)
    queues = plain_names(options, "queues")
    if queues is None:
        raise InvalidRequest("option queues is missing: name the queues to read jobs from")
    if options.get("settle") not in ("rows", "batch"):
        raise InvalidRequest(
            f"option settle = {options.get('settle')!r}: expected rows (the sink stoker_jobs settles each job) or batch"
            " (all jobs of a batch are done when Spark has committed it)"
        )
    slots = number(options, "slots", 2, 1)
    in_flight = number(options, "maxJobsInFlight", 10_000, 1)
    slots = min(slots, in_flight)
    jobs = min(in_flight // slots, CLAIM_JOBS_MAX)
    claiming = Claiming(connection(options), queues, jobs, lease_of(options))
    return TakeOptions(claiming, slots, options["settle"] == "batch")


def lease_of(options: Mapping[str, str]) -> int:
    text = options.get("lease", "60s")
    try:
        return duration_ms(text)
    except ValueError as error:
        raise InvalidRequest(f"option lease = {text!r}: {error}") from None


class JobsSource(DataSource):
    """The jobs of queues as a stream, and the sink that settles them."""

    @classmethod
    def name(cls) -> str:
        return "stoker_jobs"

    def schema(self) -> str:
        return JOBS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        if given != JOBS:
            raise InvalidRequest(
                f"the given schema is not that of jobs: leave .schema() out, and select (it is {JOBS})"
            )
        return JobsReader(take_options(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        raise InvalidRequest("stoker_jobs is a stream: use readStream; spark.read.format('stoker') looks at jobs")

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        raise InvalidRequest(
            "stoker_jobs settles the jobs that it gave: use writeStream; df.write.format('stoker') pushes jobs"
        )

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise InvalidRequest('outputMode("complete") would settle jobs again: use outputMode("append")')
        named(self.options, CONNECTING)
        return JobsWriter(self.options, schema)


# --- taking --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenBatch:
    """The jobs of one batch, as the stream's offset describes them."""

    stream: str
    batch: int
    claims: int

    def names(self) -> tuple[str, ...]:
        return tuple(f"spark:{self.stream}:{self.batch}:{slot}" for slot in range(self.claims))

    def written(self) -> dict[str, Any]:
        """In a fixed order: Spark compares offsets as text."""
        return {"batch": self.batch, "claims": self.claims, "stream": self.stream}


def read_back(offset: dict[str, Any] | str) -> TakenBatch:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return TakenBatch(found["stream"], found["batch"], found["claims"])


class OneClaim(InputPartition):
    """The jobs of one task."""

    def __init__(self, claim: str) -> None:
        super().__init__(None)
        self.claim = claim


class JobsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Makes claims in the driver and renews their leases; its copies in executors ask for the jobs."""

    def __init__(self, options: TakeOptions) -> None:
        self.options = options
        self._stream = uuid4().hex[:12]
        self._left: int | None = None
        """How many jobs are left to take, with `availableNow`."""
        self._leases: Leases | None = None
        self._finished: TakenBatch | None = None
        self._taken: TakenBatch | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_leases": None}

    def prepareForTriggerAvailableNow(self) -> None:
        with connect(self.options.claiming.connection) as client:
            self._left = sum(client.get_counts(queue).waiting for queue in self.options.claiming.queues)

    def initialOffset(self) -> dict[str, Any]:
        return TakenBatch(self._stream, 0, 0).written()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Called when Spark has committed everything up to `start`: settle that first, then claim more."""
        before = read_back(start)
        with connect(self.options.claiming.connection) as client:
            self._finish(client, before)
            if self._left is not None and self._left <= 0:
                return before.written()
            return (self._take(client, before) or before).written()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        claims = read_back(end).names()
        self._hold(claims)
        return [OneClaim(claim) for claim in claims]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OneClaim):
            yield as_rows(partition.claim, self.options.claiming.jobs(partition.claim))

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: it comes late, or never. `latestOffset` learns the same earlier."""

    def stop(self) -> None:
        """Jobs in hand stay claimed until their leases end: the stream may start again before that."""
        if self._leases is not None:
            self._leases.end()

    def _take(self, client: Client, before: TakenBatch) -> TakenBatch | None:
        """The claims of the next batch; the same ones if they were made before and Spark did not learn of them."""
        batch = before.batch + 1
        sizes, is_over = self._pull(client, TakenBatch(before.stream, batch, self.options.slots))
        while is_over:  # its claims were made earlier and their jobs are gone: they bring nothing any more
            batch += 1
            sizes, is_over = self._pull(client, TakenBatch(before.stream, batch, self.options.slots))
        if not sizes:
            return None
        found = TakenBatch(before.stream, batch, len(sizes))
        if self._left is not None and found != self._taken:
            self._left -= sum(sizes)
        self._taken = found
        self._hold(found.names())
        return found

    def _pull(self, client: Client, wanted: TakenBatch) -> tuple[list[int], bool]:
        """How many jobs the claims of a batch have brought, and whether their time is over."""
        sizes: list[int] = []
        for claim in wanted.names():
            delivery = self.options.claiming.pull(client, claim)
            if not len(delivery):
                return sizes, not sizes and delivery.token != 0
            sizes.append(len(delivery))
        return sizes, False

    def _finish(self, client: Client, before: TakenBatch) -> None:
        """Settle what a committed batch has left open: done, or back to the queue."""
        if before == self._finished:
            return
        for claim in before.names():
            try:
                if self.options.acks_batches:
                    client.ack_claim(claim)
                else:
                    client.release_claim(claim)
            except NotFound:
                pass  # long ago
        if self._leases is not None:
            self._leases.drop(*before.names())
        self._finished = before

    def _hold(self, claims: Sequence[str]) -> None:
        if self._leases is None:
            self._leases = Leases(self.options.claiming.connection, self.options.claiming.lease_ms)
        self._leases.hold(*claims)


# --- settling ------------------------------------------------------------------------------------


@dataclass
class SettledRows(WriterCommitMessage):
    """The outcomes of a task attempt, as a stream of Arrow batches."""

    rows: bytes


class JobsWriter(DataSourceStreamArrowWriter):
    """Settles jobs when Spark commits their batch. A replayed batch finds them settled and changes nothing."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        from stoker.spark.schemas import arrow_schema

        self._connection = connection(named(options, CONNECTING))
        self._columns = check_columns(arrow_schema(schema, ENDS_SCHEMA.names), NEEDED)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = [batch.select(self._columns) for batch in iterator if batch.num_rows]
        return SettledRows(packed(batches) if batches else b"")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        table = unpacked([message.rows for message in messages if isinstance(message, SettledRows) and message.rows])
        if table is None:
            return
        ends = read_ends(table)
        by_token: dict[int, list[int]] = {}
        for place, token in enumerate(table.column("token").to_pylist()):
            by_token.setdefault(token, []).append(place)
        if None in by_token:
            raise InvalidRequest("a row has no token: keep the token of each job")
        with connect(self._connection) as client:
            for token, places in by_token.items():
                settle(client, token, ends.at(places))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: the batch will be tried again, with the same jobs."""


def process_stream(
    spark: "SparkSession",
    queue: str | Sequence[str],
    function: Handler | None = None,
    *,
    checkpoint: str,
    transform: "Transformation | None" = None,
    url: str | None = None,
    token: str | None = None,
    tenant: str = "default",
    max_in_flight: int = 10_000,
    slots: int | None = None,
    lease: Duration = "60s",
    every: str = "1 second",
    available_now: bool = False,
) -> "StreamingQuery":
    """Work through a queue with Spark while the returned query runs: `stop()` it, or wait for it.

    `function` and `transform` are those of `process`; a transformation has to keep `id` and `token`. `every` is how
    often to look at an idle queue. `available_now` ends the query with the jobs that were waiting when it started. At
    most `max_in_flight` jobs are in hand, spread over `slots` tasks. A query that was stopped or killed continues from
    its `checkpoint`.
    """
    from stoker.spark.fleet.rounds import check_work, milliseconds, names_of, parallelism
    from stoker.spark.schemas import arrow_schema

    check_work(function, transform)
    queues = names_of(queue)
    spark.dataSource.register(JobsSource)
    reached = {name: value for name, value in (("url", url), ("token", token), ("tenant", tenant)) if value is not None}
    asked = {
        "queues": ",".join(queues),
        "settle": "rows",
        "maxJobsInFlight": str(max_in_flight),
        "slots": str(slots or parallelism(spark)),
        "lease": f"{milliseconds('lease', lease)}ms",
    }
    take_options(reached | asked)  # fails here instead of inside Spark
    jobs = spark.readStream.format("stoker_jobs").options(**reached, **asked).load()
    ends = transform(jobs) if transform is not None else jobs.mapInArrow(Applied(function), ENDS)  # type: ignore[arg-type]
    # the sink checks, too, but only after jobs are taken
    check_columns(arrow_schema(ends.schema, ENDS_SCHEMA.names), NEEDED)
    writer = ends.writeStream.format("stoker_jobs").options(**reached).option("checkpointLocation", checkpoint)
    when: Any = {"availableNow": True} if available_now else {"processingTime": every}
    return writer.trigger(**when).start()
