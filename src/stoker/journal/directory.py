"""A data directory: its lock, its files, and how far it is known to be on disk.

    manifest.json     which files count, and the facts that never change; replaced as a whole
    lock              held by the one process that has the directory open; names that process, and has its notice
    socket            where that process serves others, if it does
    mark              how far the log was flushed, kept outside SQLite; and in which boot of the machine it was written
    log-00000001.db   a part of the log; see `logfile.py`
    checkpoint-00000003   all shards at some moment
    keys.db           keys of ended jobs
    reserve           room for acks when the disk is full
    history.db        what happened in each queue minute by minute; see `history_file.py`

If several processes share a directory, each has such a directory for its own shards, and the root says so; see
`resharding.py`.

A file that the manifest does not name was left behind when a process died. It is removed at the next open.
"""

import fcntl
import os
import re
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from zlib import crc32

import msgspec

from stoker.journal.disk import Disk
from stoker.journal.history_file import FILES as HISTORY_FILES
from stoker.journal.shard_layout import FACT, LAYOUT
from stoker.model.errors import Damaged, InUse, InvalidRequest, NewerFormat
from stoker.model.ids import SHARDS_MAX

FORMAT = 1
"""The format of the directory. A later one is refused, an earlier one is read."""

DEFAULT_SHARDS = 16
"""Fixed for a directory: moving data later would be worse than a few idle shards."""

