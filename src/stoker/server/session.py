"""One peer that sends requests: its identity, its settings, and how each of its requests is answered.

Transports cut the stream into frames and pass them in; the answer comes through a callback, encoded like the
request. Nothing here knows a socket. Both dialects meet here: a request of Stoker's own is one command; one of
flashQ's is a plan of commands, whose answer is written for flashQ's clients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from stoker.model import commands as c
from stoker.model.command_table import Permission
from stoker.model.errors import Busy, Forbidden, InvalidRequest, LimitExceeded, StokerError, Unauthenticated
from stoker.model.events import Event
from stoker.model.version import __version__
from stoker.server.auth.identity import Identity
from stoker.server.desk import Held
from stoker.server.reader import Filter, Missed
from stoker.server.service import Service, check_tokens
from stoker.server.subscriptions import Send, Subscription
from stoker.wire import flashq, native
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import done
from stoker.wire.flashq.events import event_answer
from stoker.wire.frames import Codec
from stoker.wire.native import Envelope
from stoker.wire.table import ROWS

Answer = Callable[[bytes], None]
"""Takes an encoded reply."""

SESSION_COMMANDS = ("hello", "give_up", "subscribe", "unsubscribe")
"""What a peer of Stoker's own dialect may ask of its connection besides the commands of the contract."""
WEBHOOK_COMMANDS = ("set_webhook", "list_webhooks", "delete_webhook", "test_webhook")
"""And of the server behind it."""
KNOWN_MAX = 64
"""Tenants for which a connection remembers what it may do: most use one."""
GIVEN_UP: Final = object()
"""Stands for a reply that nobody wants any more."""


