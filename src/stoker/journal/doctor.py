"""Check whether this machine, and a data directory, are fit for a queue. Checking changes nothing in a data directory.

`check` is quick and may run beside a process that has the directory open. `verify` reads every row of a directory that
no process has open, or of a snapshot. Both return findings: what was checked, what was found, and what to do about it.
"""

import fcntl
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from stoker.journal.checkpoint_files import read_checkpoint
from stoker.journal.directory import KEPT, LogEntry, Manifest, Mark, is_ours, read_manifest
from stoker.journal.disk import Disk
from stoker.journal.shard_layout import FACT, layout_of, parts_of
from stoker.journal.snapshots import NAME as SNAPSHOT
from stoker.model.errors import InUse, InvalidRequest, StokerError

PYTHON_NEEDED = (3, 11)
SQLITE_NEEDED = (3, 51, 3)
"""The first release in which a reset of the write-ahead log cannot lose a checkpoint of another connection."""

SPACE_LOW_BYTES = 2 << 30
SPACE_NEEDED_BYTES = 256 << 20
INODES_LOW = 1_000
FLUSHES = 20
FLUSH_SLOW_MS = 20.0
"""A disk with its own cache needs far less than one millisecond, a spinning disk about ten."""

LOG_NAME = re.compile(r"log-[0-9]{8,12}\.db")
CHECKPOINT_NAME = re.compile(r"checkpoint-[0-9]{8,12}")
LOOKS = 10
"""So often the doctor looks again at a directory that changes under its eyes."""
SIDES = ("-wal", "-shm", "-journal")

Status = Literal["ok", "warning", "problem"]
Progress = Callable[[int, int], object]
"""Called with how many bytes are done, and how many there are in all."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was checked."""

    name: str
    status: Status
    found: str
    advice: str = ""
    """What to do; empty if all is well."""


def check(path: str, mounts: str = "/proc/self/mountinfo") -> list[Finding]:
    """Everything that can be found out quickly about a place for a data directory, or about an existing one."""
    directory = Path(path).absolute()
    ground = _ground(directory)
    found = [_python(), _sqlite(), _file_system(ground, mounts), space(ground), _inodes(ground), _flushes(ground)]
    found.append(_permissions(directory, ground))
    if directory.is_dir():
        found += _data_directory(directory)
    return found


def _ground(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    while not directory.is_dir():
        directory = directory.parent
    return directory.resolve()


# --- the machine -------------------------------------------------------------------------------------


def _python() -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info[:2] < PYTHON_NEEDED:
        return Finding("python", "problem", found, "use Python 3.11 or newer")
    return Finding("python", "ok", found)


def _sqlite() -> Finding:
    try:
        import apsw
    except ImportError:
        return Finding("sqlite", "problem", "the package apsw is not installed", "install it with pip install apsw")
    found = apsw.sqlite_lib_version()
    needed = ".".join(map(str, SQLITE_NEEDED))
    if tuple(map(int, found.split("."))) < SQLITE_NEEDED:
        advice = f"its write-ahead log can be damaged by a reset; install apsw with SQLite {needed} or newer"
        return Finding("sqlite", "problem", f"SQLite {found}", advice)
    return Finding("sqlite", "ok", f"SQLite {found}, apsw {apsw.apsw_version()}")


# --- the place ---------------------------------------------------------------------------------------

LOCAL = frozenset("ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs jfs reiserfs apfs hfs ufs".split())

UNFIT: dict[str, tuple[Status, str]] = {
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs", "vboxsf", "drvfs"),
        ("problem", "a network file system: locks and flushes cannot be relied on; use a local disk"),
    ),
    **dict.fromkeys(
        ("ceph", "lustre", "gpfs", "ocfs2", "gfs2", "virtiofs"),
        ("warning", "a shared file system: make sure that locks and flushes reach all of it, or use a local disk"),
    ),
    "overlay": ("warning", "the layer of a container: it is removed with the container; use a volume"),
    "tmpfs": ("warning", "memory: nothing survives a reboot; use a disk"),
    "ramfs": ("warning", "memory: nothing survives a reboot; use a disk"),
    "vfat": ("problem", "it has no permissions and loses files in a crash; use ext4 or xfs"),
    "exfat": ("problem", "it has no permissions and loses files in a crash; use ext4 or xfs"),
}


