"""How long jobs wait and run, and since when the oldest of them waits."""

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.histograms import Histogram
from stoker.model.history import Timings
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, push, push_many, start


def lasted(*durations: int) -> Histogram:
    """What a histogram says of some small durations that are bounds."""
    bounds = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
    places = [max(0, bounds.index(ms) - 1) for ms in durations]
    return Histogram(tuple(places.count(place) for place in range(max(places) + 1)), sum(durations))


def test_nothing_waited_where_nothing_was_pushed(world: ContractWorld):
    assert world.client.get_timings("none").oldest_waiting_at == 0
    assert world.client.get_timings().wait.total == 0


def test_the_oldest_waiting_job_is_the_one_pushed_first(world: ContractWorld):
    client = world.client
    assert client.get_timings("q").oldest_waiting_at == 0
    began = world.now
    push(client, priority=-5)
    world.advance(10)
    push(client, lifo=True)
    world.advance(10)
    push(client, group_id="g", priority=7)
    push(client, group_id="g", priority=7)
    push(client, delay_ms=500)
    assert client.get_timings("q").oldest_waiting_at == began
    assert client.get_timings().oldest_waiting_at == began
    grouped = start(client)  # the highest priority
    lifo = start(client)
    assert client.get_timings("q").oldest_waiting_at == began
    start(client)
    assert client.get_timings("q").oldest_waiting_at == began + 20  # it waits for its group
    client.release(lifo.id, lifo.token)
    assert client.get_timings("q").oldest_waiting_at == began + 10
    client.ack(grouped.id, grouped.token)
    client.cancel(lifo.id)
    assert client.get_timings("q").oldest_waiting_at == began + 20
    start(client)
    assert client.get_timings("q").oldest_waiting_at == 0
    assert client.as_tenant("other").get_timings() == Timings()


def test_a_page_of_queues_has_the_timings_of_each(world: ContractWorld):
    push(world.client, queue="a")
    push(world.client, queue="b")
    world.advance(20)
    start(world.client, "b")
    for one in world.client.get_queues().queues:
        assert one.timings == world.client.get_timings(one.name)
    assert [one.timings.wait.total for one in world.client.get_queues().queues if one.timings] == [0, 1]


def test_a_batch_waits_since_its_push(world: ContractWorld):
    began = world.now
    push_many(world.client, 5)
    world.advance(10)
    push_many(world.client, 5, lifo=True)
    for _ in range(5):
        assert world.client.get_timings("q").oldest_waiting_at in (began, began + 10)
        start(world.client)
    assert world.client.get_timings("q").oldest_waiting_at == began
    world.client.drain("q")
    assert world.client.get_timings("q").oldest_waiting_at == 0


def test_waits_and_runs_are_measured(world: ContractWorld):
    client = world.client
    push(client, "a")
    push_many(client, 3, "b")
    world.advance(10)
    first = start(client, "a")
    batch = client.pull("b", 3)
    world.advance(5)
    client.ack(first.id, first.token)
    client.ack_batch([job.id for job in batch][:2], batch.token)
    client.fail(list(batch)[2].id, batch.token, error="x", delay_ms=0)
    assert client.get_timings("a").wait == lasted(10)
    assert client.get_timings("a").run == lasted(5)
    assert client.get_timings("b").wait == lasted(10, 10, 10)
    assert client.get_timings("b").run == lasted(5, 5, 5)
    again = start(client, "b")
    world.advance(2)
    client.ack(again.id, again.token)
    assert client.get_timings().wait == lasted(10, 10, 10, 10)  # a second start is no wait
    assert client.get_timings().run == lasted(5, 5, 5, 5, 2)
    assert client.as_tenant("other").get_timings("a").wait.total == 0


def test_a_bad_name_is_refused(world: ContractWorld):
    check_refused(world, InvalidRequest, c.GetTimings("a b"))
