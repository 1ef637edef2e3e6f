"""A short life of a data directory under a trace, and what power cuts at its weak moments may leave of it.

The moments are those just before each flush, where most hangs in the air, and those of the replies. Every image is
opened: it must open, hold what was promised at the level fsync, hold a prefix of what was done with no command torn,
and give out no id that a client was told before.
"""

import random
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.sqlite import JournalSettings
from stoker.journal.upkeep import Upkeep
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError
from stoker.model.ids import shard_for
from stoker.testing import FakeClock
from tests.crash.images import FATES, after_power_cut
from tests.crash.pictures import take_pictures
from tests.crash.restarted import SHARED_MEMORY
from tests.crash.watching import Call, Trace, WatchedDisk, WatchedVFS
from tests.crash.zygote import the_zygote
from tests.faults.script import QUEUES, SHARDS, TENANT

IMAGES = 3
"""Of each moment."""

ENOUGH = 2
"""So many things that are wrong need no more of them."""

LONG_S = 3600
VFS = "traced"

SETTINGS = JournalSettings(
    wal_bytes_max=75_000,
    checkpoint_records=60,
    disk_reserve_bytes=4096,
    checkpoint_process=False,
    fsync_interval_ms=LONG_S * 1000,
    vfs=VFS,
)


class Told(msgspec.Struct, frozen=True):
    """What a client was told, and when in the trace."""

    at: int
    keys: tuple[bytes, ...]
    """Of the jobs that one command has made."""
    id: int
    level: str
    began: int = 0
    """When it was asked for."""


class Life(msgspec.Struct, frozen=True):
    calls: list[Call]
    told: list[Told]


class Found(msgspec.Struct, frozen=True):
    """What came of one image."""

    refused: str = ""
    keys: frozenset[bytes] = frozenset()
    ids: tuple[int, ...] = ()
    """Given out now."""


def late_transaction(number: int) -> str:
    """A name that the last shard decides about: the rows of all others stand before its own."""
    names = (f"t{number}-{attempt}" for attempt in range(1_000))
    return next(name for name in names if shard_for(TENANT, name, SHARDS) == SHARDS - 1)


def idle(upkeep: Upkeep) -> None:
    upkeep._ended.wait()


# --- in children -------------------------------------------------------------------------------------


def live(wire: "Connection[Any, Any]") -> None:
    """Work, with a round of upkeep now and then, and close."""
    Upkeep._keep = idle  # type: ignore[method-assign, assignment]  # mypy takes it for bound; nothing happens by itself
    trace = Trace()
    vfs = WatchedVFS(VFS, trace)
    told: list[Told] = []
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as home:
        path = Path(home) / "data"
        settings = LocalSettings(shards=SHARDS, journal=SETTINGS)
        broker = open_sqlite(str(path), {}, settings, FakeClock(), WatchedDisk(trace, path))
        for number in range(4):
            told += round_of_work(broker, trace, number)
        broker.close()
        told.append(Told(len(trace.calls), (), 0, "closed"))
    del vfs
    wire.send(Life(trace.calls, told))


def round_of_work(broker: LocalBroker, trace: Trace, number: int) -> list[Told]:
    told: list[Told] = []

    def push(place: int, level: r.Level) -> None:
        key = b"%d.%d" % (number, len(told))
        reply = broker.execute(TENANT, c.Push(QUEUES[place], key + b";" + bytes(300), durability=level))
        told.append(Told(len(trace.calls), (key,), reply.id, level))

    push(number % 8, "commit")
    name, keys = late_transaction(number), []
    for shard in range(SHARDS):
        keys.append(b"%d.t%d" % (number, shard))
        broker.execute(TENANT, c.Stage(name, f"s{shard}", QUEUES[shard * 2], [keys[-1] + b";"]))
    began = len(trace.calls)
    broker.execute(TENANT, c.Publish(name, [f"s{shard}" for shard in range(SHARDS)]))
    told.append(Told(len(trace.calls), tuple(keys), 0, "commit", began))
    push((number + 3) % 8, "fsync")
    push((number + 3) % 8, "commit")
    store = broker.store
    assert isinstance(store, DirectoryStore)
    assert store.upkeep is not None
    with store.upkeep.work_lock:
        store.upkeep.work()
    return told


def examine(wire: "Connection[Any, Any]") -> None:
    """Open image after image; they have nothing in common."""
    Upkeep._keep = idle  # type: ignore[method-assign, assignment]  # as above
    while (image := wire.recv()) is not None:
        wire.send(examined(image))


def examined(image: dict[str, bytes]) -> Found:
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as home:
        path = Path(home) / "data"
        path.mkdir()
        for name, data in image.items():
            (path / name).write_bytes(data)
        settings = LocalSettings(shards=SHARDS, journal=msgspec.structs.replace(SETTINGS, vfs=""))
        try:
            broker = open_sqlite(str(path), {}, settings, FakeClock())
        except StokerError as error:
            return Found(refused=str(error))
        _, jobs = take_pictures(broker)
        ids = [broker.execute(TENANT, c.Push(queue, b"new;")).id for queue in QUEUES]
        broker.close()
        return Found(keys=frozenset(job.key for job in jobs), ids=tuple(ids))


# --- here --------------------------------------------------------------------------------------------


def moments(life: Life) -> list[int]:
    """Lengths of the trace at which the power fails: before flushes, and when somebody was told something."""
    flushes = [place for place, call in enumerate(life.calls) if call.verb in ("sync", "sync_directory", "delete")]
    return sorted({*flushes, *(told.at for told in life.told)})


def turns(life: Life) -> list[int]:
    """Every moment within the commands that made several jobs."""
    return [at for told in life.told if len(told.keys) > 1 for at in range(told.began, told.at)]


class Kind(random.Random):
    """Nothing that was written is lost: only the process has died."""

    def choice(self, seq: Any) -> Any:
        return "everything" if seq is FATES else super().choice(seq)


def wrong() -> list[str]:
    """Everything that must not be so, in all images of one life."""
    with the_zygote().fork(live) as child:
        life: Life = child.receive()
    first = next(place for place, call in enumerate(life.calls) if call.to == "manifest.json") + 2
    found: list[str] = []
    with the_zygote().fork(examine) as child:
        cuts = [(at, random.Random(f"{at}.{number}")) for at in moments(life) if at > first for number in range(IMAGES)]
        for at, chance in [*((at, Kind(at)) for at in turns(life)), *cuts]:
            child.send(after_power_cut(life.calls[:at], chance))
            found += [f"cut at {at}: {what}" for what in judged(life, at, child.receive())]
            if len(found) >= ENOUGH:
                break
    return found


def judged(life: Life, at: int, found: Found) -> list[str]:
    if found.refused:
        return [f"refused: {found.refused}"]
    wrong: list[str] = []
    before = [told for told in life.told if told.at <= at]
    safe = max((place for place, told in enumerate(before) if told.level in ("fsync", "closed")), default=-1)
    there = [all(key in found.keys for key in told.keys) for told in before]
    for place, told in enumerate(before):
        if place <= safe and not there[place]:
            wrong.append(f"lost: {told}")
        if told.id and told.id in found.ids:
            wrong.append(f"reused: {told}")
    wrong += [f"torn: {told}" for told in life.told if 0 < sum(key in found.keys for key in told.keys) < len(told.keys)]
    if sorted(there, reverse=True) != there:
        wrong.append(f"no prefix: {there}")
    return wrong
