"""Peers without a token cannot take the descriptors that the queue needs to go on."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import stoker
from stoker.server.auth.tokens import create_token
from stoker.server.config.tree import ServerLimits
from stoker.server.connections import ConnectionBounds, bounds_for

OPEN_FILES = 1_024
PATIENCE_S = 60
HALF = 650
"""Silent connections of one process: two of them have more than the server may have descriptors."""
BESIEGE = f"""
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
held = []
for _ in range({HALF}):
    try:
        held.append(socket.create_connection((host, int(port)), 30))
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""


@contextmanager
def server(directory: Path, *options: str) -> "Iterator[str]":
    """A server of its own process that may open so many files: where it listens."""
    command = [sys.executable, "-m", "stoker", "serve", "--data", str(directory / "data"), "--tcp=127.0.0.1:0"]

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))

    command += ["--http=off", "--grpc=off", *options]
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=bounded) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("tcp "), (directory / "log").read_text()
            yield line.split()[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@contextmanager
def besieged(where: str) -> "Iterator[None]":
    """While 1,300 connections say nothing."""
    command = [sys.executable, "-IS", "-c", BESIEGE, where]
    with ExitStack() as ended:
        silent = [
            ended.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        try:
            for process in silent:
                assert process.stdout is not None
                assert int(process.stdout.readline()) == HALF
            yield
        finally:
            for process in silent:
                process.kill()


def test_silent_peers_take_no_descriptor_from_the_journal(tmp_path: Path):
    """All writes failed with `unable to open database file`, also when the silent peers had left."""
    secret = create_token(tmp_path / "tokens", name="honest", now=time.time()).text
    options = ["--tokens-file", str(tmp_path / "tokens"), "--set", "journal.wal_bytes_max=2MiB"]
    with server(tmp_path, *options) as where, stoker.connect(url := f"tcp://:{secret}@{where}") as before:
        payload = os.urandom(500_000)
        before.push("work", payload)
        with besieged(where):
            for _ in range(20):  # enough for several new files of the log
                before.push("work", payload)
            with stoker.connect(url) as new:
                for _ in range(5):
                    new.push("work", payload)
        before.push("work", payload)
        assert before.get_stats().counts.waiting == 27
    assert "limit of open files is 1024" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("limits", "descriptors", "has_tokens", "expected"),
    [
        (ServerLimits(), 50_000, False, (10_000, 5_000, 10_000)),
        (ServerLimits(), 50_000, True, (10_000, 5_000, 2_500)),
        (ServerLimits(), 800, False, (800, 600, 800)),
        (ServerLimits(), 800, True, (800, 600, 200)),
        (ServerLimits(connections_per_address_max=10), 800, True, (800, 10, 200)),
        (ServerLimits(connections_unauthenticated_max=7), 800, True, (800, 600, 7)),
        (ServerLimits(connections_max=100), 800, True, (100, 5_000, 25)),
        (ServerLimits(), 1, True, (1, 1, 1)),
    ],
)
def test_bounds_keep_within_the_descriptors(
    limits: ServerLimits, descriptors: int, has_tokens: bool, expected: tuple[int, int, int]
):
    assert bounds_for(limits, descriptors, has_tokens=has_tokens) == ConnectionBounds(*expected, 2_000)
