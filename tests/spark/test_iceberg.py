"""An export into an Iceberg catalogue equals the tables, version by version, however often it is killed."""

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stoker.cli.main import stoker
from stoker.model.errors import InvalidRequest
from stoker.spark.lake import iceberg, upkeep
from stoker.spark.lake.compaction import MERGED
from stoker.spark.lake.iceberg import ExportBehind, export
from stoker.spark.lake.layout import Tables
from stoker.spark.lake.table import Change, live_files, maintained
from stoker.spark.lake.writing import FileWriter, read_rows
from tests.spark.lake_rows import NOON, ROWS, events, finished, put

NAME = "warehouse"
WAIT_S = 60
OLD = NOON.replace(year=2020)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "lake"), make=True)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A catalogue in SQLite, as its users name it."""
    (tmp_path / NAME).mkdir()
    begin = f"PYICEBERG_CATALOG__{NAME.upper()}__"
    place = tmp_path / NAME
    return {f"{begin}URI": f"sqlite:///{place}/catalog.db", f"{begin}WAREHOUSE": place.as_uri()}


@pytest.fixture
def catalog(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    from pyiceberg.utils.config import Config

    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # pyiceberg reads the environment once
    return NAME


def exported(layer: str) -> list[int]:
    """The records of an Iceberg table."""
    rows = iceberg.open_catalog(NAME).load_table(f"stoker.{layer}").scan().to_arrow()
    return sorted(rows["sequence"].to_pylist())


def there(tables: Tables, layer: str) -> list[int]:
    return sorted(tables.table(layer).open().to_pyarrow_table(columns=["sequence"])["sequence"].to_pylist())


def merge(tables: Tables, layer: str) -> None:
    """A compaction without Spark."""
    old = live_files(tables.table(layer).open())
    schema = iceberg.arrow_schema(tables, layer, tables.table(layer).open().version())
    rows = (batch for file in old for batch in read_rows(tables.files, layer, file.path, schema))
    new = list(FileWriter(tables.files, layer, MERGED).write(rows))
    change = Change(new, old, {"operation": "compact"}, changes_data=False)
    tables.table(layer).commit(change, maintained({file.path for file in old}))


def test_a_second_export_adds_only_what_is_new(tables: Tables, catalog: str):
    finished(tables, 0)
    assert [(one.layer, one.rows) for one in export(tables, catalog)] == [("bronze", ROWS), ("jobs", ROWS)]
    finished(tables, 1)
    finished(tables, 2)
    news = list(export(tables, catalog))
    assert [(one.layer, one.rows) for one in news] == [("bronze", 2 * ROWS), ("jobs", 2 * ROWS)]
    assert news[1].versions == 2, "one commit for each version that has rows"
    assert [one.versions for one in export(tables, catalog)] == [0, 0]
    for layer in ("bronze", "jobs"):
        assert exported(layer) == there(tables, layer) == list(range(1, 3 * ROWS + 1))


def test_a_batch_that_some_table_lacks_waits(tables: Tables, catalog: str):
    finished(tables, 0)
    put(tables, 1)
    list(export(tables, catalog))
    assert exported("bronze") == list(range(1, ROWS + 1))
    finished(tables, 1)
    list(export(tables, catalog))
    assert exported("bronze") == list(range(1, 2 * ROWS + 1))


def test_a_compaction_changes_no_row_and_expiry_removes_its_days(tables: Tables, catalog: str):
    finished(tables, 0, OLD)
    finished(tables, 1)
    list(export(tables, catalog))
    merge(tables, "jobs")
    finished(tables, 2)
    list(export(tables, catalog))
    assert exported("jobs") == list(range(1, 3 * ROWS + 1))
    upkeep.expire(tables, timedelta(days=30), ["jobs"], now=NOON)
    assert [one.rows for one in export(tables, catalog, layers=["jobs"])] == [0]
    assert exported("jobs") == there(tables, "jobs") == list(range(ROWS + 1, 3 * ROWS + 1))


def test_rows_that_were_rewritten_replace_those_of_their_dates(tables: Tables, catalog: str):
    """As `forget` does: files go, and come again without some of their rows."""
    finished(tables, 0, OLD)
    finished(tables, 1)
    list(export(tables, catalog))
    old = [file for file in live_files(tables.table("jobs").open()) if file.date == str(NOON.date())]
    new = list(FileWriter(tables.files, "jobs", MERGED).write([events(1).slice(3)]))
    tables.table("jobs").commit(Change(new, old), maintained({file.path for file in old}))
    list(export(tables, catalog))
    assert exported("jobs") == there(tables, "jobs") == [*range(1, ROWS + 1), *range(ROWS + 4, 2 * ROWS + 1)]


KILLED = """
import os, signal, sys
from pyiceberg.table import Table
from stoker.spark.lake.iceberg import export
from stoker.spark.lake.layout import Tables

