"""Checkpoints that come too late: on a machine that is busy all the time, and on a disk that is full."""

import sys
import time
from pathlib import Path

import pytest

import stoker
from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.journal.directory import read_manifest
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.disk import Disk
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c

STARVED = """
import runpy, sys, time
if sys.argv[1] == "19":
    time.sleep(3_600)
runpy.run_module("stoker.journal.checkpointing", run_name="__main__")
"""
"""Stands for the process on a busy machine: with a low priority it does not get on."""
FILES = 2
SMALL = JournalSettings(wal_bytes_max=20_000, checkpoint_files=FILES)
PATIENCE_S = 60.0


def journal_of(broker: LocalBroker) -> DirectoryStore:
    assert isinstance(broker.store, DirectoryStore)
    return broker.store


def push_until_saved(broker: LocalBroker) -> int:
    """Push until a checkpoint is in force; how many jobs that took."""
    store = journal_of(broker)
    assert store.upkeep is not None
    pushed, until = 0, time.monotonic() + PATIENCE_S
    while not store.upkeep.retention.made:
        assert time.monotonic() < until, "no checkpoint was made"
        broker.execute("default", c.Push("q", b"x" * 1_000))
        pushed += 1
    return pushed


def test_a_checkpoint_that_gets_no_time_is_begun_anew_with_the_usual_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("stoker.journal.retention.LogRetention.command", (sys.executable, "-c", STARVED))
    path = tmp_path / "data"
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2, journal=SMALL))
    pushed = push_until_saved(broker)
    broker.close()
    assert any("takes too long" in record.message for record in caplog.records)
    assert read_manifest(path / "manifest.json").checkpoint is not None
    with stoker.connect(f"sqlite:///{path}") as queue:
        assert queue.get_counts("q").waiting == pushed


def test_a_checkpoint_in_time_has_a_low_priority(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    broker = open_sqlite(str(tmp_path / "data"), {}, LocalSettings(shards=2, journal=SMALL))
    store = journal_of(broker)
    assert store.upkeep is not None
    retention = store.upkeep.retention
    with store.upkeep.work_lock:
        retention.begin()
        assert not retention._is_hasty
        retention.wait()
    broker.close()
    assert retention.made == 1
    assert not caplog.records


def test_a_checkpoint_that_a_full_disk_has_no_room_for_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """What is left of the disk is for acks: a checkpoint may take half of it."""
    path = tmp_path / "data"
    broker = open_sqlite(str(path), {}, LocalSettings(shards=2, journal=SMALL))
    store = journal_of(broker)
    assert store.upkeep is not None
    retention = store.upkeep.retention
    with store.upkeep.work_lock:
        store.journal.is_full = True
        monkeypatch.setattr(Disk, "free_bytes", lambda disk, path: 20)
        retention.begin()
        retention.wait()
        monkeypatch.undo()
    broker.close()
    assert retention.made == 0
    assert "takes more than 10 bytes" in retention.failed
    assert not list(path.glob("checkpoint-*"))
