"""One door: the same sequence over every transport is admitted, counted and noted alike."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.proto import stoker_pb2 as pb
from stoker.proto import stoker_pb2_grpc
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, UnixListener
from stoker.server.run import new_loop
from stoker.server.server import Server

PATIENCE_S = 30.0
SECRET = "a secret of 32 bytes or more, at random"
TRANSPORTS = ("tcp", "unix", "http", "grpc", "grpc-typed")

Answer = dict[str, Any]
Ask = Callable[[str, Answer], Answer]
"""Sends a command of Stoker's own dialect, or the typed call of its name: what came back."""


class Place:
    """A server with every listener, tokens, and a secret for entitlements."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._closing = ExitStack()
        self.tokens = path / "tokens"
        self.consumer = self._token("consume")
        self.everything = self._token("produce", "consume", "read", "admin")
        self._started, self._thread = threading.Event(), threading.Thread(target=self._run)
        self._thread.start()
        assert self._started.wait(PATIENCE_S)

    def _token(self, *permissions: Any) -> str:
        made = create_token(self.tokens, name=permissions[0], tenant="acme", permissions=permissions, now=time.time())
        return made.text

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        auth = AuthSettings(
            tokens_file=str(self.tokens), entitlement_secrets=(SECRET,), tenants={"acme": Quotas(waiting_jobs=2)}
        )
        config = ServerConfig(
            tcp=TcpListener(listen="127.0.0.1:0"),
            http=HttpListener(listen="127.0.0.1:0"),
            grpc=GrpcListener(listen="127.0.0.1:0"),
            unix=UnixListener(listen=str(self.path / "s")),
            auth=auth,
        )
        broker = LocalBroker(LocalSettings(shards=2))
        self.server = Server(config, broker)
        lines = await self.server.start()
        self.ports = {line.split()[0]: int(line.rpartition(":")[2]) for line in lines if line.split()[0] != "unix"}
        self._started.set()
        await self._over.wait()
        await self.server.close()
        broker.close()

    def close(self) -> None:
        self._closing.close()
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)

    def workers(self) -> dict[str, tuple[str, ...]]:
        """The workers that the server has noted, with their queues."""

        async def look() -> dict[str, tuple[str, ...]]:
            return {worker.id: worker.queues for worker in self.server.service.meter.workers("acme")}

        return asyncio.run_coroutine_threadsafe(look(), self.loop).result(PATIENCE_S)

    def caller(self, transport: str, token: str, entitlement: str | None = None) -> Ask:
        """A peer on a connection of its own."""
        if transport in ("tcp", "unix"):
            return self._over_stream(transport, token, entitlement)
        if transport == "http":
            return self._over_http(token, entitlement)
        metadata = [("authorization", f"Bearer {token}")]
        metadata += [] if entitlement is None else [("stoker-entitlement", entitlement)]
        channel = self._closing.enter_context(grpc.insecure_channel(f"127.0.0.1:{self.ports['grpc']}"))
        stub = stoker_pb2_grpc.QueueStub(channel)
        return over_grpc(stub, metadata) if transport == "grpc" else over_typed_grpc(stub, metadata)

    def _over_stream(self, transport: str, token: str, entitlement: str | None) -> Ask:
        if transport == "unix":
            connected = socket.socket(socket.AF_UNIX)
            connected.settimeout(PATIENCE_S)
            connected.connect(str(self.path / "s"))
        else:
            connected = socket.create_connection(("127.0.0.1", self.ports["tcp"]), PATIENCE_S)
        file = self._closing.enter_context(self._closing.enter_context(connected).makefile("rb"))

        def ask(cmd: str, body: Answer) -> Answer:
            connected.sendall(json.dumps({"cmd": cmd, "body": body}).encode() + b"\n")
            return told(json.loads(file.readline()))

        greeting = {"token": token, "tokens": False, **({"entitlement": entitlement} if entitlement else {})}
        assert ask("hello", greeting)["ok"]
        return ask

    def _over_http(self, token: str, entitlement: str | None) -> Ask:
        headers = {"Authorization": f"Bearer {token}", **({"Stoker-Entitlement": entitlement} if entitlement else {})}

        def ask(cmd: str, body: Answer) -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=PATIENCE_S)
            connection.request("POST", "/api/call", json.dumps({"cmd": cmd, "body": body}), headers)
            answer = json.loads(connection.getresponse().read())
            connection.close()
            return told(answer)

        return ask


def over_grpc(stub: Any, metadata: Any) -> Ask:
    def ask(cmd: str, body: Answer) -> Answer:
        frame = pb.Frame(body=json.dumps({"cmd": cmd, "body": body}).encode())
        return told(json.loads(stub.Call(frame, timeout=PATIENCE_S, metadata=metadata).body))

    return ask


def over_typed_grpc(stub: Any, metadata: Any) -> Ask:
    def ask(cmd: str, body: Answer) -> Answer:
        try:
            if cmd == "push":
                reply = stub.Push(pb.PushRequest(queue=body["queue"]), timeout=PATIENCE_S, metadata=metadata)
                return {"ok": True, "id": reply.id}
            pull = pb.PullRequest(queues=body["queues"], worker=body["worker"])
            reply = stub.Pull(pull, timeout=PATIENCE_S, metadata=metadata)
            return {"ok": True, "jobs": int(reply.HasField("job"))}
        except grpc.RpcError as error:
            return {"ok": False, "code": dict(error.trailing_metadata())["stoker-code"]}

    return ask


def told(answer: Answer) -> Answer:
    """What counts of an answer."""
    if not answer["ok"]:
        return {"ok": False, "code": answer["code"]}
    body = answer.get("body") or {}
    if "runs" in body or "token" in body:
        return {"ok": True, "jobs": sum(len(run["payloads"]) for run in body.get("runs", ()))}
    return {"ok": True, "id": body.get("id")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("door"))
    yield made
    made.close()


def outcomes(place: Place, transport: str) -> list[Any]:
    """What a peer may do, and what is refused, in order."""
    queue = f"q-{transport}"
    found: list[Any] = []

    def note(answer: Answer) -> None:
        found.append(answer["code"] if not answer["ok"] else answer.get("jobs", "pushed"))

    weak = place.caller(transport, place.consumer)
    note(weak("push", {"queue": queue, "payload": ""}))  # may only consume
    plain = place.caller(transport, place.everything)
    for _ in range(3):
        note(plain("push", {"queue": queue, "payload": ""}))  # the configured quota is 2
    few = place.caller(transport, place.everything, entitled(waiting_jobs=1))
    note(few("push", {"queue": queue, "payload": ""}))
    many = place.caller(transport, place.everything, entitled(waiting_jobs=100))
    note(many("push", {"queue": queue, "payload": ""}))
    for _ in range(4):
        note(plain("pull", {"queues": [queue], "worker": f"worker-{transport}"}))
    return found


def entitled(**quotas: int) -> str:
    return sign(Entitlement(tenant="acme", quotas=Quotas(**quotas), expires_at=round(time.time()) + 3_600), SECRET)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_transport_admits_refuses_and_notes_alike(place: Place, transport: str) -> None:
    pushes = ["forbidden", "pushed", "pushed", "quota_exceeded", "quota_exceeded", "pushed"]
    assert outcomes(place, transport) == [*pushes, 1, 1, 1, 0]
    assert place.workers()[f"worker-{transport}"] == (f"q-{transport}",)
