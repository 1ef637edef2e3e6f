"""What a server needs of a broker, so that any broker can be served.

`ServedBroker` is all that a broker must have. The rest is optional, and None where a broker does not have it:

    turns      commands are begun at once and committed together, once a turn of the event loop
    logs       events can be read, so there are streams, subscriptions and webhooks
    counters   jobs are counted in this process, so there are metrics of jobs, drains and quotas by use
    remote     the queue is kept elsewhere, and several servers may be in front of it: quotas by use ask there, and
               what only one server may do at a time needs a lease there

The local engine has the first three. A broker in front of which several servers run (Redis) has `logs` and `remote`. A
broker that only has `execute_async` has none of them: its commands run as tasks, and what needs the missing part is
refused as `unsupported`, or left out of a report. Nothing here knows a transport.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from stoker.brokers.contract import End
from stoker.model.commands import Command
from stoker.model.errors import Unsupported
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import Limits
from stoker.model.replies import Level, Stats
from stoker.runtime.usage import Used

R = TypeVar("R")


class Turns(Protocol):
    """Commands in turns: `begin` carries each out, one `end` commits them all, and only then do the replies leave."""

    failure: str
    """Why the broker has stopped by itself. Empty while it has not."""

    def begin(self, tenant: str, command: Command[Any], wake: Callable[[Any], object]) -> Any:
        """A reply that must not leave before `end`, or a `Waiter` if the command has to wait.

        `wake(waiter)` is called, from any thread, when `take` has its reply. `waiter.give_up()` ends the waiting: its
        jobs go back as if never pulled.
        """
        ...

    def end(self) -> tuple[Level, int]:
        """Commit the turn: the level that its replies reach, and the ticket that they wait for (0 = nothing)."""
        ...

    def flushing(self, ticket: int) -> Coroutine[Any, Any, None] | None:
        """Wait for the disk. None if there is nothing to wait for. Raises `Unknown` if the disk has failed."""
        ...

    def take(self, waiter: Any) -> tuple[Any, int] | None:
        """The reply of a waiter, or an error, and the ticket that it waits for. None if there is no reply yet."""
        ...

    async def keep_time(self) -> None:
        """Do what is due, until cancelled."""
        ...

    async def execute_as_system_async(self, command: Command[R]) -> R:
        """Carry out a command in the tenant that no client can name."""
        ...

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """Call `tell`, from any thread, if the broker stops by itself."""
        ...


class ServedLogs(Protocol):
    """How far the logs reach that `ReadEvents` reads. Each shard has one, for all tenants or for each of them."""

    @property
    def shards(self) -> int:
        """How many there are, those of other processes included."""
        ...

    def known_end(self, tenant: str, shard: int) -> End | None:
        """How far one log reaches. None if this process has to ask for that: `ends` asks."""
        ...

    async def ends(self, tenant: str) -> Mapping[int, End]:
        """How far all logs reach that a tenant's events are in."""
        ...


class Counters(Protocol):
    """What the jobs of this process come to. Each answer is there at once."""

    @property
    def is_full(self) -> bool:
        """Whether no new jobs are taken for want of disk."""
        ...

    def shard_stats(self) -> list[Stats]:
        """Of each shard, over all tenants."""
        ...

    def sample_history(self) -> Callable[[], None]:
        """Note what has happened in the queues since the last time. The answer stores it, and may run in any thread."""
        ...

    def tenants(self) -> Collection[str]: ...

    def used(self, tenant: str) -> Used: ...

    def added_by(self, tenant: str, command: Command[Any]) -> Used:
        """What a command would add to what the tenant uses."""
        ...

    def refuse_schedules_when(self, is_over: Callable[[str, int], bool]) -> None:
        """A schedule pushes nothing while `is_over(tenant, bytes)`."""
        ...

    def hand_back_all(self) -> int:
        """Return every running job to its queue as if never pulled; how many there were."""
        ...


class RemoteQueue(Protocol):
    """A queue that is kept outside of this process. Several servers may be in front; each knows its own clients."""

    def tenants(self) -> Collection[str]:
        """Those that this server has had commands of."""
        ...

    async def used(self, tenant: str) -> Used: ...

    async def added_by(self, tenant: str, command: Command[Any]) -> Used:
        """What a command would add to what the tenant uses."""
        ...

    def running(self) -> int:
        """How many jobs were pulled through this server and run, as far as it knows."""
        ...

    async def hand_back_all(self) -> int:
        """Return these jobs to their queues as if never pulled; how many there were."""
        ...

    async def hold(self, name: str, owner: str, ttl_ms: int) -> bool:
        """Take a lease that one server has at a time, or renew it: whether `owner` has it now."""
        ...

    async def let_go(self, name: str, owner: str) -> None:
        """End the lease, if `owner` has it."""
        ...


class ServedBroker(Protocol):
    """A broker that a server can be started over."""

    async def execute_async(self, tenant: str, command: Command[R]) -> R:
        """Carry out a command, on the server's event loop. Raises `StokerError`: `Unsupported` for a command that the
        broker does not have.

        Each command is a task of its own; the tasks start in the order in which the commands came in. The server
        cancels a command when its client leaves while it waits: a cancelled `Pull` must not keep any job.
        """
        ...

    def close(self) -> None:
        """Let go of everything. A second call does nothing."""
        ...

    @property
    def name(self) -> str:
        """For refusals: `local`, `redis`."""
        ...

    @property
    def lacks(self) -> frozenset[str]:
        """What it refuses as `unsupported`, as `brokers/contract.py` says it: the server refuses it before the broker
        is asked.
        """
        ...

    @property
    def limits(self) -> Limits: ...

    @property
    def trouble(self) -> str:
        """Why it cannot carry out commands at the moment; empty while it can. `/ready` says so."""
        ...

    @property
    def turns(self) -> Turns | None: ...

    @property
    def logs(self) -> ServedLogs | None: ...

    @property
    def counters(self) -> Counters | None: ...

    @property
    def remote(self) -> RemoteQueue | None: ...

    def now(self) -> int:
        """Milliseconds since 1970, as the broker's deadlines count them."""
        ...

    def set_limits(self, limits: Limits) -> None:
        """Other limits from now on."""
        ...


class NoTurns:
    """The turns of a broker that has none: no command begins in one, so `end` has nothing to commit."""

    failure = ""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def begin(self, *asked: Any, **named: Any) -> Any:
        raise Unsupported.by(self._broker.name, "an answer within the turn of the event loop")

    take = begin

    def end(self) -> tuple[Level, int]:
        return "memory", 0

    def flushing(self, ticket: int) -> None:
        return None

    async def keep_time(self) -> None:
        """The broker keeps its own time."""

    async def execute_as_system_async(self, command: Command[R]) -> R:
        return await self._broker.execute_async(SYSTEM_TENANT, command)

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """It does not stop by itself: `trouble` says how it fares."""
