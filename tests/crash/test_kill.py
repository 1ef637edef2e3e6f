"""Processes are killed at any moment, hundreds of times, and nothing that was answered is ever lost (F1).

A round is one data directory and many processes: each recovers, is looked at, works as fast as it can and is killed.
What the processes said is checked twice. `checker.py` knows only what a client was told. `oracle.py` went through the
same commands in memory, and every recovered shard must equal its own, with or without the command that was never
answered.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model.options import Retention, Settings
from stoker.testing import FakeClock
from tests.crash.checker import Checker
from tests.crash.history import Entry, Intent, Recovered, Reply
from tests.crash.oracle import Oracle
from tests.crash.pictures import differences, plain
from tests.crash.restarted import fresh_directory
from tests.crash.roles import finish, work
from tests.crash.workload import SHARDS
from tests.crash.zygote import Child, the_zygote

ROUNDS = 12
CYCLES = 45
"""Twelve rounds of forty-five: more than five hundred deaths."""

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


class Round:
    """One data directory, through many deaths."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.settings = settings_for(seed)
        self.chance = random.Random(seed)
        self.path = str(fresh_directory())
        self.checker = Checker()
        self.oracle = Oracle(self.settings, FakeClock().now_ms())
        self.memory = self.checker.memory()
        self.memory.now = self.oracle.clock.now_ms()
        self._asked: Intent | None = None
        for cycle in range(CYCLES):
            self._live_and_die(cycle)
        self._work_off()

    def _live_and_die(self, cycle: int) -> None:
        with the_zygote().fork(work, self.path, self.settings, f"{self.seed}.{cycle}", self.memory) as child:
            for entry in killed_some_time(child, self.chance):
                self._read(entry, child)
        if self.checker.counts["crashes"]:
            self.memory = self.checker.memory()

    def _work_off(self) -> None:
        with the_zygote().fork(finish, self.path, self.settings, self.memory.now) as child:
            while isinstance(entry := child.receive(), Entry):
                self._read(entry, child)
        self.checker.check_drained(*entry)

    def _read(self, entry: Entry, child: Child) -> None:
        if isinstance(entry, Recovered):
            self._compare(entry, child)
            child.send("go on")
        elif isinstance(entry, Intent):
            self._asked = entry
        elif self._asked is not None:
            expected = self.oracle.carry_out(self._asked.at, self._asked.command)
            said = entry.reply if isinstance(entry, Reply) else entry.code
            assert without_level(said) == without_level(expected), f"seed {self.seed}: {self._asked}"
            self._asked = None
        self.checker.read(entry)

    def _compare(self, entry: Recovered, child: Child) -> None:
        """Nothing was lost, with or without the command that was never answered."""
        oracle, asked, self._asked = self.oracle, self._asked, None
        oracle.advance(entry.at)
        if not oracle.agrees(entry.pictures):
            states = [oracle.states()]
            if asked is not None:
                oracle.carry_out(asked.at, asked.command)
                states.append(oracle.states())
            if not oracle.agrees(entry.pictures):
                child.send("what exactly?")
                found = child.receive()
                what = "\nor\n".join("\n".join(islice(differences(found, own), 20)) for own in states)
                pytest.fail(f"seed {self.seed}, crash {self.checker.counts['crashes']}: after {asked}\n{what}")
        oracle.follow(entry.pictures)


def without_level(reply: Any) -> object:
    """Memory promises less than a disk, and nothing else is different."""
    if "level" in getattr(reply, "__struct_fields__", ()):
        reply = msgspec.structs.replace(reply, level="memory")
    return plain(reply)


def killed_some_time(child: Child, chance: random.Random) -> Iterator[Entry]:
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
    """What never happened proves nothing."""
    seen: Counter[str] = Counter()
    for seed in range(ROUNDS):
        seen += play(seed).checker.counts
    assert seen["crashes"] >= 450
    for what in ("unknown", "recovered", "vanished", "repeated", "delivered again", "fenced", "outlived"):
        assert seen[what] >= 20, what
    for command in (
        "Push",
        "PushBatch",
        "Stage",
        "Publish",
        "Abort",
        "Pull",
        "Ack",
        "Fail",
        "Release",
        "Extend",
        "Cancel",
    ):
        assert seen[command] >= 20, command
