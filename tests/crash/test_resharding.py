"""The shards of a directory are dealt to another number of processes, and nothing is lost on the way (F1, F2).

The directory has everything in it: jobs in all states, leases, transactions half done, keys in memory and in their
file, saved state, finished, rewritten and unfinished files of the log. A process that deals is killed at its first,
second, third, ... change to any file; the next process to open it, for any number of processes, finds the same.
"""

import os
import shutil
from functools import cache, partial
from pathlib import Path

import msgspec
import pytest

from stoker import maintenance
from stoker.brokers.local import LocalSettings, open_sqlite
from stoker.journal import upkeep
from stoker.journal.directory_store import DirectoryStore, open_store
from stoker.journal.resharding import open_root
from stoker.journal.shard_layout import layout_of, parts_of
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import InUse, InvalidRequest, Refused
from stoker.model.ids import process_of
from stoker.model.options import Retention, Settings
from stoker.testing import FakeClock
from tests.crash.resharded import WATCHED, holdings, layout_watched, opened
from tests.crash.restarted import fresh_directory
from tests.crash.test_kill_points import until_the_end
from tests.crash.watching import KillPoint
from tests.crash.zygote import the_zygote
from tests.histories.workload import SHARDS, TENANT, Memory, Work

SETTINGS = LocalSettings(
    engine=Settings(retention=Retention(completed_count=20)),
    shards=SHARDS,
    journal=JournalSettings(
        fsync_interval_ms=3_600_000,
        wal_bytes_max=100_000,
        checkpoint_records=200,
        events_bytes_max=100_000,
        disk_reserve_bytes=4096,
        keys_in_memory=1,
        checkpoint_process=False,
    ),
)
assert SETTINGS.journal is not None
UNDER_WATCH = msgspec.structs.replace(SETTINGS, journal=msgspec.structs.replace(SETTINGS.journal, vfs=WATCHED))
POINTS_MAX = 2_000
STEP = 1 if os.environ.get("STOKER_SOAK") == "1" else 5
"""In the soak a death at every change of a file; else at every fifth."""
NOW = FakeClock().now_ms()


