"""Single pushes of one turn of an event loop are sent together. For each caller the answer is the same as alone."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoker.brokers.remote.loop_pushes import may_gather
from stoker.brokers.remote.opening import open_remote
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import (
    Closed,
    InvalidRequest,
    LimitExceeded,
    QuotaExceeded,
    Unauthenticated,
    Unknown,
    Unreachable,
)
from stoker.model.limits import Limits
from stoker.model.options import Dependency, Options
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.config.tree import ServerConfig
from tests.client.serving import TCP_ONLY, TIMEOUT_S, ServerThread, Stranger
from tests.ports import kept_port

ONE = {"queue": "a", "payload": b""}


class Sent:
    """The commands that a broker has sent."""

    def __init__(self, broker: Any) -> None:
        self.commands: list[c.Command[Any]] = []
        once_async = broker.once_async

        async def counted(tenant: str, command: c.Command[Any]) -> Any:
            self.commands.append(command)
            return await once_async(tenant, command)

        broker.once_async = counted

    @property
    def kinds(self) -> list[str]:
        return [type(command).__name__ for command in self.commands]


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


def in_tasks(url: str, pushes: list[dict[str, Any]], tenants: tuple[str, ...] = ("default",)) -> tuple[list[Any], Any]:
    """Push all in one turn. Returns what each caller got, and the kinds of the commands that were sent."""

    async def main() -> tuple[list[Any], list[str]]:
        broker = open_remote(urlsplit(url), None)
        sent = Sent(broker)
        client = AsyncClient(broker)
        calls = [client.as_tenant(tenant).push(**push) for push in pushes for tenant in tenants]
        async with asyncio.timeout(TIMEOUT_S):
            found = await asyncio.gather(*calls, return_exceptions=True)
        await client.close()
        assert broker_is_done(broker)
        return found, sent.kinds

    return asyncio.run(main())


def broker_is_done(broker: Any) -> bool:
    """No call left anything behind."""
    (connections,) = broker._streams.values()
    pushes = connections.pushes
    return not pushes.count and not pushes._open and not len(connections.deadlines)


# --- what goes together --------------------------------------------------------------------------


def test_pushes_of_one_turn_are_one_batch_in_their_order(server: ServerThread):
    """The first one finds no other, and does not wait."""
    pushes = [{"queue": "a", "payload": b"%d" % number} for number in range(8)]
    replies, kinds = in_tasks(server.url, pushes)
    assert kinds == ["Push", "PushBatch"]
    client, payloads = Client(server.broker), [push["payload"] for push in pushes]
    assert [client.get_job(reply.id).payload for reply in replies] == payloads
    assert client.pull("a", 8).payloads == payloads


def test_a_caller_that_is_alone_sends_pushes(server: ServerThread):
    async def main() -> list[str]:
        broker = open_remote(urlsplit(server.url), None)
        sent = Sent(broker)
        async with AsyncClient(broker) as client:
            for _ in range(3):
                assert (await client.push("a", b"")).created
        return sent.kinds

    assert asyncio.run(main()) == ["Push"] * 3


def test_options_of_their_own_stay_their_own(server: ServerThread):
    pushes = [ONE | {"priority": number} for number in range(4)]
    replies, kinds = in_tasks(server.url, pushes)
    assert kinds == ["Push", "PushBatch"]
    client = Client(server.broker)
    assert [client.get_job(reply.id).options.priority for reply in replies] == [0, 1, 2, 3]


def test_queues_and_durabilities_go_apart(server: ServerThread):
    pushes: list[dict[str, Any]] = [{"queue": queue, "payload": b""} for queue in "abb" for _ in range(2)]
    pushes += [ONE | {"durability": "memory"}] * 2
    replies, kinds = in_tasks(server.url, pushes)
    assert sorted(kinds) == ["Push", "Push", "PushBatch", "PushBatch"]
    assert all(reply.created for reply in replies)


def test_tenants_go_apart(server: ServerThread):
    in_tasks(server.url, [ONE, ONE], ("one", "two"))
    assert [len(Client(server.broker, tenant).pull("a", 9)) for tenant in ("one", "two")] == [2, 2]


def test_more_than_one_batch_has_room_for(server: ServerThread, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.brokers.remote.loop_pushes.BATCH_JOBS_MAX", 3)
    monkeypatch.setattr("stoker.brokers.remote.loop_pushes.BATCH_BYTES_MAX", 10)
    pushes = [{"queue": "a", "payload": b"%06d" % number} for number in range(4)]
    pushes += [{"queue": "b", "payload": b"%d" % number} for number in range(7)]
    replies, kinds = in_tasks(server.url, pushes)
    assert kinds.count("PushBatch") == 2
    assert len({reply.id for reply in replies}) == 11
    client = Client(server.broker)
    assert [*client.pull("a", 9).payloads, *client.pull("b", 9).payloads] == [push["payload"] for push in pushes]


@pytest.mark.parametrize(
    "push",
    [
        c.Push("a", bytes(70_000)),
        c.Push("a", b"", Options(depends_on=(Dependency(item=0),))),
        c.Push("a", "text"),  # type: ignore[arg-type]
        c.Push("a", b"", {}),  # type: ignore[arg-type]
        c.Push(7, b""),  # type: ignore[arg-type]
        c.Push("a", b"", durability=[]),  # type: ignore[arg-type]
    ],
)
def test_what_means_something_else_in_a_batch_goes_alone(push: c.Push):
    assert not may_gather("default", push)
    assert may_gather("default", c.Push("a", b""))


# --- to each caller its own answer ---------------------------------------------------------------


def test_a_refused_push_raises_for_its_caller_only(server: ServerThread):
    pushes: list[dict[str, Any]] = [ONE | {"priority": number} for number in (1, 2, 3)]
    pushes.insert(2, ONE | {"max_attempts": -1})
    replies, _ = in_tasks(server.url, pushes)
    assert [isinstance(reply, InvalidRequest) for reply in replies] == [False, False, True, False]
    assert len(Client(server.broker).pull("a", 9)) == 3


def test_what_cannot_even_be_sent_is_refused_for_its_caller_only(server: ServerThread):
    replies, _ = in_tasks(server.url, [ONE | {"priority": priority} for priority in (1, 2, object(), 3)])
    assert [isinstance(reply, InvalidRequest) for reply in replies] == [False, False, True, False]
    assert len(Client(server.broker).pull("a", 9)) == 3


def test_an_invalid_queue_is_refused_for_each_of_its_callers(server: ServerThread):
    replies, _ = in_tasks(server.url, [{"queue": "no name!", "payload": b""}] * 4)
    assert all(isinstance(reply, InvalidRequest) for reply in replies)
    assert len({id(reply) for reply in replies}) == 4


def test_a_duplicate_is_told_to_the_caller_that_sent_it(server: ServerThread):
    replies, _ = in_tasks(server.url, [ONE | {"unique_key": "k"}] * 3)
    assert [(reply.created, reply.duplicate_by) for reply in replies] == [
        (True, None),
        (False, "unique_key"),
        (False, "unique_key"),
    ]
    assert len({reply.id for reply in replies}) == 1


def settings(**more: Any) -> ServerConfig:
    return ServerConfig(tcp=TCP_ONLY.tcp, http=TCP_ONLY.http, grpc=TCP_ONLY.grpc, **more)


def test_as_many_as_the_quota_lets_in_get_in():
    with ServerThread(settings(auth=AuthSettings(tenants={"*": Quotas(waiting_jobs=5)}))) as server:
        replies, _ = in_tasks(server.url, [ONE] * 8)
        assert sum(isinstance(reply, QuotaExceeded) for reply in replies) == 3
        assert len(Client(server.broker).pull("a", 9)) == 5


def test_a_payload_over_the_limit_is_refused_for_its_caller_only():
    with ServerThread(settings(limits=Limits(payload_bytes_max=10))) as server:
        replies, _ = in_tasks(server.url, [{"queue": "a", "payload": bytes(size)} for size in (1, 2, 11, 3)])
        assert [isinstance(reply, LimitExceeded) for reply in replies] == [False, False, True, False]


def test_a_server_that_takes_only_small_batches_gets_them():
    with ServerThread(settings(limits=Limits(batch_jobs_max=3))) as server:
        replies, _ = in_tasks(server.url, [ONE] * 9)
        assert len({reply.id for reply in replies}) == 9


def test_a_client_without_permission_is_told_so_once():
    with ServerThread(settings(auth=AuthSettings(tokens=("t",)))) as server:
        replies, kinds = in_tasks(server.url, [ONE] * 4)
        assert all(isinstance(reply, Unauthenticated) for reply in replies)
        assert kinds == ["Push", "PushBatch"]


def test_a_server_that_is_not_there_is_told_to_each_caller():
    with kept_port() as port:
        replies, _ = in_tasks(f"tcp://127.0.0.1:{port}?retry_s=0", [ONE] * 4)
    assert all(isinstance(reply, Unreachable) for reply in replies)
    assert len({id(reply) for reply in replies}) == 4


# --- many at once --------------------------------------------------------------------------------


def test_nothing_is_lost_or_doubled_among_many_callers(server: ServerThread):
    async def main() -> list[list[int]]:
        async with AsyncClient(open_remote(urlsplit(server.url), None)) as client:

            async def produce(caller: int) -> list[int]:
                return [(await client.push(f"q{n % 3}", b"%d.%d" % (caller, n))).id for n in range(50)]

            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.gather(*map(produce, range(8)))

    ids = [made for each in asyncio.run(main()) for made in each]
    assert len(set(ids)) == 400
    client = Client(server.broker)
    payloads = [payload for number in range(3) for payload in client.pull(f"q{number}", 400).payloads]
    assert len(payloads) == len(set(payloads)) == 400
    for caller in range(8):  # each caller's own order within a queue
        mine = [int(p.split(b".")[1]) for p in payloads if p.startswith(b"%d." % caller)]
        assert [n for queue in range(3) for n in mine if n % 3 == queue] == [
            n for q in range(3) for n in range(q, 50, 3)
        ]


# --- lost answers --------------------------------------------------------------------------------


class Forgetful:
    """A line to a server that breaks when the answer to a batch comes, as often as it is told to."""

    def __init__(self, port: int, times: int, of: bytes = b"push_batch") -> None:
        self._port, self._left, self._of = port, times, of
        self.lost = 0

    def __call__(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            while request := client.recv(1 << 20):
                server.sendall(request)
                answer = server.recv(1 << 20)
                if self._of in request and self._left:
                    self._left -= 1
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)


def test_a_batch_whose_answer_was_lost_is_sent_again_and_makes_no_second_jobs(server: ServerThread):
    line = Forgetful(server.port, times=2)
    with Stranger(line) as relay:
        replies, _ = in_tasks(f"tcp://127.0.0.1:{relay.port}", [ONE] * 5)
    assert line.lost == 2
    assert len({reply.id for reply in replies}) == 5
    assert len(Client(server.broker).pull("a", 9)) == 5


def test_without_resending_no_push_shares_the_unknown_outcome_of_a_batch(server: ServerThread):
    with Stranger(Forgetful(server.port, times=1, of=b"push")) as relay:
        replies, kinds = in_tasks(f"tcp://127.0.0.1:{relay.port}?resend=false", [ONE] * 5)
    assert kinds == ["Push"] * 5
    assert Unknown in [type(reply) for reply in replies]


# --- leaving -------------------------------------------------------------------------------------


def test_a_cancelled_caller_takes_its_push_along(server: ServerThread):
    """If it has not been sent yet."""

    async def main() -> None:
        async with AsyncClient(open_remote(urlsplit(server.url), None)) as client:
            tasks = [asyncio.create_task(client.push("a", name)) for name in (b"1", b"2", b"3")]
            asyncio.get_running_loop().call_soon(tasks[1].cancel)  # in the turn in which they push
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.gather(*tasks, return_exceptions=True)
            assert tasks[1].cancelled()

    asyncio.run(main())
    assert Client(server.broker).pull("a", 9).payloads == [b"1", b"3"]


def test_a_closed_client_refuses_what_it_has_not_sent(server: ServerThread):
    async def main() -> None:
        client = AsyncClient(open_remote(urlsplit(server.url), None))
        await client.push("a", b"before")
        tasks = [asyncio.create_task(client.push("a", b"")) for _ in range(3)]
        asyncio.get_running_loop().call_soon(client.broker.close)
        async with asyncio.timeout(TIMEOUT_S):
            found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found[1:]] == [Closed] * 2
        with pytest.raises(Closed):
            await client.push("a", b"")

    asyncio.run(main())
    assert b"" not in Client(server.broker).pull("a", 9).payloads[2:]
