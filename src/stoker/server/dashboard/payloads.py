"""Payloads and results on a page: decoded where possible, with redacted fields, and editable where that is safe."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.options import Codec

SHOWN_BYTES_MAX = 256 * 1024
"""Of a longer payload only the beginning is shown, as text."""
EDITED_BYTES_MAX = 64 * 1024
TREE_NODES_MAX = 2_000
"""Of a payload with more values only these are shown as a tree."""
REDACTED = "redacted"


class PayloadNode(NamedTuple):
    """A value in a tree. `inner` is None for a plain value."""

    name: str
    text: str
    kind: str
    inner: "list[PayloadNode] | None" = None


class Shown(NamedTuple):
    """A payload as a page shows it."""

    size: int
    codec: str
    is_hidden: bool = False
    tree: PayloadNode | None = None
    raw: str = ""
    is_cut: bool = False
    """Whether a part is not shown."""
    edited: str | None = None
    """The text to edit. None if what is shown would not come back byte for byte."""


def show(data: bytes, codec: Codec, *, hidden: bool, redact: Iterable[str] = ()) -> Shown:
    if hidden:
        return Shown(len(data), codec, is_hidden=True)
    if len(data) > SHOWN_BYTES_MAX:
        if redact:  # a part of a value cannot be searched for fields
            return Shown(len(data), codec, is_hidden=True)
        return Shown(len(data), codec, raw=_text(data[:SHOWN_BYTES_MAX]), is_cut=True)
    names = frozenset(name.lower() for name in redact)
    decoded = decode(data, codec)
    if decoded is None:
        return Shown(len(data), codec, raw=_text(data), edited=_editable_text(data, codec))
    value, is_redacted = _redacted(decoded.value, names)
    budget = [TREE_NODES_MAX]
    tree = _node("", value, budget)
    return Shown(
        len(data),
        codec,
        tree=tree,
        raw=_pretty(value),
        is_cut=budget[0] <= 0,
        edited=None if is_redacted else _editable(data, codec, decoded.value),
    )


class Decoded(NamedTuple):
    value: Any


def decode(data: bytes, codec: Codec) -> Decoded | None:
    """The value; None if it is not of its codec. Plain bytes may be JSON without saying so."""
    try:
        if codec == "msgpack":
            return Decoded(msgspec.msgpack.decode(data))
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return Decoded(value) if codec == "json" or isinstance(value, dict | list) else None


def encoded(text: str, codec: Codec) -> bytes:
    """An edited payload. Raises `InvalidRequest` if it is not of its codec."""
    data = text.encode("utf-8")
    if codec == "bytes":
        return data
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"invalid payload: it is not JSON: {error}") from None
    return data if codec == "json" else msgspec.msgpack.encode(value)


def _editable(data: bytes, codec: Codec, value: Any) -> str | None:
    """What is shown must come back as it was."""
    if len(data) > EDITED_BYTES_MAX:
        return None
    if codec != "msgpack":
        return _editable_text(data, codec)
    try:
        text = msgspec.json.encode(value).decode()
        return text if encoded(text, codec) == data else None
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, InvalidRequest):
        return None


def _editable_text(data: bytes, codec: Codec) -> str | None:
    if len(data) > EDITED_BYTES_MAX or codec == "msgpack" or b"\r" in data or b"\0" in data:
        return None  # a form turns line breaks into its own
    try:
        text = data.decode("utf-8")
        return None if text.startswith("\n") else text  # a form loses the first line break
    except UnicodeDecodeError:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _pretty(value: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return repr(value)


def _redacted(value: Any, names: frozenset[str]) -> tuple[Any, bool]:
    """The value without what these fields hold, and whether there were any."""
    if not names:
        return value, False
    if isinstance(value, dict):
        found, was = dict[Any, Any](), False
        for name, inner in value.items():
            if str(name).lower() in names:
                found[name], was = REDACTED, True
            else:
                found[name], has = _redacted(inner, names)
                was |= has
        return found, was
    if isinstance(value, list):
        pairs = [_redacted(inner, names) for inner in value]
        return [inner for inner, _ in pairs], any(was for _, was in pairs)
    return value, False


def _node(name: str, value: Any, budget: list[int]) -> PayloadNode:
    budget[0] -= 1
    if not isinstance(value, dict | list):
        return PayloadNode(name, _plain(value), type(value).__name__)
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    inner: list[PayloadNode] = []
    for key, item in pairs:
        if budget[0] <= 0:
            break
        inner.append(_node(str(key), item, budget))
    brackets = f"{{{len(value):,}}}" if isinstance(value, dict) else f"[{len(value):,}]"
    return PayloadNode(name, brackets, type(value).__name__, inner)


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return value if isinstance(value, str) else str(value)
