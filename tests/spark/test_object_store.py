"""A lake in an object store: every command, two writers at once, and stores that cannot be trusted or reached.

The store is moto, behind a lock (`tests/s3_server.py`).
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stoker import connect
from stoker.cli import pipeline
from stoker.cli.main import stoker
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.model.lag import FILE
from stoker.spark.lag import read_lag
from stoker.spark.lake import running, upkeep
from stoker.spark.lake.compaction import chosen
from stoker.spark.lake.files import Files, FilesFailed
from stoker.spark.lake.layout import LAYERS, NoLake, Tables
from stoker.spark.lake.object_store import StoreOverwrites
from stoker.spark.lake.table import Change, Table, TableChanged, live_files, maintained
from tests.ports import kept_port
from tests.s3_server import CARELESS, LOSSY, PAIRED, S3Server
from tests.spark.lake_rows import NOON, ROWS, SCHEMA, STREAM, count, finished, put
from tests.spark.story import live
from tests.spark.test_upkeep import said

OTHER = "ffff0000-0000-0000-0000-000000000000"
WAIT_S = 60
LOOK_S, PATIENCE_S = 0.05, 600


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def path(store: S3Server) -> str:
    return f"s3://{store.new_bucket()}/lake"


@pytest.fixture
def tables(store: S3Server, path: str) -> Tables:
    return Tables(path, make=True, storage_options=store.options)


# --- two writers -----------------------------------------------------------------------------------------


class Writer:
    """A process that has decided to commit, and waits."""

    def __init__(self, store: S3Server, lake: str, stream: str) -> None:
        command = [sys.executable, "-m", "tests.spark.store_writer", lake, stream]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | store.options
        )
        self._deadline = threading.Timer(WAIT_S, self._process.kill)
        self._deadline.start()

    def decided(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "decided\n"

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> str:
        told, _ = self._process.communicate()
        self._deadline.cancel()
        return told.strip()


def at_once(store: S3Server, *streams: str) -> tuple[Tables, list[str]]:
    """Writers that have all decided from the same version of `jobs`, and write the next one at the same time."""
    files = Files(f"s3://{store.new_bucket()}/lake", store.options)
    for layer in ("bronze", "jobs"):
        Table(files, layer).create(SCHEMA)
    writers = [Writer(store, files.root, stream) for stream in streams]
    for writer in writers:
        writer.decided()
    for writer in writers:
        writer.go()
    told = sorted([writer.end() for writer in writers])
    return Tables(files.root, storage_options=store.options), told


def test_two_processes_that_commit_at_once_make_two_versions():
    with S3Server(PAIRED) as store:
        tables, told = at_once(store, STREAM, OTHER)
        assert told == ["made", "made"]
        assert tables.table("jobs").open().version() == 2
        assert count(tables, "jobs") == 2 * ROWS


def test_a_batch_that_two_processes_commit_at_once_is_there_once():
    with S3Server(PAIRED) as store:
        tables, told = at_once(store, STREAM, STREAM)
        assert told == ["found", "made"]
        assert count(tables, "jobs") == ROWS


def test_a_store_that_overwrites_is_refused_because_it_loses_rows():
    with S3Server(PAIRED, CARELESS) as careless:
        path = f"s3://{careless.new_bucket()}/lake"
        with pytest.raises(StoreOverwrites, match=rf"the store of {path} overwrites .* use a store with conditional"):
            Tables(path, make=True, storage_options=careless.options)
        assert Files(path, careless.options).names("") == []
        tables, told = at_once(careless, STREAM, OTHER)  # as if nothing had checked it
        assert told == ["made", "made"]
        assert count(tables, "jobs") == ROWS, "one of two versions was overwritten"


def test_a_commit_whose_answer_is_lost_counts_once():
    """The client repeats the write, and is told that the version exists: it must see that the version is its own."""
    with S3Server(LOSSY) as lossy:
        tables = Tables(f"s3://{lossy.new_bucket()}/lake", storage_options=lossy.options, make=True)
        for number in range(3):
            finished(tables, number)
        assert (count(tables, "bronze"), count(tables, "jobs")) == (3 * ROWS, 3 * ROWS)
        assert tables.positions() == {0: 3 * ROWS}
        assert tables.unfinished() == []


# --- without Spark -----------------------------------------------------------------------------------------


def test_versions_files_and_retention_are_those_of_a_directory(store: S3Server, tables: Tables, tmp_path: Path):
    local = Tables(str(tmp_path / "lake"), make=True)
    for place in (tables, local):
        finished(place, 0, NOON.replace(year=2020))
        finished(place, 1)
        put(place, 2)
        assert [one.rows for one in upkeep.expire(place, NOON - NOON.replace(year=2021), now=NOON)] == [ROWS, ROWS]
    for layer in ("bronze", "jobs"):
        here, there = (place.table(layer).open() for place in (tables, local))
        assert here.version() == there.version()
        assert [file.rows for file in live_files(here)] == [file.rows for file in live_files(there)]
    assert [(one["layer"], one["rows"]) for one in upkeep.status(tables)["layers"]] == [
        (one["layer"], one["rows"]) for one in upkeep.status(local)["layers"]
    ]
    found = [(one["layer"], one["version"], one["operation"]) for one in upkeep.history(tables)]
    assert sorted(found) == sorted((one["layer"], one["version"], one["operation"]) for one in upkeep.history(local))
    removed = upkeep.vacuum(tables, NOON - NOON, only_removed=True)
    assert [(one.layer, one.files) for one in removed] == [("bronze", 1), ("jobs", 1)]
    assert count(tables, "jobs") == ROWS, "what is left can be read"


def test_another_engine_reads_a_table(store: S3Server, tables: Tables):
    finished(tables, 0)
    options = store.options | {"AWS_ALLOW_HTTP": "true"}
    rows = pl.read_delta(f"{tables.files.root}/bronze", storage_options=options)
    assert rows["sequence"].sort().to_list() == list(range(1, ROWS + 1))


def test_the_lag_is_in_the_store_too(store: S3Server, path: str, monkeypatch: pytest.MonkeyPatch):
    for name, value in store.options.items():
        monkeypatch.setenv(name, value)
    assert read_lag(path) is None
    told = {"at": 1, "events": 2, "seconds": 3.0, "is_exact": True, "shards": []}
    Files(path).write_json(FILE, told)
    assert read_lag(path) == told


def test_maintenance_that_is_overtaken_changes_nothing(tables: Tables):
    finished(tables, 0, NOON.replace(year=2020))
    stale = tables.view(["jobs"])["jobs"].files
    assert upkeep.expire(tables, NOON - NOON, ["jobs"])
    with pytest.raises(TableChanged, match="nothing was changed"):
        tables.table("jobs").commit(Change(removed=stale), maintained({file.path for file in stale}))


def test_a_store_that_cannot_be_reached_is_told_in_one_line(store: S3Server):
    with kept_port() as port:
        away = store.options | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "max_retries": "1"}
        with pytest.raises(FilesFailed, match=rf"the lake at s3://lake/x cannot be .*127.0.0.1:{port}") as told:
            Tables("s3://lake/x", make=True, storage_options=away)
        assert "\n" not in told.value.message
        assert "\x1b" not in told.value.message
    with pytest.raises(FilesFailed, match="NoSuchBucket"):
        Tables("s3://no-such-bucket/x", make=True, storage_options=store.options)
    with pytest.raises(NoLake, match="there is no lake at"):
        Tables(f"s3://{store.new_bucket()}/x", storage_options=store.options)


def test_settings_that_let_two_writers_win_are_refused(store: S3Server, path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(InvalidRequest, match=r"AWS_S3_ALLOW_UNSAFE_RENAME is set.* Unset it"):
        Tables(path, make=True, storage_options=store.options)


def test_what_needs_a_directory_says_so(
    monkeypatch: pytest.MonkeyPatch, store: S3Server, path: str, url: str, queue: Client
):
    for name, value in store.options.items():
        monkeypatch.setenv(name, value)
    queue.push("mail", b"x")
    needs = rf"{path}/_checkpoint: Spark keeps the checkpoint of a stream in a directory.* with --checkpoint"
    for words, why in ((["run", "--url", url], needs), (["convert"], "only a lake in a directory can be converted")):
        done = CliRunner().invoke(stoker, ["pipeline", *words, "--lake", path])
        assert isinstance(done.exception, InvalidRequest)
        assert re.search(why, done.exception.message)
    assert Files(path).names("") == []


# --- with Spark --------------------------------------------------------------------------------------------


def by_tenant(tables: Tables) -> dict[str, dict[str, int]]:
    """The rows of each table, without Spark."""
    found = {}
    for layer in tables.layers():
        rows = tables.table(layer).open().to_pyarrow_table(columns=["tenant"])
        found[layer] = dict(Counter(rows["tenant"].to_pylist()))
    return found


def test_a_lake_in_a_store_is_the_same_as_one_in_a_directory(
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    store: S3Server,
    path: str,
    url: str,
    queue: Client,
    tmp_path: Path,
):
    """Each command, as it is typed. Spark's workers run already: the settings reach them with their tasks."""
    for name, value in store.options.items():
        monkeypatch.setenv(name, value)
    local, source = str(tmp_path / "lake"), ("--url", url, "--tenants", "default,acme")
    there = ("--lake", path, "--checkpoint", str(tmp_path / "checkpoint"))
    live(queue, rounds=10)
    with connect(url, tenant="acme") as other:
        other.push_batch("mail", [b"x"] * 3)
    first = said("run", *source, *there)["events"]
    live(queue, seed=2, rounds=10)
    again = said("run", *source, *there)["events"]
    assert min(first, again) > 0
    assert said("run", *source, "--lake", local)["events"] == first + again
    assert said("report", "--lake", path) == said("report", "--lake", local)
    stored = Tables(path)
    rows = by_tenant(Tables(local))
    small = [layer for layer, view in stored.view(LAYERS).items() if chosen(view.files)]
    assert [one["layer"] for one in said("compact", "--lake", path)] == small
    assert by_tenant(stored) == rows, "one batch is what two are, compacted"
    receipt = said("forget", "--tenant", "acme", "--lake", path)
    assert receipt["rows"] == {layer: counts["acme"] for layer, counts in rows.items() if "acme" in counts} != {}
    left = {layer: {tenant: n for tenant, n in counts.items() if tenant != "acme"} for layer, counts in rows.items()}
    assert by_tenant(stored) == left
    operations = {one["operation"] for one in said("history", "--lake", path, "--limit", "100")}
    assert operations >= {"batch", "forget", *(["compact"] if small else [])}
    assert said("expire", "--keep", "1d", "--lake", path) == []
    assert {one["files"] for one in said("vacuum", "--lake", path)} == {0}
    status = said("status", "--lake", path)
    assert {one["layer"]: one["rows"] for one in status["layers"]} == {
        layer: sum(counts.values()) for layer, counts in left.items()
    }
    assert status["positions"] == said("status", "--lake", local)["positions"]


