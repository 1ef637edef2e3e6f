"""A directory, and processes that have it open."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.brokers.local import LocalSettings
from tests.crash.restarted import fresh_directory
from tests.crash.zygote import Child, the_zygote
from tests.sharing.roles import join

Start = Callable[..., Child]


@pytest.fixture
def path() -> Iterator[Path]:
    path = fresh_directory()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Begins processes that open the directory; the first of them owns it."""
    children: list[Child] = []

    def start(settings: LocalSettings | None = None) -> Child:
        child = the_zygote().fork(join, str(path), settings)
        children.append(child)
        assert child.receive() == "open"
        return child

    yield start
    for child in children:
        child.kill()


@pytest.fixture
def owner(start: Start) -> Child:
    return start()


@pytest.fixture
def ended() -> Iterator[list[int]]:
    """Processes without anybody who would end them."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
