"""One event a job and step, read by sequence number; an event that ends something needs no join."""

from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.events import Event, EventKind
from stoker.model.limits import Limits
from stoker.model.options import DeadLetterPolicy, Dependency
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import STEADY, all_events, finish, kill, pulled, push, push_many, start


def last(client: Client, kind: str) -> Event:
    return [event for event in all_events(client) if event.kind == kind][-1]


def positions(events: list[Event]) -> list[tuple[int, int]]:
    return [(event.sequence, event.index) for event in events]


# --- reading -------------------------------------------------------------------------------------


def test_events_come_in_order_and_have_positions(world: ContractWorld):
    client = world.client
    for _ in range(3):
        finish(client)
        world.advance(10)
    events = all_events(client)
    assert [str(event.kind) for event in events] == ["pushed", "started", "completed"] * 3
    assert positions(events) == sorted(set(positions(events)))
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert {event.shard for event in events} == {0}
    assert events[0].sequence >= 1


def test_reading_goes_on_from_a_sequence_number(client: Client):
    finish(client)
    page = client.read_events()
    assert len(page.events) == 3
    assert page.next_after >= page.events[-1].sequence
    rest = client.read_events(after=page.next_after)
    assert (list(rest.events), rest.next_after) == ([], page.next_after)
    push(client)
    assert [str(event.kind) for event in client.read_events(after=page.next_after).events] == ["pushed"]


@pytest.mark.parametrize("limit", [1, 2, 5, 1_000])
def test_any_page_size_brings_every_event_once(client: Client, limit: int):
    for _ in range(4):
        finish(client)
    push_many(client, 3)
    whole = list(client.read_events().events)
    parts: list[Event] = []
    after = 0
    while (page := client.read_events(after=after, limit=limit)).events:
        parts.extend(page.events)
        after = page.next_after
    assert parts == whole


def test_the_events_of_one_record_are_never_torn_apart(client: Client):
    ids = push_many(client, 5)
    page = client.read_events(limit=2)
    assert [event.job for event in page.events] == ids
    assert len({event.sequence for event in page.events}) == 1
    assert [event.index for event in page.events] == [0, 1, 2, 3, 4]


def test_nothing_is_lost_below_the_lowest_sequence(client: Client):
    push(client)
    page = client.read_events()
    assert page.lowest <= page.events[0].sequence


def test_reading_can_be_narrowed_to_a_queue_and_to_kinds(client: Client):
    finish(client, "a")
    finish(client, "b")
    assert {event.queue for event in all_events(client, queue="a")} == {"a"}
    assert len(all_events(client, queue="a")) == 3
    ends = all_events(client, kinds=["completed"])
    assert [(str(event.kind), event.queue) for event in ends] == [("completed", "a"), ("completed", "b")]
    assert [event.queue for event in all_events(client, kinds=["started", "completed"], queue="b")] == ["b", "b"]
    assert all_events(client, queue="never") == []


def test_a_narrowed_reader_gets_on_even_where_nothing_matches(client: Client):
    """Its position moves past what it does not want, or it would read that again for ever."""
    for _ in range(5):
        finish(client, "a")
    page = client.read_events(queue="b", limit=1)
    assert list(page.events) == []
    finish(client, "b")
    assert len(all_events(client, page.next_after, queue="b")) == 3


def test_reading_waits_for_the_next_event(world: ContractWorld):
    client = world.client
    job = push(client, delay_ms=300)
    after = client.read_events().next_after
    begin = world.now
    page = client.read_events(after=after, wait_ms=1_000)
    assert [(str(event.kind), event.job) for event in page.events] == [("ready", job)]
    assert world.now == begin + 300
    assert list(client.read_events(after=page.next_after, wait_ms=1_000).events) == []
    assert world.now == begin + 1_300


def test_subscribing_brings_everything_until_nothing_has_come_for_a_while(world: ContractWorld):
    client = world.client
    push(client, delay_ms=300)
    push(client, delay_ms=600)
    begin = world.now
    events = list(client.subscribe(idle_ms=1_000))
    assert [str(event.kind) for event in events] == ["pushed", "pushed", "ready", "ready"]
    assert world.now == begin + 600 + 1_000


def test_subscribing_can_begin_later_and_be_narrowed(client: Client):
    finish(client, "a")
    after = client.read_events().next_after
    finish(client, "a")
    finish(client, "b")
    events = list(client.subscribe(after=after, queue="a", kinds=["completed"], idle_ms=1))
    assert [(str(event.kind), event.queue) for event in events] == [("completed", "a")]
    assert events[0].sequence > after


def test_a_subscription_is_read_as_far_as_one_likes(client: Client):
    push_many(client, 3)
    subscription = client.subscribe()
    assert [next(subscription).kind for _ in range(3)] == [EventKind.PUSHED] * 3


