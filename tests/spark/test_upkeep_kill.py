"""kill -9 between two file operations of a batch, `expire`, `vacuum` or `forget`: every table stays readable and
whole, and the next run does what was left. Without Spark; the tables are read by the tests' own reader, and by
deltalake.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stoker.spark.lake import table
from stoker.spark.lake.layout import Tables
from stoker.spark.lake.table import LakeBatch
from tests.mutants.planting import Edit, planted_in_children
from tests.soaking import SOAKS
from tests.spark.killing import DAYS, FORGOTTEN, KEPT, WORK, killed_at, traced_to
from tests.spark.lake_rows import NOON, ROWS, STREAM, count, events, finished, stored
from tests.spark_cluster.plain_lake import Contents, all_contents, newest

log = logging.getLogger(__name__)

LAYERS = ("bronze", "jobs")
POINTS = 6
POINTS_TRACED = 150


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A batch for each day, and a file of a batch that was never committed. The logs of the tables have checkpoints.
    Look at it, and change nothing.
    """
    place = tmp_path_factory.mktemp("kept") / "lake"
    tables = Tables(str(place), make=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table.SETTINGS, "delta.checkpointInterval", "3")
        for number in range(DAYS):
            finished(tables, number, NOON + timedelta(days=number), tenant=f"default,{FORGOTTEN}")
    stored(tables, "jobs", LakeBatch(STREAM, 99), [events(99)])
    assert all(any((place / layer / "_delta_log").glob("*.checkpoint.parquet")) for layer in LAYERS)
    assert len(with_forgotten(place)) == DAYS * len(LAYERS)
    return place


def batches(numbers: range) -> Contents:
    return Counter(
        (0, sequence, 0) for number in numbers for sequence in range(number * ROWS + 1, (number + 1) * ROWS + 1)
    )


EVERYTHING = batches(range(DAYS))
AFTERWARDS = {
    "take_in": batches(range(DAYS + 1)),
    "expire_and_vacuum": batches(range(DAYS - KEPT, DAYS)),
    "forget": Counter((0, sequence, 0) for sequence in range(1, DAYS * ROWS + 1, 2)),
}


def check_whole(lake: Path, work: str, *, is_done: bool) -> None:
    """Each table is as it was before, or as it should be afterwards."""
    for layer in LAYERS:
        found = all_contents(lake, layer)
        assert found in ([] if is_done else [EVERYTHING]) + [AFTERWARDS[work]], f"{layer}: {found}"
        assert count(Tables(str(lake)), layer) == found.total()


def check_clean(lake: Path) -> None:
    """No file is left that no table needs."""
    for layer in LAYERS:
        there = {str(path.relative_to(lake / layer)) for path in (lake / layer).glob("date=*/*")}
        assert there == newest(lake / layer).files


def with_forgotten(lake: Path) -> list[Path]:
    """The files that have rows of the tenant, whether a table needs them or not: their statistics name it."""
    return [file for file in lake.glob("*/date=*/*") if FORGOTTEN.encode() in file.read_bytes()]


def check_point(kill: Callable[..., int | None], point: int, work: str, lake: Path, place: Path) -> bool:
    """False if it ended before it could be killed: the threads of delta-rs do not ask for the same every time."""
    shutil.copytree(lake, place)
    is_killed = kill(point, work, place) is None
    check_whole(place, work, is_done=not is_killed)
    WORK[work](str(place))
    check_whole(place, work, is_done=True)
    if work == "expire_and_vacuum":
        check_clean(place)
    elif work == "forget":
        assert with_forgotten(place) == []
    else:
        finished(Tables(str(place)), DAYS + 1, NOON + timedelta(days=DAYS + 1))
        assert all_contents(place, "bronze") == batches(range(DAYS + 2))
    shutil.rmtree(place)
    return is_killed


def check_points(kill: Callable[..., int | None], points: int, work: str, lake: Path, folder: Path) -> None:
    """So many points, spread over the whole work."""
    shutil.copytree(lake, folder / "whole")
    total = kill(0, work, folder / "whole")
    assert total is not None
    assert total > POINTS
    check_whole(folder / "whole", work, is_done=True)
    chosen = sorted({1 + (total - 1) * number // (points - 1) for number in range(points)})
    kills = sum(check_point(kill, point, work, lake, folder / str(point)) for point in chosen)
    log.warning("%s: killed at %s of %s points", work, kills, total)
    assert kills > 0.9 * len(chosen)


@pytest.mark.parametrize("work", AFTERWARDS)
def test_work_on_a_lake_that_is_killed_between_its_steps_is_done_by_the_next_run(lake: Path, work: str, tmp_path: Path):
    check_points(killed_at, 1_000 if SOAKS else POINTS, work, lake, tmp_path)


def test_an_expire_that_deletes_before_it_commits_is_noticed(lake: Path, tmp_path: Path):
    commit = "    tables.table(layer).commit("
    delete = '    _ = [tables.files.remove(f"{layer}/{file.path}") for file in gone]'
    bug = Edit("spark.lake.upkeep:expire_layer", commit, f"{delete}\n{commit}")
    with planted_in_children([bug]), pytest.raises(FileNotFoundError):
        check_points(killed_at, POINTS, "expire_and_vacuum", lake, tmp_path)


def test_a_forget_that_deletes_before_it_commits_is_noticed(lake: Path, tmp_path: Path):
    commit = "    lake.table(layer).commit("
    delete = '    _ = [lake.files.remove(f"{layer}/{file.path}") for file in old]'
    bug = Edit("spark.lake.forgetting:forget_in", commit, f"{delete}\n{commit}")
    with planted_in_children([bug]), pytest.raises(FileNotFoundError):
        check_points(killed_at, 2 * POINTS, "forget", lake, tmp_path)


if SOAKS:

    @pytest.mark.parametrize("work", AFTERWARDS)
    def test_the_same_between_any_two_requests_to_the_system(lake: Path, work: str, tmp_path: Path):
        """Also inside of delta-rs: a commit that is half written, a checkpoint of the log that is not named yet."""
        check_points(traced_to, POINTS_TRACED, work, lake, tmp_path)
