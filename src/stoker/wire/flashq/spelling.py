"""How a field of a request may be spelt: one mechanism for all requests instead of a list of aliases for each.

A request that is not spelt exactly as `requests.py` says is taken apart one level deep, its fields are renamed
(camelCase, the second names of `ALSO`), `null`s are left out, and it is put together again.
"""

import re
from functools import cache, lru_cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Raw

from stoker.wire.flashq.requests import ALSO, NULLS

Fields = dict[str, Raw]

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def _parts(kind: type) -> dict[str, tuple[bool, type | None, bool]]:
    """Of each field: whether it is passed on as it is, the struct in it, and whether that is in a list."""
    return {name: _part(hint) for name, hint in _hints(kind).items()}


def _hints(kind: type) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _part(hint: Any) -> tuple[bool, type | None, bool]:
    hints = list(get_args(hint)) if get_origin(hint) not in (None, list, tuple, dict) else [hint]
    for one in hints:
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return False, one, False
        if get_origin(one) in (list, tuple):
            _, inner, _ = _part(get_args(one)[0])
            return False, inner, True
    return Raw in hints, None, False


@lru_cache(maxsize=4_096)
def meant(name: str, kind: type) -> tuple[str, bool, type | None, bool] | None:
    """The field that a name means, and what is in it; None if there is no such field."""
    known = _parts(kind)
    field = name if name in known else _HUMP.sub("_", name).lower()
    for _ in range(3):  # customId -> custom_id -> job_id -> id
        if field in known:
            return field, *known[field]
        if field not in ALSO:
            break
        field = ALSO[field]
    return None


def respelt(fields: Fields, kind: type, codec: Any) -> Fields:
    """The same fields by the names that the request has; what it does not know is left out."""
    found: Fields = {}
    for name, value in fields.items():
        meaning = meant(name, kind)
        if meaning is None:
            continue
        field, passed_on, inner, listed = meaning
        if field in found and field != name:
            continue  # said by its own name already
        if not passed_on and bytes(value) in NULLS:
            continue
        found[field] = value if inner is None else _respelt_inside(value, inner, listed, codec)
    return found


def _respelt_inside(value: Raw, kind: type, listed: bool, codec: Any) -> Raw:
    opening = bytes(value)[:1]
    is_list = opening == b"[" if codec is msgspec.json else 0x90 <= opening[0] <= 0x9F or opening in (b"\xdc", b"\xdd")
    if listed and is_list:
        items: list[Raw] = codec.decode(value, type=list[Raw])
        return Raw(codec.encode([_respelt_inside(item, kind, False, codec) for item in items]))
    is_map = opening == b"{" if codec is msgspec.json else 0x80 <= opening[0] <= 0x8F or opening in (b"\xde", b"\xdf")
    if not is_map:
        return value
    return Raw(codec.encode(respelt(codec.decode(value, type=Fields), kind, codec)))