def test_a_tenant_reads_its_own_events_only(world: ContractWorld):
    finish(world.client)
    finish(world.client_for("acme"))
    assert {event.tenant for event in all_events(world.client)} == {"default"}
    assert {event.tenant for event in all_events(world.client_for("acme"))} == {"acme"}
    assert len(all_events(world.client_for("acme"))) == 3


# --- what they carry -----------------------------------------------------------------------------

RICH: dict[str, Any] = {
    "priority": 4,
    "tags": ("a", "b"),
    "group_id": "g",
    "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "parent_id": 640,
    "name": "welcome",
}


def test_a_push_says_what_was_pushed(world: ContractWorld):
    job = push(world.client, payload=b"hello", delay_ms=500, **RICH)
    event = last(world.client, "pushed")
    assert (event.job, event.queue, event.tenant, event.at) == (job, "q", "default", world.now)
    assert (event.priority, event.tags, event.group_id) == (4, ("a", "b"), "g")
    assert (event.trace, event.parent_id, event.name) == (RICH["trace"], 640, "welcome")
    assert (event.payload_bytes, event.pushed_at, event.due) == (5, world.now, world.now + 500)
    assert (event.started_at, event.finished_at, event.attempt) == (0, 0, 0)


def test_a_start_says_who_started_what(world: ContractWorld):
    job = push(world.client, payload=b"hello", **RICH)
    pushed_at = world.now
    world.advance(70)
    start(world.client, worker="w1")
    event = last(world.client, "started")
    assert (event.job, event.attempt, event.worker, event.at) == (job, 1, "w1", world.now)
    assert (event.pushed_at, event.started_at, event.finished_at) == (pushed_at, world.now, 0)
    assert (event.wait_ms, event.run_ms, event.total_ms) == (70, 0, 0)


def check_whole(world: ContractWorld, event: Event, job: int, pushed_at: int, started_at: int) -> None:
    """All that is needed to account for a delivery that took place."""
    assert (event.job, event.queue, event.tenant, event.at) == (job, "q", "default", world.now)
    assert (event.pushed_at, event.started_at, event.finished_at) == (pushed_at, started_at, world.now)
    assert event.wait_ms == started_at - pushed_at
    assert event.run_ms == world.now - started_at
    assert event.total_ms == world.now - pushed_at
    assert (event.attempt, event.worker, event.payload_bytes) == (1, "w1", 5)
    assert (event.priority, event.tags, event.group_id) == (4, ("a", "b"), "g")
    assert (event.trace, event.parent_id, event.name) == (RICH["trace"], 640, "welcome")


def run(world: ContractWorld, **options: Any) -> tuple[int, int, int]:
    """A job of five bytes that waited 70 ms and has run for 30 ms: its id, push and start times."""
    pushed_at = world.now
    job = push(world.client, payload=b"hello", **RICH, **options)
    world.advance(70)
    start(world.client, worker="w1")
    world.advance(30)
    return job, pushed_at, pushed_at + 70


def test_a_completion_is_whole(world: ContractWorld):
    job, pushed_at, started_at = run(world)
    world.client.ack(job, result=b"result!")
    event = last(world.client, "completed")
    check_whole(world, event, job, pushed_at, started_at)
    assert (event.result_bytes, event.reason, event.error, event.error_class) == (7, "", "", "")
    assert (event.wait_ms, event.run_ms, event.total_ms) == (70, 30, 100)


def test_a_retry_is_whole(world: ContractWorld):
    job, pushed_at, started_at = run(world, backoff=STEADY)
    world.client.fail(job, error="no such host", error_class="gaierror")
    event = last(world.client, "retrying")
    check_whole(world, event, job, pushed_at, started_at)
    assert (event.reason, event.error, event.error_class) == ("failed", "no such host", "gaierror")
    assert event.due == world.now + 1_000


def test_a_death_is_whole(world: ContractWorld):
    job, pushed_at, started_at = run(world, max_attempts=1)
    world.client.fail(job, error="no such host", error_class="gaierror")
    event = last(world.client, "failed")
    check_whole(world, event, job, pushed_at, started_at)
    assert (event.reason, event.error, event.error_class) == ("max_attempts_exceeded", "no such host", "gaierror")


@pytest.mark.parametrize(
    ("options", "reason"), [({"lease_ms": 50}, "stalled"), ({"timeout_ms": 50}, "timeout")], ids=["stall", "timeout"]
)
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_lost_delivery_is_whole(world: ContractWorld, options: dict[str, int], reason: str, attempts: int):
    job, pushed_at, started_at = run(world, backoff=STEADY, max_attempts=attempts, **options)
    world.advance(20)
    event = last(world.client, "failed" if attempts == 1 else "retrying")
    check_whole(world, event, job, pushed_at, started_at)
    assert event.reason == reason


def test_a_cancellation_of_a_running_job_is_whole(world: ContractWorld):
    job, pushed_at, started_at = run(world)
    world.client.cancel(job)
    world.client.release(job)
    event = last(world.client, "cancelled")
    check_whole(world, event, job, pushed_at, started_at)
    assert event.reason == "cancelled"


