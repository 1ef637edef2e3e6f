"""Payloads with placeholders: `{slot}`, `{slot_ms}`, `{schedule}` and `{run}` in their texts.

In JSON and MessagePack only texts are searched, in plain bytes everything. Other text in braces stays as it is.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.options import Codec

PLACE = re.compile(r"\{(slot_ms|slot|schedule|run)\}")
PLACE_BYTES = re.compile(PLACE.pattern.encode())


def check(payload: bytes, codec: Codec) -> None:
    """Refuse a payload that cannot be decoded."""
    try:
        if codec == "msgpack":
            msgspec.msgpack.encode(msgspec.msgpack.decode(payload))
        elif codec == "json":
            msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"invalid payload: it is not valid {codec} ({error}), so it cannot be a template; fix it, or set template"
            " to false"
        ) from None


def filled(payload: bytes, codec: Codec, values: Mapping[str, str]) -> bytes:
    if PLACE_BYTES.search(payload) is None:
        return payload
    if codec == "msgpack":
        return msgspec.msgpack.encode(_filled_in(msgspec.msgpack.decode(payload), values))
    written = {name: _inside_json(text) if codec == "json" else text.encode() for name, text in values.items()}
    return PLACE_BYTES.sub(lambda place: written[place[1].decode()], payload)


def _inside_json(text: str) -> bytes:
    """The text as it appears between quotes. Braces outside of texts cannot look like placeholders."""
    return msgspec.json.encode(text)[1:-1]


def _filled_in(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return PLACE.sub(lambda place: values[place[1]], value)
    if isinstance(value, list):
        return [_filled_in(item, values) for item in value]
    if isinstance(value, dict):
        return {key: _filled_in(item, values) for key, item in value.items()}
    return value
