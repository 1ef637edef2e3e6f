"""The example with vectors does what it says, in the session that is there already."""

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
