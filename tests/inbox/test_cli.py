"""`stoker inbox` and `stoker doctor --inbox`: what they do, and what they say when they cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import stoker
from stoker.inbox import schema
from tests.inbox.world import InboxWorld
from tests.postgres_server import PostgresServer
from tests.redis.servers import shared as shared_redis

PATIENCE_S = 60
NOWHERE = "postgresql://postgres:secret@127.0.0.1:1/shop"


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    return subprocess.run(
        [sys.executable, "-m", "stoker", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- init ----------------------------------------------------------------------------------------------


def test_init_makes_the_table_once_and_prints_the_same_sql_for_a_migration(database: str):
    assert command("inbox", "init", database).stdout == "made the table stoker_inbox\n"
    assert command("inbox", "init", database).stdout == "the table stoker_inbox is there already\n"
    printed = command("inbox", "init", "--print").stdout
    assert printed == schema.sql()
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE stoker_inbox")
        connection.execute(printed.encode())
        connection.execute("INSERT INTO stoker_inbox (queue, payload) VALUES ('mail', 'hello')")


@pytest.mark.parametrize(
    ("url", "words", "code"),
    [
        (NOWHERE, "PostgreSQL does not answer", 3),
        ("mysql://db/shop", "'mysql://db/shop' is not a PostgreSQL: expected postgresql://USER", 4),
        ("postgresql://db/shop?nonsense=1", 'invalid URI query parameter: "nonsense"', 4),
    ],
)
def test_a_database_that_cannot_be_used_is_named_without_its_password(url: str, words: str, code: int):
    for arguments in (("init", url), ("run", "--from", url, "--to", "sqlite:///stoker.db")):
        done = command("inbox", *arguments)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert "secret" not in done.stderr
        assert "Traceback" not in done.stderr


def test_a_reader_does_not_start_without_a_table_it_can_read(database: str):
    run = ("inbox", "run", "--from", database, "--to", "sqlite:///never.db")
    assert "no table stoker_inbox in this database: make it with `stoker inbox init" in command(*run).stderr
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE stoker_inbox (a int)")
    assert "was not made by Stoker: rename it" in command(*run).stderr
    with psycopg.connect(database) as connection:
        connection.execute("COMMENT ON TABLE stoker_inbox IS 'Stoker inbox, format 2'")
    assert "has format 2, and this release reads up to 1: upgrade Stoker" in command(*run).stderr
    assert "name a queue that outlives it" in command(*run[:-1], "memory://").stderr


# --- run -----------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The URLs of a real server, by scheme."""
    words = (
        "serve",
        "--data",
        str(tmp_path / "served"),
        "--tcp",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "off",
    )
    served = subprocess.Popen([sys.executable, "-m", "stoker", *words], stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    lines = [served.stdout.readline().split() for _ in range(2)]
    urls = {name: where if "://" in where else f"{name}://{where}" for name, where in lines}
    yield urls
    served.send_signal(signal.SIGTERM)
    assert served.wait(PATIENCE_S) == 0
    served.stdout.close()


@pytest.mark.parametrize("scheme", ["tcp", "http", "sqlite", "redis"])
def test_a_reader_pushes_to_any_broker_until_it_is_told_to_stop(
    world: InboxWorld, scheme: str, request: pytest.FixtureRequest
):
    if scheme == "sqlite":
        target = request.getfixturevalue("directory")
    elif scheme == "redis":
        target = shared_redis("redis").url + "?prefix=inbox"
    else:
        target = request.getfixturevalue("server")[scheme]
    world.commit(b"before")
    reader = subprocess.Popen([sys.executable, "-m", "stoker", "inbox", "run", "--from", world.url, "--to", target])
    until(lambda: world.rows() == 0)
    world.commit(b"after")
    until(lambda: world.rows() == 0)
    reader.send_signal(signal.SIGTERM)
    assert reader.wait(PATIENCE_S) == 0
    with stoker.connect(target) as client:
        found = client.pull("mail", 10)
        assert [job.payload for job in found] == [b"before", b"after"]
        client.ack_batch(list(found.ids), found.token)


def test_a_reader_outlives_a_postgresql_that_dies(directory: str):
    server = PostgresServer()
    world = InboxWorld(server.url())
    world.commit(b"before")
    words = [sys.executable, "-m", "stoker", "inbox", "run", "--from", world.url, "--to", directory]
    reader = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    until(lambda: world.rows() == 0)
    world.database.close()
    server.kill()
    server.start()
    world.database = server.connect()
    world.commit(b"after")
    until(lambda: world.rows() == 0)
    reader.send_signal(signal.SIGTERM)
    _, said = reader.communicate(timeout=PATIENCE_S)
    world.close()
    server.close()
    assert "the inbox cannot be read, trying again: PostgreSQL does not answer" in said
    assert "Traceback" not in said
    with stoker.connect(directory) as client:
        assert [job.payload for job in client.pull("mail", 10)] == [b"before", b"after"]


# --- doctor --------------------------------------------------------------------------------------------


def test_the_doctor_tells_of_rows_that_wait_and_rows_that_were_set_aside(world: InboxWorld):
    def findings(*words: str) -> dict[str, tuple[str, str]]:
        done = command("doctor", "--url", "memory://", "--inbox", world.url, "--json", *words)
        return {one["name"]: (one["status"], one["found"]) for one in json.loads(done.stdout)}

    assert findings()["inbox"] == ("ok", "0 rows waiting, 0 being sent")
    world.commit(b"1", b"2")
    world.sql("UPDATE stoker_inbox SET added_at = now() - interval '2 minutes'")
    world.sql("INSERT INTO stoker_inbox (queue, payload, error) VALUES ('mail', 'x', 'invalid: nonsense')")
    found = findings()
    assert found["inbox"][0] == "warning"
    assert found["inbox"][1].startswith("2 rows waiting, 0 being sent, the oldest for 2m")
    assert found["inbox refused"] == ("warning", "1 row set aside, the latest: row 3: invalid: nonsense")
    assert "PROBLEM" in command("doctor", "--url", "memory://", "--inbox", NOWHERE).stdout