class Session:
    """The state of one connection, whatever carries it."""

    def __init__(
        self,
        service: Service,
        *,
        loopback: bool,
        identity: Identity | None = None,
        send: Answer | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.service = service
        self.loopback = loopback or service.config.insecure
        self.identity = identity
        self.needs_tokens = False
        self.in_flight = 0
        self.is_closed = False
        self._send = send
        """For what the peer did not ask for at this moment: events. None where the transport has no way to send it."""
        self._has_room = has_room
        """Whether the peer reads what it is sent; events wait until it does."""
        self._known: dict[tuple[Permission, str | None], str] = {}
        """The tenant that an identity may act for, by what it wanted to do and the tenant it named."""
        self._known_for: Identity | None = None
        self._known_at = -1
        """The revision of the gate that said so."""
        self._in_flight_max = service.config.server.requests_in_flight_max
        self._held: dict[Held, str | int | None] = {}
        """Requests that wait, with their numbers."""
        self._subscriptions: list[Subscription] = []
        self._snapshots: list[str] = []
        """Names of those that were made for this peer."""
        self._contexts: dict[Codec, flashq.Context] = {
            codec: flashq.Context(codec=codec, limits=service.config.limits) for codec in native.FORMATS
        }

    def request(self, envelope: Envelope, frame: bytes, codec: Codec, answer: Answer) -> None:
        """Carry out one request; `answer` is called exactly once, unless the session is closed first."""
        row = ROWS.get(envelope.cmd)
        try:
            if self.in_flight >= self._in_flight_max:
                raise Busy(
                    f"too many requests in flight: {self._in_flight_max} of this connection are not answered yet;"
                    " wait for some of them, or use a second connection"
                )
            if row is None:
                self._other(envelope, frame, codec, answer)
                return
            command = native.command_of(envelope, codec)
            if self.needs_tokens:
                check_tokens(command)
            tenant = self._admit(row.permission, envelope.tenant, command)
        except StokerError as error:
            answer(native.refused(error, envelope.reqId, codec))
            return
        self.submit(NativeCall(self, tenant, command, envelope.reqId, codec, answer))

    def _admit(self, permission: Permission, named: str | None, command: Any) -> str:
        """The tenant to act for, as the service says; what it has said of a standing identity is remembered."""
        identity = self.who()
        gate = self.service.gate
        key = (permission, named)
        if identity is self._known_for and gate.revision == self._known_at and not identity.grant.ended:
            tenant = self._known.get(key)
            if tenant is not None:
                return tenant
        else:
            self._known_for, self._known_at = identity, gate.revision
            self._known.clear()
        tenant = self.service.admit(identity, permission, named, command)
        if identity.expires_at is None and gate.quotas(identity, tenant, 0.0) is None and len(self._known) < KNOWN_MAX:
            self._known[key] = tenant
        return tenant

    @property
    def is_waiting(self) -> bool:
        """Whether something that the peer has asked for is still to come: a reply, or events."""
        return bool(self.in_flight or self._subscriptions)

    @property
    def is_at_work(self) -> bool:
        """Whether something is being carried out, and nothing waits for anything else to happen."""
        return bool(self.in_flight) and not self._held and not self._subscriptions

    def close(self) -> None:
        """The peer is gone: nobody waits for its replies any more. Leases stay what they are."""
        self.is_closed = True
        for subscription in self._subscriptions:
            subscription.end()
        for held in list(self._held):
            self.service.desk.give_up(held)
        self._held.clear()
        self._drop_snapshots()

    def authenticate(self, credential: str | None) -> Identity:
        """Become whoever the credential says. Raises `Unauthenticated`, and then it is nobody."""
        self.identity = None
        self.identity = self.service.gate.identify(credential, loopback=self.loopback)
        return self.identity

    def who(self) -> Identity:
        return self.identity or self.authenticate(None)

    def submit(self, call: "Call") -> None:
        """Hand a command in, and remember it while it waits."""
        self.in_flight += 1
        service = self.service
        hand_in = service.submit if type(call.command) is c.Pull else service.desk.submit
        held = hand_in(call.tenant, call.command, call)
        if held is not None:
            call.held = held
            self._held[held] = call.request_id

    def after_waiting(self, call: "Call", reply: Any) -> Any:
        """A reply that had to be waited for, if it is still wanted, and by somebody who may still have it."""
        assert call.held is not None
        if call.held not in self._held:
            self.service.desk.return_unsent(call.tenant, call.command, reply)  # given up while it was on its way
            return GIVEN_UP
        del self._held[call.held]
        try:
            self.service.check_still(call.identity, call.tenant, call.command, reply)
        except Unauthenticated as error:
            return error
        return reply

    # --- what is not a command of the contract ---------------------------------------------------

    def _other(self, envelope: Envelope, frame: bytes, codec: Codec, answer: Answer) -> None:
        cmd = envelope.cmd
        if cmd == "subscribe":
            send = partial(self._send_event, envelope.reqId, codec, native.event_frame)
            wish = native.wish(envelope, codec)
            self.subscribe(envelope.tenant, wish, send, lambda reply: answer(told(reply, envelope.reqId, codec)))
            return
        if cmd in SESSION_COMMANDS:
            answer(native.answered(self._of_connection(cmd, envelope, frame, codec), envelope.reqId, codec))
            return
        if cmd in WEBHOOK_COMMANDS:
            self._of_webhooks(cmd, envelope, codec, answer)
            return
        if cmd == native.SNAPSHOT:
            self._take_snapshot(envelope, codec, answer)
            return
        row = flashq.BY_NAME.get(cmd)
        if row is None:
            raise InvalidRequest(f"unknown command {cmd[:64]!r}: the reference lists the commands that there are")
        Exchange(self, row, envelope, codec, answer).begin(frame)

    def _of_webhooks(self, cmd: str, envelope: Envelope, codec: Codec, answer: Answer) -> None:
        """What takes its time: a name is resolved, perhaps, or a trial posted."""
        from stoker.server.webhooks import commands

        tenant = self.service.admit(self.who(), "admin", envelope.tenant, None)
        request = commands.decode(cmd, envelope.body, codec)
        self.in_flight += 1

        def ended(reply: Any) -> None:
            self.in_flight -= 1
            if not self.is_closed:
                answer(told(reply, envelope.reqId, codec))

        commands.submit(self.service.webhooks, tenant, cmd, request, ended)

    def _take_snapshot(self, envelope: Envelope, codec: Codec, answer: Answer) -> None:
        """It stays as long as the connection does."""
        made = self.service.snapshots
        if made is None:
            raise Forbidden(
                "snapshot: only the socket in the data directory takes this; use the URL sqlite:///DIRECTORY"
            )
        self.in_flight += 1

        def ended(reply: Any) -> None:
            self.in_flight -= 1
            if not isinstance(reply, StokerError):
                self._snapshots.append(reply["name"])
            if self.is_closed:
                self._drop_snapshots()
            else:
                answer(told(reply, envelope.reqId, codec))

        made.submit(ended)

    def _drop_snapshots(self) -> None:
        names, self._snapshots = self._snapshots, []
        for name in names:
            assert self.service.snapshots is not None
            self.service.snapshots.drop(name)

    def _of_connection(self, cmd: str, envelope: Envelope, frame: bytes, codec: Codec) -> dict[str, Any]:
        if cmd == "hello":
            return self.hello(native.greeting(envelope, frame, codec))
        if cmd == "give_up":
            return self._give_up(native.given_up(envelope, codec))
        return self.unsubscribe(native.wish(envelope, codec).queue, envelope.tenant)

    def _give_up(self, number: str | int) -> dict[str, Any]:
        """Stop waiting for a request of this peer. One that is answered already stays answered."""
        found = [held for held, known in self._held.items() if known == number]
        for held in found:
            del self._held[held]
            self.in_flight -= 1
            self.service.desk.give_up(held)
        return {"count": len(found)}

    def hello(self, greeting: native.Greeting) -> dict[str, Any]:
        if greeting.token is not None or self.identity is None:
            self.authenticate(greeting.token)
        assert self.identity is not None
        if greeting.entitlement is not None:
            self.identity = self.service.gate.entitle(self.identity, greeting.entitlement)
        self.needs_tokens = greeting.tokens
        config = self.service.config
        for codec in native.FORMATS:
            self._contexts[codec] = flashq.Context(codec, True, greeting.ranges, config.limits)
        return {
            "server": "stoker",
            "version": __version__,
            "protocol": native.PROTOCOL,
            "tenant": self.identity.tenant,
            "permissions": sorted(self.identity.permissions),
            "shards": self.service.desk.shards,
            "limits": config.limits,
            "frame_bytes_max": config.server.frame_bytes_max,
            "requests_in_flight_max": config.server.requests_in_flight_max,
        }

    # --- events ----------------------------------------------------------------------------------

    def subscribe(self, tenant: str | None, wish: native.Wish, send: Send, answered: Callable[[Any], None]) -> None:
        """Send events from now on, or from where the peer was. It is answered when nothing from then on is missed.

        `answered` takes the fields of the answer, or an error instead of them.
        """
        most = self.service.config.server.subscriptions_max
        if self._send is None:
            raise InvalidRequest("invalid command: this transport cannot send events; read them, or use its stream")
        self._subscriptions = [one for one in self._subscriptions if not one.is_over]
        if len(self._subscriptions) >= most:
            raise LimitExceeded(f"this connection has {most} subscriptions already: end one, or use another connection")
        identity = self.who()
        tenant = self.service.admit(identity, "read", tenant, wish)
        wanted = Filter(wish.queue, tuple(wish.kinds))
        subscription = Subscription(self.service, identity, tenant, wanted, wish.after, send, self._has_room)
        self._subscriptions.append(subscription)
        count = len(self._subscriptions)

        def told(places: dict[int, Any] | StokerError) -> None:
            answered(places if isinstance(places, StokerError) else {"subscriptions": count, "after": places})

        subscription.start(told)

    def go_on(self) -> None:
        """There is room again for events that had to wait."""
        for subscription in self._subscriptions:
            subscription.go_on()

    def unsubscribe(self, queue: str | None, tenant: str | None = None) -> dict[str, Any]:
        self.service.admit(self.who(), "read", tenant, None)
        ended = [one for one in self._subscriptions if queue is None or one.queue == queue]
        for subscription in ended:
            subscription.end()
            self._subscriptions.remove(subscription)
        return {"count": len(ended)}

    def _send_event(
        self, request_id: Any, codec: Codec, frame: Callable[..., Any], event: Event | Missed | StokerError
    ) -> None:
        assert self._send is not None
        if isinstance(event, StokerError):
            self._send(native.refused(event, request_id, codec))
        elif isinstance(event, Missed):
            self._send(native.missed_frame(event, request_id, codec))
        else:
            self._send(frame(event, request_id, codec))


class Call:
    """A command on its way through the queue; called with its reply, or with an error."""

    __slots__ = ("command", "held", "identity", "request_id", "session", "tenant")

    def __init__(self, session: Session, tenant: str, command: c.Command[Any], request_id: str | int | None) -> None:
        self.session = session
        self.identity = session.who()
        self.tenant = tenant
        self.command = command
        self.request_id = request_id
        self.held: Held | None = None
        """Set while it waits for something to happen."""

    def __call__(self, reply: Any) -> None:
        session = self.session
        if self.held is not None:
            reply = session.after_waiting(self, reply)
            if reply is GIVEN_UP:
                return
        session.in_flight -= 1
        if session.is_closed:
            session.service.desk.return_unsent(self.tenant, self.command, reply)
        else:
            self.tell(reply)

    def tell(self, reply: Any) -> None:
        raise NotImplementedError


class NativeCall(Call):
    """A request of Stoker's own dialect: its command's reply is its answer."""

    __slots__ = ("answer", "codec")

    def __init__(
        self,
        session: Session,
        tenant: str,
        command: c.Command[Any],
        request_id: str | int | None,
        codec: Codec,
        answer: Answer,
    ) -> None:
        self.session = session  # as `Call` does it, without a second call: one of these is made for every request
        self.identity = session.who()
        self.tenant = tenant
        self.command = command
        self.request_id = request_id
        self.held = None
        self.codec: Codec = codec
        self.answer = answer

    def tell(self, reply: Any) -> None:
        if isinstance(reply, StokerError):
            self.answer(native.refused(reply, self.request_id, self.codec))
        else:
            self.answer(native.answered(reply, self.request_id, self.codec))


class Step(Call):
    """One command out of the plan of an exchange."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: "Exchange", tenant: str, command: c.Command[Any]) -> None:
        super().__init__(exchange.session, tenant, command, exchange.request_id)
        self.exchange = exchange

    def tell(self, reply: Any) -> None:
        self.exchange.go_on(reply)


def told(reply: Any, request_id: str | int | None, codec: Codec) -> bytes:
    """A reply, or an error instead of one, as it is sent."""
    if isinstance(reply, StokerError):
        return native.refused(reply, request_id, codec)
    return native.answered(reply, request_id, codec)


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

    def __init__(self, session: Session, row: flashq.Row, envelope: Envelope, codec: Codec, answer: Answer) -> None:
        self.session = session
        self._row = row
        self._envelope = envelope
        self._codec = codec
        self._answer = answer
        self._context = session._contexts[codec]
        self._unknown = flashq.Unknown(session.service.config.server.unknown_fields == "refuse")
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
                self._context = msgspec.structs.replace(self._context, now=session.service.desk.broker.now())
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
            greeting = native.Greeting(
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
        send = partial(session._send_event, self._envelope.reqId, self._codec, self._event)
        session.subscribe(self._envelope.tenant, wish, send, answered)

    @staticmethod
    def _event(event: Event, request_id: Any, codec: Codec) -> bytes:
        return native.FORMATS[codec].encode({"event": event_answer(event, codec)})  # type: ignore[no-any-return]
