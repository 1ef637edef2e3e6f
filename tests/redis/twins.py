"""The engine and the broker in Redis side by side: every command goes to both, and they must not differ.

Each tenant has an engine of its own, because in Redis each tenant counts its ids by itself. Tokens are what each side
numbers for itself: commands are written in the engine's tokens and translated for Redis.
"""

from typing import Any

import msgspec

from stoker.brokers.contract import check_command
from stoker.brokers.redis.broker import RedisBroker
from stoker.client.sync import Client
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, StokerError, Unsupported
from stoker.model.events import Event
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.model.schedules import Schedule
from stoker.records.events import events_of
from stoker.runtime.calendar import IanaCalendar
from tests.conformance import pictures, redis_gaps
from tests.model.driver import QUEUES, TENANTS
from tests.model.pair import LIMITS as SMALL_LIMITS
from tests.model.pair import SMALL, START, brief, differences, plain
from tests.redis.audit import audit
from tests.redis.backing import InRedis

LIMITS = msgspec.structs.replace(SMALL_LIMITS, browse_jobs_max=100, kv_keys_max=1_000)
"""A picture needs whole pages."""
SEEN = Schedule(every_ms=60_000, grace_ms=0, misfires_max=1, skip_if_no_worker=True)


class InTheTable:
    """What the broker in Redis lacks, as the table of the conformance suite has it."""

    name = RedisBroker.name
    lacks = frozenset(redis_gaps.not_accepted() - {"ReadEvents.shard", "ReadRecords.shard", "Pull.claim"})


def is_offered(command: c.Command[Any]) -> bool:
    try:
        check_command(InTheTable(), command)
    except Unsupported:
        return False
    return True


class Twins:
    def __init__(self, kind: str = "redis", settings: Settings = SMALL, limits: Limits = LIMITS) -> None:
        self.redis = InRedis(kind, settings, limits, START)
        self.engines = {name: Shard(number=0, settings=settings, limits=limits) for name in TENANTS}
        for engine in self.engines.values():
            engine.calendar = IanaCalendar()
        self.events: dict[str, list[Event]] = {name: [] for name in TENANTS}
        self.tokens: dict[tuple[str, int], int] = {}
        for tenant in TENANTS:  # from now on both note when a worker was there
            self.execute(tenant, c.PutSchedule(QUEUES[0], "seen", SEEN))
            self.execute(tenant, c.DeleteSchedule(QUEUES[0], "seen"))

    @property
    def now(self) -> int:
        return self.redis.now

    def advance(self, by_ms: int) -> None:
        self.redis.advance(by_ms)
        for tenant, engine in self.engines.items():
            engine.advance(self.now)
            self._keep(tenant)

    def execute(self, tenant: str, command: c.Command[Any]) -> Any:
        """The engine's reply, or the code of its refusal, after comparing both."""
        engine = self.engines[tenant]
        engine.advance(self.now)
        try:
            expected = engine.execute(tenant, command, self.now)
        except StokerError as error:
            expected = error.code
        self._keep(tenant)
        try:
            got = self.redis.broker.execute(tenant, self._translated(tenant, command))
        except StokerError as error:
            got = error.code
        self._compare(tenant, command, expected, got)
        return expected

    def _keep(self, tenant: str) -> None:
        """The events of the records that the engine has made since."""
        for record in self.engines[tenant].take_records():
            self.events[tenant] += events_of(0, 0, record)

    def _compare(self, tenant: str, command: c.Command[Any], expected: Any, got: Any) -> None:
        said = f"at {self.now}, {tenant}: {brief(command)}"
        if isinstance(expected, str) or isinstance(got, str):
            assert got == expected, f"{said}\nengine: {brief(expected)}\nRedis: {brief(got)}"
            return
        if isinstance(expected, r.Delivery) and isinstance(got, r.Delivery) and expected.token and got.token:
            known = {ours for (owner, _), ours in self.tokens.items() if owner == tenant}
            assert got.token > max(known, default=0), f"{said}\ntoken {got.token} is not new"
            self.tokens[tenant, expected.token] = got.token
            got = msgspec.structs.replace(got, token=expected.token)
        if isinstance(expected, r.QueuePage):  # Redis does not measure times
            bare = [msgspec.structs.replace(one, timings=None) for one in expected.queues]
            expected = msgspec.structs.replace(expected, queues=bare)
        found = list(differences(plain(expected), plain(got)))
        assert not found, "\n".join([said, *(line.replace("the engine", "Redis") for line in found)])

    def _translated(self, tenant: str, command: Any) -> Any:
        """The same command in the tokens of Redis."""
        token, tokens = getattr(command, "token", None), getattr(command, "tokens", None)
        if isinstance(token, int):
            return msgspec.structs.replace(command, token=self._token(tenant, token))
        if isinstance(tokens, int):
            return msgspec.structs.replace(command, tokens=self._token(tenant, tokens))
        if tokens is not None:
            return msgspec.structs.replace(command, tokens=[self._token(tenant, one) for one in tokens])
        return command

    def _token(self, tenant: str, token: int) -> int:
        return self.tokens.get((tenant, token), 10**12 + token)

    # --- everything that can be seen -----------------------------------------------------------------

    def compare_pictures(self) -> None:
        for tenant, engine in self.engines.items():
            asking, looked = pictures.looking(), c.ReadEvents
            question: Any = next(asking)
            try:
                while not isinstance(question, looked):
                    question = asking.send(self.execute(tenant, question))
            except StopIteration:
                pass
            self._keep(tenant)
            assert not list(engine.take_effects())

    def compare_events(self) -> None:
        for tenant in TENANTS:
            got: list[Event] = []
            after = 0
            while (page := self.redis.broker.execute(tenant, c.ReadEvents(0, after))).events:
                got += [self._in_words_of_the_engine(event) for event in page.events]
                after = page.next_after
            stories, others = by_job(self.events[tenant]), by_job(got)
            for place in [*stories, *others]:
                one, other = stories.get(place, []), others.get(place, [])
                assert one == other, f"{tenant} {place}:\nengine {brief(one)}\nRedis {brief(other)}"

    def _in_words_of_the_engine(self, event: Event) -> Event:
        known = {theirs: ours for (owner, ours), theirs in self.tokens.items() if owner == event.tenant}
        token = known.get(event.token, event.token)
        return msgspec.structs.replace(event, sequence=0, index=0, token=token)

    def audit(self) -> None:
        for tenant in TENANTS:
            audit(self.redis, tenant)

    def close(self) -> None:
        self.redis.close()


