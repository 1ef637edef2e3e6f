"""Connections to Redis, on which hiredis reads and writes.

A connection carries a command out once and repeats nothing. Threads use a connection one at a time; an event loop
shares one, on which commands follow each other without waiting for the answers.
"""

import asyncio
import re
import select
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

try:
    import hiredis
except ImportError:
    from stoker.model.errors import InvalidRequest

    raise InvalidRequest("redis:// needs hiredis: pip install 'stoker[redis]'") from None

from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.brokers.remote.forking import leave_to_parent
from stoker.brokers.remote.links import LinkLost, connected_to, tls_context
from stoker.brokers.remote.pool import CLOSED, LinkPool
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.model.errors import Closed, StokerError, Unauthenticated, Unreachable

READ_BYTES = 65_536
Words = Sequence[str | bytes | int]
INSIDE = re.compile(r"[ :-]([A-Z]{3,}) ")
"""Where a script ends by an error, Redis writes the script's name and line before it."""


class RedisRefusal(Exception):
    """An error that Redis answered. Its first word is a code, or that of an error inside a script."""

    @property
    def code(self) -> str:
        first = str(self).partition(" ")[0]
        inside = INSIDE.search(str(self))
        return inside[1] if inside is not None and (first == "ERR" or first.startswith("@")) else first


class RedisNode(ServerAddress, frozen=True):
    """A server: a host and a port, or the path of a Unix socket."""

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"redis+unix://{self.host}"
        return f"{'rediss' if self.is_encrypted else 'redis'}://{self.host}:{self.port}"

    def neighbour(self, host: str, port: int) -> "RedisNode":
        """Another server of the same cluster. One that does not know its own name says none."""
        return RedisNode(self.scheme, host or self.host, port)


def node_of(target: Target) -> RedisNode:
    if not target.port:
        return RedisNode("unix", target.host, 0)
    return RedisNode("tcps" if target.is_encrypted else "tcp", target.host, target.port)


class Way:
    """How connections to one server are made."""

    def __init__(self, node: RedisNode, target: Target, settings: RedisSettings) -> None:
        self.node, self.timeout_s, self.idle_max = node, settings.timeout_s, settings.connections_max
        self.calls_max = settings.calls_max
        self.socket_settings = RemoteSettings(
            connect_timeout_s=settings.connect_timeout_s,
            **{name: getattr(settings, name) for name in ("ca", "cert", "key", "verify")},
        )
        self.first_words: list[Words] = []
        if target.password is not None:
            user = () if target.username is None else (target.username,)
            self.first_words.append(("AUTH", *user, target.password))
        if target.database:
            self.first_words.append(("SELECT", target.database))

    def not_connected(self, error: Exception) -> StokerError:
        said = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        if isinstance(error, RedisRefusal) and error.code in ("NOAUTH", "WRONGPASS", "ERR"):
            return Unauthenticated(f"the Redis at {self.node} refuses user, password or database: {said}")
        return Unreachable(f"no Redis answers at {self.node}: {said}; is it running, and is the URL right?")


def packed(words: Words) -> bytes:
    return hiredis.pack_command(tuple(words))  # type: ignore[arg-type, no-any-return]


def reader() -> Any:
    return hiredis.Reader(replyError=RedisRefusal, protocolError=ConnectionError)


