"""A server on a free port in a thread of its own, and a plain client that shows everything it gets."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, Tls
from stoker.server.run import new_loop
from stoker.server.server import Server

TIMEOUT_S = 60


class Reply(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class HttpServer:
    """A real server; ask it over a real socket."""

    def __init__(
        self,
        *,
        shards: int = 2,
        origins: tuple[str, ...] = (),
        tls: Tls | None = None,
        settings: Any = None,
        **config: Any,
    ) -> None:
        self.config = ServerConfig(
            tcp=TcpListener(listen="off"),
            grpc=GrpcListener(listen="off"),
            http=HttpListener(listen="127.0.0.1:0", origins=origins, tls=tls or Tls()),
            **config,
        )
        self.broker = LocalBroker(settings or LocalSettings(shards=shards, limits=self.config.limits))
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            self.loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        self.server = Server(self.config, self.broker)
        (line,) = await self.server.start()
        self.where = line.split("://")[1]
        self.port = int(self.where.rpartition(":")[2])
        self._started.set()
        await self._over.wait()
        await self.server.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._over.set)
            self._thread.join(TIMEOUT_S)
        self.broker.close()

    def run(self, make: Any) -> Any:
        """The result of a coroutine on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(make, self.loop).result(TIMEOUT_S)

    def execute(self, command: c.Command[Any], tenant: str = "default") -> Any:
        """As if from inside."""
        return self.run(self.server.dispatcher.call(tenant, command))

    # --- asking --------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """`some_header="x"` sends `some-header: x`; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, sent, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self.ask("POST", path, body, **headers)

    def raw(self, sent: bytes) -> bytes:
        """Everything that comes back until the server closes."""
        with self.socket() as connected:
            connected.sendall(sent)
            got = b""
            while piece := connected.recv(65536):
                got += piece
            return got

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    def events(self, path: str, **headers: str) -> "EventReader":
        return EventReader(self.port, path, headers)


class EventReader:
    """Server-sent events, one after another."""

    def __init__(self, port: int, path: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.last_id = ""
        if self.status == 200:
            self._blocks = self._read()
            assert next(self._blocks)["retry"] == "2000"
            while "id" not in (first := next(self._blocks)) or "event" in first:
                pass  # from here on it reads

    def _read(self) -> Iterator[dict[str, str]]:
        block: dict[str, str] = {}
        while line := self._answer.readline().decode().rstrip("\n"):
            while line:
                name, _, value = line.partition(": ")
                block[name] = value
                line = self._answer.readline().decode().rstrip("\n")
            yield block
            block = {}

    def next(self) -> tuple[str, Any]:
        """The next event: its name and its data."""
        for block in self._blocks:
            self.last_id = block.get("id", self.last_id)
            if "event" in block:
                return block["event"], json.loads(block["data"])
        raise AssertionError("the stream has ended")

    def take(self, count: int) -> list[tuple[str, int]]:
        return [(name, data.get("job_id", 0)) for name, data in (self.next() for _ in range(count))]

    @property
    def has_ended(self) -> bool:
        return next(self._blocks, None) is None

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def wait_until(server: HttpServer, is_so: Callable[[], bool]) -> None:
    """Until something is so, looked at in every turn of the server's loop."""

    async def look() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so():  # noqa: ASYNC110  nobody tells when it is
                await asyncio.sleep(0)

    server.run(look())
