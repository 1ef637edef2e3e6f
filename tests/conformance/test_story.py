"""What the log tells about one job."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from tests.conformance.brokers import ContractWorld


def kinds(client: Client, job: int) -> list[str]:
    return [str(event.kind) for event in client.story(job).events]


def test_a_story_has_every_step_in_order(world: ContractWorld):
    client = world.client
    job = client.push("q", b"x", max_attempts=3).id
    first = client.pull("q")
    client.fail(first.ids[0], first.token, error="once")
    world.advance(60_000)
    second = client.pull("q")
    client.ack(second.ids[0], second.token)
    told = client.story(job)
    assert told.complete
    assert {event.job for event in told.events} == {job}
    steps = [str(event.kind) for event in told.events]
    assert steps == ["pushed", "started", "retrying", "ready", "started", "completed"]
    assert [event.at for event in told.events] == sorted(event.at for event in told.events)


def test_a_member_of_a_batch_has_a_story_of_its_own(client: Client):
    ids = client.push_batch("q", [b"a", b"b", b"c"]).ids
    client.cancel(ids[1])
    delivery = client.pull("q", 2)
    client.execute(c.Ack(delivery.ids, delivery.token))
    assert kinds(client, ids[0]) == ["pushed", "started", "completed"]
    assert kinds(client, ids[1]) == ["pushed", "cancelled"]


def test_a_story_outlives_the_job(client: Client):
    job = client.push("q", b"", remove_on_complete=True).id
    delivery = client.pull("q")
    client.ack(job, delivery.token)
    assert kinds(client, job) == ["pushed", "started", "completed"]


def test_others_hear_nothing(world: ContractWorld):
    job = world.client.push("q", b"").id
    assert world.client_for("other").story(job).events == []
    assert world.client.story(job + (1 << 40)).events == []


@pytest.mark.parametrize("bad", [-1, "1", None, 1 << 60])
def test_what_is_no_id_is_refused(client: Client, bad: object):
    with pytest.raises(InvalidRequest):
        client.execute(c.GetStory(bad))  # type: ignore[arg-type]  # what this is about
