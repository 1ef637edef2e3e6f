"""What a data directory holds, however it is dealt: every shard, all its records, and the old keys."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from stoker.brokers.local import LocalSettings
from stoker.engine.audit import audit
from stoker.journal.directory_store import DirectoryStore, open_store
from stoker.journal.disk import Disk
from stoker.journal.resharding import gather, open_root
from stoker.records.records import Opened
from tests.crash.pictures import hash_of, state_of
from tests.crash.watching import WatchedDisk, WatchedVFS, Witness


class Held(msgspec.Struct, frozen=True):
    """A shard."""

    state: str
    """A hash of everything but the numbers that restarts raise."""
    sequence: int
    token: int
    lowest: int
    records: str
    """A hash of all that readers of events can still read, without the openings."""
    count: int


class Holdings(msgspec.Struct, frozen=True):
    """A data directory."""

    shards: dict[int, Held]
    old_keys: list[Any]


@contextmanager
def opened(
    path: Path, processes: int, settings: LocalSettings, now: int, disk: Disk | None = None
) -> Iterator[list[DirectoryStore]]:
    """All parts of a directory, after it was dealt to so many processes."""
    vfs = settings.journal.vfs if settings.journal is not None else ""
    with ExitStack() as stack:
        if processes == 1:
            stores = [open_store(str(path), settings, now, disk)]
            stack.callback(stores[0].close)
        else:
            root = open_root(path, processes, settings.shards, disk, vfs)
            stack.callback(root.close)
            stores = []
            for part in root.parts:
                stores.append(open_store(str(part), settings, now, disk, part=True))
                stack.callback(stores[-1].close)
        yield stores


def holdings(path: Path, processes: int, settings: LocalSettings, now: int) -> Holdings:
    """What there is when it is opened by so many processes."""
    with opened(path, processes, settings, now) as stores:
        shards = {shard.number: _held(store, shard) for store in stores for shard in store.shards}
        keys = [
            row for store in stores if store.keys.store for row in store.keys.store._file.execute("SELECT * FROM keys")
        ]
        return Holdings(dict(sorted(shards.items())), sorted(keys))


def _held(store: DirectoryStore, shard: Any) -> Held:
    journal = store.journal
    shard.stored_payloads = partial(journal.payloads, shard.number)
    audit(shard)
    lowest = journal.lowest(shard.number)
    records = [record for _, record in journal.read(shard.number, lowest - 1, 1 << 30) if type(record) is not Opened]
    return Held(hash_of(state_of(shard)), shard.sequence, shard.token, lowest, hash_of(records), len(records))


# --- roles -------------------------------------------------------------------------------------------

WATCHED = "stoker-dealt"


def layout_watched(
    wire: "Connection[Any, Any]", path: str, processes: int, settings: LocalSettings, make_witness: Any
) -> None:
    """Deal a directory under somebody's eyes; nothing is opened."""
    witness: Witness = make_witness()
    vfs = WatchedVFS(WATCHED, witness)
    disk = WatchedDisk(witness, Path(path))
    if processes == 1:
        gather(Path(path), settings.shards, disk, WATCHED)
    else:
        open_root(Path(path), processes, settings.shards, disk, WATCHED).close()
    wire.send("closed")
    vfs.unregister()
