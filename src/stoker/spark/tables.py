"""The tables of the data source, column by column: for Spark, Arrow and the reference page.

Arrow types are exactly those that Spark expects of a Python source: with another unit or zone it refuses the batch.
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
    Column("shard", pa.int32(), "the shard whose log has it; with `sequence` and `index` its position"),
    Column("sequence", pa.int64(), "number of the record in the shard's log"),
    Column("index", pa.int32(), "number of the event within its record"),
    Column("tenant", pa.string(), "whose it is"),
    Column("queue", pa.string(), "of the job"),
    Column("job", pa.int64(), "id of the job; 0 for events of a queue"),
    Column("name", pa.string(), "the kind of job"),
    Column("event", pa.string(), "what happened: pushed, started, completed, retrying, failed, ..."),
    Column("attempt", pa.int32(), "the number of the delivery, from 1 on"),
    Column("worker", pa.string(), "who had it"),
    Column("reason", pa.string(), "why it failed, was cancelled, expired or left; the level of a log line"),
    Column("error", pa.string(), "the worker's message"),
    Column("error_class", pa.string(), "the kind of error"),
    Column("priority", pa.int64(), "priority of the job; higher first"),
    Column("due", MOMENT, "when it will be tried, or tried again"),
    Column("pushed_at", MOMENT, "when the job was pushed"),
    Column("started_at", MOMENT, "when this delivery started"),
    Column("finished_at", MOMENT, "when this delivery, or the job, ended"),
    Column("wait_ms", pa.int64(), "from the push to the start"),
    Column("run_ms", pa.int64(), "from the start to the end"),
    Column("total_ms", pa.int64(), "from the push to the end"),
    Column("payload_bytes", pa.int64(), "size of the payload"),
    Column("result_bytes", pa.int64(), "size of the result"),
    Column("percent", pa.int32(), "progress"),
    Column("message", pa.string(), "message of progress and log lines"),
    Column("chunk", pa.int32(), "number of a partial result"),
    Column("data", pa.binary(), "a partial result"),
    Column("codec", pa.string(), "how `data` is encoded"),
    Column("tags", TEXTS, "of the job"),
    Column("group_id", pa.string(), "of the job"),
    Column("trace", pa.string(), "W3C trace context of the job"),
    Column("parent_id", pa.int64(), "the job that this one belongs to"),
    Column("workflow", pa.int64(), "the workflow that this one belongs to"),
    Column("schedule", pa.string(), "the schedule that pushed it"),
    Column("slot", MOMENT, "the time of the run that its schedule pushed it for"),
    Column("ready_at", MOMENT, "when the delivery was due: at the push, or after a delay, a backoff or a dependency"),
    Column("ready_ms", pa.int64(), "from there to the start"),
    Column("latency_ms", pa.int64(), "from there to the end"),
    Column("removed", pa.bool_(), "whether a failed job is gone, and no dead letter, because of `remove_on_fail`"),
)

JOB = Column("job", pa.int64(), "its id")
PAYLOAD = Column("payload", pa.binary(), "with `includePayload`, or decoded by `payloadSchema`; of a pushed job")
PAYLOAD_ERROR = Column("payload_error", pa.string(), "with `payloadSchema`: why a payload could not be decoded")
PAYLOAD_RAW = Column(
    "payload_raw", pa.binary(), "with `payloadSchema`: the bytes of a payload that could not be decoded"
)

_JOB = (
    Column("tenant", pa.string(), "whose it is"),
    Column("queue", pa.string(), "the queue that it was pushed to"),
    JOB,
    Column("name", pa.string(), "the kind of job"),
)
_OPTIONS = (
    Column("priority", pa.int64(), "higher first"),
    Column("max_attempts", pa.int32(), "deliveries at most; 0 = no limit"),
    Column("codec", pa.string(), "encoding of the payload: bytes, json or msgpack"),
    Column("payload_bytes", pa.int64(), "size of the payload"),
    Column("tags", TEXTS, "labels that its sender gave it"),
    Column("group_id", pa.string(), "jobs of a group run one at a time"),
    Column("unique_key", pa.string(), "at most one live job of the queue has it"),
    Column("custom_id", pa.string(), "the id that its sender gave it"),
    Column("trace", pa.string(), "W3C trace context"),
    Column("parent_id", pa.int64(), "the job that this one belongs to"),
    Column("workflow", pa.int64(), "the workflow that this one belongs to"),
    Column("schedule", pa.string(), "the schedule that pushed it"),
)

JOBS = (
    *_JOB,
    Column("state", pa.string(), "waiting, delayed, blocked, active, completed, failed, cancelled or expired"),
    Column("attempts", pa.int32(), "deliveries that have begun"),
    Column("crashes", pa.int32(), "deliveries whose worker was lost"),
    Column("pushed_at", MOMENT, "when it came"),
    Column("due", MOMENT, "when a delayed job becomes ready"),
    Column("started_at", MOMENT, "when the last delivery started"),
    Column("lease_until", MOMENT, "until when an active job's worker has it"),
    Column("finished_at", MOMENT, "when it ended"),
    Column("worker", pa.string(), "the worker that has it, or had it last"),
    Column("reason", pa.string(), "why it failed, was cancelled or expired"),
    Column("error", pa.string(), "the worker's message"),
    Column("percent", pa.int32(), "progress"),
    Column("message", pa.string(), "of the progress"),
    *_OPTIONS,
)

DEAD_LETTERS = (
    *_JOB,
    Column("reason", pa.string(), "why it will not be retried: max_attempts_exceeded, timeout, ..."),
    Column("error", pa.string(), "the worker's last message"),
    Column("attempts", pa.int32(), "number of deliveries"),
    Column("crashes", pa.int32(), "deliveries whose worker was lost"),
    Column("pushed_at", MOMENT, "when it came"),
    Column("entered_at", MOMENT, "when it became a dead letter"),
    Column("expires_at", MOMENT, "when the queue removes it"),
    Column("retry_count", pa.int32(), "how often it was retried by hand"),
    *_OPTIONS,
    Column("payload", pa.binary(), "as it was pushed, or decoded by `payloadSchema`"),
)

RESULTS = (
    *_JOB,
    Column("pushed_at", MOMENT, "when it came"),
    Column("started_at", MOMENT, "when the delivery that completed it started"),
    Column("finished_at", MOMENT, "when it completed"),
    Column("attempts", pa.int32(), "number of deliveries"),
    Column("result", pa.binary(), "what the handler returned"),
    Column("result_bytes", pa.int64(), "its size"),
    Column("codec", pa.string(), "encoding of the result: bytes, json or msgpack"),
    Column("tags", TEXTS, "of the job"),
    Column("custom_id", pa.string(), "the id that its sender gave it"),
    Column("parent_id", pa.int64(), "the job that this one belongs to"),
    Column("workflow", pa.int64(), "the workflow that this one belongs to"),
)

SCHEDULES = (
    Column("tenant", pa.string(), "whose it is"),
    Column("queue", pa.string(), "where its jobs go"),
    Column("schedule", pa.string(), "its name"),
    Column("state", pa.string(), "active, paused, ended or similar"),
    Column("cron", pa.string(), "its cron expression, if it has one"),
    Column("every_ms", pa.int64(), "its interval, if it has one"),
    Column("at", MOMENT, "its time, if it runs once"),
    Column("zone", pa.string(), "time zone of `cron`"),
    Column("next_run", MOMENT, "its next slot"),
    Column("runs", pa.int64(), "jobs pushed since its rule was last changed"),
    Column("overlap", pa.string(), "what happens while a job of an earlier slot is live"),
    Column("misfire", pa.string(), "what happens to slots that were missed"),
    Column("name", pa.string(), "the kind of its jobs"),
    Column("created_at", MOMENT, "when it was made"),
    Column("changed_at", MOMENT, "when it was last changed"),
)

WORKERS = (
    Column("tenant", pa.string(), "whose it is"),
    Column("worker", pa.string(), "its id"),
    Column("host", pa.string(), "where it runs"),
    Column("pid", pa.int64(), "its process there"),
    Column("queues", TEXTS, "the queues that it works for"),
    Column("slots", pa.int32(), "how many jobs it may have in hand"),
    Column("running", pa.int32(), "how many it has"),
    Column("done", pa.int64(), "deliveries that it has settled since it started"),
    Column("failed", pa.int64(), "those of them that failed"),
    Column("started_at", MOMENT, "when it started"),
    Column("polled_at", MOMENT, "when a pull was last answered"),
    Column("seen_at", MOMENT, "when it last reported"),
    Column("stopping", pa.bool_(), "whether it takes no more jobs"),
    Column("version", pa.string(), "of Stoker"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "events": EVENTS,
    "jobs": JOBS,
    "dead_letters": DEAD_LETTERS,
    "results": RESULTS,
    "schedules": SCHEDULES,
    "workers": WORKERS,
}
WITH_PAYLOAD = ("events", "jobs", "dead_letters")
"""Tables that have, or can have, a column `payload`."""

ABOUT = {
    "events": "Every event of the log, one row each, as long as it is kept. The only table that can be a stream.",
    "jobs": "The jobs that are readable now: live ones, ended ones that are retained, dead letters.",
    "dead_letters": "Jobs that failed for good.",
    "results": "The results of completed jobs, while they are kept.",
    "schedules": "All schedules.",
    "workers": "The workers that reported within the last minute.",
}


def arrow_schema(columns: "tuple[Column, ...]") -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def spark_schema(columns: "tuple[Column, ...]", payload: str | None = None) -> str:
    """The schema in Spark's notation: `time timestamp, shard int, ...`; `payload` has the fields of a decoded
    payload.
    """
    types = [SPARK_TYPES[column.type] for column in columns]
    if payload is not None:
        types = [
            f"struct<{payload}>" if column.name == PAYLOAD.name else known
            for column, known in zip(columns, types, strict=True)
        ]
    return ", ".join(f"`{column.name}` {known}" for column, known in zip(columns, types, strict=True))
