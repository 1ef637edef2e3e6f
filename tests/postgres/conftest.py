"""What a test leaves open does not disturb the next one."""

from collections.abc import Iterator

import pytest

from tests.postgres.seat import Seat, new_cluster


@pytest.fixture
def cluster(database: str) -> Iterator[str]:
    """The URL of a new cluster with one seat."""
    yield new_cluster(database)
    for seat in list(Seat.opened):
        seat.abandon()
