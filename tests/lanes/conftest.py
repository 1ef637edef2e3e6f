"""A queue in this process, under the real clock."""

from collections.abc import Iterator

import pytest

from stoker.client.sync import Client
from tests.worker.running import memory


@pytest.fixture
def queue() -> Iterator[Client]:
    with memory() as client:
        yield client
