"""A process dies at its first, second, third, ... change to any file, until it dies at none (F1, F2).

Every change of a file or of the directory is one point, SQLite's and the journal's own alike; a write may also be cut
in half. The work is short and has everything in it: files begun, finished, saved, rewritten and dropped. After each
death a new process must find what was answered. A process that recovers is killed in the same way, at every point, and
the next one finds the same.
"""

import shutil
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import msgspec
import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model.options import Retention, Settings
from stoker.testing import FakeClock
from tests.crash.following import Following
from tests.crash.pictures import Picture
from tests.crash.restarted import fresh_directory
from tests.crash.roles import WATCHED, recover, recover_watched, work_watched
from tests.crash.test_kill import DEATHS, SOAKS
from tests.crash.watching import KillPoint
from tests.crash.zygote import Child, the_zygote
from tests.histories.history import Entry, Recovered
from tests.histories.workload import SHARDS, Memory

SETTINGS = LocalSettings(
    engine=Settings(retention=Retention(completed_count=20)),
    shards=SHARDS,
    journal=JournalSettings(
        fsync_interval_ms=3_600_000,
        wal_bytes_max=20_000,
        checkpoint_records=20,
        events_bytes_max=10_000,
        disk_reserve_bytes=4096,
        keys_in_memory=1,
        checkpoint_process=False,
    ),
)
assert SETTINGS.journal is not None
UNDER_WATCH = msgspec.structs.replace(SETTINGS, journal=msgspec.structs.replace(SETTINGS.journal, vfs=WATCHED))

KEEPING_JOURNAL = msgspec.structs.replace(SETTINGS.journal, keys_in_memory=1_000)
KEEPING_KEYS = msgspec.structs.replace(SETTINGS, journal=KEEPING_JOURNAL)
"""For those who only look: keys that left memory while they did would tell of their upkeep, not of what was there."""
KEEPING_WATCHED = msgspec.structs.replace(SETTINGS, journal=msgspec.structs.replace(KEEPING_JOURNAL, vfs=WATCHED))

SEED = "7"
NOW = FakeClock().now_ms()
POINTS_MAX = 2_000
"""The work must be through long before; else it never ends."""
STEP = 1 if SOAKS else 2
"""In the soak a death at every change of a file; else at every other one."""
POINTS = range(1, POINTS_MAX, STEP)


class Death:
    """One run up to a point, and what was found afterwards."""

    def __init__(self, point: int, *, torn: bool) -> None:
        self.path = fresh_directory()
        self.following = Following(SETTINGS, f"point {point}, torn={torn}")
        with the_zygote().fork(
            work_watched, str(self.path), UNDER_WATCH, SEED, Memory(NOW), partial(KillPoint, point, torn)
        ) as child:
            self.is_through = self._listen(child)

    def _listen(self, child: Child) -> bool:
        """Did it come to its end?"""
        for entry in until_the_end(child):
            if entry == "closed":
                return True
            self.following.read(entry, child)
        return False

    def check(self) -> None:
        """A new process finds everything that was answered."""
        with the_zygote().fork(recover, str(self.path), SETTINGS, self.following.checker.memory().now or NOW) as child:
            self.following.read(child.receive(), child)
            assert child.join() == 0
        assert dict(self.following.checker.found) == {}
        shutil.rmtree(self.path)


def until_the_end(child: Child) -> Iterator[Entry | str]:
    while True:
        try:
            yield child.receive()
        except EOFError:
            return


@cache
def deaths_at_work() -> int:
    """It dies at one point after another: how many there are."""
    for deaths, point in enumerate(POINTS):
        death = Death(point, torn=deaths % 2 == 1)
        death.check()
        if death.is_through:
            return deaths
    return len(POINTS)


def test_death_at_any_point_loses_nothing():
    assert 200 // STEP < deaths_at_work() < len(POINTS)


CRASHED_AT = (30, 110, 190, 250, 300, 330) if SOAKS else (110, 330)
"""Points at which the work is broken off, for others to recover: from its beginning to its end."""


def look(path: Path, now: int) -> list[Picture]:
    """What a process finds that nobody disturbs."""
    with the_zygote().fork(recover, str(path), KEEPING_KEYS, now) as child:
        found = child.receive()
        assert isinstance(found, Recovered)
        child.send("go on")
        assert child.join() == 0
        return found.pictures


@cache
def deaths_while_recovering(crashed_at: int) -> int:
    death = Death(crashed_at, torn=False)
    now = death.following.checker.memory().now or NOW
    expected = [(picture.state, picture.keys) for picture in look(copy_of(death.path), now)]
    for deaths, point in enumerate(POINTS):
        path = copy_of(death.path)
        killer = partial(KillPoint, point, deaths % 2 == 1)
        with the_zygote().fork(recover_watched, str(path), KEEPING_WATCHED, now, killer) as child:
            is_through = "closed" in until_the_end(child)
        found = look(path, now)
        assert [(picture.state, picture.keys) for picture in found] == expected, f"point {point} of the recovery"
        shutil.rmtree(path)
        if is_through:
            return deaths
    return len(POINTS)


@pytest.mark.parametrize("crashed_at", CRASHED_AT)
def test_death_during_recovery_changes_nothing(crashed_at: int):
    assert 20 // STEP < deaths_while_recovering(crashed_at) < len(POINTS)


def test_hundreds_of_processes_have_died():
    """At changes to any file, and at random moments (`test_kill.py`)."""
    died = deaths_at_work() + sum(map(deaths_while_recovering, CRASHED_AT)) + DEATHS
    assert died >= (1_000 if SOAKS else 250)


def copy_of(path: Path) -> Path:
    copy = fresh_directory()
    shutil.copytree(path, copy, dirs_exist_ok=True)
    return copy
