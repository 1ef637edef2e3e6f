"""One command of a peer on its way through the queue, and the encoding of its answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.wire import native
from stoker.wire.frames import Codec

if TYPE_CHECKING:
    from stoker.server.session import Session

Answer = Callable[[bytes], None]
"""Takes an encoded reply."""


class Call:
    """A command on its way through the queue; called with its reply, or with an error."""

    __slots__ = ("command", "identity", "request_id", "session", "tenant")

    def __init__(self, session: "Session", tenant: str, command: c.Command[Any], request_id: str | int | None) -> None:
        self.session = session
        self.identity = session.who()
        self.tenant = tenant
        self.command = command
        self.request_id = request_id

    def __call__(self, reply: Any) -> None:
        session = self.session
        session.in_flight -= 1
        if session.waiting and session.waiting.pop(self, None) is not None:
            reply = session.after_waiting(self, reply)
        if session.is_closed:
            session.service.dispatcher.return_unsent(self.tenant, self.command, reply)
        else:
            self.tell(reply)

    def tell(self, reply: Any) -> None:
        raise NotImplementedError


class NativeCall(Call):
    """A request of Stoker's own dialect: its command's reply is its answer."""

    __slots__ = ("answer", "codec")

    def __init__(
        self,
        session: "Session",
        tenant: str,
        command: c.Command[Any],
        request_id: str | int | None,
        codec: Codec,
        answer: Answer,
    ) -> None:
        self.session = session  # as `Call` does it, without a second call: one of these is made for every request
        self.identity = session.identity or session.who()
        self.tenant = tenant
        self.command = command
        self.request_id = request_id
        self.codec: Codec = codec
        self.answer = answer

    def tell(self, reply: Any) -> None:
        if isinstance(reply, StokerError):
            self.answer(native.refused(reply, self.request_id, self.codec))
        else:
            self.answer(native.answered(reply, self.request_id, self.codec))


def told(reply: Any, request_id: str | int | None, codec: Codec) -> bytes:
    """A reply, or an error instead of one, as it is sent."""
    if isinstance(reply, StokerError):
        return native.refused(reply, request_id, codec)
    return native.answered(reply, request_id, codec)
