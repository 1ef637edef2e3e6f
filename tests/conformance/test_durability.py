"""Levels of durability: asked for by a push or a queue, and told in the reply.

What a level survives is shown by the crash tests; here, that it is asked for, kept, refused and told alike everywhere.
"""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.replies import LEVELS, Level
from tests.conformance.brokers import ContractWorld

by_level = pytest.mark.parametrize("level", LEVELS)


def best(client: Client) -> Level:
    """The strongest level that this broker can give."""
    return client.push("probe", b"", durability="fsync").level


def least(client: Client) -> Level:
    """The weakest level that this broker has: a journal in PostgreSQL has no `memory`."""
    return client.push("probe", b"", durability="memory").level


def reached(client: Client, asked: Level) -> Level:
    return max(min(asked, best(client), key=LEVELS.index), least(client), key=LEVELS.index)


@by_level
def test_a_push_gets_the_level_that_it_asks_for_as_far_as_the_broker_has_it(world: ContractWorld, level: Level):
    client = world.client
    told = reached(client, level)
    assert client.push("q", b"", durability=level).level == told
    assert client.push("new", b"", durability=level).level == told
    assert client.push_batch("q", [b"a", b"b"], durability=level).level == told
    assert client.push_batch("q", [b"a", b"b"], durability=level, request_key="r").level == told
    if world.has_transactions:
        client.stage("t", "s", "q", [b"c"])
        assert client.publish("t", ["s"], durability=level).level == told
    if level != "memory":  # which promises nothing, should there be a crash
        assert len(client.pull("q", 10)) == 5 + world.has_transactions


@by_level
def test_everything_in_a_queue_gets_what_the_queue_asks_for(client: Client, level: Level):
    told = reached(client, level)
    client.set_queue_policy("q", durability=level)
    assert client.push("q", b"").level == told
    assert client.push_batch("q", [b"a", b"b"]).level == told
    delivery = client.pull("q", 3)
    assert client.execute(c.Ack([delivery.ids[0]], delivery.token)).level == told
    assert client.execute(c.Fail([delivery.ids[1]], delivery.token)).level == told


def test_a_push_that_says_so_wins_over_its_queue(client: Client):
    client.set_queue_policy("q", durability="fsync")
    assert client.push("q", b"", durability="memory").level == least(client)
    assert client.push("q", b"").level == best(client)


def test_other_queues_get_what_they_got_before(client: Client):
    before = client.push("other", b"").level
    client.set_queue_policy("q", durability="fsync")
    assert client.push("other", b"").level == before
    client.obliterate("q", force=True)
    assert client.push("q", b"").level == before


def test_a_level_that_does_not_exist_is_refused_and_nothing_is_pushed(world: ContractWorld):
    commands = [
        c.Push("q", b"", durability="disk"),  # type: ignore[arg-type]  # what this is about
        c.PushBatch("q", [b""], durability=""),  # type: ignore[arg-type]
        c.SetQueuePolicy("q", durability="FSYNC"),  # type: ignore[arg-type]
        c.Publish("t", [], durability="often"),  # type: ignore[arg-type]
    ]
    for command in commands:
        with pytest.raises(InvalidRequest, match="durability"):
            world.broker.execute("default", command)
    assert world.client.list_queues() == []
