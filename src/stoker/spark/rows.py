"""Turns rows of a DataFrame into jobs: which columns are options, and how the rest becomes a payload.

A column `payload` (bytes or text) is used unchanged. Without one, the whole row becomes the payload: a MessagePack map
of all columns that are not options, which an app's handlers take as their arguments. This module knows Arrow, but not
Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from stoker.model.errors import InvalidRequest
from stoker.model.option_table import TABLE, TYPES
from stoker.model.options import Backoff, Dependency, Options

KINDS = {
    "string": "string",
    "int": "a whole number",
    "bool": "boolean",
    "timestamp": "timestamp",
    "strings": "array<string>",
    "ints": "array<bigint>",
    "struct": "a struct",
}
"""Types of columns, in words."""
OWN_KINDS: dict[str, tuple[str, ...]] = {
    "run_at": ("timestamp", "int"),
    "backoff": ("int", "struct"),
    "depends_on": ("ints",),
}
"""Options whose columns do not follow from their type: the backoff's base, or all of its fields; ids."""


def kinds_for(name: str) -> tuple[str, ...]:
    hint = TYPES[name]
    if name in OWN_KINDS:
        return OWN_KINDS[name]
    if hint == tuple[str, ...]:
        return ("strings",)
    if hint is bool:
        return ("bool",)
    return ("int",) if hint in (int, int | None) else ("string",)


OPTION_COLUMNS: dict[str, tuple[str, ...]] = {
    "queue": ("string",),
    **{name: kinds_for(name) for name, row in TABLE.items() if row.is_column},
}
"""Columns that are options of their jobs, and the types that they may have."""


class Jobs(NamedTuple):
    """Jobs for one queue that fit one request."""

    queue: str
    payloads: list[bytes]
    options: Options
    each: list[Options] | None
    places: Sequence[int]
    """The positions of the rows in their batch."""

    def part(self, start: int, stop: int) -> "Jobs":
        each = None if self.each is None else self.each[start:stop]
        return Jobs(self.queue, self.payloads[start:stop], self.options, each, self.places[start:stop])

    def pieces(self, jobs_max: int, bytes_max: int) -> Iterator["Jobs"]:
        """Cut into requests of a reasonable size; a job is never cut."""
        if len(self.payloads) <= jobs_max and sum(map(len, self.payloads)) <= bytes_max:
            yield self
            return
        start, size = 0, 0
        for place, payload in enumerate(self.payloads):
            if place > start and (place - start >= jobs_max or size + len(payload) > bytes_max):
                yield self.part(start, place)
                start, size = place, 0
            size += len(payload)
        if start < len(self.payloads):
            yield self.part(start, len(self.payloads))


Mend = Callable[[Any], Any]
Mends = dict[str, Mend]
"""By column: a function that converts its values for a payload."""
Rejected = dict[int, str]
"""By position in a batch: why the row cannot be a job."""
NO_PAYLOAD = "the row has no payload: fill the column, or leave such rows out"
NO_QUEUE = "the row has no queue: fill the column, or set option queue for such rows"


class RowShape:
    """The meaning of a DataFrame's columns, worked out from its schema before any row moves."""

    def __init__(self, schema: pa.Schema, queue: str | None, as_payload: Sequence[str] = ()) -> None:
        """`as_payload` names columns that belong to the payload although they are named like an option."""
        check_names(schema.names, as_payload)
        self._queue = queue
        self.options = [name for name in schema.names if name in OPTION_COLUMNS and name not in as_payload]
        self.has_payload = "payload" in schema.names
        self.values = [name for name in schema.names if name not in self.options]
        for name in self.options:
            check_type(name, schema.field(name).type)
        if queue is None and "queue" not in self.options:
            raise InvalidRequest("no queue: set option queue, or give the DataFrame a column of that name")
        self._maps = maps_in(schema.field(name) for name in self.values)
        if self.has_payload:
            check_payload(schema.field("payload").type)
            if self.values != ["payload"]:
                strange = [name for name in self.values if name != "payload"]
                raise InvalidRequest(
                    f"columns {', '.join(strange)} are beside payload and are not options: put them into the payload,"
                    f" or drop them (options are {', '.join(OPTION_COLUMNS)})"
                )

    def jobs(self, batch: pa.RecordBatch) -> tuple[list[Jobs], Rejected]:
        """The rows of a batch by queue, and those that cannot be jobs."""
        rejected = without(batch, "payload", NO_PAYLOAD) if self.has_payload else {}
        if self._queue is None:
            rejected |= without(batch, "queue", NO_QUEUE)
        payloads: list[Any]
        if self.has_payload:
            payloads, codec = in_bytes(batch.column("payload")), "bytes"
        else:
            payloads, codec = encoded(batch.select(self.values), self._maps, rejected), "msgpack"
        places: Sequence[int] = range(batch.num_rows)
        if rejected:
            places = [place for place in places if place not in rejected]
            batch = batch.take(pa.array(places, pa.int64()))
            payloads = [payloads[place] for place in places]
        if not payloads:
            return [], rejected
        return self._by_queue(batch, payloads, places, codec), rejected

    def _by_queue(self, batch: pa.RecordBatch, payloads: list[bytes], places: Sequence[int], codec: str) -> list[Jobs]:
        shared, differing = self._options(batch, codec)
        if "queue" not in self.options:
            assert self._queue is not None
            return [Jobs(self._queue, payloads, shared, differing, places)]
        by_queue: dict[Any, list[int]] = {}
        for row, queue in enumerate(batch.column("queue").to_pylist()):
            by_queue.setdefault(queue if queue is not None else self._queue, []).append(row)
        return [
            Jobs(
                queue,
                [payloads[row] for row in rows],
                shared,
                None if differing is None else [differing[row] for row in rows],
                [places[row] for row in rows],
            )
            for queue, rows in by_queue.items()
        ]

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


