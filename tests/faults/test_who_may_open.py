"""F23, F26: one owner at a time, a later release's directory is left alone, an earlier one's is read.

How several processes use a directory through its owner is in `tests/sharing`.
"""

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from stoker.brokers.connect import open_broker
from stoker.journal.directory import Directory, LogEntry, manifest_text, read_manifest
from stoker.journal.disk import Disk
from stoker.journal.logfile import LogFile, position_of
from stoker.journal.resharding import gather, open_root
from stoker.model.errors import InvalidRequest
from stoker.records.codec import LogRow
from stoker.records.records import VERSION
from tests.crash.zygote import the_zygote
from tests.faults.roles import QUIET, Unopened, serve
from tests.faults.script import SHARDS, START_MS
from tests.faults.support import fresh_directory, opened, seen, worked
from tests.golden.regenerate import FILE


def test_a_second_process_that_wants_it_alone_is_refused_and_told_who_has_it():
    with fresh_directory() as path:
        with the_zygote().fork(serve, str(path), QUIET, 0) as owner:
            assert owner.receive() == "open"
            owner.send(("keep",))
            assert owner.receive() == "kept", "nothing is left for it to do"
            before = content(path)
            for _ in range(3):
                found = seen(path)
                assert isinstance(found, Unopened)
                assert found.code == "in_use"
                assert f"pid {owner.pid}" in found.message
            assert content(path) == before, "it has changed nothing"
            owner.kill()
        assert opened(path).jobs == [], "nobody has it any more"


def content(path: Path) -> dict[str, bytes]:
    """What holds anything; the lock tells only who asked last."""
    files = [file for file in sorted(path.iterdir()) if not file.name.endswith("-shm") and file.name != "lock"]
    return {file.name: data for file in files if (data := file.read_bytes())}


def past_of(path: Path) -> str:
    done = worked(path, seed=4, steps=30)
    assert not done.report.bad
    state = done.outcomes[-1].state
    assert state is not None
    return state


def test_a_directory_of_a_later_format_is_left_as_it_is():
    with fresh_directory() as path:
        state = past_of(path)
        file = path / "manifest.json"
        text = file.read_bytes()
        later = json.loads(text) | {"format": 2, "what": "nobody knows yet"}
        file.write_text(json.dumps(later))
        before = content(path)
        found = seen(path)
        assert isinstance(found, Unopened)
        assert found.code == "newer_format"
        assert "later release" in found.message
        assert content(path) == before
        file.write_bytes(text)
        assert opened(path).state == state


def test_a_record_of_a_later_version_is_left_as_it_is():
    with fresh_directory() as path:
        past_of_one_file(path)
        log = next(log for log in read_manifest(path / "manifest.json").logs if log.state == "sealed")
        replace_rows(path / log.name, lambda position, data: bytes([VERSION + 1]) + data[1:])
        before = content(path)
        found = seen(path)
        assert isinstance(found, Unopened)
        assert found.code == "newer_format", found
        assert log.name in found.message
        assert content(path) == before


def replace_rows(file: Path, change: Callable[[int, bytes], bytes]) -> None:
    """The same file with other rows, as long as the one before."""
    connection = apsw.Connection(str(file))
    for position, data in list(connection.execute("SELECT position, data FROM log WHERE position >= 0")):
        connection.execute("UPDATE log SET data = ? WHERE position = ?", (change(position, data), position))
    connection.close()


def test_rows_of_version_1_are_read():
    """The whole history of a directory, written anew as the first release did it: one record a row, payloads inside."""
    with fresh_directory() as path, fresh_directory() as older:
        state = past_of_one_file(path)
        rows = all_rows(path)
        directory = Directory(older, SHARDS)
        name = "log-00000001.db"
        file = LogFile.create(older / name, Disk())
        last = [0] * SHARDS
        for row, shard in rows:
            for index in range(len(row)):
                data = b"\x01" + msgspec.msgpack.encode(row.record(index, 1 << 62))
                file.append([(position_of(shard, row.first + index), data)])
                last[shard] = row.first + index
        file.seal()
        file.close()
        size = (older / name).stat().st_size
        sealed = LogEntry(name=name, state="sealed", last=last, ended_at=START_MS, bytes=size)
        directory.update(number=1, logs=[sealed])
        directory.close()
        assert opened(older).state == state


def past_of_one_file(path: Path) -> str:
    """Nothing sealed, saved or moved: the log has everything."""
    done = worked(path, seed=4, steps=30, settings=msgspec.structs.replace(QUIET, keys_in_memory=10_000))
    assert not done.report.bad
    found = opened(path)
    return found.state


def all_rows(path: Path) -> list[tuple[LogRow, int]]:
    manifest = read_manifest(path / "manifest.json")
    rows = []
    for log in manifest.logs:
        if log.state == "sealed":
            file = LogFile.sealed(path / log.name)
        else:
            file = LogFile.reopen(path / log.name)
        for shard in range(SHARDS):
            rows += [(row, shard) for row in file.rows(shard, 0)]
        file.close()
    return rows


@pytest.mark.parametrize("name", json.loads(FILE.with_name("records-1.json").read_text())["records"])
def test_a_row_of_version_1_is_one_record(name: str):
    data = bytes.fromhex(json.loads(FILE.with_name("records-1.json").read_text())["records"][name]["hex"])
    row = LogRow(data, 7)
    assert len(row) == 1
    assert type(row.record(0)).__name__ == name


STRANGE = [
    (["notes.txt"], "notes.txt"),
    (["lock", "notes.txt"], "notes.txt"),
    (["deal-00000001", "lock", "photos"], "photos"),
    (["log-1.db", "mark"], "log-1.db"),
]


@pytest.mark.parametrize(("names", "named"), STRANGE, ids=[" ".join(names) for names, _ in STRANGE])
@pytest.mark.parametrize(
    "opening", [Directory, lambda path: open_root(path, 2), lambda path: open_broker(f"sqlite:///{path}")]
)
def test_somebody_else_s_directory_is_left_as_it_is(opening: Callable[[Path], object], names: list[str], named: str):
    with fresh_directory() as path:
        path.mkdir()
        for name in names:
            (path / name).write_text("theirs")
        with pytest.raises(InvalidRequest, match=f"not a data directory and holds other files .{named}.: use a new"):
            opening(path)
        assert {file.name: file.read_text() for file in path.iterdir()} == dict.fromkeys(names, "theirs")


@pytest.mark.parametrize("opening", [Directory, lambda path, shards: open_root(path, 2, shards)])
def test_no_directory_is_made_for_a_number_of_shards_that_cannot_be(opening: Callable[[Path, int], object]):
    with fresh_directory() as path:
        path.mkdir()
        for shards in (0, 3, 128):
            with pytest.raises(InvalidRequest, match=f"{shards} shards: expected a power of two from 1 to 64"):
                opening(path / "new", shards)
        assert not list(path.iterdir())


def test_who_died_while_dealing_a_new_directory_is_followed_by_whoever_comes_next():
    """What it leaves has no manifest yet, and is no strange directory for that."""
    with fresh_directory() as path:
        path.mkdir()
        (path / "lock").write_text("1")
        (path / "deal-00000001" / "process-0").mkdir(parents=True)
        Directory(path, ready=lambda: gather(path, None, Disk(), "")).close()
        assert not (path / "deal-00000001").exists()


def test_the_text_of_the_manifest_is_what_was_read():
    with fresh_directory() as path:
        past_of(path)
        file = path / "manifest.json"
        assert manifest_text(read_manifest(file)) == file.read_bytes()