def _file_system(ground: Path, mounts: str) -> Finding:
    try:
        mount = _mount_of(ground, Path(mounts).read_text())
    except OSError as error:
        return Finding("file system", "warning", f"unknown: {error}", "make sure that it is a local disk")
    if mount is None:
        return Finding("file system", "warning", "unknown", "make sure that it is a local disk")
    point, kind, options = mount
    found = f"{kind} at {point}"
    if "ro" in options:
        return Finding("file system", "problem", f"{found}, read-only", "mount it for writing, or use another place")
    if options & {"nobarrier", "barrier=0"}:
        advice = "flushes do not reach the disk: a power cut can damage it; mount it with barriers"
        return Finding("file system", "problem", f"{found}, without barriers", advice)
    if kind in LOCAL:
        return Finding("file system", "ok", found)
    if kind.startswith("fuse"):
        advice = "a program serves it, perhaps over a network: locks and flushes may not work; use a local disk"
        return Finding("file system", "warning", found, advice)
    status, advice = UNFIT.get(kind, ("warning", "an unknown kind: make sure that locks and flushes work"))
    return Finding("file system", status, found, advice)


def _mount_of(path: Path, mountinfo: str) -> tuple[str, str, set[str]] | None:
    """The mount point, kind and options of the file system that holds a path. Later mounts cover earlier ones."""
    best: tuple[str, str, set[str]] | None = None
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields, source = left.split(), right.split()
        if not separator or len(fields) < 6 or not source:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if path.is_relative_to(point) and (best is None or len(point) >= len(best[0])):
            best = (point, source[0], {*fields[5].split(","), *(source[2].split(",") if len(source) > 2 else ())})
    return best


def space(ground: Path) -> Finding:
    """Whether there is room for a longer log."""
    free = Disk().free_bytes(ground)
    found = f"{_bytes(free)} free"
    if free < SPACE_NEEDED_BYTES:
        return Finding("space", "problem", found, f"make room: at least {_bytes(SPACE_LOW_BYTES)} for a small queue")
    if free < SPACE_LOW_BYTES:
        return Finding("space", "warning", found, "make room: pushes are refused when the disk is full")
    return Finding("space", "ok", found)


def _inodes(ground: Path) -> Finding:
    found = os.statvfs(ground)
    if not found.f_files:
        return Finding("inodes", "ok", "not limited")
    if found.f_favail < INODES_LOW:
        return Finding("inodes", "warning", f"{found.f_favail} free", "remove files: the log needs new ones")
    return Finding("inodes", "ok", f"{found.f_favail} free")


def _flushes(ground: Path) -> Finding:
    """How long a flush takes there, measured in a file without a name."""
    try:
        with _nameless(ground) as descriptor:
            times = sorted(_flush_ms(descriptor, number) for number in range(FLUSHES))
    except OSError as error:
        return Finding("flushes", "problem", f"cannot write here: {error.strerror}", "see permissions and space")
    found = f"{statistics.median(times):.2f} ms median, {times[-1]:.2f} ms at worst, of {FLUSHES}"
    if statistics.median(times) > FLUSH_SLOW_MS:
        return Finding("flushes", "warning", found, "replies at the level fsync wait that long; use a faster disk")
    return Finding("flushes", "ok", found)


