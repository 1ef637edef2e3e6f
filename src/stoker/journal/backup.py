"""Backups: a snapshot of a data directory, compressed and with checksums, in a directory or in S3; and restoring them.

    stoker-20260115T031500.000Z-1f0c2b3a/     one folder for each backup: when, and the beginning of the directory's id
        log-00000007.db.gz ...                every file of the snapshot
        manifest.json.gz
        backup.json                           what belongs to it, with checksums; written last

A folder without its `backup.json` is not a backup, so an interrupted backup never looks complete. `restore` trusts
nothing that it finds: it reads everything into a temporary directory beside the one asked for, checks every byte, and
only then renames it.
"""

import hashlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stoker.journal.backup_targets import BackupTarget, TargetFailed
from stoker.journal.directory import Manifest, read_manifest
from stoker.journal.disk import Disk
from stoker.journal.doctor import CHECKPOINT_NAME, LOG_NAME, Progress, check_names, verify_files
from stoker.model.errors import InvalidRequest, StokerError

FORMAT = 1
PRODUCT = "stoker"
INDEX = "backup.json"
INDEX_BYTES_MAX = 64 << 20
"""A few hundred bytes for each file: room for a hundred thousand of them."""

LEVEL = 2
"""The level of compression. The log is very repetitive, so a low level finds most of it at high speed."""
PIECE_BYTES = 1 << 20
SPARE_BYTES = 64 << 20
"""Room that a restore leaves on the disk."""

NAME = re.compile(r"stoker-[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}")
SHA256 = re.compile(r"[0-9a-f]{64}")

logger = logging.getLogger("stoker.backup")


class BadBackup(StokerError):
    """It is not, or no longer, a valid backup of a data directory."""

    code = "bad_backup"