def test_the_end_of_a_job_that_never_started_is_whole(world: ContractWorld):
    client = world.client
    pushed_at = world.now
    cancelled = push(client, payload=b"hello", **RICH)
    expired = push(client, payload=b"hello", ttl_ms=40)
    world.advance(40)
    client.cancel(cancelled)
    for kind, job, reason in (("cancelled", cancelled, "cancelled"), ("expired", expired, "ttl_expired")):
        event = last(client, kind)
        assert (event.job, event.reason, event.payload_bytes) == (job, reason, 5)
        assert (event.pushed_at, event.started_at, event.finished_at) == (pushed_at, 0, world.now)
        assert (event.attempt, event.wait_ms, event.run_ms, event.total_ms) == (0, 0, 0, 40)


def test_each_completion_of_a_batch_is_whole(world: ContractWorld):
    client = world.client
    pushed_at = world.now
    ids = list(client.push_batch("q", [b"a", b"bb", b"ccc"]).ids)
    world.advance(10)
    token = client.pull("q", 3, worker="w1").token
    world.advance(5)
    client.ack_batch(ids, token, [b"", None, b"12345"])
    events = [event for event in all_events(client) if event.kind == "completed"]
    assert [event.job for event in events] == ids
    assert [event.payload_bytes for event in events] == [1, 2, 3]
    assert [event.result_bytes for event in events] == [0, 0, 5]
    assert {(event.pushed_at, event.wait_ms, event.run_ms, event.worker, event.attempt) for event in events} == {
        (pushed_at, 10, 5, "w1", 1)
    }


def test_the_second_attempt_has_its_own_times(world: ContractWorld):
    client = world.client
    job, pushed_at, _ = run(world)
    client.fail(job, delay_ms=0)
    world.advance(100)
    start(client, worker="w2")
    world.advance(7)
    client.ack(job)
    event = last(client, "completed")
    assert (event.attempt, event.worker, event.run_ms) == (2, "w2", 7)
    assert (event.pushed_at, event.total_ms) == (pushed_at, 207)


def test_every_kind_of_event_happens(world: ContractWorld):
    """A walk through all that can happen, and nothing of the list is left out."""
    client = world.client
    client.set_queue_policy("q", dead_letters=DeadLetterPolicy(entries_max=1))
    job = push(client, delay_ms=1_000)
    push(client, depends_on=(Dependency(job),), priority=-1)
    client.promote(job)
    client.change_priority(job, 5)
    client.update_payload(job, b"new")
    client.move_to_delayed(job, 10)
    world.advance(10)
    client.release(start(client).id)
    client.snooze(start(client).id, delay_ms=5)
    world.advance(5)
    start(client)
    client.extend(job)
    client.set_progress(job, 5)
    client.append_log(job, "line")
    client.append_partial(job, b"chunk")
    client.fail(job, delay_ms=0)
    client.ack(start(client).id)
    client.cancel(start(client).id)
    client.release(client.browse("q", State.ACTIVE).jobs[0].id)
    push(client, ttl_ms=1)
    world.advance(1)
    revived = kill(client)
    client.retry_dead("q", [revived])
    client.fail(start(client).id, retry=False)
    kill(client)
    client.clean("q", State.COMPLETED)
    client.obliterate("q")
    client.put_schedule("q", "s", every_ms=1_000, overlap="skip")
    world.advance(2_000)
    assert {event.kind for event in all_events(client)} == set(EventKind)


def test_a_refused_command_makes_no_event(client: Client):
    push(client)
    before = all_events(client)
    for command in (c.Push("q", b"", None), c.Promote(64), c.GetJob(0), c.Clean("q", State.ACTIVE)):  # type: ignore[arg-type]
        with pytest.raises(StokerError):
            client.execute(command)
    client.ack_batch([64], 99)
    assert all_events(client) == before


def test_looking_makes_no_event(client: Client):
    job = push(client)
    before = all_events(client)
    client.get_job(job)
    client.browse()
    client.why(job)
    client.get_stats()
    client.list_queues()
    client.wait_job(job, 10)
    assert pulled(client, "never") == []
    assert all_events(client) == before


def test_a_page_of_events_is_bounded_in_bytes(make_world: MakeWorld):
    """Chunks of results are in events: a thousand large ones must not be one answer."""
    client = make_world(limits=Limits(reply_bytes_max=10_000)).client
    job = push(client)
    start(client)
    for number in range(6):
        client.append_partial(job, b"x" * 4_000 + b"%d" % number)
    pages, after = [], 0
    while (page := client.read_events(0, after, kinds=["partial"])).events:
        pages.append([event.chunk for event in page.events])
        after = page.next_after
    assert pages == [[0, 1, 2], [3, 4, 5]]
    assert len(client.read_events(0, 0, 1, kinds=["partial"]).events) == 1
