"""The doctor finds what is wrong with a place or a data directory, says what to do, and touches nothing."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from stoker.journal import doctor
from stoker.journal.directory import Directory, LogEntry, Manifest, Mark, manifest_text, read_manifest
from stoker.journal.disk import Disk
from stoker.journal.doctor import Finding, check, verify
from stoker.journal.logfile import LogFile, position_of
from stoker.model.errors import InUse, InvalidRequest, StokerError
from tests.journal.small_directory import make_directory, row, write_log

MACHINE = ["python", "sqlite", "file system", "space", "inodes", "flushes", "permissions"]
DATA = ["manifest", "lock", "files", "left-overs", "size"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "data"
    snapshot = make_directory(path)
    (path / "manifest.json").write_bytes(snapshot.manifest)
    path.chmod(0o700)
    return path


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A data directory that nobody has open."""
    return Path(shutil.copytree(original, tmp_path / "data"))


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    found = {finding.name: finding for finding in findings}
    assert len(found) == len(findings)
    for finding in findings:
        assert finding.found
        assert bool(finding.advice) == (finding.status != "ok"), "there is something to do, or nothing"
    return found


def state_of(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """Everything that could have been changed in a directory."""
    found = {file.name: (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode) for file in path.iterdir()}
    return found | {".": (b"", path.stat().st_mtime_ns, path.stat().st_mode)}


def changed(path: Path, **changes: object) -> Manifest:
    manifest = msgspec.structs.replace(read_manifest(path / "manifest.json"), **changes)
    (path / "manifest.json").write_bytes(manifest_text(manifest))
    return manifest


# --- the machine and the place ---------------------------------------------------------------------


def test_a_place_that_does_not_exist_yet_is_judged_by_where_it_would_be(tmp_path: Path):
    found = by_name(check(str(tmp_path / "a" / "b")))
    assert list(found) == MACHINE
    assert "can be created" in found["permissions"].found
    assert not list(tmp_path.iterdir())


def test_a_directory_in_order_has_no_problem(data: Path):
    before = state_of(data)
    found = by_name(check(str(data)))
    assert list(found) == MACHINE + DATA
    assert [finding for finding in found.values() if finding.status == "problem"] == []
    assert {found[name].status for name in DATA} == {"ok"}
    assert state_of(data) == before


def test_flushes_are_measured_where_no_file_can_be_nameless(data: Path, monkeypatch: pytest.MonkeyPatch):
    """Then in a file beside the data directory, which is gone afterwards."""
    opened = os.open

    def without_nameless(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "not supported")
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", without_nameless)
    before, beside = state_of(data), sorted(data.parent.iterdir())
    assert "ms" in by_name(check(str(data)))["flushes"].found
    assert (state_of(data), sorted(data.parent.iterdir())) == (before, beside)


@pytest.mark.parametrize(
    ("version", "status"),
    [("3.40.1", "problem"), ("3.51.2", "problem"), ("3.51.3", "ok"), ("3.52.0", "ok"), ("4.0.0", "ok")],
)
def test_an_sqlite_that_can_damage_its_log_is_a_problem(
    version: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    found = by_name(check(str(tmp_path)))["sqlite"]
    assert (found.status, version in found.found) == (status, True)


def test_a_missing_sqlite_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apsw", None)
    found = by_name(check(str(tmp_path)))["sqlite"]
    assert (found.status, found.advice) == ("problem", "install it with pip install apsw")


MOUNT = "36 35 98:0 /root {point} {options} shared:1 - {kind} /dev/x {super}\n"


def mounts(tmp_path: Path, *lines: tuple[str, str, str, str]) -> str:
    file = tmp_path / "mountinfo"
    file.write_text(
        "".join(
            MOUNT.format(point=point, kind=kind, options=options, super=rest) for point, kind, options, rest in lines
        )
    )
    return str(file)


@pytest.mark.parametrize(
    ("kind", "options", "status"),
    [
        ("ext4", "rw", "ok"),
        ("xfs", "rw,noatime", "ok"),
        ("btrfs", "rw", "ok"),
        ("nfs4", "rw", "problem"),
        ("cifs", "rw", "problem"),
        ("smb3", "rw", "problem"),
        ("9p", "rw", "problem"),
        ("fuse.sshfs", "rw", "warning"),
        ("fuseblk", "rw", "warning"),
        ("overlay", "rw", "warning"),
        ("tmpfs", "rw", "warning"),
        ("neverheard", "rw", "warning"),
        ("ext4", "ro", "problem"),
        ("ext4", "rw,nobarrier", "problem"),
        ("ext4", "rw,barrier=0", "problem"),
    ],
)
def test_a_file_system_is_judged(kind: str, options: str, status: str, tmp_path: Path):
    found = by_name(check(str(tmp_path), mounts(tmp_path, ("/", kind, "rw", options))))["file system"]
    assert found.status == status
    assert kind in found.found


def test_the_innermost_and_latest_mount_counts(tmp_path: Path):
    place = tmp_path / "with space"
    place.mkdir()
    point = str(place).replace(" ", "\\040")
    table = [("/", "ext4", "rw", "rw"), (point, "nfs", "rw", "rw"), (point, "xfs", "rw", "rw")]
    table += [(f"{point}2", "cifs", "rw", "rw"), (f"{point}/below", "tmpfs", "rw", "rw")]
    found = by_name(check(str(place), mounts(tmp_path, *table)))["file system"]
    assert found.found == f"xfs at {place}"


def test_an_unreadable_table_of_mounts_is_a_warning(tmp_path: Path):
    for table in (str(tmp_path / "missing"), mounts(tmp_path)):
        assert by_name(check(str(tmp_path), table))["file system"].status == "warning"


@pytest.mark.parametrize(
    ("free", "status"), [(0, "problem"), (255 << 20, "problem"), (1 << 30, "warning"), (3 << 30, "ok")]
)
def test_little_room_is_told(free: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Disk, "free_bytes", lambda disk, path: free)
    assert by_name(check(str(tmp_path)))["space"].status == status


def test_a_file_is_no_place(tmp_path: Path):
    (tmp_path / "file").write_text("")
    found = by_name(check(str(tmp_path / "file")))
    assert found["permissions"].status == "problem"
    assert list(found) == MACHINE


def test_a_directory_that_others_can_read_is_a_warning(data: Path):
    data.chmod(0o755)
    found = by_name(check(str(data)))["permissions"]
    assert (found.status, found.advice) == ("warning", "chmod 700")


def test_a_directory_of_somebody_else_is_a_warning(data: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert by_name(check(str(data)))["permissions"].status == "warning"


def test_a_place_where_nothing_can_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert by_name(check(str(tmp_path)))["permissions"].status == "problem"


# --- a data directory ------------------------------------------------------------------------------


def test_an_empty_directory_can_become_one(tmp_path: Path):
    assert by_name(check(str(tmp_path)))["manifest"].status == "ok"


def test_a_directory_with_other_things_in_it_is_a_warning(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("")
    found = by_name(check(str(tmp_path)))["manifest"]
    assert found.status == "warning"
    assert "thesis.txt" in found.found


def test_a_missing_manifest_is_a_problem(data: Path):
    (data / "manifest.json").unlink()
    found = by_name(check(str(data)))
    assert found["manifest"].status == "problem"
    assert "backup" in found["manifest"].advice


BAD_MANIFESTS = {
    "empty": b"",
    "no object": b"[]",
    "half": b'{"format": 1, "id": "x"',
    "later": b'{"format": 99}',
    "not text": b"\xff\xfe",
}


@pytest.mark.parametrize("how", BAD_MANIFESTS)
def test_an_unreadable_manifest_is_a_problem(data: Path, how: str):
    (data / "manifest.json").write_bytes(BAD_MANIFESTS[how])
    assert by_name(check(str(data)))["manifest"].status == "problem"
    with pytest.raises(StokerError):
        verify(str(data))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "log-1.db", "lock", "log-00000002.db"])
def test_names_in_a_manifest_that_are_not_ours_are_a_problem(data: Path, name: str):
    logs = [LogEntry(name=name, state="sealed"), LogEntry(name="log-00000002.db", state="sealed")]
    changed(data, logs=logs)
    assert by_name(check(str(data)))["manifest"].status == "problem"
    with pytest.raises(StokerError):
        verify(str(data))


@pytest.mark.parametrize("name", ["log-00000001.db", "log-00000002.db", "checkpoint-00000003"])
def test_a_missing_file_is_a_problem(data: Path, name: str):
    (data / name).unlink()
    found = by_name(check(str(data)))["files"]
    assert (found.status, name in found.found) == ("problem", True)
    assert by_name(verify(str(data)))[name].status == "problem"


def test_left_overs_are_told_and_stay(data: Path):
    for name in ("log-00000009.db", "log-00000009.db-wal", "manifest.json.new", "thesis.txt"):
        (data / name).write_text("x")
    (data / "log-00000001.db-wal").write_text("")
    (data / "lock").write_text("")
    before = state_of(data)
    found = by_name(check(str(data)))["left-overs"]
    assert found.status == "warning"
    assert found.found == "4: log-00000009.db, log-00000009.db-wal, manifest.json.new, thesis.txt"
    assert state_of(data) == before


def test_files_that_the_owner_is_writing_are_not_left_overs(data: Path, opened: Directory):
    for name in ("log-00000009.db", "log-00000009.db-wal", "manifest.json.new"):
        (data / name).write_text("x")
    assert by_name(check(str(data)))["left-overs"].status == "ok"
    (data / "thesis.txt").write_text("x")
    assert by_name(check(str(data)))["left-overs"].found == "1: thesis.txt"


def test_a_manifest_that_is_replaced_meanwhile_is_read_again(data: Path, monkeypatch: pytest.MonkeyPatch):
    """The owner seals a log between the reading of the manifest and the listing of the files."""
    gone = read_manifest(data / "manifest.json").logs[0].name
    reads = []

    def reading(path: Path) -> Manifest:
        found = read_manifest(path)
        reads.append(found)
        if len(reads) == 1:
            changed(data, logs=found.logs[1:])
            (data / gone).unlink()
        return found

    monkeypatch.setattr(doctor, "read_manifest", reading)
    assert by_name(check(str(data)))["files"].status == "ok"


def test_sizes_are_told_by_kind(data: Path):
    (data / "reserve").write_bytes(bytes(3 << 20))
    found = by_name(check(str(data)))["size"].found
    for kind in ("sealed log", "checkpoint", "keys", "reserve 3.0 MiB"):
        assert kind in found


@pytest.fixture
def opened(data: Path) -> Iterator[Directory]:
    directory = Directory(data)
    yield directory
    directory.close()


def test_who_has_it_open_is_told(opened: Directory):
    before = state_of(opened.path)
    found = by_name(check(str(opened.path)))["lock"]
    assert found.status == "ok"
    assert f"pid {os.getpid()}" in found.found
    assert state_of(opened.path) == before
    with pytest.raises(InUse, match=f"pid {os.getpid()}"):
        verify(str(opened.path))


def test_nobody_is_kept_out_after_a_look(data: Path):
    (data / "lock").write_text("1\n")
    assert "no process" in by_name(check(str(data)))["lock"].found
    Directory(data).close()
    assert "no process" in by_name(check(str(data)))["lock"].found


def test_writers_are_kept_out_while_every_row_is_read(data: Path, monkeypatch: pytest.MonkeyPatch):
    (data / "lock").write_text("1\n")
    tried: list[bool] = []

    sealed = LogFile.sealed

    def trying_to_open(path: Path) -> LogFile:
        with (data / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                tried.append(True)
            except BlockingIOError:
                tried.append(False)
        return sealed(path)

    monkeypatch.setattr(LogFile, "sealed", trying_to_open)
    assert {finding.status for finding in verify(str(data))} == {"ok"}
    assert tried == [False, False]


# --- every row -------------------------------------------------------------------------------------


def test_a_directory_in_order_is_verified_and_untouched(data: Path):
    before = state_of(data)
    found = by_name(verify(str(data)))
    assert {finding.status for finding in found.values()} == {"ok"}
    assert list(found) == ["log-00000001.db", "log-00000002.db", "sequence", "checkpoint-00000003", "keys.db"]
    assert found["sequence"].found == "6 rows, 12 records, without gaps"
    assert state_of(data) == before


def test_only_data_directories_are_verified(tmp_path: Path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidRequest, match="is not a data directory"):
            verify(str(path))


def problems(data: Path) -> list[str]:
    before = state_of(data)
    found = [f"{one.name}: {one.found}" for one in verify(str(data)) if one.status == "problem"]
    assert state_of(data) == before
    return found


def test_every_damaged_byte_of_a_log_is_found_or_holds_nothing(data: Path):
    """What stays unnoticed are bytes that no row lies in: free space, counters and the like of SQLite."""
    path = data / "log-00000001.db"
    whole = path.read_bytes()
    rows = [row(0, 1)[2], row(1, 1, 3)[2]]
    places = [whole.index(content) + at for content in rows for at in range(0, len(content), 7)]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert problems(data)
    for size in (0, 100, 4096, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert problems(data)


SECOND = [row(0, 4), row(1, 4), row(0, 6)]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([row(0, 5), row(1, 4), row(0, 7, 1)], "lacks 4 to 4 of shard 0"),
        ([row(0, 4), row(1, 4), row(0, 7, 1)], "lacks 6 to 6 of shard 0"),
        ([row(0, 4), row(0, 6)], "ends at 3 of shard 1, not at 5"),
        ([row(0, 4), row(1, 4)], "ends at 5 of shard 0, not at 7"),
        ([row(0, 2), *SECOND], "has 2 of shard 0 a second time"),
        ([row(0, 4, 3), row(1, 4), row(0, 6)], "has 6 of shard 0 a second time"),
        ([], "ends at 3 of shard 0"),
    ],
)
def test_what_is_missing_or_there_twice_is_found(data: Path, rows: list[tuple[int, int, bytes]], told: str):
    (data / "log-00000002.db").unlink()
    write_log(data / "log-00000002.db", rows)
    assert any(told in problem for problem in problems(data)), problems(data)


def test_a_rewritten_file_may_lack_what_nothing_needs(data: Path):
    """Below the checkpoint and below what readers were promised, rows may be gone; above, none."""
    (data / "log-00000001.db").unlink()
    write_log(data / "log-00000001.db", [row(0, 3, 1)])
    manifest = read_manifest(data / "manifest.json")
    sparse = msgspec.structs.replace(manifest.logs[0], state="sparse")
    changed(data, logs=[sparse, manifest.logs[1]], lowest=[4, 4])
    assert not problems(data)
    changed(data, lowest=[3, 4])
    assert not problems(data)
    changed(data, lowest=[2, 4])
    assert "lacks 2 to 2 of shard 0" in problems(data)[0]
    changed(data, lowest=[4, 4], checkpoint=None, position=[])
    assert "shard" in problems(data)[0]


def with_open_log(data: Path, rows: list[tuple[int, int, bytes]]) -> None:
    """As a process leaves a directory that was killed: a file with everything in its write-ahead log."""
    aside = data.parent / "aside"
    aside.mkdir()
    file = LogFile.create(aside / "log-00000004.db", Disk())
    for shard, first, content in rows:
        file.append([(position_of(shard, first), content)])
    for side in ("", "-wal"):
        shutil.copyfile(aside / f"log-00000004.db{side}", data / f"log-00000004.db{side}")
    file.close()
    manifest = read_manifest(data / "manifest.json")
    changed(data, logs=[*manifest.logs, LogEntry(name="log-00000004.db", state="open")], clean=False)


def test_what_a_killed_process_left_is_read_from_a_copy(data: Path):
    with_open_log(data, [row(0, 8), row(1, 6)])
    assert (data / "log-00000004.db-wal").stat().st_size
    before = state_of(data)
    found = by_name(verify(str(data)))
    assert found["log-00000004.db"].found == "2 rows, 4 records"
    assert {finding.status for finding in found.values()} == {"ok"}
    assert state_of(data) == before


def test_less_than_was_flushed_is_a_problem(data: Path):
    with_open_log(data, [row(0, 8), row(1, 6)])
    mark = Mark(data / "mark", 2, Disk())
    mark.set([9, 7])
    assert not problems(data)
    mark.set([9, 8])
    assert problems(data) == ["mark: the log ends at 7 of shard 1, but 8 had been flushed to disk"]
    mark.close()


@pytest.mark.parametrize("name", ["checkpoint-00000003", "keys.db"])
@pytest.mark.parametrize("content", [b"nonsense", bytes(9000)])
def test_damage_outside_the_log_is_found(data: Path, name: str, content: bytes):
    (data / name).write_bytes(content)
    assert [problem.partition(":")[0] for problem in problems(data)] == [name]


def test_a_checkpoint_cut_short_is_found(data: Path):
    path = data / "checkpoint-00000003"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert problems(data)


def test_sizes_read_well():
    assert [doctor._bytes(count) for count in (0, 1023, 1024, 1536, 5 << 30, 3 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
