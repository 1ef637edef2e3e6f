"""Values of every type of Spark's in rows that become jobs, and those that cannot be in a payload."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StructField, StructType, TimestampType, VariantType, YearMonthIntervalType

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.rows import RowShape
from stoker.spark.schemas import arrow_schema

COUNTS = pa.map_(pa.string(), pa.int64())


def payloads(batch: pa.RecordBatch) -> tuple[list[Any], dict[int, str]]:
    found, rejected = RowShape(batch.schema, "q").jobs(batch)
    return [msgspec.msgpack.decode(payload) for jobs in found for payload in jobs.payloads], rejected


def test_every_type_of_spark_has_a_form_in_a_payload(spark: SparkSession, url: str, queue: Client):
    """With the time of a job beside it: a DataFrame with a moment in it could not be written at all."""
    row = spark.range(1).selectExpr(
        "timestamp'2030-01-01 00:00:00 UTC' AS run_at",
        "timestamp'2026-01-02 03:04:05.5 Europe/Berlin' AS at",
        "timestamp_ntz'2026-01-02 03:04:05' AS local",
        "date'2026-01-02' AS day",
        "CAST(1.50 AS decimal(10,2)) AS price",
        "X'00FF' AS raw",
        "map('a', struct(array(1, null) AS list)) AS nested",
        "CAST(null AS struct<a: int>) AS missing",
        "null AS nothing",
    )
    row.write.format("stoker").options(url=url, queue="values").mode("append").save()
    (job,) = queue.browse("values").jobs
    assert job.due == 1_893_456_000_000
    assert msgspec.msgpack.decode(job.payload) == {
        "at": datetime(2026, 1, 2, 2, 4, 5, 500_000, UTC),
        "local": "2026-01-02T03:04:05",
        "day": "2026-01-02",
        "price": "1.50",
        "raw": b"\x00\xff",
        "nested": {"a": {"list": [1, None]}},
        "missing": None,
        "nothing": None,
    }


def test_maps_are_maps_wherever_they_are():
    structs = pa.array([{"m": [("x", 1)], "n": 2}, None], pa.struct([("m", COUNTS), ("n", pa.int64())]))
    columns = {
        "plain": pa.array([[("a", 1), ("b", None)], []], COUNTS),
        "listed": pa.array([[[("c", 3)], None], None], pa.list_(COUNTS)),
        "inside": structs,
        "deep": pa.array([[("d", [("e", 5)])], None], pa.map_(pa.string(), COUNTS)),
    }
    found, rejected = payloads(pa.RecordBatch.from_pydict(columns))
    assert rejected == {}
    assert found == [
        {
            "plain": {"a": 1, "b": None},
            "listed": [{"c": 3}, None],
            "inside": {"m": {"x": 1}, "n": 2},
            "deep": {"d": {"e": 5}},
        },
        {"plain": {}, "listed": None, "inside": None, "deep": None},
    ]


def test_a_day_that_python_does_not_know_costs_its_own_row_only():
    days = pa.array([0, -800_000, 1], pa.int32()).cast(pa.date32())
    found, rejected = payloads(pa.RecordBatch.from_pydict({"day": days}))
    assert found == [{"day": "1970-01-01"}, {"day": "1970-01-02"}]
    assert list(rejected) == [1]
    assert "years 1 to 9999" in rejected[1]


def test_an_option_of_nothing_but_nulls_is_left_at_its_default():
    batch = pa.RecordBatch.from_pydict({"n": [1], "priority": pa.nulls(1), "tags": pa.nulls(1)})
    ((jobs,), _) = RowShape(batch.schema, "q").jobs(batch)
    assert (jobs.options.priority, jobs.options.tags, jobs.each) == (0, (), None)


@pytest.mark.parametrize(
    ("schema", "as_payload", "said"),
    [
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), (), "the column a twice"),
        (pa.schema([("a", pa.int64())]), ("nme",), "payloadColumns names nme, which the DataFrame does not have"),
        (pa.schema([("m", pa.map_(pa.list_(pa.int64()), pa.int64()))]), (), "expected strings or numbers"),
        (pa.schema([("name", pa.int64())]), (), "say so with payloadColumns"),
    ],
)
def test_what_has_no_form_is_refused_by_the_name_of_its_column(
    schema: pa.Schema, as_payload: tuple[str, ...], said: str
):
    with pytest.raises(InvalidRequest, match=said):
        RowShape(schema, "q", as_payload)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (VariantType(), r"column c is variant.*to_json"),
        (ArrayType(VariantType()), r"column c is array<variant>"),
        (StructType([StructField("i", YearMonthIntervalType())]), r"months"),
    ],
)
def test_what_only_spark_can_read_is_refused(kind: Any, said: str):
    schema = StructType([StructField("c", kind), StructField("t", TimestampType())])
    with pytest.raises(InvalidRequest, match=said):
        arrow_schema(schema)
    assert arrow_schema(schema, ("t",)).field("t").type == pa.timestamp("us", "UTC")
