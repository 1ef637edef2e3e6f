"""Payloads become structs; those that cannot stay in their rows, with the reason and their bytes, and are counted."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import stoker.spark
from stoker.cli.main import stoker as program
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.lake import running, silver
from stoker.spark.lake.compaction import compact_layer
from stoker.spark.lake.layout import Lake
from stoker.spark.payloads import closed, opened, structs_of
from tests.spark.test_source import table

KIND = pa.struct([("user_id", pa.int64()), ("mail", pa.string())])


def one(payload: bytes, **fields: pa.DataType) -> tuple[Any, str | None]:
    structs, errors = structs_of([payload], pa.struct(list(fields.items())))
    return structs[0].as_py(), errors[0].as_py()


def test_payloads_become_structs_and_those_that_do_not_fit_say_why():
    payloads = [
        msgspec.msgpack.encode({"user_id": 7, "mail": "a@b"}),
        b'{"user_id": 8, "more": true}',
        b'{"user_id": "eight"}',
        b"[1, 2]",
        b"\xc1",
        b'{"user_id": 9',
        b"",
        None,
    ]
    structs, errors = structs_of(payloads, KIND)
    assert structs.to_pylist() == [{"user_id": 7, "mail": "a@b"}, {"user_id": 8, "mail": None}, *[None] * 6]
    assert errors.to_pylist()[:2] == [None, None]
    assert "got `str` - at `$.user_id`" in errors[2].as_py()
    assert "got `array`" in errors[3].as_py()
    assert "it begins with b'\\xc1'" in errors[4].as_py()
    assert "neither JSON nor MessagePack" in errors[5].as_py()
    assert errors[6].as_py()
    assert errors[7].as_py() is None


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b'{"x": 1.5}', pa.int64()),
        (b'{"x": 300}', pa.int8()),
        (b'{"x": true}', pa.int64()),
        (b'{"x": 1}', pa.string()),
        (b'{"x": 123456.5}', pa.decimal128(5, 2)),
        (b'{"x": "soon"}', pa.timestamp("us", "UTC")),
        (b'{"x": [1, "two"]}', pa.list_(pa.int32())),
    ],
)
def test_a_value_is_never_bent_until_it_fits(payload: bytes, kind: pa.DataType):
    value, error = one(payload, x=kind)
    assert value is None
    assert error is not None


def test_values_of_all_kinds_are_decoded():
    payload = b'{"at": "2026-01-02T03:04:05Z", "price": "1.50", "raw": "eA==", "many": [1, null], "by": {"a": 0.5}}'
    value, error = one(
        payload,
        at=pa.timestamp("us", "UTC"),
        price=pa.decimal128(5, 2),
        raw=pa.binary(),
        many=pa.list_(pa.int32()),
        by=pa.map_(pa.string(), pa.float64()),
    )
    assert error is None
    assert value == {
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "price": Decimal("1.50"),
        "raw": b"x",
        "many": [1, None],
        "by": [("a", 0.5)],
    }


def test_a_payload_is_written_as_it_was():
    for payload in (b'{"a":1}', msgspec.msgpack.encode({"a": 1})):
        assert closed(opened(payload), payload) == payload


# --- by Spark ------------------------------------------------------------------------------------------


def test_dead_letters_come_with_decoded_payloads(spark: SparkSession, url: str, queue: Client):
    good = [msgspec.msgpack.encode({"user_id": number}) for number in range(5)]
    queue.push_batch("mail", [*good, b"no map"], max_attempts=1)
    for job in queue.pull("mail", 10):
        queue.fail(job.id, job.token, "boom")
    rows = table(spark, url, table="dead_letters", queues="mail", payloadSchema="user_id bigint, to array<string>")
    assert rows.where("reason = 'max_attempts_exceeded' and payload.user_id >= 3").count() == 2
    (bad,) = rows.where("payload is null").select("payload_error", "payload_raw").collect()
    assert "not a map in JSON or MessagePack" in bad["payload_error"]
    assert bad["payload_raw"] == b"no map"


def test_events_come_with_decoded_payloads_and_no_row_is_dropped(spark: SparkSession, url: str, queue: Client):
    queue.push_batch("mail", [b'{"user_id": 1}', b'{"user_id": 2}', b"\xff"])
    queue.pull("mail", 3)
    rows = table(spark, url, payloadSchema="user_id int not null", columns="event,payload,payload_error,payload_raw")
    found = [(row["event"], row["payload"] and row["payload"]["user_id"], row["payload_raw"]) for row in rows.collect()]
    assert sorted(found, key=repr) == [
        ("pushed", 1, None),
        ("pushed", 2, None),
        ("pushed", None, b"\xff"),
        *[("started", None, None)] * 3,
    ]
    sound, corrupt = stoker.spark.quarantine(rows)
    assert (sound.count(), corrupt.count()) == (5, 1)


def test_fail_fast_names_the_job(spark: SparkSession, url: str, queue: Client):
    ids = queue.push_batch("mail", [b'{"user_id": 1}', b'{"user_id": "two"}']).ids
    rows = table(spark, url, payloadSchema="user_id int", mode="failfast", columns="time,payload")
    assert rows.columns == ["time", "payload"]
    with pytest.raises(PySparkException, match=rf"payload of job {ids[1]} cannot be decoded.*\$\.user_id"):
        rows.collect()


def test_a_schema_that_spark_cannot_read_is_refused_before_any_data_moves(spark: SparkSession, url: str, queue: Client):
    with pytest.raises(PySparkException, match=r"(?i)bigit"):
        table(spark, url, payloadSchema="user_id bigit")


def test_a_lake_keeps_corrupt_payloads_once_and_counts_them(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also one that was begun without looking at payloads, and after batches of both kinds were made one."""
    monkeypatch.setattr(running, "STEPS", {"jobs": silver.jobs})  # others have claims of their own, and cost seconds
    path = str(tmp_path / "lake")
    queue.push("mail", b"never looked at")
    assert running.run(spark, path, {"url": url}).quarantined == 0
    ids = list(queue.push_batch("mail", [b'{"user_id": 1}', b'{"user_id": 2.5}', b"no map"]).ids)
    ids += queue.push_batch("sms", [b"broken", b'{"user_id": 4}']).ids
    words = ["pipeline", "run", "--lake", path, "--url", url, "--payload-schema", "user_id bigint", "--json"]
    done = CliRunner().invoke(program, [*words, "--most", "1"])  # a batch for each push
    assert done.exit_code == 0, done.output
    assert (json.loads(done.stdout)["batches"], json.loads(done.stdout)["quarantined"]) == (2, 3)
    lake = Lake(spark, path)
    for _ in ("as it is", "compacted"):
        bronze, quarantine = lake.read("bronze"), lake.read("quarantine")
        assert bronze is not None
        assert quarantine is not None
        decoded = [row["payload"] for row in bronze.select("payload").collect()]
        assert (len(decoded), sum(payload is not None for payload in decoded)) == (6, 2)
        corrupt = quarantine.collect()
        assert {(row["job"], row["queue"], row["payload_raw"]) for row in corrupt} == {
            (ids[1], "mail", b'{"user_id": 2.5}'),
            (ids[2], "mail", b"no map"),
            (ids[3], "sms", b"broken"),
        }
        assert all(row["payload_error"] and row["sequence"] and row["time"] for row in corrupt)
        compact_layer(lake, "bronze")
    assert len(lake.view(["bronze"])["bronze"].files) == 1
    with pytest.raises(InvalidRequest, match="user_id is string, and in this lake it has been bigint"):
        running.run(spark, path, {"url": url, "payloadSchema": "user_id string"})
