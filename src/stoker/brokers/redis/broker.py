"""The broker: carries plans out against Redis, blocking or on an event loop.

What has to be done is written once, as generators of operations (`RedisExchange`, `ParkStep`, `NapStep`). Two short
loops carry operations out: one blocks its thread, one awaits.
"""

import asyncio
import logging
import threading
import time
from binascii import crc_hqx
from collections.abc import Callable, Collection, Generator
from functools import partial
from itertools import count
from typing import Any, TypeVar

import msgspec

from stoker.brokers.redis import consuming, control, entries, history, looking, producing, schedules, workflows
from stoker.brokers.redis.calls import (
    ListWait,
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
from stoker.brokers.redis.greeting import AGAIN_S, ServerFacts, check, meaning, server_of
from stoker.brokers.redis.history import LogPage
from stoker.brokers.redis.links import (
    CLOSED,
    AsyncRedisLink,
    BlockingRedisLink,
    Pool,
    RedisNode,
    RedisRefusal,
    Stream,
    Way,
    Words,
    node_of,
)
from stoker.brokers.redis.scripts import script
from stoker.brokers.redis.settings import RedisSettings, Target, kept
from stoker.brokers.redis.waiting import NEVER, ListWaiter, StreamWaiter, Ticket
from stoker.brokers.remote import forking
from stoker.brokers.remote.broker import PLANNED, RemoteTrial
from stoker.brokers.remote.links import LinkLost, lost_reply
from stoker.brokers.remote.retrying import Outage, Patience, default_retry_s
from stoker.brokers.resending import ResendAnswer, may_resend, resend_steps
from stoker.brokers.sending_window import SendingWindows
from stoker.engine import checks
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.errors import (
    CannotOpen,
    Closed,
    Damaged,
    NewerFormat,
    Unavailable,
    Unreachable,
    Unsupported,
)
from stoker.model.limits import Limits
from stoker.model.steps import carry_out, carry_out_async
from stoker.model.unreceived import release_of
from stoker.runtime import type_checks

log = logging.getLogger("stoker.client")

R = TypeVar("R")

OK, REFUSED, MORE, NOT_OPEN, TORN, SLOT, FORMAT = range(7)
"""The answers of a script: see `core.lua`."""
PULL = c.Pull(())
"""What a late answer to a pull is an answer to: there are no claims here, so all of its jobs go back."""
SLOTS = 16_384
REDIRECTS = 5
"""How often one call follows a cluster from server to server."""

PLANS: dict[type[Any], Callable[[PlanContext, Any], Plan[Any]]] = {
    c.Push: producing.push,
    c.PushBatch: producing.push_batch,
    c.PushWorkflow: workflows.push,
    c.FillStep: workflows.fill,
    c.GetWorkflow: workflows.get,
    c.ListWorkflows: workflows.list_all,
    c.CancelWorkflow: workflows.cancel,
    c.RetryWorkflow: workflows.retry,
    c.GetInputs: workflows.get_inputs,
    c.Pull: consuming.pull,
    c.Ack: consuming.ack,
    c.Fail: consuming.fail,
    c.Release: consuming.release,
    c.Extend: consuming.extend,
    c.SetProgress: consuming.set_progress,
    c.AppendLog: consuming.append_log,
    c.AppendPartial: consuming.append_partial,
    c.GetJob: looking.get_job,
    c.FindJob: looking.find_job,
    c.GetLogs: looking.get_logs,
    c.GetPartials: looking.get_partials,
    c.WaitJob: looking.wait_job,
    c.Browse: looking.browse,
    c.Why: looking.why,
    c.ListQueues: looking.list_queues,
    c.GetQueue: looking.get_queue,
    c.GetPriorities: looking.get_priorities,
    c.GetStats: looking.get_stats,
    c.GetStory: history.get_story,
    c.ReadEvents: history.read_events,
    c.ReadRecords: history.read_records,
    c.Pause: control.pause,
    c.Resume: control.resume,
    c.SetRateLimit: control.set_rate_limit,
    c.SetConcurrency: control.set_concurrency,
    c.SetQueuePolicy: control.set_queue_policy,
    c.Cancel: control.cancel,
    c.Promote: control.promote,
    c.ChangePriority: control.change_priority,
    c.MoveToDelayed: control.move_to_delayed,
    c.UpdatePayload: control.update_payload,
    c.Discard: control.discard,
    c.Drain: control.drain,
    c.Clean: control.clean,
    c.Obliterate: control.obliterate,
    c.ListDead: looking.list_dead,
    c.GetDeadStats: looking.get_dead_stats,
    c.RetryDead: control.retry_dead,
    c.PurgeDead: control.purge_dead,
    c.PutSchedule: schedules.put,
    c.GetSchedule: schedules.get,
    c.ListSchedules: schedules.list_all,
    c.PauseSchedule: schedules.pause,
    c.ResumeSchedule: schedules.resume,
    c.RunSchedule: schedules.run,
    c.DeleteSchedule: schedules.delete,
    c.KvSet: entries.set_one,
    c.KvGet: entries.get_one,
    c.KvGetMany: entries.get_many,
    c.KvSetMany: entries.set_many,
    c.KvDelete: entries.delete,
    c.KvExists: entries.exists,
    c.KvExpire: entries.expire,
    c.KvTtl: entries.ttl,
    c.KvKeys: entries.keys,
    c.KvIncrement: entries.increment,
}
"""How each command is carried out. Those that are not here are refused as `unsupported`."""


class RedisExchange:
    """Send a command to a server, and get its answer."""

    def __init__(self, node: RedisNode, words: Words, asking: bool = False) -> None:
        self.node, self.words, self.asking = node, words, asking

    def run(self, broker: "RedisBroker") -> Any:
        return broker.pool(self.node).call(self.words, self.asking)

    async def run_async(self, broker: "RedisBroker") -> Any:
        link = await broker.stream(self.node).take()
        if self.asking:
            link.call(("ASKING",))
        future = link.call(self.words)
        try:
            async with asyncio.timeout(broker.settings.timeout_s):
                return await asyncio.shield(future)
        except TimeoutError:
            link.close()
            future.exception()
            raise LinkLost(f"Redis did not answer within {broker.settings.timeout_s:g} s", sent=True) from None
        except asyncio.CancelledError:
            future.add_done_callback(partial(broker.answered_late, self.words, link))
            raise


class ParkStep:
    """Wait until a ticket is woken, or its time is over."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def run(self, broker: "RedisBroker") -> None:
        woken = threading.Event()
        self._ticket.when_woken(woken.set)
        woken.wait(max(0.0, self._ticket.ends_at - time.monotonic()))

    async def run_async(self, broker: "RedisBroker") -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = loop.call_later(max(0.0, self._ticket.ends_at - time.monotonic()), settle, future)
        self._ticket.when_woken(partial(call_soon, loop, settle, future))
        try:
            await future
        finally:
            timer.cancel()


class PassStep:
    """Let the clock of a test pass a time."""

    def __init__(self, until: int) -> None:
        self._until = until

    def run(self, broker: "RedisBroker") -> None:
        broker.clock.wait(threading.Event(), self._until)

    async def run_async(self, broker: "RedisBroker") -> None:
        await broker.clock.wait_async(asyncio.Event(), self._until)


class NapStep:
    """Wait before the next try."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def run(self, broker: "RedisBroker") -> None:
        broker.patience.nap(self._pause_s)

    async def run_async(self, broker: "RedisBroker") -> None:
        await broker.patience.nap_async(self._pause_s)


Operations = Generator["RedisExchange | ParkStep | PassStep | NapStep", Any, R]


def settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def call_soon(loop: asyncio.AbstractEventLoop, *call: Any) -> None:
    try:
        loop.call_soon_threadsafe(*call)
    except RuntimeError:
        pass  # the loop is closed, and its callers are gone


class SeenTenant:
    """What this client knows of a tenant."""

    def __init__(self) -> None:
        self.sequence, self.record = 0, 0
        """The highest numbers that it has seen."""
        self.now, self.heard_at, self.head = 0, 0.0, -1
        """The tenant's time when it was last told, when that was by this machine's clock, and the next deadline."""

    def hear(self, now: int, head: int) -> None:
        if now > self.now:
            self.now, self.heard_at, self.head = now, time.monotonic(), head
        elif now == self.now and head >= 0:
            self.head = head if self.head < 0 else min(head, self.head)

    def local(self, at: int) -> float:
        """A time of the tenant by this machine's clock, just after it has come."""
        return NEVER if at < 0 else self.heard_at + (at - self.now + 1) / 1_000


class CallVisit:
    """One try of a command: its place in line, and how it has waited last."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.waited: tuple[ListWaiter, Ticket] | None = None


class RedisBroker:
    """A broker over one Redis or a Redis Cluster, for any number of threads and event loops."""

    name = "redis"

    def __init__(
        self, target: Target, settings: RedisSettings | None = None, clock: Any = None, patience: Patience | None = None
    ) -> None:
        self.settings = settings or RedisSettings()
        self.target = target
        self.clock = clock
        """In tests time comes from here; else it is Redis' own."""
        self.patience = patience or Patience()
        self.losses = 0
        """How often a server had forgotten what it had told this client."""
        self._outage = Outage()
        self._checker = Shard(0, limits=self.settings.limits)
        self._seed = node_of(target)
        self._tenants: dict[str, SeenTenant] = {}
        self._servers: dict[RedisNode, tuple[ServerFacts, float]] = {}
        self._has_worked = False
        self._routes: dict[str, RedisNode] = {}
        self._known: set[RedisNode] = set()
        """In a cluster: where each tenant is, and all servers that were ever named."""
        self._places = count()
        self._closed = False
        self._begin()
        forking.remember(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._windows = SendingWindows()
        self._pools: dict[RedisNode, Pool] = {}
        self._streams: dict[tuple[asyncio.AbstractEventLoop, RedisNode], Stream] = {}
        self._waiters: dict[tuple[type[ListWaiter], str], ListWaiter] = {}

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    @property
    def lacks(self) -> frozenset[type[Any]]:
        """The commands that it refuses as `unsupported`."""
        return frozenset(c.ALL) - PLANS.keys()

    @property
    def tenants(self) -> Collection[str]:
        """Those that this client has called for."""
        return self._tenants.keys()

    def server(self, tenant: str) -> ServerFacts:
        """The server of a tenant, as it says of itself now."""
        self._servers.clear()
        return self._drive(self._greeted(tenant))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.patience.end()
            ending: list[Any] = [*self._waiters.values(), *self._pools.values(), *self._streams.values()]
        for one in ending:
            one.close()

    def begin_anew(self) -> None:
        """In a forked process: leave the connections to the parent, and go on with new ones."""
        left: list[Any] = [*self._waiters.values(), *self._pools.values(), *self._streams.values()]
        _left.append(left)
        self.patience.begin_anew()
        self._begin()
        for one in left:
            one.forget()

    # --- both colours ----------------------------------------------------------------------------

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

    # --- connections -----------------------------------------------------------------------------

    def pool(self, node: RedisNode) -> Pool:
        found = self._pools.get(node)
        if found is None:
            with self._lock:
                self._check_open()
                found = self._pools.setdefault(node, Pool(self._way(node)))
        return found

    def stream(self, node: RedisNode) -> Stream:
        loop = asyncio.get_running_loop()
        found = self._streams.get((loop, node))
        if found is None:
            with self._lock:
                self._check_open()
                for place in [place for place in self._streams if place[0].is_closed()]:
                    self._streams.pop(place).close()
                found = self._streams[loop, node] = Stream(self._way(node), loop)
        return found

    def _waiter(self, kind: type[ListWaiter], tenant: str) -> ListWaiter:
        """One for all tenants; in a cluster one for each, because tenants are on different servers."""
        place = kind, tenant if self.settings.cluster else ""
        found = self._waiters.get(place)
        if found is None:
            with self._lock:
                self._check_open()
                found = self._waiters.get(place)
                if found is None:
                    found = self._waiters[place] = kind(
                        self._seed,
                        partial(self._connect, tenant),
                        partial(self._call_for, tenant),
                        self._put_back,
                        meaning,
                    )
        return found

    def _connect(self, tenant: str) -> tuple[RedisNode, BlockingRedisLink]:
        node = self._route(tenant)
        return node, BlockingRedisLink(self._way(node))

    def _call_for(self, tenant: str, words: Words) -> Any:
        return self.pool(self._route(tenant)).call(words)

    def _put_back(self, key: str, found: bytes) -> Words:
        return ("EVAL", script("back").text, 1, key, found)

    def _way(self, node: RedisNode) -> Way:
        return Way(node, self.target, self.settings)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(CLOSED)

    # --- a command, as often as it takes ---------------------------------------------------------

    def _trying(self, tenant: str, command: c.Command[Any]) -> Operations[ResendAnswer]:
        plan = self._checked(tenant, command)
        retry_s = default_retry_s() if self.settings.retry_s is None else self.settings.retry_s
        wait_ms: Any = getattr(command, "wait_ms", 0)
        wait_s = wait_ms / 1_000 if retry_s > 0 and type(wait_ms) is int and wait_ms > 0 else 0
        trial = RemoteTrial(self.patience, self._outage, retry_s + wait_s)
        began, place = self.patience.now(), next(self._places)
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
        plan = PLANS.get(type(command))
        if plan is None:
            raise Unsupported.by(self.name, type(command).__name__)
        return plan

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
        server = yield from self._greeted(tenant)
        try:
            return (yield from self._follow(tenant, plan_of(self._context(tenant, server), command), visit))
        finally:
            if visit.waited is not None:
                waiter, ticket = visit.waited
                waiter.hand_on(ticket, self._prefix(tenant) + "tick")

    def _context(self, tenant: str, server: ServerFacts) -> PlanContext:
        return PlanContext(tenant, self.settings.limits, self.settings, self._checker, server.level)

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

    # --- servers ---------------------------------------------------------------------------------

    def _route(self, tenant: str) -> RedisNode:
        return self._routes.get(tenant, self._seed)

    def _greeted(self, tenant: str) -> Operations[ServerFacts]:
        """What the tenant's server says of itself, no older than a minute. Raises if a queue cannot live there."""
        node = self._route(tenant)
        found = self._servers.get(node)
        if found is not None and time.monotonic() - found[1] < AGAIN_S:
            return found[0]
        if self.settings.cluster:
            node = yield from self._find(tenant)
        server = yield from self._ask(node)
        check(node, server, is_first=not self._has_worked, cluster=self.settings.cluster)
        self._servers[node] = server, time.monotonic()
        self._has_worked = True
        return server

    def _ask(self, node: RedisNode) -> Operations[ServerFacts]:
        try:
            info = yield RedisExchange(node, ("INFO",))
        except RedisRefusal as refusal:
            raise meaning(node, refusal) from None
        try:
            config = yield RedisExchange(node, ("CONFIG", "GET", "*appendfsync*"))
        except RedisRefusal:
            config = None
        return server_of(info, config)

    def _find(self, tenant: str) -> Operations[RedisNode]:
        """Ask the servers of the cluster that are known where a tenant's slot is."""
        slot = crc_hqx(f"{tenant}/0".encode(), 0) % SLOTS
        lost: Exception = Unreachable(f"no server of the cluster answers, {self._seed} included")
        for node in dict.fromkeys((self._seed, *self._servers, *self._routes.values(), *self._known)):
            try:
                ranges = yield RedisExchange(node, ("CLUSTER", "SLOTS"))
            except (LinkLost, Unreachable) as error:
                lost = error
                continue
            except RedisRefusal as refusal:
                raise CannotOpen(
                    f"the Redis at {node} belongs to no cluster ({refusal}): take ?cluster=true away"
                ) from None
            self._known.update(node.neighbour(one[2][0].decode(), one[2][1]) for one in ranges)
            for first, last, master, *_ in ranges:
                if first <= slot <= last:
                    self._routes[tenant] = node.neighbour(master[0].decode(), master[1])
                    return self._routes[tenant]
            lost = Unreachable(f"no server of the cluster at {node} has slot {slot}")
        raise lost

    def _exchange(self, tenant: str, words: Words) -> Operations[Any]:
        """Send a command to the tenant's server, wherever a cluster says that it is."""
        node, asking = self._route(tenant), False
        for _ in range(REDIRECTS):
            try:
                return (yield RedisExchange(node, words, asking))
            except RedisRefusal as refusal:
                if refusal.code not in ("MOVED", "ASK") or not self.settings.cluster:
                    raise
                host, _, port = str(refusal).split()[2].rpartition(":")
                node, asking = node.neighbour(host, int(port)), refusal.code == "ASK"
                if not asking:
                    self._routes[tenant] = node
        raise Unreachable(f"the cluster sent this call from server to server, {REDIRECTS} times")

    # --- script calls ----------------------------------------------------------------------------

    def _prefix(self, tenant: str) -> str:
        return f"{self.settings.prefix}:{{{tenant}/0}}:"

    def _call(self, tenant: str, call: ScriptCall, visit: CallVisit) -> Operations[ScriptReply]:
        while True:
            answer = yield from self._evaluate(tenant, call.script, self._arguments(tenant, call))
            if answer[0] == NOT_OPEN:
                yield from self._open(tenant)
                continue
            done = self._answered(tenant, answer)
            if isinstance(done, ScriptReply):
                return done
            if done is not None:
                yield from self._follow(tenant, done, visit)

    def _arguments(self, tenant: str, call: ScriptCall) -> list[Any]:
        known = self._tenants.setdefault(tenant, SeenTenant())
        header: dict[str, Any] = {"tenant": tenant, "sequence": known.sequence, "record": known.record}
        if self.clock is not None:
            header["now"] = self.clock.now_ms()
        elif self._keeps_time(tenant):
            header["keeps"] = True
        prefix = self._prefix(tenant)
        return [2, prefix + "n", prefix + "void", encode(header), encode(call.params), *call.args]

    def _keeps_time(self, tenant: str) -> bool:
        waiter = self._waiters.get((ListWaiter, tenant if self.settings.cluster else ""))
        return waiter is not None and waiter.keeps_time(tenant)

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
            raise NewerFormat(f"the queue in Redis has format {answer[1].decode()}: a later release wrote it, use that")
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
            context = PlanContext(tenant, self.settings.limits, self.settings, self._checker, level)
            return schedules.deal(context, values[0].decode(), next_at, now)
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

    # --- waiting ---------------------------------------------------------------------------------

    def _wait(self, tenant: str, wait: ListWait, visit: CallVisit) -> Operations[bytes | None]:
        """What was found in one of the lists."""
        prefix = self._prefix(tenant)
        keys = [prefix + key for key in wait.keys]
        if self.clock is not None:
            yield PassStep(wait.until)
            return (yield from self._exchange(tenant, ("LPOP", keys[0])))  # type: ignore[no-any-return]
        known, tick = self._tenants[tenant], prefix + "tick"
        ticket = Ticket(tenant, (*keys, tick), visit.place, known.local(wait.ends_at))
        yield from self._parked(self._waiter(ListWaiter, tenant), ticket, wait.until, visit)
        return ticket.found if ticket.key != tick else None

    def _parked(self, waiter: ListWaiter, ticket: Ticket, until: int, visit: CallVisit) -> Operations[None]:
        known = self._tenants[ticket.tenant]
        head = known.local(known.head)
        net = time.monotonic() + self.settings.net_ms / 1_000
        own = NEVER if until == known.head else known.local(until)
        visit.waited = waiter, ticket
        waiter.enter(ticket, min(net, own if own < ticket.ends_at else NEVER), head)
        took = False
        try:
            yield ParkStep(ticket)
            took = ticket.error is None
        finally:
            waiter.leave(ticket, took=took)
        if ticket.error is not None:
            raise ticket.error

    def _read(self, tenant: str, read: LogRead, visit: CallVisit) -> Operations[LogPage | None]:
        key = self._prefix(tenant) + "log"
        if not read.limit:
            if self.clock is not None:
                yield PassStep(read.wait_until)
                return None
            ticket = Ticket(tenant, (key,), visit.place, self._tenants[tenant].local(read.wait_until), read.after)
            yield from self._parked(self._waiter(StreamWaiter, tenant), ticket, read.wait_until, visit)
            return None
        try:
            found = yield from self._exchange(tenant, ("XRANGE", key, f"({read.after}-0", "+", "COUNT", read.limit))
            first = yield from self._exchange(tenant, ("XRANGE", key, "-", "+", "COUNT", 1))
            last = yield from self._exchange(tenant, ("XREVRANGE", key, "+", "-", "COUNT", 1))
        except RedisRefusal as refusal:
            raise meaning(self._route(tenant), refusal) from None
        return log_of(found, first, last)


_left: list[Any] = []
"""Connections of parents of this process: never touched again, and never collected."""


def log_of(found: Any, first: Any, last: Any) -> LogPage:
    entries = [(number_of(place), fields_of(fields)) for place, fields in found]
    lowest = number_of(first[0][0]) if first else 1
    return LogPage(entries, lowest, number_of(last[0][0]) if last else 0)


def fields_of(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def number_of(place: bytes) -> int:
    return int(place.partition(b"-")[0])
