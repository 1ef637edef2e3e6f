"""One event loop for all tests of the folder, a server for each."""

from collections.abc import Iterator
from typing import Protocol

import pytest

from stoker.server.config import ServerConfig
from tests.grpc.support import GRPC_ONLY, LoopThread, Served


class Serve(Protocol):
    def __call__(self, config: ServerConfig = GRPC_ONLY) -> Served: ...


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def serve(loop_thread: LoopThread) -> Iterator[Serve]:
    """For tests that need a configuration of their own."""
    opened: list[Served] = []

    def open_one(config: ServerConfig = GRPC_ONLY) -> Served:
        opened.append(Served(loop_thread, config))
        return opened[-1]

    yield open_one
    for served in opened:
        served.close()


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()
