"""A data directory in use: its shards, its journal, and the upkeep of both."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from stoker.engine.shard import Shard
from stoker.journal.directory import Directory
from stoker.journal.disk import Disk
from stoker.journal.recovery import open_journal
from stoker.journal.sqlite import JournalSettings, SqliteJournal
from stoker.journal.upkeep import Upkeep
from stoker.model.limits import Limits
from stoker.model.options import Settings

STORED_FROM = 2
"""At open the payloads of batches stay in the journal until they are due; single jobs bring theirs along."""


class StoreSettings(Protocol):
    """What of a broker's settings concerns its data directory."""

    @property
    def engine(self) -> Settings: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def shards(self) -> int | None: ...
    @property
    def memory_bytes_max(self) -> int: ...
    @property
    def journal(self) -> JournalSettings | None: ...


class Store:
    """What `open_store` has opened."""

    def __init__(self, directory: Directory, journal: SqliteJournal, shards: list[Shard], at: int) -> None:
        self.directory = directory
        self.journal = journal
        self.shards = shards
        self.at = at
        """Journaled time: what happens next does not happen earlier."""
        self.is_stored = True
        self.upkeep: Upkeep | None = None

    def start(self, guard: AbstractContextManager[object], stop: Callable[[Exception], None]) -> None:
        """Begin the upkeep, for an owner with this lock, who is told when the journal fails."""
        self.upkeep = Upkeep(self.journal, guard, stop)
        self.upkeep.start()

    def close(self) -> None:
        if self.upkeep is not None:
            self.upkeep.stop()
        self.journal.close()
        if self.journal.failure is None:
            used = {segment.log.name for segment in self.journal.segments}
            logs = [log for log in self.directory.manifest.logs if log.name in used]
            self.directory.update(clean=True, logs=logs)
            self.directory.remove_leftovers()
        self.directory.close()


def open_store(path: str, settings: StoreSettings, now: int, disk: Disk | None = None) -> Store:
    directory = Directory(Path(path), settings.shards, disk)
    try:
        kept = settings.journal or JournalSettings()
        journal, found = open_journal(directory, kept, settings.engine, settings.limits, now, STORED_FROM)
    except BaseException:
        directory.close()
        raise
    return Store(directory, journal, found.shards, found.at)
