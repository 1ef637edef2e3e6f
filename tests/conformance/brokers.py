"""The brokers that the suite runs against, and the world in which a test meets one.

A new broker joins by one line in `BROKERS`; no test changes. Everything that passes through a world is noted,
so that the suite can say at its end what it has left out.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from zlib import crc32

import msgspec

from stoker.brokers.contract import LACKS_NOTHING
from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.client.sync import Client
from stoker.journal.recovery import GAP
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.testing import FakeClock, World
from tests.conformance import dialect
from tests.conformance.pictures import Picture, taken
from tests.crash.restarted import Restarted, fresh_directory
from tests.journal.toy_store import open_toy
from tests.postgres.backing import InPostgres
from tests.processes.world import Backing as Spreading
from tests.redis import backing as in_redis
from tests.redis_served import backing as redis_served
from tests.served import backing as served
from tests.sharing.backing import SharedWithOwner

R = TypeVar("R")

DEFAULT_SETTINGS = Settings()


class Backing(Protocol):
    """What a broker brings along for tests: itself, and a clock that they move."""

    broker: Any

    @property
    def now(self) -> int: ...
    def advance(self, ms: int) -> None: ...
    def close(self) -> None: ...


def memory(settings: Settings, limits: Limits, shards: int) -> Backing:
    return World(settings, limits, shards=shards)


def memory_unbatched(settings: Settings, limits: Limits, shards: int) -> Backing:
    return World(msgspec.structs.replace(settings, batching=False), limits, shards=shards)


def sqlite(settings: Settings, limits: Limits, shards: int) -> Backing:
    return OnDisk(kept_small(settings, limits, shards))


def toy_journal(settings: Settings, limits: Limits, shards: int) -> Backing:
    """A journal that commits later than it answers, and a store without a directory."""
    return OnDisk(kept_small(settings, limits, shards), lambda path, *given: open_toy(path / "rows", *given))


def postgres(settings: Settings, limits: Limits, shards: int) -> Backing:
    """One seat of a cluster, in this process."""
    return InPostgres(kept_small(settings, limits, shards))


def sqlite_restarted(settings: Settings, limits: Limits, shards: int) -> Backing:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition("[")[0]
    turn = crc32(test.encode())
    return Restarted(kept_small(settings, limits, shards), gap=0 if test in COUNTING_IDS else GAP, turn=turn)


def sqlite_2_processes(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Spreading(kept_small(settings, limits, shards))


def sqlite_shared(settings: Settings, limits: Limits, shards: int) -> Backing:
    return SharedWithOwner(kept_small(settings, limits, shards))


COUNTING_IDS = {
    "test_duplicates_of_earlier_jobs_take_no_id",
    "test_a_batch_and_single_pushes_lead_to_the_same",
    "test_ids_are_sequences_from_1_on_in_push_order",
    "test_a_refused_push_takes_no_sequence_number",
    "test_a_duplicate_takes_no_sequence_number",
    "test_an_id_names_its_shard_and_grows_inside_it",
    "test_publishing_makes_the_jobs_of_a_stage_visible",
    "test_ids_are_given_at_publishing",
    "test_a_staged_job_may_depend_on_a_later_one",
}
"""They count ids one by one. After a kill some are left out on purpose; for these tests none are."""


def kept_small(settings: Settings, limits: Limits, shards: int) -> LocalSettings:
    """A directory that lives for one test needs no room for bad times."""
    return LocalSettings(
        engine=settings, limits=limits, shards=shards, journal=JournalSettings(disk_reserve_bytes=4096)
    )


def open_directory(path: Path, settings: LocalSettings, clock: FakeClock) -> LocalBroker:
    return open_sqlite(str(path), {}, settings, clock)


class OnDisk:
    """The broker over a data directory, or over another store in one, in this process."""

    def __init__(
        self,
        settings: LocalSettings,
        open_broker: Callable[[Path, LocalSettings, FakeClock], LocalBroker] = open_directory,
    ) -> None:
        self._directory = fresh_directory()
        self._clock = FakeClock()
        self.broker = open_broker(self._directory, settings, self._clock)

    @property
    def now(self) -> int:
        return self._clock.now_ms()

    def advance(self, ms: int) -> None:
        self._clock.advance(ms)
        self.broker.advance()

    def close(self) -> None:
        self.broker.close()
        shutil.rmtree(self._directory)


BROKERS: dict[str, Callable[[Settings, Limits, int], Backing]] = {
    "memory": memory,
    "memory-unbatched": memory_unbatched,
    "sqlite": sqlite,
    "toy-journal": toy_journal,
    "postgres": postgres,
    "sqlite-restarted": sqlite_restarted,
    "sqlite-2-processes": sqlite_2_processes,
    "tcp-msgpack": served.tcp_msgpack,
    "tcp-json": served.tcp_json,
    "tcp-2-processes": served.tcp_2_processes,
    "cluster": served.cluster,
    "tcp-without-turns": served.tcp_without_turns,
    "unix": served.unix,
    "http": served.http,
    "grpc": served.grpc,
    "sqlite-shared": sqlite_shared,
    "redis": in_redis.redis_6,
    "valkey": in_redis.valkey,
    "redis-served": redis_served.two_nodes,
    "strangers-lines": dialect.lines,
    "strangers-frames": dialect.frames,
    "strangers-rest": dialect.rest,
    "strangers-command": dialect.api_command,
}


class Coverage:
    """What one broker has accepted and refused in tests that passed, by names such as `Options.priority`."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.refused: set[str] = set()
        self._now_accepted: set[str] = set()
        self._now_refused: set[str] = set()

    def accept(self, value: msgspec.Struct) -> None:
        self._now_accepted.update(spoken(value))

    def refuse(self, command: c.Command[Any]) -> None:
        self._now_refused.add(type(command).__name__)

    def keep(self) -> None:
        self.accepted |= self._now_accepted
        self.refused |= self._now_refused

    def forget(self) -> None:
        self._now_accepted, self._now_refused = set(), set()


