"""Looking after data directories: backups, restoring them, and whether all is well.

A running broker is backed up through itself (`backup(client, url)`), since only its owner knows a consistent moment;
everything else works on a directory that nobody has open.
"""

from collections.abc import Sequence
from pathlib import Path

from stoker.brokers.contract import Broker
from stoker.brokers.local import LocalBroker
from stoker.brokers.shared import SharedBroker
from stoker.client.sync import Client
from stoker.journal import backup as backups
from stoker.journal import doctor as checks
from stoker.journal.backup import BackupInfo, BackupSettings, Listed, Progress
from stoker.journal.doctor import Finding
from stoker.journal.targets import open_target
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


def backup(client: Client, url: str, progress: Progress | None = None) -> BackupInfo:
    """Write everything behind an embedded client to a directory or to `s3://bucket/prefix`, while it is in use."""
    broker: Broker | None = client.broker
    if isinstance(broker, SharedBroker):
        broker = broker.owned
        if broker is None:
            raise InUse("another process owns this data directory: take the backup there, or end that one first")
    if not isinstance(broker, LocalBroker) or broker.store is None:
        raise InvalidRequest("only a data directory can be backed up: connect with sqlite:///path")
    return broker.store.backup(url, progress)


def list_backups(url: str) -> Sequence[Listed]:
    """The backups at a place, oldest first."""
    return backups.list_backups(open_target(url))


def restore(url: str, into: str, name: str | None = None, progress: Progress | None = None) -> BackupInfo:
    """Make a new data directory from the latest backup, or from a named one. Everything is verified first."""
    return backups.restore(open_target(url), name, Path(into), progress=progress)


def check(path: str) -> list[Finding]:
    """Is this machine, and this place, fit for a data directory?"""
    return checks.check(path)


def verify(path: str) -> list[Finding]:
    """Read every record of a directory that nobody has open, and hold it against its checksum."""
    return checks.verify(path)