commits, whole = [int(sys.argv[2])], Table._do_commit

def commit(self, *given, **named):
    commits[0] -= 1
    if commits[0] == 0 and sys.argv[3] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, *given, **named)
    if commits[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

Table._do_commit = commit
list(export(Tables(sys.argv[1]), "warehouse"))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_export_that_is_killed_goes_on_and_doubles_nothing(
    tables: Tables, catalog: str, settings: dict[str, str], when: str
):
    """Its data files are written; the commit is not made, or made and not heard of."""
    finished(tables, 0)
    list(export(tables, catalog))
    for number in (1, 2):
        finished(tables, number)
    command = [sys.executable, "-c", KILLED, tables.files.root, "2", when]
    died = subprocess.run(command, env=os.environ | settings, timeout=WAIT_S, check=False)
    assert died.returncode == -signal.SIGKILL
    assert exported("bronze") == list(range(1, (2 if when == "before" else 3) * ROWS + 1))
    list(export(tables, catalog))
    for layer in ("bronze", "jobs"):
        assert exported(layer) == list(range(1, 3 * ROWS + 1))


def test_two_exports_at_once_double_nothing(tables: Tables, catalog: str, monkeypatch: pytest.MonkeyPatch):
    """One is overtaken between its decision and its commit."""
    finished(tables, 0)
    list(export(tables, catalog))
    finished(tables, 1)
    plain, rivals = iceberg.parts, [1]

    def overtaken(*given: Any) -> Any:
        while rivals:
            rivals.pop()
            list(export(tables, catalog, layers=["jobs"]))
        return plain(*given)

    monkeypatch.setattr(iceberg, "parts", overtaken)
    assert [one.versions for one in export(tables, catalog, layers=["jobs"])] == [0]
    assert exported("jobs") == list(range(1, 2 * ROWS + 1))


def test_a_version_that_is_gone_is_told(tables: Tables, catalog: str, tmp_path: Path):
    finished(tables, 0)
    list(export(tables, catalog))
    finished(tables, 1)
    handle = tables.table("jobs").open()
    handle.create_checkpoint()
    (tmp_path / "lake/jobs/_delta_log" / f"{handle.version():020d}.json").unlink()
    with pytest.raises(ExportBehind, match=f"version {handle.version()} of jobs .* drop the Iceberg table"):
        list(export(tables, catalog, layers=["jobs"]))


def test_the_command_says_what_it_has_copied(tables: Tables, catalog: str):
    finished(tables, 0)
    words = ["pipeline", "export", "--iceberg", NAME, "--lake", tables.files.root]
    assert (
        CliRunner().invoke(stoker, [*words, "--layer", "jobs"]).stdout
        == "jobs: 10 rows in 1 version, now at version 1\n"
    )
    told = json.loads(CliRunner().invoke(stoker, [*words, "--json"]).stdout)
    assert [(one["layer"], one["rows"]) for one in told] == [("bronze", ROWS), ("jobs", 0)]
    assert CliRunner().invoke(stoker, [*words, "--layer", "jobs"]).stdout == "jobs: nothing new, now at version 1\n"
    with pytest.raises(InvalidRequest, match="PYICEBERG_CATALOG__UNKNOWN__URI"):
        list(export(tables, "unknown"))
