"""What every transport is given: the desk, the gate, the quotas and the limits. The same rules hold on all of them.

Whoever has decoded a request asks here whether it may be carried out, and for whom.
"""

import socket
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, QuotaExceeded, StokerError, Unauthenticated
from stoker.server.auth.gate import Gate
from stoker.server.auth.identity import Identity
from stoker.server.auth.quotas import QuotaKeeper, Usage
from stoker.server.config import ServerConfig
from stoker.server.crowd import Crowd
from stoker.server.desk import Desk, Done, Held
from stoker.wire.table import Permission

if TYPE_CHECKING:
    from stoker.server.webhooks import Webhooks

EXPIRED = "authentication failed: the token expired or was withdrawn while this request waited: authenticate again"

PUSHING = frozenset((c.Push, c.PushBatch, c.PushWorkflow, c.FillStep, c.Stage, c.PutSchedule, c.RunSchedule))
SETTLING = frozenset((c.Ack, c.Fail, c.Release, c.Extend))
WORKER_CHARS_MAX = 256
"""Of a worker's name that is remembered."""
MARKING = frozenset((c.SetProgress, c.AppendLog, c.AppendPartial, c.MoveToDelayed, c.FillStep))


class Service:
    """The queue as all transports of one event loop see it."""

    def __init__(self, desk: Desk, gate: Gate, config: ServerConfig) -> None:
        self.desk = desk
        self.meter = desk.meter
        self.gate = gate
        self.config = config
        self.crowd = Crowd(lambda: self.config.server, self.meter.connections)
        self.quotas = QuotaKeeper(config.processes)
        self.usage: Usage = BrokerUsage(desk)
        self.started_at = time.time()
        self.unix_socket: socket.socket | None = None
        """Where to listen, if it is bound already: several processes share it."""
        self.webhooks: Webhooks | None = None
        """Where they are posted: a server has them, a queue that is only shared between processes has not."""

    def admit(self, identity: Identity, permission: Permission, tenant: str | None, command: Any) -> str:
        """The tenant to act for. Raises if this identity may not, or not so much."""
        tenant = self.gate.allow(identity, permission, tenant, time.time())
        quotas = self.gate.quotas(identity, tenant, time.time())
        if quotas is not None:
            self.quotas.check_rate(tenant, quotas, time.monotonic())
            self.check_quota(identity, tenant, command)
        return tenant

    def check_quota(self, identity: Identity, tenant: str, command: Any) -> None:
        """Whether what a push brings is within what the tenant may have."""
        if type(command) not in PUSHING:
            return
        quotas = self.gate.quotas(identity, tenant, time.time())
        if quotas is not None:
            payloads = payloads_of(command)
            size = sum(map(len, payloads))
            if type(command) is c.FillStep:  # its queue was named by the workflow, and looked at then
                known = next(iter(self.usage.queue_names(tenant)), "")
                try:
                    self.quotas.check_push(tenant, quotas, known, len(payloads), size, self.usage)
                except QuotaExceeded:
                    if not self._is_filled(tenant, command):
                        raise
                return
            steps = command.steps if type(command) is c.PushWorkflow else (command,)
            for queue in dict.fromkeys(step.queue for step in steps):
                self.quotas.check_push(tenant, quotas, queue, len(payloads), size, self.usage)
            for step in steps:
                own = payloads_of(step)
                self.usage.admitted(tenant, step.queue, len(own), sum(map(len, own)))

    def _is_filled(self, tenant: str, command: c.FillStep) -> bool:
        """Whether the step has its jobs: then a job that was tried again says what it said before, and adds nothing."""
        try:
            workflow = self.desk.look(tenant, c.GetJob(command.id)).options.workflow
            steps = self.desk.look(tenant, c.GetWorkflow(workflow or 0)).steps
        except StokerError:
            return False
        return any(step.key == command.step and step.count for step in steps)

    def check_still(self, identity: Identity, tenant: str, command: c.Command[Any], reply: Any) -> None:
        """Whether who waited for a reply may still have it; if not, what it brought goes back."""
        if not identity.is_valid(time.time()):
            self.desk.take_back(tenant, command, reply)
            raise Unauthenticated(EXPIRED)

    def submit(self, tenant: str, command: c.Command[Any], done: Done) -> Held | None:
        if type(command) is c.Pull and 0 < len(command.worker) <= WORKER_CHARS_MAX:
            self.meter.seen(tenant, command.worker, command.queues)
        return self.desk.submit(tenant, command, done)


def payloads_of(command: Any) -> Sequence[bytes]:
    """What a push brings. A schedule is looked at when it is made or run by hand, as if it were one job."""
    if type(command) is c.Push:
        return (command.payload,)
    if type(command) is c.PutSchedule:
        return (command.schedule.payload,)
    if type(command) is c.RunSchedule:
        return (b"",)
    if type(command) is c.PushWorkflow:
        return [payload for step in command.steps for payload in step.payloads]
    payloads: Sequence[bytes] = command.payloads
    return payloads


class BrokerUsage:
    """What a tenant uses, asked of the broker itself."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def queue_names(self, tenant: str) -> Collection[str]:
        names: Collection[str] = self._desk.look(tenant, c.ListQueues()).names
        return names

    def waiting_jobs(self, tenant: str) -> int:
        counts = self._desk.look(tenant, c.GetStats()).counts
        return int(counts.waiting + counts.delayed + counts.blocked)

    def payload_bytes(self, tenant: str) -> int:
        return int(self._desk.look(tenant, c.GetStats()).payload_bytes)

    def admitted(self, tenant: str, queue: str, jobs: int, bytes: int) -> None:
        """The broker counts by itself."""


def check_tokens(command: Any) -> None:
    """Peers that have said HELLO know about tokens: they must prove which delivery they mean."""
    kind = type(command)
    if (kind in SETTLING and command.tokens is None) or (kind in MARKING and command.token is None):
        raise InvalidRequest(f"{kind.__name__} without a token: after HELLO say which delivery is meant, by its token")
