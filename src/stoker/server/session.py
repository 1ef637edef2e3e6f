"""One peer that sends requests: who it is, what it has said about itself, and how each of its requests is answered.

Transports cut the stream into frames and hand them in here; the answer comes through a callback, encoded as the
request was. Nothing here knows a socket.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from stoker import __version__
from stoker.model import commands as c
from stoker.model.errors import Busy, InvalidRequest, StokerError, Unauthenticated
from stoker.server.auth.identity import Identity
from stoker.server.desk import Held
from stoker.server.service import Service, check_tokens
from stoker.wire import native
from stoker.wire.frames import Codec
from stoker.wire.native import Envelope
from stoker.wire.table import ROWS

Answer = Callable[[bytes], None]
"""Takes an encoded reply."""


class Session:
    """The state of one connection, whatever carries it."""

    def __init__(self, service: Service, *, loopback: bool, identity: Identity | None = None) -> None:
        self.service = service
        self.loopback = loopback
        self.identity = identity
        self.needs_tokens = False
        self.in_flight = 0
        self.is_closed = False
        self._in_flight_max = service.config.server.requests_in_flight_max
        self._held: dict[Held, str | int | None] = {}
        """Requests that wait, with their numbers."""

    def request(self, envelope: Envelope, frame: bytes, codec: Codec, answer: Answer) -> None:
        """Carry out one request; `answer` is called exactly once, unless the session is closed first."""
        request_id = envelope.reqId
        try:
            if self.in_flight >= self._in_flight_max:
                raise Busy(
                    f"too many requests in flight: {self._in_flight_max} of this connection are not answered yet;"
                    " wait for some of them, or use a second connection"
                )
            row = ROWS.get(envelope.cmd)
            if row is None:
                self._other(envelope, frame, codec, answer)
                return
            command = native.command_of(envelope, codec)
            if self.needs_tokens:
                check_tokens(command)
            tenant = self.service.admit(self._who(), row.permission, envelope.tenant, command)
        except StokerError as error:
            answer(native.refused(error, request_id, codec))
            return
        self._submit(tenant, command, partial(self._reply, request_id, codec, answer), request_id)

    def close(self) -> None:
        """The peer is gone: nobody waits for its replies any more. Leases stay what they are."""
        self.is_closed = True
        for held in list(self._held):
            self.service.desk.give_up(held)
        self._held.clear()

    def authenticate(self, credential: str | None) -> Identity:
        """Become whoever the credential says. Raises `Unauthenticated`."""
        self.identity = self.service.gate.identify(credential, loopback=self.loopback)
        return self.identity

    def _who(self) -> Identity:
        return self.identity or self.authenticate(None)

    def _submit(
        self, tenant: str, command: c.Command[Any], done: Callable[[Any], None], request_id: str | int | None
    ) -> None:
        """Hand a command in, and remember it while it waits."""
        self.in_flight += 1
        held: Held | None = None

        def ended(reply: Any) -> None:
            self.in_flight -= 1
            if held is not None:
                self._held.pop(held, None)
            if self.is_closed:
                self.service.desk.return_unsent(tenant, command, reply)
            else:
                done(reply)

        held = self.service.submit(tenant, command, ended)
        if held is not None:
            self._held[held] = request_id

    def _reply(self, request_id: str | int | None, codec: Codec, answer: Answer, reply: Any) -> None:
        if isinstance(reply, StokerError):
            answer(native.refused(reply, request_id, codec))
        else:
            answer(native.answered(reply, request_id, codec))

    # --- what is not a command of the contract ---------------------------------------------------

    def _other(self, envelope: Envelope, frame: bytes, codec: Codec, answer: Answer) -> None:
        name = envelope.cmd.upper()
        if name == "HELLO":
            answer(native.answered(self._hello(envelope, frame, codec), envelope.reqId, codec))
        elif name == "GIVE_UP":
            answer(native.answered(self._give_up(native.given_up(envelope, codec)), envelope.reqId, codec))
        else:
            raise InvalidRequest(
                f"unknown command {envelope.cmd[:64]!r}: the reference lists the commands that there are"
            )

    def _give_up(self, number: str | int) -> dict[str, int]:
        """Stop waiting for a request of this peer. One that is answered already stays answered."""
        found = [held for held, known in self._held.items() if known == number]
        for held in found:
            del self._held[held]
            self.in_flight -= 1
            self.service.desk.give_up(held)
        return {"count": len(found)}

    def _hello(self, envelope: Envelope, frame: bytes, codec: Codec) -> dict[str, Any]:
        greeting = native.greeting(envelope, frame, codec)
        if greeting.token is not None or self.identity is None:
            try:
                self.authenticate(greeting.token)
            except Unauthenticated:
                self.identity = None
                raise
        assert self.identity is not None
        self.needs_tokens = greeting.tokens
        config = self.service.config
        return {
            "server": "stoker",
            "version": __version__,
            "protocol": native.PROTOCOL,
            "tenant": self.identity.tenant,
            "permissions": sorted(self.identity.permissions),
            "shards": len(self.service.desk.broker.runtime.shards),
            "limits": config.limits,
            "frame_bytes_max": config.server.frame_bytes_max,
            "requests_in_flight_max": config.server.requests_in_flight_max,
        }