class BlockingRedisLink:
    """A connection for one thread at a time."""

    def __init__(self, way: Way) -> None:
        self._timeout_s = way.timeout_s
        self._reader = reader()
        self._poll = select.poll()
        try:
            self._socket = connected_to(way.node, way.socket_settings)
        except (OSError, ValueError) as error:
            raise way.not_connected(error) from None
        self._poll.register(self._socket, select.POLLIN)
        try:
            for words in way.first_words:
                self.call(words)
        except (RedisRefusal, LinkLost) as error:
            self.close()
            raise way.not_connected(error) from None
        self._socket.settimeout(self._timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether it can be used again: a server that is gone has closed it, and nothing else comes unasked."""
        return not self.is_readable(0)

    def is_readable(self, timeout_s: float) -> bool:
        return bool(self._poll.poll(timeout_s * 1_000))

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(self, words: Words) -> Any:
        self.send(words)
        return self.receive()

    def send(self, words: Words) -> None:
        try:
            self._socket.sendall(packed(words))
        except OSError as error:
            raise LinkLost(f"the connection to Redis broke: {error}", sent=True) from None

    def receive(self) -> Any:
        try:
            while (answer := self._reader.gets()) is False:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise ConnectionError("Redis closed it")
                self._reader.feed(data)
        except TimeoutError:
            raise LinkLost(f"Redis did not answer within {self._timeout_s:g} s", sent=True) from None
        except OSError as error:
            raise LinkLost(f"the connection to Redis broke: {error}", sent=True) from None
        if isinstance(answer, RedisRefusal):
            raise answer
        return answer

    def close(self) -> None:
        self.shut()
        self._socket.close()

    def shut(self) -> None:
        """From another thread: let the one that waits for an answer go on."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def forget(self) -> None:
        """In a forked process: leave the connection to the parent."""
        leave_to_parent(self._socket.fileno())


class AsyncRedisLink(asyncio.Protocol):
    """The connection of an event loop, for any number of calls at once: Redis answers in order."""

    def __init__(self, lost: "Callable[[AsyncRedisLink], None]") -> None:
        self._lost = lost
        self._transport: Any = None
        self._reader = reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self.is_alive = True

    @classmethod
    async def connect(cls, way: Way, lost: "Callable[[AsyncRedisLink], None]") -> "AsyncRedisLink":
        loop = asyncio.get_running_loop()
        link = cls(lost)
        node, settings = way.node, way.socket_settings
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                if node.scheme == "unix":
                    await loop.create_unix_connection(lambda: link, node.host)
                else:
                    tls = tls_context(settings) if node.is_encrypted else None
                    await loop.create_connection(lambda: link, node.host, node.port, ssl=tls)
                for words in way.first_words:
                    await link.call(words)
        except BaseException as error:
            link.close()
            if isinstance(error, OSError | ValueError | LinkLost | RedisRefusal):
                raise way.not_connected(error) from None
            raise
        return link

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if not self.is_alive:
            transport.abort()

    def call(self, words: Words) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        if not self.is_alive:
            future.set_exception(LinkLost("the connection to Redis is closed", sent=False))
            return future
        self._waiting.append(future)
        self._transport.write(packed(words))
        return future

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                future = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(answer, RedisRefusal):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except (ConnectionError, IndexError) as error:  # this is no Redis
            self.close(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc or "Redis closed it"))

    def close(self, why: str = CLOSED) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        self._lost(self)
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(LinkLost(f"the connection to Redis broke: {why}", sent=True))

    def forget(self) -> None:
        """In a forked process: leave the connection to the parent."""
        leave_to_parent(self._transport.get_extra_info("socket").fileno())

    def drop(self) -> None:
        """The event loop is closed and can close nothing any more: close the socket itself."""
        bound = getattr(self._transport, "_sock", None)
        if bound is not None:
            bound.close()
            self._transport._sock = None


class Pool(LinkPool[BlockingRedisLink]):
    """The connections of threads to one Redis."""

    def __init__(self, way: Way) -> None:
        super().__init__(partial(BlockingRedisLink, way), way.idle_max)

    def call(self, words: Words, asking: bool = False) -> Any:
        link = self.take()
        try:
            if asking:
                link.call(("ASKING",))
            answer = link.call(words)
        except RedisRefusal:
            self.give_back(link)
            raise
        except BaseException:
            self.drop(link)
            raise
        self.give_back(link)
        return answer


class Stream:
    """The connection of one event loop to one server, made when it is needed."""

    def __init__(self, way: Way, loop: asyncio.AbstractEventLoop) -> None:
        self._way = way
        self._loop = loop
        self._link: AsyncRedisLink | None = None
        self._is_over = False
        self._connecting = asyncio.Lock()
        self._ending: AsyncGenerator[None, None] | None = None
        self._turns = asyncio.Semaphore(way.calls_max)

    async def begin(self, words: Words, asking: bool = False) -> "tuple[AsyncRedisLink, asyncio.Future[Any]]":
        """Send a command. While too many are under way, wait: calls are sent in the order in which they came."""
        if self._turns.locked():
            await self._wait_for_turn()
        else:
            await self._turns.acquire()
        try:
            link = await self.take()
        except BaseException:
            self._turns.release()
            raise
        if asking:
            link.call(("ASKING",))
        future = link.call(words)
        future.add_done_callback(lambda _: self._turns.release())
        return link, future

    async def _wait_for_turn(self) -> None:
        try:
            async with asyncio.timeout(self._way.timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            raise LinkLost(
                f"Redis is too slow: {self._way.calls_max} calls of this event loop have been before this one for"
                f" {self._way.timeout_s:g} s (?calls_max=N in the URL sets how many may be under way)",
                sent=False,
            ) from None

    async def take(self) -> AsyncRedisLink:
        if self._link is not None:
            return self._link
        async with self._connecting:
            if self._ending is None:
                self._ending = self._close_with_loop()
                await anext(self._ending)
            if self._link is None:
                link = await AsyncRedisLink.connect(self._way, self._forget)
                if self._is_over:
                    link.close()
                    raise Closed(CLOSED)
                self._link = link
            return self._link

    def _forget(self, link: AsyncRedisLink) -> None:
        if self._link is link:
            self._link = None

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes the generators begun on it, and so this connection."""
        try:
            yield
        finally:
            self._end()
            await asyncio.sleep(0)

    def _end(self) -> None:
        self._is_over = True
        if self._link is not None:
            self._link.close()

    def close(self) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop is closed
            if self._link is not None:
                self._link.drop()

    def forget(self) -> None:
        if self._link is not None:
            self._link.forget()
