"""The same under a clock that only timekeepers move: no deadline is unknown to them, to the millisecond."""

import asyncio

import pytest

from tests.waking.matrix import Way
from tests.waking.simulated import asleep
from tests.waking.ways import BY_THEMSELVES, WAYS


@pytest.mark.parametrize("way", [*WAYS, *BY_THEMSELVES], ids=lambda way: way.__name__)
def test_nobody_sleeps_on(way: Way):
    assert asyncio.run(asleep(way)) == []
