"""The broker contract over a connection to a server.

A call without an answer is tried again, with growing pauses, if doing it twice would do no harm. If it would, the
caller gets an error that says that the outcome is unknown. Threads take a connection each from a pool; an event loop
shares one.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from stoker.brokers.remote import forking
from stoker.brokers.remote.links import AsyncLink, BlockingLink, LinkLost, TransportLinks, lost_reply, read_head
from stoker.brokers.remote.retrying import Outage, Patience, default_retry_s
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.brokers.resending import ResendAnswer, doubted, may_resend, resend_steps
from stoker.brokers.sending_window import SendingWindows
from stoker.model import commands as c
from stoker.model.command_table import KEYED_PUSHES, SETTLES
from stoker.model.errors import Closed, ShuttingDown, StokerError, Unavailable, Unreachable
from stoker.model.steps import carry_out, carry_out_async
from stoker.model.unreceived import release_of
from stoker.wire import native

R = TypeVar("R")

CLOSED = "this broker is closed: connect again"
OWN_TENANT = "default"
"""Without a tenant, the server uses the one of the token."""
PLANNED = KEYED_PUSHES | SETTLES
"""What needs more than being sent again, if its answer is lost."""


class RemoteTrial:
    """One call on its way to a server: how often it was tried, for how long, and what went wrong last."""

    def __init__(self, patience: Patience, outage: Outage, retry_s: float) -> None:
        self._patience, self._outage, self.retry_s = patience, outage, retry_s
        self.began = patience.now()
        self._count = 0
        self._error: LinkLost | StokerError | None = None
        self.again = False
        """Whether the server can have got the command already."""

    @property
    def _spent_s(self) -> float:
        return self._patience.now() - self.began

    def failed(self, error: LinkLost | StokerError) -> None:
        self._count += 1
        self._error = error
        self.again = self.again or (isinstance(error, LinkLost) and error.sent)
        self._outage.lasts(error, self._spent_s, max(0.0, self.retry_s - self._spent_s))

    def meaning(self, command: c.Command[Any], error: StokerError) -> StokerError:
        """Of a refusal: after a sending whose answer was lost, that one may have happened."""
        return doubted(command, error) if self.again else error

    def given_up(self, address: object) -> StokerError:
        """The error for the caller, with what was tried."""
        error, tried = self._error, ""
        assert error is not None
        if self._count > 1:
            tried = f" (tried {self._count} times in {self._spent_s:.1f} s; ?retry_s=N in the URL sets how long)"
        if isinstance(error, StokerError):
            return type(error)(f"{error.message}{tried}") if tried else error
        return Unreachable(f"no server answers at {address} any more: {error}{tried}")


class RemoteBroker:
    """A server, seen from a client."""

    def __init__(
        self, links: TransportLinks, address: ServerAddress, settings: RemoteSettings, patience: Patience | None = None
    ) -> None:
        self._links = links
        self._patience = patience or Patience()
        self._outage = Outage()
        self.address = address
        self.settings = settings
        self._lock = threading.Lock()
        self._idle: list[BlockingLink] = []
        self._busy: set[BlockingLink] = set()
        self._streams: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopConnections] = WeakKeyDictionary()
        self._closed = False
        self._windows = SendingWindows()
        forking.remember(self)

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) not in PLANNED or not self.settings.resend:
            return self._send(tenant, command).reply  # type: ignore[no-any-return]
        return carry_out(resend_steps(command, self._windows), partial(self._send, tenant))

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) not in PLANNED or not self.settings.resend:
            return (await self._send_async(tenant, command)).reply  # type: ignore[no-any-return]
        return await carry_out_async(resend_steps(command, self._windows), partial(self._send_async, tenant))

    def _send(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        trial = self._trial(command)
        try:
            return self._answered(self.once(tenant, command), trial)
        except (LinkLost, Unavailable) as error:
            resending = self._resent(command, trial, error)

        def do(pause_s: float | None) -> Any:
            return self.once(tenant, command) if pause_s is None else self._patience.nap(pause_s)

        return carry_out(resending, do)

    async def _send_async(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        trial = self._trial(command)
        try:
            return self._answered(await self.once_async(tenant, command), trial)
        except (LinkLost, Unavailable) as error:
            resending = self._resent(command, trial, error)

        async def do(pause_s: float | None) -> Any:
            return await (self.once_async(tenant, command) if pause_s is None else self._patience.nap_async(pause_s))

        return await carry_out_async(resending, do)

    def _resent(
        self, command: c.Command[Any], trial: RemoteTrial, error: LinkLost | Unavailable | None
    ) -> Generator[float | None, Any, ResendAnswer]:
        """After a sending that failed: send the command as often as it takes, or as often as it may be sent.

        Each step is one more sending (None), or a pause in seconds.
        """
        for pause_s in self._patience.pauses(trial.retry_s, trial.began):
            if error is None:
                try:
                    return self._answered((yield None), trial)
                except (LinkLost, Unavailable) as failure:
                    error = failure
            trial.failed(error)
            self._check_again(command, error, trial)
            error = None
            if pause_s is not None:
                yield pause_s
        raise trial.meaning(command, trial.given_up(self.address))

    def _trial(self, command: c.Command[Any]) -> RemoteTrial:
        """What a command may wait for something to happen does not count as time in which the server is away."""
        retry_s = default_retry_s() if self.settings.retry_s is None else self.settings.retry_s
        wait_ms = getattr(command, "wait_ms", 0)
        may_wait = retry_s > 0 and type(wait_ms) is int and wait_ms > 0
        return RemoteTrial(self._patience, self._outage, retry_s + wait_ms / 1_000 if may_wait else retry_s)

    def _answered(self, reply: Any, trial: RemoteTrial) -> ResendAnswer:
        if self._outage.is_told:
            self._outage.over(self.address)
        return ResendAnswer(reply, trial.again)

    def once(self, tenant: str, command: c.Command[R]) -> R:
        """One try. Raises `LinkLost` if the connection broke, `Unreachable` if there was none."""
        body = native.request(command, None, None if tenant == OWN_TENANT else tenant, self.settings.codec)
        link = self._take()
        try:
            frame = link.call(body, self.settings.timeout_s + wait_of(command))
            head = read_head(frame, self.settings.codec)
        except BaseException:
            self._drop(link)
            raise
        self._give_back(link)
        reply: R = native.reply(head, type(command), self.settings.codec)
        return reply

    async def once_async(self, tenant: str, command: c.Command[R]) -> R:
        name = native.NAMES.get(type(command), type(command).__name__)
        link = await self._stream()
        request = native.NativeRequest(name, command, None, None if tenant == OWN_TENANT else tenant)
        timeout_s = self.settings.timeout_s + wait_of(command)
        head = await self._answer(link, tenant, command, link.call(request), timeout_s)
        reply: R = native.reply(head, type(command), self.settings.codec)
        return reply

    def greet(self) -> None:
        """See whether a server answers and speaks our protocol. Raises `Unreachable`, or the server's own error."""
        self._give_back(self._take())

    @property
    def is_closed(self) -> bool:
        return self._closed

    def begin_anew(self) -> None:
        """In a forked process: leave the connections to the parent, and go on with new ones."""
        links, streams = [*self._idle, *self._busy], list(self._streams.values())
        self._lock, self._idle, self._busy, self._streams = threading.Lock(), [], set(), WeakKeyDictionary()
        self._patience.begin_anew()
        self._windows = SendingWindows()  # under the parent's names our pushes would pass for its own
        for link in links:
            link.forget()
        for stream in streams:
            stream.forget()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._patience.end()
            links = [*self._idle, *self._busy]
            self._idle.clear()
            streams = list(self._streams.values())
        for link in links:
            link.close()
        for stream in streams:
            stream.close()

    def _check_again(self, command: c.Command[Any], error: LinkLost | Unavailable, trial: RemoteTrial) -> None:
        """Go on if the command may be sent again; else say that its outcome is unknown."""
        if isinstance(error, LinkLost):
            if error.sent and not may_resend(command):
                raise lost_reply(command, self.address, error) from None
            if self._closed:
                raise trial.meaning(command, Closed(CLOSED)) from None
        elif self._closed or not isinstance(error, Unreachable | ShuttingDown):
            raise trial.meaning(command, error) from None

    # --- threads ---------------------------------------------------------------------------------

    def _take(self) -> BlockingLink:
        while True:
            with self._lock:
                if self._closed:
                    raise Closed(CLOSED)
                link = self._idle.pop() if self._idle else None
                if link is not None:
                    self._busy.add(link)
            if link is None:
                link = self._links.connect(self.address, self.settings)
                with self._lock:
                    self._busy.add(link)
                if self.is_closed:  # meanwhile
                    self._drop(link)
                    raise Closed(CLOSED)
                return link
            if link.is_alive:
                return link
            self._drop(link)

    def _give_back(self, link: BlockingLink) -> None:
        with self._lock:
            self._busy.discard(link)
            if not self._closed and len(self._idle) < self.settings.connections_max:
                self._idle.append(link)
                return
        link.close()

    def _drop(self, link: BlockingLink) -> None:
        with self._lock:
            self._busy.discard(link)
        link.close()

    # --- event loops -----------------------------------------------------------------------------

    async def _stream(self) -> AsyncLink:
        if self._closed:
            raise Closed(CLOSED)
        loop = asyncio.get_running_loop()
        streams = self._streams.get(loop)
        if streams is None:
            streams = self._streams[loop] = LoopConnections(self._links, self.address, self.settings, loop)
        return await streams.take()

    async def _answer(
        self,
        link: AsyncLink,
        tenant: str,
        command: c.Command[Any],
        future: "asyncio.Future[native.ReplyHead]",
        timeout_s: float,
    ) -> native.ReplyHead:
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(future)
        except TimeoutError:
            future.add_done_callback(heard)
            link.close()
            raise LinkLost(f"no answer within {timeout_s:g} s", sent=True) from None
        except asyncio.CancelledError:
            self._let_go(link, tenant, command, future)
            raise

    def _let_go(
        self, link: AsyncLink, tenant: str, command: c.Command[Any], future: "asyncio.Future[native.ReplyHead]"
    ) -> None:
        """The caller was cancelled: tell the server, and return what it sends all the same."""
        number = link.number_of(future)
        if not link.is_alive:
            future.cancel()
            return
        if number is None:
            future.cancel()
        else:
            link.call(native.NativeRequest("give_up", {"reqId": number})).add_done_callback(heard)

        def late(done: "asyncio.Future[native.ReplyHead]") -> None:
            if done.cancelled() or done.exception() is not None or not done.result().ok:
                return
            reply = native.reply(done.result(), type(command), self.settings.codec)
            back = release_of(command, reply)
            if back is not None:
                named = None if tenant == OWN_TENANT else tenant
                link.call(native.NativeRequest(native.NAMES[c.Release], back, None, named)).add_done_callback(heard)

        future.add_done_callback(late)


