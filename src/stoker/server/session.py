"""One peer that sends requests: its identity, its settings, and how each of its requests is answered.

Transports cut the stream into frames and pass them in; the answer comes through a callback, encoded like the
request. Nothing here knows a socket. Both dialects meet here: a request of Stoker's own is one command (`call.py`); one
of flashQ's is a plan of commands, whose answer is written for flashQ's clients (`exchange.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from stoker.brokers.contract import Waiter
from stoker.model import commands as c
from stoker.model.command_table import Permission
from stoker.model.errors import Busy, Forbidden, InvalidRequest, LimitExceeded, StokerError, Unauthenticated
from stoker.model.events import Event
from stoker.model.version import __version__
from stoker.server.auth.identity import Identity
from stoker.server.call import Answer, Call, NativeCall, told
from stoker.server.exchange import Exchange
from stoker.server.reader import Filter, MissedEvents
from stoker.server.service import Service, check_tokens
from stoker.server.subscriptions import Send, Subscription
from stoker.wire import flashq, native
from stoker.wire.frames import Codec
from stoker.wire.native import Envelope
from stoker.wire.native_commands import ROWS
from stoker.wire.native_push import PushRequest

SESSION_COMMANDS = ("hello", "give_up", "subscribe", "unsubscribe")
"""What a peer of Stoker's own dialect may ask of its connection besides the commands of the contract."""
WEBHOOK_COMMANDS = ("set_webhook", "list_webhooks", "delete_webhook", "test_webhook")
"""And of the server behind it."""
PUSH_PERMISSION = ROWS[native.NAMES[c.Push]].permission
KNOWN_MAX = 64
"""Tenants for which a connection remembers what it may do: most use one."""


class Session:
    """The state of one connection, of any transport."""

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
        self.waiting: dict[Call, Waiter] = {}
        """Requests that wait for something to happen."""
        self._subscriptions: list[Subscription] = []
        self._snapshots: list[str] = []
        """Names of the snapshots that were made for this peer."""
        self.contexts: dict[Codec, flashq.RequestContext] = {
            codec: flashq.RequestContext(codec=codec, limits=service.config.limits) for codec in native.FORMATS
        }

    def request(self, envelope: Envelope, frame: bytes, codec: Codec, answer: Answer) -> None:
        """Carry out one request; `answer` is called exactly once, unless the session is closed first."""
        row = ROWS.get(envelope.cmd)
        try:
            if self.in_flight >= self._in_flight_max:
                raise self._too_many()
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

    def push(self, request: PushRequest, answer: Answer) -> None:
        """What `request` does, for a push that came in one piece."""
        try:
            if self.in_flight >= self._in_flight_max:
                raise self._too_many()
            tenant = self._admit(PUSH_PERMISSION, request.tenant, request.body)
        except StokerError as error:
            answer(native.refused(error, request.reqId, "msgpack"))
            return
        self.submit(NativeCall(self, tenant, request.body, request.reqId, "msgpack", answer))

    def _too_many(self) -> Busy:
        return Busy(
            f"too many requests in flight: {self._in_flight_max} of this connection are not answered yet;"
            " wait for some of them, or use a second connection"
        )

    def _admit(self, permission: Permission, named: str | None, command: Any) -> str:
        """The tenant to act for, as the service says; what it has said of a standing identity is remembered."""
        identity = self.identity or self.who()
        gate = self.service.gate
        key = (permission, named)
        if identity is self._known_for and gate.revision == self._known_at and not identity.grant.ended:
            tenant = self._known.get(key)
            if tenant is not None and type(command) is not c.ReadRecords:  # which may name more tenants
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
        return bool(self.in_flight) and not self.waiting and not self._subscriptions

    def close(self) -> None:
        """The peer is gone: its waiting requests are given up. Leases stay what they are."""
        self.is_closed = True
        for subscription in self._subscriptions:
            subscription.end()
        for waiter in self.waiting.values():
            waiter.give_up()
        self.waiting.clear()
        self._drop_snapshots()

    def authenticate(self, credential: str | None) -> Identity:
        """Take the identity of a credential. Raises `Unauthenticated`, and then the peer has none."""
        self.identity = None
        self.identity = self.service.gate.identify(credential, loopback=self.loopback)
        return self.identity

    def who(self) -> Identity:
        return self.identity or self.authenticate(None)

    def submit(self, call: Call) -> None:
        """Hand a command in, and remember it while it waits."""
        self.in_flight += 1
        service = self.service
        if type(call.command) is c.Pull or service.remote_quotas is not None:
            waiter = service.submit(call.tenant, call.command, call, call.identity)
        else:
            waiter = service.dispatcher.submit(call.tenant, call.command, call)
        if waiter is not None:
            self.waiting[call] = waiter

    def after_waiting(self, call: Call, reply: Any) -> Any:
        """The reply to a request that waited, or a refusal if the peer lost its rights meanwhile."""
        try:
            self.service.check_still(call.identity, call.tenant, call.command, reply)
        except Unauthenticated as error:
            return error
        return reply

    # --- what is not a command of the contract ---------------------------------------------------

    def _other(self, envelope: Envelope, frame: bytes, codec: Codec, answer: Answer) -> None:
        cmd = envelope.cmd
        if cmd == "subscribe":
            send = partial(self.send_event, envelope.reqId, codec, native.event_frame)
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
        found = [call for call in self.waiting if call.request_id == number]
        for call in found:
            self.in_flight -= 1
            self.waiting.pop(call).give_up()
        return {"count": len(found)}

    def hello(self, greeting: native.NativeHello) -> dict[str, Any]:
        if greeting.token is not None or self.identity is None:
            self.authenticate(greeting.token)
        assert self.identity is not None
        if greeting.entitlement is not None:
            self.identity = self.service.gate.entitle(self.identity, greeting.entitlement)
        self.needs_tokens = greeting.tokens
        config = self.service.config
        for codec in native.FORMATS:
            self.contexts[codec] = flashq.RequestContext(codec, True, greeting.ranges, config.limits)
        return {
            "server": "stoker",
            "version": __version__,
            "protocol": native.PROTOCOL,
            "tenant": self.identity.tenant,
            "permissions": sorted(self.identity.permissions),
            "shards": self.service.dispatcher.shards,
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

    def send_event(
        self, request_id: Any, codec: Codec, frame: Callable[..., Any], event: Event | MissedEvents | StokerError
    ) -> None:
        assert self._send is not None
        if isinstance(event, StokerError):
            self._send(native.refused(event, request_id, codec))
        elif isinstance(event, MissedEvents):
            self._send(native.missed_frame(event, request_id, codec))
        else:
            self._send(frame(event, request_id, codec))
