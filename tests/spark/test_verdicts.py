"""How a fleet ends deliveries: results and exceptions of functions as columns, and what the queue gets."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import stoker
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.fleet.settling import SettleOutcome, check_columns, read_ends, settle
from stoker.spark.fleet.work import Applied, Handler


def worked(queue: Client, payloads: list[bytes], function: Handler) -> tuple[list[int], SettleOutcome]:
    """A round without Spark: the ids of its jobs, and what was settled."""
    ids = list(queue.push_batch("work", payloads, max_attempts=3).ids)
    delivery = queue.pull("work", len(ids))
    table = pa.Table.from_batches([Applied(function).delivered(delivery)])
    return ids, settle(queue, delivery.token, read_ends(table), delivery.ids)


def test_a_function_says_how_a_delivery_ends_as_a_handler_does(queue: Client):
    outcomes = [
        stoker.Dead("no address"),
        stoker.Retry("5m"),
        stoker.Snooze("1h"),
        stoker.Cancel("too late"),
        OSError("x"),
        7,
    ]
    ids, done = worked(
        queue, [b"%d" % number for number in range(6)], lambda given: [outcomes[int(one)] for one in given]
    )
    assert (done.completed, done.failed, done.snoozed) == (1, 4, 1)
    dead, later, snoozed, cancelled, failed, fine = map(queue.get_job, ids)
    assert (dead.state, dead.error, dead.attempts) == ("failed", "no address", 1)
    assert (later.state, later.attempts) == ("delayed", 1)
    assert later.due - later.pushed_at >= 300_000
    assert (snoozed.state, snoozed.attempts) == ("delayed", 0)
    assert (cancelled.state, failed.state, fine.state) == ("cancelled", "delayed", "completed")
    assert failed.due - failed.pushed_at < 300_000


def test_an_outcome_that_is_raised_is_that_of_all_jobs(queue: Client):
    def hopeless(payloads: list[Any]) -> list[Any]:
        raise stoker.Dead("no model")

    _, done = worked(queue, [b"a", b"b"], hopeless)
    assert done.failed == 2
    assert queue.get_counts("work").failed == 2


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda given: np.array([len(one) for one in given]), [1, 2]),
        (lambda given: np.ones((2, 2), dtype=np.float32), [[1.0, 1.0], [1.0, 1.0]]),
        (lambda given: [{"score": np.float64(0.5)}, np.True_], [{"score": 0.5}, True]),
        (lambda given: (len(one) for one in given), [1, 2]),
    ],
)
def test_results_may_be_numbers_and_arrays_of_numpy(queue: Client, made: Handler, expected: list[Any]):
    ids, done = worked(queue, [b"a", b"bb"], made)
    assert done.completed == 2
    assert [msgspec.msgpack.decode(queue.get_job(job).result or b"") for job in ids] == expected


@pytest.mark.parametrize("given", [None, "ab", b"ab", {1: 2, 3: 4}])
def test_what_only_looks_like_a_result_for_each_job_fails_them(queue: Client, given: Any):
    ids, done = worked(queue, [b"a", b"b"], lambda payloads: given)
    assert (done.completed, done.failed) == (0, 2)
    assert f"the function returned {type(given).__name__}: return a list" in (queue.get_job(ids[0]).error or "")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_be_told_costs_no_other_job_anything(queue: Client):
    ids, done = worked(queue, [b"a", b"b"], lambda payloads: [Mute(), "\ud800"])
    assert (done.completed, done.failed) == (0, 2)
    assert queue.get_job(ids[0]).error == "Mute"


def test_a_transformation_may_give_verdicts_and_columns_of_nulls(queue: Client):
    ids = list(queue.push_batch("work", [b"a", b"b", b"c"], max_attempts=3).ids)
    delivery = queue.pull("work", 3)
    rows = pa.table(
        {"id": ids, "verdict": ["dead", "retry", None], "after_ms": [None, 60_000, None], "error": pa.nulls(3)}
    )
    assert check_columns(rows.schema, ("id",)) == ["id", "error", "verdict", "after_ms"]
    done = settle(queue, delivery.token, read_ends(rows), delivery.ids)
    assert (done.completed, done.failed) == (1, 2)
    assert [queue.get_job(job).state for job in ids] == ["failed", "delayed", "completed"]


def test_a_verdict_that_nobody_knows_is_refused():
    with pytest.raises(InvalidRequest, match="expected one of retry, dead, cancel, snooze"):
        read_ends(pa.table({"id": [1], "verdict": ["forget"]}))
