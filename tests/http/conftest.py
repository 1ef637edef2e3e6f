"""A server for each test that asks for one; tests with other settings make their own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.http.support import HttpServer


@pytest.fixture
def serve() -> Iterator[Callable[..., HttpServer]]:
    made: list[HttpServer] = []

    def make(**config: Any) -> HttpServer:
        made.append(HttpServer(**config))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(serve: Callable[..., HttpServer]) -> HttpServer:
    return serve()
