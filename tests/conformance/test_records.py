"""Raw log records, for readers that make tables of them: the same events, unpacked by the reader."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.events import Event
from stoker.model.replies import LoggedRecord, Records
from stoker.records.codec import open_record
from stoker.records.events import events_of
from stoker.records.records import JobsPushed
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, finish, kill, push, push_many


def unpacked(page: Records, shard: int = 0) -> list[Event]:
    return [event for record in page.records for event in events_of(shard, record.sequence, opened(record))]


def opened(record: LoggedRecord):
    return open_record(record.sequence, record.head, record.body)


def test_records_mean_the_events_that_can_be_read(world: ContractWorld):
    client = world.client
    finish(client)
    kill(client)
    push_many(client, 3, tags=("a", "b"), name="kind")
    client.pause("other")
    client.kv_set("no event", b"value")
    page = client.read_records()
    assert unpacked(page) == list(client.read_events().events)
    assert page.next_after == page.last
    assert (page.lowest, page.shards) == (client.read_events().lowest, 1)


def test_payloads_stay_behind_unless_asked_for(client: Client):
    client.push_batch("q", [b"one", b"three"])
    (bare,) = client.read_records().records
    record = opened(bare)
    assert type(record) is JobsPushed
    assert [len(payload) for payload in record.payloads] == [3, 5]
    assert bare.body == b""
    (whole,) = client.read_records(payloads=True).records
    assert list(opened(whole).payloads) == [b"one", b"three"]


def test_only_queues_and_kinds_that_were_asked_for_come(client: Client):
    finish(client)
    push(client, queue="other")
    assert {event.queue for event in unpacked(client.read_records(queues=["other"]))} == {"other"}
    assert {str(event.kind) for event in unpacked(client.read_records(kinds=["completed", "failed"]))} == {"completed"}
    assert not client.read_records(queues=[]).records


def test_any_page_size_brings_every_record_once(client: Client):
    for _ in range(5):
        finish(client)
    whole = client.read_records()
    found: list[LoggedRecord] = []
    after = 0
    while after < whole.last:
        page = client.read_records(after=after, bytes_max=1)
        found += page.records
        assert page.next_after > after
        after = page.next_after
    assert found == list(whole.records)


def test_reading_ends_where_it_was_told_to(client: Client):
    for _ in range(3):
        finish(client)
    whole = client.read_records()
    middle = whole.records[4].sequence
    page = client.read_records(until=middle)
    assert list(page.records) == list(whole.records[:5])
    assert page.next_after == middle
    assert not client.read_records(after=middle, until=middle).records
    assert client.read_records(after=whole.last).next_after == whole.last


def test_no_record_of_another_tenant_comes(world: ContractWorld):
    push(world.client)
    push(world.client_for("other"))
    page = world.client.read_records()
    assert {event.tenant for event in unpacked(page)} == {"default"}
    assert len(page.records) == 1


@pytest.mark.parametrize(
    "command",
    [
        c.ReadRecords(shard=64),
        c.ReadRecords(after=-1),
        c.ReadRecords(until=-1),
        c.ReadRecords(bytes_max=0),
        c.ReadRecords(queues=["no name"]),
    ],
)
def test_what_makes_no_sense_is_refused(world: ContractWorld, command: c.ReadRecords):
    check_refused(world, InvalidRequest, command)


def test_a_page_over_the_limit_is_refused(world: ContractWorld):
    check_refused(world, LimitExceeded, c.ReadRecords(bytes_max=1 << 40))
