"""One commit makes a batch visible, once and in order, whatever comes between; planted bugs are noticed."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from stoker.spark.lake import table, upkeep
from stoker.spark.lake.layout import LakeElsewhere, Tables, derived
from stoker.spark.lake.table import Change, FileMissing, LakeBatch, TableChanged, live_files, maintained
from tests.mutants.planting import Edit, planted_here
from tests.spark.lake_rows import NOON, ROWS, SCHEMA, STREAM, count, derive, events, finished, put, stored
from tests.spark_cluster.plain_lake import newest, snapshots

OTHER = "ffff0000-0000-0000-0000-000000000000"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "lake"), make=True)


def repeated(tables: Tables) -> int:
    """A batch that comes twice, each time with a fresh handle."""
    derive(tables, 0)
    derive(tables, 0)
    return count(tables, "jobs")


def overtaken(tables: Tables) -> int:
    """Another process commits the same batch between the decision and the commit."""
    batch = LakeBatch(STREAM, 0)
    files = stored(tables, "jobs", batch, [events(0)])
    decide, rivals = derived(batch), [1]

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        found = decide(handle)
        while rivals:
            rivals.pop()
            derive(tables, 0)
        return found

    tables.table("jobs").commit(Change(files), claim)
    return count(tables, "jobs")


def test_a_batch_is_committed_once(tables: Tables):
    assert repeated(tables) == ROWS


def test_a_batch_that_another_process_commits_meanwhile_is_there_once(tables: Tables):
    assert overtaken(tables) == ROWS


def test_a_commit_without_the_check_is_noticed(tables: Tables):
    bug = Edit("spark.lake.layout:derived", "None if last_of(handle, batch.app) >= batch.number else ", "")
    with planted_here([bug]):
        assert repeated(tables) == 2 * ROWS


def test_a_check_on_another_handle_is_noticed(tables: Tables):
    bug = Edit(
        "spark.lake.table:Table.commit", "handle.create_write_transaction(", "self.open().create_write_transaction("
    )
    with planted_here([bug]):
        assert overtaken(tables) == 2 * ROWS


def test_a_file_that_is_not_there_as_it_was_written_is_not_committed(tables: Tables, tmp_path: Path):
    batch = LakeBatch(STREAM, 0)
    files = stored(tables, "jobs", batch, [events(0)])
    place = tmp_path / "lake" / "jobs" / files[0].path
    place.write_bytes(b"cut off")
    with pytest.raises(FileMissing, match="has 7 bytes"):
        tables.table("jobs").commit(Change(files), derived(batch))
    place.unlink()
    with pytest.raises(FileMissing, match="is gone"):
        tables.table("jobs").commit(Change(files), derived(batch))
    assert count(tables, "jobs") == 0


def test_a_batch_begins_where_the_lake_ends(tables: Tables):
    """Also the first batch of another checkpoint, whose numbers begin at 0 again: it is neither skipped nor doubled."""
    finished(tables, 0)
    with pytest.raises(LakeElsewhere, match=r"ends at record 10 of shard 0, and the batch begins after 20.*remove"):
        put(tables, 2)
    with pytest.raises(LakeElsewhere, match="begins after 0"):
        put(tables, 0, stream=OTHER)
    assert not put(tables, 0), "it is there already"
    assert put(tables, 1, stream=OTHER)
    assert count(tables, "bronze") == 2 * ROWS
    assert tables.positions() == {0: 20}


def test_a_batch_counts_when_all_tables_have_it(tables: Tables):
    finished(tables, 0)
    put(tables, 1)
    views = tables.view(["bronze", "jobs"])
    assert {layer: sum(file.rows for file in view.files) for layer, view in views.items()} == dict.fromkeys(
        ("bronze", "jobs"), ROWS
    )
    assert tables.unfinished() == [LakeBatch(STREAM[:8], 1)]
    assert sum(file.rows for file in tables.files_of(LakeBatch(STREAM, 1))) == ROWS
    derive(tables, 1)
    tables.finish(LakeBatch(STREAM, 1))
    assert sum(file.rows for file in tables.view(["jobs"])["jobs"].files) == 2 * ROWS


def test_a_new_column_comes_in_a_version_of_its_own(tables: Tables):
    finished(tables, 0)
    more = {
        **SCHEMA,
        "fields": [*SCHEMA["fields"], {"name": "note", "type": "string", "nullable": True, "metadata": {}}],
    }
    before = tables.table("bronze").open().version()
    tables.table("bronze").create(more)
    assert tables.table("bronze").open().version() == before + 1
    tables.table("bronze").create(more)
    assert tables.table("bronze").open().version() == before + 1
    put(tables, 1)
    rows = tables.table("bronze").open().to_pyarrow_table()
    assert (rows.num_rows, rows["note"].null_count) == (2 * ROWS, 2 * ROWS)


def test_of_two_compactions_at_once_one_commits(tables: Tables):
    for number in range(3):
        finished(tables, number)
    old = tables.view(["bronze"])["bronze"].files
    rows = [events(number) for number in range(3)]
    changes = [
        Change(stored(tables, "bronze", LakeBatch("merged", 0), rows), old, changes_data=False) for _ in range(2)
    ]
    claim = maintained({file.path for file in old})
    assert tables.table("bronze").commit(changes[0], claim)
    with pytest.raises(TableChanged, match="nothing was changed"):
        tables.table("bronze").commit(changes[1], claim)
    assert count(tables, "bronze") == 3 * ROWS


def test_a_compaction_that_is_overtaken_decides_again(tables: Tables):
    """The other one commits between its decision and its commit."""
    for number in range(2):
        finished(tables, number)
    old = tables.view(["bronze"])["bronze"].files
    one, other = (
        Change(stored(tables, "bronze", LakeBatch("merged", 0), [events(0), events(1)]), old, changes_data=False)
        for _ in range(2)
    )
    decide, rivals = maintained({file.path for file in old}), [other]

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        found = decide(handle)
        if rivals:
            tables.table("bronze").commit(rivals.pop(), decide)
        return found

    with pytest.raises(TableChanged):
        tables.table("bronze").commit(one, claim)
    assert count(tables, "bronze") == 2 * ROWS


def test_statistics_say_what_is_in_a_file(tables: Tables):
    put(tables, 0, NOON + timedelta(milliseconds=7), tenant="acme")
    (file,) = live_files(tables.table("bronze").open())
    assert (file.rows, file.date, file.low["tenant"], file.high["event"]) == (ROWS, "2026-11-18", "acme", "pushed")
    assert file.low["time"] == NOON + timedelta(milliseconds=7)
    assert file.may_have("time", NOON + timedelta(minutes=9), None)
    assert not file.may_have("time", NOON + timedelta(minutes=10), None)
    assert not file.may_have("time", None, NOON)
    assert not file.may_have("tenant", "acne", "acne")


# --- retention --------------------------------------------------------------------------------------


def days_of(tables: Tables, layer: str) -> list[str]:
    return sorted({file.date for file in live_files(tables.table(layer).open())})


def test_whole_days_expire_without_a_file_being_read_or_deleted(tables: Tables, tmp_path: Path):
    for number in range(4):
        finished(tables, number, NOON + timedelta(days=number))
    put(tables, 4, NOON)  # of an old day, and not in all tables yet
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*.parquet")}
    now = NOON + timedelta(days=4)
    done = upkeep.expire(tables, timedelta(days=2), now=now)
    assert [(one.layer, one.days, one.rows) for one in done] == [
        ("bronze", ["2026-11-18", "2026-11-19"], 2 * ROWS),
        ("jobs", ["2026-11-18", "2026-11-19"], 2 * ROWS),
    ]
    assert days_of(tables, "jobs") == ["2026-11-20", "2026-11-21"]
    assert sum(file.rows for file in tables.files_of(LakeBatch(STREAM, 4))) == ROWS
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*.parquet")} == there
    assert upkeep.expire(tables, timedelta(days=2), now=now) == []
    assert [one.layer for one in upkeep.expire(tables, timedelta(days=1), ["jobs"], now)] == ["jobs"]


def test_vacuum_deletes_what_was_replaced_or_never_committed_long_ago(tables: Tables, tmp_path: Path):
    finished(tables, 0)
    finished(tables, 1, NOON + timedelta(days=1))
    lost = [stored(tables, "bronze", LakeBatch(STREAM, 9), [events(9)])[0].path for _ in range(2)]
    long_ago = time.time() - 25 * 3600
    os.utime(tmp_path / "lake" / "bronze" / lost[0], (long_ago, long_ago))
    upkeep.expire(tables, timedelta(0), ["bronze"], NOON + timedelta(days=1))
    assert {one.layer: one.files for one in upkeep.vacuum(tables)} == {"bronze": 1, "jobs": 0}
    there = {path.name for path in (tmp_path / "lake" / "bronze").rglob("*.parquet")}
    assert Path(lost[0]).name not in there
    assert Path(lost[1]).name in there
    assert {one.layer: one.files for one in upkeep.vacuum(tables, timedelta(0), only_removed=True)} == {
        "bronze": 1,
        "jobs": 0,
    }
    assert (tmp_path / "lake" / "bronze" / lost[1]).exists(), "a batch may be writing it now"
    assert count(tables, "bronze") == ROWS


def test_history_and_status_tell_of_batches_and_maintenance(tables: Tables):
    finished(tables, 0)
    finished(tables, 1, NOON + timedelta(days=1))
    upkeep.expire(tables, timedelta(0), ["jobs"], NOON + timedelta(days=1))
    assert next(one["operation"] for one in upkeep.history(tables, ["jobs"])) == "expire"
    told = [(one["operation"], one.get("batch")) for one in upkeep.history(tables, ["bronze"], 2)]
    assert told == [("whole", 1), ("batch", 1)]
    status = upkeep.status(tables)
    assert status["positions"] == {"0": 20}
    assert [(one["layer"], one["rows"], one["first_day"]) for one in status["layers"]] == [
        ("bronze", 2 * ROWS, "2026-11-18"),
        ("jobs", ROWS, "2026-11-19"),
    ]
    assert datetime.fromisoformat(status["layers"][0]["newest"]) == NOON + timedelta(days=1, minutes=9)


def test_every_version_within_retention_has_whole_batches(tables: Tables, tmp_path: Path):
    """As our own reader of the log sees it, and as deltalake does: after a checkpoint of the log, files that were
    merged, a day that expired, and a vacuum.
    """
    place = tmp_path / "lake" / "bronze"
    for number in range(6):
        finished(tables, number, NOON + timedelta(days=number // 3))
        if number == 1:
            old = tables.view(["bronze"])["bronze"].files
            merged = stored(tables, "bronze", LakeBatch("merged", 0), [events(0), events(1)])
            change = Change(merged, old, changes_data=False)
            assert tables.table("bronze").commit(change, maintained({file.path for file in old}))
        if number == 3:
            tables.table("bronze").open().create_checkpoint()
    upkeep.expire(tables, timedelta(0), ["bronze"], NOON + timedelta(days=1))
    expired = newest(place).version
    assert [one.files for one in upkeep.vacuum(tables)] == [0, 0]
    finished(tables, 6, NOON + timedelta(days=1))
    for one in snapshots(place):
        rows = DeltaTable(str(place), version=one.version).to_pyarrow_dataset()
        first = 3 if one.version >= expired else 0
        wanted = range(first * ROWS + 1, (one.batch + 1) * ROWS + 1)
        assert sorted(rows.to_table(columns=["sequence"])["sequence"].to_pylist()) == list(wanted)
        assert {Path(file).name for file in rows.files} == {Path(file).name for file in one.files}


def test_the_log_of_a_table_keeps_two_days_and_forgets_no_position(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Else the log would grow with every batch, for as long as the lake lives."""
    monkeypatch.setitem(table.SETTINGS, "delta.checkpointInterval", "5")
    three_days_ago = time.time() - 3 * 86_400
    log = tmp_path / "lake" / "bronze" / "_delta_log"
    for number in range(12):
        finished(tables, number)
        for file in log.iterdir():
            os.utime(file, (three_days_ago, three_days_ago))
    version = tables.table("bronze").open().version()
    assert version > 20
    assert min(int(file.stem) for file in log.glob("*.json")) >= version - 5
    assert count(tables, "bronze") == 12 * ROWS
    assert (tables.positions(), tables.unfinished()) == ({0: 12 * ROWS}, [])
    assert not put(tables, 11), "the last batch is still known"


def test_rows_go_to_the_date_of_their_events(tables: Tables):
    midnight = datetime(2026, 11, 19, tzinfo=UTC)
    rows = [events(1, midnight - timedelta(minutes=4)), events(2, midnight - timedelta(days=21_000))]
    files = stored(tables, "bronze", LakeBatch(STREAM, 0), rows)
    assert {file.date: file.rows for file in files} == {"2026-11-18": 4, "2026-11-19": 6, "1969-05-22": ROWS}
