"""The caller of a gRPC call: read from the call's metadata, and checked by the gate.

gRPC has connections, but its calls do not know them: a proxy may carry many clients over one. So each
call carries everything about its caller.
"""

import time
from typing import Any
from urllib.parse import unquote

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import TABLE, Permission
from stoker.model.errors import Unauthenticated
from stoker.model.traces import carried, from_headers
from stoker.server.auth.identity import Identity
from stoker.server.config.addresses import is_loopback
from stoker.server.dispatcher import Wait
from stoker.server.service import FORWARDED, Service

BEARER = "bearer "
TENANT = "stoker-tenant"
SESSION = "stoker-session"
ENTITLEMENT = "stoker-entitlement"


class Caller:
    """The client of one call, for as long as the call lasts. An unknown client raises `Unauthenticated`."""

    __slots__ = (
        "_service",
        "context",
        "credential",
        "identity",
        "is_local",
        "peer",
        "session",
        "tenant_asked",
        "trace",
    )

    def __init__(self, service: Service, context: Any) -> None:
        self._service = service
        self.context = context
        self.peer: str = context.peer()
        self.credential: str | None = None
        self.tenant_asked: str | None = None
        self.session: str | None = None
        entitlement: str | None = None
        """By which a client knows its own requests, to give them up."""
        is_forwarded = False
        parent = state = None
        for name, value in context.invocation_metadata() or ():
            if name == "authorization":
                self.credential = bearer(value)
            elif name == TENANT:
                self.tenant_asked = value
            elif name == SESSION:
                self.session = value
            elif name == ENTITLEMENT:
                entitlement = value
            elif name == "traceparent":
                parent = value
            elif name == "tracestate":
                state = value
            elif name in FORWARDED:
                is_forwarded = True
        self.trace = from_headers(parent, state)
        """Which the call is part of, for the jobs that it pushes."""
        self.is_local = is_local(self.peer) and not is_forwarded
        self.identity: Identity = service.identify(self.credential, loopback=self.is_local, entitlement=entitlement)

    async def write(self, message: Any) -> None:
        """Send a part of the answer."""
        await self.context.write(message)

    def admit(self, command: Any) -> str:
        """The tenant to carry a command out for."""
        return self._service.admit(self.identity, TABLE[type(command)].permission, self.tenant_asked, command)

    def admit_for(self, tenant: str | None, command: Any) -> str:
        """The same where the request itself may name the tenant."""
        asked = tenant if tenant is not None else self.tenant_asked
        return self._service.admit(self.identity, TABLE[type(command)].permission, asked, command)

    def check(self, permission: Permission) -> None:
        """Whether it still may, for what is sent unasked."""
        self._service.gate.allow(self.identity, permission, self.tenant_asked, time.time())

    async def carry_out(self, tenant: str, command: c.Command[Any], wait: Wait | None = None) -> Any:
        """The reply to a command that was admitted. Jobs whose caller left before they were on their way go back."""
        dispatcher = self._service.dispatcher
        if self.trace is not None:
            command = carried(command, self.trace)
        reply = await self._service.call(tenant, command, self.identity, wait)
        if type(command) is c.Pull and isinstance(reply, r.Delivery) and reply.runs:

            def ended(context: Any) -> None:
                if not context.done():  # its status was not sent
                    dispatcher.return_unsent(tenant, command, reply)

            self.context.add_done_callback(ended)
        return reply


def bearer(header: str) -> str:
    if header[: len(BEARER)].lower() != BEARER:
        raise Unauthenticated("authentication failed: expected the metadata `authorization: Bearer TOKEN`")
    return header[len(BEARER) :].strip()


def is_local(peer: str) -> bool:
    """Whether a peer is on this machine: `ipv4:127.0.0.1:1234`, `ipv6:%5B::1%5D:1234`, `unix:`."""
    kind, _, rest = peer.partition(":")
    host = unquote(rest).rpartition(":")[0].strip("[]")
    return kind == "unix" or is_loopback(host)
