"""The broker contract over a connection to a server.

A call without an answer is tried again, with growing pauses, if doing it twice would do no harm. If it would, the
caller gets an error that says that the outcome is unknown. Threads take a connection each from a pool; an event loop
shares one.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from stoker.brokers.contract import LACKS_NOTHING
from stoker.brokers.remote import forking
from stoker.brokers.remote.call_deadlines import CallDeadlines
from stoker.brokers.remote.failover import FailoverLinks
from stoker.brokers.remote.links import (
    AsyncLink,
    BlockingLink,
    LinkLost,
    ReplyFuture,
    TransportLinks,
    lost_reply,
    read_head,
)
from stoker.brokers.remote.loop_pushes import LoopPushes, Send, may_gather
from stoker.brokers.remote.pool import CLOSED, LinkPool
from stoker.brokers.remote.retrying import Outage, Patience, default_retry_s
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.brokers.resending import ResendAnswer, doubted, may_narrow, may_resend, resend_steps
from stoker.brokers.sending_window import SendingWindows
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import KEYED_PUSHES, SETTLES, with_field
from stoker.model.errors import Closed, LimitExceeded, ShuttingDown, StokerError, Unavailable, Unreachable
from stoker.model.steps import carry_out, carry_out_async
from stoker.model.unreceived import release_of
from stoker.wire import native

R = TypeVar("R")

OWN_TENANT = "default"
"""Without a tenant, the server uses the one of the token."""
PLANNED = KEYED_PUSHES | SETTLES
"""What needs more than being sent again, if its answer is lost."""
WAITING = with_field("wait_ms")
"""What may wait at the server for something to happen."""


class RemoteTrial:
    """One call on its way to a server: how often it was tried, for how long, and what went wrong last."""

    def __init__(self, patience: Patience, outage: Outage, retry_s: float, began: float) -> None:
        self._patience, self._outage, self.retry_s, self.began = patience, outage, retry_s, began
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

    name = "remote"
    lacks = LACKS_NOTHING

    def __init__(
        self, links: TransportLinks, address: ServerAddress, settings: RemoteSettings, patience: Patience | None = None
    ) -> None:
        self._servers = FailoverLinks(links, address, settings)
        self._patience = patience or Patience()
        self._outage = Outage()
        self.address = address
        self.settings = settings
        self._resend, self._timeout_s, self._codec = settings.resend, settings.timeout_s, settings.codec
        self._lock = threading.Lock()
        self._pool = self._new_pool()
        self._streams: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopConnections] = WeakKeyDictionary()
        self._recent: LoopConnections | None = None
        """Those of the event loop that called last: most programs have one."""
        self._closed = False
        self._windows = SendingWindows()
        forking.remember(self)

    def _new_pool(self) -> LinkPool[BlockingLink]:
        return LinkPool(self._servers.connect, self.settings.connections_max)

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) is c.Push and command.sending is None and self._resend:
            return self._push(tenant, command)  # type: ignore[return-value]
        if type(command) not in PLANNED or not self._resend:
            return self._send(tenant, command).reply  # type: ignore[no-any-return]
        return carry_out(resend_steps(command, self._windows), partial(self._send, tenant))

    def execute_async(self, tenant: str, command: c.Command[R]) -> Coroutine[Any, Any, R]:
        """The coroutine that does it: a further one around it would cost a push a twentieth of its time."""
        if type(command) is c.Push and command.sending is None and self._resend:
            return self._push_async(tenant, command)  # type: ignore[return-value]
        if type(command) not in PLANNED or not self._resend:
            return self._reply_async(tenant, command)
        return carry_out_async(resend_steps(command, self._windows), partial(self._send_async, tenant))

    def _push(self, tenant: str, push: c.Push) -> r.Pushed:
        """What `resending.pushed_once` plans, without the detour over a plan: most calls of many callers are pushes."""
        windows = self._windows
        while True:
            sending = windows.take()
            numbered = msgspec.structs.replace(push, sending=sending)
            began = self._patience.now()
            try:
                try:
                    return self._heard(self.once(tenant, numbered))
                except (LinkLost, Unavailable) as error:
                    return self._send_again(tenant, numbered, began, error).reply  # type: ignore[no-any-return]
            except LimitExceeded as error:
                if not may_narrow(windows, sending, error):
                    raise
            finally:
                windows.settle(sending)

    async def _push_async(self, tenant: str, push: c.Push) -> r.Pushed:
        """Push, together with others of this turn of the event loop if there are any."""
        pushes = self._loop_connections().pushes
        pushes.count += 1
        try:
            if pushes.is_lone or not may_gather(tenant, push):
                return await self._numbered_async(tenant, push)
            return await pushes.add(tenant, push)
        finally:
            pushes.count -= 1

    async def _numbered_async(self, tenant: str, push: c.Command[R]) -> R:
        """What `_push` does, for a push or a batch of the pushes of a turn, which has no name of its own."""
        windows = self._windows
        while True:
            sending = windows.take()
            numbered = msgspec.structs.replace(push, sending=sending)
            began = self._patience.now()
            try:
                try:
                    return self._heard(await self.once_async(tenant, numbered))
                except (LinkLost, Unavailable) as error:
                    again = await self._send_again_async(tenant, numbered, began, error)
                    return again.reply  # type: ignore[no-any-return]
            except LimitExceeded as error:
                if not may_narrow(windows, sending, error):
                    raise
            finally:
                windows.settle(sending)

    async def _reply_async(self, tenant: str, command: c.Command[R]) -> R:
        """What `_send_async` does, without saying whether it was sent again."""
        began = self._patience.now()
        try:
            return self._heard(await self.once_async(tenant, command))
        except (LinkLost, Unavailable) as error:
            return (await self._send_again_async(tenant, command, began, error)).reply  # type: ignore[no-any-return]

    def _send(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        began = self._patience.now()
        try:
            return ResendAnswer(self._heard(self.once(tenant, command)), False)
        except (LinkLost, Unavailable) as error:
            return self._send_again(tenant, command, began, error)

    async def _send_async(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        began = self._patience.now()
        try:
            return ResendAnswer(self._heard(await self.once_async(tenant, command)), False)
        except (LinkLost, Unavailable) as error:
            return await self._send_again_async(tenant, command, began, error)

    def _send_again(
        self, tenant: str, command: c.Command[Any], began: float, error: LinkLost | Unavailable
    ) -> ResendAnswer:
        def do(pause_s: float | None) -> Any:
            return self.once(tenant, command) if pause_s is None else self._patience.nap(pause_s)

        return carry_out(self._resent(command, self._trial(command, began), error), do)

    async def _send_again_async(
        self, tenant: str, command: c.Command[Any], began: float, error: LinkLost | Unavailable
    ) -> ResendAnswer:
        async def do(pause_s: float | None) -> Any:
            return await (self.once_async(tenant, command) if pause_s is None else self._patience.nap_async(pause_s))

        return await carry_out_async(self._resent(command, self._trial(command, began), error), do)

    def _resent(
        self, command: c.Command[Any], trial: RemoteTrial, error: LinkLost | Unavailable | None
    ) -> Generator[float | None, Any, ResendAnswer]:
        """After a sending that failed: send the command as often as it takes, or as often as it may be sent.

        Each step is one more sending (None), or a pause in seconds.
        """
        for pause_s in self._patience.pauses(trial.retry_s, trial.began):
            if error is None:
                try:
                    return ResendAnswer(self._heard((yield None)), trial.again)
                except (LinkLost, Unavailable) as failure:
                    error = failure
            trial.failed(error)
            self._check_again(command, error, trial)
            if not isinstance(error, Unreachable):
                self._leave_server()
            error = None
            if pause_s is not None:
                yield pause_s
        raise trial.meaning(command, trial.given_up(self.address))

    def _trial(self, command: c.Command[Any], began: float) -> RemoteTrial:
        """What a command may wait for something to happen does not count as time in which the server is away."""
        retry_s = default_retry_s() if self.settings.retry_s is None else self.settings.retry_s
        wait_ms = getattr(command, "wait_ms", 0)
        may_wait = retry_s > 0 and type(wait_ms) is int and wait_ms > 0
        return RemoteTrial(self._patience, self._outage, retry_s + wait_ms / 1_000 if may_wait else retry_s, began)

    def _heard(self, reply: R) -> R:
        """A reply has come: the server is there."""
        if self._outage.is_told:
            self._outage.over(self.address)
        return reply

    def once(self, tenant: str, command: c.Command[R]) -> R:
        """One try. Raises `LinkLost` if the connection broke, `Unreachable` if there was none."""
        body = native.request(command, None, None if tenant == OWN_TENANT else tenant, self.settings.codec)
        head = self._exchange(body, self.settings.timeout_s + wait_of(command))
        reply: R = native.reply(head, type(command), self.settings.codec)
        return reply

    def ask_server(self, tenant: str, name: str, fields: Any) -> Any:
        """The reply to a request about the server itself, which is no command of the contract: `hello`,
        `list_webhooks`. It is sent once. Raises `StokerError`.
        """
        request = native.NativeRequest(name, fields, None, None if tenant == OWN_TENANT else tenant)
        try:
            head = self._exchange(native.encoded(request, self._codec), self._timeout_s)
        except LinkLost as error:
            raise Unreachable(
                f"{self.address} did not answer {name}: {error}; look again before you repeat it"
            ) from None
        if not head.ok:
            raise native.error_of(head)
        return native.FORMATS[self._codec].anything(head.body)

    def _exchange(self, body: bytes, timeout_s: float) -> native.ReplyHead:
        """One request and the head of its reply, over a connection of this thread."""
        link = self._pool.take()
        try:
            head = read_head(link.call(body, timeout_s), self._codec)
        except BaseException:
            self._pool.drop(link)
            raise
        self._pool.give_back(link)
        return head

    async def once_async(self, tenant: str, command: c.Command[R]) -> R:
        kind = type(command)
        name = native.NAMES.get(kind) or kind.__name__
        streams = self._loop_connections()
        link = streams.link or await streams.take()
        timeout_s = self._timeout_s + wait_of(command) if kind in WAITING else self._timeout_s
        future = link.call(native.NativeRequest(name, command, None, None if tenant == OWN_TENANT else tenant))
        streams.deadlines.add(future, timeout_s, link)
        try:
            head = await future
        except asyncio.CancelledError:
            self._let_go(link, tenant, command, future)
            raise
        finally:
            streams.deadlines.remove(future, timeout_s)
        reply: R = native.reply(head, kind, self._codec)
        return reply

    def greet(self) -> None:
        """See whether a server answers and speaks our protocol. Raises `Unreachable`, or the server's own error."""
        self._pool.give_back(self._pool.take())

    @property
    def is_closed(self) -> bool:
        return self._closed

    def begin_anew(self) -> None:
        """In a forked process: leave the connections to the parent, and go on with new ones."""
        pool, streams = self._pool, list(self._streams.values())
        self._lock, self._pool, self._streams = threading.Lock(), self._new_pool(), WeakKeyDictionary()
        self._recent = None
        self._patience.begin_anew()
        self._windows = SendingWindows()  # under the parent's names our pushes would pass for its own
        if self._closed:
            self._pool.close()
        pool.forget()
        for stream in streams:
            stream.forget()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._patience.end()
            streams = list(self._streams.values())
        self._pool.close()
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

    def _leave_server(self) -> None:
        """The server that answered last is away, or is shutting down: go on with another one, if there is one."""
        if self._servers.is_single:
            return
        self._servers.leave()
        self._pool.close_idle()
        for stream in list(self._streams.values()):
            stream.leave()

    # --- event loops -----------------------------------------------------------------------------

    def _loop_connections(self) -> "LoopConnections":
        if self._closed:
            raise Closed(CLOSED)
        loop = asyncio.get_running_loop()
        recent = self._recent
        if recent is not None and recent.loop is loop:
            return recent
        streams = self._streams.get(loop)
        if streams is None:
            streams = self._streams[loop] = LoopConnections(self._servers, loop, self._numbered_async)
        self._recent = streams
        return streams

    def _let_go(self, link: AsyncLink, tenant: str, command: c.Command[Any], future: ReplyFuture) -> None:
        """The caller was cancelled: tell the server, and return what it sends all the same."""
        if not future.cancelled():  # the caller was cancelled between the reply and its next step
            self._return(link, tenant, command, future)
            return
        open_call = link.let_go(future) if link.is_alive else None
        if open_call is not None:
            number, late = open_call
            given_up = link.call(native.NativeRequest("give_up", {"reqId": number}))
            given_up.add_done_callback(partial(self._given_up, link, number))
            late.add_done_callback(partial(self._return, link, tenant, command))

    def _given_up(self, link: AsyncLink, number: int, done: ReplyFuture) -> None:
        """The server says whether it has given a request up, or had answered it."""
        if done.cancelled() or done.exception() is not None or not done.result().ok:
            return
        if native.FORMATS[self._codec].anything(done.result().body).get("count"):
            link.given_up(number)

    def _return(self, link: AsyncLink, tenant: str, command: c.Command[Any], done: ReplyFuture) -> None:
        """Jobs in a reply for which no caller waits go back."""
        if done.cancelled() or done.exception() is not None or not done.result().ok or not link.is_alive:
            return
        back = release_of(command, native.reply(done.result(), type(command), self._codec))
        if back is not None:
            named = None if tenant == OWN_TENANT else tenant
            link.call(native.NativeRequest(native.NAMES[c.Release], back, None, named)).add_done_callback(heard)


