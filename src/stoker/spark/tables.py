"""The tables that the data source has, column by column: what Spark, Arrow and the reference page know of them.

Arrow types are exactly those that Spark expects of a Python source: another unit or zone, and it refuses the batch.
"""

from typing import Any, NamedTuple

import pyarrow as pa

MOMENT = pa.timestamp("us", "UTC")
TEXTS = pa.list_(pa.string())

SPARK_TYPES: dict[Any, str] = {
    MOMENT: "timestamp",
    TEXTS: "array<string>",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
}


class Column(NamedTuple):
    name: str
    type: pa.DataType
    says: str


EVENTS = (
    Column("time", MOMENT, "when it happened"),
    Column("shard", pa.int32(), "the shard whose log tells of it; with `sequence` and `index` its position"),
    Column("sequence", pa.int64(), "number of the record in the shard's log"),
    Column("index", pa.int32(), "number of the event within its record"),
    Column("tenant", pa.string(), "whose it is"),
    Column("queue", pa.string(), "of the job"),
    Column("job", pa.int64(), "id of the job; 0 for what happens to a queue"),
    Column("name", pa.string(), "the kind of job"),
    Column("event", pa.string(), "what happened: pushed, started, completed, retrying, failed, ..."),
    Column("attempt", pa.int32(), "the delivery that this is about, from 1 on"),
    Column("worker", pa.string(), "who had it"),
    Column("reason", pa.string(), "why it failed, was cancelled, expired or left; the level of a log line"),
    Column("error", pa.string(), "what the worker said"),
    Column("error_class", pa.string(), "the kind of error"),
    Column("priority", pa.int64(), "of the job; higher first"),
    Column("due", MOMENT, "when it will be tried, or tried again"),
    Column("pushed_at", MOMENT, "when the job came"),
    Column("started_at", MOMENT, "when this delivery started"),
    Column("finished_at", MOMENT, "when this delivery, or the job, ended"),
    Column("wait_ms", pa.int64(), "from the push to the start"),
    Column("run_ms", pa.int64(), "from the start to the end"),
    Column("total_ms", pa.int64(), "from the push to the end"),
    Column("payload_bytes", pa.int64(), "size of the payload"),
    Column("result_bytes", pa.int64(), "size of the result"),
    Column("percent", pa.int32(), "progress"),
    Column("message", pa.string(), "of progress and log lines"),
    Column("chunk", pa.int32(), "number of a partial result"),
    Column("data", pa.binary(), "a partial result"),
    Column("codec", pa.string(), "how `data` is written"),
    Column("tags", TEXTS, "of the job"),
    Column("group_id", pa.string(), "of the job"),
    Column("trace", pa.string(), "W3C trace context of the job"),
    Column("parent_id", pa.int64(), "the job that this one belongs to"),
    Column("workflow", pa.int64(), "the workflow that this one belongs to"),
    Column("schedule", pa.string(), "the schedule that pushed it"),
)

PAYLOAD = Column("payload", pa.binary(), "of the pushed job, with `includePayload`")


def arrow_schema(columns: "tuple[Column, ...]") -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def spark_schema(columns: "tuple[Column, ...]") -> str:
    """As Spark writes it: `time timestamp, shard int, ...`."""
    return ", ".join(f"`{column.name}` {SPARK_TYPES[column.type]}" for column in columns)
