"""The packages that a listener needs beyond Stoker's own, and how to install them."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, NamedTuple

import msgspec

from stoker.server.config import BadConfig, Loaded, ServerConfig
from stoker.server.config.addresses import OFF


class NeededPackages(NamedTuple):
    """What a listener needs."""

    extra: str
    packages: tuple[str, ...]
    """As they are imported."""


LISTENERS: Final[Mapping[str, NeededPackages]] = {
    "http": NeededPackages(
        "server", ("uvicorn", "httptools", "starlette", "websockets", "prometheus_client", "jinja2")
    ),
    "grpc": NeededPackages("grpc", ("grpc", "grpc_health", "grpc_reflection")),
}


def lacking(listener: str) -> str:
    """The first package that a listener needs and that is not installed. Empty if it has all."""
    return next((package for package in LISTENERS[listener].packages if find_spec(package) is None), "")


def without_lacking(loaded: Loaded) -> tuple[ServerConfig, list[str]]:
    """Turn listeners off that cannot run here, with a line about each. Raises if the configuration asks for one."""
    config, lines, problems = loaded.config, [], []
    for name in config.listeners:
        package = lacking(name) if name in LISTENERS else ""
        if not package:
            continue
        how = f"it needs the package {package}; pip install 'stoker[{LISTENERS[name].extra}]'"
        source = loaded.sources.get(f"{name}.listen")
        if source is not None:
            problems.append(f"{name}.listen ({source}): {how}, or do not ask for this listener")
        else:
            section = getattr(config, name)
            config = msgspec.structs.replace(config, **{name: msgspec.structs.replace(section, listen=OFF)})
            lines.append(f"{name:<6} off: {how}")
    if problems:
        raise BadConfig("\n".join(problems))
    return config, lines
