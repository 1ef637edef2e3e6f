"""A configuration as a table: every setting with its value and its source. Secrets are masked."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from stoker.server.config.keys import Place, key_of, masked, settings_in, shown
from stoker.server.config.loading import Loaded
from stoker.server.config.sources import FLASHQ
from stoker.server.config.tree import ServerConfig
from stoker.server.config.values import named_structs_of

DEFAULT = "default"


class Setting(NamedTuple):
    """One setting with its value, as `--show-config` shows it."""

    key: str
    value: Any
    """Secrets are masked."""
    source: str


def settings_of(loaded: Loaded) -> Iterator[Setting]:
    """Every setting, in the order of the tree."""
    return _below(loaded.config, (), loaded.sources)


def values_of(config: ServerConfig) -> Iterator[Setting]:
    """The same of a running server, which no longer knows the sources."""
    return _below(config, (), {})


def show(loaded: Loaded) -> str:
    """Every setting as a line of TOML, followed by its source; secrets are masked."""
    lines = []
    for one in settings_of(loaded):
        if one.value is None:
            lines.append((f"# {one.key} =", one.source))
        else:
            lines.append((f"{one.key} = {shown(one.value)}", one.source))
    width = min(max(len(text) for text, _ in lines), 60)
    return "\n".join(f"{text:<{width}}  # {source}" for text, source in lines)


def lines_of_flashq(loaded: Loaded) -> list[str]:
    """The line that says which variables of flashQ are used, if any are."""
    found = [one for one in settings_of(loaded) if one.source in FLASHQ]
    used = ", ".join(f"{one.source} ({one.key} = {shown(one.value)})" for one in found)
    return [f"env    used as flashQ does: {used}"] if used else []


def _below(struct: msgspec.Struct, path: Place, sources: Mapping[str, str]) -> Iterator[Setting]:
    for name, kind in settings_in(type(struct), path).items():
        here, value = (*path, name), getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from _below(value, here, sources)
        elif named_structs_of(kind) is not None:
            for inner, each in (value or {}).items():
                yield from _below(each, (*here, inner), sources)
        else:
            key = key_of(here)
            yield Setting(key, masked(value, kind), sources.get(key, DEFAULT))
