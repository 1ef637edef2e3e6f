"""Single pushes that are sent together: fewer requests, and for each caller the same as if he were alone."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoker.brokers.connect import open_broker
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.opening import open_remote
from stoker.brokers.remote.push_buffer import BufferingBroker, ThreadBuffers, may_gather
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import (
    Closed,
    InvalidRequest,
    LimitExceeded,
    QuotaExceeded,
    StokerError,
    Unauthenticated,
    Unknown,
    Unreachable,
)
from stoker.model.options import Dependency, Options
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.config.tree import ServerConfig
from tests.client.serving import TCP_ONLY, TIMEOUT_S, ServerThread, Stranger, read_all
from tests.ports import kept_port

LONG = "batch_ms=60000"
"""Nothing goes before the batch is full, or before somebody closes: no test waits for time to pass."""


class Counting:
    """Counts what reaches the broker behind a gathering one."""

    def __init__(self, broker: BufferingBroker) -> None:
        self.commands: list[c.Command[Any]] = []
        inner = broker.inner
        execute, execute_async = inner.execute, inner.execute_async

        def counted(tenant: str, command: c.Command[Any]) -> Any:
            self.commands.append(command)
            return execute(tenant, command)

        async def counted_async(tenant: str, command: c.Command[Any]) -> Any:
            self.commands.append(command)
            return await execute_async(tenant, command)

        inner.execute, inner.execute_async = counted, counted_async  # type: ignore[method-assign]

    @property
    def kinds(self) -> list[str]:
        return [type(command).__name__ for command in self.commands]


def opened(url: str) -> BufferingBroker:
    broker = open_remote(urlsplit(url), None)
    assert isinstance(broker, BufferingBroker)
    return broker


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


def in_threads(calls: Sequence[Any]) -> list[Any]:
    """All at once; what each gives or raises."""

    def run(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except StokerError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(TIMEOUT_S) for future in [pool.submit(run, call) for call in calls]]


def in_tasks(url: str, pushes: list[dict[str, Any]]) -> tuple[list[Any], list[str]]:
    async def main() -> tuple[list[Any], list[str]]:
        broker = opened(url)
        counting = Counting(broker)
        client = AsyncClient(broker)
        async with asyncio.timeout(TIMEOUT_S):
            found = await asyncio.gather(*(client.push(**push) for push in pushes), return_exceptions=True)
        kinds = counting.kinds
        await client.close()
        return found, kinds

    return asyncio.run(main())


# --- what goes together --------------------------------------------------------------------------


def test_threads_that_push_at_once_send_one_batch(server: ServerThread):
    broker = opened(f"{server.url}?{LONG}&batch_jobs=8")
    counting, client = Counting(broker), Client(broker)
    payloads = [b"%d" % number for number in range(8)]
    replies = in_threads([lambda p=p: (p, client.push("a", p)) for p in payloads])
    assert counting.kinds == ["PushBatch"]
    for payload, reply in replies:
        assert reply.created
        assert client.get_job(reply.id).payload == payload
    broker.close()


def test_tasks_that_push_at_once_send_one_batch_in_their_order(server: ServerThread):
    pushes = [{"queue": "a", "payload": b"%d" % number} for number in range(8)]
    replies, kinds = in_tasks(f"{server.url}?{LONG}&batch_jobs=8", pushes)
    assert kinds == ["PushBatch"]
    assert [reply.id for reply in replies] == sorted(reply.id for reply in replies)
    assert Client(server.broker).pull("a", 8).payloads == [push["payload"] for push in pushes]


def test_options_of_their_own_stay_their_own(server: ServerThread):
    pushes = [{"queue": "a", "payload": b"", "priority": number} for number in range(4)]
    replies, kinds = in_tasks(f"{server.url}?{LONG}&batch_jobs=4", pushes)
    assert kinds == ["PushBatch"]
    client = Client(server.broker)
    assert [client.get_job(reply.id).options.priority for reply in replies] == [0, 1, 2, 3]


def test_queues_and_durabilities_go_apart(server: ServerThread):
    pushes: list[dict[str, Any]] = [{"queue": queue, "payload": b""} for queue in "ab" for _ in range(2)]
    pushes += [{"queue": "a", "payload": b"", "durability": "memory"}] * 2
    replies, kinds = in_tasks(f"{server.url}?{LONG}&batch_jobs=2", pushes)
    assert kinds == ["PushBatch"] * 3
    assert all(reply.created for reply in replies)


def test_tenants_go_apart():
    with ServerThread() as server:
        broker = opened(f"{server.url}?{LONG}&batch_jobs=2")
        one, two = Client(broker, "one"), Client(broker, "two")
        in_threads([lambda t=t: t.push("a", b"") for t in (one, two, one, two)])
        assert [len(Client(server.broker, tenant).pull("a", 9)) for tenant in ("one", "two")] == [2, 2]
        broker.close()


def test_a_push_that_stays_alone_is_a_push(server: ServerThread):
    broker = opened(f"{server.url}?batch_ms=1")
    counting = Counting(broker)
    assert Client(broker).push("a", b"").created
    assert counting.kinds == ["Push"]
    broker.close()


@pytest.mark.parametrize(
    "push",
    [
        c.Push("a", bytes(70_000)),
        c.Push("a", b"", Options(depends_on=(Dependency(item=0),))),
        c.Push("a", b"", sending=c.Sending("me", 1)),
        c.Push("a", "text"),  # type: ignore[arg-type]
        c.Push("a", b"", {}),  # type: ignore[arg-type]
        c.Push(7, b""),  # type: ignore[arg-type]
        c.Push("a", b"", durability=[]),  # type: ignore[arg-type]
        c.PushBatch("a", [b""]),
        c.ListQueues(),
    ],
)
def test_what_means_something_else_in_a_batch_goes_alone(push: c.Command[Any]):
    assert not may_gather("default", push)
    assert may_gather("default", c.Push("a", b""))


def test_without_the_setting_nothing_is_gathered():
    broker = open_broker("tcp://127.0.0.1:1")
    assert isinstance(broker, RemoteBroker)
    broker.close()


@pytest.mark.parametrize("parameters", ["batch_ms=-1", "batch_ms=2&batch_jobs=0", "batch_ms=nan"])
def test_settings_that_make_no_sense_are_refused(parameters: str):
    with pytest.raises(InvalidRequest, match="batch_jobs"):
        open_broker(f"tcp://127.0.0.1:1?{parameters}")


# --- to each his own -----------------------------------------------------------------------------


def test_a_refused_push_raises_for_its_caller_only(server: ServerThread):
    pushes: list[dict[str, Any]] = [{"queue": "a", "payload": b"", "priority": number} for number in (1, 2, 3)]
    pushes.insert(1, {"queue": "a", "payload": b"", "max_attempts": -1})
    replies, _ = in_tasks(f"{server.url}?{LONG}&batch_jobs=4", pushes)
    assert [isinstance(reply, InvalidRequest) for reply in replies] == [False, True, False, False]
    assert len(Client(server.broker).pull("a", 9)) == 3


def test_what_cannot_even_be_sent_is_refused_for_its_caller_only(server: ServerThread):
    broker = opened(f"{server.url}?{LONG}&batch_jobs=4")
    client = Client(broker)
    wrong: Any = object()
    calls = [lambda p=p: client.push("a", b"", priority=p) for p in (1, wrong, 2, 3)]
    replies = in_threads(calls)
    assert [isinstance(reply, InvalidRequest) for reply in replies] == [False, True, False, False]
    assert len(client.pull("a", 9)) == 3
    broker.close()


def test_an_invalid_queue_is_refused_for_all_of_its_callers(server: ServerThread):
    replies, _ = in_tasks(f"{server.url}?{LONG}&batch_jobs=3", [{"queue": "no name!", "payload": b""}] * 3)
    assert all(isinstance(reply, InvalidRequest) for reply in replies)
    assert len({id(reply) for reply in replies}) == 3


def test_duplicates_are_told_to_those_who_sent_them(server: ServerThread):
    replies, _ = in_tasks(f"{server.url}?{LONG}&batch_jobs=3", [{"queue": "a", "payload": b"", "unique_key": "k"}] * 3)
    assert [(reply.created, reply.duplicate_by) for reply in replies] == [
        (True, None),
        (False, "unique_key"),
        (False, "unique_key"),
    ]
    assert len({reply.id for reply in replies}) == 1


def test_as_many_as_the_quota_lets_in_get_in():
    config = ServerConfig(
        tcp=TCP_ONLY.tcp,
        http=TCP_ONLY.http,
        grpc=TCP_ONLY.grpc,
        auth=AuthSettings(tenants={"*": Quotas(waiting_jobs=5)}),
    )
    with ServerThread(config) as server:
        replies, _ = in_tasks(f"{server.url}?{LONG}&batch_jobs=8", [{"queue": "a", "payload": b""}] * 8)
        assert sum(isinstance(reply, QuotaExceeded) for reply in replies) == 3
        assert len(Client(server.broker).pull("a", 9)) == 5


def test_a_payload_over_the_limit_is_refused_for_its_caller_only():
    from stoker.model.limits import Limits

    config = ServerConfig(tcp=TCP_ONLY.tcp, http=TCP_ONLY.http, grpc=TCP_ONLY.grpc, limits=Limits(payload_bytes_max=10))
    with ServerThread(config) as server:
        pushes = [{"queue": "a", "payload": bytes(size)} for size in (1, 11, 2)]
        replies, _ = in_tasks(f"{server.url}?{LONG}&batch_jobs=3", pushes)
        assert [isinstance(reply, LimitExceeded) for reply in replies] == [False, True, False]


def test_who_may_not_push_is_told_so_once():
    config = ServerConfig(tcp=TCP_ONLY.tcp, http=TCP_ONLY.http, grpc=TCP_ONLY.grpc, auth=AuthSettings(tokens=("t",)))
    with ServerThread(config) as server:
        replies, kinds = in_tasks(f"{server.url}?{LONG}&batch_jobs=3", [{"queue": "a", "payload": b""}] * 3)
        assert all(isinstance(reply, Unauthenticated) for reply in replies)
        assert kinds == ["PushBatch"]


def test_a_server_that_is_not_there_is_told_to_everybody():
    with kept_port() as port:
        url = f"tcp://127.0.0.1:{port}?{LONG}&batch_jobs=3&retry_s=0"
        replies, _ = in_tasks(url, [{"queue": "a", "payload": b""}] * 3)
    assert all(isinstance(reply, Unreachable) for reply in replies)


# --- many at once --------------------------------------------------------------------------------


def test_nothing_is_lost_or_doubled_among_many_threads_and_batches(server: ServerThread):
    broker = opened(f"{server.url}?batch_ms=1&batch_jobs=7")
    client = Client(broker)

    def produce(thread: int) -> list[int]:
        return [client.push(f"q{number % 3}", b"%d.%d" % (thread, number)).id for number in range(50)]

    ids = [made for ids in in_threads([lambda t=t: produce(t) for t in range(8)]) for made in ids]
    assert len(set(ids)) == 400
    payloads = [payload for number in range(3) for payload in client.pull(f"q{number}", 400).payloads]
    assert len(payloads) == len(set(payloads)) == 400
    for thread in range(8):  # each caller's own order within a queue
        for queue in range(3):
            mine = [int(p.split(b".")[1]) for p in payloads if p.startswith(b"%d." % thread)]
            of_queue = [number for number in mine if number % 3 == queue]
            assert of_queue == sorted(of_queue)
    broker.close()


# --- lost answers --------------------------------------------------------------------------------


class Forgetful:
    """A line to a server that breaks when the answer to a push comes, as often as it is told to."""

    def __init__(self, port: int, times: int) -> None:
        self._port = port
        self._left = times
        self.lost = 0

    def __call__(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            while request := client.recv(1 << 20):
                server.sendall(request)
                answer = server.recv(1 << 20)
                if b"push_batch" in request and self._left:
                    self._left -= 1
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_whose_answer_was_lost_is_sent_again_and_makes_no_second_jobs(server: ServerThread, is_async: bool):
    line = Forgetful(server.port, times=2)
    with Stranger(line) as relay:
        url = f"tcp://127.0.0.1:{relay.port}?{LONG}&batch_jobs=5"
        if is_async:
            replies, _ = in_tasks(url, [{"queue": "a", "payload": b""}] * 5)
        else:
            broker = opened(url)
            replies = in_threads([lambda: Client(broker).push("a", b"")] * 5)
            broker.close()
    assert line.lost == 2
    assert len({reply.id for reply in replies}) == 5
    assert len(Client(server.broker).pull("a", 9)) == 5


@pytest.mark.parametrize("is_async", [False, True])
def test_without_resending_everybody_is_told_that_the_outcome_is_unknown(server: ServerThread, is_async: bool):
    with Stranger(Forgetful(server.port, times=1)) as relay:
        url = f"tcp://127.0.0.1:{relay.port}?{LONG}&batch_jobs=5&resend=false"
        if is_async:
            replies, _ = in_tasks(url, [{"queue": "a", "payload": b""}] * 5)
        else:
            broker = opened(url)
            replies = in_threads([lambda: Client(broker).push("a", b"")] * 5)
            broker.close()
    assert [type(reply) for reply in replies] == [Unknown] * 5


# --- giving up and closing -----------------------------------------------------------------------


def test_a_cancelled_task_takes_its_push_along(server: ServerThread):
    async def main() -> None:
        broker = opened(f"{server.url}?{LONG}&batch_jobs=3")
        client = AsyncClient(broker)
        tasks = [asyncio.create_task(client.push("a", name)) for name in (b"1", b"2")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        others = [asyncio.create_task(client.push("a", name)) for name in (b"3", b"4")]
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(tasks[1], *others)
        await client.close()

    asyncio.run(main())
    assert Client(server.broker).pull("a", 9).payloads == [b"2", b"3", b"4"]


def test_closing_sends_what_threads_have_gathered(server: ServerThread):
    broker = opened(f"{server.url}?{LONG}")
    client = Client(broker)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(client.push, "a", b"%d" % number) for number in range(3)]
        wait_for(lambda: waiting_in(broker._buffers) == 3)
        broker.close()
        assert all(future.result(TIMEOUT_S).created for future in futures)
    with pytest.raises(Closed):
        client.push("a", b"")
    assert len(Client(server.broker).pull("a", 9)) == 3
    broker.close()


def test_closing_sends_what_tasks_have_gathered(server: ServerThread):
    async def main() -> None:
        broker = opened(f"{server.url}?{LONG}")
        client = AsyncClient(broker)
        tasks = [asyncio.create_task(client.push("a", b"")) for _ in range(3)]
        await asyncio.sleep(0)
        await client.close()
        async with asyncio.timeout(TIMEOUT_S):
            assert all(reply.created for reply in await asyncio.gather(*tasks))
        with pytest.raises(Closed):
            await client.push("a", b"")

    asyncio.run(main())
    assert len(Client(server.broker).pull("a", 9)) == 3


def test_closing_waits_only_so_long_for_a_server_that_says_nothing():
    with Stranger(read_all) as silent:
        broker = opened(f"tcp://127.0.0.1:{silent.port}?{LONG}&connect_timeout_s=0.2&retry_s=60")
        client = Client(broker)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(client.push, "a", b"")
            wait_for(lambda: waiting_in(broker._buffers) == 1)
            broker.close()
            with pytest.raises((Closed, Unreachable)):
                future.result(TIMEOUT_S)


def test_an_interrupted_thread_takes_its_push_along(server: ServerThread):
    broker = opened(f"{server.url}?{LONG}")
    client = Client(broker)

    def interrupt() -> None:
        wait_for(lambda: waiting_in(broker._buffers) == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.push("a", b"1")
    thread.join(TIMEOUT_S)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.push, "a", b"2")
        wait_for(lambda: waiting_in(broker._buffers) == 1)
        broker.close()
        assert future.result(TIMEOUT_S).created
    assert Client(server.broker).pull("a", 9).payloads == [b"2"]


def waiting_in(buffers: ThreadBuffers) -> int:
    with buffers._changed:
        return sum(len(buffer.places) for buffer in buffers._waiting)


def wait_for(condition: Callable[[], bool]) -> None:
    """For what happens in another thread and tells nobody."""
    pause = threading.Event()
    for _ in range(TIMEOUT_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")
