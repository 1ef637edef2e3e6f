"""Payloads and results between codecs: as they are where both sides write the same, transcoded where they do not.

What cannot be said in the reader's codec (bytes, or a tag that does not keep its promise) is shown as
`{"$bytes": "<base64>"}`. Nothing here raises on the way out: a job that cannot be shown must still be delivered.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from stoker.model.errors import InvalidRequest
from stoker.model.options import Codec as Stored
from stoker.wire.counting import CODECS
from stoker.wire.flashq.decoding import MISFITS, Codec
from stoker.wire.flashq.requests import NOT_SAID

NULL: dict[str, Raw] = {"json": Raw(b"null"), "msgpack": Raw(b"\xc0")}
UNFIT = (*MISFITS, TypeError)
"""What transcoding may raise: keys that are no text, numbers beyond 64 bits, extension types."""

SMALL_BYTES = 1024 * 1024
CONTAINERS_MAX = 2_000_000
"""Decoded, an empty list is 64 times as large: ten megabytes of them are not worth the memory."""

_SMALL_CONTAINERS = bytes(range(0x80, 0xA0))
_json_value = msgspec.json.Decoder(Raw).decode
_msgpack_value = msgspec.msgpack.Decoder(Raw).decode
_json_any = msgspec.json.Decoder().decode
_msgpack_any = msgspec.msgpack.Decoder().decode
_encode_json = msgspec.json.Encoder(decimal_format="number").encode
_encode_msgpack = msgspec.msgpack.Encoder().encode


class BytesValue(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Bytes inside JSON."""

    bytes_: str = msgspec.field(name="$bytes")


def shown(payload: bytes, stored: Stored, codec: Codec) -> Raw:
    """A stored value as part of an answer."""
    try:
        if stored == codec:
            return Raw(_fit(payload, codec))
        if stored != "bytes":
            return Raw(transcoded(payload, codec))
    except UNFIT:
        pass
    return Raw(_as_bytes(payload, codec))


def shown_all(payloads: Sequence[bytes], stored: Stored, codec: Codec) -> list[bytes]:
    """The same for many. Those of the reader's codec are only checked, and come back as they are."""
    if stored == codec:
        check = _json_value if codec == "json" else _msgpack_value
        try:
            for payload in payloads:
                check(payload)
            if codec == "json":
                whole = b"".join(payloads)
                if b"\n" in whole or not (whole.isascii() or str(whole, "utf-8")):
                    raise ValueError
            return payloads if type(payloads) is list else list(payloads)
        except MISFITS:
            pass
    return [bytes(shown(payload, stored, codec)) for payload in payloads]


def _fit(payload: bytes, codec: Codec) -> bytes:
    """The value itself, if it really is one: a tag is a claim."""
    if codec == "msgpack":
        _msgpack_value(payload)
        return payload
    _json_value(payload)
    if not payload.isascii():
        str(payload, "utf-8")
    return msgspec.json.format(payload, indent=-1) if b"\n" in payload else payload


def transcoded(payload: bytes, codec: Codec) -> bytes:
    """A value of the other codec in this one."""
    if len(payload) > SMALL_BYTES and _containers(payload, codec) > CONTAINERS_MAX:
        raise ValueError("it holds too many lists and maps to be written in another codec")
    if codec == "json":
        return _encode_json(_msgpack_any(payload))
    if not payload.isascii():
        str(payload, "utf-8")
    return _encode_msgpack(_json_any(payload))


def _containers(payload: bytes, codec: Codec) -> int:
    """An upper bound of the lists and maps in it."""
    if codec == "msgpack":
        return payload.count(b"[") + payload.count(b"{")
    return len(payload) - len(payload.translate(None, _SMALL_CONTAINERS))


def _as_bytes(payload: bytes, codec: Codec) -> bytes:
    value = {"$bytes": b64encode(payload).decode()}
    return _encode_json(value) if codec == "json" else _encode_msgpack(value)


def received(value: Raw, codec: Codec) -> bytes:
    """A value of a request as it is stored."""
    return bytes(value) if value is not NOT_SAID else bytes(NULL[codec])


def stored_as(value: Raw, codec: Codec, wanted: Stored | None) -> bytes:
    """A value of a request in the codec that it asks for."""
    payload = received(value, codec)
    if wanted is None or wanted == codec:
        return payload
    try:
        if wanted != "bytes":
            return transcoded(payload, wanted)
        return _bytes_of(CODECS[codec].decode(payload, type=BytesValue | bytes))
    except UNFIT as error:
        raise InvalidRequest(f"invalid data for codec {wanted}: {_short(error)}") from None


def _bytes_of(value: Any) -> bytes:
    return b64decode(value.bytes_, validate=True) if isinstance(value, BytesValue) else value


def _short(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:200]
