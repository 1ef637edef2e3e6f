"""Decodes payloads into structs: JSON or MessagePack bytes into the fields that a reader has named.

The first byte shows the encoding, because only maps count: a MessagePack map never begins like a JSON one. A payload
that cannot be decoded is never dropped: its row stays, with the reason and the bytes. This module knows Arrow, but
neither Spark nor the queue.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Required, TypedDict

import msgspec
import pyarrow as pa

from stoker.model.errors import StokerError
from stoker.spark.tables import PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW, Column

_JSON = frozenset(b"{[ \t\r\n")
_MSGPACK_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_EVERYTHING = (msgspec.MsgspecError, RecursionError, ValueError)
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
DECODED = (PAYLOAD.name, PAYLOAD_ERROR.name, PAYLOAD_RAW.name)


class Unfit(ValueError):
    """A payload is not what was expected."""


class CorruptPayload(StokerError):
    """A payload could not be decoded, and the reader asked to fail then."""

    code = "corrupt_payload"


def is_json(payload: bytes) -> bool:
    """Whether it can only be JSON, if it is a map or an array at all."""
    return payload[:1] != b"" and payload[0] in _JSON


def opened(payload: bytes) -> dict[str, Any]:
    """A payload that is a map. Raises `Unfit`, which says what it is instead."""
    try:
        found = msgspec.json.decode(payload) if is_json(payload) else msgspec.msgpack.decode(payload)
    except _EVERYTHING as error:
        raise Unfit(f"neither JSON nor MessagePack: {error}") from None
    if not isinstance(found, dict):
        raise Unfit(f"a value of type {type(found).__name__}, not a map with names")
    return found


def closed(values: dict[str, Any], like: bytes) -> bytes:
    """Encode a map like the payload that it came from."""
    return msgspec.json.encode(values) if is_json(like) else msgspec.msgpack.encode(values)


def needed(columns: Sequence[Column], job: Column) -> tuple[Column, ...]:
    """The columns that are read in order to decode payloads and to name a corrupt one."""
    plain = tuple(column for column in columns if column.name not in DECODED)
    if len(plain) == len(columns):
        return plain
    return (*plain, PAYLOAD) if job.name in [column.name for column in plain] else (*plain, job, PAYLOAD)


def decoded(batch: pa.RecordBatch, schema: pa.Schema, *, fail_fast: bool = False) -> pa.RecordBatch:
    """The same rows with payloads decoded as `schema` says. With `fail_fast`, a corrupt one is an error."""
    if PAYLOAD.name not in batch.schema.names:
        return batch
    payloads = batch.column(PAYLOAD.name).to_pylist()
    structs, errors = structs_of(payloads, schema.field(PAYLOAD.name).type)
    if fail_fast and errors.null_count < len(errors):
        place = next(place for place, error in enumerate(errors) if error.is_valid)
        raise CorruptPayload(
            f"the payload of job {batch.column('job')[place]} cannot be decoded: {errors[place]}. Correct"
            " payloadSchema, or set mode = PERMISSIVE: then its row comes with payload_error and payload_raw"
        )
    raw = [payload if error.is_valid else None for payload, error in zip(payloads, errors, strict=True)]
    made = {PAYLOAD.name: structs, PAYLOAD_ERROR.name: errors, PAYLOAD_RAW.name: pa.array(raw, pa.binary())}
    arrays = [made[name] if name in made else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def structs_of(payloads: list[bytes | None], kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Structs, and the reasons for payloads that could not be decoded."""
    shape = shape_of(kind)
    values: list[dict[str, Any] | None] = []
    errors: list[str | None] = []
    for payload in payloads:
        value, error = None, None
        if payload is not None:
            try:
                value = shape.decode(payload)
            except Unfit as unfit:
                error = str(unfit)
        values.append(value)
        errors.append(error)
    try:
        return pa.array(values, kind), pa.array(errors, pa.string())
    except _MISFITS:
        return _one_by_one(values, errors, kind)


def _one_by_one(
    values: list[dict[str, Any] | None], errors: list[str | None], kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """At least one value is beyond Arrow, for example a decimal with too many digits: find those, and keep the
    others.
    """
    for place, value in enumerate(values):
        try:
            pa.array([value], kind)
        except _MISFITS as error:
            values[place] = None
            errors[place] = f"does not fit {misfit(value, kind)}: {error}"
    return pa.array(values, kind), pa.array(errors, pa.string())


def misfit(value: Any, kind: pa.DataType) -> str:
    """The first field that a payload does not fit."""
    for field in kind:
        try:
            pa.array([value[field.name]] if field.name in value else [], field.type)
        except _MISFITS:
            return f"{field.name} {field.type}"
    return str(kind)


# --- from Arrow's types to what a payload may hold ---------------------------------------------------


class PayloadShape:
    """The expected shape of payloads: other fields are ignored, values of another type are refused."""

    def __init__(self, kind: pa.DataType) -> None:
        wanted = value_type(kind)
        self._json = msgspec.json.Decoder(wanted)
        self._msgpack = msgspec.msgpack.Decoder(wanted)

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Raises `Unfit`, which says what is wrong, and where."""
        if not is_json(payload) and payload[:1] and payload[0] not in _MSGPACK_MAPS:
            raise Unfit(f"not a map in JSON or MessagePack: it begins with {payload[:12]!r}")
        try:
            found: dict[str, Any] = self._json.decode(payload) if is_json(payload) else self._msgpack.decode(payload)
        except msgspec.ValidationError as error:
            raise Unfit(f"does not fit payloadSchema: {error}") from None
        except _EVERYTHING as error:
            raise Unfit(f"neither JSON nor MessagePack: {error}") from None
        return found


@lru_cache(maxsize=64)
def shape_of(kind: pa.DataType) -> PayloadShape:
    return PayloadShape(kind)


def value_type(kind: pa.DataType) -> Any:
    """The Python type whose values Arrow takes without changing them."""
    if pa.types.is_struct(kind):
        return TypedDict("Fields", {name_of(field): field_type(field) for field in kind}, total=False)  # type: ignore[operator]
    if pa.types.is_list(kind):
        return list[value_type(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[value_type(kind.key_type), value_type(kind.item_type) | None]  # type: ignore[misc]
    if pa.types.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    if pa.types.is_timestamp(kind):
        return datetime if kind.tz is not None else Annotated[datetime, msgspec.Meta(tz=False)]
    for matches, python in _PLAIN:
        if matches(kind):
            return python
    return Any


def name_of(field: pa.Field) -> str:
    """The decoder finds names by their cached UTF-8 form and assumes that it exists, which is true only for ASCII."""
    name: str = field.name
    msgspec.json.encode(name)  # creates the UTF-8 form, which stays with the text
    return name


def field_type(field: pa.Field) -> Any:
    kind = value_type(field.type)
    return kind | None if field.nullable else Required[kind]


_PLAIN: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_floating, float),
    (pa.types.is_binary, bytes),
    (pa.types.is_date, date),
    (pa.types.is_decimal, Decimal),
)
