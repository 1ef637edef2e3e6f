"""Reads flags, environment and files into one checked `ServerConfig`, with the source of every value.

Flags win over `STOKER_*`, those over the configuration file, that over `[tool.stoker]` in pyproject.toml, that over
variables of flashQ, and those over the defaults. Nothing is guessed: unknown keys and bad values are refused, all at
once, each with its source. `tree.py` alone defines the settings.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.hints import nearest
from stoker.server.config.keys import (
    KEYS,
    PREFIX,
    BadConfig,
    Given,
    Place,
    environment_name,
    key_of,
    place_of,
    settings_in,
    source_text,
)
from stoker.server.config.sources import (
    FILE,
    PROJECT,
    from_environment,
    from_file,
    from_flags,
    from_flashq,
    from_project,
)
from stoker.server.config.tree import ServerConfig
from stoker.server.config.values import named_structs_of, read_value, struct_of


class Loaded(NamedTuple):
    """A configuration, and the source of each value that is not a default, by key."""

    config: ServerConfig
    sources: Mapping[str, str]
    again: Callable[[], "Loaded"]
    """Load again from the current files. Raises `BadConfig` like `load`."""


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: str | Path = ".",
) -> Loaded:
    """Read all sources. `flags` are by key (`tcp.listen` or `tcp`); a flag that is None was not given.

    `file` (or STOKER_CONFIG) is read instead of `stoker.toml` in `directory`, and must exist.
    """
    environ = os.environ if environ is None else environ
    given: dict[Place, Given] = {}
    problems: list[str] = []
    named = file or environ.get("STOKER_CONFIG") or None
    for raw, one in (
        *from_flashq(environ, problems),
        *from_project(Path(directory) / PROJECT),
        *from_file(Path(named) if named else Path(directory) / FILE, bool(named)),
        *from_environment(environ, problems),
        *from_flags(flags or {}),
    ):
        _flatten(ServerConfig, raw, (), one, given, problems)
    config = _build(ServerConfig, ServerConfig(), (), given, problems)
    sources = {key_of(path): one.source for path, one in given.items()}
    if not problems:
        problems += check(config, sources)
    if problems:
        raise BadConfig("\n".join(problems))
    # Not a partial: printing that would show the environment with its secrets.
    return Loaded(config, sources, lambda: load(flags, file=file, environ=environ, directory=directory))


def check(config: ServerConfig, sources: Mapping[str, str] | None = None) -> list[str]:
    """Problems between settings that are each fine by themselves."""
    problems = []
    if config.shards is not None and config.shards & (config.shards - 1):
        problems.append(f"shards = {config.shards}: expected a power of two from 1 to 64")
    if config.shards is not None and config.processes > config.shards:
        problems.append(
            f"processes = {config.processes}: there are only {config.shards} shards to share among them;"
            " set shards to at least as many"
        )
    problems += check_cluster(config)
    if config.data is None and config.processes > 1:
        problems.append(f"processes = {config.processes}: they need a data directory to share; set data (--data DIR)")
    has_place = config.data is not None or config.cluster.url
    if not has_place and config.durability != "memory" and sources is not None and "durability" in sources:
        problems.append(
            f'durability = "{config.durability}" ({sources["durability"]}): without a data directory nothing is stored;'
            " set data (--data DIR)"
        )
    if config.broker is not None:
        problems = check_broker(config, sources or {"broker": "given"})
    return problems + refuse_open_door(config)


OWN_STORE = ("data", "cluster", "durability", "shards", "processes", "memory_bytes_max", "events_bytes_max", "journal")
"""Settings of a queue that the server keeps by itself."""


def check_broker(config: ServerConfig, sources: Mapping[str, str]) -> list[str]:
    """A server in front of a queue in Redis keeps nothing."""
    from stoker.brokers.redis.served import checked_url

    assert config.broker is not None
    problems = []
    try:
        checked_url(config.broker)
    except InvalidRequest as error:
        problems.append(f"broker ({sources['broker']}): {error.message}")
    given = [key for key in sources if key.partition(".")[0] in OWN_STORE]
    return problems + [
        f"{key} ({sources[key]}): the queue is in Redis (broker, {sources['broker']}), so the server keeps no data;"
        f" {ADVICE.get(key, REMOVE)}"
        for key in given
    ]


REMOVE = "take one of the two away"
ADVICE = {
    "processes": "start more servers with the same broker instead of processes",
    "durability": "Redis decides: see appendonly and appendfsync in its configuration",
}


def check_cluster(config: ServerConfig) -> list[str]:
    """What a node of a cluster cannot have."""
    if not config.cluster.url:
        return []
    problems = []
    if config.data is not None:
        problems.append("cluster.url and data: the queue is in PostgreSQL or in a directory; leave one out")
    if config.processes > 1:
        problems.append(
            f"processes = {config.processes}: a node has a process for each seat that it holds; leave it out"
        )
    if config.durability == "memory":
        problems.append('durability = "memory": a cluster answers when PostgreSQL has it; leave it out, or say "fsync"')
    address = config.cluster.address
    if not (address.is_loopback or config.cluster.tls.is_on or config.insecure):
        problems.append(
            f'cluster.listen = "{address}": other machines could read what nodes say to each other; set cluster.tls'
            " (cert and key), or set insecure = true (--insecure) if you trust every machine in between"
        )
    return problems


def refuse_open_door(config: ServerConfig) -> list[str]:
    """Without authentication the server may listen only on loopback."""
    auth = config.auth
    if config.insecure or auth.tokens or auth.tokens_file or auth.jwt:
        return []
    return [
        f'{name}.listen = "{address}": other machines could reach this address, and no authentication is configured;'
        " make a token (stoker token create) and set auth.tokens_file, or configure auth.jwt; or listen on"
        f" 127.0.0.1:{address.port}; or set insecure = true (--insecure) if you trust every machine that can connect"
        for name, address in config.listeners.items()
        if not address.is_loopback
    ]


# --- one flat table of what was given ------------------------------------------------------------------


def _flatten(
    kind: type[msgspec.Struct], raw: dict[str, Any], path: Place, one: Given, into: dict[Place, Given], bad: list[str]
) -> None:
    known = settings_in(kind, path)
    for name, value in raw.items():
        here = (*path, name)
        if name not in known:
            bad.append(_unknown(here, known, one))
            continue
        section, table = struct_of(known[name]), named_structs_of(known[name])
        if section is None and table is None:
            into[here] = one._replace(value=value)
            continue
        if one.is_text and isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = msgspec.json.decode(value)
            except msgspec.DecodeError as error:
                bad.append(f"{source_text(here, value, one)}: expected JSON: {error}")
                continue
        if not isinstance(value, dict):
            short = getattr(section, "shorthand", None)
            if short is not None:
                into[(*here, short)] = one._replace(value=value)
            else:
                bad.append(f"{source_text(here, value, one)}: expected a table with keys of its own")
        elif section is not None:
            _flatten(section, value, here, one, into, bad)
        elif table is not None:
            for inner, values in value.items():
                if isinstance(values, dict):
                    _flatten(table, values, (*here, inner), one, into, bad)
                else:
                    bad.append(f"{source_text((*here, inner), values, one)}: expected a table with keys of its own")


def _unknown(path: Place, known: Iterable[str], one: Given) -> str:
    if one.is_text and one.source.startswith(PREFIX):
        whole = place_of(one.source)
        hint = _nearest(whole, known if whole == path else ())
        what, hint = one.source, hint and environment_name(hint)
    else:
        what, hint = f"{key_of(path)} ({one.source})", _nearest(path, known)
    return f"{what}: there is no such setting" + (f"; did you mean {hint}?" if hint else "")


def _nearest(path: Place, known: Iterable[str]) -> str:
    """The nearest name of this section, or of another one."""
    near = nearest(path[-1], known)
    if near:
        return ".".join((*path[:-1], near))
    keys = sorted(".".join(key) for key in KEYS)
    same = [key for key in keys if key.rpartition(".")[2] == path[-1]]
    return same[0] if same else nearest(".".join(path), keys)


# --- building ------------------------------------------------------------------------------------------


def _build(kind: type[Any], start: Any, path: Place, given: Mapping[Place, Given], bad: list[str]) -> Any:
    """`start` with the values given below `path`; None means that there was nothing, and `kind` is made anew."""
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        here = (*path, field.name)
        section, table = struct_of(field.type), named_structs_of(field.type)
        inner = [other for other in given if other[: len(here)] == here]
        if not inner:
            if start is None and field.required:
                bad.append(f"{key_of(here)} is missing: the other settings of {key_of(path)} need it")
            continue
        if section is not None:
            changes[field.name] = _build(section, _default(start, field), here, given, bad)
        elif table is not None:
            names = dict.fromkeys(other[len(here)] for other in inner)
            changes[field.name] = {name: _build(table, None, (*here, name), given, bad) for name in names}
        else:
            one = given[here]
            try:
                changes[field.name] = read_value(one.value, field.type, field.name, is_text=one.is_text)
            except ValueError as error:
                bad.append(f"{source_text(here, one.value, one)}: {error}")
    if bad:
        return start  # it is refused anyway; a half-made struct would only add noise
    try:
        return kind(**changes) if start is None else msgspec.structs.replace(start, **changes)
    except (InvalidRequest, ValueError) as error:
        culprits = [(place, given[place]) for name in changes if (place := (*path, name)) in given]
        bad.append(f"{', '.join(source_text(place, one.value, one) for place, one in culprits)}: {error}")
        return start


def _default(start: Any, field: msgspec.structs.FieldInfo) -> Any:
    if start is not None:
        return getattr(start, field.name)
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default
