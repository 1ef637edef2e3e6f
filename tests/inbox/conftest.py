"""An inbox for each test. The database is the same for all: making one takes longer than most tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.inbox.world import InboxWorld
from tests.postgres_server import fresh_database

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def inbox_database(postgres: "PostgresServer") -> Iterator[str]:
    with fresh_database(postgres) as name:
        yield postgres.url(name)


@pytest.fixture
def world(inbox_database: str) -> Iterator[InboxWorld]:
    made = InboxWorld(inbox_database)
    yield made
    made.close()
