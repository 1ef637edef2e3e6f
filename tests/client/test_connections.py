"""Connections of a client: kept, limited, made again after pauses, closed from elsewhere, not shared by forks."""

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.links import StreamLinks
from stoker.brokers.remote.opening import open_remote
from stoker.brokers.remote.retrying import PAUSE_S_MAX, Patience
from stoker.brokers.remote.settings import ServerAddress
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import Closed, Unreachable
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener
from tests.client.serving import TCP_ONLY, TIMEOUT_S, ServerThread, Stranger, on_port, read_all, settings
from tests.ports import kept_port

OFF = {"tcp": TcpListener(listen="off"), "http": HttpListener(listen="off"), "grpc": GrpcListener(listen="off")}
ONLY: dict[str, ServerConfig] = {
    "tcp": TCP_ONLY,
    "http": ServerConfig(**{**OFF, "http": HttpListener(listen="127.0.0.1:0")}),  # type: ignore[arg-type]
    "grpc": ServerConfig(**{**OFF, "grpc": GrpcListener(listen="127.0.0.1:0")}),  # type: ignore[arg-type]
}


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


def opened(url: str) -> RemoteBroker:
    broker = open_remote(urlsplit(url), None)
    assert isinstance(broker, RemoteBroker)
    return broker


def ask(broker: RemoteBroker, command: c.Command[Any], is_async: bool) -> Any:
    if is_async:
        return asyncio.run(broker.execute_async("default", command))
    return broker.execute("default", command)


def until(condition: Callable[[], bool]) -> None:
    """For what happens in another thread and tells nobody."""
    pause = threading.Event()
    for _ in range(TIMEOUT_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


# --- pauses --------------------------------------------------------------------------------------


class Patient(Patience):
    """Notes the pauses and moves its own clock instead of waiting."""

    def __init__(self, meanwhile: Callable[[int], None] = lambda number: None) -> None:
        super().__init__()
        self.napped: list[float] = []
        self._now = 0.0
        self._meanwhile = meanwhile

    def now(self) -> float:
        return self._now

    def jitter(self) -> float:
        return 1.0

    def nap(self, pause_s: float) -> None:
        self.napped.append(pause_s)
        self._now += pause_s
        self._meanwhile(len(self.napped))

    async def nap_async(self, pause_s: float) -> None:
        self.nap(pause_s)


@pytest.fixture
def port() -> Iterator[int]:
    """Where nobody listens."""
    with kept_port() as port:
        yield port


def patient_broker(port: int, patience: Patience, **changes: Any) -> RemoteBroker:
    return RemoteBroker(StreamLinks(), ServerAddress("tcp", "127.0.0.1", port), settings(**changes), patience)


@pytest.mark.parametrize("is_async", [False, True])
def test_pauses_grow_up_to_a_bound_until_the_time_is_over(port: int, is_async: bool):
    patience = Patient()
    broker = patient_broker(port, patience, retry_s=10)
    with pytest.raises(Unreachable):
        ask(broker, c.ListQueues(), is_async)
    assert patience.napped[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert max(patience.napped) == PAUSE_S_MAX
    assert sum(patience.napped) < 10
    broker.close()


def test_a_pause_is_some_half_to_all_of_its_length():
    drawn = {Patience().jitter() for _ in range(1000)}
    assert 0.5 <= min(drawn) < 0.6
    assert 0.9 < max(drawn) <= 1.0


def test_no_time_for_retries_means_one_try(port: int):
    patience = Patient()
    broker = patient_broker(port, patience, retry_s=0)
    with pytest.raises(Unreachable):
        broker.execute("default", c.ListQueues())
    assert not patience.napped
    broker.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_goes_through_once_the_server_is_back(port: int, is_async: bool):
    server = ServerThread(on_port(port))
    patience = Patient(lambda number: number == 3 and server.__enter__())  # type: ignore[arg-type]
    broker = patient_broker(port, patience, retry_s=30)
    try:
        ask(broker, c.Push("a", b""), is_async)
        assert len(patience.napped) == 3
        assert len(Client(server.broker).pull("a", 9)) == 1
    finally:
        broker.close()
        server.__exit__()


@pytest.mark.parametrize("is_async", [False, True])
def test_closing_ends_a_pause(port: int, is_async: bool):
    broker = opened(f"tcp://127.0.0.1:{port}?retry_s=3600")
    napping = threading.Event()
    pauses = broker._patience.pauses

    def long_pauses(total_s: float, began: float) -> Iterator[float | None]:
        for pause in pauses(total_s, began):
            napping.set()
            yield None if pause is None else 3600.0

    broker._patience.pauses = long_pauses  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ask, broker, c.ListQueues(), is_async)
        assert napping.wait(TIMEOUT_S)
        broker.close()
        with pytest.raises((Closed, Unreachable)):
            future.result(TIMEOUT_S)


# --- closing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ONLY)
def test_closing_from_another_thread_wakes_a_waiting_pull(scheme: str):
    with ServerThread(ONLY[scheme]) as server:
        broker = opened(f"{scheme}://127.0.0.1:{server.port}")
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(Client(broker).pull, "a", wait_ms=300_000)
            until(lambda: server.server.dispatcher.is_waiting)
            broker.close()
            with pytest.raises(Closed):
                future.result(TIMEOUT_S)
        until(lambda: not server.server.dispatcher.is_waiting)  # the server knows, and gives its jobs to others


@pytest.mark.parametrize("scheme", ONLY)
def test_closing_from_another_thread_wakes_a_waiting_task(scheme: str):
    with ServerThread(ONLY[scheme]) as server:
        broker = opened(f"{scheme}://127.0.0.1:{server.port}")
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(lambda: asyncio.run(AsyncClient(broker).pull("a", wait_ms=300_000)))
            until(lambda: server.server.dispatcher.is_waiting)
            broker.close()
            with pytest.raises(Closed):
                future.result(TIMEOUT_S)


def test_a_closed_broker_says_so_and_closes_again(server: ServerThread):
    broker = opened(server.url)
    broker.execute("default", c.ListQueues())
    broker.close()
    broker.close()
    with pytest.raises(Closed):
        broker.execute("default", c.ListQueues())
    with pytest.raises(Closed):
        asyncio.run(broker.execute_async("default", c.ListQueues()))


def test_closing_does_not_wait_for_a_server_that_says_nothing():
    """Not even while a connection to it is being made."""
    with Stranger(read_all) as silent:
        broker = opened(f"tcp://127.0.0.1:{silent.port}?connect_timeout_s=0.3&retry_s=0")
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(broker.execute, "default", c.ListQueues())
            until(lambda: len(silent.connections) == 1)
            broker.close()
            with pytest.raises((Closed, Unreachable)):
                future.result(TIMEOUT_S)
        assert not broker._pool._idle
        assert not broker._pool._busy


# --- the pool ------------------------------------------------------------------------------------


def test_calls_one_after_another_share_a_connection(server: ServerThread):
    broker = opened(server.url)
    broker.execute("default", c.ListQueues())
    (first,) = broker._pool._idle
    for _ in range(20):
        broker.execute("default", c.ListQueues())
    assert broker._pool._idle == [first]
    assert not broker._pool._busy
    broker.close()


def test_calls_at_once_have_a_connection_each_and_only_some_are_kept(server: ServerThread):
    broker = opened(f"{server.url}?connections_max=2")
    client = Client(broker)
    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(client.pull, f"q{number}", wait_ms=60_000) for number in range(5)]
        until(lambda: len(broker._pool._busy) == 5)
        for number in range(5):
            Client(server.broker).push(f"q{number}", b"")
        for future in futures:
            future.result(TIMEOUT_S)
    assert (len(broker._pool._idle), len(broker._pool._busy)) == (2, 0)
    broker.close()
    assert not broker._pool._idle


