"""Replies say what a change is worth when Redis answers."""

import pytest

import stoker
from stoker.brokers.redis import routing
from stoker.brokers.redis.greeting import level_of
from tests.redis.conftest import MakeServer

AOF = ("--appendonly", "yes")


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ((), "memory"),
        ((*AOF, "--appendfsync", "no"), "memory"),
        ((*AOF, "--appendfsync", "everysec"), "commit"),
        ((*AOF, "--appendfsync", "always"), "fsync"),
        ((*AOF, "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"), "commit"),
    ],
)
def test_the_level_is_the_servers(make_server: MakeServer, options: tuple[str, ...], level: str):
    with stoker.connect(make_server("redis", *options).url) as queue:
        assert queue.push("q", b"x").level == level
        assert queue.push("q", b"x", durability="fsync").level == level
        delivery = queue.pull("q")
        assert queue.ack_batch(delivery.ids, delivery.token).level == level


def test_what_cannot_be_asked_counts_as_memory(make_server: MakeServer):
    server = make_server("redis", *AOF, "--appendfsync", "always")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "u", "on", ">pw", "~*", "+@all", "-config")
    with stoker.connect(f"redis+unix://u:pw@{server.socket}") as queue:
        assert queue.push("q", b"x").level == "memory"
    assert level_of(True, None) == "memory"


def test_it_is_asked_again_now_and_then(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch):
    server = make_server("redis", *AOF, "--appendfsync", "always")
    with stoker.connect(server.url) as queue, server.client() as client:
        assert queue.push("q", b"x").level == "fsync"
        client.config_set("appendfsync", "everysec")
        monkeypatch.setattr(routing, "AGAIN_S", 0.0)
        assert queue.push("q", b"x").level == "commit"
