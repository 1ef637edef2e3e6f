"""Which settings there are, by key: `tcp.tls.cert` is `STOKER_TCP__TLS__CERT` in the environment.

A key is the way from `ServerConfig` down to a value. This module only looks at types; it reads no value.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from stoker.model.errors import StokerError
from stoker.server.config.tree import NOT_SETTINGS, ServerConfig
from stoker.server.config.values import has_secret, named_structs_of, struct_of

PREFIX = "STOKER_"
BETWEEN = "__"
MASK = "********"

BARE = re.compile(r"[A-Za-z0-9_-]+")

Place = tuple[str, ...]
"""A key, taken apart."""


class BadConfig(StokerError):
    """The configuration cannot be used; the message has a line for each problem."""

    code = "bad_config"


class Given(NamedTuple):
    """A value as somebody wrote it, and where."""

    value: Any
    source: str
    is_text: bool = False


def settings_in(kind: type[msgspec.Struct], path: Place) -> dict[str, Any]:
    """The names that may stand in a section, with their types."""
    found = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: kind for name, kind in found.items() if ".".join((*path, name)) not in NOT_SETTINGS}


def keys_of(kind: type[msgspec.Struct] = ServerConfig, path: Place = ()) -> Iterator[Place]:
    """Every setting there is; a table of named sections with `NAME` in it."""
    for name, inner in settings_in(kind, path).items():
        here, section, table = (*path, name), struct_of(inner), named_structs_of(inner)
        if section is not None:
            yield from keys_of(section, here)
        elif table is not None:
            yield from keys_of(table, (*here, "NAME"))
        else:
            yield here


KEYS = frozenset(keys_of())


def key_of(place: Place) -> str:
    """As TOML writes it."""
    return ".".join(name if BARE.fullmatch(name) else shown(name) for name in place)


def environment_name(key: str) -> str:
    return PREFIX + key.upper().replace(".", BETWEEN)


def place_of(name: str) -> Place:
    """What a variable of the environment is about."""
    return tuple(name.removeprefix(PREFIX).lower().split(BETWEEN))


def type_at(place: Place) -> Any:
    """The type of a setting that exists."""
    kind: Any = ServerConfig
    for name in place:
        section, table = struct_of(kind), named_structs_of(kind)
        kind = table if section is None else settings_in(section, ())[name]
    return kind


def shown(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {shown(item)}" for name, item in value.items()) + " }"
    return msgspec.json.encode(value).decode()


def masked(value: Any, kind: Any) -> Any:
    """A value without its secrets, structs as what they hold."""
    if isinstance(value, msgspec.Struct):
        fields = [(field.name, field.type, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        return {name: masked(item, inner) for name, inner, item in fields if item is not None}
    if isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        return [masked(item, type(item)) for item in value]
    return MASK if value and has_secret(kind) else value


def said(place: Place, value: Any, one: Given) -> str:
    """What somebody wrote, for an error: without its value, if there may be a secret in it."""
    return f"{key_of(place)} = {MASK if has_secret(type_at(place)) else shown(value)} ({one.source})"
