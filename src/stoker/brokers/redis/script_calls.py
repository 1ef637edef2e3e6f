"""The steps of a plan, carried out in Redis: script calls, and what their answers mean."""

import asyncio
import logging
from typing import Any, TypeVar

from stoker.brokers.redis import consuming, schedules
from stoker.brokers.redis.calls import (
    LogRead,
    Plan,
    PlanContext,
    Rejected,
    ScriptCall,
    ScriptReply,
    Step,
    decode,
    encode,
)
from stoker.brokers.redis.greeting import meaning
from stoker.brokers.redis.links import (
    AsyncRedisLink,
    RedisRefusal,
    Words,
)
from stoker.brokers.redis.operations import Operations
from stoker.brokers.redis.parking import CallVisit, SeenTenant, WaitingCalls
from stoker.brokers.redis.scripts import script
from stoker.brokers.redis.settings import RedisSettings, Target, kept
from stoker.brokers.remote.retrying import Patience
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import (
    CannotOpen,
    Damaged,
    NewerFormat,
)
from stoker.model.unreceived import release_of

log = logging.getLogger("stoker.client")

R = TypeVar("R")

OK, REFUSED, MORE, NOT_OPEN, TORN, SLOT, FORMAT = range(7)
"""The answers of a script: see `core.lua`."""
PULL = c.Pull(())
"""What a late answer to a pull is an answer to: there are no claims here, so all of its jobs go back."""
KEY_FORMAT = 1
"""What the keys look like: `open.lua` writes it, `core.lua` refuses any other."""


class ScriptCalls(WaitingCalls):
    """The steps of a plan: scripts are called until they have answered, and their answers are understood."""

    def __init__(self, target: Target, settings: RedisSettings | None, clock: Any, patience: Patience | None) -> None:
        super().__init__(target, settings, clock, patience)
        self.losses = 0
        """How often a server had forgotten what it had told this client."""
        self._contexts: dict[tuple[str, str], PlanContext] = {}

    def _context(self, tenant: str, level: r.Level) -> PlanContext:
        found = self._contexts.get((tenant, level))
        if found is None:
            found = PlanContext(tenant, self.settings.limits, self.settings, self._checker, level)
            self._contexts[tenant, level] = found
        return found

    def _follow(self, tenant: str, plan: Plan[R], visit: CallVisit) -> Operations[R]:
        """Carry the steps of a plan out. A plan whose caller is gone gets to tidy up."""
        try:
            step = next(plan)
            while True:
                try:
                    result = yield from self._carry_out(tenant, step, visit)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _carry_out(self, tenant: str, step: Step, visit: CallVisit) -> Operations[Any]:
        if isinstance(step, ScriptCall):
            return self._call(tenant, step, visit)
        if isinstance(step, LogRead):
            return self._read(tenant, step, visit)
        return self._wait(tenant, step, visit)

    def _call(self, tenant: str, call: ScriptCall, visit: CallVisit) -> Operations[ScriptReply]:
        while True:
            answer = yield from self._evaluate(tenant, call.script, self._arguments(tenant, call))
            if answer[0] == NOT_OPEN:
                yield from self._open(tenant)
                continue
            done = self._answered(tenant, answer)
            if isinstance(done, ScriptReply):
                if call.script == "pull":
                    self._tell_chance(tenant, call, done)
                return done
            if done is not None:
                yield from self._follow(tenant, done, visit)

    def _arguments(self, tenant: str, call: ScriptCall) -> list[Any]:
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants.setdefault(tenant, SeenTenant(self._prefix(tenant)))
        header: dict[str, Any] = {"tenant": tenant, "sequence": known.sequence, "record": known.record}
        if self.clock is not None:
            header["now"] = self.clock.now_ms()
        elif self._keeps_time(tenant):
            header["keeps"] = True
        return [2, *known.keys, encode(header), encode(call.params), *call.args]

    def _open(self, tenant: str) -> Operations[None]:
        prefix = self._prefix(tenant)
        now = str(self.clock.now_ms()) if self.clock is not None else ""
        answer = yield from self._evaluate(tenant, "open", [2, prefix + "n", prefix + "void", kept(self.settings), now])
        if answer[0] != OK:
            raise Damaged(
                f"the key {prefix}n in Redis holds something else than a queue: use another ?prefix= or database"
            )

    def _evaluate(self, tenant: str, name: str, arguments: list[Any]) -> Operations[Any]:
        found = script(name)
        try:
            try:
                return (yield from self._exchange(tenant, ("EVALSHA", found.sha, *arguments)))
            except RedisRefusal as refusal:
                if refusal.code != "NOSCRIPT":
                    raise
                return (yield from self._exchange(tenant, ("EVAL", found.text, *arguments)))
        except RedisRefusal as refusal:
            raise meaning(self._route(tenant), refusal) from None

    def _answered(self, tenant: str, answer: Any) -> "ScriptReply | Plan[None] | None":
        """What a script said. None if it is to be called again, a plan if a slot is to be dealt with before that."""
        code = answer[0]
        if code == FORMAT:
            raise wrong_format(answer[1].decode())
        if code == TORN:
            raise Damaged(
                f"a script was broken off in the middle of a change of tenant {tenant!r}: its data cannot be trusted;"
                " restore it from a backup, or delete its keys"
            )
        _, now, next_at, sequence, record, lost, *values = answer
        known = self._tenants[tenant]
        if lost:
            self._tell_loss(tenant, known.sequence, lost)
        known.sequence, known.record = max(known.sequence, sequence), max(known.record, record)
        if code == REFUSED:
            raise Rejected(values[0].decode(), values[1], now)
        if code == SLOT:
            known_server = self._servers.get(self._route(tenant))
            level = known_server[0].level if known_server else "memory"
            return schedules.deal(self._context(tenant, level), values[0].decode(), next_at, now)
        if code == MORE:
            return None
        known.hear(now, next_at)
        for waiter in list(self._waiters.values()):
            waiter.head_at(tenant, known.local(known.head))
        return ScriptReply(now, next_at, values)

    def _tell_loss(self, tenant: str, seen: int, lost: int) -> None:
        self.losses += 1
        log.error(
            "Redis at %s has lost data of tenant %r: this client has seen job number %d, and Redis knew only of %d."
            " Jobs and results after that are gone; new jobs get higher numbers. Was it restarted without a log"
            " (appendonly no), flushed, or replaced by a replica that lagged?",
            *(self._route(tenant), tenant, seen, seen - lost),
        )

    def answered_late(self, words: Words, link: AsyncRedisLink, future: "asyncio.Future[Any]") -> None:
        """An answer for a caller that is gone. Jobs that it brings are given back."""
        if future.cancelled() or future.exception() is not None or script("pull").sha not in words:
            return
        code, _, _, _, _, _, *values = future.result()
        delivery = consuming.delivery_of(values) if code == OK else None
        if delivery is not None and delivery.runs:
            tenant = decode(words[5])["tenant"]  # type: ignore[arg-type]
            back = consuming.settle_params("release", release_of(PULL, delivery), delay=0, note="")
            release = link.call(("EVAL", script("settle").text, *self._arguments(tenant, ScriptCall("settle", back))))
            release.add_done_callback(lambda done: done.cancelled() or done.exception())


def wrong_format(found: str) -> CannotOpen:
    said = f"the queue in Redis has format {found}, and this release reads format {KEY_FORMAT}"
    if found.isdecimal() and int(found) > KEY_FORMAT:
        return NewerFormat(f"{said}: a later release wrote it, use that")
    return CannotOpen(f"{said}: an earlier release wrote it; work its jobs off with that, or use another ?prefix=")
