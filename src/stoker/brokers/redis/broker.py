"""The broker: carries plans out against Redis, blocking or on an event loop.

What has to be done is written once, as generators of operations (`operations.py`). Two short loops carry operations
out: one blocks its thread, one awaits. Each layer below knows one subject:

    connections.py     pools and streams of connections
    routing.py         which server has a tenant, and what it says of itself
    parking.py         how a call waits
    script_calls.py    the steps of a plan, and what scripts answer
"""

from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast

import msgspec

from stoker.brokers.contract import check_command
from stoker.brokers.redis.calls import (
    Plan,
    PlanContext,
)
from stoker.brokers.redis.greeting import ServerFacts
from stoker.brokers.redis.operations import NapStep, Operations
from stoker.brokers.redis.parking import CallVisit
from stoker.brokers.redis.plan_table import PLANS
from stoker.brokers.redis.script_calls import ScriptCalls
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.brokers.remote.broker import PLANNED, RemoteTrial
from stoker.brokers.remote.links import LinkLost, lost_reply
from stoker.brokers.remote.pool import CLOSED
from stoker.brokers.remote.retrying import Outage, Patience, default_retry_s
from stoker.brokers.resending import ResendAnswer, may_resend, resend_steps
from stoker.engine import checks
from stoker.model import commands as c
from stoker.model.errors import (
    Closed,
    Unavailable,
    Unreachable,
)
from stoker.model.limits import Limits
from stoker.model.steps import carry_out, carry_out_async
from stoker.runtime import type_checks

R = TypeVar("R")


class RedisBroker(ScriptCalls):
    """A broker over one Redis or a Redis Cluster, for any number of threads and event loops."""

    name = "redis"
    lacks = frozenset(
        {
            *(kind.__name__ for kind in c.ALL if kind not in PLANS),
            "Pull.claim",
            "ReadRecords.payloads",
            "ReadRecords.tenants",
        }
    )

    def __init__(
        self, target: Target, settings: RedisSettings | None = None, clock: Any = None, patience: Patience | None = None
    ) -> None:
        super().__init__(target, settings, clock, patience)
        self._outage = Outage()
        self._places = count()

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    @property
    def tenants(self) -> Collection[str]:
        """Those that this client has called for."""
        return self._tenants.keys()

    def server(self, tenant: str) -> ServerFacts:
        """The server of a tenant, as it says of itself now."""
        self._servers.clear()
        return self._drive(self._greeted(tenant))

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) not in PLANNED or not self.settings.resend:
            return self._send(tenant, command).reply  # type: ignore[no-any-return]
        return carry_out(resend_steps(command, self._windows), partial(self._send, tenant))

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if type(command) not in PLANNED or not self.settings.resend:
            return (await self._send_async(tenant, command)).reply  # type: ignore[no-any-return]
        return await carry_out_async(resend_steps(command, self._windows), partial(self._send_async, tenant))

    def _send(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        return self._drive(self._trying(tenant, command))

    async def _send_async(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        return await self._drive_async(self._trying(tenant, command))

    def _drive(self, operations: Operations[R]) -> R:
        try:
            operation = next(operations)
            while True:
                try:
                    result = operation.run(self)
                except BaseException as error:
                    operation = operations.throw(error)
                else:
                    operation = operations.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _drive_async(self, operations: Operations[R]) -> R:
        try:
            operation = next(operations)
            while True:
                try:
                    result = await operation.run_async(self)
                except BaseException as error:
                    operation = operations.throw(error)
                else:
                    operation = operations.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _trying(self, tenant: str, command: c.Command[Any]) -> Operations[ResendAnswer]:
        plan = self._checked(tenant, command)
        retry_s = default_retry_s() if self.settings.retry_s is None else self.settings.retry_s
        wait_ms: Any = getattr(command, "wait_ms", 0)
        wait_s = wait_ms / 1_000 if retry_s > 0 and type(wait_ms) is int and wait_ms > 0 else 0
        began, place = self.patience.now(), next(self._places)
        trial = RemoteTrial(self.patience, self._outage, retry_s + wait_s, began)
        for pause in self.patience.pauses(trial.retry_s, trial.began):
            try:
                reply = yield from self._once(tenant, command, plan, CallVisit(place))
            except (LinkLost, Unavailable) as error:
                self._servers.clear()
                trial.failed(error)
                self._check_again(command, error, trial)
            else:
                if self._outage.is_told:
                    self._outage.over(self._seed)
                return ResendAnswer(reply, trial.again)
            if pause is not None:
                yield NapStep(pause)
                if wait_s:
                    left_ms = wait_ms - int((self.patience.now() - began) * 1_000)
                    command = msgspec.structs.replace(command, wait_ms=max(0, left_ms))
        raise trial.meaning(command, trial.given_up(self._seed))

    def _checked(self, tenant: str, command: c.Command[R]) -> Callable[[PlanContext, Any], Plan[R]]:
        self._check_open()
        checks.name(tenant, "tenant")
        type_checks.check(command)
        check_command(self, command)
        return PLANS[type(command)]

    def _check_again(self, command: c.Command[Any], error: LinkLost | Unavailable, trial: RemoteTrial) -> None:
        """Go on if the command may be sent again; else say that its outcome is unknown."""
        if isinstance(error, LinkLost):
            if error.sent and not may_resend(command):
                raise lost_reply(command, self._seed, error) from None
            if self._closed:
                raise trial.meaning(command, Closed(CLOSED)) from None
        elif self._closed or not isinstance(error, Unreachable):
            raise trial.meaning(command, error) from None

    def _once(
        self, tenant: str, command: c.Command[R], plan_of: Callable[[PlanContext, Any], Plan[R]], visit: CallVisit
    ) -> Operations[R]:
        try:
            server = yield from self._greeted(tenant)
        except LinkLost as error:  # the command itself was not sent
            raise LinkLost(str(error), sent=False) from None
        has_failed = True
        try:
            if isinstance(command, c.Pull) and command.wait_ms > 0:
                command = cast("c.Command[R]", (yield from self._behind_others(tenant, command, visit)))
            reply = yield from self._follow(tenant, plan_of(self._context(tenant, server.level), command), visit)
            has_failed = False
            return reply
        finally:
            if visit.waited is not None:
                waiter, ticket = visit.waited
                waiter.hand_on(ticket, self._prefix(tenant) + "tick", has_failed=has_failed)
