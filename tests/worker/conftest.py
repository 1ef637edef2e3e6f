"""A queue in memory, under a clock that the test moves or under the real one."""

from collections.abc import Iterator

import pytest

from stoker.client.sync import Client
from stoker.testing import World
from tests.worker.running import memory


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.fixture
def queue() -> Iterator[Client]:
    """Under the real clock, for whatever has to run beside the test."""
    with memory() as client:
        yield client
