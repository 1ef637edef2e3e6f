"""Two servers in front of a Redis that the tests of a file share, and more of both for tests that end them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.redis.servers import RedisServer, shared
from tests.redis_served.nodes import Node

MakeNode = Callable[..., Node]
MakeServer = Callable[..., RedisServer]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    made: list[RedisServer] = []

    def make(kind: str = "redis", *options: str) -> RedisServer:
        made.append(RedisServer(kind, *options))
        return made[-1]

    yield make
    for server in made:
        server.kill()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    made: list[Node] = []

    def make(server: RedisServer, *words: str, url: str = "", **settings: str) -> Node:
        made.append(Node(tmp_path / f"node{len(made)}", server, *words, url=url, **settings))
        return made[-1]

    yield make
    for node in made:
        node.kill()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    server = shared("redis")
    folder = tmp_path_factory.mktemp("nodes")
    one, two = Node(folder / "one", server), Node(folder / "two", server)
    yield one, two
    one.kill()
    two.kill()
    with server.client() as client:
        client.flushall()