@cache
def prepared(steps: int = 300, clean: bool = True) -> tuple[Path, int]:
    """A directory after some work, and the time it is there. It is copied, not used."""
    path = fresh_directory()
    clock = FakeClock(NOW)
    broker = open_sqlite(str(path), {}, SETTINGS, clock)
    work = Work("7", Memory(NOW))
    every, upkeep.KEYS_EVERY_MS = upkeep.KEYS_EVERY_MS, 1
    assert isinstance(broker.store, DirectoryStore)
    assert broker.store.upkeep is not None
    try:
        with broker.store.upkeep.work_lock:  # its thread does nothing by itself: every directory is the same
            for number in range(steps):
                command = work.next()
                clock.advance(work.now - clock.now_ms())
                try:
                    work.learn(command, broker.execute(TENANT, command))
                except Refused:
                    pass
                if number % (steps // 30) == steps // 30 - 1 and number < steps * 2 // 3:
                    broker.store.upkeep.work()
            for stage in ("left", "alone"):
                for queue in [f"q{number}" for number in range(8)]:
                    broker.execute(TENANT, c.Stage("t", stage, queue, [b"staged" * 100], part=0))
            if not clean:
                with broker.guard:  # nobody writes: this is what a crash would leave
                    path = copied(path)
        broker.close()
    finally:
        upkeep.KEYS_EVERY_MS = every
    return path, clock.now_ms()


def copied(path: Path) -> Path:
    copy = fresh_directory()
    shutil.copytree(path, copy, dirs_exist_ok=True)
    return copy


def test_the_directory_has_everything_in_it():
    path, now = prepared()
    manifest = maintenance.check(str(path))
    assert all(finding.status != "problem" for finding in manifest)
    with opened(copied(path), 1, SETTINGS, now) as (store,):
        states = {log.state for log in store.directory.manifest.logs}
        assert states == {"open", "sealed", "sparse"}
        assert store.directory.manifest.checkpoint is not None
        assert store.keys.store is not None
        assert store.keys.store.count() > 20
    found = holdings(copied(path), 1, SETTINGS, now)
    kept = [held.count for held in found.shards.values()]  # how much exactly is the matter of upkeep and its threads
    assert all(kept)
    assert sum(kept) > 20
    assert any(held.lowest > 1 for held in found.shards.values())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("way", [(2, 4, 1), (4, 2, 1), (2, 1, 2, 1)])
def test_dealing_keeps_everything(way: tuple[int, ...], clean: bool):
    source, now = prepared(clean=clean)
    expected = holdings(copied(source), 1, SETTINGS, now)
    path = copied(source)
    for processes in way:
        assert holdings(path, processes, SETTINGS, now) == expected
        assert {finding.status for finding in maintenance.verify(str(path))} == {"ok"}
        layout = layout_of(path)
        assert (1 if layout is None else layout.processes) == processes
        assert len(list(path.glob("deal-*"))) == (processes > 1)
        assert (path / "manifest.json").exists() == (processes == 1)
    shutil.rmtree(path)


def test_each_process_has_its_own_shards():
    path = copied(prepared()[0])
    with opened(path, 4, SETTINGS, NOW) as stores:
        for place, store in enumerate(stores):
            assert [shard.number for shard in store.shards] == [s for s in range(SHARDS) if process_of(s, 4) == place]


def test_a_new_directory_is_dealt_too(tmp_path: Path):
    with opened(tmp_path / "new", 2, SETTINGS, NOW) as stores:
        assert [[shard.number for shard in store.shards] for store in stores] == [[0, 2], [1, 3]]
    found = holdings(tmp_path / "new", 1, SETTINGS, NOW)
    assert list(found.shards) == [0, 1, 2, 3]


def test_a_layout_is_refused_that_cannot_be(tmp_path: Path):
    for processes in (0, 1, 5):
        with pytest.raises(InvalidRequest):
            open_root(tmp_path / "new", processes, 4)
        assert not list((tmp_path / "new").glob("deal-*"))
    open_root(tmp_path / "new", 2, 4).close()
    with pytest.raises(InvalidRequest, match="4 shards"):
        open_root(tmp_path / "new", 2, 8)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter").touch()
    with pytest.raises(InvalidRequest, match="letter"):
        open_root(tmp_path / "foreign", 2)


def test_nobody_else_opens_a_directory_that_is_held(tmp_path: Path):
    with opened(tmp_path / "held", 2, SETTINGS, NOW) as stores:
        for processes in (1, 2, 4):
            with pytest.raises(InUse):
                holdings(tmp_path / "held", processes, SETTINGS, NOW)
        with pytest.raises(InUse):
            open_store(str(stores[0].directory.path), SETTINGS, NOW, part=True)
        with pytest.raises(InUse):
            maintenance.verify(str(tmp_path / "held"))


def test_a_part_that_outlived_its_root_keeps_its_shards(tmp_path: Path):
    root = open_root(tmp_path / "held", 2, SHARDS)
    store = open_store(str(root.parts[0]), SETTINGS, NOW, part=True)
    root.close()
    for processes in (1, 4):
        with pytest.raises(InUse):
            holdings(tmp_path / "held", processes, SETTINGS, NOW)
    store.close()
    holdings(tmp_path / "held", 4, SETTINGS, NOW)


def test_a_part_is_no_directory_of_its_own(tmp_path: Path):
    root = open_root(tmp_path / "held", 2, SHARDS)
    with pytest.raises(InvalidRequest, match=str(tmp_path / "held")):
        open_store(str(root.parts[0]), SETTINGS, NOW)
    with pytest.raises(InvalidRequest):
        open_store(str(tmp_path / "elsewhere"), SETTINGS, NOW, part=True)
    store = open_store(str(root.parts[0]), SETTINGS, NOW, part=True)
    with pytest.raises(InvalidRequest, match="of the whole with `stoker backup`"):
        store.backup(str(tmp_path / "backups"))
    store.close()
    root.close()


def test_a_damaged_part_is_found_by_its_name():
    path = copied(prepared()[0])
    open_root(path, 2).close()
    part = parts_of(path, layout_of(path))[1]
    log = sorted(part.glob("log-*.db"))[0]
    data = bytearray(log.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    log.write_bytes(data)
    problems = [finding.name for finding in maintenance.verify(str(path)) if finding.status == "problem"]
    assert f"process-1 {log.name}" in problems
    assert all(name.startswith("process-1") for name in problems)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 4), (2, 1)])
def test_death_while_dealing_changes_nothing(before: int, after: int):
    """Then it is dealt by others: to the number that was asked for, back to the one before, or to one process."""
    source, now = prepared(32, clean=False)
    expected = holdings(copied(source), 1, SETTINGS, now)
    dealt = copied(source)
    if before > 1:
        open_root(dealt, before).close()
    for point in range(1, POINTS_MAX, STEP):
        path = copied(dealt)
        killer = partial(KillPoint, point, point // STEP % 2 == 0)
        with the_zygote().fork(layout_watched, str(path), after, UNDER_WATCH, killer) as child:
            is_through = "closed" in until_the_end(child)
        found = holdings(path, (after, before, 1)[point // STEP % 3], SETTINGS, now)
        assert found == expected, f"point {point}"
        shutil.rmtree(path)
        if is_through:
            break
    assert 20 < point < POINTS_MAX - 1
