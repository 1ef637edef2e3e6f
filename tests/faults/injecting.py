"""Faults at the n-th call of one place: of the journal, of its files, of the disk or of SQLite's own way there.

Everything is put over the classes of this process, which is a child that soon ends; nothing is ever taken back.
"""

import errno
import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import apsw
import msgspec

from stoker.journal import checkpointing, retention
from stoker.journal.checkpoint_process import Checkpoints
from stoker.journal.contract import JournalFailed
from stoker.journal.directory import Directory, Mark
from stoker.journal.disk import Disk
from stoker.journal.logfile import LogFile
from stoker.journal.retention import LogRetention
from stoker.journal.sqlite import SqliteJournal
from stoker.journal.upkeep import Upkeep
from stoker.model.errors import Damaged

When = Literal["once", "for ever", "done and denied"]
"""Only this call; this one and all later ones; only this one, after it has done its work."""

ERRORS: dict[str, Callable[[], Exception]] = {
    "EIO": lambda: OSError(errno.EIO, "injected"),
    "ENOSPC": lambda: OSError(errno.ENOSPC, "injected"),
    "IOERR": lambda: apsw.IOError("injected"),
    "FULL": lambda: apsw.FullError("injected"),
    "CANTOPEN": lambda: apsw.CantOpenError("injected"),
    "failed": lambda: JournalFailed("injected"),
    "damaged": lambda: Damaged("/injected is damaged: restore the directory from a backup"),
    "bug": lambda: ZeroDivisionError("injected"),
}

PLACES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "journal.append": (SqliteJournal, "append", ("failed",)),
    "journal.flush": (SqliteJournal, "flush", ("failed", "bug")),
    "journal.read": (SqliteJournal, "read", ("damaged",)),
    "journal.payloads": (SqliteJournal, "payloads", ("damaged",)),
    "journal.commit_deferred": (SqliteJournal, "commit_deferred", ("failed",)),
    "journal.go_on": (SqliteJournal, "go_on", ("failed",)),
    "log.append": (LogFile, "append", ("IOERR", "FULL")),
    "log.create": (LogFile, "create", ("CANTOPEN", "FULL", "EIO")),
    "log.reopen": (LogFile, "reopen", ("damaged",)),
    "log.sealed": (LogFile, "sealed", ("damaged", "CANTOPEN")),
    "log.seal": (LogFile, "seal", ("IOERR", "FULL")),
    "log.rows": (LogFile, "rows", ("damaged",)),
    "mark.set": (Mark, "set", ("EIO", "ENOSPC")),
    "manifest.update": (Directory, "update", ("EIO", "ENOSPC")),
    "upkeep.prepare": (Upkeep, "prepare", ("EIO", "bug")),
    "upkeep.seal": (Upkeep, "seal", ("IOERR", "bug")),
    "upkeep.watch_room": (Upkeep, "watch_room", ("EIO",)),
    "checkpoint.begin": (Checkpoints, "begin", ("ENOSPC", "damaged")),
    "checkpoint.make": (retention, "make", ("IOERR", "bug")),
    "checkpoint.enforce": (LogRetention, "_enforce", ("EIO", "damaged")),
    "checkpoint.write": (checkpointing, "write_checkpoint", ("ENOSPC",)),
    "disk.pwrite": (Disk, "pwrite", ("EIO", "ENOSPC")),
    "disk.fsync": (Disk, "fsync", ("EIO", "ENOSPC")),
    "disk.sync_directory": (Disk, "sync_directory", ("EIO",)),
    "disk.rename": (Disk, "rename", ("EIO",)),
    "disk.remove": (Disk, "remove", ("EIO",)),
    "disk.create_empty": (Disk, "create_empty", ("EIO", "ENOSPC")),
    "disk.free_bytes": (Disk, "free_bytes", ("EIO",)),
}
"""Where, and what may come out of it there."""

VFS_PLACES: dict[str, tuple[str, ...]] = {
    "vfs.open": ("CANTOPEN",),
    "vfs.read": ("IOERR",),
    "vfs.write": ("IOERR", "FULL"),
    "vfs.sync": ("IOERR",),
    "vfs.truncate": ("IOERR",),
    "vfs.delete": ("IOERR",),
}
"""The same for what SQLite does; it goes through a VFS of ours only when one of these is asked for."""

VFS = "faulty"


class Fault(msgspec.Struct, frozen=True):
    """This error, at the n-th call of this place. 0 = never."""

    place: str = ""
    error: str = "EIO"
    number: int = 0
    when: When = "once"
    at_open: bool = False
    """Count from before the directory is opened."""

    @property
    def needs_vfs(self) -> bool:
        return self.place.startswith("vfs.")


