"""A command line in a directory of its own, with nothing of Stoker's in its environment."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from stoker import Client, connect
from stoker.cli.main import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Stoker = Callable[..., Outcome]


@pytest.fixture
def stoker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Stoker:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STOKER_")]:
        monkeypatch.delenv(name)

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        capfd.readouterr()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capfd.readouterr())

    return call


URL = "memory://command-line"
"""A queue in memory that commands find as long as a test has it open."""


@pytest.fixture
def client() -> Iterator[Client]:
    with connect(URL) as made:
        yield made


@pytest.fixture
def at(client: Client, monkeypatch: pytest.MonkeyPatch, stoker: Stoker) -> Stoker:
    """The command line, with that queue as the one that is meant."""
    monkeypatch.setenv("STOKER_URL", URL)
    return stoker
