"""All settings by key: `tcp.tls.cert` is `STOKER_TCP__TLS__CERT` in the environment.

A key is the path from `ServerConfig` to a value. This module only looks at types; it reads no values.
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
"""A key, split at its dots."""


class BadConfig(StokerError):
    """The configuration cannot be used; the message has a line for each problem."""

    code = "bad_config"


class Given(NamedTuple):
    """A value as written by the user, and where."""

    value: Any
    source: str
    is_text: bool = False


def settings_in(kind: type[msgspec.Struct], path: Place) -> dict[str, Any]:
    """The names that a section may have, with their types."""
    found = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: kind for name, kind in found.items() if ".".join((*path, name)) not in NOT_SETTINGS}


def keys_of(kind: type[msgspec.Struct] = ServerConfig, path: Place = ()) -> Iterator[Place]:
    """All settings; a table of named sections has `NAME` in its key."""
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
    """The key in TOML's notation."""
    return ".".join(name if BARE.fullmatch(name) else shown(name) for name in place)


def environment_name(key: str) -> str:
    return PREFIX + key.upper().replace(".", BETWEEN)


def place_of(name: str) -> Place:
    """The key of an environment variable."""
    return tuple(name.removeprefix(PREFIX).lower().split(BETWEEN))


def type_at(place: Place) -> Any:
    """The type of an existing setting."""
    kind: Any = ServerConfig
    for name in place:
        section, table = struct_of(kind), named_structs_of(kind)
        kind = table if section is None else settings_in(section, ())[name]
    return kind


def shown(value: Any) -> str:
    """A value in TOML's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {shown(item)}" for name, item in value.items()) + " }"
    return msgspec.json.encode(value).decode()


def masked(value: Any, kind: Any) -> Any:
    """A value with its secrets masked; structs become their fields."""
    if isinstance(value, msgspec.Struct):
        fields = [(field.name, field.type, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        return {name: masked(item, inner) for name, inner, item in fields if item is not None}
    if isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        return [masked(item, type(item)) for item in value]
    return MASK if value and has_secret(kind) else value


def source_text(place: Place, value: Any, one: Given) -> str:
    """The setting as the user wrote it, for an error; without its value if it may contain a secret."""
    return f"{key_of(place)} = {MASK if has_secret(type_at(place)) else shown(value)} ({one.source})"
