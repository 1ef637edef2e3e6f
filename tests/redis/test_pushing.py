"""Pushes of which nothing is left to send."""

from stoker.client.sync import Client
from stoker.model.limits import Limits
from stoker.model.options import Dependency, Options, Settings
from tests.redis.backing import InRedis


def test_a_batch_whose_items_all_wait_for_a_job_that_never_was_is_refused():
    """The client sends the rest of a batch again without the refused items; here there is no rest."""
    world = InRedis("redis", Settings(), Limits())
    try:
        client = Client(world.broker)
        reply = client.push_batch("q", [b"a", b"b"], Options(depends_on=(Dependency(id=64 * 10**6),)))
        assert list(reply.ids) == [0, 0]
        assert {one.code for one in reply.refused.values()} == {"unknown_dependency"}
        assert client.push("q", b"").created
    finally:
        world.close()
