"""The processes of one server, as one of them sees them: which one has a command's shard, and what they ask each other.

Commands, and parts of them, go through each process's own dispatcher, so that requests from other processes share the
turn with all others. Questions about the servers themselves are sorted by topic; each topic has its own handler
(`answers`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec

from stoker.brokers.contract import End
from stoker.brokers.local import LocalBroker
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, Unavailable
from stoker.runtime import process_requests
from stoker.runtime.multiprocess_transactions import ANY_TENANT
from stoker.runtime.peer_lost import PeerLost, lost
from stoker.runtime.process_router import ProcessRouter
from stoker.server.dispatcher import Dispatcher
from stoker.server.processes.links import ProcessLinks, ProcessSeat
from stoker.server.processes.ways import Ways

R = TypeVar("R")
Answer = Callable[[str, bytes], Awaitable[Any]]
"""Takes a tenant and the question; returns something that can be encoded."""

BEFORE_ALL = frozenset((process_requests.Letters, process_requests.TakeLetters, process_requests.Arrived))
"""What a returning process does first: it receives what was decided while it was away."""
HEARD_S: Final = 10.0
"""How long a process that took a seat waits to hear what all other seats have decided. Then it gives the seat back."""

_encode = msgspec.msgpack.Encoder().encode


class Team:
    def __init__(self, dispatcher: Dispatcher, seat: ProcessSeat, ways: Ways, broker: LocalBroker) -> None:
        self.seat = seat
        self.links = ProcessLinks(seat, ways)
        self.siblings: Collection[int] = range(seat.seats)
        """The processes of this node: its metrics are theirs."""
        self.trouble = ""
        """Why this node can take no seat: PostgreSQL does not answer it. The supervisor tells, also where there is no
        seat that would notice.
        """
        self.answers: dict[str, Answer] = {"ends": self._own_ends}
        at_dispatcher = _AtDispatcher(self, dispatcher, broker)
        self.router = ProcessRouter(
            at_dispatcher,
            self.links,
            seat.number,
            seat.seats,
            dispatcher.shards,
            broker.settings.limits,
            typed=True,
            submit=dispatcher.submit_here,
        )
        self.links.receiver = self.router
        broker.runtime.letters = self.router.has_letters
        self._dispatcher = dispatcher
        dispatcher.team = self

    async def start(self) -> None:
        """Find the others and receive their earlier messages; only then may time pass here."""
        await self.links.start()
        try:
            async with asyncio.timeout(HEARD_S if self.seat.can_move else None):
                await self.router.is_ready.wait()
        except TimeoutError:
            missing = ", ".join(map(str, sorted(self.router.awaited)))
            raise Unavailable(f"seat {self.seat.number} has not heard of seat {missing} for {HEARD_S:g} s") from None

    async def close(self) -> None:
        await self.router.close()
        await self.links.close()

    # --- shards --------------------------------------------------------------------------------------

    def has(self, shard: int) -> bool:
        return self.router.at(shard) == self.router.me

    # --- questions -----------------------------------------------------------------------------------

    async def ask(
        self, process: int, topic: str, body: Any = None, tenant: str = ANY_TENANT, *, changes: bool
    ) -> bytes:
        """Ask one process. Raises `Unavailable` if it is not there, `Unknown` if it may have done something."""
        try:
            reply = await self.router.ask(process, tenant, process_requests.Inquire(topic, _encode(body)))
        except PeerLost as gone:
            raise lost(gone.process, gone.sent and changes) from None
        return bytes(reply)

    async def ask_all(self, topic: str, body: Any = None, tenant: str = ANY_TENANT) -> dict[int, bytes]:
        """Ask all processes that are there: those with shards, and this one."""
        everywhere = dict.fromkeys((*range(self.seat.seats), self.seat.number))
        questions = dict.fromkeys(everywhere, process_requests.Inquire(topic, _encode(body)))
        replies = await self.router.ask_all(tenant, questions)
        return {process: reply for process, reply in zip(questions, replies, strict=True) if isinstance(reply, bytes)}

    async def answer(self, tenant: str, question: process_requests.Inquire) -> bytes:
        found = self.answers.get(question.topic)
        if found is None:
            raise InvalidRequest(f"this process cannot answer questions about {question.topic!r}")
        return _encode(await found(tenant, question.body))

    # --- logs ----------------------------------------------------------------------------------------

    async def ends(self, tenant: str) -> Mapping[int, End]:
        """How far all logs reach. Raises `Unavailable` if a process is not there."""
        found: dict[int, End] = {}
        for process in self.router.processes:
            found |= _ends(await self.ask(process, "ends", tenant=tenant, changes=False))
        return found

    async def _own_ends(self, tenant: str, body: bytes) -> Any:
        return self._dispatcher.own_ends(tenant)


_ends = msgspec.msgpack.Decoder(dict[int, End]).decode


class _AtDispatcher:
    """This process's own shards, for its `ProcessRouter`."""

    def __init__(self, team: Team, dispatcher: Dispatcher, broker: LocalBroker) -> None:
        self._team = team
        self._dispatcher = dispatcher
        self._broker = broker

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) is process_requests.Inquire:
            return await self._team.answer(tenant, command)  # type: ignore[return-value]
        if type(command) not in BEFORE_ALL:
            await self._team.router.is_ready.wait()
        return await self._dispatcher.call_here(tenant, command)

    async def execute_as_system_async(self, command: c.Command[R]) -> R:
        await self._team.router.is_ready.wait()
        return await self._broker.execute_as_system_async(command)
