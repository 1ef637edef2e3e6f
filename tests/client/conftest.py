"""Servers in this process, strangers on sockets, and what OpenTelemetry hears."""

from collections.abc import Iterator

import pytest

from tests.client.spans import Heard, listener


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = listener()
    yield heard
    heard.exporter.clear()
