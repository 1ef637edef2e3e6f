"""Rows of a DataFrame as jobs: which columns are options, and how the rest becomes a payload.

A column `payload` (bytes or text) is the payload as it is. Without one, the whole row is: a MessagePack map of all
columns that are not options, which is what an app's handlers take as their arguments. This part knows Arrow, no Spark.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from stoker.model.errors import InvalidRequest
from stoker.model.options import Options

OPTION_COLUMNS: dict[str, tuple[str, ...]] = {
    "queue": ("string",),
    "name": ("string",),
    "priority": ("int",),
    "delay_ms": ("int",),
    "run_at": ("timestamp", "int"),
    "ttl_ms": ("int",),
    "timeout_ms": ("int",),
    "lease_ms": ("int",),
    "max_attempts": ("int",),
    "unique_key": ("string",),
    "custom_id": ("string",),
    "debounce_id": ("string",),
    "group_id": ("string",),
    "tags": ("list",),
    "trace": ("string",),
    "parent_id": ("int",),
}
"""Columns that are options of their jobs, and the types that they may have."""


class Jobs(NamedTuple):
    """Jobs for one queue, as one request can carry them."""

    queue: str
    payloads: list[bytes]
    options: Options
    each: list[Options] | None


class Shape:
    """What the columns of a DataFrame mean. Made from its schema, before any row moves."""

    def __init__(self, schema: pa.Schema, queue: str | None, as_payload: Sequence[str] = ()) -> None:
        """`as_payload` names columns that belong to the payload although they are called like an option."""
        self._queue = queue
        self.options = [name for name in schema.names if name in OPTION_COLUMNS and name not in as_payload]
        self.has_payload = "payload" in schema.names
        self.values = [name for name in schema.names if name not in self.options]
        for name in self.options:
            check_type(name, schema.field(name).type)
        if queue is None and "queue" not in self.options:
            raise InvalidRequest("no queue: set option queue, or give the DataFrame a column of that name")
        if self.has_payload:
            check_payload(schema.field("payload").type)
            if self.values != ["payload"]:
                strange = [name for name in self.values if name != "payload"]
                raise InvalidRequest(
                    f"columns {', '.join(strange)} stand beside payload and are no options: put them into the payload,"
                    f" or drop them (options are {', '.join(OPTION_COLUMNS)})"
                )

    def jobs(self, batch: pa.RecordBatch) -> Iterator[Jobs]:
        """The rows of a batch, by queue."""
        payloads, codec = self._payloads(batch)
        shared, differing = self._options(batch, codec)
        queues = self._queues(batch)
        if queues is None:
            assert self._queue is not None
            yield Jobs(self._queue, payloads, shared, differing)
            return
        for queue in dict.fromkeys(queues):
            places = [place for place, name in enumerate(queues) if name == queue]
            each = None if differing is None else [differing[place] for place in places]
            yield Jobs(queue, [payloads[place] for place in places], shared, each)

    def _queues(self, batch: pa.RecordBatch) -> list[str] | None:
        if "queue" not in self.options:
            return None
        names = [name if name is not None else self._queue for name in batch.column("queue").to_pylist()]
        if None in names:
            raise InvalidRequest("a row has no queue: fill the column, or set option queue for such rows")
        return names  # type: ignore[return-value]

    def _payloads(self, batch: pa.RecordBatch) -> tuple[list[bytes], str]:
        if self.has_payload:
            column = batch.column("payload")
            if column.null_count:
                raise InvalidRequest("a row has no payload: fill the column, or leave such rows out")
            return column.cast(pa.binary()).to_pylist(), "bytes"
        encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
        return [encode(row) for row in batch.select(self.values).to_pylist()], "msgpack"

    def _options(self, batch: pa.RecordBatch, codec: Any) -> tuple[Options, list[Options] | None]:
        """Options that all rows share, and those of each row where they differ."""
        columns = {name: batch.column(name).to_pylist() for name in self.options if name != "queue"}
        shared: dict[str, Any] = {"codec": codec}
        differing: dict[str, list[Any]] = {}
        for name, values in columns.items():
            values = [converted(name, value) for value in values]
            if all(value == values[0] for value in values):
                shared |= {} if not values or values[0] is None else {name: values[0]}
            else:
                differing[name] = values
        base = Options(**shared)
        if not differing:
            return base, None
        rows = zip(*differing.values(), strict=True)
        changes = [{n: v for n, v in zip(differing, row, strict=True) if v is not None} for row in rows]
        return base, [msgspec.structs.replace(base, **change) for change in changes]


def converted(name: str, value: Any) -> Any:
    """A cell as the option takes it."""
    if value is None:
        return None
    if name == "tags":
        return tuple(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    return value


def plain(value: Any) -> Any:
    """What MessagePack has no type for."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    raise InvalidRequest(f"a value of type {type(value).__name__} cannot be a part of a payload: convert the column")


def check_type(name: str, kind: pa.DataType) -> None:
    expected = OPTION_COLUMNS[name]
    if kind_of(kind) not in expected:
        raise InvalidRequest(
            f"column {name} is {kind}: expected {' or '.join(expected)}, because it is an option of jobs"
        )


def kind_of(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind) and kind_of(kind.value_type) == "string":
        return "list"
    return str(kind)


def check_payload(kind: pa.DataType) -> None:
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind_of(kind) == "string"):
        raise InvalidRequest(f"column payload is {kind}: expected binary or string")
