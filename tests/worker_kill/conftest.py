"""One server for all tests here; each has a queue of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker_kill.scene import Scene, Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def scene(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    with Scene(server, tmp_path, name) as scene:
        yield scene
