"""Servers in this process, strangers on sockets, and what OpenTelemetry hears."""

from collections.abc import Iterator

import pytest

from tests.client.spans import Heard

_heard: list[Heard] = []


@pytest.fixture
def heard() -> Iterator[Heard]:
    if not _heard:
        _heard.append(Heard())
    yield _heard[0]
    _heard[0].exporter.clear()
