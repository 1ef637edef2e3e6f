"""Snapshots: a folder in a data directory that is itself one, with the state of one moment.

    snapshot-0123456789abcdef/     links to files that are never written again, a copy of keys.db, a manifest

The owner of the directory makes it for another process, which reads it and removes it. Because the files are links, the
snapshot stays whole when the owner lets go of the originals, or dies. A reader holds the folder (`snapshot_lock`); one
without a reader is removed when the reader's connection ends, and at the next open.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.journal.directory import read_manifest

NAME = re.compile(r"snapshot-[0-9a-f]{16}")
UNLINKABLE = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV))
"""What file systems say that know no links, or no more of them."""


def new_folder(directory: Path) -> Path:
    folder = directory / f"snapshot-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    return folder


def fill(folder: Path, files: Iterable[Path], manifest: bytes) -> None:
    """Make a data directory of these files. A copy takes the place of a link that cannot be made."""
    for file in files:
        if file.parent != folder:
            _link(file, folder / file.name)
    (folder / "manifest.json").write_bytes(manifest)


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError as error:
        if error.errno not in UNLINKABLE:
            raise
        shutil.copyfile(file, to)


def files_of(folder: Path) -> tuple[list[Path], bytes]:
    """The files of a snapshot, and its manifest."""
    manifest = read_manifest(folder / "manifest.json")
    names = [log.name for log in manifest.logs] + ([manifest.checkpoint] if manifest.checkpoint else [])
    names += ["keys.db"] if (folder / "keys.db").exists() else []
    return [folder / name for name in names], (folder / "manifest.json").read_bytes()


@contextmanager
def snapshot_lock(folder: Path) -> Iterator[None]:
    """Keep a snapshot from being removed, and remove it at the end."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a snapshot, unless a process holds it. One that is not there any more is no news."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


def remove_all(directory: Path) -> None:
    """Called after a directory is opened: remove the snapshots that a killed process left."""
    for found in directory.iterdir():
        if NAME.fullmatch(found.name):
            remove(found)
