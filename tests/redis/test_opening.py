"""From a URL to a queue in Redis, and what is refused on the way."""

import socket
import sys
import threading
from pathlib import Path

import pytest

import stoker
from stoker.brokers.connect import open_broker
from stoker.brokers.redis.greeting import ServerFacts, check
from stoker.brokers.redis.links import RedisNode
from stoker.brokers.redis.script_calls import KEY_FORMAT
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.model import commands as c
from stoker.model.errors import (
    CannotOpen,
    Damaged,
    Forbidden,
    InvalidRequest,
    NewerFormat,
    Unauthenticated,
    Unreachable,
    Unsupported,
)
from stoker.settings import RemoteSettings
from tests.conformance import redis_gaps
from tests.redis.conftest import MakeServer
from tests.redis.servers import RedisServer
from tests.test_layers import modules_loaded_by


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://cache", Target("cache", 6379)),
        ("redis://cache:7000/3", Target("cache", 7000, 3)),
        ("redis://:se%2Fcret@cache/0", Target("cache", password="se/cret")),
        ("rediss://ann:pw@cache", Target("cache", username="ann", password="pw", is_encrypted=True)),
        ("redis+unix:///run/redis.sock", Target("/run/redis.sock", 0)),
        ("redis+unix:///run/redis.sock?database=2", Target("/run/redis.sock", 0, 2)),
    ],
)
def test_a_url_says_where(url: str, target: Target):
    broker = open_broker(url)
    assert broker.target == target  # type: ignore[attr-defined]
    broker.close()


def test_a_url_says_how():
    broker = open_broker("redis://x?prefix=shop&timeout_s=2.5&cluster=true&retry_s=0")
    found = broker.settings  # type: ignore[attr-defined]
    assert (found.prefix, found.timeout_s, found.cluster, found.retry_s) == ("shop", 2.5, True, 0)
    broker.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://x?colour=red", "unknown parameters ['colour']"),
        ("redis://x?timeout_s=soon", "invalid parameter"),
        ("redis://x?timeout_s=0", "invalid timeout_s"),
        ("redis://x?prefix={a}", "invalid prefix"),
        ("redis://x/first", "number of a database"),
        ("redis://x:port", "cannot connect"),
        ("redis://x/1?cluster=true", "only database 0"),
        ("redis+unix://", "path of a socket"),
    ],
)
def test_a_bad_url_is_refused(url: str, says: str):
    with pytest.raises(InvalidRequest, match=says.replace("[", r"\[").replace("]", r"\]")):
        open_broker(url)


def test_settings_of_another_broker_are_refused():
    with pytest.raises(InvalidRequest, match="takes RedisSettings, not RemoteSettings"):
        open_broker("redis://x", RemoteSettings())


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "hiredis", None)
    monkeypatch.delitem(sys.modules, "stoker.brokers.redis.links", raising=False)
    for name in [name for name in sys.modules if name.startswith("stoker.brokers.redis")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidRequest, match=r"pip install 'stoker\[redis\]'"):
        open_broker("redis://x")


def test_importing_stoker_loads_nothing_of_it():
    loaded = modules_loaded_by("import stoker\nimport stoker.brokers.connect")
    assert not [name for name in loaded if name.startswith(("stoker.brokers.redis", "hiredis", "redis"))]


def test_nothing_is_sent_before_the_first_call():
    stoker.connect("redis://127.0.0.1:1").close()


def test_no_server_is_unreachable():
    with stoker.connect("redis://127.0.0.1:1?retry_s=0") as queue, pytest.raises(Unreachable, match="no Redis answers"):
        queue.push("q", b"x")


def test_user_and_password(make_server: MakeServer):
    server = make_server("redis", "--requirepass", "secret")
    path = server.socket
    with stoker.connect(f"redis+unix://:secret@{path}?database=3") as queue:
        assert queue.push("q", b"x").id
    for url in (f"redis+unix://{path}", f"redis+unix://:wrong@{path}"):
        with stoker.connect(url + "?retry_s=0") as queue, pytest.raises(Unauthenticated):
            queue.push("q", b"x")


def test_a_user_who_may_not_run_scripts_is_told(server: RedisServer):
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "looker", "on", ">pw", "~*", "+@all", "-evalsha", "-eval")
        with stoker.connect(f"redis+unix://looker:pw@{server.socket}") as queue, pytest.raises(Forbidden):
            queue.push("q", b"x")
        client.execute_command("ACL", "DELUSER", "looker")


def test_an_old_server_is_refused():
    for version in ("5.0.7", "6.0.16"):
        with pytest.raises(CannotOpen, match=f"version {version}"):
            check(RedisNode("tcp", "h", 1), ServerFacts(version, False, None, "memory"), is_first=True, cluster=False)
    for version in ("6.2.0", "7.4.1", "9.0.1"):
        check(RedisNode("tcp", "h", 1), ServerFacts(version, False, None, "memory"), is_first=True, cluster=False)


