"""Where other queues keep their jobs: a fresh server for each run, and how much memory it takes."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
import redis

from benchmarks import redis_server
from benchmarks.measure import resident_bytes


class CannotBeHad(Exception):
    """A queue, or what it needs, cannot be installed here."""


class Place:
    """A server, as the environment of the programs that use it, and the bytes that it takes."""

    def __init__(self, env: dict[str, str], bytes_now: Callable[[], float], kind: str) -> None:
        self.env, self.bytes_now, self.kind = env, bytes_now, kind


@contextmanager
def place_of(kind: str, home: Path) -> Iterator[Place]:
    makers = {"redis": in_redis, "postgres": in_postgres, "beanstalkd": in_beanstalkd, "bunqueue": in_bunqueue}
    with makers[kind](home) as place:
        yield place


@contextmanager
def in_redis(_: Path) -> Iterator[Place]:
    with redis_server.serving() as url, redis.Redis.from_url(url) as raw:
        yield Place({"REDIS_URL": url}, lambda: float(raw.info("memory")["used_memory"]), "of Redis' memory")


@contextmanager
def in_postgres(_: Path) -> Iterator[Place]:
    from tests.postgres_server import PostgresServer

    server = PostgresServer()
    try:

        def size() -> float:
            with psycopg.connect(server.url()) as connection:
                row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
                assert row is not None
                return float(row[0])

        yield Place({"POSTGRES_URL": server.url()}, size, "of the database")
    finally:
        server.close()


@contextmanager
def served(command: list[str], port: int, cwd: Path, env: dict[str, str]) -> Iterator[int]:
    """A server on a port of loopback. Yields its process."""
    child = subprocess.Popen(
        command, cwd=cwd, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        yield child.pid
    finally:
        child.terminate()
        child.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_for(port: int) -> None:
    until = time.perf_counter() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.perf_counter() > until:
                raise CannotBeHad(f"its server did not listen on port {port}") from None
            time.sleep(0.02)


@contextmanager
def in_beanstalkd(home: Path) -> Iterator[Place]:
    port = free_port()
    with served([beanstalkd(home), "-l", "127.0.0.1", "-p", str(port)], port, home, {}) as pid:
        env = {"BEANSTALKD": f"127.0.0.1:{port}"}
        yield Place(env, lambda: float(resident_bytes(pid)), "of its server's memory")


@cache
def beanstalkd(home: Path) -> str:
    """The program of this machine, or the one of its Debian package, unpacked and not installed."""
    found = shutil.which("beanstalkd")
    if found is not None:
        return found
    unpacked = home / "beanstalkd"
    program = unpacked / "usr" / "bin" / "beanstalkd"
    if not program.exists():
        try:
            subprocess.run(
                ["apt-get", "download", "beanstalkd"], cwd=home, check=True, capture_output=True, timeout=120
            )
            package = next(home.glob("beanstalkd_*.deb"))
            subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            raise CannotBeHad(f"there is no beanstalkd here, and Debian's cannot be fetched: {error}") from None
    return str(program)


@contextmanager
def in_bunqueue(home: Path) -> Iterator[Place]:
    port, web = free_port(), free_port()
    bun = str(home / "node_modules" / ".bin" / "bun")
    words = [bun, "run", "node_modules/.bin/bunqueue", "start", "--tcp-port", str(port), "--http-port", str(web)]
    with (
        tempfile.TemporaryDirectory() as folder,
        served([*words, "--data-path", f"{folder}/queue.db"], port, home, {}) as pid,
    ):
        env = {"BUNQUEUE_PORT": str(port)}
        yield Place(env, lambda: float(resident_bytes(pid)), "of its server's memory")
