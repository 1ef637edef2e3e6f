"""Our own client over HTTP, when the server is missing or misbehaves."""

import asyncio
import http.server
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from stoker.brokers.connect import open_broker
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import Closed, Unauthenticated, Unreachable
from stoker.server.auth.settings import AuthSettings
from tests.http.support import HttpServer, wait_until

Serve = Callable[..., HttpServer]


def test_the_token_of_the_url_is_sent(serve: Serve):
    server = serve(auth=AuthSettings(tokens=("secret",)))
    client = Client(open_broker(f"http://:secret@{server.where}"))
    assert client.push("a", b"").created
    client.close()
    stranger = open_broker(f"http://:wrong@{server.where}?retry_s=0")
    with pytest.raises(Unauthenticated):
        stranger.execute("default", c.ListQueues())
    stranger.close()


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_both_codecs_carry_any_bytes(server: HttpServer, codec: str):
    broker = open_broker(f"http://{server.where}?codec={codec}")
    payload = bytes(range(256)) * 100
    broker.execute("default", c.Push("a", payload))
    assert broker.execute("default", c.Pull(["a"])).payloads == [payload]
    broker.close()


def test_nobody_there_is_unreachable(server: HttpServer):
    server.close()
    broker = open_broker(f"http://{server.where}?retry_s=0")
    with pytest.raises(Unreachable, match="is it running"):
        broker.execute("default", c.ListQueues())
    with pytest.raises(Unreachable):
        asyncio.run(broker.execute_async("default", c.ListQueues()))


@pytest.fixture
def stranger() -> Iterator[int]:
    """A web server that is not ours."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"hi")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_server_is_told_from_ours(stranger: int):
    broker = open_broker(f"http://127.0.0.1:{stranger}?retry_s=0")
    with pytest.raises(Unreachable, match="not a Stoker server"):
        broker.execute("default", c.ListQueues())
    with pytest.raises(Unreachable, match="not a Stoker server"):
        asyncio.run(broker.execute_async("default", c.ListQueues()))
    broker.close()


def test_what_another_protocol_says_is_not_quoted():
    """`http://` at the port for TCP: bytes that mean nothing to people."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as peer:
                peer.recv(1)
                peer.sendall(b"\x00\x00\x00\x05\x83\xa2ok\xc2\n")
                while peer.recv(65_536):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        broker = open_broker(f"http://127.0.0.1:{listener.getsockname()[1]}?retry_s=0")
        with pytest.raises(Unreachable, match="not a Stoker server") as raised:
            broker.execute("default", c.ListQueues())
        broker.close()
        thread.join()
    assert raised.value.message.isprintable()


def test_closing_wakes_a_call_that_waits(server: HttpServer):
    broker = open_broker(f"http://{server.where}")
    found: list[BaseException] = []

    def pull() -> None:
        try:
            broker.execute("default", c.Pull(["a"], wait_ms=60_000))
        except Closed as error:
            found.append(error)

    waiting = threading.Thread(target=pull)
    waiting.start()
    wait_until(server, lambda: server.server.dispatcher.is_waiting)
    broker.close()
    waiting.join(60)
    assert found


def test_a_cancelled_pull_takes_no_job(server: HttpServer):
    broker = open_broker(f"http://{server.where}")

    async def main() -> None:
        pull = asyncio.ensure_future(broker.execute_async("default", c.Pull(["a"], wait_ms=60_000)))
        await asyncio.to_thread(wait_until, server, lambda: server.server.dispatcher.is_waiting)
        pull.cancel()
        await asyncio.to_thread(wait_until, server, lambda: not server.server.dispatcher.is_waiting)

    asyncio.run(main())
    job = server.execute(c.Push("a", b"")).id
    assert server.execute(c.GetJob(job)).state == "waiting"
    broker.close()


def test_many_calls_at_once_share_a_pool(server: HttpServer):
    broker = open_broker(f"http://{server.where}?connections_max=4")

    async def main() -> None:
        await asyncio.gather(*(broker.execute_async("default", c.Push("a", b"")) for _ in range(50)))

    asyncio.run(main())
    assert server.execute(c.GetStats("a")).counts.waiting == 50
    broker.close()


def test_a_connection_that_the_server_closed_is_not_used_again(serve: Serve):
    from stoker.server.config.tree import ServerLimits

    server = serve(server=ServerLimits(http_keep_alive_s=1))
    broker = open_broker(f"http://{server.where}?retry_s=0")
    broker.execute("default", c.Push("a", b""))
    wait_until(server, lambda: not server.server.service.meter.connections.get("http"))
    broker.execute("default", c.Push("a", b""))
    assert server.execute(c.GetStats("a")).counts.waiting == 2
    broker.close()
