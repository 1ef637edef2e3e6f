"""Tenants from tokens, their quotas, and pages about them, over two servers in front of one Redis."""

import threading
import time
from collections.abc import Iterator

import jwt
import pytest

from stoker.client.sync import Client
from stoker.model.errors import Busy, Forbidden, QuotaExceeded, Unauthenticated
from tests.redis.servers import RedisServer, shared
from tests.redis_served.nodes import TRANSPORTS, Node, until

SECRET = "canary-of-32-bytes-or-a-bit-more-for-HS256"
FEW = ("few-tcp", "few-unix", "few-http", "few-grpc", "few-at-once", "few-dead")
CONFIG = f"""
[[auth.jwt.keys]]
algorithm = "HS256"
key = "{SECRET}"

{"".join(f"[auth.tenants.{name}]{chr(10)}waiting_jobs = 5{chr(10)}" for name in FEW)}
[auth.tenants.narrow]
queues = 2

[auth.tenants.small]
bytes = 1_000

[auth.tenants.slow]
requests_per_second = 1
"""
Nodes = tuple[Node, Node]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two servers that want a token."""
    folder, server = tmp_path_factory.mktemp("guarded"), shared("redis")
    made = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "stoker.toml").write_text(CONFIG)
        made.append(Node(folder / name, server))
    yield made[0], made[1]
    for node in made:
        node.kill()
    with server.client() as client:
        client.flushall()


def token(tenant: str) -> str:
    claims = {"tenant": tenant, "scope": "produce consume read admin", "exp": time.time() + 3_600}
    return jwt.encode(claims, SECRET, "HS256")


def connected(node: Node, tenant: str, transport: str = "tcp") -> Client:
    return node.connect(transport, tenant, token(tenant))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_token_names_the_tenant_in_redis(guarded: Nodes, transport: str):
    one, two = guarded
    names = f"red-{transport}", f"blue-{transport}"
    with connected(one, names[0], transport) as red, connected(two, names[1], transport) as blue:
        mine = red.push("q", b"payload of red").id
        blue.push("q", b"payload of blue")
        assert blue.pull("q", 10).payloads == [b"payload of blue"]
        assert red.get_job(mine).payload == b"payload of red"
        assert blue.get_counts().waiting == 0
        with pytest.raises(Forbidden):
            red.as_tenant(names[1]).get_counts()
    with one.connect(transport, names[0], "an unknown token") as stranger, pytest.raises(Unauthenticated):
        stranger.push("q", b"x")
    assert secrets_in(shared("redis"), names[1], b"payload of red") == []
    assert secrets_in(shared("redis"), names[0], b"payload of red")


def secrets_in(server: RedisServer, tenant: str, payload: bytes) -> list[bytes]:
    """The keys of a tenant that hold a payload."""
    with server.client() as client:
        keys = list(client.scan_iter(f"stoker:{{{tenant}/0}}:p:*"))
        return [key for key in keys if payload in client.hvals(key)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_waiting_jobs_are_counted_in_redis(guarded: Nodes, transport: str):
    """A push is held against what waits at this moment, whichever server it came through."""
    one, two = guarded
    tenant = f"few-{transport}"
    with connected(one, tenant, transport) as here, connected(two, tenant, transport) as there:
        for client in (here, there, here, there, here):
            client.push("q", b"x")
        for client in (here, there):
            with pytest.raises(QuotaExceeded, match=r"waiting_jobs of tenant .*: 5 in use and 1 more asked for"):
                client.push("q", b"x")
        there.pull("q", 2)
        here.push("q", b"x")
        with pytest.raises(QuotaExceeded, match="4 in use and 2 more"):
            there.push_many("q", [b"x", b"x"])
        there.push("q", b"x")


def test_pushes_at_once_through_one_server_exceed_no_quota(guarded: Nodes):
    outcomes: list[str] = []

    def push() -> None:
        with connected(guarded[0], "few-at-once") as client:
            try:
                client.push("q", b"x")
            except QuotaExceeded as error:
                outcomes.append(error.code)
            else:
                outcomes.append("pushed")

    pushing = [threading.Thread(target=push) for _ in range(20)]
    for thread in pushing:
        thread.start()
    for thread in pushing:
        thread.join()
    assert sorted(outcomes) == ["pushed"] * 5 + [QuotaExceeded.code] * 15
    with connected(guarded[1], "few-at-once") as client:
        assert client.get_counts("q").waiting == 5


def test_queues_bytes_and_dead_letters_are_counted_too(guarded: Nodes):
    one, two = guarded
    with connected(one, "narrow") as here, connected(two, "narrow") as there:
        here.push("a", b"x")
        there.push("b", b"x")
        here.push("b", b"x")
        with pytest.raises(QuotaExceeded, match="quota queues"):
            here.push("c", b"x")
    with connected(one, "small") as here, connected(two, "small") as there:
        here.push("q", bytes(600))
        with pytest.raises(QuotaExceeded, match="600 in use and 600 more"):
            there.push("q", bytes(600))
        with pytest.raises(QuotaExceeded, match="quota bytes"):
            there.kv_set("k", bytes(600))
        there.kv_set("k", bytes(100))
    with connected(one, "few-dead") as here:
        job = here.push("dead", b"x").id
        here.fail(job, here.pull("dead").token, "no", retry=False)
        here.push_many("full", [b"x"] * 5)
        with pytest.raises(QuotaExceeded, match="waiting_jobs"):
            here.retry_dead("dead")
        here.obliterate("full")
        assert here.retry_dead("dead").ids == [job]


def test_each_server_counts_requests_by_itself(guarded: Nodes):
    for node in guarded:
        with connected(node, "slow") as client:

            def is_busy(client: Client = client) -> bool:
                try:
                    client.get_counts()
                except Busy:
                    return True
                return False

            until(is_busy)


def test_pages_about_a_tenant(guarded: Nodes):
    one, two = guarded
    headers = {"authorization": f"Bearer {token('paged')}"}
    with connected(one, "paged") as here, connected(two, "paged") as there:
        there.push_many("mail", [b"1", b"2", b"3"])
        here.pull("mail", worker="w7")
    status, queues = two.ask("GET", "/queues", **headers)
    assert (status, [queue["name"] for queue in queues["data"]]) == (200, ["mail"])
    status, workers = one.ask("GET", "/workers", **headers)
    assert (status, [worker["id"] for worker in workers["data"]]) == (200, ["w7"])
    assert one.ask("GET", "/ready") == (200, {"ok": True, "ready": True, "stopping": False})
    assert one.ask("GET", "/health")[0] == 200


def test_numbers_for_prometheus(guarded: Nodes):
    operator = {"authorization": f"Bearer {token('default')}"}
    with connected(guarded[0], "default") as client, connected(guarded[1], "default") as other:
        client.push_many("mail", [b"1", b"2"])
        other.pull("mail", worker="w8")
        texts = []
        for node in guarded:
            status, text = node.ask("GET", "/metrics/prometheus", **operator)
            texts.append(text)
            assert status == 200
            assert 'stoker_queue_jobs{queue="mail",state="active"} 1.0' in text
            assert 'stoker_queue_jobs{queue="mail",state="waiting"} 1.0' in text
            left_out = ("stoker_jobs", "stoker_job_steps", "stoker_turn_commands", "stoker_storage_full")
            assert [name for name in left_out if f"\n{name}" in text] == []
        assert 'stoker_commands_total{command="pull",outcome="ok"}' in texts[1]
        assert "stoker_workers 1.0" in texts[1]
        client.obliterate("mail", force=True)
    status, answer = guarded[0].ask("GET", "/metrics/history", **operator)
    assert (status, answer["code"]) == (501, "unsupported")