class BackupFiles(Protocol):
    """Files of a data directory that together are its state at one moment."""

    @property
    def files(self) -> list[Path]:
        """They do not change, and stay until the snapshot is left."""
        ...

    @property
    def manifest(self) -> bytes:
        """The manifest.json that belongs to them."""
        ...


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a backup, and how it is stored."""

    name: str
    object: str
    size: int
    sha256: str
    stored_size: int
    stored_sha256: str


class BackupInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a backup.json. The file ends with a checksum over everything before it."""

    format: int = FORMAT
    product: str = PRODUCT
    name: str
    directory: str
    """The id of the data directory."""
    created_at: int
    shards: int
    files: list[File]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def stored_size(self) -> int:
        return sum(file.stored_size for file in self.files)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is, or was to become, a backup."""

    name: str
    info: BackupInfo | None = None
    problem: str = ""
    """Why it cannot be restored; empty for a complete one."""
    incomplete: bool = False
    """Whether it was never finished, or is being written at this moment."""


# --- taking one --------------------------------------------------------------------------------------


def backup(
    snapshot: BackupFiles,
    target: BackupTarget,
    name: str | None = None,
    *,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> BackupInfo:
    """Write a snapshot to a target. If that fails, what was written is removed, if the target allows it."""
    manifest = _decoded(snapshot.manifest, Manifest, "manifest.json of the snapshot")
    paths = {path.name: path for path in snapshot.files}
    if len(paths) != len(snapshot.files) or paths.keys() != _expected(manifest, "keys.db" in paths):
        raise BadBackup(f"the snapshot has the files {sorted(paths)}, but its manifest names others")
    now = _now_ms() if now_ms is None else now_ms
    taken = target.folders()
    if name is None:
        name, now = _new_name(manifest.id, now, taken)
    elif not NAME.fullmatch(name) or name in taken:
        raise InvalidRequest(f"{name!r} is taken, or not of the form stoker-YYYYMMDDTHHMMSS.mmmZ-1a2b3c4d")
    try:
        files = _put_files(target, name, paths, snapshot.manifest, progress)
        info = BackupInfo(name=name, directory=manifest.id, created_at=now, shards=manifest.shards, files=files)
        _check_stored(target, info)
        target.put(name, INDEX, [encode_index(info)])
    except BaseException:
        try:
            target.delete(name, INDEX)
        except StokerError:
            logger.warning("%s/%s was not finished and could not be removed", target.url, name)
        raise
    return info


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_name(directory: str, now: int, taken: list[str]) -> tuple[str, int]:
    """A name later than every other backup of this directory, so the newest is last by name even if clocks change."""
    ending = _short_id(directory)
    earlier = [_time_of(name) for name in taken if NAME.fullmatch(name) and name.endswith(ending)]
    now = max(now, max(earlier, default=0) + 1)
    moment = datetime.fromtimestamp(now // 1000, UTC)
    return f"stoker-{moment:%Y%m%dT%H%M%S}.{now % 1000:03}Z-{ending}", now


def _time_of(name: str) -> int:
    """When a backup was taken, in milliseconds, from its name."""
    try:
        moment = datetime.strptime(name[7:22], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0  # digits that are not a time, so not a backup of ours
    return int(moment.timestamp()) * 1000 + int(name[23:26])


def _short_id(directory: str) -> str:
    return (
        directory[:8]
        if re.fullmatch("[0-9a-f]{8}", directory[:8])
        else hashlib.sha256(directory.encode()).hexdigest()[:8]
    )


def _expected(manifest: Manifest, keys: bool) -> set[str]:
    """The files that a snapshot with this manifest consists of."""
    check_names(manifest)
    if unfinished := [log.name for log in manifest.logs if log.state == "open"]:
        raise BadBackup(f"{unfinished} were still being written: only finished files can be restored")
    names = {log.name for log in manifest.logs}
    names |= {manifest.checkpoint} if manifest.checkpoint else set()
    return names | ({"keys.db"} if keys else set())


def _put_files(
    target: BackupTarget, name: str, paths: dict[str, Path], manifest: bytes, progress: Progress | None
) -> list[File]:
    total = sum(path.stat().st_size for path in paths.values()) + len(manifest)
    count = _Count(progress, total)
    files = [_put(target, name, file_name, _read(path), count) for file_name, path in sorted(paths.items())]
    files.append(_put(target, name, "manifest.json", iter((manifest,)), count))
    return files


def _put(target: BackupTarget, folder: str, name: str, pieces: Iterator[bytes], count: "_Count") -> File:
    packed = _Packed(pieces, count)
    target.put(folder, f"{name}.gz", packed)
    return File(
        name=name,
        object=f"{name}.gz",
        size=packed.size,
        sha256=packed.plain.hexdigest(),
        stored_size=packed.stored_size,
        stored_sha256=packed.stored.hexdigest(),
    )


class _Count:
    """Counts the bytes that are done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def add(self, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(self.done, self.total)


class _Packed:
    """Pieces of a file, compressed while they are read. Afterwards it knows the sizes and checksums of both forms."""

    def __init__(self, pieces: Iterator[bytes], count: _Count) -> None:
        self._pieces, self._count = pieces, count
        self.plain, self.stored = hashlib.sha256(), hashlib.sha256()
        self.size = self.stored_size = 0

    def __iter__(self) -> Iterator[bytes]:
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)  # 16: as a gzip file
        for piece in self._pieces:
            self.plain.update(piece)
            self.size += len(piece)
            yield from self._out(packer.compress(piece))
            self._count.add(len(piece))
        yield from self._out(packer.flush())

    def _out(self, packed: bytes) -> Iterator[bytes]:
        if packed:
            self.stored.update(packed)
            self.stored_size += len(packed)
            yield packed


