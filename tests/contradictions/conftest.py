"""Every story happens in a world of its own, under a clock that stands still."""

from collections.abc import Iterator

import pytest

from stoker.testing import World


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world
