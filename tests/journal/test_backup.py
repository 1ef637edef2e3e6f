"""Backups: nothing that looks whole is ever not whole, and nothing is restored that was not checked."""

import hashlib
import os
import shutil
import stat
import sys
import threading
import urllib.parse
import urllib.request
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.client.sync import Client
from stoker.engine.audit import audit
from stoker.journal import backup as backups
from stoker.journal.backup import (
    INDEX,
    BackupInfo,
    BackupSchedule,
    BackupSettings,
    BadBackup,
    File,
    backup,
    decode_index,
    encode_index,
    list_backups,
    prune,
    restore,
    sealed,
)
from stoker.journal.backup_targets import (
    BackupTarget,
    Credentials,
    DirectoryTarget,
    S3Target,
    TargetFailed,
    open_target,
)
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.doctor import verify
from stoker.journal.sqlite import JournalSettings
from stoker.model.errors import InvalidRequest, StokerError
from stoker.records.codec import encode
from tests.journal.small_directory import ID, NOW, Frozen, make_directory, row, write_log

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what others deprecate is not ours to fix
    from moto.server import ThreadedMotoServer

OTHER_ID = "fedcba9876543210fedcba9876543210"


@pytest.fixture(autouse=True)
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nobody waits for the disk here: that things are flushed, and when, is a test of its own."""
    asked: list[int] = []
    monkeypatch.setattr(os, "fsync", asked.append)
    return asked


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Frozen, Path, BackupInfo]:
    """A directory and a backup of it, made once: both wait for the disk."""
    place = tmp_path_factory.mktemp("original")
    snapshot = make_directory(place / "data")
    return snapshot, place / "backups", backup(snapshot, DirectoryTarget(place / "backups"), now_ms=NOW)


@pytest.fixture
def snapshot(original: tuple[Frozen, Path, BackupInfo], tmp_path: Path) -> Frozen:
    """A copy that a test may damage."""
    shutil.copytree(original[0].files[0].parent, tmp_path / "data")
    return Frozen(sorted((tmp_path / "data").iterdir()), original[0].manifest)


@pytest.fixture
def taken(original: tuple[Frozen, Path, BackupInfo], tmp_path: Path) -> tuple[DirectoryTarget, BackupInfo]:
    """A backup that a test may damage."""
    shutil.copytree(original[1], tmp_path / "backups")
    return DirectoryTarget(tmp_path / "backups"), original[2]


Taken = tuple[DirectoryTarget, BackupInfo]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


BUCKETS = count(1)
CREDENTIALS = Credentials("key", "secret")


@pytest.fixture
def s3_url(s3_server: str) -> str:
    """A new bucket."""
    bucket = f"bucket-{next(BUCKETS)}"
    request = urllib.request.Request(f"{s3_server}/{bucket}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    return f"s3://{bucket}/some/where?endpoint={s3_server}&region=us-east-1"


@pytest.fixture(params=["directory", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> BackupTarget:
    if request.param == "directory":
        return open_target(str(tmp_path / "backups"))
    return open_target(request.getfixturevalue("s3_url"), CREDENTIALS)


@pytest.fixture
def folder(tmp_path: Path) -> DirectoryTarget:
    return DirectoryTarget(tmp_path / "backups")


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def expected(snapshot: Frozen) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in snapshot.files} | {"manifest.json": snapshot.manifest}


def whole(target: BackupTarget) -> list[str]:
    return [one.name for one in list_backups(target) if one.info is not None]


def check_refused(
    target: BackupTarget, into: Path, error: type[StokerError] = BadBackup, name: str | None = None
) -> str:
    """Restoring is refused, and neither the place asked for nor anything beside it is there."""
    before = sorted(into.parent.iterdir())
    with pytest.raises(error) as caught:
        restore(target, name, into)
    assert sorted(into.parent.iterdir()) == before
    return str(caught.value)


# --- there and back --------------------------------------------------------------------------------


def test_what_was_backed_up_comes_back_byte_for_byte(snapshot: Frozen, target: BackupTarget, tmp_path: Path):
    info = backup(snapshot, target, now_ms=NOW)
    assert restore(target, None, tmp_path / "new") == info
    assert contents(tmp_path / "new") == expected(snapshot)
    assert (info.directory, info.shards, info.created_at) == (ID, 2, NOW)
    assert info.size == sum(map(len, expected(snapshot).values()))


def test_a_backup_is_named_by_its_time_and_directory(snapshot: Frozen, target: BackupTarget):
    assert backup(snapshot, target, now_ms=NOW + 7).name == "stoker-20270115T080000.007Z-01234567"


def test_files_larger_than_a_part_come_back(s3_url: str, tmp_path: Path):
    """Over 8 MB that cannot be compressed: several parts, uploaded as they are made."""
    snapshot = make_directory(tmp_path / "data", payload=Random(1).randbytes(9_000_000) * 2)
    target = open_target(s3_url, CREDENTIALS)
    assert backup(snapshot, target).stored_size > 16_000_000
    restore(target, None, tmp_path / "new")
    assert contents(tmp_path / "new") == expected(snapshot)


def test_progress_grows_to_the_whole(snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path):
    for work in (
        lambda told: backup(snapshot, folder, progress=told),
        lambda told: restore(folder, None, tmp_path / "new", progress=told),
    ):
        told: list[tuple[int, int]] = []
        info = work(lambda done, total, told=told: told.append((done, total)))
        assert told == sorted(told)
        assert told[-1] == (info.size, info.size)
        assert {total for _, total in told} == {info.size}


def test_an_empty_directory_may_be_restored_into(snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path):
    backup(snapshot, folder)
    (tmp_path / "new").mkdir()
    restore(folder, None, tmp_path / "new")
    assert contents(tmp_path / "new") == expected(snapshot)


def test_only_the_owner_can_read_a_backup_and_what_is_restored(
    snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path
):
    backup(snapshot, folder)
    restore(folder, None, tmp_path / "new")
    for place in (folder.path, tmp_path / "new"):
        for path in (place, *place.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0


def test_a_named_backup_is_restored_and_not_the_newest(snapshot: Frozen, target: BackupTarget, tmp_path: Path):
    first = backup(snapshot, target, now_ms=NOW)
    later = make_directory(tmp_path / "later", payload=b"later")
    backup(later, target, now_ms=NOW + 1)
    restore(target, first.name, tmp_path / "new")
    assert contents(tmp_path / "new") == expected(snapshot)
    restore(target, None, tmp_path / "newest")
    assert contents(tmp_path / "newest") == expected(later)


def test_the_newest_is_the_last_taken_whatever_the_clock_says(snapshot: Frozen, folder: DirectoryTarget):
    names = [backup(snapshot, folder, now_ms=at).name for at in (NOW, NOW, NOW - 5_000, NOW + 1_000)]
    assert names == sorted(set(names))
    assert [one.name for one in list_backups(folder)] == names


def test_a_snapshot_that_does_not_match_its_manifest_is_not_backed_up(snapshot: Frozen, folder: DirectoryTarget):
    for files in (snapshot.files[1:], [*snapshot.files, snapshot.files[0]], [*snapshot.files, Path("/etc/passwd")]):
        with pytest.raises(BadBackup, match="manifest names others"):
            backup(Frozen(files, snapshot.manifest), folder)
    assert not folder.folders()


def test_a_file_that_is_still_written_to_is_not_backed_up(snapshot: Frozen, folder: DirectoryTarget):
    text = snapshot.manifest.replace(b'"sealed"', b'"open"', 1)
    assert text != snapshot.manifest
    with pytest.raises(BadBackup, match="still being written"):
        backup(Frozen(snapshot.files, text), folder)


def test_a_file_that_cannot_be_read_is_named(snapshot: Frozen, target: BackupTarget):
    gone = snapshot.files[2]
    stand_in = gone.with_name("aside")
    gone.rename(stand_in)
    gone.mkdir()
    with pytest.raises(BadBackup, match=f"{gone.name} cannot be read"):
        backup(snapshot, target)
    assert not target.folders(), "what was begun is removed"


def test_a_file_that_grows_while_it_is_read_is_not_backed_up(snapshot: Frozen, folder: DirectoryTarget):
    grows = next(file for file in snapshot.files if file.name == "log-00000001.db")

    def grow(done: int, total: int) -> None:
        with grows.open("ab") as file:
            file.write(b"more")

    with pytest.raises(BadBackup, match="changed while"):
        backup(snapshot, folder, progress=grow)
    assert not folder.folders()


def test_a_name_that_is_taken_or_malformed_is_refused(snapshot: Frozen, folder: DirectoryTarget):
    taken = backup(snapshot, folder).name
    before = contents(folder.path / taken)
    for name in (taken, "../evil", "stoker-1", "/tmp/x", taken + "x", ""):
        with pytest.raises(InvalidRequest):
            backup(snapshot, folder, name)
    assert contents(folder.path / taken) == before
    assert folder.folders() == [taken]


# --- interrupted -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


class Breaking:
    """A target that breaks at the n-th call: for good, or once; a `put` in the middle of its bytes."""

    def __init__(self, target: BackupTarget, at: int, error: Callable[[], BaseException], for_good: bool) -> None:
        self.url, self._target, self._left = target.url, target, at
        self._error, self._for_good = error, for_good
        self.broke = False

    def _breaks(self) -> bool:
        self._left -= 1
        self.broke |= self._left == 0
        return self._left == 0 or (self._for_good and self._left < 0)

    def _check(self) -> None:
        if self._breaks():
            raise self._error()

    def put(self, folder: str, name: str, pieces: Iterable[bytes]) -> None:
        self._target.put(folder, name, self._torn(pieces) if self._breaks() else pieces)

    def _torn(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece[: len(piece) // 2]
            raise self._error()

    def get(self, folder: str, name: str) -> Iterator[bytes]:
        self._check()
        return self._target.get(folder, name)

    def folders(self) -> list[str]:
        self._check()
        return self._target.folders()

    def sizes(self, folder: str) -> dict[str, int]:
        self._check()
        return self._target.sizes(folder)

    def delete(self, folder: str, first: str) -> None:
        self._check()
        self._target.delete(folder, first)


CALLS = 10
"""Of a backup with four files and a manifest: look, put each, look again, put the index; and one that is not made."""


@pytest.mark.parametrize("at", range(1, CALLS))
@pytest.mark.parametrize(
    ("target", "kind"),
    [("directory", "killed"), ("directory", "refused"), ("directory", "refused once"), ("s3", "killed")],
    indirect=["target"],
)
def test_a_backup_that_breaks_off_anywhere_is_none(
    snapshot: Frozen, target: BackupTarget, at: int, kind: str, tmp_path: Path
):
    before = backup(snapshot, target, now_ms=NOW).name
    error: Callable[[], BaseException] = Killed if kind == "killed" else lambda: TargetFailed("no")
    breaking = Breaking(target, at, error, kind != "refused once")
    try:
        backup(snapshot, breaking, now_ms=NOW + 1)
    except (Killed, TargetFailed):
        assert whole(target) == [before]
        if kind == "refused once":
            assert target.folders() == [before], "what was begun is removed"
    else:
        assert at == CALLS - 1, "every call but one that is not made was broken"
        assert not breaking.broke
    after = backup(snapshot, target, now_ms=NOW + 2).name
    assert whole(target)[-1] == after
    restore(target, None, tmp_path / "new")
    assert contents(tmp_path / "new") == expected(snapshot)


@pytest.mark.parametrize("at", range(1, 9))
def test_a_restore_that_breaks_off_anywhere_leaves_nothing(
    snapshot: Frozen, folder: DirectoryTarget, at: int, tmp_path: Path
):
    backup(snapshot, folder)
    broken = Breaking(folder, at, lambda: TargetFailed("no"), True)
    try:
        restore(broken, None, tmp_path / "new")
    except TargetFailed:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["backups", "data"]
        restore(folder, None, tmp_path / "new")
    assert contents(tmp_path / "new") == expected(snapshot)


def test_what_a_killed_restore_left_goes_with_the_next_one(snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path):
    backup(snapshot, folder)
    left = tmp_path / ".new.restore-12345678"
    left.mkdir()
    (left / "log-00000001.db").write_bytes(b"half")
    restore(folder, None, tmp_path / "new")
    assert not left.exists()
    assert contents(tmp_path / "new") == expected(snapshot)


def test_bytes_that_a_target_lost_are_noticed_before_it_is_called_a_backup(
    snapshot: Frozen, folder: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
):
    sizes = folder.sizes
    monkeypatch.setattr(folder, "sizes", lambda name: sizes(name) | {"keys.db.gz": 1})
    with pytest.raises(TargetFailed, match=r"keys\.db\.gz has 1 bytes"):
        backup(snapshot, folder)
    assert not folder.folders()


# --- damaged ---------------------------------------------------------------------------------------

OBJECTS = ["checkpoint-00000003.gz", "keys.db.gz", "log-00000001.db.gz", "log-00000002.db.gz", "manifest.json.gz"]

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first byte": lambda data: _flipped(data, 0),
    "header": lambda data: _flipped(data, 5),
    "middle": lambda data: _flipped(data, len(data) // 2),
    "trailer": lambda data: _flipped(data, len(data) - 6),
    "last byte": lambda data: _flipped(data, len(data) - 1),
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "twice": lambda data: data + data,
    "other content": lambda data: zlib.compress(b"something else", wbits=31),
    "zeros": lambda data: bytes(len(data)),
}


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def test_a_backup_has_the_objects_that_these_tests_damage(taken: Taken):
    folder, info = taken
    assert sorted(folder.sizes(info.name)) == [INDEX, *OBJECTS]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", OBJECTS)
def test_a_damaged_object_is_refused(taken: Taken, name: str, damage: str, tmp_path: Path):
    folder, info = taken
    path = folder.path / info.name / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert f"{name} is damaged" in check_refused(folder, tmp_path / "new")


@pytest.mark.parametrize("name", OBJECTS)
def test_a_missing_object_is_refused(snapshot: Frozen, target: BackupTarget, name: str, tmp_path: Path):
    info = backup(snapshot, target)
    index = b"".join(target.get(info.name, INDEX))
    others = {file.object: b"".join(target.get(info.name, file.object)) for file in info.files}
    target.delete(info.name, INDEX)
    for other, data in others.items():
        if other != name:
            target.put(info.name, other, [data])
    target.put(info.name, INDEX, [index])
    assert f"{name} is missing" in check_refused(target, tmp_path / "new")


def test_swapped_files_are_refused(taken: Taken, tmp_path: Path):
    folder, info = taken
    place = folder.path / info.name
    one, other = place / OBJECTS[2], place / OBJECTS[3]
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1])
    other.write_bytes(texts[0])
    assert "is damaged" in check_refused(folder, tmp_path / "new")


def test_a_backup_without_its_index_is_none(snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path):
    first, second = (backup(snapshot, folder, now_ms=NOW + n).name for n in (0, 1))
    (folder.path / second / INDEX).unlink()
    assert whole(folder) == [first]
    assert [one.incomplete for one in list_backups(folder)] == [False, True]
    assert "never finished" in check_refused(folder, tmp_path / "new", name=second)
    assert restore(folder, None, tmp_path / "new").name == first


def test_every_flipped_byte_of_the_index_is_noticed(taken: Taken, tmp_path: Path):
    folder, info = taken
    path = folder.path / info.name / INDEX
    text = path.read_bytes()
    for at in range(len(text)):
        with pytest.raises(BadBackup):
            decode_index(_flipped(text, at), "here")
    for damaged in [_flipped(text, at) for at in range(0, len(text), 97)] + [
        text[:at] for at in range(0, len(text), 97)
    ]:
        path.write_bytes(damaged)
        (listed,) = list_backups(folder)
        assert (listed.info, listed.incomplete) == (None, False)
        assert listed.problem in check_refused(folder, tmp_path / "new")


def test_if_the_newest_is_damaged_nobody_goes_back_silently(snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path):
    first, second = (backup(snapshot, folder, now_ms=NOW + n).name for n in (0, 1))
    (folder.path / second / INDEX).write_bytes(b"{}")
    assert "name an older one" in check_refused(folder, tmp_path / "new")
    restore(folder, first, tmp_path / "new")


def rewrite(folder: DirectoryTarget, info: BackupInfo, **changes: Any) -> None:
    """An index that somebody has edited, checksum and all."""
    body = msgspec.to_builtins(info) | changes
    text = sealed(msgspec.json.format(msgspec.json.encode(body), indent=1))
    (folder.path / info.name / INDEX).write_bytes(text)


def test_an_index_that_says_the_same_again_is_the_same(taken: Taken):
    folder, info = taken
    text = (folder.path / info.name / INDEX).read_bytes()
    assert encode_index(info) == text
    rewrite(folder, info)
    assert (folder.path / info.name / INDEX).read_bytes() == text
    assert b'"checksum"' in text.splitlines()[-2], "the checksum comes last"


HASH = "0" * 64


def file_named(name: str, **changes: Any) -> File:
    file = File(name=name, object=f"{name}.gz", size=1, sha256=HASH, stored_size=1, stored_sha256=HASH)
    return msgspec.structs.replace(file, **changes)


EVIL = [
    "../evil",
    "/tmp/evil",
    "..",
    ".",
    "",
    "a/b",
    "log-00000001.db/../../evil",
    "log-00000001.db\n",
    "log-00000001.db\0",
    "log-٠٠٠٠٠٠٠١.db",  # noqa: RUF001  digits, but not ours
    "lock",
    "mark",
    "reserve",
    "log-00000001.db-wal",
    "C:\\evil",
]


@pytest.mark.parametrize("name", EVIL)
def test_names_that_lead_elsewhere_are_refused(taken: Taken, name: str, tmp_path: Path):
    folder, info = taken
    good = info.files[0]
    for bad in (file_named(name), msgspec.structs.replace(good, object=name), file_named(good.name, object=name)):
        rewrite(folder, info, files=[*info.files[1:], bad])
        assert "which is not valid in a backup" in check_refused(folder, tmp_path / "new")
    with pytest.raises(InvalidRequest):
        restore(folder, name or "x", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups"]


def edits(info: BackupInfo) -> dict[str, dict[str, Any]]:
    first = info.files[0]

    def other(**changes: Any) -> dict[str, Any]:
        return {"files": [msgspec.structs.replace(first, **changes), *info.files[1:]]}

    return {
        "is a backup of 'celery'": {"product": "celery"},
        "restore it with the later": {"format": 2},
        "cannot be read": {"unknown": 1},
        "names a file twice": {"files": [*info.files, first]},
        "names no manifest.json": {"files": info.files[:-1]},
        "belongs to the backup": {"name": info.name[:-1] + "f"},
        "another data directory": {"directory": OTHER_ID},
        "names other files": {"files": info.files[1:]},
        "negative size": other(size=-1),
        "no checksum": other(sha256="../../x"),
        "holds more than": other(size=first.size - 1),
        "not what was packed": other(size=first.size + 1),
        "its content is not": other(sha256=HASH),
        "its checksum is wrong": other(stored_sha256=HASH),
        "has more than": other(stored_size=first.stored_size - 1),
        f"has {first.stored_size} of": other(stored_size=first.stored_size + 1),
        "make room": other(size=1 << 60),
    }


def test_an_edited_index_is_refused_for_what_is_wrong(taken: Taken, tmp_path: Path):
    folder, info = taken
    for wrong, changes in edits(info).items():
        rewrite(folder, info, **changes)
        assert wrong in check_refused(folder, tmp_path / "new", StokerError)


def test_what_unpacks_to_more_than_it_should_is_not_unpacked(taken: Taken, tmp_path: Path):
    """A kilobyte can hold a megabyte: reading ends at the size that the index tells."""
    folder, info = taken
    bomb = zlib.compress(bytes(20_000_000), wbits=31)
    first = msgspec.structs.replace(
        info.files[0], stored_size=len(bomb), stored_sha256=hashlib.sha256(bomb).hexdigest()
    )
    (folder.path / info.name / first.object).write_bytes(bomb)
    rewrite(folder, info, files=[first, *info.files[1:]])
    told: list[int] = []
    with pytest.raises(BadBackup, match="holds more than"):
        restore(folder, None, tmp_path / "new", progress=lambda done, total: told.append(done))
    assert sum(told) <= first.size


def test_what_was_cut_short_is_noticed_though_all_of_the_file_is_there(taken: Taken, tmp_path: Path):
    folder, info = taken
    first = info.files[0]
    path = folder.path / info.name / first.object
    cut = path.read_bytes()[:-4]
    path.write_bytes(cut)
    file = msgspec.structs.replace(first, stored_size=len(cut), stored_sha256=hashlib.sha256(cut).hexdigest())
    rewrite(folder, info, files=[file, *info.files[1:]])
    assert "not what was packed" in check_refused(folder, tmp_path / "new")


def test_symbolic_links_are_not_followed(taken: Taken, tmp_path: Path):
    folder, info = taken
    path = folder.path / info.name / OBJECTS[0]
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    check_refused(folder, tmp_path / "new", TargetFailed)
    path.unlink()
    (tmp_path / "outside").rename(path)
    (folder.path / info.name).rename(tmp_path / info.name)
    (folder.path / info.name).symlink_to(tmp_path / info.name)
    assert not list_backups(folder)
    check_refused(folder, tmp_path / "new", StokerError, info.name)
    with pytest.raises(TargetFailed):
        folder.put(info.name, "x", [b""])
    with pytest.raises(TargetFailed):
        folder.delete(info.name, INDEX)
    assert INDEX in contents(tmp_path / info.name), "nothing behind the link was touched"


def damaged_rows() -> dict[str, list[tuple[int, int, bytes]]]:
    shard, first, data = row(0, 6)
    return {
        "checksum": [row(0, 4), row(1, 4), (shard, first, _flipped(data, len(data) - 1))],
        "no record": [row(0, 4), row(1, 4), (shard, first, b"")],
        "a gap": [row(0, 4), row(1, 4), row(0, 7)],
        "twice": [row(0, 3), row(0, 5), row(1, 4), row(0, 6)],
        "another place": [row(0, 4), row(1, 4), (0, 6, row(0, 9)[2])],
        "short": [row(0, 4), row(1, 4)],
        "no rows": [],
    }


@pytest.mark.parametrize("how", damaged_rows())
def test_a_backup_of_damaged_rows_is_refused(snapshot: Frozen, folder: DirectoryTarget, how: str, tmp_path: Path):
    """The backup is whole; what it was taken of is not."""
    path = next(file for file in snapshot.files if file.name == "log-00000002.db")
    path.unlink()
    write_log(path, damaged_rows()[how])
    backup(snapshot, folder)
    assert "taken of damaged files" in check_refused(folder, tmp_path / "new")


@pytest.mark.parametrize("name", ["log-00000001.db", "keys.db", "checkpoint-00000003"])
@pytest.mark.parametrize("content", [b"", b"no such file", bytes(8192)])
def test_a_backup_of_what_is_no_file_of_ours_is_refused(
    snapshot: Frozen, folder: DirectoryTarget, name: str, content: bytes, tmp_path: Path
):
    if name == "keys.db" and not content:
        content = b"x"  # an empty file is what a crash leaves of a new one
    next(file for file in snapshot.files if file.name == name).write_bytes(content)
    backup(snapshot, folder)
    assert name in check_refused(folder, tmp_path / "new")


# --- of a journal that is being written to ---------------------------------------------------------

BACKUPS = 4
WRITERS = 3
STEPS = 120
"""Of each writer during each backup: enough to be in the middle of something, and soon done."""
SMALL = JournalSettings(
    wal_bytes_max=256 << 10, checkpoint_records=400, checkpoint_process=False, disk_reserve_bytes=1 << 20
)


def work(broker: LocalBroker, number: int, permits: threading.Semaphore, failures: list[BaseException]) -> None:
    """Push numbered jobs one after another, and work some of them off."""
    client = Client(broker)
    try:
        for count in range(BACKUPS * STEPS):
            permits.acquire()
            client.push(f"q{number}", b"%d" % count)
            if count % 3 == 0:
                client.push_batch(f"batch{number}", [b"%d" % count] * 5)
            if count % 4 == 0:
                delivery = client.pull(f"q{number}", 2)
                client.ack_batch(delivery.ids, delivery.token)
    except BaseException as error:
        failures.append(error)


def records_of(broker: LocalBroker) -> list[list[bytes]]:
    """Everything that happened, shard by shard."""
    journal = broker.runtime.journal
    return [
        [encode(record) for _, record in journal.read(shard, 0, 10_000_000)]
        for shard in range(len(broker.runtime.shards))
    ]


def test_backups_under_load_are_states_that_there_were(tmp_path: Path):
    """Each restores to a directory in order, whose history is the beginning of what had happened in the end."""
    settings = LocalSettings(shards=2, journal=SMALL)
    broker = open_sqlite(str(tmp_path / "data"), {}, settings)
    permits, failures = threading.Semaphore(0), list[BaseException]()
    threads = [threading.Thread(target=work, args=(broker, n, permits, failures)) for n in range(WRITERS)]
    target = DirectoryTarget(tmp_path / "backups")
    assert isinstance(broker.store, DirectoryStore)
    pushed = []
    try:
        for thread in threads:
            thread.start()
        for _ in range(BACKUPS):
            permits.release(WRITERS * STEPS)
            before = Client(broker).get_stats().totals.pushed
            with broker.store.snapshot() as snapshot:
                assert not [file for file in snapshot.files if "-wal" in file.name]
                name = backup(snapshot, target).name
            pushed.append((name, before, Client(broker).get_stats().totals.pushed))
    finally:
        permits.release(BACKUPS * WRITERS * STEPS)
        for thread in threads:
            thread.join()
    assert not failures
    history = records_of(broker)
    broker.close()
    reached = 0
    for name, before, after in pushed:
        into = tmp_path / name
        restore(target, name, into)
        assert {finding.status for finding in verify(str(into))} == {"ok"}
        restored = open_sqlite(str(into), {}, LocalSettings(journal=SMALL))
        for shard in restored.runtime.shards:
            audit(shard)
        told = records_of(restored)
        for then, now in zip(told, history, strict=True):
            assert then[:-1] == now[: len(then) - 1], "all but the record of the opening"
        assert before <= Client(restored).get_stats().totals.pushed <= after
        assert sum(map(len, told)) >= reached
        reached = sum(map(len, told))
        restored.close()


def test_a_schedule_of_a_broker_takes_backups(tmp_path: Path):
    """Set in the settings, taken on a thread of its own, and kept to a number."""
    url = str(tmp_path / "backups")
    settings = msgspec.structs.replace(SMALL, backups=BackupSettings(url=url, interval_s=3_600, keep=2))
    before = open_sqlite(str(tmp_path / "data"), {}, LocalSettings(shards=1, journal=SMALL))
    Client(before).push("q", b"x")
    before.close()
    broker = open_sqlite(str(tmp_path / "data"), {}, LocalSettings(journal=settings))
    assert isinstance(broker.store, DirectoryStore)
    assert broker.store.schedule is not None
    broker.store.schedule.run_pending(Client(broker).get_job(64).pushed_at)  # if its own thread has not done so
    assert len(whole(open_target(url))) == 1
    broker.close()
    restore(open_target(url), None, tmp_path / "new")
    again = open_sqlite(str(tmp_path / "new"), {})
    assert Client(again).get_job(64).payload == b"x"
    again.close()


# --- where to --------------------------------------------------------------------------------------


def test_only_a_new_or_an_empty_directory_is_restored_into(taken: Taken, tmp_path: Path):
    folder, _ = taken
    occupied, file, link = tmp_path / "occupied", tmp_path / "file", tmp_path / "link"
    occupied.mkdir()
    (occupied / "mine").write_text("keep")
    file.write_text("keep")
    (tmp_path / "empty").mkdir()
    link.symlink_to(tmp_path / "empty")
    for into, why in ((occupied, "not empty"), (file, "is a file"), (link, "symbolic link")):
        assert why in check_refused(folder, into, InvalidRequest)
    assert (occupied / "mine").read_text() == file.read_text() == "keep"


def test_what_appears_in_the_meantime_is_not_replaced(taken: Taken, tmp_path: Path):
    folder, _ = taken
    into = tmp_path / "new"

    def come(done: int, total: int) -> None:
        into.mkdir(exist_ok=True)
        (into / "mine").write_text("keep")

    with pytest.raises(InvalidRequest, match="not empty"):
        restore(folder, None, into, progress=come)
    assert contents(into) == {"mine": b"keep"}


def test_a_mount_point_is_not_replaced(taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, _ = taken
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    (tmp_path / "volume").mkdir()
    assert "a directory below it" in check_refused(folder, tmp_path / "volume", InvalidRequest)
    restore(folder, None, tmp_path / "volume" / "data")


def test_a_target_without_backups_says_so(target: BackupTarget, tmp_path: Path):
    assert list_backups(target) == []
    assert "no finished backup" in check_refused(target, tmp_path / "new", InvalidRequest)
    name = "stoker-20270115T080000.007Z-01234567"
    assert "there is no backup" in check_refused(target, tmp_path / "new", InvalidRequest, name)


def test_backups_of_two_directories_are_not_confused(snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path):
    mine = backup(snapshot, folder, now_ms=NOW)
    other = backup(make_directory(tmp_path / "other", OTHER_ID), folder, now_ms=NOW + 1)
    assert "several data directories" in check_refused(folder, tmp_path / "new", InvalidRequest)
    restore(folder, mine.name, tmp_path / "new")
    assert contents(tmp_path / "new") == expected(snapshot)
    twin = ID[:8] + OTHER_ID[8:]
    assert prune(folder, 1, OTHER_ID) == prune(folder, 1, twin) == []
    backup(make_directory(tmp_path / "twin", twin), folder, now_ms=NOW + 2)
    assert prune(folder, 1, ID) == prune(folder, 1, twin) == [], "names that begin alike are told apart"
    assert whole(folder)[:2] == [mine.name, other.name]


# --- how many --------------------------------------------------------------------------------------


def test_the_oldest_go_when_there_are_too_many(snapshot: Frozen, target: BackupTarget):
    names = [backup(snapshot, target, now_ms=NOW + n).name for n in range(5)]
    assert prune(target, 5, ID) == []
    assert prune(target, 3, ID) == names[:2]
    assert target.folders() == names[2:]
    assert prune(target, 1, ID) == names[2:4]
    assert prune(target, 1, ID) == []
    assert target.folders() == whole(target) == names[4:]


def test_unfinished_ones_go_when_they_are_older_than_all_kept(
    snapshot: Frozen, folder: DirectoryTarget, tmp_path: Path
):
    names = [backup(snapshot, folder, now_ms=NOW + n).name for n in range(6)]
    foreign = backup(make_directory(tmp_path / "other", OTHER_ID), folder, now_ms=NOW - 1).name
    for name in (names[0], names[3], names[5], foreign):
        (folder.path / name / INDEX).unlink()
    assert sorted(prune(folder, 2, ID)) == names[:2]
    assert folder.folders() == [foreign, *names[2:]], "whole: 2 and 4; 3 and 5 may still be written"
    (folder.path / names[2] / INDEX).write_bytes(b"damaged")
    assert prune(folder, 1, ID) == [names[3]], "a damaged one is left for somebody to look at"


def test_nothing_goes_where_nothing_is_whole(snapshot: Frozen, folder: DirectoryTarget):
    name = backup(snapshot, folder).name
    (folder.path / name / INDEX).unlink()
    assert prune(folder, 1, ID) == []
    with pytest.raises(InvalidRequest, match="expected at least 1"):
        prune(folder, 0, ID)
    assert folder.folders() == [name]


def test_other_things_in_a_target_are_left_alone(snapshot: Frozen, folder: DirectoryTarget):
    (folder.path / "holiday-pictures").mkdir(parents=True)
    (folder.path / "stoker-99999999T999999.999Z-01234567").mkdir()
    (folder.path / "notes.txt").write_text("keep")
    for n in range(3):
        backup(snapshot, folder, now_ms=NOW + n)
    prune(folder, 1, ID)
    assert (folder.path / "notes.txt").exists()
    assert "holiday-pictures" in folder.folders()
    assert len(whole(folder)) == 1


# --- on an interval --------------------------------------------------------------------------------


def schedule(snapshot: Frozen, target: BackupTarget, **settings: Any) -> tuple[BackupSchedule, list[str]]:
    steps: list[str] = []

    @contextmanager
    def take() -> Iterator[Frozen]:
        steps.append("taken")
        try:
            yield snapshot
        finally:
            steps.append("left")

    return BackupSchedule(BackupSettings(url=target.url, **settings), target, ID, take), steps


def test_a_backup_is_taken_when_one_is_due(snapshot: Frozen, target: BackupTarget):
    runner, steps = schedule(snapshot, target, interval_s=60, keep=2)
    first = runner.run_pending(NOW)
    assert first is not None
    assert runner.run_pending(NOW + 59_999) is None
    assert steps == ["taken", "left"]
    for n in range(1, 4):
        assert runner.run_pending(NOW + n * 60_000) is not None
    assert len(target.folders()) == 2
    assert (runner.error, runner.failures) == ("", 0)
    assert runner.last is not None
    assert runner.last.name == whole(target)[-1]


def test_a_restart_neither_delays_nor_repeats_a_backup(snapshot: Frozen, folder: DirectoryTarget):
    runner, _ = schedule(snapshot, folder, interval_s=60)
    assert runner.run_pending(NOW) is not None
    again, steps = schedule(snapshot, folder, interval_s=60)
    assert again.run_pending(NOW + 30_000) is None
    assert not steps
    assert again.next_at == NOW + 60_000
    ahead, _ = schedule(snapshot, folder, interval_s=60)
    assert ahead.run_pending(NOW - 1) is not None, "a backup from the future says nothing about the clock of today"
    assert again.run_pending(NOW + 60_000) is not None


def test_a_failure_is_told_and_tried_again_less_and_less_often(snapshot: Frozen, folder: DirectoryTarget):
    breaking = Breaking(folder, 1, lambda: TargetFailed("the bucket is gone"), True)
    runner, _ = schedule(snapshot, breaking, interval_s=600)
    waits = []
    now = NOW
    for _ in range(6):
        assert runner.run_pending(now) is None
        waits.append(runner.next_at - now)
        now = runner.next_at
    assert waits == [60_000, 120_000, 240_000, 480_000, 600_000, 600_000]
    assert "the bucket is gone" in runner.error
    assert runner.failures == 6
    healed, _ = schedule(snapshot, folder, interval_s=600)
    healed.failures, healed.error = 6, "the bucket is gone"
    assert healed.run_pending(now) is not None
    assert (healed.error, healed.failures) == ("", 0)


def test_old_backups_that_stay_do_not_make_a_backup_fail(
    snapshot: Frozen, folder: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
):
    runner, steps = schedule(snapshot, folder, interval_s=60, keep=1)
    runner.run_pending(NOW)

    def refuse(folder: str, first: str) -> None:
        raise TargetFailed("not allowed to delete")

    monkeypatch.setattr(folder, "delete", refuse)
    assert runner.run_pending(NOW + 60_000) is not None
    assert "not allowed" in runner.error
    assert runner.next_at == NOW + 120_000
    assert len(steps) == 4


def test_a_schedule_can_be_stopped_in_the_middle(
    snapshot: Frozen, folder: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
):
    runner, steps = schedule(snapshot, folder, interval_s=60)
    put = folder.put

    def stopping(name: str, thing: str, pieces: Iterable[bytes]) -> None:
        runner.stop()
        put(name, thing, pieces)

    monkeypatch.setattr(folder, "put", stopping)
    assert runner.run_pending(NOW) is None
    assert not folder.folders()
    assert (runner.error, steps) == ("", ["taken", "left"])
    assert runner.run_pending(NOW + 60_000) is None
    assert len(steps) == 2


@pytest.mark.parametrize("wrong", [{"interval_s": 0}, {"keep": 0}, {"interval_s": -5}])
def test_an_interval_or_a_number_below_one_is_refused(wrong: dict[str, int]):
    with pytest.raises(InvalidRequest):
        BackupSettings(url="/tmp/x", **wrong)


# --- targets ---------------------------------------------------------------------------------------


def test_a_target_is_a_path_a_file_url_or_a_bucket(tmp_path: Path, s3_url: str):
    for url in (str(tmp_path), f"file://{tmp_path}"):
        found = open_target(url)
        assert isinstance(found, DirectoryTarget)
        assert found.path == tmp_path
    assert isinstance(open_target(s3_url, CREDENTIALS), S3Target)
    assert open_target("file:///with%20space").url == "/with space"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file://host/path",
        "file:///path?x=1",
        "ftp://host/path",
        "gs://bucket",
        "s3://",
        "s3:///prefix",
        "s3://b/../x",
        "s3://bucket/a//b",
        "s3://bucket/../x",
        "s3://bucket/x?secret=1",
        "s3://bucket/x?endpoint=localhost:9000",
        "s3://key:secret@bucket/x",
    ],
)
def test_other_urls_are_refused(url: str):
    with pytest.raises(InvalidRequest) as caught:
        open_target(url)
    assert "secret@" not in str(caught.value)


def test_credentials_come_from_the_environment(s3_url: str, snapshot: Frozen, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    target = open_target(s3_url)
    assert whole(target) == []
    assert backup(snapshot, target).name in whole(target)


def test_credentials_do_not_show():
    assert "hidden" not in repr(Credentials("key", "hidden", "hidden"))


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidRequest, match=r"stoker\[s3\]"):
        open_target("s3://bucket/prefix")


def test_a_bucket_that_is_not_there_is_named(s3_server: str, snapshot: Frozen):
    target = open_target(f"s3://not-there/x?endpoint={s3_server}", CREDENTIALS)
    with pytest.raises(TargetFailed, match="s3://not-there/x"):
        backup(snapshot, target)
    with pytest.raises(TargetFailed):
        list_backups(target)


def test_a_directory_that_cannot_be_written_is_named(snapshot: Frozen, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetFailed, match="failed"):
        backup(snapshot, DirectoryTarget(tmp_path / "file" / "below"))


@pytest.mark.parametrize("name", ["..", "../x", "/x", "a/b", "", ".hidden", "a\0b", "a" * 200])
def test_no_name_leads_out_of_a_target(target: BackupTarget, name: str):
    """Names come from our own code; the targets look all the same."""
    for work in (
        lambda: target.put(name, "x", [b""]),
        lambda: target.put("x", name, [b""]),
        lambda: list(target.get("x", name)),
        lambda: list(target.get(name, "x")),
        lambda: target.sizes(name),
        lambda: target.delete(name, "x"),
    ):
        with pytest.raises(InvalidRequest):
            work()


def test_targets_agree_about_what_is_not_there(target: BackupTarget):
    assert target.folders() == []
    assert target.sizes("nothing") == {}
    target.delete("nothing", "x")
    with pytest.raises(FileNotFoundError):
        list(target.get("nothing", "x"))


@pytest.mark.parametrize("first", ["a", "b", "c"])
def test_the_first_goes_first(folder: DirectoryTarget, first: str, monkeypatch: pytest.MonkeyPatch):
    """A backup that is being removed is none from the beginning."""
    for name in ("a", "b", "c"):
        folder.put("one", name, [b"x"])
    gone: list[str] = []
    unlink = os.unlink

    def unlinked(name: str, **kwargs: Any) -> None:
        unlink(name, **kwargs)
        gone.append(name)

    monkeypatch.setattr(os, "unlink", unlinked)
    folder.delete("one", first)
    assert gone[0] == first
    assert sorted(gone) == ["a", "b", "c"]


def test_the_first_goes_first_from_a_bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch):
    target = S3Target(*s3_parts(s3_url))
    for name in ("a", "b", "c"):
        target.put("one", name, [b"x"])
    left: list[list[str]] = []
    remove = target._remove

    def removed(paths: list[str]) -> None:
        remove(paths)
        left.append(sorted(target.sizes("one")))

    monkeypatch.setattr(target, "_remove", removed)
    target.delete("one", "b")
    assert left == [["a", "c"], []]


def s3_parts(url: str) -> tuple[str, str, str, str, Credentials]:
    parts = urllib.parse.urlsplit(url)
    parameters = dict(urllib.parse.parse_qsl(parts.query))
    return parts.netloc, parts.path.strip("/"), parameters["endpoint"], parameters["region"], CREDENTIALS


def test_targets_keep_what_they_are_given(target: BackupTarget):
    target.put("one", "empty", [])
    target.put("one", "small", [b"a", b"", b"b"])
    target.put("two", "small", [b"c"])
    target.put("two", "small", [b"d"])
    assert target.folders() == ["one", "two"]
    assert target.sizes("one") == {"empty": 0, "small": 2}
    assert [b"".join(target.get(*place)) for place in (("one", "empty"), ("one", "small"), ("two", "small"))] == [
        b"",
        b"ab",
        b"d",
    ]
    target.delete("one", "small")
    assert target.folders() == ["two"]


def test_an_object_is_flushed_before_it_has_its_name_and_the_name_after(
    folder: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
):
    steps: list[str] = []
    rename = os.rename

    def renamed(*args: Any, **kwargs: Any) -> None:
        steps.append("rename")
        rename(*args, **kwargs)

    def flushed(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "fsync", flushed)
    folder.put("one", "object", [b"x"])
    assert steps == ["directory", "file", "rename", "directory"]


def test_what_is_restored_is_flushed_before_it_has_its_name(
    taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, info = taken
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    restore(folder, None, tmp_path / "new")
    *files, directory, parent = [Path(step) for step in steps]
    assert [file.name for file in files] == [file.name for file in info.files]
    assert all(file.parent == directory for file in files)
    assert directory.name.startswith(".new.restore-")
    assert parent == tmp_path


def test_what_a_crash_left_half_written_is_not_listed_and_goes(folder: DirectoryTarget):
    folder.put("one", "whole", [b"x"])
    (folder.path / "one" / ".half.part").write_bytes(b"y")
    assert folder.sizes("one") == {"whole": 1}
    folder.put("one", "half", [b"z"])
    assert sorted(os.listdir(folder.path / "one")) == ["half", "whole"]
    (folder.path / "one" / ".other.part").write_bytes(b"y")
    folder.delete("one", "whole")
    assert folder.folders() == []


def test_these_tests_have_a_directory_that_is_in_order(snapshot: Frozen):
    """Otherwise refusals above would prove nothing."""
    names = {path.name for path in snapshot.files}
    assert names == {"log-00000001.db", "log-00000002.db", "checkpoint-00000003", "keys.db"}
    assert backups.FORMAT == 1