@contextmanager
def _nameless(ground: Path) -> Iterator[int]:
    """An invisible file on that file system, which is gone when it is closed."""
    try:
        descriptor = os.open(ground, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (OSError, AttributeError):  # not every system can; then it has a name for a moment, outside a data directory
        place = ground.parent if (ground / "manifest.json").exists() else ground
        if place.stat().st_dev != ground.stat().st_dev:
            raise
        descriptor, name = tempfile.mkstemp(prefix=".stoker-doctor-", dir=place)
        os.unlink(name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flush_ms(descriptor: int, number: int) -> float:
    os.pwrite(descriptor, b"x" * 4096, number * 4096)
    start = time.perf_counter()
    os.fdatasync(descriptor)
    return (time.perf_counter() - start) * 1_000


def _permissions(directory: Path, ground: Path) -> Finding:
    if directory.exists() and not directory.is_dir():
        return Finding("permissions", "problem", f"{directory} is a file", "name a directory")
    if not os.access(ground, os.R_OK | os.W_OK | os.X_OK):
        advice = f"let user {os.geteuid()} read and write it, or use another place"
        return Finding("permissions", "problem", f"{ground} is not writable", advice)
    if not directory.exists():
        return Finding("permissions", "ok", f"{directory} does not exist yet and can be created")
    facts = directory.stat()
    mode = f"{facts.st_mode & 0o777:o}"
    if facts.st_uid != os.geteuid():
        found = f"mode {mode}, owned by user {facts.st_uid}, but this is user {os.geteuid()}"
        return Finding("permissions", "warning", found, "run as its owner: files of two users would conflict")
    if facts.st_mode & 0o077:
        return Finding("permissions", "warning", f"mode {mode}: others can reach the payloads", "chmod 700")
    return Finding("permissions", "ok", f"mode {mode}")


# --- a data directory --------------------------------------------------------------------------------


def _data_directory(directory: Path) -> list[Finding]:
    try:
        layout = layout_of(directory)
    except (StokerError, OSError) as error:
        return [Finding("processes", "problem", str(error), RESTORE)]
    if layout is None:
        return _journal_directory(directory)
    found = [Finding("processes", "ok", f"dealt to {layout.processes} processes"), _lock(directory)]
    for part in parts_of(directory, layout):
        found += _named_for(part, _journal_directory(part))
    return found


def _named_for(part: Path, findings: Iterable[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield msgspec.structs.replace(finding, name=f"{part.name} {finding.name}")


def _journal_directory(directory: Path) -> list[Finding]:
    if not (directory / "manifest.json").exists():
        names = sorted(file.name for file in directory.iterdir())
        if any(LOG_NAME.fullmatch(name) for name in names):
            advice = "restore it, or the whole directory, from a backup"
            return [Finding("manifest", "problem", "manifest.json is missing, but there are log files", advice)]
        if names:
            found = f"not a data directory, and not empty: {_some(names)}"
            return [Finding("manifest", "warning", found, "use an empty directory")]
        return [Finding("manifest", "ok", "an empty directory: it becomes a data directory when it is opened")]
    try:
        manifest, files = _looked_at(directory)
        check_names(manifest)
    except (StokerError, OSError) as error:
        return [
            Finding("manifest", "problem", str(error), "restore the directory from a backup, or use the later release")
        ]
    state = "closed in good order" if manifest.clean else "open, or not closed in good order"
    found = f"format {manifest.format}, {manifest.shards} shards, opened {manifest.epoch} times, {state}"
    return [
        Finding("manifest", "ok", f"{found}; id {manifest.id}"),
        _lock(directory),
        _missing(manifest, set(files)),
        _leftovers(manifest, set(files), in_use=_in_use(directory)),
        _sizes(manifest, files),
    ]


def _looked_at(directory: Path) -> tuple[Manifest, dict[str, Path]]:
    """The manifest and the files beside it, at one moment: the owner may replace one while we read the other."""
    before = read_manifest(directory / "manifest.json")
    looks = 0
    while True:
        files = {file.name: file for file in directory.iterdir()}
        manifest = read_manifest(directory / "manifest.json")
        looks += 1
        if manifest == before or looks == LOOKS:
            return manifest, files
        before = manifest


def check_names(manifest: Manifest) -> None:
    """Check that no name in a manifest leads out of its directory, and that no file is named twice."""
    for name in [log.name for log in manifest.logs]:
        if not LOG_NAME.fullmatch(name):
            raise InvalidRequest(f"manifest.json names {name!r}, which is not the name of a log file")
    if manifest.checkpoint is not None and not CHECKPOINT_NAME.fullmatch(manifest.checkpoint):
        raise InvalidRequest(f"manifest.json names {manifest.checkpoint!r}, which is not the name of a checkpoint")
    if len({log.name for log in manifest.logs}) < len(manifest.logs):
        raise InvalidRequest("manifest.json names a log file twice")
    if len(manifest.lowest) != manifest.shards or len(manifest.position) not in (0, manifest.shards):
        raise InvalidRequest(f"manifest.json has {manifest.shards} shards, but positions for another number of them")


def _lock(directory: Path) -> Finding:
    try:
        with locked_for_reading(directory):
            return Finding("lock", "ok", "no process has it open")
    except InUse as error:
        return Finding("lock", "ok", str(error))
    except OSError as error:
        return Finding("lock", "problem", f"the lock cannot be read: {error.strerror}", "see permissions")


def _in_use(directory: Path) -> bool:
    try:
        with locked_for_reading(directory):
            return False
    except (InUse, OSError):
        return True


@contextmanager
def locked_for_reading(directory: Path) -> Iterator[None]:
    """Lock out writers while reading; other readers may come. The lock file is neither created nor changed."""
    try:
        lock = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # the process that opens it creates one
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"
            raise InUse(f"{directory} is open in another process (pid {owner})") from None
        yield
    finally:
        os.close(lock)


def _files_of(manifest: Manifest) -> list[str]:
    return [log.name for log in manifest.logs] + ([manifest.checkpoint] if manifest.checkpoint else [])


def _missing(manifest: Manifest, present: set[str]) -> Finding:
    named = _files_of(manifest)
    if missing := [name for name in named if name not in present]:
        return Finding("files", "problem", f"missing: {_some(missing)}", "restore the directory from a backup")
    return Finding("files", "ok", f"all {len(named)} that the manifest names are there")


def _leftovers(manifest: Manifest, present: set[str], *, in_use: bool) -> Finding:
    """Files that the manifest does not name. The process that has the directory open may be writing one of ours now."""
    own = {*_files_of(manifest), *KEPT}
    # a process reads it, or it is removed at an open
    present = {name for name in present if not SNAPSHOT.fullmatch(name)}
    left = sorted(name for name in present if name not in own and _without_side(name) not in own)
    if in_use:
        left = [name for name in left if not is_ours(name)]
    if left:
        advice = "files that a process left behind are removed at the next open; other files do not belong here"
        return Finding("left-overs", "warning", f"{len(left)}: {_some(left)}", advice)
    return Finding("left-overs", "ok", "none")


def _without_side(name: str) -> str:
    for side in SIDES:
        name = name.removesuffix(side)
    return name


def _sizes(manifest: Manifest, files: dict[str, Path]) -> Finding:
    states = {log.name: f"{log.state} log" for log in manifest.logs}
    sizes: Counter[str] = Counter()
    for name, file in files.items():
        plain = _without_side(name)
        kind = states.get(plain) or {"keys.db": "keys", "reserve": "reserve"}.get(plain, "other")
        if plain == manifest.checkpoint:
            kind = "checkpoint"
        try:
            sizes[kind] += file.lstat().st_size
        except FileNotFoundError:
            continue  # the process that has it open has removed it since
    parts = ", ".join(f"{kind} {_bytes(size)}" for kind, size in sizes.most_common())
    return Finding("size", "ok", f"{_bytes(sizes.total())}: {parts}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _bytes(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


# --- every row ---------------------------------------------------------------------------------------

RESTORE = "restore the directory from a backup"


def verify(path: str, progress: Progress | None = None) -> list[Finding]:
    """Read all of a data directory that no process has open. Raises `InUse` if one has."""
    directory = Path(path).absolute()
    if not (directory / "manifest.json").exists() and not (directory / FACT).exists():
        raise InvalidRequest(f"{directory} is not a data directory: it has no manifest.json")
    with locked_for_reading(directory):
        layout = layout_of(directory)
        parts = parts_of(directory, layout)
        read = _Read(progress, [file for part in parts for file in part.glob("log-*.db")])
        if layout is None:
            return _verify_part(directory, read)
        return [one for part in parts for one in _named_for(part, _verify_held(part, read))]


class _Read:
    """Reports how much of the log has been read."""

    def __init__(self, progress: Progress | None, files: list[Path]) -> None:
        self._progress = progress
        self._sizes = {file: file.stat().st_size for file in files}
        self._done = 0

    def file(self, file: Path) -> None:
        self._done += self._sizes.get(file, 0)
        if self._progress is not None:
            self._progress(self._done, sum(self._sizes.values()))


def _verify_held(part: Path, read: _Read) -> list[Finding]:
    try:
        with locked_for_reading(part):
            return _verify_part(part, read)
    except (InvalidRequest, OSError) as error:
        return [Finding("manifest", "problem", str(error), RESTORE)]


def _verify_part(directory: Path, read: _Read) -> list[Finding]:
    manifest = read_manifest(directory / "manifest.json")
    check_names(manifest)
    found = []
    for finding in verify_files(directory, manifest, decode=True):
        read.file(directory / finding.name)
        found.append(finding)
    return found


def verify_files(directory: Path, manifest: Manifest, decode: bool = False) -> Iterator[Finding]:
    """One finding for each file, one for the sequence numbers, one for the mark."""
    walk = _Walk(manifest)
    with tempfile.TemporaryDirectory(prefix="stoker-verify-") as aside:
        for log in manifest.logs:
            yield _finding(log.name, lambda log=log: walk.log(directory, log, Path(aside), decode))  # type: ignore[misc]
        yield Finding("sequence", "problem", "; ".join(walk.gaps[:5]), RESTORE) if walk.gaps else walk.summary()
        if (directory / "mark").exists():
            yield _finding("mark", lambda: walk.mark(directory, Path(aside)))
    if manifest.checkpoint:
        yield _finding(manifest.checkpoint, lambda: _checkpoint(directory, manifest))
    if (directory / "keys.db").exists():
        yield _finding("keys.db", lambda: _keys(directory))


def _finding(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", look())
    except (StokerError, OSError) as error:
        return Finding(name, "problem", str(error), RESTORE)


class _Walk:
    """Goes through all rows in order and finds what is missing."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        positions = manifest.position or [0] * manifest.shards
        self.needed = [min(pair) for pair in zip(manifest.lowest, (at + 1 for at in positions), strict=True)]
        """From here on every record must be there. Earlier ones are there only if something live refers to them."""
        self.reached = [needed - 1 for needed in self.needed]
        self.last = [0] * manifest.shards
        self.gaps: list[str] = []
        self.rows = self.records = 0

    def log(self, directory: Path, log: LogEntry, aside: Path, decode: bool) -> str:
        import apsw

        from stoker.journal.logfile import LogFile

        rows, records = self.rows, self.records
        path = directory / log.name
        unfinished = log.state == "open" and _has_wal(path)
        try:
            file = LogFile.reopen(_copied(path, aside)) if unfinished else LogFile.sealed(path)
        except apsw.Error as error:
            raise InvalidRequest(f"{log.name} cannot be opened: {error}") from error
        try:
            for shard in self.manifest.own:
                for row in file.rows(shard, 0):
                    if decode:
                        row.records()
                    self.row(log.name, shard, row.first, len(row))
        finally:
            file.close()
        for shard, last in enumerate(log.last):
            if last >= self.needed[shard] and self.reached[shard] < last:
                self.gaps.append(f"{log.name} ends at {self.reached[shard]} of shard {shard}, not at {last}")
            self.reached[shard] = max(self.reached[shard], last)
        return f"{self.rows - rows} rows, {self.records - records} records"

    def row(self, name: str, shard: int, first: int, count: int) -> None:
        self.rows += 1
        self.records += count
        if first <= self.last[shard]:
            self.gaps.append(f"{name} has {first} of shard {shard} a second time")
        self.last[shard] = first + count - 1
        if first > self.reached[shard] + 1:
            self.gaps.append(f"{name} lacks {self.reached[shard] + 1} to {first - 1} of shard {shard}")
        self.reached[shard] = max(self.reached[shard], self.last[shard])

    def summary(self) -> Finding:
        return Finding("sequence", "ok", f"{self.rows} rows, {self.records} records, without gaps")

    def mark(self, directory: Path, aside: Path) -> str:
        """Compare the log with the mark. The mark is read from a copy, because opening a mark writes to it."""
        copy = aside / "mark"
        shutil.copyfile(directory / "mark", copy)
        mark = Mark(copy, self.manifest.shards, Disk())
        mark.close()
        for shard, flushed in enumerate(mark.reached):
            if self.reached[shard] < flushed:
                raise InvalidRequest(
                    f"the log ends at {self.reached[shard]} of shard {shard}, but {flushed} had been flushed to disk"
                )
        return "everything that was flushed is there"


def _has_wal(path: Path) -> bool:
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _copied(path: Path, aside: Path) -> Path:
    """A copy of the file with its write-ahead log: SQLite writes to both in order to read them."""
    copy = aside / path.name
    shutil.copyfile(path, copy)
    shutil.copyfile(path.with_name(path.name + "-wal"), aside / f"{path.name}-wal")
    return copy


def _checkpoint(directory: Path, manifest: Manifest) -> str:
    assert manifest.checkpoint is not None
    size, shards = 0, set()
    for shard, chunks in read_checkpoint(directory / manifest.checkpoint):
        shards.add(shard)
        size += sum(len(chunk) for chunk in chunks)
    if not shards <= set(manifest.own):
        raise InvalidRequest(f"{manifest.checkpoint} has shards that the directory does not have")
    return f"{len(shards)} shards, {_bytes(size)}"


def _keys(directory: Path) -> str:
    import apsw

    path = directory / "keys.db"
    if not path.stat().st_size and not _has_wal(path):
        return "empty"  # created a moment before a crash
    with tempfile.TemporaryDirectory(prefix="stoker-verify-") as aside:
        try:
            flags, query = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, "?immutable=1"
            if _has_wal(path):
                path, flags, query = _copied(path, Path(aside)), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI, ""
            connection = apsw.Connection(f"file:{quote(str(path))}{query}", flags=flags)
            try:
                found = connection.execute("PRAGMA quick_check").fetchall()
                connection.execute("SELECT 1 FROM keys LIMIT 1").fetchall()
            finally:
                connection.close()
        except apsw.Error as error:
            raise InvalidRequest(f"keys.db cannot be read: {error}") from error
    if found != [("ok",)]:
        raise InvalidRequest(f"keys.db is damaged: {found[0][0]}")
    return "readable"
