"""Servers of the tests' own, which they may stop, fill and confuse."""

from collections.abc import Callable, Iterator

import pytest

from tests.redis.servers import RedisServer, shared

MakeServer = Callable[..., RedisServer]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    made: list[RedisServer] = []

    def make(kind: str = "redis", *options: str) -> RedisServer:
        made.append(RedisServer(kind, *options))
        return made[-1]

    yield make
    for server in made:
        server.remove()


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """One for all tests of this process: empty afterwards."""
    found = shared(request.param)
    yield found
    with found.client() as client:
        client.flushall()