def test_a_connection_that_the_server_closed_is_not_used_again(port: int):
    """Also for a call that must not be sent twice: nothing has been sent on it."""
    config = on_port(port)
    broker = opened(f"tcp://127.0.0.1:{port}?retry_s=0")
    with ServerThread(config):
        broker.execute("default", c.KvIncrement("k"))
        (link,) = broker._pool._idle
    until(lambda: is_readable(link))
    with ServerThread(config):
        assert broker.execute("default", c.KvIncrement("k")).value == 1
        assert link not in broker._pool._idle
        broker.close()


def is_readable(link: Any) -> bool:
    return bool(select.select([link._socket], [], [], 0)[0])


def test_ctrl_c_in_the_middle_of_a_call_leaves_the_pool_sound(server: ServerThread):
    """The reply that nobody waited for must not be taken for that of the next call."""
    broker = opened(server.url)
    client = Client(broker)

    def interrupt() -> None:
        until(lambda: server.server.dispatcher.is_waiting)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.pull("a", wait_ms=300_000)
    thread.join(TIMEOUT_S)
    assert (len(broker._pool._idle), len(broker._pool._busy)) == (0, 0)
    until(lambda: not server.server.dispatcher.is_waiting)
    job = client.push("a", b"x")
    assert client.pull("a").ids[0] == job.id
    broker.close()


@pytest.mark.parametrize("scheme", ONLY)
def test_a_cancelled_call_leaves_the_connection_sound(scheme: str):
    async def main(broker: RemoteBroker, server: ServerThread) -> None:
        client = AsyncClient(broker)
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(5):
                pull = asyncio.create_task(client.pull("a", wait_ms=300_000))
                while not server.server.dispatcher.is_waiting:  # noqa: ASYNC110  a server has no events for its tests
                    await asyncio.sleep(0.005)
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)
                while server.server.dispatcher.is_waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            job = await client.push("a", b"x")
            assert (await client.pull("a")).ids[0] == job.id

    with ServerThread(ONLY[scheme]) as server:
        broker = opened(f"{scheme}://127.0.0.1:{server.port}")
        asyncio.run(main(broker, server))
        broker.close()


