"""The shop in a world of its own."""

from collections.abc import Iterator

import pytest

from stoker.testing import Harness, harness
from tests.testing import shop


@pytest.fixture
def world() -> Iterator[Harness]:
    shop.seen.clear()
    with harness(shop.app) as made:
        shop.world = made
        yield made
        shop.world = None
