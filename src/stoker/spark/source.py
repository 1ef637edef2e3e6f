"""`spark.read.format("stoker")` and `spark.readStream`: the log of a queue as a table; `df.write` is in `sink.py`.

A shard of the queue is a partition of the source, and a sequence number is an offset. Executors fetch records and turn
them into Arrow themselves; the driver only asks how far the logs reach. Reading changes nothing, so Spark may do it
twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.connecting import check_there, connect
from stoker.spark.filters import EVERYTHING, Narrowing, narrowed
from stoker.spark.listing import listed, shares
from stoker.spark.logs import (
    OffsetsOutOfRange,
    Reach,
    connected,
    lost,
    moment_in,
    name_of,
    reaches_for,
    readable_start,
    resolved,
)
from stoker.spark.options import ENDING, STARTING, Offsets, ReadOptions, check_kind, read_options
from stoker.spark.stretches import LogReader, stretches
from stoker.spark.tables import PAYLOAD, SPARK_TYPES, spark_schema

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the source with a session, even one of Spark Connect. Sessions of `stoker.spark.session()` have it
    already.

    If the session shows Python sources the filters of a query, this one uses them. Spark refuses sources that want
    filters while that setting is off, so it is checked here. Writers find a source only in threads that have an active
    session, and a new thread has none: this makes it one.
    """
    from stoker.spark.fleet.streaming import JobsSource

    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(PushdownSource if pushes else StokerSource)
    spark.dataSource.register(JobsSource)
    java = getattr(spark, "_jsparkSession", None)  # a session of Spark Connect has none, and needs none
    if java is not None and SparkSession.getActiveSession() is None:
        java.setActiveSession(java)


class Share(InputPartition):
    """Queues of a tenant whose jobs one task lists, and the tenant's name."""

    def __init__(self, tenant: str, name: str | None, queues: tuple[str, ...]) -> None:
        super().__init__(None)
        self.tenant, self.name, self.queues = tenant, name, queues


class StokerSource(DataSource):
    """The data source. Its options are in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "stoker"

    def schema(self) -> str:
        options = read_options(self.options)
        return spark_schema(options.columns, options.payload_schema)

    def reader(self, schema: Any) -> DataSourceReader:
        options = self._batch(schema)
        return BatchReader(options, schema) if options.table == "events" else ListReader(options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        options = read_options(self.options, streaming=True)
        check_kind(options, streaming=True)
        check_schema(options, schema)
        from stoker.spark.stream import StreamReader

        return StreamReader(options, schema)

    def _batch(self, schema: Any) -> ReadOptions:
        options = read_options(self.options)
        check_kind(options, streaming=False)
        check_schema(options, schema)
        return options

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise InvalidRequest('mode("overwrite"): a queue cannot be overwritten; use mode("append")')
        from stoker.spark.sink import BatchWriter, write_options

        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise InvalidRequest(
                'outputMode("complete") would push all rows again with each batch: use outputMode("append")'
            )
        from stoker.spark.sink import StreamWriter, write_options

        return StreamWriter(write_options(self.options), schema)


class PushdownSource(StokerSource):
    """The same for sessions that let sources see the filters of a query."""

    def reader(self, schema: Any) -> DataSourceReader:
        options = self._batch(schema)
        return PushdownReader(options, schema) if options.table == "events" else PushdownListReader(options, schema)


def check_schema(options: ReadOptions, schema: Any) -> None:
    """Spark passes on a schema from `.schema()` without asking for ours."""
    given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    wanted = [(column.name, SPARK_TYPES[column.type]) for column in options.columns]
    if options.payload_schema is not None:  # only Spark can read that one
        decoded_types = {name: kind for name, kind in given if kind.startswith("struct<")}
        wanted = [(name, decoded_types.get(name, kind) if name == PAYLOAD.name else kind) for name, kind in wanted]
    if given != wanted:
        shown = [f"`{name} {kind}`" for name, kind in given if (name, kind) not in wanted]
        wrong = f"has {shown[0]}, which the table does not have" if shown else "has other columns, or in another order"
        raise InvalidRequest(
            f"the given schema for table {options.table} {wrong}: leave .schema() out, and choose with the option"
            f" columns (it has {', '.join(f'{name} {kind}' for name, kind in wanted)})"
        )


class BatchReader(LogReader, DataSourceReader):
    """The log as it is when the first action begins."""

    places: Narrowing = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        if not options.tenants or options.queues == () or options.events == ():
            return []
        with connected(options) as client:
            known = reaches_for(client, options)
            start = resolved(client, options, options.starting, known, STARTING)
            end = resolved(client, options, options.ending, known, ENDING)
            check_ending(options, start, known)
            start, end = within(client, options, self.places, known, start, end)
        wanted = {shard: known[shard] for shard in end if end[shard] > start[shard]}
        return stretches(
            readable_start(options, start, wanted), {shard: end[shard] for shard in wanted}, options.min_partitions
        )


class ListReader(LogReader, DataSourceReader):
    """A table of the current state."""

    def partitions(self) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        check_there(self.options.connection)
        for tenant in self.options.tenants:
            with connect(self.options.connection, tenant) as client:
                queues_of_tasks = shares(client, self.options)
                if queues_of_tasks:
                    name = name_of(client, self.options.connection, tenant)
                    found += [Share(tenant, name, queues) for queues in queues_of_tasks]
        return found

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Share):
            with connect(self.options.connection, partition.tenant) as client:
                yield from listed(client, self.options, partition.queues, partition.name)


class PushdownReader(BatchReader):
    """Reads less if the query needs less."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All filters go back to Spark, which applies them to the rows: narrowing here cannot cause wrong rows."""
        self.options, self.places = narrowed(self.options, filters)
        return filters


class PushdownListReader(ListReader):
    """The same for tables of the current state."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.options, _ = narrowed(self.options, filters)
        return filters


def check_ending(options: ReadOptions, start: Offsets, known: dict[int, Reach]) -> None:
    """Refuse an end before the beginning, and an end that is no longer kept."""
    if not isinstance(options.ending, dict):
        return
    for shard, position in options.ending.items():
        if isinstance(options.starting, dict) and position < start[shard]:
            raise OffsetsOutOfRange(
                f"shard {shard}: {ENDING} says {position}, and {STARTING} {start[shard]}: swap them"
            )
        if 0 < position < known[shard].lowest - 1:
            lost(options, shard, position - 1, known[shard].lowest - 1, known[shard].lowest)


def within(
    client: Client, options: ReadOptions, places: Narrowing, known: dict[int, Reach], start: Offsets, end: Offsets
) -> tuple[Offsets, Offsets]:
    """The part of a log that a query needs. Times there are whole milliseconds."""
    shards = [shard for shard in known if places.shards is None or shard in places.shards]
    begins, ends = {shard: start[shard] for shard in shards}, {shard: end[shard] for shard in shards}
    for shard in shards:
        if places.after is not None:
            begins[shard] = max(begins[shard], places.after)
        if places.until is not None:
            ends[shard] = min(ends[shard], places.until)
        if places.since is not None:
            begins[shard] = max(begins[shard], moment_in(client, options, shard, whole(places.since), known[shard]))
        if places.before is not None:
            behind = whole(places.before) + timedelta(milliseconds=1)
            ends[shard] = min(ends[shard], moment_in(client, options, shard, behind, known[shard]))
    return begins, ends


def whole(moment: datetime) -> datetime:
    """The timestamp cut to milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
