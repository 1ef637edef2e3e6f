"""Follows what processes say about their work, checks it as it comes, and fails where something is wrong."""

from itertools import islice
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalSettings
from stoker.testing import FakeClock
from tests.crash.oracle import Oracle
from tests.crash.pictures import differences, plain
from tests.crash.zygote import Child
from tests.histories.checker import Checker
from tests.histories.history import Entry, Intent, Recovered, Refused, Reply


class Following:
    """One data directory, through any number of processes."""

    def __init__(self, settings: LocalSettings, name: str) -> None:
        self.name = name
        """How to find it again: a seed, a point."""
        self.checker = Checker()
        self.oracle = Oracle(settings, FakeClock().now_ms())
        self._asked: Intent | None = None

    def read(self, entry: Any, child: Child) -> None:
        """What a process said. One that has told what it found waits until it was compared."""
        assert isinstance(entry, Entry), entry
        if isinstance(entry, Recovered):
            self._compare(entry, child)
            child.send("go on")
        elif isinstance(entry, Intent):
            self._asked = entry
        elif self._asked is not None:
            expected = self.oracle.carry_out(self._asked.at, self._asked.command)
            assert isinstance(entry, (Reply, Refused))
            said = entry.reply if isinstance(entry, Reply) else entry.code
            assert without_level(said) == without_level(expected), f"{self.name}: {self._asked}"
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
                pytest.fail(f"{self.name}, crash {self.checker.counts['crashes']}: after {asked}\n{what}")
        oracle.follow(entry.pictures)


def without_level(reply: Any) -> object:
    """Memory promises less than a disk, and nothing else is different."""
    if "level" in getattr(reply, "__struct_fields__", ()):
        reply = msgspec.structs.replace(reply, level="memory")
    return plain(reply)
