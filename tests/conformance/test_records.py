"""Raw log records, for readers that make tables of them: the same events, unpacked by the reader."""

from typing import Any

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


def test_one_pass_brings_the_records_of_several_tenants(world: ContractWorld):
    """In the order of the log, and of no others."""
    clients = {tenant: world.client_for(tenant) for tenant in ("a", "b", "c")}
    for tenant in ("a", "c", "b", "a"):
        push(clients[tenant])
    page = world.client.read_records(tenants=["a", "b"])
    assert [event.tenant for event in unpacked(page)] == ["a", "b", "a"]
    assert not world.client.read_records(tenants=[]).records


def test_queues_are_chosen_by_the_beginnings_of_their_names(client: Client):
    for queue in ("mail", "mail:eu", "mobile", "sms"):
        push(client, queue=queue)

    def queues(**wanted: Any) -> set[str]:
        return {event.queue for event in unpacked(client.read_records(**wanted))}

    assert queues(prefixes=["mail"]) == {"mail", "mail:eu"}
    assert queues(prefixes=["mo", "mail:"], queues=["sms"]) == {"mail:eu", "mobile", "sms"}
    assert queues(prefixes=[""]) == {"mail", "mail:eu", "mobile", "sms"}
    assert queues(prefixes=[]) == set()


def test_events_are_counted_where_the_log_is(client: Client):
    """As many as a reader would make of the records, whatever they are about."""
    finish(client)
    kill(client)
    push_many(client, 7)
    client.pause("other")
    whole = client.read_records()
    for kinds in (None, ["pushed"], ["completed", "queue_configured"]):
        events = [event for event in unpacked(client.read_records(kinds=kinds)) if kinds is None or event.kind in kinds]
        page = client.read_records(kinds=kinds, counted=True)
        assert (page.records, page.events, page.since) == ([], len(events), events[0].at)
        assert page.next_after == whole.last
    assert client.read_records(counted=True).bytes == sum(len(one.head) + len(one.body) for one in whole.records)
    nothing = client.read_records(queues=["none"], counted=True)
    assert (nothing.events, nothing.bytes, nothing.since, nothing.next_after) == (0, 0, 0, whole.last)


def test_a_page_has_as_many_events_as_asked_for(client: Client):
    """A record is never torn: one that is too large comes alone."""
    for jobs in (2, 3, 9, 1):
        push_many(client, jobs)
    found: list[int] = []
    after = 0
    while after < client.read_records().last:
        page = client.read_records(after=after, events_max=5)
        assert page.events == len(unpacked(page))
        found.append(page.events)
        assert client.read_records(after=after, events_max=5, counted=True).next_after == page.next_after
        after = page.next_after
    assert found == [5, 9, 1]


@pytest.mark.parametrize(
    "command",
    [
        c.ReadRecords(shard=64),
        c.ReadRecords(after=-1),
        c.ReadRecords(until=-1),
        c.ReadRecords(bytes_max=0),
        c.ReadRecords(queues=["no name"]),
        c.ReadRecords(prefixes=["no name"]),
        c.ReadRecords(events_max=0),
    ],
)
def test_what_makes_no_sense_is_refused(world: ContractWorld, command: c.ReadRecords):
    check_refused(world, InvalidRequest, command)


def test_a_page_over_the_limit_is_refused(world: ContractWorld):
    check_refused(world, LimitExceeded, c.ReadRecords(bytes_max=1 << 40))
