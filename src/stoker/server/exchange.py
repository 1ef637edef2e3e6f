"""One request of flashQ's dialect, from its frame to its answer: a plan of commands, one after another.

The plan is driven by the replies of the dispatcher. `model/steps.py` does the same for callers that wait for each
reply.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.events import Event
from stoker.server.call import Answer, Call
from stoker.server.service import check_tokens
from stoker.wire import flashq, native
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import done
from stoker.wire.flashq.events import event_answer
from stoker.wire.frames import Codec
from stoker.wire.native import Envelope

if TYPE_CHECKING:
    from stoker.server.session import Session


class Step(Call):
    """One command out of the plan of an exchange."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: "Exchange", tenant: str, command: c.Command[Any]) -> None:
        super().__init__(exchange.session, tenant, command, exchange.request_id)
        self.exchange = exchange

    def tell(self, reply: Any) -> None:
        self.exchange.go_on(reply)


class Exchange:
    """One request of flashQ's dialect, from its frame to its answer."""

    __slots__ = (
        "_answer",
        "_codec",
        "_context",
        "_envelope",
        "_identity",
        "_plan",
        "_row",
        "_tenant",
        "_unknown",
        "session",
    )

    def __init__(
        self, session: "Session", row: flashq.DialectRow, envelope: Envelope, codec: Codec, answer: Answer
    ) -> None:
        self.session = session
        self._row = row
        self._envelope = envelope
        self._codec = codec
        self._answer = answer
        self._context = session.contexts[codec]
        self._unknown = flashq.UnknownField(session.service.config.server.unknown_fields == "refuse")
        self._tenant = ""
        self._plan: Any = None

    @property
    def request_id(self) -> str | int | None:
        return self._envelope.reqId

    def begin(self, frame: bytes) -> None:
        try:
            request = flashq.decode(frame, self._codec, self._row.name, self._context.limits, self._unknown)
            if self._row.kind == "server":
                if isinstance(request, q.Subscribe):
                    self._subscribe(request)
                else:
                    self._tell(self._of_connection(request))
                return
            session = self.session
            self._identity = session.who()
            if self._row.permission is not None:
                self._tenant = session.service.admit(self._identity, self._row.permission, self._envelope.tenant, None)
            if self._row.name == "KVTTL":
                self._context = msgspec.structs.replace(self._context, now=session.service.dispatcher.broker.now())
            self._plan = self._row.plan(request, self._context)
            self.go_on(None)
        except StokerError as error:
            self._tell(flashq.failure(error))

    def go_on(self, reply: Any) -> None:
        """Take the plan one step further with the last reply."""
        try:
            if isinstance(reply, StokerError):
                command = self._plan.throw(reply)
            else:
                command = self._plan.send(reply)
            if self.session.needs_tokens:
                check_tokens(command)
            self.session.service.check_quota(self._identity, self._tenant, command)
        except StopIteration as end:
            self._tell(end.value)
        except StokerError as error:
            self._tell(flashq.failure(error))
        else:
            self.session.submit(Step(self, self._tenant, command))

    def _tell(self, answer: dict[str, Any]) -> None:
        if self._unknown.warnings:
            answer["warnings"] = self._unknown.warnings
        if self._envelope.reqId is not None:
            answer["reqId"] = self._envelope.reqId
        self._answer(native.FORMATS[self._codec].encode(answer))

    def _of_connection(self, request: Any) -> dict[str, Any]:
        session = self.session
        if isinstance(request, q.Auth):
            session.authenticate(request.token)
            return done()
        if isinstance(request, q.Hello):
            greeting = native.NativeHello(
                request.token, request.client, request.entitlement, request.tokens, request.ranges
            )
            return done(**session.hello(greeting))
        assert isinstance(request, q.Unsubscribe)
        return done(**session.unsubscribe(request.queue, self._envelope.tenant))

    def _subscribe(self, request: q.Subscribe) -> None:
        def answered(reply: dict[str, Any] | StokerError) -> None:
            self._tell(flashq.failure(reply) if isinstance(reply, StokerError) else done(**reply))

        session = self.session
        kinds = [kind.removeprefix("job.") for kind in request.events]
        wish = native.Wish(request.queue, [] if "*" in kinds else kinds, request.after)
        send = partial(session.send_event, self._envelope.reqId, self._codec, self._event)
        session.subscribe(self._envelope.tenant, wish, send, answered)

    @staticmethod
    def _event(event: Event, request_id: Any, codec: Codec) -> bytes:
        return native.FORMATS[codec].encode({"event": event_answer(event, codec)})  # type: ignore[no-any-return]
