"""What every transport uses: the dispatcher, the gate, the quotas and the limits. The same rules hold on all of them.

A transport that has decoded a request asks here whether it may be executed, and for which tenant.
"""

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.brokers.contract import Waiter
from stoker.model import commands as c
from stoker.model.command_table import FENCED, MAKES_JOBS, Permission
from stoker.model.errors import InvalidRequest, QuotaExceeded, StokerError, Unauthenticated, Unsupported
from stoker.runtime.usage import WEIGHED, FindUsed
from stoker.server.auth.gate import Gate
from stoker.server.auth.identity import OPEN, Identity
from stoker.server.auth.quotas import BY_USE, QuotaKeeper, Quotas, Usage, is_over
from stoker.server.binding import Bound
from stoker.server.config import ServerConfig
from stoker.server.connections import ConnectionBounds, Connections, bounds_for
from stoker.server.descriptors import left_for_connections
from stoker.server.dispatcher import STOPPING, Dispatcher, Done, Wait
from stoker.server.push_amounts import check_brought
from stoker.server.remote_quotas import RemoteQuotas

if TYPE_CHECKING:
    from stoker.server.report import InboxReport
    from stoker.server.snapshots import Snapshots
    from stoker.server.webhooks import Webhooks

R = TypeVar("R")

EXPIRED = "authentication failed: the token expired or was withdrawn while this request waited: authenticate again"

FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip")
"""Headers that proxies add. A client that came through a proxy is not on this machine, even if the proxy is."""

COUNTED = MAKES_JOBS | WEIGHED.keys()
"""Commands that may make jobs or bytes: held against quotas. What jobs bring when they end is not."""
WORKER_CHARS_MAX = 256
"""Of a worker's name that is remembered."""
GRPC_SHARE = 4
"""Of the descriptors that are left for connections, gRPC's may take the fourth part: each carries many calls."""


