"""Everything that the journal does with files besides SQLite. Tests replace it to observe or break each step."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Disk:
    """The machine's own file system."""

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a file: after a crash it is either old or new. Written aside, flushed, renamed, and the rename
        flushed.
        """
        beside = path.with_name(path.name + ".new")
        with opened_directory(path.parent) as descriptor:  # opened first, because nothing may fail after the rename
            self.create(beside, data)
            self.rename(beside, path)
            self.sync_directory(path.parent, descriptor)

    def create(self, path: Path, data: bytes) -> None:
        """Write a whole new file and flush it."""
        with self.new_file(path) as write:
            write(data)

    @contextmanager
    def new_file(self, path: Path) -> Iterator[Callable[[bytes], None]]:
        """A function that writes a new file from its start. The file is flushed at the end."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        offset = 0

        def write(data: bytes) -> None:
            nonlocal offset
            at = 0
            while at < len(data):
                at += self.pwrite(descriptor, data[at:] if at else data, offset + at)
            offset += len(data)

        try:
            yield write
            self.fsync(descriptor, path)
        finally:
            os.close(descriptor)

    def create_empty(self, path: Path, size: int) -> None:
        """Create a file that takes room on the disk and holds nothing."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)

    def shorten(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def fsync(self, descriptor: int, path: Path) -> None:
        os.fdatasync(descriptor)

    def sync_directory(self, path: Path, descriptor: int | None = None) -> None:
        """Flush the names in a directory. `descriptor` is given if it is already open."""
        if descriptor is not None:
            os.fsync(descriptor)
            return
        with opened_directory(path) as opened:
            os.fsync(opened)

    def make_directory(self, path: Path) -> None:
        """Create a directory for files of a data directory. Its name is flushed with the directory above."""
        path.mkdir(mode=0o700)

    def remove_directory(self, path: Path) -> None:
        """Remove a directory, unless it still holds files that are not ours."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def boot_id(self) -> str:
        """The id of this boot of the machine. It changes with each start of the system. Empty if there is none."""
        try:
            return BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def size_bytes(self, path: Path) -> int:
        """The size of the whole file system."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
