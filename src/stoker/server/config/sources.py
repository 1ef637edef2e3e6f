"""The sources of settings: pyproject.toml, a configuration file, the environment, flags.

Each source gives trees of values as written, with the name of the source. `loading.py` checks whether a setting exists,
and what a value means.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stoker.server.config.keys import KEYS, PREFIX, BadConfig, Given, Place, environment_name, place_of, type_at
from stoker.server.config.values import FALSE, TRUE, has_secret

FILE = "stoker.toml"
PROJECT = "pyproject.toml"

FLAGS = {"auth.tokens_file": "--tokens-file"}
"""Flags of `stoker serve` that are not named like their setting."""

OTHERS = frozenset({"STOKER_URL", "STOKER_TOKEN", "STOKER_TENANT", "STOKER_CONFIG"})
"""Variables of clients and the command line."""
ELSEWHERE = re.compile(
    "STOKER_(SERVICE_(HOST|PORT).*|PORT|PORT_[0-9]+_.*"  # Kubernetes sets these beside a service called `stoker`
    "|BROKERS|SOAK|SEED|TEST_HOME|BENCH_.*|FAULTS_.*)"  # set by tests and benchmarks, which start servers
)

FLASHQ = {
    "PORT": "tcp.listen",
    "TCP_PORT": "tcp.listen",
    "HTTP_PORT": "http.listen",
    "GRPC_PORT": "grpc.listen",
    "UNIX_SOCKET": "unix.listen",
    "SYNC_PERSISTENCE": "durability",
}
"""Variables of flashQ, and the settings that they mean here. Later ones win."""
FLASHQ_SOCKET = "/tmp/flashq.sock"
"""The default path of flashQ's socket."""

Raw = tuple[dict[str, Any], Given]
"""A tree of values, and how each was given."""


def from_project(path: Path) -> Iterable[Raw]:
    if path.is_file():
        found = _read_toml(path).get("tool", {}).get("stoker", {})
        yield found, Given(None, f"{PROJECT} [tool.stoker]")


def from_file(path: Path, must_exist: bool) -> Iterable[Raw]:
    if must_exist or path.is_file():
        yield _read_toml(path), Given(None, path.name if not must_exist else str(path))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: not TOML: {error}") from None


def from_environment(environ: Mapping[str, str], problems: list[str]) -> Iterable[Raw]:
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHERS or ELSEWHERE.fullmatch(name):
            continue
        path = place_of(name)
        value = environ[name]
        if path not in KEYS and path[-1].endswith("_file"):
            behind = (*path[:-1], path[-1].removesuffix("_file"))
            if behind in KEYS and has_secret(type_at(behind)):
                path, value = behind, _read_secret(name, value, problems)
        yield _nested(path, value), Given(None, name, is_text=True)


def from_flashq(environ: Mapping[str, str], problems: list[str]) -> Iterable[Raw]:
    """The settings of flashQ's own variables."""
    for name, key in FLASHQ.items():
        value = environ.get(name, "")
        if not value or value.lower() in FALSE:
            continue
        if name == "SYNC_PERSISTENCE":
            value = "fsync"
        elif name == "UNIX_SOCKET":
            value = FLASHQ_SOCKET if value.lower() in TRUE else value
        elif value.isdecimal():
            value = f"127.0.0.1:{value}"
        else:
            problems.append(f"{name} = {value!r}: expected a port, as flashQ does; or set {environment_name(key)}")
            continue
        yield _nested(tuple(key.split(".")), value), Given(None, name, is_text=True)


def _read_secret(name: str, path: str, problems: list[str]) -> str:
    """`STOKER_..._FILE` names a file with a secret, as containers provide them."""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{name} = {path!r}: cannot be read: {error}")
        return ""


def from_flags(flags: Mapping[str, Any]) -> Iterable[Raw]:
    for key, value in flags.items():
        if value is not None:
            flag = FLAGS.get(key) or (f"--set {key}" if "." in key else f"--{key}")
            yield _nested(tuple(key.split(".")), value), Given(None, flag, is_text=isinstance(value, str))


def _nested(path: Place, value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[no-any-return]  # a path has at least one name
