"""Payloads as structs: JSON or MessagePack bytes into the fields that a reader has named.

How a payload is written shows in its first byte, because only maps count: a map of MessagePack never begins like one of
JSON. This part knows Arrow, and neither Spark nor the queue.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from stoker.spark.tables import PAYLOAD, PAYLOAD_ERROR, Column

_JSON = frozenset(b"{[ \t\r\n")
_EVERYTHING = (msgspec.MsgspecError, RecursionError, ValueError)


class Unfit(ValueError):
    """A payload is not what somebody takes it for."""


def is_json(payload: bytes) -> bool:
    """Whether it can only be JSON, if it is a map or an array at all."""
    return payload[:1] != b"" and payload[0] in _JSON


def opened(payload: bytes) -> dict[str, Any]:
    """A payload that is a map. Raises `Unfit` which says what it is instead."""
    try:
        found = msgspec.json.decode(payload) if is_json(payload) else msgspec.msgpack.decode(payload)
    except _EVERYTHING as error:
        raise Unfit(f"neither JSON nor MessagePack: {error}") from None
    if not isinstance(found, dict):
        raise Unfit(f"a value of type {type(found).__name__}, and no map with names")
    return found


def closed(values: dict[str, Any], like: bytes) -> bytes:
    """A map, written as the payload was that it came from."""
    return msgspec.json.encode(values) if is_json(like) else msgspec.msgpack.encode(values)


def needed(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that have to be read so that payloads can be decoded."""
    plain = tuple(column for column in columns if column.name not in (PAYLOAD.name, PAYLOAD_ERROR.name))
    return plain if len(plain) == len(columns) else (*plain, PAYLOAD)


def decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with payloads decoded, as `schema` says."""
    if PAYLOAD.name not in batch.schema.names:
        return batch
    kind = pa.struct([])
    if PAYLOAD.name in schema.names:
        kind = schema.field(PAYLOAD.name).type
    structs, errors = structs_of(batch.column(PAYLOAD.name).to_pylist(), kind)
    made = {PAYLOAD.name: structs, PAYLOAD_ERROR.name: errors}
    arrays = [made[name] if name in made else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def structs_of(payloads: list[bytes | None], kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Structs, and for those that are null although there is a payload the reason."""
    values: list[dict[str, Any] | None] = []
    errors: list[str | None] = []
    for payload in payloads:
        value, error = None, None
        if payload is not None:
            try:
                value = opened(payload)
            except Unfit as unfit:
                error = str(unfit)
        values.append(value)
        errors.append(error)
    try:
        return pa.array(values, kind), pa.array(errors, pa.string())
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _one_by_one(values, errors, kind)


def _one_by_one(
    values: list[dict[str, Any] | None], errors: list[str | None], kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """At least one of them does not fit: find those, so that the others are not lost."""
    for place, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            values[place] = None
            errors[place] = f"does not fit {misfit(value, kind)}: {error}"
    return pa.array(values, kind), pa.array(errors, pa.string())


def misfit(value: Any, kind: pa.DataType) -> str:
    """The first field that a payload does not fit."""
    for field in kind:
        try:
            pa.array([value[field.name]] if field.name in value else [], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return f"{field.name} {field.type}"
    return str(kind)
