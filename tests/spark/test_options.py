"""Invalid options are refused before any data moves, with the option and the valid values."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from stoker.model.errors import InvalidRequest
from stoker.spark.options import read_options
from stoker.spark.source import check_schema
from stoker.spark.stream import read_back, written
from stoker.spark.stretches import stretches
from stoker.spark.tables import EVENTS


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urll": "x"}, "did you mean url"),
        ({"table": "job"}, "expected one of events"),
        ({"events": "finished"}, "there is no event 'finished'"),
        ({"columns": "time,jobb"}, "there is no column 'jobb'"),
        ({"startingOffsets": "first"}, "expected earliest, latest, or JSON"),
        ({"startingOffsets": '{"0": -1}'}, "expected earliest"),
        ({"startingOffsets": "earliest", "startingTimestamp": "0"}, "give only one"),
        ({"startingTimestamp": "yesterday"}, "2026-11-16T08:00:00Z"),
        ({"maxRecordsPerTrigger": "-5"}, "at least 0"),
        ({"minPartitions": "many"}, "whole number"),
        ({"maxBytesPerTrigger": "much"}, "expected bytes, such as 64MiB"),
        ({"maxTriggerDelay": "soon"}, "expected a time such as 30s"),
        ({"minRecordsPerTrigger": "9", "maxRecordsPerTrigger": "8"}, "the least is more than the most"),
        ({"subscribePattern": "mail("}, "no regular expression"),
        ({"subscribePattern": "mail", "queues": "mail"}, "give only one"),
        ({"failOnDataLoss": "maybe"}, "expected true or false"),
        ({"queues": " , "}, "is empty"),
        ({"tenants": "a,b", "tenant": "a"}, "give only one"),
        ({"batchRows": "0"}, "at least 1"),
        ({"endingOffsets": '{"0": "5"}'}, "option endingOffsets .* by shard, the last record read"),
        ({"endingOffsets": "[5]"}, "expected earliest"),
        ({"payloadSchema": "a int", "mode": "strict"}, "expected PERMISSIVE or FAILFAST"),
        ({"payloadSchema": "a int", "mode": "DROPMALFORMED"}, "payload_error is null"),
        ({"mode": "FAILFAST"}, "which is missing"),
        ({"payloadSchema": " "}, "expected fields and types"),
        ({"payloadSchema": "a int", "columns": "job,payload"}, "would hide payloads that cannot be decoded"),
        ({"payloadSchema": "a int", "columns": "job,payload_error"}, "add payload"),
        ({"columns": "payload_error"}, "there is no column 'payload_error'"),
    ],
)
def test_what_means_nothing_is_refused_by_its_name(options: dict[str, str], said: str):
    with pytest.raises(InvalidRequest, match=said):
        read_options(options)


def test_names_of_options_have_no_case():
    options = read_options({"MAXRECORDSPERTRIGGER": "7", "failondataloss": "FALSE", "Queues": "a, b"})
    assert (options.max_records_per_trigger, options.fail_on_data_loss, options.queues) == (7, False, ("a", "b"))


def test_no_repr_tells_a_token():
    assert "secret" not in repr(read_options({"token": "secret", "url": "tcp://queue:6789"}))


def test_batches_begin_at_the_beginning_and_streams_now():
    assert read_options({}).starting == "earliest"
    assert read_options({}, streaming=True).starting == "latest"


def test_times_may_be_numbers_or_words():
    assert read_options({"startingTimestamp": "1000"}).starting == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert read_options({"endingTimestamp": "2026-01-02T00:00:00"}).ending == datetime(2026, 1, 2, tzinfo=UTC)


def test_columns_come_in_the_order_asked_for():
    assert [column.name for column in read_options({"columns": "job,time,job"}).columns] == ["job", "time"]
    assert read_options({}).columns == EVENTS
    assert read_options({"includePayload": "true"}).columns[-1].name == "payload"


def test_decoded_payloads_come_with_what_could_not_be_decoded():
    decoded = {"payloadSchema": "a int"}
    assert [column.name for column in read_options(decoded).columns[-3:]] == ["payload", "payload_error", "payload_raw"]
    assert read_options(decoded | {"mode": "FailFast"}).columns[-1].name == "payload"
    assert read_options(decoded | {"mode": "FAILFAST", "columns": "payload"}).fail_fast
    assert not read_options(decoded).fail_fast


@pytest.mark.parametrize(
    ("ours", "schema", "said"),
    [
        ({}, "job string, event string", "has `job string`, which the table does not have"),
        ({"columns": "job,event"}, "event string, job bigint", "in another order"),
        ({"columns": "job,event"}, "job bigint", "other columns"),
        ({"table": "jobs"}, "jobb bigint", "table jobs has `jobb bigint`"),
        (
            {"columns": "job,payload", "payloadSchema": "a int", "mode": "FAILFAST"},
            "job bigint, payload string",
            "string",
        ),
    ],
)
def test_another_schema_than_the_tables_own_is_refused(ours: dict[str, str], schema: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        check_schema(read_options(ours), StructType([field(*word.split()) for word in schema.split(", ")]))


def field(name: str, kind: str) -> StructField:
    return StructField(name, {"string": StringType(), "bigint": LongType()}[kind])


def test_only_events_are_a_stream():
    with pytest.raises(InvalidRequest, match="read jobs as a batch"):
        read_options({"table": "jobs"}, streaming=True)


# --- how much at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [0, 1, 5, 16])
def test_every_record_is_in_exactly_one_stretch(least: int):
    start, end = {0: 10, 1: 0, 2: 7}, {0: 90_000, 1: 0, 2: 30_007}
    found = stretches(start, end, least)
    covered = sorted(piece for stretch in found for piece in stretch.pieces)
    for shard in start:
        at = start[shard]
        for _, after, until in [piece for piece in covered if piece[0] == shard]:
            assert after == at
            at = until
        assert at == end[shard]
    assert len(found) >= max(1, least)


def test_nothing_new_is_no_stretch():
    assert stretches({0: 5}, {0: 5}, 8) == []


def test_offsets_read_the_same_after_spark_has_kept_them():
    offsets = {10: 5, 2: 7, 0: 0}
    assert list(written(offsets)) == ["00", "02", "10"]
    assert read_back(written(offsets)) == offsets