class LoopConnections:
    """The connection of one event loop, made when it is needed, and the pushes that gather for it."""

    def __init__(self, servers: FailoverLinks, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._servers, self.loop = servers, loop
        self.pushes = LoopPushes(loop, send)
        self.link: AsyncLink | None = None
        """The open connection, if there is one."""
        self.deadlines = CallDeadlines(loop)
        self._left: set[AsyncLink] = set()
        """Connections to servers that were away, or about to stop: nothing new is sent there."""
        self._is_over = False
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._ending: AsyncGenerator[None, None] | None = None

    async def take(self) -> AsyncLink:
        if self.link is not None:
            return self.link
        async with self._connecting:
            if self._ending is None:
                self._ending = self._close_with_loop()
                await anext(self._ending)
            if self.link is None:
                link = await self._servers.connect_async(self._lost)
                if self._is_over:  # closed while it was being made
                    link.close()
                    raise Closed(CLOSED)
                if not link.is_alive:
                    raise LinkLost("the server closed the connection", sent=False)
                self.link = link
            return self.link

    def _lost(self, link: AsyncLink) -> None:
        self._left.discard(link)
        if self.link is link:
            self.link = None

    def leave(self) -> None:
        """Make another connection for what comes next; calls that are under way stay on this one. From any thread."""
        link, self.link = self.link, None
        if link is not None:
            self._left.add(link)

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
            self.loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            pass  # the loop is closed, and its connections with it

    def forget(self) -> None:
        for link in self._open:
            link.forget()

    def _close(self) -> None:
        self._is_over = True
        for link in self._open:
            link.close()
        self.deadlines.end()

    @property
    def _open(self) -> list[AsyncLink]:
        return [*self._left, *([self.link] if self.link is not None else [])]


def heard(future: "asyncio.Future[Any]") -> None:
    """No caller waits for this answer, so its failure is ignored."""
    if not future.cancelled():
        future.exception()


def wait_of(command: Any) -> float:
    """How long the server may take on purpose, in seconds."""
    wait_ms = getattr(command, "wait_ms", 0)
    return wait_ms / 1000 if isinstance(wait_ms, int) else 0.0
