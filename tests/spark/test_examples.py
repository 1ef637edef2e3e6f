"""The examples with Spark do what they say, in the session that is there already."""

import re
import runpy

import pytest
from pyspark.sql import SparkSession

from tests.examples.processes import EXAMPLES


def test_texts_that_are_alike_have_vectors_that_are_near(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / "spark_embeddings.py"), run_name="__main__")
    first, *compared = capsys.readouterr().out.splitlines()
    assert first == "4 vectors, 1 text without one: there is nothing to embed"
    alike, *others = [float(line.rpartition(":")[2]) for line in compared]
    assert alike > 0.5
    assert all(other < 0.2 for other in others)


def test_a_schedule_runs_the_pipeline_as_a_job(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    """It takes in the hundred pushes, and what is told of the run itself until then."""
    runpy.run_path(str(EXAMPLES / "pipeline_schedule.py"), run_name="__main__")
    printed = re.search(r"completed \{'events': (\d+), 'batches': 1\}", capsys.readouterr().out)
    assert printed is not None
    assert int(printed[1]) > 100
