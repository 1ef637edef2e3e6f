"""Several brokers over one dealt directory, in one process: what they say to each other goes as bytes, in order.

Their clock moves when all are idle and at least one waits: then to the earliest time that one of them waits for.
A process can die between any two messages: what it had not written is gone, and so is what it was asked.
"""

import asyncio
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from stoker.brokers.local import LocalBroker, LocalSettings, open_part, open_sqlite
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.resharding import Root, open_root
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, Unavailable
from stoker.runtime.process_messages import PeerAsk, UnreadableMessage, from_bytes, to_bytes
from stoker.runtime.process_router import ProcessRouter
from stoker.testing import FakeClock
from tests.crash.restarted import fresh_directory

R = TypeVar("R")

POLL_S = 0.0005
"""Between two looks at those who wait for a thread, and not for the clock."""


class SharedClock:
    """Time for several brokers at once."""

    def __init__(self) -> None:
        self._now_ms = FakeClock().now_ms()
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self._runners = 0
        self.when_idle: Callable[[], bool] = lambda: False
        """Called when nothing can happen any more before the next time that one waits for; true if it did something."""

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def wait(self, signal: threading.Event, until_ms: int) -> None:
        raise NotImplementedError("these brokers are asked asynchronously")

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        sleeper = (until_ms, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        heard = asyncio.ensure_future(signal.wait())
        try:
            await asyncio.wait({heard, sleeper[1]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sleepers.remove(sleeper)
            heard.cancel()

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Do something, and let time pass where nothing else can happen."""
        loop: Any = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        self._runners += 1
        try:
            while not task.done():
                await asyncio.sleep(0)
                if task.done() or len(loop._ready) >= self._runners:
                    continue  # somebody else has something to do
                if self.when_idle():
                    continue
                if self._sleepers:
                    self._wake_first()
                elif self._runners == 1:
                    await asyncio.wait({task}, timeout=POLL_S)
            return task.result()
        finally:
            self._runners -= 1
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _wake_first(self) -> None:
        self._now_ms = max(self._now_ms, min(until for until, _ in self._sleepers))
        for until, future in self._sleepers:
            if until <= self._now_ms and not future.done():
                future.set_result(None)


class Node:
    """One of the processes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.broker: LocalBroker | None = None
        self.router: ProcessRouter | None = None


class Wire:
    """The way from one node to the others."""

    def __init__(self, world: "Processes", sender: int, life: int) -> None:
        self._world, self._sender, self._life = world, sender, life

    def send(self, process: int, data: bytes) -> bool:
        return self._world.carry(self._sender, self._life, process, data)


class Processes:
    """All nodes, their directory and their clock."""

    def __init__(
        self, settings: LocalSettings, processes: int = 2, path: Path | None = None, clock: SharedClock | None = None
    ) -> None:
        assert settings.shards is not None
        self.settings, self.shards = settings, settings.shards
        self.clock = clock or SharedClock()
        self.root: Root | None = None
        self.prepare(processes, path)
        self.nodes = [Node(number) for number in range(processes)]
        self.lives = [0] * processes
        self.messages = 0
        self.die_at: tuple[int, int] | None = None
        """Before which message, counted from the beginning, which node dies."""
        self._loop = asyncio.new_event_loop()
        self._turn = 0
        self.call(self._start_all())

    def prepare(self, processes: int, path: Path | None) -> None:
        """Make the place where everything is kept."""
        self.path = path or fresh_directory()
        if self.shards > 1:
            self.root = open_root(self.path, processes, self.shards)

    def clear(self, keep: bool) -> None:
        """Let go of it, in the end."""
        if self.root is not None:
            self.root.close()
        if not keep:
            shutil.rmtree(self.path)

    # --- nodes -----------------------------------------------------------------------------------

    @property
    def owners(self) -> list[Node]:
        return self.nodes[: self.shards]

    def part(self, number: int) -> Path:
        return self.path if self.root is None else self.root.parts[number]

    async def _start_all(self) -> None:
        for node in self.nodes:
            self.start(node)
        for node in self.nodes:
            self.connect(node)

    def start(self, node: Node) -> None:
        if node.number < self.shards:
            node.broker = self.open_broker(node.number)
        self.join(node)

    def join(self, node: Node) -> None:
        """Give a node a router, and so a voice."""
        wire = Wire(self, node.number, self.lives[node.number])
        local: Any = node.broker
        node.router = ProcessRouter(local, wire, node.number, len(self.nodes), self.shards, self.settings.limits)
        if node.broker is not None:
            node.broker.runtime.letters = node.router.has_letters

    def open_broker(self, number: int) -> LocalBroker:
        path = str(self.part(number))
        if self.root is None:
            return open_sqlite(path, {}, self.settings, self.clock)
        return open_part(path, self.settings, self.clock)

    def connect(self, node: Node) -> None:
        """A node that has started finds the others, and they find it."""
        for other in self.nodes:
            if other is not node and other.router is not None and node.router is not None:
                other.router.peer_up(node.number)
                node.router.peer_up(other.number)

    def die(self, number: int) -> None:
        """As if killed: whatever it had written stays, everything else goes. It is started again at once."""
        node = self.nodes[number]
        assert node.broker is not None and node.router is not None  # noqa: PT018
        store = node.broker.store
        assert isinstance(store, DirectoryStore)
        assert store.upkeep is not None
        with store.upkeep.work_lock, node.broker.guard:
            image = self.path / "image"
            shutil.copytree(store.directory.path, image)
        self.part_from_all(node)
        node.broker.close()
        node.router, node.broker = None, None
        part = self.part(number)
        shutil.rmtree(part)
        image.rename(part)

    def part_from_all(self, node: Node) -> None:
        """A node is cut off: no other node hears it, and their open requests to it lose their connection."""
        assert node.router is not None
        self.lives[node.number] += 1
        for other in self.nodes:
            if other is not node and other.router is not None:
                other.router.peer_down(node.number)
            node.router.peer_down(other.number)

    def restart_dead(self) -> None:
        async def restart() -> None:
            for node in self.nodes:
                if node.router is None:
                    self.start(node)
                    self.connect(node)

        self.call(restart())

    # --- messages --------------------------------------------------------------------------------

    def carry(self, sender: int, life: int, to: int, data: bytes) -> bool:
        if life != self.lives[sender]:
            return False  # the dead do not speak
        self.messages += 1
        self.disturb()
        if life != self.lives[sender]:
            return False
        receiver = self.nodes[to]
        if receiver.router is None:
            return False
        asyncio.get_running_loop().call_soon(self._arrive, sender, life, to, self.lives[to], data)
        return True

    def disturb(self) -> None:
        """Do what is to happen before this message."""
        if self.die_at is not None and self.messages == self.die_at[0]:
            self.die(self.die_at[1])

    def _arrive(self, sender: int, life: int, to: int, receiver_life: int, data: bytes) -> None:
        receiver = self.nodes[to].router
        if receiver is not None and (life, receiver_life) == (self.lives[sender], self.lives[to]):
            receiver.receive(sender, data)

    # --- commands --------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Carry out something on a loop of our own, until nobody has anything left to do."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is None:
            return self._loop.run_until_complete(self._settled(work))
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(self._caught(work)))
        thread.start()
        thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]  # type: ignore[no-any-return]

    def _caught(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run_until_complete(self._settled(work))
        except BaseException as error:
            return error

    async def _settled(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            return await self.clock.run(work)
        finally:
            await self.settle()

    async def settle(self) -> None:
        """Until nobody does anything in the background."""
        loop: Any = asyncio.get_running_loop()
        while True:
            routers = [node.router for node in self.nodes if node.router is not None]
            busy = {task for router in routers for task in router._background}
            if not busy and not loop._ready:
                break
            await asyncio.wait(busy | {asyncio.ensure_future(asyncio.sleep(0))}, return_when=asyncio.FIRST_COMPLETED)

    def at(self, number: int) -> ProcessRouter:
        router = self.nodes[number].router
        assert router is not None
        return router

    def router_for(self, tenant: str, command: c.Command[Any]) -> ProcessRouter:
        """Commands arrive everywhere in turn; where there is one shard, at the process that does not have it.

        Those with other types in their depths than they should have cannot come over any wire: they come to where
        they belong, to hear what is wrong with them.
        """
        self._turn += 1
        try:
            from_bytes(to_bytes(PeerAsk(0, "", command)))
        except (UnreadableMessage, InvalidRequest):
            return self.at(self.at(0).concerns_one(tenant, command) or 0)
        if self.shards == 1:
            return self.at(-1)
        router = self.nodes[self._turn % len(self.nodes)].router
        if router is None:
            raise Unavailable("nobody listens there")
        return router

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        return self.call(self.router_for(tenant, command).execute_async(tenant, command))

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        return await self.clock.run(self.router_for(tenant, command).execute_async(tenant, command))

    def close(self) -> None:
        """What a client closes: the world has its own end."""
        for node in self.owners:
            if node.broker is not None:
                node.broker.close()

    # --- for the suite ---------------------------------------------------------------------------

    @property
    def broker(self) -> "Processes":
        return self

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for node in self.owners:
            if node.broker is not None:
                node.broker.advance()


class Backing:
    """The same for the conformance suite, with an end."""

    def __init__(self, settings: LocalSettings) -> None:
        self.broker = Processes(settings)

    @property
    def now(self) -> int:
        return self.broker.now

    def advance(self, ms: int) -> None:
        self.broker.advance(ms)

    def close(self) -> None:
        end(self.broker)


def end(world: Processes, keep: bool = False) -> None:
    async def stop() -> None:
        for node in world.nodes:
            if node.router is not None:
                await node.router.close()

    world.call(stop())
    world.close()
    world._loop.close()
    world.clear(keep)
