"""Reads and writes the small files that decide who may connect: checked when read, private and atomic when written."""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoker.model.errors import InvalidRequest


class Stamp(msgspec.Struct, frozen=True):
    """Tells whether a file is still the one that was read."""

    changed_at_ns: int = 0
    bytes: int = 0
    inode: int = 0


def stamp(path: Path) -> Stamp:
    try:
        return _stamp(os.stat(path))
    except (OSError, ValueError):
        return Stamp()


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)


def read_guarded(path: Path, what: str, bytes_max: int) -> tuple[bytes, Stamp]:
    """Read a regular file of limited size that not every user can write."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidRequest(f"{what} {path} is not a regular file")
            if found.st_mode & stat.S_IWOTH:
                raise InvalidRequest(f"{what} {path} can be written by every user of this machine: chmod o-w")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InvalidRequest(f"{what} {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InvalidRequest(f"{what} {str(path)!r:.80} is not a file name") from None
    if len(data) > bytes_max:
        raise InvalidRequest(f"{what} {path} is larger than {bytes_max} bytes")
    return data, _stamp(found)


def write_private(path: Path, data: bytes) -> None:
    """Write atomically; the file is readable only by its owner from the start."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    with _directory(path.parent) as directory:
        os.fsync(directory)


@contextmanager
def alone_in(path: Path) -> Iterator[None]:
    """Lock this directory: two writers at once would undo each other."""
    with _directory(path) as directory:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