KEPT = frozenset(("manifest.json", "lock", "socket", "mark", "keys.db", "reserve", *HISTORY_FILES))
"""Files that are kept, although the manifest does not name them."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the log."""

    name: str
    state: Literal["open", "sealed", "sparse"]
    """Written to; finished and never written again; or rewritten with only what is still needed."""
    last: list[int] = []
    """The last sequence number of each shard at its end; empty while it is open."""
    ended_at: int = 0
    """The time of its last record."""
    bytes: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What belongs to a data directory."""

    format: int = FORMAT
    id: str
    shards: int
    epoch: int = 0
    """How often it was opened."""
    clean: bool = True
    """Whether it was closed in good order: then nothing can have been lost since the last flush."""
    number: int = 0
    """The number of the last file made."""
    checkpoint: str | None = None
    position: list[int] = []
    """The sequence number of each shard up to which the checkpoint reaches."""
    logs: list[LogEntry] = []
    lowest: list[int]
    """For each shard, the first sequence number from which on all events are there."""
    keys: bool = False
    """Whether there is a keys.db."""
    owned: list[int] | msgspec.UnsetType = msgspec.UNSET
    """The shards that live here, if other processes have the others. Lists have a place for all shards."""
    checksum: int = 0
    """The checksum of all other fields."""

    @property
    def own(self) -> list[int]:
        """The shards that live here."""
        return list(range(self.shards)) if self.owned is msgspec.UNSET else self.owned


class Holder(msgspec.Struct, frozen=True):
    """The process that has a directory open, or had it last: a killed process leaves its entry."""

    pid: str
    notice: str


def holder_of(path: Path) -> Holder:
    try:
        text = (path / "lock").read_bytes()[:HOLDER_BYTES_MAX].decode("ascii", "replace")
    except OSError:
        text = ""
    pid, _, notice = text.partition("\n")
    return Holder(pid.strip(), notice.strip())


HOLDER_BYTES_MAX = 256


class Directory:
    """A data directory that this process alone has open."""

    def __init__(
        self,
        path: Path,
        shards: int | None = None,
        disk: Disk | None = None,
        notice: str = "",
        *,
        lock: int | None = None,
        ready: Callable[[], object] | None = None,
    ) -> None:
        """`lock` is a lock that is already held. `ready` prepares the directory once the lock is held."""
        self.path = path
        self.notice = notice
        """What other processes read when they find the directory in use."""
        self.disk = disk or Disk()
        check_asked(shards)
        self._lock = take_lock(path, notice) if lock is None else lock
        try:
            if ready is not None:
                ready()
            self.manifest = self._load(shards)
            self.mark = Mark(path / "mark", self.manifest.shards, self.disk)
        except BaseException:
            os.close(self._lock)
            raise

    def _load(self, shards: int | None) -> Manifest:
        file = self.path / "manifest.json"
        if not file.exists():
            check_new(self.path)
            return self._create(DEFAULT_SHARDS if shards is None else shards)
        manifest = read_manifest(file)
        check_shards(self.path, manifest.shards, shards)
        return manifest

    def _create(self, shards: int) -> Manifest:
        check_shards(self.path, shards, shards)
        manifest = Manifest(id=uuid.uuid4().hex, shards=shards, lowest=[1] * shards)
        self.disk.sync_directory(self.path.parent)
        self._write(manifest)
        return manifest

    def update(self, **changes: object) -> None:
        """Replace the manifest. When this returns, the new one is on disk."""
        manifest = msgspec.structs.replace(self.manifest, **changes)
        self._write(manifest)
        self.manifest = manifest

    def _write(self, manifest: Manifest) -> None:
        self.disk.write_atomically(self.path / "manifest.json", manifest_text(manifest))

    def remove_leftovers(self) -> None:
        named = {log.name for log in self.manifest.logs} | {self.manifest.checkpoint} | KEPT
        for file in sorted(self.path.iterdir()):
            if is_ours(file.name) and OURS.fullmatch(file.name)[1] not in named:  # type: ignore[index]  # it matches
                self.disk.remove(file)

    def close(self) -> None:
        self.mark.close()
        self.forget_lock()

    def forget_lock(self) -> None:
        os.close(self._lock)


OURS = re.compile(
    r"((?:log-[0-9]{8,12}\.db|checkpoint-[0-9]{8,12}|manifest\.json|processes\.json|lock|socket|peer-[0-9]{1,2}|mark|keys\.db"
    r"|reserve)(?:\.new)?)(?:-wal|-shm|-journal)?"
)
"""Names that we give. No other file is ever removed."""


def is_ours(name: str) -> bool:
    return OURS.fullmatch(name) is not None


def take_lock(path: Path, notice: str = "") -> int:
    """Make the directory if there is none, and lock it for other processes until the descriptor is closed."""
    if path.exists() and not path.is_dir():
        raise InvalidRequest(f"{path} is a file: sqlite:// needs a directory, which it creates if there is none")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_foreign(path)
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        pid = holder_of(path).pid or "unknown"
        raise InUse(
            f"{path} is open in another process (pid {pid}): stop that process, or use another directory"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{notice}\n".encode(), 0)
    return lock


def is_locked(path: Path) -> bool:
    """Whether another process has the directory open at this moment."""
    lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def check_new(path: Path) -> None:
    """Refuse to create a data directory where there are other files, or where one has lost its manifest."""
    if any(path.glob("log-*.db")):
        raise Damaged(
            f"{path / 'manifest.json'} is missing, but there are log files: restore it, or the directory, from a backup"
        )
    check_foreign(path)


def check_foreign(path: Path) -> None:
    """Refuse a directory that holds other files, without leaving even a lock in it.

    The files that make it ours are checked last, because another process may be creating them at this moment, or may
    have died while doing so.
    """
    names = sorted(found.name for found in path.iterdir())
    foreign = [name for name in names if not is_ours(name) and not LAYOUT.fullmatch(name)]
    if foreign and not any((path / name).exists() for name in ("manifest.json", FACT)):
        raise InvalidRequest(
            f"{path} is not a data directory and holds other files ({', '.join(foreign[:3])}): use a new"
            " or an empty directory"
        )


def check_asked(shards: int | None) -> None:
    """Refuse an impossible number of shards before a directory is created."""
    if shards is not None and shards not in (1 << bits for bits in range(7)):
        raise InvalidRequest(f"{shards} shards: expected a power of two from 1 to {SHARDS_MAX}")


def check_shards(path: Path, there: int, asked: int | None) -> None:
    check_asked(there)
    if asked is not None and asked != there:
        raise InvalidRequest(
            f"{path} has {there} shards, but {asked} were asked for: the number is fixed when the"
            " directory is created; leave it out, or use a new directory"
        )


def manifest_text(manifest: Manifest) -> bytes:
    manifest = msgspec.structs.replace(manifest, checksum=0)
    checksum = crc32(msgspec.json.encode(manifest))
    return msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(manifest, checksum=checksum)), indent=1)


def read_manifest(file: Path) -> Manifest:
    """The manifest, with its checksum verified."""
    text = file.read_bytes()
    try:
        found = msgspec.json.decode(text, type=_ManifestFormat)
        if found.format > FORMAT:
            raise NewerFormat(
                f"{file.parent} has format {found.format}, but this release reads up to {FORMAT}: use the later release"
                " that wrote it"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"{file} cannot be read ({error}): restore it, or the directory, from a backup") from error
    names = [log.name for log in manifest.logs] + ([manifest.checkpoint] if manifest.checkpoint else [])
    lists = [manifest.lowest, *([manifest.position] if manifest.position else []), *(log.last for log in manifest.logs)]
    if (
        crc32(msgspec.json.encode(msgspec.structs.replace(manifest, checksum=0))) != manifest.checksum
        or not all(map(is_ours, names))
        or any(len(numbers) not in (0, manifest.shards) for numbers in lists)
        or not set(manifest.own) <= set(range(manifest.shards))
    ):
        raise Damaged(f"{file} has changed since it was written: restore it, or the directory, from a backup")
    return manifest


class _ManifestFormat(msgspec.Struct):
    format: int


class Mark:
    """How far the log was flushed: the last sequence number of each shard.

    SQLite silently drops a damaged end of its log. If the log reaches less far than the mark at open, it was damaged.
    Two places are written in turn, so one of them is always whole. The mark itself is not flushed: an older mark only
    knows less.
    """

    def __init__(self, path: Path, shards: int, disk: Disk) -> None:
        self._disk = disk
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._form = struct.Struct(f"<IQ{shards}Q")
        if os.fstat(self._file).st_size < BOOT_PLACE * SECTOR:
            disk.pwrite(self._file, bytes(PLACES * SECTOR), 0)  # allocates its room before the disk is full
        self._number, self.reached = self._read()

    def _read(self) -> tuple[int, list[int]]:
        best = (0, [0] * ((self._form.size - 12) // 8))
        for place in (0, 1):
            data = os.pread(self._file, self._form.size, place * SECTOR)
            if len(data) == self._form.size and crc32(data[4:]) == self._form.unpack(data)[0]:
                _, number, *reached = self._form.unpack(data)
                if number > best[0]:
                    best = (number, reached)
        return best

    def set(self, reached: list[int]) -> None:
        self._number += 1
        data = self._form.pack(0, self._number, *reached)
        checksum = struct.pack("<I", crc32(data[4:]))
        self._disk.pwrite(self._file, checksum + data[4:], self._number % 2 * SECTOR)
        self.reached = reached

    # --- the boot ----------------------------------------------------------------------------------

    def is_of_this_boot(self, epoch: int) -> bool:
        """Whether everything that was answered in this epoch has reached the system, which has not stopped since.

        The note names the file that it is in, because a copy or a snapshot of the disk may be older than its original.
        """
        boot = self._disk.boot_id()
        data = os.pread(self._file, CHECKSUM.size + NOTE_BYTES_MAX, BOOT_PLACE * SECTOR)
        return bool(boot) and data[CHECKSUM.size :].rstrip(b"\0") == self._note(epoch, boot) and is_whole(data)

    def note_boot(self, epoch: int) -> None:
        """From now on the log of this epoch is whole as long as the system does not stop."""
        boot = self._disk.boot_id()
        if boot:
            self._write_note(self._note(epoch, boot))

    def forget_boot(self) -> None:
        """From now on something may be lost if only the process dies."""
        if os.pread(self._file, 1, BOOT_PLACE * SECTOR):
            self._write_note(b"")

    def _note(self, epoch: int, boot: str) -> bytes:
        found = os.fstat(self._file)
        return f"{epoch} {found.st_dev} {found.st_ino} {boot}".encode()[:NOTE_BYTES_MAX]

    def _write_note(self, note: bytes) -> None:
        data = note.ljust(NOTE_BYTES_MAX, b"\0")
        self._disk.pwrite(self._file, CHECKSUM.pack(crc32(data)) + data, BOOT_PLACE * SECTOR)

    def close(self) -> None:
        os.close(self._file)


def is_whole(data: bytes) -> bool:
    """Whether the checksum matches the bytes after it."""
    return len(data) > CHECKSUM.size and CHECKSUM.unpack_from(data)[0] == crc32(data[CHECKSUM.size :])


SECTOR = 4096
BOOT_PLACE = 2
"""The third sector. Earlier releases neither read nor write it; the epoch tells whether one was here."""
PLACES = 3
CHECKSUM = struct.Struct("<I")
NOTE_BYTES_MAX = 256