class TwinBroker:
    """Both sides as one broker: a reply of the engine that Redis has given, too."""

    name, lacks = RedisBroker.name, RedisBroker.lacks

    def __init__(self, twins: Twins) -> None:
        self._twins = twins

    def execute(self, tenant: str, command: c.Command[Any]) -> Any:
        reply = self._twins.execute(tenant, command)
        if isinstance(reply, str):
            raise BY_CODE[reply](reply)
        return reply

    async def execute_async(self, tenant: str, command: c.Command[Any]) -> Any:
        return self.execute(tenant, command)

    def close(self) -> None:
        """The twins are closed by the test that has made them."""


class TwinWorld:
    """A world for the drivers of other tests, which knows both sides."""

    def __init__(self, settings: Settings, limits: Limits = DEFAULT_LIMITS) -> None:
        self.twins = Twins("redis", settings, limits)
        self.client = Client(TwinBroker(self.twins), TENANTS[0])
        self.advance = self.twins.advance


def by_job(events: list[Event]) -> dict[tuple[str, int], list[Event]]:
    """The story of each job, and of each queue. What happens at the same moment to two jobs has no order."""
    found: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        found.setdefault((event.queue, event.job), []).append(msgspec.structs.replace(event, sequence=0, index=0))
    return found


def without_waiting(command: Any) -> Any:
    """A pull or a wait in one process would stand still: what waits is tested elsewhere."""
    if isinstance(command, c.Pull) and command.wait_ms <= LIMITS.wait_ms_max:
        return msgspec.structs.replace(command, wait_ms=0, claim=None)
    if isinstance(command, c.WaitJob):
        return msgspec.structs.replace(command, wait_ms=0)
    return command
