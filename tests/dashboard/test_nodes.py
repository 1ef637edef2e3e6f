"""The dashboard of a cluster behind one address: a login at one node is a login at all of them, and so is a logout."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker.model.errors import StokerError
from stoker.server.dashboard.sessions import LoginSession, Sessions, new_session
from tests.cluster.nodes import ClusterNode, TestCluster, until
from tests.dashboard.conftest import Tokens
from tests.dashboard.visitor import Listener, Seen, Visitor
from tests.http.support import TIMEOUT_S, HttpServer
from tests.postgres_server import fresh_database, shared

ADDRESS = "queue.example"
"""What the browser has in its address bar: the name of the balancer in front of the nodes."""


def port_of(node: ClusterNode) -> int:
    return int(node.where["http"].rpartition(":")[2])


def has_pages(node: ClusterNode) -> bool:
    """Whether the node reaches the seat with the key of the logins: seats still move when a cluster starts."""
    return BalancedVisitor(Listener(port_of(node))).get("/ui/help").status == 200


@pytest.fixture
def token(tokens: Tokens) -> str:
    return tokens.make("operator")


@pytest.fixture
def nodes(tmp_path: Path, tokens: Tokens, token: str) -> Iterator[list[ClusterNode]]:
    listen = ("--grpc", "off", "--http", "127.0.0.1:0", "--tokens-file", str(tokens.path))
    with fresh_database(shared()) as name:
        cluster = TestCluster(shared().url(name), tmp_path, nodes=2, shards=4, seats=2, listen=listen)
        try:
            for node in cluster.nodes:
                node.begin()
            for node in cluster.nodes:
                node.await_served()
            until(lambda: sorted(map(len, cluster.held().values())) == [1, 1], "a seat for each node", 120)
            until(lambda: all(map(has_pages, cluster.nodes)), "pages at both nodes")
            yield cluster.nodes
        finally:
            cluster.close()


class BalancedVisitor(Visitor):
    """A browser behind a balancer, which forwards each request to the node that the test says.

    While a seat moves, a page says that nothing has happened and to try again (503): this one does.
    """

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Seen:
        ends = time.monotonic() + TIMEOUT_S
        while (seen := super()._ask(method, path, body, headers)).status == 503 and time.monotonic() < ends:
            time.sleep(0.1)
        return seen

    def at(self, node: ClusterNode) -> "BalancedVisitor":
        self.server = Listener(port_of(node))
        return self

    def get(self, path: str, **headers: str) -> Seen:
        return super().get(path, host=ADDRESS, **headers)

    def post(self, path: str, fields: dict[str, str] | None = None, *, csrf: str | None = None, **headers: str) -> Seen:
        return super().post(path, fields, csrf=csrf, host=ADDRESS, origin=f"https://{ADDRESS}", **headers)


def test_a_login_holds_at_every_node(nodes: list[ClusterNode], token: str):
    one, other = nodes
    visitor = BalancedVisitor(Listener(port_of(one)))
    assert visitor.login(token).status == 303
    where = f"http://127.0.0.1:{port_of(one)}"
    with stoker.connect(where, settings=stoker.RemoteSettings(token=token)) as client:
        client.push("mail", b"")
    for node in (other, one, other):
        assert visitor.at(node).get("/ui/").status == 200
    assert visitor.at(other).post("/ui/act/pause", {"queue": "mail"}).status == 303
    assert "mail paused" in visitor.at(one).get("/ui/queues").words
    assert "PostgreSQL, shared with the other nodes" in visitor.get("/ui/server").words
    copied = dict(visitor.cookies)
    assert visitor.at(one).post("/ui/logout").status == 303
    visitor.cookies = copied
    assert [visitor.at(node).get("/ui/").status for node in (other, one)] == [303, 303]


# --- the keys that nodes share -----------------------------------------------------------------------


def test_nodes_that_start_at_once_open_each_others_cookies(server: HttpServer):
    async def race() -> list[LoginSession | None]:
        both = [Sessions(server.server.dispatcher, 60.0) for _ in range(2)]
        sealed = await asyncio.gather(*(sessions.seal(new_session()) for sessions in both))
        later = Sessions(server.server.dispatcher, 60.0)
        sealed.append(await later.seal(new_session()))
        return [await sessions.open(cookie) for sessions in (*both, later) for cookie in sealed]

    assert None not in server.run(race())


def test_without_the_queue_no_node_makes_a_key_of_its_own(server: HttpServer):
    """A private key would seal cookies that no other node opens."""
    sessions = Sessions(server.server.dispatcher, 60.0)
    server.broker.close()
    with pytest.raises(StokerError):
        server.run(sessions.seal(new_session()))
