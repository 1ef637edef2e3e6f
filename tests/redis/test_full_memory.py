"""A Redis whose memory is full refuses pushes, and lets everything else go on."""

from collections.abc import Iterator

import pytest

from stoker.brokers.redis.broker import RedisBroker
from stoker.brokers.redis.settings import Target
from stoker.client.sync import Client
from stoker.model.errors import MemoryFull
from tests.redis.servers import KINDS, RedisServer


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    made = RedisServer(str(request.param))
    yield made
    made.remove()


def test_a_full_memory_refuses_pushes_and_nothing_else(server: RedisServer):
    admin, broker = server.client(), RedisBroker(Target(str(server.socket), 0))
    client = Client(broker)
    jobs = list(client.push_batch("q", [b"x" * 1_000] * 10).ids)
    admin.config_set("maxmemory", "1mb")
    with pytest.raises(MemoryFull):
        client.push("q", b"x")
    delivery = client.pull("q", 3)
    assert list(delivery.ids) == jobs[:3]
    assert client.ack_batch(jobs[:2], delivery.token).count == 2
    client.fail(jobs[2], delivery.token)
    client.cancel(jobs[3])
    assert client.drain("q") == 6
    admin.config_set("maxmemory", "0")
    assert client.push("q", b"x").created
    broker.close()
    admin.close()
