"""The processes of one server, as one of them sees them: which one has a command's shard, and what they ask each other.

Commands, and parts of them, go through each process's own desk, so that requests from other processes share the turn
with all others. Questions about the servers themselves are sorted by topic; each topic has its own handler (`answers`).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from stoker.brokers.contract import End
from stoker.brokers.local import LocalBroker
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.runtime import parts
from stoker.runtime.gone import Gone, lost
from stoker.runtime.plans_transactions import NOBODY
from stoker.runtime.spread import Spread
from stoker.server.desk import Desk
from stoker.server.processes.links import Links, Seat

R = TypeVar("R")
Answer = Callable[[str, bytes], Awaitable[Any]]
"""Takes a tenant and the question; returns something that can be encoded."""

BEFORE_ALL = frozenset((parts.Letters, parts.TakeLetters, parts.Arrived))
"""What a returning process does first: it receives what was decided while it was away."""

_encode = msgspec.msgpack.Encoder().encode


class Team:
    def __init__(self, desk: Desk, seat: Seat, broker: LocalBroker) -> None:
        self.seat = seat
        self.links = Links(seat)
        self.answers: dict[str, Answer] = {"ends": self._own_ends}
        at_desk = _AtDesk(self, desk, broker)
        self.spread = Spread(
            at_desk,
            self.links,
            seat.number,
            seat.processes,
            desk.shards,
            broker.settings.limits,
            typed=True,
            submit=desk.submit_here,
        )
        self.links.receiver = self.spread
        broker.runtime.letters = self.spread.has_letters
        self._desk = desk
        desk.team = self

    async def start(self) -> None:
        """Find the others and receive their earlier messages; only then may time pass here."""
        await self.links.start()
        await self.spread.is_ready.wait()

    async def close(self) -> None:
        await self.spread.close()
        await self.links.close()

    # --- shards --------------------------------------------------------------------------------------

    def has(self, shard: int) -> bool:
        return self.spread.at(shard) == self.spread.me

    # --- questions -----------------------------------------------------------------------------------

    async def ask(self, process: int, topic: str, body: Any = None, tenant: str = NOBODY, *, changes: bool) -> bytes:
        """Ask one process. Raises `Unavailable` if it is not there, `Unknown` if it may have done something."""
        try:
            reply = await self.spread.ask(process, tenant, parts.Inquire(topic, _encode(body)))
        except Gone as gone:
            raise lost(gone.process, gone.sent and changes) from None
        return bytes(reply)

    async def ask_all(self, topic: str, body: Any = None, tenant: str = NOBODY) -> dict[int, bytes]:
        """Ask all processes that are there."""
        questions = dict.fromkeys(range(self.seat.processes), parts.Inquire(topic, _encode(body)))
        replies = await self.spread.ask_all(tenant, questions)
        return {process: reply for process, reply in zip(questions, replies, strict=True) if isinstance(reply, bytes)}

    async def answer(self, tenant: str, question: parts.Inquire) -> bytes:
        found = self.answers.get(question.topic)
        if found is None:
            raise InvalidRequest(f"this process cannot answer questions about {question.topic!r}")
        return _encode(await found(tenant, question.body))

    # --- logs ----------------------------------------------------------------------------------------

    async def ends(self) -> Mapping[int, End]:
        """How far all logs reach. Raises `Unavailable` if a process is not there."""
        found: dict[int, End] = {}
        for process in self.spread.processes:
            found |= _ends(await self.ask(process, "ends", changes=False))
        return found

    async def end_of(self, shard: int) -> End:
        return _ends(await self.ask(self.spread.at(shard), "ends", changes=False))[shard]

    async def _own_ends(self, tenant: str, body: bytes) -> Any:
        return self._desk.own_ends()


_ends = msgspec.msgpack.Decoder(dict[int, End]).decode


class _AtDesk:
    """This process's own shards, for its `Spread`."""

    def __init__(self, team: Team, desk: Desk, broker: LocalBroker) -> None:
        self._team = team
        self._desk = desk
        self._broker = broker

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) is parts.Inquire:
            return await self._team.answer(tenant, command)  # type: ignore[return-value]
        if type(command) not in BEFORE_ALL:
            await self._team.spread.is_ready.wait()
        return await self._desk.call_here(tenant, command)

    async def execute_as_system_async(self, command: c.Command[R]) -> R:
        await self._team.spread.is_ready.wait()
        return await self._broker.execute_as_system_async(command)
