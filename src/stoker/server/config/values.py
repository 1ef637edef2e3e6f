"""Parses values of settings: numbers with units, environment variables, lists.

A value from TOML already has a type and is parsed only where text stands for a number ("30s"). A value from the
environment or a flag is text, and its meaning depends on the setting. Nothing here knows which settings exist.
"""

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from stoker.model.units import parse_bytes, parse_duration_ms, parse_plain

TRUE = frozenset({"true", "1", "yes", "on"})
FALSE = frozenset({"false", "0", "no", "off"})

Unit = Literal["ms", "s", "bytes", ""]


def unit_of(name: str) -> Unit:
    """The unit in a setting's name: `lease_ms_min`, `drain_s`, `frame_bytes_max`."""
    words = name.split("_")
    if "ms" in words:
        return "ms"
    if "s" in words:
        return "s"
    return "bytes" if "bytes" in words else ""


def parse_number(text: str, unit: Unit, kind: type[int] | type[float]) -> int | float:
    """`30`, `10_000`, `"1h30m"` for a time, `"64MiB"` for bytes."""
    number = parse_plain(text)
    if number is None:
        if unit == "":
            raise ValueError("expected a number")
        number = parse_bytes(text) if unit == "bytes" else parse_duration_ms(text)
        number = number / 1_000 if unit == "s" else number
    if kind is float:
        return float(number)
    if number != int(number):
        raise ValueError(f"expected a whole number{' of ' + unit if unit else ''}")
    return int(number)


# --- types -------------------------------------------------------------------------------------------


def bare(kind: Any) -> Any:
    """A type without its annotations."""
    return bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    kind = bare(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(bare(member) for member in get_args(kind))
    return (kind,)


def struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct of a section's type, also for `Struct | None`."""
    found = [member for member in members(kind) if isinstance(member, type) and issubclass(member, msgspec.Struct)]
    return found[0] if len(found) == 1 else None


def named_structs_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct of a table of named sections: `Mapping[str, Struct]`."""
    for member in members(kind):
        if get_origin(member) in (dict, Mapping) and get_args(member)[0] is str:
            return struct_of(get_args(member)[1])
    return None


def has_secret(kind: Any) -> bool:
    """Whether a type is marked as a secret, or contains one."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return any(has_secret(field.type) for field in msgspec.structs.fields(kind))
    marked = any(isinstance(note, msgspec.Meta) and (note.extra or {}).get("secret") for note in get_args(kind)[1:])
    return marked or any(has_secret(inner) for inner in get_args(kind) if not isinstance(inner, msgspec.Meta))


# --- reading -----------------------------------------------------------------------------------------


def read_value(value: Any, kind: Any, name: str, *, is_text: bool) -> Any:
    """The value of one setting, checked. Raises ValueError with what was expected."""
    if isinstance(value, str):
        value = _read_text(value, kind, name) if is_text else _read_units(value, kind, name)
    if type(value) in (int, float) and value < 0:
        raise ValueError("expected a number that is not negative")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        is_bound = type(value) in members(kind)  # the right type, but out of range
        raise ValueError((not is_bound and expected_by(kind)) or lowered(str(error))) from None


def _number_of(kinds: tuple[Any, ...]) -> type[int] | type[float] | None:
    return float if float in kinds else int if int in kinds else None


def _read_units(text: str, kind: Any, name: str) -> Any:
    number = _number_of(members(kind))
    if number is None or str in members(kind):
        return text
    return parse_number(text, unit_of(name), number)


def _read_text(text: str, kind: Any, name: str) -> Any:
    kinds = members(kind)
    if type(None) in kinds and text.strip().lower() in ("", "none"):
        return None
    if bool in kinds:
        word = text.strip().lower()
        if word not in TRUE | FALSE:
            raise ValueError("expected true or false")
        return word in TRUE
    origins = {get_origin(member) for member in kinds}
    if origins & {list, tuple, frozenset, set}:
        if text.lstrip().startswith("["):
            return _read_json(text)
        return [piece.strip() for piece in text.split(",") if piece.strip()]
    if origins & {dict, Mapping}:
        return _read_json(text)
    return _read_units(text, kind, name)


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected JSON: {error}") from None


def lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def expected_by(kind: Any) -> str:
    """What a setting takes, where that is simple to say."""
    words = [word for member in members(kind) if get_origin(member) is Literal for word in get_args(member)]
    if words:
        return "expected one of " + ", ".join(map(str, words))
    return {str: "expected text", bool: "expected true or false", int: "expected a whole number"}.get(bare(kind), "")
