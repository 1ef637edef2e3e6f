"""Every change to a file can be observed: SQLite's through a VFS, the journal's own through its `Disk`.

A `Witness` gets each call and carries it out, or not. One dies in the middle (`KillPoint`), one records everything
(`Trace`); `images.py` computes what a power cut would leave of that.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from stoker.journal.disk import Disk

Verb = Literal[
    "create", "write", "truncate", "delete", "rename", "sync", "sync_directory", "make_directory", "remove_directory"
]


class Call(msgspec.Struct, frozen=True):
    """One change to the directory. Files are known by their names: there are no directories below."""

    verb: Verb
    name: str
    data: bytes = b""
    offset: int = 0
    """Of a write; the new size of a truncation."""
    to: str = ""
    """The new name."""


class Witness:
    """Lets everything happen."""

    def happens(self, call: Call, do: Callable[[Call], object]) -> None:
        do(call)


class KillPoint(Witness):
    """Ends its own process with SIGKILL just before the n-th call; if it is a write, perhaps in the middle of it."""

    def __init__(self, number: int, torn: bool = False) -> None:
        self._left = number
        self._torn = torn
        self._lock = threading.RLock()

    def happens(self, call: Call, do: Callable[[Call], object]) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                if self._torn and call.verb == "write":
                    do(msgspec.structs.replace(call, data=call.data[: len(call.data) // 2]))
                os.kill(os.getpid(), signal.SIGKILL)
        do(call)


class Trace(Witness):
    """Writes everything down, one call at a time: what is noted has happened, and nothing else has.

    The lock can be taken again: a forgotten connection may be closed in the middle of another call.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._lock = threading.RLock()

    def happens(self, call: Call, do: Callable[[Call], object]) -> None:
        with self._lock:
            do(call)
            self.calls.append(call)

    def freeze(self) -> list[Call]:
        """All calls; whoever makes another one waits for ever."""
        self._lock.acquire()
        return self.calls


class WatchedDisk(Disk):
    """The journal's own files."""

    def __init__(self, witness: Witness, home: Path) -> None:
        self._witness = witness
        self._home = home

    def boot_id(self) -> str:
        """Not the machine's: after a power cut the directory is opened in another boot."""
        return "the boot that ends with the power"

    @contextmanager
    def new_file(self, path: Path) -> Iterator[Callable[[bytes], None]]:
        self._witness.happens(Call("create", path.name), lambda call: path.open("wb").close())
        with super().new_file(path) as write:
            yield write

    def create_empty(self, path: Path, size: int) -> None:
        create_empty = super().create_empty
        self._witness.happens(Call("create", path.name), lambda call: create_empty(path, size))

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        pwrite = super().pwrite
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        call = Call("write", path.name, bytes(data), offset)
        self._witness.happens(call, lambda call: pwrite(descriptor, call.data, call.offset))
        return len(data)

    def fsync(self, descriptor: int, path: Path) -> None:
        fsync = super().fsync
        self._witness.happens(Call("sync", path.name), lambda call: fsync(descriptor, path))

    def sync_directory(self, path: Path, descriptor: int | None = None) -> None:
        sync_directory = super().sync_directory
        if path == self._home:
            self._witness.happens(Call("sync_directory", ""), lambda call: sync_directory(path, descriptor))
        else:
            sync_directory(path, descriptor)

    def make_directory(self, path: Path) -> None:
        make_directory = super().make_directory
        self._witness.happens(Call("make_directory", path.name), lambda call: make_directory(path))

    def remove_directory(self, path: Path) -> None:
        remove_directory = super().remove_directory
        self._witness.happens(Call("remove_directory", path.name), lambda call: remove_directory(path))

    def rename(self, old: Path, new: Path) -> None:
        rename = super().rename
        self._witness.happens(Call("rename", old.name, to=new.name), lambda call: rename(old, new))

    def remove(self, path: Path) -> None:
        remove = super().remove
        if path.exists():
            self._witness.happens(Call("delete", path.name), lambda call: remove(path))


class LyingDisk(WatchedDisk):
    """Says that everything is flushed, and flushes nothing."""

    def fsync(self, descriptor: int, path: Path) -> None:
        pass


class WatchedVFS(apsw.VFS):
    """SQLite's own way to the disk, watched. Registered under its name for as long as the object lives."""

    def __init__(self, name: str, witness: Witness) -> None:
        self._witness = witness
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return WatchedFile(name, flags, self._witness)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        delete = super().xDelete
        name = os.path.basename(filename)
        self._witness.happens(Call("delete", name), lambda call: delete(filename, syncdir))
        if syncdir:
            self._witness.happens(Call("sync_directory", ""), lambda call: None)


JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL


class WatchedFile(apsw.VFSFile):
    """A database, a rollback journal or a write-ahead log."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], witness: Witness) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_new = path is not None and not os.path.exists(path)
        self._name = os.path.basename(path or "")
        self._witness = witness
        self._syncs_directory = bool(flags[0] & JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)
        """SQLite flushes the directory too when it flushes a new journal for the first time."""
        super().__init__("", name, flags)
        if is_new:
            witness.happens(Call("create", self._name), lambda call: None)

    def xWrite(self, data: bytes, offset: int) -> None:
        write = super().xWrite
        call = Call("write", self._name, bytes(data), offset)
        self._witness.happens(call, lambda call: write(call.data, call.offset))

    def xTruncate(self, newsize: int) -> None:
        truncate = super().xTruncate
        self._witness.happens(Call("truncate", self._name, offset=newsize), lambda call: truncate(newsize))

    def xSync(self, flags: int) -> None:
        sync = super().xSync
        self._witness.happens(Call("sync", self._name), lambda call: sync(flags))
        if self._syncs_directory:
            self._syncs_directory = False
            self._witness.happens(Call("sync_directory", ""), lambda call: None)
