"""Checks whether a command has the shape that its types promise.

Deciders check the most frequent commands themselves, field by field; this module checks all others against their
annotations. If a malformed command gets past a decider's checks and raises, the same comparison finds the wrong field,
so that a caller never sees an internal exception.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stoker.engine.checks import is_list, short
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest

_KNOWN = frozenset(c.ALL)


def check(command: Any) -> None:
    """Refuse a command that is not what it says."""
    kind: type = type(command)
    if kind not in _KNOWN:
        raise InvalidRequest(f"unknown command {kind.__name__}: the commands are in stoker.model.commands")
    for field, hint, kinds, is_exact in fields_of(kind):
        value = getattr(command, field)
        if type(value) not in kinds and (is_exact or not fits(value, hint)):
            raise InvalidRequest(f"invalid {field} {short(value)} in {kind.__name__}: expected {type_in_words(hint)}")


@cache
def fields_of(kind: type) -> list[tuple[str, Any, frozenset[type], bool]]:
    """Every field with its annotation, types with which it surely fits, and whether these are all: mostly they are."""
    return [(field, hint, *sure(hint)) for field, hint in get_type_hints(kind).items()]


def sure(hint: Any) -> tuple[frozenset[type], bool]:
    found = plain(hint)
    if found is not None:
        return found, True
    may_be_none = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    return frozenset((NoneType,)) if may_be_none else frozenset(), False


def fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return type(value) is str and value in inner
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all_fit(value.keys(), inner[0]) and all_fit(value.values(), inner[1])
    if origin is not None and issubclass(origin, Sequence):
        if type(value) is range:
            return inner[0] is int and abs(value.stop - value.start) < 1 << 62
        return is_list(value) and all_fit(value, inner[0])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return isinstance(value, str) and value in [member.value for member in hint]
    return type(value) is hint or (hint is None and value is None)


def all_fit(values: Collection[Any], hint: Any) -> bool:
    """Ten thousand payloads are one look at their types, not ten thousand at the annotation."""
    kinds = plain(hint)
    return set(map(type, values)) <= kinds if kinds is not None else all(fits(one, hint) for one in values)


@cache
def plain(hint: Any) -> frozenset[type] | None:
    """The types that a value may have, if nothing but its type counts."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [plain(one) for one in get_args(hint)]
        return frozenset().union(*(kind for kind in kinds if kind is not None)) if None not in kinds else None
    if get_origin(hint) is None and isinstance(hint, type) and not issubclass(hint, Enum):
        return frozenset((hint,))
    return None


def type_in_words(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(type_in_words(one) for one in get_args(hint))
    if hint is NoneType:
        return "None"
    return getattr(hint, "__name__", str(hint)) if not get_args(hint) else str(hint).replace("collections.abc.", "")
