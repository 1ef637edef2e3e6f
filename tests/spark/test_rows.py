"""Rows become jobs: columns called like options are options, the rest is the payload."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stoker.model.errors import InvalidRequest
from stoker.model.option_table import TABLE
from stoker.model.options import Backoff, Dependency, Options
from stoker.spark.rows import OPTION_COLUMNS, Jobs, Rejected, RowShape


def jobs_of(columns: dict[str, Any], queue: str | None = "q", as_payload: tuple[str, ...] = ()) -> list[Jobs]:
    found, rejected = sorted_out(columns, queue, as_payload)
    assert not rejected
    return found


def sorted_out(
    columns: dict[str, Any], queue: str | None = "q", as_payload: tuple[str, ...] = ()
) -> tuple[list[Jobs], Rejected]:
    batch = pa.RecordBatch.from_pydict(columns)
    return RowShape(batch.schema, queue, as_payload).jobs(batch)


def test_a_payload_column_is_the_payload():
    (jobs,) = jobs_of({"payload": [b"one", b"two"]})
    assert jobs == Jobs("q", [b"one", b"two"], Options(), None, range(2))
    (jobs,) = jobs_of({"payload": ["text"]})
    assert jobs.payloads == [b"text"]


def test_without_one_the_row_is():
    (jobs,) = jobs_of({"user_id": [7, 8], "nested": [{"a": [1]}, None], "priority": [1, 1]})
    assert [msgspec.msgpack.decode(payload) for payload in jobs.payloads] == [
        {"user_id": 7, "nested": {"a": [1]}},
        {"user_id": 8, "nested": None},
    ]
    assert (jobs.options, jobs.each) == (Options(priority=1, codec="msgpack"), None)


def test_options_that_differ_are_each_rows_own():
    columns = {"payload": [b"a", b"b"], "priority": [1, None], "unique_key": ["k", "l"], "name": ["n", "n"]}
    (jobs,) = jobs_of(columns)
    assert jobs.each == [Options(priority=1, unique_key="k", name="n"), Options(unique_key="l", name="n")]


def test_moments_and_tags_are_taken_as_what_they_are():
    moment = datetime(2026, 11, 16, 8, tzinfo=UTC)
    (jobs,) = jobs_of({"payload": [b"a"], "run_at": [moment], "tags": [["x", "y"]]})
    assert jobs.options == Options(run_at=round(moment.timestamp() * 1000), tags=("x", "y"))


def test_rows_go_to_the_queues_that_they_name():
    found = jobs_of({"payload": [b"1", b"2", b"3"], "queue": ["a", "b", None], "priority": [1, 2, 3]})
    assert [(jobs.queue, jobs.payloads) for jobs in found] == [("a", [b"1"]), ("b", [b"2"]), ("q", [b"3"])]
    assert [jobs.each for jobs in found] == [[Options(priority=number)] for number in (1, 2, 3)]


def test_a_column_can_be_kept_for_the_payload():
    (jobs,) = jobs_of({"priority": [1, 2], "name": ["a", "b"]}, as_payload=("name",))
    assert [msgspec.msgpack.decode(payload) for payload in jobs.payloads] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("columns", "queue", "said"),
    [
        ({"payload": [b"x"]}, None, "no queue"),
        ({"payload": [1]}, "q", "expected binary or string"),
        ({"payload": [b"x"], "user": [1]}, "q", "columns user are beside payload"),
        ({"payload": [b"x"], "priority": ["high"]}, "q", "column priority is string"),
        ({"payload": [b"x"], "tags": ["a"]}, "q", "expected array<string>"),
        ({"payload": [None]}, "q", "column payload is null"),
    ],
)
def test_what_cannot_be_a_job_is_refused(columns: dict[str, Any], queue: str | None, said: str):
    with pytest.raises(InvalidRequest, match=said):
        jobs_of(columns, queue)


def test_rows_that_cannot_be_jobs_are_told_of_with_their_places():
    columns = {
        "payload": [b"a", None, b"c", b"d", None],
        "queue": ["x", "x", None, "y", None],
        "priority": [1, 2, 3, 4, 5],
    }
    found, rejected = sorted_out(columns, queue=None)
    assert [(jobs.queue, jobs.payloads, jobs.places) for jobs in found] == [("x", [b"a"], [0]), ("y", [b"d"], [3])]
    assert [jobs.each for jobs in found] == [[Options(priority=1)], [Options(priority=4)]]
    assert sorted(rejected) == [1, 2, 4]
    assert "has no payload" in rejected[1]
    assert "has no queue" in rejected[2]


def test_requests_hold_no_more_jobs_and_bytes_than_they_should():
    (jobs,) = jobs_of({"payload": [b"x" * size for size in (4, 4, 9, 30, 1, 1, 1)], "priority": list(range(7))})
    pieces = list(jobs.pieces(2, 10))
    assert [[len(payload) for payload in piece.payloads] for piece in pieces] == [[4, 4], [9], [30], [1, 1], [1]]
    assert [place for piece in pieces for place in piece.places] == list(range(7))
    assert [one.priority for piece in pieces for one in piece.each or []] == list(range(7))
    assert list(jobs.pieces(7, 50)) == [jobs]


CELLS: dict[str, tuple[Any, Any]] = {
    "run_at": (datetime(2026, 11, 16, tzinfo=UTC), 1_794_787_200_000),
    "backoff": ({"kind": "fixed", "base_ms": 5, "cap_ms": None}, Backoff("fixed", 5)),
    "on_conflict": ("replace", "replace"),
    "depends_on": ([64, 128], (Dependency(64), Dependency(128))),
    "tags": (["x"], ("x",)),
}
"""What stands in a column, and what the option is then; of others a number, a text or true."""


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.is_column])
def test_every_option_can_be_a_column(name: str):
    examples = {"int": 7, "string": "text", "bool": True}
    cell, option = CELLS.get(name) or (examples[OPTION_COLUMNS[name][0]],) * 2
    (jobs,) = jobs_of({"payload": [b"a"], name: [cell]})
    expected: dict[str, Any] = {name: option}
    assert jobs.options == Options(**expected)


def test_a_number_is_the_base_of_a_backoff():
    (jobs,) = jobs_of({"payload": [b"a"], "backoff": [250]})
    assert jobs.options == Options(backoff=Backoff(base_ms=250))
    with pytest.raises(InvalidRequest, match="column backoff has the field delay: expected some of kind, base_ms"):
        jobs_of({"payload": [b"a"], "backoff": [{"delay": 5}]})