class Injector:
    """Counts the calls of every place, and lets one of them fail."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.calls: Counter[str] = Counter()
        self.fired = 0
        self._armed = fault.at_open
        self._here = threading.local()
        self._lock = threading.Lock()
        self._vfs: apsw.VFS | None = None

    def install(self) -> None:
        for place, (owner, name, _) in PLACES.items():
            kept = owner.__dict__[name]
            if isinstance(kept, classmethod):
                setattr(owner, name, classmethod(self._wrapped(place, kept.__func__)))
            else:
                setattr(owner, name, self._wrapped(place, kept))
        if self.fault.needs_vfs:
            self._vfs = FaultyVFS(self)

    def arm(self) -> None:
        self._armed = True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What this thread does in here is not part of the work."""
        self._here.is_aside = True
        try:
            yield
        finally:
            self._here.is_aside = False

    def is_hit(self, place: str) -> bool:
        if not self._armed or getattr(self._here, "is_aside", False):
            return False
        with self._lock:
            self.calls[place] += 1
            number, fault = self.calls[place], self.fault
            if place != fault.place or not fault.number:
                return False
            hit = number >= fault.number if fault.when == "for ever" else number == fault.number
            self.fired += hit
            return hit

    def through(self, place: str, do: Callable[[], Any]) -> Any:
        if not self.is_hit(place):
            return do()
        if self.fault.when == "done and denied":
            do()
        raise ERRORS[self.fault.error]()

    def _wrapped(self, place: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            return self.through(place, lambda: original(*arguments, **named))

        return wrapper


class FaultyVFS(apsw.VFS):
    """SQLite's own, with faults."""

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        super().__init__(VFS, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return self._injector.through("vfs.open", lambda: FaultyFile(name, flags, self._injector))  # type: ignore[no-any-return]

    def xDelete(self, filename: str, syncdir: bool) -> None:
        delete = super().xDelete
        self._injector.through("vfs.delete", lambda: delete(filename, syncdir))


class FaultyFile(apsw.VFSFile):
    """A file of SQLite's, with faults."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], injector: Injector) -> None:
        self._injector = injector
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        read = super().xRead
        return self._injector.through("vfs.read", lambda: read(amount, offset))  # type: ignore[no-any-return]

    def xWrite(self, data: bytes, offset: int) -> None:
        write = super().xWrite
        self._injector.through("vfs.write", lambda: write(data, offset))

    def xTruncate(self, newsize: int) -> None:
        truncate = super().xTruncate
        self._injector.through("vfs.truncate", lambda: truncate(newsize))

    def xSync(self, flags: int) -> None:
        sync = super().xSync
        self._injector.through("vfs.sync", lambda: sync(flags))


# --- a small disk, where none can be mounted ---------------------------------------------------------


class Quota:
    """Lets a directory grow to so many bytes and no further, as a file system of that size would."""

    def __init__(self, path: str, room: int) -> None:
        self._path = path
        self._room = room
        self._lock = threading.Lock()

    def install(self) -> None:
        quota, disk = self, Disk
        pwrite, create_empty = disk.pwrite, disk.create_empty

        def watched_pwrite(disk: Disk, descriptor: int, data: bytes, offset: int) -> int:
            with quota._lock:
                quota.take(os.fstat(descriptor), offset + len(data), OSError(errno.ENOSPC, "no room"))
                return pwrite(disk, descriptor, data, offset)

        def watched_create_empty(disk: Disk, path: Path, size: int) -> None:
            with quota._lock:
                if quota.free() < size:
                    raise OSError(errno.ENOSPC, "no room")
                create_empty(disk, path, size)

        for name, method in (
            ("pwrite", watched_pwrite),
            ("create_empty", watched_create_empty),
            ("free_bytes", lambda disk, path: max(0, quota.free())),
        ):
            setattr(disk, name, method)
        self._vfs = QuotaVFS(self)

    def free(self) -> int:
        used = 0
        for entry in os.scandir(self._path):
            try:
                used += entry.stat().st_blocks * 512
            except FileNotFoundError:  # it went a moment ago
                continue
        return self._room - used

    def take(self, before: os.stat_result, end: int, error: Exception) -> None:
        """Room for a write up to `end`, or the error. Files have no holes here."""
        if end > before.st_size and (end + PAGE - 1) // PAGE * PAGE - before.st_blocks * 512 > max(0, self.free()):
            raise error

    def write(self, name: str, end: int, do: Callable[[], None]) -> None:
        with self._lock:
            self.take(os.stat(name), end, apsw.FullError("no room"))
            do()


PAGE = 4096


class QuotaVFS(apsw.VFS):
    """SQLite under a quota."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        super().__init__(VFS, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return QuotaFile(name, flags, self._quota)


class QuotaFile(apsw.VFSFile):
    """A file of SQLite's under a quota."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], quota: Quota) -> None:
        self._quota = quota
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        write = super().xWrite
        if self._name is None:
            write(data, offset)
        else:
            self._quota.write(self._name, offset + len(data), lambda: write(data, offset))
