"""Moving keys of ended jobs out of memory, into the file beside the log, when there are many of them.

The order is what makes it safe. A key goes to the file only when the job that it speaks of is on disk, and leaves
memory only when it is in the file. After a crash in between it is in at least one of the two, and memory wins.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from stoker.engine.old_keys import keys_to_store, store_keys
from stoker.engine.shard import Shard
from stoker.journal.bloom_filters import Filters, FilterSettings
from stoker.journal.directory import Directory
from stoker.journal.key_store import KeyStore, verify_file
from stoker.journal.sqlite import SqliteJournal
from stoker.model.errors import Damaged

KEYS_AT_ONCE = 10_000
SOON_MS = 60_000
"""A key that expires so soon is not worth the way."""


def check_file(directory: Directory) -> None:
    """Refuse a directory that has lost its keys, before anything in it is changed."""
    file = directory.path / "keys.db"
    if directory.manifest.keys:
        if not (file.exists() and file.stat().st_size):
            raise Damaged(f"{file} is missing or empty: restore the directory from a backup")
        verify_file(file)


class KeyKeeper:
    """The old keys of all shards of a data directory."""

    def __init__(self, journal: SqliteJournal, shards: Sequence[Shard]) -> None:
        self._journal = journal
        self._shards = shards
        self.filters = Filters(FilterSettings() if journal.settings.filters is None else journal.settings.filters)
        self.store: KeyStore | None = None
        directory = journal.directory
        if directory.manifest.keys:
            self._open()

    def _open(self) -> KeyStore:
        path, vfs = self._journal.directory.path / "keys.db", self._journal.settings.vfs
        self.store = KeyStore(path, vfs, hint=self.filters.idempotency, cleanup=self.filters.cleanup)
        for shard in self._shards:
            shard.old_keys = self.store
        return self.store

    def forget(self, queues: set[tuple[str, str]]) -> None:
        """Queues that were obliterated after their keys had been stored."""
        if self.store is not None:
            for tenant, queue in queues:
                self.store.forget_queue(tenant, queue)

    def keep(
        self, guard: AbstractContextManager[object], commit: Callable[[], None], update: Callable[..., None], now: int
    ) -> None:
        """One round over all shards, on the upkeep thread."""
        for shard in self._shards:
            with guard:
                keys = keys_to_store(shard, KEYS_AT_ONCE, now + SOON_MS) if self._are_many(shard) else []
                self._journal.commit_deferred()
            if not keys:
                continue
            self._journal.flush()  # the jobs that they speak of are on disk before they are
            store = self.store or self._open()
            if not self._journal.directory.manifest.keys:
                update(lambda logs: logs, keys=True)
            put = store.put_many(keys, now)
            with guard:
                changed = store_keys(shard, put, now)
                commit()
            store.forget(changed, now)
        if self.store is not None:
            self.store.forget_expired(now, KEYS_AT_ONCE)
            self.store.fill(now, KEYS_AT_ONCE)

    def _are_many(self, shard: Shard) -> bool:
        queues = [queue for tenant in shard.tenants.values() for queue in tenant.queues.values()]
        known = sum(len(queue.custom_ids) + len(queue.requests) for queue in queues)
        return known > self._journal.settings.keys_in_memory

    def settle(self, now: int) -> None:
        """What was forgotten leaves the file, too: before the log that tells of it is finished."""
        if self.store is not None:
            self.store.put_many([], now)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