def test_a_stream_into_a_store_goes_on_from_its_backfill(
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    store: S3Server,
    path: str,
    url: str,
    queue: Client,
    tmp_path: Path,
):
    """As they are typed; that a signal ends a stream is a test of its own."""
    for name, value in store.options.items():
        monkeypatch.setenv(name, value)
    checkpoint = tmp_path / "checkpoint"
    into = ("--url", url, "--lake", path, "--checkpoint", str(checkpoint))
    job = first = queue.push("mail", b"too old").id
    while queue.get_job(job).pushed_at == queue.get_job(first).pushed_at:  # until the clock of the queue has moved
        job = queue.push("mail", b"x").id
    since = datetime.fromtimestamp(queue.get_job(job).pushed_at / 1000, UTC)
    begin = ("backfill", "--from", since.isoformat(), *into)
    assert said(*begin)["events"] == 1
    again = CliRunner().invoke(stoker, ["pipeline", *begin])
    assert isinstance(again.exception, running.LakeBegun)

    wanted = [job, *queue.push_batch("mail", [b"x"] * 3).ids]

    def until_asked(query: StreamingQuery) -> None:
        until((checkpoint / "commits" / "1").exists, query)
        wanted.extend(queue.push_batch("mail", [b"x"] * 2).ids)
        until((checkpoint / "commits" / "2").exists, query)
        until(lambda: read_lag(path), query)

    monkeypatch.setattr(pipeline, "until_asked", until_asked)
    done = CliRunner().invoke(stoker, ["pipeline", "stream", "--every", "100ms", *into])
    assert (done.exit_code, done.output) == (0, "")
    tables = Tables(path)
    assert tables.unfinished() == []
    bronze, minutes = (tables.table(layer).open().to_pyarrow_table() for layer in ("bronze", "minutes"))
    assert sorted(bronze["job"].to_pylist()) == sorted(wanted)
    assert sum(minutes["pushed"].to_pylist()) == len(wanted)


def until(there: Callable[[], object], query: StreamingQuery) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not there():
        assert query.isActive, query.exception()
        assert time.monotonic() < give_up
        time.sleep(LOOK_S)