def check_names(names: list[str], as_payload: Sequence[str]) -> None:
    double = [name for name in names if names.count(name) > 1]
    if double:
        raise InvalidRequest(f"the DataFrame has the column {double[0]} twice: rename one of them, or drop it")
    missing = [name for name in as_payload if name not in names]
    if missing:
        raise InvalidRequest(
            f"option payloadColumns names {missing[0]}, which the DataFrame does not have (it has {', '.join(names)})"
        )


def converted(name: str, value: Any) -> Any:
    """A cell as a value of the option."""
    if value is None:
        return None
    if name == "tags":
        return tuple(value)
    if name == "depends_on":
        return tuple(map(Dependency, value))
    if name == "backoff":
        said = value if isinstance(value, dict) else {"base_ms": value}
        return Backoff(**{part: number for part, number in said.items() if number is not None})
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    return value


def in_bytes(column: pa.Array) -> list[Any]:
    return (column if pa.types.is_binary(column.type) else column.cast(pa.binary())).to_pylist()  # type: ignore[no-any-return]


def without(batch: pa.RecordBatch, name: str, reason: str) -> Rejected:
    """The rows with a null in a column."""
    column = batch.column(name)
    if not column.null_count:
        return {}
    return {place: reason for place, is_null in enumerate(column.is_null().to_pylist()) if is_null}


def encoded(batch: pa.RecordBatch, maps: Mends, rejected: Rejected) -> list[Any]:
    """Each row as a payload. Rows that cannot be one are noted, with None in their place."""
    encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
    payloads: list[Any] = []
    rows = rows_of(batch, maps)
    for place in range(batch.num_rows):
        try:
            payloads.append(encode(rows[place] if rows is not None else row_of(batch, place, maps)))
        except (InvalidRequest, TypeError, OverflowError, ValueError) as error:
            payloads.append(None)
            rejected[place] = str(error)
    return payloads


def rows_of(batch: pa.RecordBatch, maps: Mends) -> list[Any] | None:
    """The rows as values; None if one has a timestamp or date that Python cannot represent."""
    try:
        return rows_with_maps(batch, maps)
    except (ValueError, OverflowError):
        return None


def row_of(batch: pa.RecordBatch, place: int, maps: Mends) -> Any:
    try:
        return rows_with_maps(batch.slice(place, 1), maps)[0]
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"a timestamp or date is not within the years 1 to 9999: {error}") from None


def rows_with_maps(batch: pa.RecordBatch, maps: Mends) -> list[Any]:
    """Rows with maps as maps: Arrow returns them as lists of pairs."""
    rows: list[Any] = batch.to_pylist()
    for name, mend in maps.items():
        for row in rows:
            row[name] = mend(row[name])
    return rows


def maps_in(fields: Iterable[pa.Field]) -> Mends:
    """Functions that turn pairs into maps, for the fields that have any."""
    return {field.name: mend for field in fields if (mend := mapped(field.type)) is not None}


def mapped(kind: pa.DataType) -> Mend | None:
    """The same for one type. Raises `InvalidRequest` for maps that a payload cannot have."""
    if pa.types.is_map(kind):
        if pa.types.is_nested(kind.key_type):
            raise InvalidRequest(f"a map has keys of type {kind.key_type}: expected strings or numbers in a payload")
        of_item = mapped(kind.item_type) or same
        return lambda pairs: None if pairs is None else {key: of_item(value) for key, value in pairs}
    if pa.types.is_list(kind):
        each = mapped(kind.value_type)
        return None if each is None else lambda values: None if values is None else [each(value) for value in values]
    if pa.types.is_struct(kind) and (fields := maps_in(kind)):
        return lambda values: values and values | {name: mend(values[name]) for name, mend in fields.items()}
    return None


def same(value: Any) -> Any:
    return value


def plain(value: Any) -> Any:
    """Converts values that MessagePack has no type for."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    raise InvalidRequest(f"a value of type {type(value).__name__} cannot be part of a payload: convert the column")


def check_type(name: str, kind: pa.DataType) -> None:
    """A column of nothing but nulls has no type, and leaves the option at its default."""
    expected = OPTION_COLUMNS[name]
    if kind_of(kind) not in expected and not pa.types.is_null(kind):
        words = " or ".join(KINDS[one] for one in expected)
        raise InvalidRequest(
            f"column {name} is {kind}: expected {words}, because it is an option of jobs. If it is part of the"
            " payload, say so with payloadColumns"
        )
    if kind_of(kind) == "struct":
        strange = [field.name for field in kind if field.name not in Backoff.__struct_fields__]
        if strange:
            expected_fields = ", ".join(Backoff.__struct_fields__)
            raise InvalidRequest(f"column {name} has the field {strange[0]}: expected some of {expected_fields}")


def kind_of(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_list(kind) and kind_of(kind.value_type) in ("string", "int"):
        return f"{kind_of(kind.value_type)}s"
    if pa.types.is_struct(kind):
        return "struct"
    return str(kind)


def check_payload(kind: pa.DataType) -> None:
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind_of(kind) == "string"):
        raise InvalidRequest(f"column payload is {kind}: expected binary or string")
