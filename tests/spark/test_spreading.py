"""A log is cut into tasks by how much work a task is worth, not only by the machine that plans."""

import os

import pytest

from stoker.spark.stretches import stretches


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
