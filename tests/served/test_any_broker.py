"""A broker that has nothing but `execute_async` is served over every transport, and says what it does not have."""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

import stoker
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import LostLease, NotFound, ShuttingDown, Unsupported
from stoker.model.states import State
from stoker.proto import stoker_pb2 as pb
from stoker.proto import stoker_pb2_grpc
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.config import ServerConfig
from stoker.server.processes.links import ProcessSeat
from stoker.server.server import Server
from stoker.worker.worker import Worker
from tests.grpc.support import LoopThread, code_of, failure
from tests.served.any_server import TRANSPORTS, AnyServer
from tests.served.toy_broker import ToyBroker
from tests.worker.running import Beside, handler, push_many

WAIT_MS = 60_000
"""Of a pull that ends long before: by a job, or because its client leaves."""
RESET = struct.pack("ii", 1, 0)
"""Close a connection at once, as when a process dies with bytes unread."""


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


class Toy:
    """A server over a toy broker, and a tenant for each test."""

    def __init__(self, server: AnyServer, tenant: str) -> None:
        self.server, self.tenant = server, tenant
        broker = server.server.broker
        assert isinstance(broker, ToyBroker)
        self.broker: ToyBroker = broker

    def connect(self, transport: str) -> Client:
        return stoker.connect(self.server.urls[transport], tenant=self.tenant)


@pytest.fixture(scope="module")
def server(loop: LoopThread, folder: Path) -> Iterator[AnyServer]:
    server = AnyServer(loop, folder, ToyBroker)
    yield server
    server.close()


@pytest.fixture
def toy(server: AnyServer, request: pytest.FixtureRequest) -> Toy:
    return Toy(server, f"tenant{abs(hash(request.node.name))}")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(toy: Toy, transport: str) -> Iterator[Client]:
    with toy.connect(transport) as client:
        yield client


# --- what it has -------------------------------------------------------------------------------------


def test_jobs_go_in_and_out(queue: Client):
    first = queue.push("mail", b"one").id
    ids = queue.push_many("mail", [b"two", b"three"]).ids
    delivery = queue.pull("mail", count=2, worker="w")
    assert [(job.id, job.payload) for job in delivery] == [(first, b"one"), (ids[0], b"two")]
    queue.ack(first, delivery.token, b"done")
    queue.fail(ids[0], delivery.token, "no")
    assert queue.get_job(first).result == b"done"
    assert queue.get_job(ids[0]).error == "no"
    assert queue.list_queues() == ["mail"]
    assert queue.get_counts("mail").waiting == 2
    assert queue.get_counts().completed == 1


def test_its_own_refusals_arrive_as_they_are(queue: Client):
    with pytest.raises(NotFound):
        queue.get_job(64 * 1_000_000)
    job = queue.push("mail", b"x").id
    delivery = queue.pull("mail")
    with pytest.raises(LostLease):
        queue.ack(job, delivery.token + 1)


def test_a_pull_waits_for_a_job(toy: Toy, queue: Client, transport: str):
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.extend(queue.pull("mail", wait_ms=WAIT_MS).payloads))
    waiting.start()
    toy.server.until(lambda: toy.broker.waiting > 0)
    with toy.connect(transport) as other:
        other.push("mail", b"at last")
    waiting.join(WAIT_MS / 1000)
    assert found == [b"at last"]


def test_a_worker_does_its_jobs(toy: Toy, queue: Client, transport: str, caplog: pytest.LogCaptureFixture):
    """It cannot register, for want of a key-value store, and works all the same."""
    done, all_done = set[int](), threading.Event()

    async def note(number: int) -> int:
        done.add(number)
        if len(done) == 20:
            all_done.set()
        return number

    ids = push_many(queue, "note", range(20))
    worker = Worker(toy.server.urls[transport], [handler(note, name="note")], tenant=toy.tenant)
    with caplog.at_level(logging.ERROR), Beside(worker) as beside:
        assert all_done.wait(WAIT_MS / 1000)
    assert beside.error is None
    assert beside.is_finished
    assert [queue.get_job(job).result for job in ids] == [str(number).encode() for number in range(20)]
    assert queue.get_counts().completed == 20
    assert [record.getMessage() for record in caplog.records] == []


# --- clients that leave ------------------------------------------------------------------------------


async def cancelled(client: AsyncClient, pull: "asyncio.Task[Any]") -> None:
    pull.cancel()
    await asyncio.gather(pull, return_exceptions=True)
    await client.close()


