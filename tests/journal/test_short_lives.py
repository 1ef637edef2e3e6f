"""Many processes that do little, one after the other: what they leave must not make each open slower than the last."""

import os
from pathlib import Path

import pytest

import stoker
from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.journal import directory_opening
from stoker.journal.directory import Manifest, read_manifest
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.logfile import LogFile
from stoker.journal.sqlite import JournalSettings
from stoker.journal.upkeep import Upkeep
from stoker.model import commands as c


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody lives so long here that the upkeep comes to anything."""
    monkeypatch.setattr("stoker.journal.upkeep.IDLE_S", 3_600)
    return tmp_path / "data"


def manifest(path: Path) -> Manifest:
    return read_manifest(path / "manifest.json")


def logs(path: Path) -> list[str]:
    return [log.name for log in manifest(path).logs]


def live(path: Path, settings: JournalSettings | None = None, *, dies: bool = False) -> None:
    """A process's life: open, push one, close."""
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2, journal=settings))
    broker.execute("default", c.Push("q", b"work"))
    if dies:
        forget(broker)
    else:
        broker.close()


def forget(broker: LocalBroker) -> None:
    """What the system does for a process that dies."""
    store, upkeep = parts_of(broker)
    upkeep.stop(0.0)
    for segment in store.journal.segments:
        segment.file.close()
    store.directory.close()
    broker.store = None
    broker.close()


def parts_of(broker: LocalBroker) -> tuple[DirectoryStore, Upkeep]:
    assert isinstance(broker.store, DirectoryStore)
    assert broker.store.upkeep is not None
    return broker.store, broker.store.upkeep


def waiting(path: Path) -> int:
    with stoker.connect(f"sqlite:///{path}") as queue:
        return queue.get_counts("q").waiting


def test_the_next_goes_on_in_the_last_file(path: Path):
    for _ in range(10):
        live(path)
    assert logs(path) == ["log-00000001.db"]
    assert waiting(path) == 10


def test_after_a_death_the_next_begins_a_new_file(path: Path):
    live(path, dies=True)
    assert not manifest(path).clean
    live(path)
    assert [log.state for log in manifest(path).logs] == ["sealed", "open"]
    assert waiting(path) == 2


def test_a_file_that_was_being_finished_is_not_written_on(path: Path):
    """Whoever opened it died after everything was moved out of its write-ahead log, and before the manifest said so."""
    live(path)
    [name] = logs(path)
    file = LogFile.reopen(path / name)
    file.seal()
    file.close()
    assert not file.wal_path.exists()
    live(path)
    assert [log.state for log in manifest(path).logs] == ["sealed", "open"]
    assert waiting(path) == 2


def test_a_file_that_has_grown_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch):
    live(path)
    monkeypatch.setattr(directory_opening, "GO_ON_BYTES", (path / f"{logs(path)[0]}-wal").stat().st_size - 1)
    live(path)
    assert [log.state for log in manifest(path).logs] == ["sealed", "open"]
    assert waiting(path) == 2


def test_a_checkpoint_that_is_due_is_made_at_the_close(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directory_opening, "GO_ON_BYTES", 0)
    settings = JournalSettings(checkpoint_files=3, checkpoint_process=False)
    for _ in range(3):
        live(path, settings)
    assert manifest(path).checkpoint is None
    live(path, settings)
    found = manifest(path)
    assert found.clean
    assert found.checkpoint is not None
    assert found.position == found.logs[2].last
    assert waiting(path) == 4


def test_a_close_that_finds_a_checkpoint_begun_waits_for_it(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directory_opening, "GO_ON_BYTES", 0)
    live(path)
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2))
    store, upkeep = parts_of(broker)
    store.patience_s = 60.0
    upkeep.retention.begin()
    broker.close()
    assert manifest(path).checkpoint is not None
    assert waiting(path) == 1


def test_a_close_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.journal.retention.LogRetention.command", ("sleep", "600"))
    live(path)
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2))
    store, upkeep = parts_of(broker)
    store.patience_s = 0.1
    upkeep.retention.begin()
    broker.close()
    assert manifest(path).checkpoint is None
    assert manifest(path).clean
    assert waiting(path) == 1


def test_a_close_puts_no_checkpoint_in_force_while_somebody_needs_the_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(directory_opening, "GO_ON_BYTES", 0)
    live(path)
    before = logs(path)
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2))
    _, upkeep = parts_of(broker)
    upkeep.retention.begin()
    assert upkeep.retention._process is not None
    upkeep.retention._process.wait()
    upkeep.retention.pinned += 1
    broker.close()
    assert manifest(path).checkpoint is None
    assert logs(path)[:1] == before


def test_a_checkpoint_is_out_of_reach_of_the_terminal(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C reaches all processes of a group: it would end in a warning with a stack."""
    monkeypatch.setattr("stoker.journal.retention.LogRetention.command", ("sleep", "600"))
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2))
    store, upkeep = parts_of(broker)
    store.patience_s = 0.0
    upkeep.retention.begin()
    assert upkeep.retention._process is not None
    assert os.getpgid(upkeep.retention._process.pid) != os.getpgid(0)
    broker.close()


def test_a_checkpoint_that_fails_at_the_close_costs_nothing_but_itself(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directory_opening, "GO_ON_BYTES", 0)
    live(path)

    def broken(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("stoker.journal.retention.make", broken)
        live(path, JournalSettings(checkpoint_files=1, checkpoint_process=False))
    assert not manifest(path).clean, "the next open recovers"
    assert waiting(path) == 2
