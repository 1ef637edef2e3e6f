"""Processes are killed at any moment, hundreds of times, and nothing that was answered is ever lost (F1).

A round is one data directory and many processes: each recovers, is looked at, works as fast as it can and is killed.
What the processes said is checked twice. `checker.py` knows only what a client was told. `oracle.py` went through the
same commands in memory, and every recovered shard must equal its own, with or without the command that was never
answered.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model.options import Retention, Settings
from stoker.testing import FakeClock
from tests.crash.following import Following
from tests.crash.restarted import fresh_directory
from tests.crash.roles import finish, work
from tests.crash.zygote import Child, the_zygote
from tests.histories.history import Entry
from tests.histories.workload import SHARDS

SOAKS = os.environ.get("STOKER_SOAK") == "1"
ROUNDS = 12 if SOAKS else 6
CYCLES = 45 if SOAKS else 15
"""Deaths in a round. In the soak there are more than five hundred."""

OUTCOMES = ("unknown", "recovered", "vanished")
RARE = ("repeated", "delivered again", "fenced", "outlived")
"""What happens to somebody in some hundred deaths, but not in every hundred."""
MOVES = ("Push", "PushBatch", "Stage", "Publish", "Abort", "Pull", "Ack", "Fail", "Release", "Extend", "Cancel")
AWAITED = (*OUTCOMES, *MOVES, *(RARE if SOAKS else ()))

SMALL = JournalSettings(
    fsync_interval_ms=5,
    wal_bytes_max=60_000,
    checkpoint_records=100,
    events_bytes_max=100_000,
    disk_reserve_bytes=4096,
    checkpoint_process=False,
)
"""So that files are finished, saved, rewritten and let go all the time."""

WAYS = [
    SMALL,
    msgspec.structs.replace(SMALL, keys_in_memory=2),
    msgspec.structs.replace(SMALL, checkpoint_process=True, checkpoint_records=2_000),
]
"""Rounds take turns: all in one process; with keys that move out of memory; with checkpoints by another process."""


def settings_for(seed: int) -> LocalSettings:
    kept = Retention(completed_count=20)
    return LocalSettings(engine=Settings(retention=kept), shards=SHARDS, journal=WAYS[seed % len(WAYS)])


def cycles_of(seed: int) -> int:
    """Another process for each checkpoint costs a second: there it is done less often."""
    return CYCLES if SOAKS or not WAYS[seed % len(WAYS)].checkpoint_process else CYCLES // 3


DEATHS = sum(map(cycles_of, range(ROUNDS)))


class Round:
    """One data directory, through many deaths."""

    def __init__(self, seed: int) -> None:
        self.settings = settings_for(seed)
        self.chance = random.Random(seed)
        self.path = fresh_directory()
        self.following = Following(self.settings, f"seed {seed}")
        self.checker = self.following.checker
        self.now = FakeClock().now_ms()
        for cycle in range(cycles_of(seed)):
            self._live_and_die(f"{seed}.{cycle}")
        self._work_off()
        shutil.rmtree(self.path)

    def _live_and_die(self, name: str) -> None:
        memory = self.checker.memory()
        self.now = memory.now = max(self.now, memory.now)
        with the_zygote().fork(work, str(self.path), self.settings, name, memory) as child:
            for entry in killed_some_time(child, self.chance):
                if not isinstance(entry, Entry):
                    break  # it was through before it could be killed: that is one way to end, too
                self.following.read(entry, child)

    def _work_off(self) -> None:
        now = max(self.now, self.checker.memory().now)
        with the_zygote().fork(finish, str(self.path), self.settings, now) as child:
            while isinstance(entry := child.receive(), Entry):
                self.following.read(entry, child)
        self.checker.check_drained(*entry)


def killed_some_time(child: Child, chance: random.Random) -> Iterator[Entry | str]:
    """Everything it says until it is killed: while it opens, works, or closes."""
    way = chance.choices(["opening", "working", "closing"], [1, 8, 1])[0]
    if way == "opening":
        child.has_spoken(chance.uniform(0, 0.02))
    else:
        for _ in range(chance.choice([1, 2, 10, 40, 100, 300])):
            yield child.receive()
        if way == "closing":
            child.send("close")
        until = time.monotonic() + chance.choice([0, 0, 0.0002, 0.001, 0.005])
        while child.has_spoken(max(0, until - time.monotonic())) and time.monotonic() < until:
            yield child.receive()
    child.strike()
    yield from last_words(child)


def last_words(child: Child) -> Iterator[Entry]:
    while True:
        try:
            entry = child.receive()
        except EOFError:
            return
        if entry != "closed":
            yield entry


@cache
def play(seed: int) -> Round:
    return Round(seed)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_nothing_answered_is_lost_and_nothing_comes_back(seed: int):
    assert dict(play(seed).checker.found) == {}


def test_the_rounds_have_seen_everything():
    """What never happened proves nothing. When a process dies is chance, so what is missing gets more rounds."""
    seen: Counter[str] = Counter()
    for seed in range(ROUNDS):
        seen += play(seed).checker.counts
    assert seen["crashes"] >= DEATHS * 4 // 5
    for seed in range(ROUNDS, ROUNDS * 5):
        if all(seen[what] for what in AWAITED):
            return
        assert dict(play(seed).checker.found) == {}
        seen += play(seed).checker.counts
    pytest.fail(f"never happened: {[what for what in AWAITED if not seen[what]]}")