def _read(path: Path) -> Iterator[bytes]:
    """The whole content of a file that must not change while it is read."""
    try:
        with path.open("rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size
            while piece := file.read(PIECE_BYTES):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
    except OSError as error:  # raised here, because the consumer of the pieces would blame the target
        raise BadBackup(f"{path} cannot be read: {error.strerror}") from error
    if left:
        raise BadBackup(f"{path} changed while it was being read, so it is not part of a snapshot: try again")


def _check_stored(target: BackupTarget, info: BackupInfo) -> None:
    """Check that the target has every byte that it was given, before the backup counts as one."""
    sizes = target.sizes(info.name)
    for file in info.files:
        if sizes.get(file.object) != file.stored_size:
            raise TargetFailed(
                f"{target.url}/{info.name}/{file.object} has {sizes.get(file.object, 0)} bytes, but was given"
                f" {file.stored_size}: try again, or use another target"
            )


# --- backup.json -------------------------------------------------------------------------------------


class _Kind(msgspec.Struct):
    """The fields that every format has, known or not."""

    format: int
    product: str


_END = re.compile(rb',\n "checksum": "([0-9a-f]{64})"\n\}\n\Z')


def encode_index(info: BackupInfo) -> bytes:
    return sealed(msgspec.json.format(msgspec.json.encode(info), indent=1))


def sealed(body: bytes) -> bytes:
    """The text of an object, with its own checksum as the last field."""
    assert body.endswith(b"\n}")
    return body[:-2] + b',\n "checksum": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def decode_index(data: bytes, where: str) -> BackupInfo:
    """The content of a backup.json, if it is complete and ours."""
    kind = _decoded(data, _Kind, where)
    if kind.product != PRODUCT:
        raise BadBackup(f"{where} is a backup of {kind.product!r}, not of {PRODUCT}: restore it with that product")
    if kind.format > FORMAT:
        raise BadBackup(
            f"{where} has format {kind.format}, but this release reads up to {FORMAT}: restore it with the later"
            " release that made it"
        )
    end = _END.search(data)
    if end is None or hashlib.sha256(data[: end.start()] + b"\n}").hexdigest().encode() != end[1]:
        raise BadBackup(f"{where} is damaged or was edited: its checksum is wrong; restore another backup")
    return _decoded(data[: end.start()] + b"\n}", BackupInfo, where)  # type: ignore[no-any-return]


def _decoded(data: bytes, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBackup(f"{where} cannot be read ({error}): restore another backup") from error


def _check_index(info: BackupInfo, name: str, where: str) -> None:
    """Check that no name in it leads out of the backup, and that no file is there twice."""
    if info.name != name:
        raise BadBackup(f"{where} belongs to the backup {info.name!r}: give the folder that name again")
    for file in info.files:
        if not _is_file_name(file.name) or file.object != f"{file.name}.gz":
            raise BadBackup(f"{where} names the file {file.name!r} as {file.object!r}, which is not valid in a backup")
        if not (SHA256.fullmatch(file.sha256) and SHA256.fullmatch(file.stored_sha256)):
            raise BadBackup(f"{where} has no checksum for {file.name}")
        if file.size < 0 or file.stored_size < 0:
            raise BadBackup(f"{where} has a negative size for {file.name}")
    if len({file.name for file in info.files}) < len(info.files):
        raise BadBackup(f"{where} names a file twice")
    if "manifest.json" not in {file.name for file in info.files}:
        raise BadBackup(f"{where} names no manifest.json")


def _is_file_name(name: str) -> bool:
    if name in ("manifest.json", "keys.db"):
        return True
    return bool(LOG_NAME.fullmatch(name) or CHECKPOINT_NAME.fullmatch(name))


def read_index(target: BackupTarget, name: str) -> BackupInfo | None:
    """What a backup consists of; None if it was never finished."""
    where = f"{target.url}/{name}/{INDEX}"
    data = bytearray()
    try:
        for piece in target.get(name, INDEX):
            data += piece
            if len(data) > INDEX_BYTES_MAX:
                raise BadBackup(f"{where} is larger than any valid one: restore another backup")
    except FileNotFoundError:
        return None
    info = decode_index(bytes(data), where)
    _check_index(info, name, where)
    return info


# --- listing and pruning -----------------------------------------------------------------------------


def list_backups(target: BackupTarget) -> list[Listed]:
    """Every folder with the name of a backup, oldest first."""
    return [_listed(target, name) for name in sorted(target.folders(), key=_order) if NAME.fullmatch(name)]


def _order(name: str) -> tuple[int, str]:
    return _time_of(name) if NAME.fullmatch(name) else 0, name


def _listed(target: BackupTarget, name: str) -> Listed:
    try:
        info = read_index(target, name)
    except BadBackup as error:
        return Listed(name=name, problem=str(error))
    if info is None:
        return Listed(name=name, problem="it was not finished, or is being written", incomplete=True)
    return Listed(name=name, info=info)


def prune(target: BackupTarget, keep: int, directory: str) -> list[str]:
    """Keep the newest `keep` complete backups of a data directory (its id), and return the names of the removed ones.

    An unfinished backup is removed once it is older than all that are kept. A damaged one is left for a person to look
    at.
    """
    if keep < 1:
        raise InvalidRequest(f"keep={keep}: expected at least 1")
    own = [one for one in list_backups(target) if one.name.endswith(_short_id(directory))]
    whole = [one.name for one in own if one.info is not None and one.info.directory == directory]
    if not whole:
        return []
    oldest_kept = whole[-keep:][0]
    names = whole[:-keep]
    names += [one.name for one in own if one.incomplete and _order(one.name) < _order(oldest_kept)]
    for name in names:
        target.delete(name, INDEX)
    return names


# --- restoring ---------------------------------------------------------------------------------------


def restore(
    target: BackupTarget, name: str | None, into: Path, *, progress: Progress | None = None, disk: Disk | None = None
) -> BackupInfo:
    """Create a data directory from a backup, by default the newest. `into` is untouched until all was checked."""
    disk = disk or Disk()
    into = into.absolute()
    _check_place(into)
    info = _chosen(target, name)
    into.parent.mkdir(parents=True, exist_ok=True)
    free = disk.free_bytes(into.parent)
    if info.size + SPARE_BYTES > free:
        raise InvalidRequest(f"{info.name} needs {info.size} bytes, but {into.parent} has {free} free: make room")
    for left in into.parent.glob(f".{into.name}.restore-*"):
        shutil.rmtree(left, ignore_errors=True)
    beside = into.parent / f".{into.name}.restore-{secrets.token_hex(4)}"
    beside.mkdir(mode=0o700)
    try:
        count = _Count(progress, info.size)
        for file in info.files:
            _fetch(target, info.name, file, beside / file.name, count)
        _check_content(beside, info)
        disk.sync_directory(beside)
        _check_place(into)
        os.rename(beside, into)
        disk.sync_directory(into.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return info


def _check_place(into: Path) -> None:
    if into.is_symlink():
        raise InvalidRequest(f"{into} is a symbolic link: name the directory itself")
    if into.exists() and not into.is_dir():
        raise InvalidRequest(f"{into} is a file: name a directory that does not exist yet")
    if into.exists() and any(into.iterdir()):
        raise InvalidRequest(f"{into} is not empty: move it away first, or restore into another directory")
    if into.is_mount():
        raise InvalidRequest(f"{into} is a mount point and cannot be replaced: restore into a directory below it")


def _chosen(target: BackupTarget, name: str | None) -> BackupInfo:
    if name is None:
        name = _newest(target)
    if not NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is not the name of a backup: expected stoker-YYYYMMDDTHHMMSS.mmmZ-1a2b3c4d")
    info = read_index(target, name)
    if info is None:
        if name in target.folders():
            raise BadBackup(f"{target.url}/{name} was never finished: it has no {INDEX}; restore another backup")
        raise InvalidRequest(f"there is no backup {name} in {target.url}")
    return info


def _newest(target: BackupTarget) -> str:
    """The newest finished backup. If it is damaged, the caller has to decide whether to use an older one."""
    found = [one for one in list_backups(target) if not one.incomplete]
    if not found:
        raise InvalidRequest(f"there is no finished backup in {target.url}")
    if len({one.name[-8:] for one in found}) > 1:
        raise InvalidRequest(f"{target.url} has backups of several data directories: name the one to restore")
    if found[-1].info is None:
        raise BadBackup(f"the newest backup cannot be restored: {found[-1].problem}; name an older one")
    return found[-1].name


def _fetch(target: BackupTarget, folder: str, file: File, path: Path, count: _Count) -> None:
    """Copy one file to the disk. Reading stops as soon as there is more than there should be."""
    where = f"{target.url}/{folder}/{file.object}"
    unpacked = _Unpacked(file, where)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as out:
        try:
            for piece in target.get(folder, file.object):
                for plain in unpacked.take(piece):
                    out.write(plain)
                    count.add(len(plain))
        except FileNotFoundError:
            raise BadBackup(f"{where} is missing: the backup is incomplete; restore another one") from None
        unpacked.end()
        out.flush()
        os.fsync(out.fileno())


class _Unpacked:
    """Takes the stored bytes of a file, returns the plain ones, and checks both."""

    def __init__(self, file: File, where: str) -> None:
        self._file, self._where = file, where
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._plain, self._stored = hashlib.sha256(), hashlib.sha256()
        self._size = self._stored_size = 0

    def take(self, piece: bytes) -> Iterator[bytes]:
        self._stored.update(piece)
        self._stored_size += len(piece)
        if self._stored_size > self._file.stored_size:
            raise self._bad(f"it has more than the {self._file.stored_size} bytes that were written")
        while piece and not self._unpacker.eof:
            try:
                plain = self._unpacker.decompress(piece, PIECE_BYTES)
            except zlib.error as error:
                raise self._bad(str(error)) from error
            piece = self._unpacker.unconsumed_tail
            self._plain.update(plain)
            self._size += len(plain)
            if self._size > self._file.size:
                raise self._bad(f"it holds more than the {self._file.size} bytes that were packed")
            yield plain

    def end(self) -> None:
        file = self._file
        if self._stored_size != file.stored_size:
            raise self._bad(f"it has {self._stored_size} of {file.stored_size} bytes")
        if self._stored.hexdigest() != file.stored_sha256:
            raise self._bad("its checksum is wrong")
        if not self._unpacker.eof or self._size != file.size or self._plain.hexdigest() != file.sha256:
            raise self._bad("its content is not what was packed")

    def _bad(self, why: str) -> BadBackup:
        return BadBackup(f"{self._where} is damaged: {why}; restore another backup")


def _check_content(directory: Path, info: BackupInfo) -> None:
    """Check that the files are a data directory; they are what the backup says."""
    try:
        manifest = read_manifest(directory / "manifest.json")
        names = {file.name for file in info.files} - {"manifest.json"}
        if names != _expected(manifest, "keys.db" in names):
            raise BadBackup(f"its manifest names other files than these: {sorted(names)}")
        if (manifest.id, manifest.shards) != (info.directory, info.shards):
            raise BadBackup("its manifest belongs to another data directory")
    except StokerError as error:
        raise BadBackup(f"the backup {info.name} does not contain a data directory: {error}") from error
    for finding in verify_files(directory, manifest):
        if finding.status == "problem":
            raise BadBackup(
                f"the backup {info.name} is complete, but was taken of damaged files: {finding.name}: {finding.found};"
                " restore an older backup"
            )


# --- scheduled backups -------------------------------------------------------------------------------


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Backups at an interval."""

    url: str
    """The target: a path, `file:///path`, or `s3://bucket/prefix?endpoint=https://...&region=...` (`stoker[s3]`)."""
    interval_s: int = 86_400
    """The time from one backup to the next, also across restarts."""
    keep: int = 7
    """How many backups are kept. Older ones are removed after each new one."""

    def __post_init__(self) -> None:
        if self.interval_s < 1 or self.keep < 1:
            raise InvalidRequest(f"interval_s={self.interval_s}, keep={self.keep}: both must be at least 1")


RETRY_MS = 60_000
"""The wait after a failure. It doubles with each further one, up to the interval."""


class _Stopped(Exception):
    """The backup is no longer wanted."""


class BackupSchedule:
    """Takes a backup whenever one is due. It has no thread: its owner calls `run_pending` now and then.

    The target is asked for the time of the last backup, so restarts neither delay backups nor add more.
    """

    def __init__(
        self,
        settings: BackupSettings,
        target: BackupTarget,
        directory: str,
        snapshot: Callable[[], AbstractContextManager[BackupFiles]],
    ) -> None:
        self._settings, self._target, self._directory, self._snapshot = settings, target, directory, snapshot
        self.last: BackupInfo | None = None
        """The last one that succeeded, as far as is known."""
        self.error: str = ""
        """Why the last attempt failed; empty if it succeeded."""
        self.failures = 0
        """Attempts that failed since the last success."""
        self.next_at = 0
        self._stopped = False
        self._running = threading.Lock()

    def stop(self) -> None:
        """Take no more backups, and abort the one that is being taken. May be called from any thread."""
        self._stopped = True

    def _go_on(self, done: int, total: int) -> None:
        if self._stopped:
            raise _Stopped("the backup was aborted, because its owner closes")

    def run_pending(self, now_ms: int) -> BackupInfo | None:
        """Take a backup if one is due. Problems with the target or the snapshot are not raised: see `error`."""
        with self._running:
            if now_ms < self.next_at or self._stopped:
                return None
            try:
                return self._run(now_ms)
            except _Stopped:
                return None
            except (StokerError, OSError) as error:
                self._failed(error, now_ms)
                return None

    def _failed(self, error: Exception, now_ms: int) -> None:
        self.error = str(error)
        self.failures += 1
        wait = min(RETRY_MS << min(self.failures - 1, 20), self._settings.interval_s * 1000)
        self.next_at = now_ms + wait
        logger.warning("backup to %s failed, next try in %d s: %s", self._target.url, wait // 1000, error)

    def _run(self, now_ms: int) -> BackupInfo | None:
        interval = self._settings.interval_s * 1000
        if self.last is None:
            self.last = self._find_last()
            if self.last is not None and self.last.created_at <= now_ms < self.last.created_at + interval:
                self.next_at = self.last.created_at + interval
                return None
        with self._snapshot() as snapshot:
            info = backup(snapshot, self._target, now_ms=now_ms, progress=self._go_on)
        self.last, self.error, self.failures = info, "", 0
        self.next_at = now_ms + interval
        try:
            prune(self._target, self._settings.keep, self._directory)
        except StokerError as error:  # the backup exists anyway, and the next one tries again
            self.error = f"old backups could not be removed: {error}"
            logger.warning("%s", self.error)
        return info

    def _find_last(self) -> BackupInfo | None:
        own = [one.info for one in list_backups(self._target) if one.info is not None]
        return next((info for info in reversed(own) if info.directory == self._directory), None)
