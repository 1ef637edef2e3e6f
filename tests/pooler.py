"""A real PgBouncer in front of a PostgreSQL of the tests: it lends its few sessions for one transaction at a time."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.caretaker import CARETAKER
from tests.ports import kept_port
from tests.postgres_server import START_S, SUPERUSER, PostgresServer, new_folder, other_user
from tests.system_packages import PGBOUNCER, find_or_install

SESSIONS = 3
"""Fewer than a node has connections, so that each statement may get another session."""


@contextmanager
def pgbouncer(server: PostgresServer) -> Iterator[int]:
    """The port at which it listens. It takes no `options` at the start of a session, as most of them are set up."""
    program = find_or_install(PGBOUNCER)
    folder = new_folder("stoker-pgbouncer-")
    with kept_port() as port:
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={server.port} user={SUPERUSER}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            f"default_pool_size = {SESSIONS}",
            "max_client_conn = 500",
        ]
        settings, log = folder / "pgbouncer.ini", folder / "log"
        settings.write_text("\n".join(lines) + "\n")
        settings.chmod(0o644)
        with log.open("wb") as written:
            process = subprocess.Popen(
                [program, str(settings)], stdout=written, stderr=written, cwd=folder, **other_user()
            )
        CARETAKER.started(process.pid)
        try:
            deadline = time.monotonic() + START_S
            while not _answers(port):
                alive = process.poll() is None and time.monotonic() < deadline
                assert alive, f"PgBouncer did not start: {log.read_text()[-4_000:]}"
                time.sleep(0.02)
            yield port
        finally:
            CARETAKER.ends(process.pid)
            process.terminate()
            process.wait(START_S)


def _answers(port: int) -> bool:
    try:
        psycopg.connect(f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres", connect_timeout=START_S).close()
    except psycopg.OperationalError:
        return False
    return True
