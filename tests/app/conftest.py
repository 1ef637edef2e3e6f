"""An app over a queue in memory."""

from collections.abc import Iterator

import pytest

from stoker import App


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as app:
        yield app
