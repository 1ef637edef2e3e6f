"""A process that forks fresh processes, so that a test can let one die and ask the next what is left.

Opening a path a second time in the same process proves nothing: whatever the first owner forgot to write still lies in
its memory. Starting Python anew takes a third of a second; the zygote has imported everything once and forks in a few
milliseconds. It never opens a data directory and never makes a connection to SQLite, so its children share nothing.

A child runs one function (its *role*) with one end of a socket pair. It is ended by its own process id, which cannot
pass to another process meanwhile: the zygote alone collects its children, and only when asked to. Should the tests
die, the zygote reads the end of its control socket and goes; whatever it has forked goes with it.
"""

import atexit
import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PRELOADED = ("tests.crash.roles", "stoker.journal.directory_store")
REQUEST_BYTES_MAX = 64 * 1024
PATIENCE_S = 60
"""Longer than anything here takes; a child that is silent for so long hangs."""

PR_SET_PDEATHSIG = 1

Role = Callable[..., None]


class ChildFailed(Exception):
    """A role ended with an exception: this one, with its traceback."""


class Failure:
    """How a child says that it failed."""

    def __init__(self, error: BaseException) -> None:
        self.text = "".join(traceback.format_exception(error))


class Child:
    """A process with a role."""

    def __init__(self, zygote: "Zygote", pid: int, connection: "Connection[Any, Any]") -> None:
        self.pid = pid
        self._zygote = zygote
        self._connection = connection
        self._status: int | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, message: object) -> None:
        """To a process that is gone nothing is said: `receive` will tell."""
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> Any:
        """Its next message; EOFError when it is gone."""
        if not self.has_spoken(PATIENCE_S):
            raise TimeoutError(f"process {self.pid} says nothing")
        try:
            message = self._connection.recv()
        except (EOFError, OSError):  # it died with something of ours unread, or in the middle of a message
            raise EOFError(f"process {self.pid} has ended with {self.join()}") from None
        if isinstance(message, Failure):
            raise ChildFailed(message.text)
        return message

    def has_spoken(self, within_s: float = 0) -> bool:
        """Is there a message, or the end of them?"""
        return self._connection.poll(within_s)

    def strike(self) -> None:
        """SIGKILL, and nothing else: what it has said before can still be received."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)

    def kill(self) -> int:
        self.strike()
        return self.join()

    def join(self) -> int:
        """Wait until it has ended. Minus the signal that ended it, or its exit code."""
        if self._status is None:
            self._status = self._zygote.collect(self.pid)
            self._connection.close()
        return self._status


class Zygote:
    """The handle on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        start = f"from tests.crash.zygote import serve; serve({theirs.fileno()})"
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-c", start], cwd=ROOT, pass_fds=[theirs.fileno()])
        self._control = ours
        ours.settimeout(PATIENCE_S)

    def fork(self, role: Role, *arguments: object) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            pid = self._ask(("fork", role), [theirs.fileno()])
        child = Child(self, pid, Connection(ours.detach()))
        child.send(arguments)  # to the child itself: they may be larger than a packet
        return child

    def collect(self, pid: int) -> int:
        return self._ask(("collect", pid))

    def close(self) -> None:
        self._control.close()
        self._process.wait(PATIENCE_S)

    def _ask(self, request: object, descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._control, [pickle.dumps(request)], descriptors)
            return int(self._control.recv(64))


@cache
def the_zygote() -> Zygote:
    """One for all tests of this process, from the first one that needs it."""
    zygote = Zygote()
    atexit.register(zygote.close)
    return zygote


# --- inside the zygote -------------------------------------------------------------------------------


def serve(control_number: int) -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a child's collector would touch, and so copy, every page
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests decide when to end
    with socket.socket(fileno=control_number) as control:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 1)
            if not data:
                return
            match pickle.loads(data):
                case "fork", role:
                    control.send(b"%d" % _fork(control, descriptors[0], role))
                case "collect", pid:
                    _, status = os.waitpid(pid, 0)
                    control.send(b"%d" % os.waitstatus_to_exitcode(status))


def _fork(control: socket.socket, descriptor: int, role: Role) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    code = 1
    try:
        control.close()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # it has not died in between
            code = _play(Connection(descriptor), role)
    finally:
        os._exit(code)
    raise AssertionError("unreachable")


def _play(connection: "Connection[Any, Any]", role: Role) -> int:
    try:
        role(connection, *connection.recv())
    except BaseException as error:
        try:
            connection.send(Failure(error))
        except OSError:  # nobody listens any more
            pass
        return 1
    return 0
