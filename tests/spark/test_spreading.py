"""A log is cut into tasks by how much work a task is worth, not only by the machine that plans. How a task reads."""

import gc
import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from stoker.spark.stretches import stretches, without_collector


@pytest.mark.parametrize(
    ("records", "cores", "tasks"),
    [
        (100, 8, 1),  # not worth a second one
        (100_000, 8, 5),
        (100_000, 1, 2),
        (20_000_000, 2, 100),  # a driver of two cores, before a cluster of a hundred
    ],
)
def test_a_long_log_is_cut_for_a_cluster(monkeypatch: pytest.MonkeyPatch, records: int, cores: int, tasks: int):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert len(stretches({0: 0}, {0: records}, 0)) == tasks


def test_the_collector_is_off_only_while_a_batch_is_made():
    seen: list[bool] = []

    def made() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            seen.append(gc.isenabled())
            yield pa.record_batch({"job": [1]})
        raise ValueError("the log is damaged")

    batches = without_collector(made())
    for _ in range(2):
        next(batches)
        assert gc.isenabled()
    assert seen == [False, False]
    with pytest.raises(ValueError, match="the log is damaged"):
        next(batches)
    assert gc.isenabled()