class LoopConnections:
    """The connection of one event loop, made when it is needed."""

    def __init__(
        self, links: TransportLinks, address: ServerAddress, settings: RemoteSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._links = links
        self._address, self._settings, self._loop = address, settings, loop
        self._link: AsyncLink | None = None
        self._is_over = False
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._ending: AsyncGenerator[None, None] | None = None

    async def take(self) -> AsyncLink:
        if self._link is not None:
            return self._link
        async with self._connecting:
            if self._ending is None:
                self._ending = self._close_with_loop()
                await anext(self._ending)
            if self._link is None:
                link = await self._links.connect_async(self._address, self._settings, self._lost)
                if self._is_over:  # closed while it was being made
                    link.close()
                    raise Closed(CLOSED)
                if not link.is_alive:
                    raise LinkLost("the server closed the connection", sent=False)
                self._link = link
            return self._link

    def _lost(self, link: AsyncLink) -> None:
        if self._link is link:
            self._link = None

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes the generators begun on it: the last moment to close an open connection."""
        try:
            yield
        finally:
            self._close()
            await asyncio.sleep(0)

    def close(self) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            pass  # the loop is closed, and its connections with it

    def forget(self) -> None:
        if self._link is not None:
            self._link.forget()

    def _close(self) -> None:
        self._is_over = True
        if self._link is not None:
            self._link.close()


def heard(future: "asyncio.Future[Any]") -> None:
    """No caller waits for this answer, so its failure is ignored."""
    if not future.cancelled():
        future.exception()


def wait_of(command: Any) -> float:
    """How long the server may take on purpose, in seconds."""
    wait_ms = getattr(command, "wait_ms", 0)
    return wait_ms / 1000 if isinstance(wait_ms, int) else 0.0