@pytest.mark.parametrize(("payload", "numbers"), [(b"", 2), (bytes(70_000), 20)], ids=["gathered", "alone"])
def test_cancelled_pushes_settle_their_numbers(server: ServerThread, payload: bytes, numbers: int):
    """A number that stays open would hold its window for ever. What goes as one batch has one number."""

    async def main(broker: RemoteBroker) -> None:
        pushes = [asyncio.create_task(broker.execute_async("default", c.Push("a", payload))) for _ in range(20)]
        await asyncio.sleep(0)
        for push in pushes[::2]:
            push.cancel()
        ended = await asyncio.gather(*pushes, return_exceptions=True)
        assert [isinstance(end, asyncio.CancelledError) for end in ended] == [True, False] * 10

    broker = opened(server.url)
    asyncio.run(main(broker))
    sending = broker._windows.take()
    assert (sending.number, sending.settled) == (numbers + 1, numbers + 1)
    broker.close()


# --- forks ---------------------------------------------------------------------------------------


def in_child(act: Callable[[], None]) -> None:
    """Run it in a forked process; fails if that fails or does not end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(TIMEOUT_S)
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_a_forked_child_has_connections_of_its_own(scheme: str):
    with ServerThread(ONLY[scheme]) as server:
        broker = open_remote(urlsplit(f"{scheme}://127.0.0.1:{server.port}"), None)
        client = Client(broker)
        client.push("a", b"parent")
        (link,) = broker._pool._idle
        number = (link._socket if scheme == "tcp" else link._http.sock).fileno()  # type: ignore[attr-defined]
        theirs = os.readlink(f"/proc/self/fd/{number}")

        def child() -> None:
            held = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if exists(fd)}
            assert theirs not in held
            for _ in range(3):
                client.push("a", b"child")
            assert len(client.pull("a", 2)) == 2
            client.close()

        in_child(child)
        assert broker._pool._idle == [link]
        for _ in range(3):
            client.push("a", b"parent")
        assert client.get_counts("a").waiting == 5
        assert client.get_counts("a").active == 2
        broker.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_pushes_under_a_name_of_its_own(server: ServerThread):
    """Under the parent's name the numbers of both would be the same, and a push would be taken for another one."""
    broker = opened(server.url)
    client = Client(broker)
    client.push("a", b"parent")

    def child() -> None:
        for _ in range(3):
            client.push("a", b"child")
        client.close()

    in_child(child)
    for _ in range(3):
        client.push("a", b"parent")
    client.close()
    assert sorted(Client(server.broker).pull("a", 99).payloads) == 3 * [b"child"] + 4 * [b"parent"]


def exists(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_inside_an_event_loop_leaves_the_connection_to_the_parent(server: ServerThread):
    async def main() -> None:
        broker = opened(server.url)
        client = AsyncClient(broker)
        await client.push("a", b"1")
        (streams,) = broker._streams.values()
        number = streams.link._transport.get_extra_info("socket").fileno()  # type: ignore[union-attr]
        theirs = os.readlink(f"/proc/self/fd/{number}")

        def child() -> None:
            held = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if exists(fd)}
            assert theirs not in held
            assert Client(broker).push("a", b"2").created
            broker.close()

        in_child(child)
        await client.push("a", b"3")
        assert (await client.pull("a", 9)).payloads == [b"1", b"2", b"3"]
        await client.close()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_closed_broker_has_a_closed_one(server: ServerThread):
    broker = opened(server.url)
    broker.close()

    def child() -> None:
        with pytest.raises(Closed):
            broker.execute("default", c.ListQueues())

    in_child(child)


class NotingSocket:
    """A socket that notes how much memory each read asks for."""

    def __init__(self, own: Any, asked: list[int]) -> None:
        self._own, self._asked = own, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def recv(self, size: int) -> bytes:
        self._asked.append(size)
        received: bytes = self._own.recv(size)
        return received


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_a_reply_of_any_size_is_read_without_memory_that_the_kernel_maps_for_each_read(
    server: ServerThread, codec: str
) -> None:
    """From 128 KiB on, malloc maps memory each time: threads that push then wait for the kernel and for each other."""
    asked: list[int] = []
    payloads = [bytes([65 + number]) * size for number, size in enumerate((1, 16_000, 16_384, 70_000, 3_000_000))]
    with closing(opened(f"tcp://127.0.0.1:{server.port}?codec={codec}")) as broker:
        link: Any = broker._pool.take()
        link._socket = NotingSocket(link._socket, asked)
        broker._pool.give_back(link)
        for payload in payloads:
            broker.execute("default", c.Push("q", payload))
        pulled = [next(iter(broker.execute("default", c.Pull(("q",))))).payload for _ in payloads]
    assert pulled == payloads
    assert 0 < max(asked) < 128 * 1024
