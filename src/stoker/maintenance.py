"""Maintains data directories: backups, restoring, and checks.

Everything works while the directory is in use, from any process of its user: the process that owns the directory (an
application or `stoker serve`) makes a snapshot, and the caller reads that. Only restoring is offline: it makes a new
directory.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stoker.brokers.contract import Broker
from stoker.brokers.local import LocalBroker
from stoker.brokers.shared_directory import SharedBroker, open_shared
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.journal import backup as backups
from stoker.journal import doctor as checks
from stoker.journal import snapshots
from stoker.journal.backup import BackupInfo, BackupSettings, Listed
from stoker.journal.backup_targets import open_target
from stoker.journal.directory_store import DirectorySnapshot
from stoker.journal.disk import Disk
from stoker.journal.doctor import Finding, Progress
from stoker.journal.resharding import gather
from stoker.journal.shard_layout import FACT
from stoker.model.errors import InUse, InvalidRequest

__all__ = [
    "BackupInfo",
    "BackupSettings",
    "Finding",
    "Listed",
    "Progress",
    "backup",
    "check",
    "list_backups",
    "restore",
    "verify",
]


def backup(client: Client | AsyncClient, url: str, progress: Progress | None = None) -> BackupInfo:
    """Write everything behind an embedded client to a directory or to `s3://bucket/prefix`, while it is in use.

    This process writes the backup, whichever process owns the data directory. It blocks: call it from a coroutine with
    `asyncio.to_thread`. `progress` is called with the bytes done and the total.
    """
    broker: Broker | None = client.broker
    if isinstance(broker, SharedBroker):
        if broker.owned is None:
            with _snapshot(broker) as folder:
                return _backup_folder(folder, url, progress)
        broker = broker.owned
    directory = broker.data_directory if isinstance(broker, LocalBroker) else None
    if directory is None:
        raise InvalidRequest("only a data directory can be backed up: connect with sqlite:///path")
    return directory.backup(url, progress)


@contextmanager
def _snapshot(broker: SharedBroker) -> Iterator[Path]:
    with broker.snapshot() as folder, snapshots.snapshot_lock(folder):
        yield folder


def _backup_folder(folder: Path, url: str, progress: Progress | None) -> BackupInfo:
    target = open_target(url)
    if (folder / FACT).exists():  # a server in several processes: a backup has one
        gather(folder, None, Disk(), "")
    return backups.backup(DirectorySnapshot(*snapshots.files_of(folder)), target, progress=progress)


def list_backups(url: str) -> Sequence[Listed]:
    """The backups at a place, oldest first."""
    return backups.list_backups(open_target(url))


def restore(url: str, into: str, name: str | None = None, progress: Progress | None = None) -> BackupInfo:
    """Make a new data directory from the latest backup, or from a named one. Everything is verified first."""
    return backups.restore(open_target(url), name, Path(into), progress=progress)


def check(path: str) -> list[Finding]:
    """Check whether this machine and this path are fit for a data directory."""
    return checks.check(path)


def verify(path: str, progress: Progress | None = None) -> list[Finding]:
    """Read every record of a directory and verify its checksum.

    If a process has the directory open, it makes a snapshot, and that is read.
    """
    try:
        return checks.verify(path, progress)
    except InUse:
        broker = open_shared(os.path.abspath(path), {})
    try:
        with _snapshot(broker) as folder:
            return checks.verify(str(folder), progress)
    finally:
        broker.close()
