"""The pages about Spark are right: their examples run as written, and no column of a lake is missing."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from stoker.cli.main import stoker
from stoker.spark.lake.quarantine import corrupt
from stoker.spark.lake.running import STEPS
from stoker.spark.tables import EVENTS, PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW, spark_schema
from tests.spark.conftest import Past

PAGES = Path(__file__).parent.parent.parent / "docs" / "pipeline"
FENCED = re.compile(r"^```(?P<language>python|sh)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)")


def typed(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "stoker"
    done = CliRunner().invoke(stoker, words)
    assert done.exit_code == 0, f"{command}: {done.output} {done.exception!r}"


def run_page(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the session that all tests share, whose processes have another directory: so paths are absolute here."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STOKER_URL", f"sqlite:///{folder}/stoker.db")
    text = (PAGES / name).read_text()
    text = text.replace("sqlite:///stoker.db", f"sqlite:///{folder}/stoker.db")
    text = text.replace("--lake lake", f"--lake {folder}/lake")
    text = text.replace('"checkpoints/', f'"{folder}/checkpoints/').replace('"archive"', f'"{folder}/archive"')
    session: dict[str, object] = {"__name__": "__main__"}
    for found in FENCED.finditer(text):
        if found["language"] == "python":
            exec(compile(found["code"], name, "exec"), session)
        else:
            for command in found["code"].splitlines():
                typed(command)


def test_the_tutorial_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page("tutorial.md", tmp_path, monkeypatch)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_page_about_workers_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page("workers.md", tmp_path, monkeypatch)


def test_the_page_about_reading_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page("reading.md", tmp_path, monkeypatch)


def test_the_examples_for_other_engines_run(past: Past, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(past.path.parent)
    (found,) = FENCED.finditer((PAGES / "tables.md").read_text())
    exec(compile(found["code"], "tables.md", "exec"), {})


def test_every_column_of_a_lake_is_told(spark: SparkSession):
    told = set(re.findall(r"`(\w+)`", (PAGES / "tables.md").read_text()))
    events = spark.createDataFrame([], spark_schema((*EVENTS, PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW), "a int"))
    steps = STEPS | {"quarantine": corrupt}
    missing = {layer: set(make(events).columns) - told for layer, make in steps.items()}
    assert missing == {layer: set() for layer in steps}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path):
    targets = [found["target"] for found in LINK.finditer(page.read_text())]
    assert [target for target in targets if not (page.parent / target).exists()] == []
