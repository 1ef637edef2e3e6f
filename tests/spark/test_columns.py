"""The columns that executors make say exactly what the queue's own events say."""

from typing import Any

import pytest

from stoker.model.events import Event
from stoker.records.codec import decode, encode
from stoker.records.events import events_of
from stoker.records.records import Record
from stoker.spark.columns import BufferedRuns
from stoker.spark.lake.silver import SINCE_DUE
from stoker.spark.tables import EVENTS, PAYLOAD, arrow_schema
from stoker.testing import World
from tests.golden.examples import RECORDS


def rows_of(records: list[tuple[int, Record]], shard: int = 0) -> list[dict[str, Any]]:
    gathered = BufferedRuns(shard)
    for sequence, record in records:
        gathered.add(sequence, record)
    batch = gathered.batch(EVENTS)
    assert batch.schema == arrow_schema(EVENTS)
    return list(batch.to_pylist())


def expected(event: Event) -> dict[str, Any]:
    """An event as a row."""
    ends = event.finished_at != 0
    times = {name: getattr(event, name) for name in ("due", "pushed_at", "started_at", "finished_at", "slot")}
    return {
        **{
            name: getattr(event, name)
            for name in ("shard", "sequence", "index", "tenant", "job", "attempt", "priority")
        },
        **{
            name: getattr(event, name) or None
            for name in ("queue", "worker", "reason", "error", "error_class", "message")
        },
        **{
            name: getattr(event, name)
            for name in ("name", "group_id", "trace", "parent_id", "percent", "chunk", "codec", "workflow", "schedule")
        },
        **{name: getattr(event, name) for name in ("payload_bytes", "result_bytes")},
        **{name: millis or None for name, millis in times.items()},
        "time": event.at,
        "event": str(event.kind),
        "data": event.data or None,
        "tags": list(event.tags),
        "wait_ms": event.wait_ms if event.started_at and event.pushed_at else None,
        "run_ms": event.run_ms if ends and event.started_at else None,
        "total_ms": event.total_ms if ends and event.pushed_at else None,
    }


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its moments in milliseconds, without what events do not have."""
    moments = ("time", "due", "pushed_at", "started_at", "finished_at", "slot")
    row = {name: value for name, value in row.items() if name not in (*SINCE_DUE, "removed")}
    return row | {name: None if row[name] is None else round(row[name].timestamp() * 1000) for name in moments}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_columns_of_every_record_are_its_events(record: Record):
    again = decode(encode(record))
    assert {row["removed"] for row in rows_of([(7, again)], 3)} <= {getattr(record, "removed", False)}
    assert [plain(row) for row in rows_of([(7, again)], 3)] == [expected(event) for event in events_of(3, 7, again)]


def test_a_log_of_many_kinds_becomes_its_events():
    with World() as world:
        client = world.client
        client.push_batch("q", [b"x" * size for size in range(20)], priority=3, tags=("a",), name="kind")
        client.push_batch("q", [b"same"] * 5, lifo=True)
        for number in range(12):
            world.advance(10)
            delivery = client.pull("q", 2, worker=f"w{number}")
            if number % 3 == 0:
                client.fail(delivery.ids[0], delivery.token, "boom", error_class="Boom")
                client.ack(delivery.ids[1], delivery.token, b"result")
            else:
                client.ack_batch(delivery.ids, delivery.token)
        records = world.broker.runtime.journal.read(0, 0, 10_000)
    wanted = [expected(event) for sequence, record in records for event in events_of(0, sequence, record)]
    assert [plain(row) for row in rows_of(records)] == wanted
    assert len(wanted) > 50


def test_payloads_come_where_they_are_asked_for():
    with World() as world:
        world.client.push_batch("q", [b"one", b"two"])
        world.client.pull("q")
        gathered = BufferedRuns(0)
        for sequence, record in world.broker.runtime.journal.read(0, 0, 100):
            gathered.add(sequence, record)
    batch = gathered.batch((*EVENTS[8:9], PAYLOAD))
    assert batch.to_pydict() == {"event": ["pushed", "pushed", "started"], "payload": [b"one", b"two", None]}


def test_only_the_kinds_asked_for_are_left():
    with World() as world:
        world.client.push_batch("q", [b"one", b"two"])
        world.client.pull("q")
        gathered = BufferedRuns(0)
        for sequence, record in world.broker.runtime.journal.read(0, 0, 100):
            gathered.add(sequence, record)
    assert gathered.batch(EVENTS[8:9], ["started"]).to_pydict() == {"event": ["started"]}


def test_no_records_are_no_rows():
    batch = BufferedRuns(0).batch(EVENTS)
    assert (batch.num_rows, batch.schema) == (0, arrow_schema(EVENTS))