def spoken(value: msgspec.Struct) -> Iterator[str]:
    """The names in a value: its type, each field that says more than its default, each word of a choice."""
    name = type(value).__name__
    yield name
    for field, default in defaults_of(type(value)):
        content = getattr(value, field)
        if content != default:
            yield f"{name}.{field}"
        if isinstance(content, str):
            yield f"{name}.{field}={content}"
        parts = content if isinstance(content, (tuple, list)) else (content,)
        for part in parts:
            if isinstance(part, msgspec.Struct):
                yield from spoken(part)


@cache
def defaults_of(kind: type[msgspec.Struct]) -> list[tuple[str, object]]:
    """Every field and its default; nothing equals that of a field that has none. To ask for them anew takes long."""
    return [
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
    ]


class Recorder:
    """A broker that passes everything on and notes what came back well."""

    name, lacks = "local", LACKS_NOTHING

    def __init__(self, backing: Backing, coverage: Coverage) -> None:
        self._inner = backing.broker
        self._coverage = coverage
        self._look = getattr(backing, "picture", partial(taken, backing.broker))
        self._seen: dict[str, Picture] = {}
        """The last picture of a tenant, while no command was accepted and no time has passed since."""

    def picture(self, tenant: str) -> Picture:
        """Everything that a tenant can see; asked for where the queue is, if the world can."""
        self._seen[tenant] = self._look(tenant)
        return self._seen[tenant]

    def picture_before(self, tenant: str) -> Picture:
        """The same, but a picture that must still be true is not taken again: were it not, the next one would tell."""
        return self._seen.get(tenant) or self.picture(tenant)

    def forget_pictures(self) -> None:
        self._seen.clear()

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        try:
            reply = self._inner.execute(tenant, command)
        except StokerError:
            self._coverage.refuse(command)
            raise
        self._note(command, reply)
        return reply  # type: ignore[no-any-return]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        try:
            reply = await self._inner.execute_async(tenant, command)
        except StokerError:
            self._coverage.refuse(command)
            raise
        self._note(command, reply)
        return reply  # type: ignore[no-any-return]

    def close(self) -> None:
        self._inner.close()

    def _note(self, command: c.Command[Any], reply: object) -> None:
        self.forget_pictures()
        refused = getattr(reply, "refused", None)
        if isinstance(command, c.PushBatch) and command.each is not None and refused:
            accepted = [options for item, options in enumerate(command.each) if item not in refused]
            command = msgspec.structs.replace(command, each=accepted)
        if refused:
            self._coverage.refuse(command)
        self._coverage.accept(command)


class ContractWorld:
    """A fresh broker under a clock that stands still until the test moves it or waits."""

    def __init__(self, backing: Backing, coverage: Coverage) -> None:
        self._backing = backing
        self.broker = Recorder(backing, coverage)
        self.has_transactions: bool = getattr(backing, "has_transactions", True)
        """Without them a way into the queue is missing, and the others are tested."""
        self.has_claims: bool = getattr(backing, "has_claims", True)
        self.client = Client(self.broker)

    @property
    def now(self) -> int:
        return self._backing.now

    def advance(self, ms: int) -> None:
        self.broker.forget_pictures()
        self._backing.advance(ms)

    def client_for(self, tenant: str) -> Client:
        return self.client.as_tenant(tenant)

    def close(self) -> None:
        self._backing.close()


class MakeWorld(Protocol):
    def __call__(
        self, settings: Settings = DEFAULT_SETTINGS, limits: Limits = DEFAULT_LIMITS, shards: int = 1
    ) -> ContractWorld: ...