class Service:
    """The queue as all transports of one event loop see it."""

    def __init__(self, dispatcher: Dispatcher, gate: Gate, config: ServerConfig) -> None:
        self.dispatcher = dispatcher
        self.meter = dispatcher.meter
        self.gate = gate
        self.config = config
        self.connections = Connections(self.bounds, self.meter.connections)
        left = left_for_connections(config.webhooks.concurrency + 2 * config.processes)
        self.grpc_connections_max = max(1, min(config.server.connections_max, left // GRPC_SHARE))
        """gRPC accepts for itself, and only takes a number."""
        self._descriptors = left - (self.grpc_connections_max if config.grpc.address is not None else 0)
        self.quotas = QuotaKeeper(config.processes)
        self.usage: Usage = BrokerUsage(dispatcher)
        broker = dispatcher.broker
        self.remote_quotas = RemoteQuotas(broker, broker.remote, self.quotas) if broker.remote is not None else None
        """Keeps quotas by use where jobs are counted elsewhere."""
        self.started_at = time.time()
        self.bound = Bound()
        """Where to listen, as far as that is bound already."""
        self.webhooks: Webhooks | None = None
        """Where they are posted: a server has them, a queue that is only shared between processes has not."""
        self.inbox_report: Callable[[], InboxReport | None] = lambda: None
        """How the inbox stands that a server reads; None if it reads none."""
        self.snapshots: Snapshots | None = None
        """What makes them. Only peers at the socket in the data directory may ask for one."""

    def identify(self, credential: str | None, *, loopback: bool, entitlement: str | None = None) -> Identity:
        """The identity that sends a request. Raises `Unauthenticated`, or `Forbidden` for an invalid entitlement."""
        identity = self.gate.identify(credential, loopback=loopback or self.config.insecure)
        return identity if entitlement is None else self.gate.entitle(identity, entitlement)

    @property
    def trouble(self) -> str:
        """Why no work is accepted at the moment; empty while it is. `/ready` and the metrics say so."""
        dispatcher = self.dispatcher
        if dispatcher.is_stopping:
            return STOPPING
        return dispatcher.broker.trouble or (dispatcher.team.trouble if dispatcher.team is not None else "")

    def bounds(self) -> ConnectionBounds:
        """How many connections there may be."""
        return bounds_for(self.config.server, self._descriptors, has_tokens=self.gate.configured)

    def admit(self, identity: Identity, permission: Permission, tenant: str | None, command: Any) -> str:
        """The tenant to act for. Raises if this identity may not act for it, or is over its limits."""
        tenant = self.gate.allow(identity, permission, tenant, time.time())
        if type(command) is c.ReadRecords:
            for other in command.tenants or ():
                self.gate.allow(identity, permission, other, time.time())
        quotas = self.gate.quotas(identity, tenant, time.time())
        if quotas is not None:
            self.quotas.check_rate(tenant, quotas, time.monotonic())
            self.check_quota(identity, tenant, command)
        return tenant

    def check_quota(self, identity: Identity, tenant: str, command: Any) -> None:
        """Whether what a command brings is within what the tenant may have."""
        if type(command) not in COUNTED:
            return
        quotas = self.gate.quotas(identity, tenant, time.time())
        if quotas is not None:
            if self.dispatcher.broker.counters is None:
                if self.dispatcher.broker.remote is None:
                    check_countable(quotas, self.dispatcher.broker.name)
                return  # `submit` asks where the jobs are counted
            if type(command) in WEIGHED:
                self._check_weighed(tenant, quotas, command)
                return
            try:
                check_brought(self.quotas, tenant, quotas, command, self.usage)
            except QuotaExceeded:
                if type(command) is not c.FillStep or not self._is_filled(tenant, command):
                    raise

    def _check_weighed(self, tenant: str, quotas: Quotas, command: Any) -> None:
        """Commands that replace something, bring something back, or say a second time what they said before."""
        added = self.dispatcher.added_by(tenant, command)
        if added.jobs <= 0 and added.bytes <= 0:
            return
        queue = command.queue if type(command) is c.Stage else None
        self.quotas.check_push(tenant, quotas, queue, added.jobs, added.bytes, self.usage)
        self.usage.admitted(tenant, queue, added.jobs, added.bytes)

    def is_over(self, tenant: str, size: int) -> bool:
        """Whether one more job, pushed by a schedule, is too much.

        It is asked in the middle of a turn, so it reads only the counters of this process. A schedule has no
        entitlement, so the configured quota counts.
        """
        quotas = self.gate.quotas(OPEN, tenant, 0.0)
        if quotas is None:
            return False
        found = self.dispatcher.counters.used(tenant)
        return is_over(quotas.waiting_jobs, found.jobs, 1) or is_over(quotas.bytes, found.bytes, size)

    def _is_filled(self, tenant: str, command: c.FillStep) -> bool:
        """Whether the step has its jobs: then a job that was tried again says what it said before, and adds nothing."""
        try:
            workflow = self.dispatcher.look(tenant, c.GetJob(command.id)).options.workflow
            steps = self.dispatcher.look(tenant, c.GetWorkflow(workflow or 0)).steps
        except StokerError:
            return False
        return any(step.key == command.step and step.count for step in steps)

    def check_still(self, identity: Identity, tenant: str, command: c.Command[Any], reply: Any) -> None:
        """Raises if the token has expired while the client waited for a reply; jobs in the reply go back."""
        if not identity.is_valid(time.time()):
            self.dispatcher.return_unsent(tenant, command, reply, claimed=True)
            raise Unauthenticated(EXPIRED)

    def submit(
        self, tenant: str, command: c.Command[Any], done: Done, identity: Identity | None = None
    ) -> Waiter | None:
        """Hand in a command that was admitted. Where jobs are counted elsewhere, `identity` has its quotas checked."""
        if type(command) is c.Pull and 0 < len(command.worker) <= WORKER_CHARS_MAX:
            self.meter.seen(tenant, command.worker, command.queues)
        if self.remote_quotas is not None and identity is not None and type(command) in COUNTED:
            quotas = self.gate.quotas(identity, tenant, time.time())
            if quotas is not None and any(getattr(quotas, name) for name in BY_USE):
                return self.dispatcher.submit(tenant, command, done, partial(self.remote_quotas.execute, quotas))
        return self.dispatcher.submit(tenant, command, done)

    async def call(
        self, tenant: str, command: c.Command[R], identity: Identity | None = None, wait: Wait | None = None
    ) -> R:
        """`submit` for a coroutine. Cancelling it gives the command up, and `wait` may, too: see `Dispatcher.called`.

        A reply that may have been waited for is only for an `identity` that is still valid.
        """
        submit = partial(self.submit, identity=identity)
        reply: R = await self.dispatcher.called(submit, tenant, command, wait)
        if identity is not None and getattr(command, "wait_ms", None):
            self.check_still(identity, tenant, command, reply)
        return reply


def check_countable(quotas: Quotas, broker: str) -> None:
    """A quota that this broker cannot keep refuses everything that it is about."""
    name = next((name for name in BY_USE if getattr(quotas, name)), None)
    if name is not None:
        raise Unsupported.by(broker, f"the quota {name}", "sqlite:///DIRECTORY, or take the quota away")


class BrokerUsage:
    """What a tenant uses, asked of the broker itself."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def queue_names(self, tenant: str) -> Collection[str]:
        names: Collection[str] = self._dispatcher.look(tenant, c.ListQueues()).names
        return names

    def waiting_jobs(self, tenant: str) -> int:
        return self._dispatcher.look(tenant, FindUsed()).jobs

    def payload_bytes(self, tenant: str) -> int:
        return self._dispatcher.look(tenant, FindUsed()).bytes

    def admitted(self, tenant: str, queue: str | None, jobs: int, bytes: int) -> None:
        """The broker counts by itself."""


def check_tokens(command: Any) -> None:
    """Peers that have said HELLO know about tokens: they must prove which delivery they mean."""
    kind = type(command)
    if kind in FENCED and getattr(command, "tokens" if hasattr(command, "tokens") else "token") is None:
        raise InvalidRequest(f"{kind.__name__} without a token: after HELLO say which delivery is meant, by its token")