async def closed(client: AsyncClient, pull: "asyncio.Task[Any]") -> None:
    await client.close()
    await asyncio.gather(pull, return_exceptions=True)


@pytest.mark.parametrize("leave", [cancelled, closed])
def test_a_waiting_pull_ends_with_its_client(toy: Toy, transport: str, leave: Callable[..., Any]):
    """Without that the next job would go to a client that is not there."""

    async def come_and_go() -> None:
        client = await stoker.aio.connect(toy.server.urls[transport], tenant=toy.tenant)
        pull = asyncio.create_task(client.pull("mail", wait_ms=WAIT_MS))
        await asyncio.to_thread(toy.server.until, lambda: toy.broker.waiting == 1)
        await leave(client, pull)

    asyncio.run(come_and_go())
    toy.server.until(lambda: toy.broker.waiting == 0)
    with toy.connect(transport) as other:
        job = other.push("mail", b"x").id
        assert [(found.id, found.attempt) for found in other.pull("mail")] == [(job, 1)]


class SlowToy(ToyBroker):
    """It takes the jobs, and then is a while about it, as a network may be."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.taken = 0

    async def execute_async(self, tenant: str, command: c.Command[Any]) -> Any:
        reply = await super().execute_async(tenant, command)
        if type(command) is c.Pull:
            self.taken += 1
            await self.may_answer.wait()
        return reply


@pytest.mark.parametrize(
    ("name", "request_bytes"),
    [
        ("tcp", b'{"cmd":"pull","reqId":1,"body":{"queues":["mail"]}}\n'),
        ("http", b"POST /queues/mail/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"),
    ],
    ids=["tcp", "http"],
)
def test_jobs_go_back_when_the_client_left_before_the_answer_came(
    loop: LoopThread, tmp_path: Path, name: str, request_bytes: bytes
):
    server = AnyServer(loop, tmp_path, SlowToy)
    broker = server.server.broker
    assert isinstance(broker, SlowToy)
    connections = server.server.service.meter.connections
    try:
        with stoker.connect(server.urls["unix"]) as client:
            job = client.push("mail", b"x").id
            host, port = server.urls[name].removeprefix(f"{name}://").split(":")
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(request_bytes)
                server.until(lambda: broker.taken == 1)
                assert connections[name] == 1
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            server.until(lambda: connections[name] == 0)
            assert broker.jobs[job].view.state is State.ACTIVE
            server.run(set_event(broker.may_answer))
            server.until(lambda: broker.jobs[job].view.state is State.WAITING)
            assert client.get_job(job).attempts == 0
    finally:
        server.close()


async def set_event(event: asyncio.Event) -> None:
    event.set()


def test_a_server_that_stops_tells_those_who_wait(loop: LoopThread, tmp_path: Path, transport: str):
    server = AnyServer(loop, tmp_path, ToyBroker)
    broker = server.server.broker
    assert isinstance(broker, ToyBroker)
    told: list[Any] = []
    settings = stoker.RemoteSettings(retry_s=0)

    def wait() -> None:
        with stoker.connect(server.urls[transport], settings=settings) as client:
            try:
                told.append(client.pull("mail", wait_ms=WAIT_MS))
            except stoker.StokerError as error:
                told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    server.until(lambda: broker.waiting == 1)
    server.run(server.server.stop())
    waiting.join(WAIT_MS / 1000)
    assert [type(one) for one in told] == [ShuttingDown]
    assert broker.waiting == 0


# --- what it has not ---------------------------------------------------------------------------------


def test_a_command_that_it_does_not_have_is_refused_as_unsupported(queue: Client):
    with pytest.raises(Unsupported) as refusal:
        queue.pause("mail")
    assert refusal.value.code == "unsupported"
    assert not refusal.value.retryable
    assert "Pause: " in refusal.value.message
    assert "'toy'" in refusal.value.message
    assert "sqlite:///" in refusal.value.message
    for ask in (queue.list_schedules, lambda: queue.kv_set("k", b"v"), lambda: queue.push("mail", b"", priority=1)):
        with pytest.raises(Unsupported):
            ask()
    with pytest.raises(Unsupported, match=r"^Pull with claim: the broker 'toy' does not support it"):
        queue.pull("mail", claim="a")


def test_the_status_of_http_and_of_grpc_says_so(toy: Toy):
    server = toy.server
    status, answer = server.ask("POST", "/queues/mail/pause")
    assert (status, answer["code"]) == (501, "unsupported")
    with grpc.insecure_channel(server.urls["grpc"].removeprefix("grpc://")) as channel:
        queue = stoker_pb2_grpc.QueueStub(channel)
        error = failure(lambda: queue.Extend(pb.ExtendRequest(ids=pb.Ids(list=[64]), tokens=[1], lease_ms=1_000)))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert code_of(error) == "unsupported"
        queue.Push(pb.PushRequest(queue="typed", payload=b"x"))
        assert queue.Pull(pb.PullRequest(queues=["typed"])).job.payload == b"x"


def test_flashqs_dialect_says_so_too(toy: Toy):
    status, answer = toy.server.ask("POST", "/api/command", {"cmd": "PAUSE", "queue": "mail"})
    assert (status, answer["ok"], answer["code"]) == (501, False, "unsupported")
    status, answer = toy.server.ask("POST", "/api/command", {"cmd": "PUSH", "queue": "flash", "data": 1})
    assert (status, answer["ok"]) == (200, True)


@pytest.mark.parametrize("cmd", ["subscribe", "list_webhooks", "read_events"])
def test_events_are_refused_where_there_are_none(toy: Toy, cmd: str):
    """Over a raw connection, as clients of other languages ask."""
    host, port = toy.server.urls["tcp"].removeprefix("tcp://").split(":")
    body = {"shard": 0, "after": 0} if cmd == "read_events" else {}
    with socket.create_connection((host, int(port)), WAIT_MS / 1000) as peer:
        peer.sendall(msgspec.json.encode({"cmd": cmd, "reqId": 7, "body": body}) + b"\n")
        answer = msgspec.json.decode(peer.makefile("rb").readline())
    assert (answer["ok"], answer["code"], answer["reqId"]) == (False, "unsupported", 7)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/events"), ("GET", "/events/mail"), ("GET", "/events/job/64"), ("GET", "/events?after=1.2"),
     ("GET", "/metrics/history"), ("GET", "/webhooks"), ("DELETE", "/webhooks/x")],
)  # fmt: skip
def test_pages_that_need_events_or_counts_are_refused(toy: Toy, method: str, path: str):
    status, answer = toy.server.ask(method, path)
    assert (status, answer["code"]) == (501, "unsupported")


def test_a_websocket_is_refused_before_it_opens(toy: Toy):
    head = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    status, _ = toy.server.ask("GET", "/ws", **head, Sec_WebSocket_Key="AAAAAAAAAAAAAAAAAAAAAA==")
    assert status == 403


def test_readiness_and_metrics_leave_out_what_is_not_known(toy: Toy):
    with toy.connect("http") as client:
        client.push("mail", b"x")
        client.pull("mail", worker="w7")
        with pytest.raises(Unsupported):
            client.pause("mail")
    status, ready = toy.server.ask("GET", "/ready")
    assert (status, ready) == (200, {"ok": True, "ready": True, "stopping": False})
    status, text = toy.server.ask("GET", "/metrics", stoker_tenant=toy.tenant)
    assert status == 200
    assert 'stoker_commands_total{command="pause",outcome="unsupported"}' in text
    assert 'stoker_queue_jobs{queue="mail",state="active"} 1.0' in text
    left_out = ("stoker_jobs", "stoker_job_steps", "stoker_turn_commands", "stoker_turn_seconds", "stoker_storage_full")
    assert [name for name in left_out if f"\n{name}" in text] == []
    status, workers = toy.server.ask("GET", "/workers", stoker_tenant=toy.tenant)
    assert (status, [worker["id"] for worker in workers["data"]]) == (200, ["w7"])


def test_a_quota_that_it_cannot_count_refuses_the_push(loop: LoopThread, tmp_path: Path):
    """A quota that is silently not kept would be worse."""
    tenants = {"counted": Quotas(waiting_jobs=10), "paced": Quotas(requests_per_second=1_000)}
    server = AnyServer(loop, tmp_path, ToyBroker, auth=AuthSettings(tenants=tenants))
    try:
        with stoker.connect(server.urls["tcp"], tenant="counted") as client:
            with pytest.raises(Unsupported, match="waiting_jobs"):
                client.push("mail", b"x")
            assert not client.pull("mail")
        with stoker.connect(server.urls["tcp"], tenant="paced") as client:
            client.push("mail", b"x")
    finally:
        server.close()


def test_it_is_not_served_by_several_processes(loop: LoopThread, tmp_path: Path):
    async def start() -> None:
        seat = ProcessSeat(number=0, seats=2, directory=str(tmp_path), secret=b"")
        with pytest.raises(Unsupported, match="several processes"):
            Server(ServerConfig(), ToyBroker(), seat)

    loop.run(start())
