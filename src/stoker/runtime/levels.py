"""Levels of durability: which one a turn has to reach, as far as its journal has it."""

from collections.abc import Iterable, Sequence
from typing import Any

from stoker.engine.shard import Shard
from stoker.journal.contract import Journal
from stoker.model import command_table
from stoker.model.replies import LEVELS, Level
from stoker.runtime import process_requests

TAKES_LEVEL = command_table.TAKES_LEVEL | process_requests.FLUSHED
"""Commands that may ask for a level of their own."""


class Levels:
    """The levels of one journal, and which of them a turn gets."""

    def __init__(self, journal: Journal, usual: Level | None) -> None:
        self.has = tuple(journal.levels)
        self.usual = self.given(usual or "commit")
        """What a command gets that asks for no level."""
        self.later = frozenset(self.has) - frozenset(journal.at_once)
        """Those that are reached after `append` has returned: replies wait for a ticket."""
        self.deferred = self.later | {"memory"}
        """Those for which nothing has to be written before `append` returns."""

    def given(self, asked: Level) -> Level:
        """The strongest level that the journal has up to the one asked for; its weakest if all are stronger."""
        return max(
            (level for level in self.has if LEVELS.index(level) <= LEVELS.index(asked)),
            key=LEVELS.index,
            default=self.has[0],
        )

    def of(self, changed: Sequence[Shard], asked: Level | None) -> Level:
        """What a turn has to reach: what was asked for, or else the most that any of its queues wants."""
        if asked is not None:
            return self.given(asked)
        wanted = {
            shard.queue_levels.get((record.tenant, getattr(record, "queue", "")), self.usual)  # type: ignore[attr-defined]
            for shard in changed
            if shard.queue_levels
            for record in shard.records
        }
        return self.given(strongest(wanted or {self.usual}))

    def of_all(self, changed: Sequence[Shard], asks: Iterable[Level | None]) -> Level:
        """The strongest level that any command of a turn asks for, or is given where it asks for none."""
        return strongest(self.of(changed, asked) for asked in asks)


def asked_by(command: Any) -> Level | None:
    """The level that a command asks for, if it does."""
    return command.durability if type(command) in TAKES_LEVEL else None


def strongest(levels: Iterable[Level]) -> Level:
    return max(levels, key=LEVELS.index)
