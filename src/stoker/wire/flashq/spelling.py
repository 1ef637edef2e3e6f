"""How a field of a request may be spelt: one mechanism for all requests instead of a list of aliases for each.

A request that is not spelt exactly as its type says is taken apart one level deep, its fields are renamed
(camelCase, the second names of `ALSO`), `null`s are left out, and it is put together again.
"""

import re
from functools import cache, lru_cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Raw

from stoker.model.hints import did_you_mean
from stoker.wire import counting
from stoker.wire.flashq.requests import ALSO, NULLS
from stoker.wire.unknown_fields import cut

Fields = dict[str, Raw]
ITEMS_MAX = 10_000
"""The longest list whose items are renamed: each takes some microseconds, and all other clients wait meanwhile."""
SMALL_BYTES = 64 * 1024
"""A request up to this size is parsed without counting its items first."""
WARNINGS_MAX = 10
"""The most warnings for one request."""
NAME_CHARS_MAX = 64
"""No field has a longer name, and a cache of names must not become one of payloads."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _snake(name: str) -> str:
    return _HUMP.sub("_", name).lower()


class TooMany(Exception):
    """A list has more items than a client may send."""


@cache
def _parts(kind: type) -> dict[str, tuple[bool, type | None, bool]]:
    """Of each field: whether it is passed on as it is, the struct in it, and whether that is in a list."""
    return {name: _part(hint) for name, hint in _hints(kind).items()}


def holds_many(kind: type) -> bool:
    """Whether a field is a list of values that have fields of their own."""
    return any(inner is not None and is_list for _, inner, is_list in _parts(kind).values())


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


def meant(name: str, kind: type) -> tuple[str, bool, type | None, bool] | None:
    """The field that a name means, and what is in it; None if there is no such field."""
    return _meant(name, kind) if len(name) <= NAME_CHARS_MAX else None


@lru_cache(maxsize=4_096)
def _meant(name: str, kind: type) -> tuple[str, bool, type | None, bool] | None:
    known = _parts(kind)
    field = name if name in known else _snake(name)
    for _ in range(3):  # customId -> custom_id -> job_id -> id
        if field in known:
            return field, *known[field]
        if field not in ALSO:
            break
        field = ALSO[field]
    return None


class UnknownField:
    """Fields that no request of this kind has: they are left out with a warning, or refused."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse = refuse
        self.warnings: list[str] = []

    def meet(self, name: str, kind: type, place: str) -> None:
        where = f" in {place}" if place else ""
        text = f"unknown field {cut(name)!r}{where}{did_you_mean(_snake(name), names_of(kind))}"
        if self.refuse:
            raise ValueError(text)
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(f"ignored {text}")


@cache
def names_of(kind: type) -> tuple[str, ...]:
    """Every name that a field of the request may have, but for camelCase."""
    return tuple(sorted({*_parts(kind), *(name for name in ALSO if _meant(name, kind) is not None)}))


def respelt(fields: Fields, kind: type, codec: Any, unknown: UnknownField, place: str = "") -> Fields:
    """The same fields by the names that the request has; what it does not know is left out or refused."""
    found: Fields = {}
    for name, value in fields.items():
        meaning = meant(name, kind)
        if meaning is None:
            unknown.meet(name, kind, place)
            continue
        field, passed_on, inner, listed = meaning
        if field in found and field != name:
            continue  # said by its own name already
        if not passed_on and bytes(value) in NULLS:
            continue
        if inner is not None:
            inside = f"{place}.{name}" if place else name
            value = _respelt_inside(value, inner, listed, codec, unknown, inside)
        found[field] = value
    return found


def fields_of(value: Any, kind: type, codec: Any) -> Fields:
    """A map taken apart. A large one must be large because of the fields that it may have, not of others."""
    if len(value if type(value) is bytes else bytes(value)) > SMALL_BYTES:
        spelt = _spelt(kind, codec)(value)
        said = sum(len(bytes(getattr(spelt, name))) for name in spelt.__struct_fields__)
        if len(bytes(value)) - said > SMALL_BYTES:
            raise ValueError(f"more than {SMALL_BYTES} bytes are in fields that this command does not have")
    fields: Fields = codec.decode(value, type=Fields)
    return fields


@cache
def _spelt(kind: type, codec: Any) -> Any:
    """A decoder that knows the usual spellings of the fields, and passes over all others."""
    names = {*names_of(kind), *map(_camel, names_of(kind))}
    return codec.Decoder(msgspec.defstruct("Spelt", [(name, Raw, Raw(b"")) for name in sorted(names)])).decode


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def items_of(value: Raw, codec: Any, most: int = ITEMS_MAX) -> list[Raw]:
    """A list taken apart, unless it has too many items to look at each."""
    if len(bytes(value)) > SMALL_BYTES:
        name = "json" if codec is msgspec.json else "msgpack"
        verdict = counting.judge(value, name, most + ITEMS_MAX * 2, as_list=True)
        if verdict == "many":
            raise TooMany
        if verdict == "odd":
            raise ValueError("a long list has an item that is neither a map nor a number")
    items: list[Raw] = codec.decode(value, type=list[Raw])
    if len(items) > most:
        raise TooMany
    return items


def _respelt_inside(value: Raw, kind: type, listed: bool, codec: Any, unknown: UnknownField, place: str) -> Raw:
    opening = bytes(value)[:1]
    is_list = opening == b"[" if codec is msgspec.json else 0x90 <= opening[0] <= 0x9F or opening in (b"\xdc", b"\xdd")
    if listed and is_list:
        items = items_of(value, codec)
        parts = enumerate(items)
        return Raw(
            codec.encode([_respelt_inside(item, kind, False, codec, unknown, f"{place}[{n}]") for n, item in parts])
        )
    is_map = opening == b"{" if codec is msgspec.json else 0x80 <= opening[0] <= 0x8F or opening in (b"\xde", b"\xdf")
    if not is_map:
        return value
    return Raw(codec.encode(respelt(fields_of(value, kind, codec), kind, codec, unknown, place)))