@pytest.mark.parametrize("version", ["2.8.24", "6.0.16"])
def test_a_real_answer_of_an_old_server_is_refused(version: str):
    """It greets as an old one does: no such server is at hand."""
    asked: list[bytes] = []

    def greet(connection: socket.socket) -> None:
        info = f"# Server\r\nredis_version:{version}\r\nrole:master\r\n".encode()
        with connection:
            while data := connection.recv(4_096):
                asked.append(data)
                connection.sendall(b"$%d\r\n%s\r\n" % (len(info), info) if b"INFO" in data else b"*0\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: greet(listening.accept()[0]), daemon=True)
        thread.start()
        refused = pytest.raises(CannotOpen, match=f"version {version}: Stoker needs Redis 6.2 or newer")
        with stoker.connect(f"redis://127.0.0.1:{listening.getsockname()[1]}") as queue, refused:
            queue.push("q", b"x")
        thread.join(60)
    assert not any(b"EVAL" in data for data in asked)


def test_a_replica_is_refused(make_server: MakeServer):
    server = make_server("redis", "--replicaof", "127.0.0.1", "1")
    with stoker.connect(server.url) as queue, pytest.raises(CannotOpen, match="replica"):
        queue.push("q", b"x")


def test_a_server_that_deletes_keys_is_refused(make_server: MakeServer):
    server = make_server("redis", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with stoker.connect(server.url) as queue:
        with pytest.raises(CannotOpen, match="allkeys-lru"):
            queue.push("q", b"x")
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
        assert queue.push("q", b"x").id


@pytest.mark.parametrize("kind", ["text", "hash"])
def test_something_else_under_our_keys_is_left_alone(server: RedisServer, kind: str):
    key = "stoker:{default/0}:n"
    with server.client() as client, stoker.connect(server.url) as queue:
        client.set(key, "mine") if kind == "text" else client.hset(key, "mine", "1")
        with pytest.raises(Damaged, match="something else"):
            queue.push("q", b"x")
        assert client.keys("stoker*") == [key.encode()]


def test_another_format_is_refused(server: RedisServer):
    with server.client() as client, stoker.connect(server.url) as queue:
        queue.push("q", b"x")
        assert client.hget("stoker:{default/0}:n", "format") == b"%d" % KEY_FORMAT
        client.hset("stoker:{default/0}:n", "format", "9")
        with pytest.raises(NewerFormat, match=r"format 9.* later release"):
            queue.push("q", b"x")
        client.hset("stoker:{default/0}:n", "format", "0")
        with pytest.raises(CannotOpen, match=r"format 0.* earlier release") as refusal:
            queue.push("q", b"x")
        assert refusal.value.code == "cannot_open"


def test_a_prefix_is_a_queue_of_its_own(server: RedisServer):
    with stoker.connect(server.url + "?prefix=a") as one, stoker.connect(server.url + "?prefix=b") as other:
        one.push("q", b"x")
        assert not other.list_queues()


def test_what_it_lacks_is_refused_by_name_before_anything_is_sent():
    broker = open_broker("redis://127.0.0.1:1", RedisSettings(retry_s=0))
    commands = {kind.__name__ for kind in c.ALL} & redis_gaps.not_accepted()
    assert commands >= {"Stage", "Publish", "Abort", "AckClaim", "ReleaseClaim", "ExtendClaim"}
    assert broker.lacks == commands | {"Pull.claim", "ReadRecords.payloads", "ReadRecords.tenants"}
    says = "{}: the broker 'redis' does not support it; .*sqlite"
    with pytest.raises(Unsupported, match=says.format("Abort")):
        broker.execute("default", c.Abort("t"))
    with pytest.raises(Unsupported, match=says.format("Pull with claim")):
        broker.execute("default", c.Pull(("q",), claim="mine"))
    with pytest.raises(Unsupported, match=says.format("ReadRecords with payloads")):
        broker.execute("default", c.ReadRecords(payloads=True))
    broker.close()


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/q", "tcp://127.0.0.1:1"])
def test_other_brokers_lack_nothing(url: str, tmp_path: Path):
    broker = open_broker(url.format(tmp_path))
    assert broker.lacks == frozenset()
    broker.close()


def test_spark_learns_in_the_driver_that_it_lacks_transactions_and_claims():
    """Nothing is sent: no Redis is there."""
    from stoker.spark.fleet.work import Claiming
    from stoker.spark.options import QueueConnection
    from stoker.spark.staging import Terms, check_open

    connection = QueueConnection("redis://127.0.0.1:1?retry_s=0", None, "default")
    with stoker.connect(connection.url) as client, pytest.raises(Unsupported, match=r"^Stage: the broker 'redis'"):
        check_open(client, Terms(connection, "mail", (), 100, keeps_rejected=False))
    with pytest.raises(Unsupported, match=r"^Pull with claim: the broker 'redis'"):
        Claiming(connection, ("mail",), 10, 1_000).jobs("mine")


def test_settings_can_be_read_without_hiredis():
    code = "import sys; sys.modules['hiredis'] = None; import stoker; stoker.RedisSettings(prefix='shop')"
    assert "stoker.brokers.redis.settings" in modules_loaded_by(code)
