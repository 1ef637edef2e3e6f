"""The PostgreSQL that tests start: what it promises to them."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.cluster.nodes import until
from tests.postgres_server import PostgresServer


def test_each_test_has_an_empty_database_in_a_server_that_flushes(database: str):
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone() == (0,)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_it_comes_back_at_the_same_place_with_what_was_committed_however_it_ended():
    server = PostgresServer()
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("INSERT INTO t VALUES (1)")
    server.kill()
    server.start()
    server.restart("immediate")
    with psycopg.connect(server.socket_url()) as connection:
        assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    server.close()


def test_it_ends_with_the_test_process_even_if_that_is_killed():
    source = "from tests.postgres_server import PostgresServer as P; p = P(); "
    source += "print(p.url(), p.folder, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    ) as test_process:
        assert test_process.stdout is not None
        url, folder = test_process.stdout.readline().split()
        assert (Path(folder) / "data").exists()
        test_process.kill()
    until(lambda: not Path(folder).exists(), "the end of its folder")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
