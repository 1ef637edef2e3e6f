"""Reads and writes that would silently be empty, doubled or elsewhere are refused before any data moves."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

import stoker.spark
from stoker.model.errors import InvalidRequest, StokerError
from stoker.spark.connecting import check_there, connect
from stoker.spark.fleet.streaming import JobsSource
from stoker.spark.options import QueueConnection, check_kind, read_options
from stoker.spark.sink import BatchWriter, write_options
from stoker.spark.source import StokerSource

ROW = StructType([StructField("n", IntegerType())])


@pytest.mark.parametrize(
    ("streaming", "options", "said"),
    [
        (False, {"maxRecordsPerTrigger": "5"}, "maxRecordsPerTrigger is for a stream, and this is a batch"),
        (True, {"endingOffsets": "latest"}, "endingOffsets is for a batch, and this is a stream"),
        (True, {"endingTimestamp": "5"}, "endingTimestamp is for a batch"),
        (False, {"startingOffsets": "latest"}, "startingOffsets = latest"),
        (False, {"endingOffsets": "earliest"}, "endingOffsets = earliest"),
    ],
)
def test_what_means_nothing_in_a_batch_or_in_a_stream_is_refused(streaming: bool, options: dict[str, str], said: str):
    asked = read_options(options, streaming=streaming)
    with pytest.raises(InvalidRequest, match=said):
        check_kind(asked, streaming=streaming)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queues": "['mail', 'sms']"}, "queues: \"\\['mail'\" is not a valid name.*without brackets"),
        ({"table": "jobs", "queues": "größe"}, "queues: 'größe' is not a valid name"),
        ({"tenants": "a,b c"}, "tenants: 'b c' is not a valid name"),
        ({"tenant": "*"}, "tenant: '\\*' is not a valid name"),
        ({"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"}, "swap them"),
        ({"table": "jobs", "path": "events"}, "give only one"),
        ({"table": "jobs", "startingoffsets": "latest"}, "unknown option startingOffsets of table jobs"),
    ],
)
def test_what_would_only_never_be_found_is_refused(options: dict[str, str], said: str):
    with pytest.raises(InvalidRequest, match=said):
        read_options(options)


def test_offsets_by_name_have_no_case():
    assert read_options({"startingOffsets": " Earliest"}).starting == "earliest"


def test_who_reads_makes_no_queue(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=f"no queue in {tmp_path}/misspelt"):
        check_there(QueueConnection(f"sqlite:///{tmp_path}/misspelt?shards=2"))
    assert list(tmp_path.iterdir()) == []
    check_there(QueueConnection(f"sqlite:///{tmp_path}"))
    check_there(QueueConnection("tcp://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (QueueConnection("memory://here"), "executors are others"),
        (QueueConnection("sqlite:///somewhere", token="t"), "option token: only a server takes one"),
    ],
)
def test_a_queue_that_executors_do_not_share_is_refused(connection: QueueConnection, said: str):
    with pytest.raises(InvalidRequest, match=said):
        connect(connection)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "two words"}, "queue: 'two words' is not a valid name"),
        ({"queue": "q", "path": "somewhere"}, "unknown option path"),
    ],
)
def test_options_of_a_write_are_looked_at_before_its_rows(options: dict[str, str], said: str):
    with pytest.raises(InvalidRequest, match=said):
        write_options(options)


def test_a_server_that_is_away_is_named_before_any_row_is_computed():
    options = write_options({"url": "tcp://127.0.0.1:1?retry_s=0", "queue": "q"})
    with pytest.raises(StokerError, match=r"127\.0\.0\.1"):
        BatchWriter(options, ROW)


def test_a_result_that_is_written_whole_with_each_batch_is_no_stream_of_jobs():
    with pytest.raises(InvalidRequest, match="complete"):
        StokerSource({"queue": "q"}).streamWriter(ROW, overwrite=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"function": "upper"}, "function = 'upper'"),
        ({"function": None, "transform": 7}, "transform = 7"),
        ({"queue": []}, "no queues"),
        ({"queue": "two words"}, "'two words' is not a valid name"),
        ({"batch": "10"}, "batch = '10'"),
        ({"slots": 0}, "slots = 0"),
        ({"rounds": -1}, "rounds = -1"),
        ({"lease": "soon"}, "lease = 'soon'"),
    ],
)
def test_a_fleet_that_cannot_work_takes_no_job(changes: dict[str, Any], said: str):
    nobody: Any = None  # it is not asked
    wanted = {"queue": "q", "function": len, **changes}
    with pytest.raises(InvalidRequest, match=said):
        stoker.spark.process(nobody, wanted.pop("queue"), wanted.pop("function"), **wanted)


def test_jobs_are_a_stream_with_columns_of_its_own():
    source = JobsSource({"queues": "q", "settle": "rows"})
    with pytest.raises(InvalidRequest, match="readStream"):
        source.reader(ROW)
    with pytest.raises(InvalidRequest, match="writeStream"):
        source.writer(ROW, overwrite=False)
    with pytest.raises(InvalidRequest, match=r"leave \.schema\(\) out"):
        source.streamReader(ROW)
    with pytest.raises(InvalidRequest, match="complete"):
        source.streamWriter(ROW, overwrite=True)
