"""A command line in a directory of its own, with nothing of Stoker's in its environment."""

import io
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from stoker import Client, connect
from stoker.cli.main import run
from tests.processes.serving import Served, serving


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
        before = logging.root.handlers[:]
        code = run([str(argument) for argument in arguments])
        logging.root.handlers[:] = before  # those of the command write to an output that is gone
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


BROKERS = ("sqlite", "tcp", "http", "grpc")
FREE = "127.0.0.1:0"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of two processes, with all listeners, for all tests of commands. Each test has a tenant of its own."""
    with serving(tmp_path_factory.mktemp("served"), listen=("--http", FREE, "--grpc", FREE)) as started:
        yield started


class Place(NamedTuple):
    """A queue that commands and clients reach by its URL, and a tenant that no other test has."""

    url: str
    tenant: str

    @property
    def flags(self) -> tuple[str, ...]:
        return "--url", self.url, "--tenant", self.tenant

    def connect(self) -> Client:
        return connect(self.url, tenant=self.tenant)


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A data directory, or the server by each of its listeners."""
    tenant = f"{request.param}-{tmp_path.name}"[:200]
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path / 'data'}", tenant)
    started: Served = request.getfixturevalue("server")
    return Place(f"{request.param}://{started.where[request.param].rpartition('://')[2]}", tenant)
