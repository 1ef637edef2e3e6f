"""Whoever waits is woken: every way in which something can come about, at every broker.

Nothing but that happens, so that neither a timer nor another command can stand in for a lost wake-up. How quickly a
caller is woken is a matter of benchmarks.
"""

import pytest

from tests.waking.matrix import Outcomes, run_all
from tests.waking.places import PLACES
from tests.waking.ways import BY_THEMSELVES, WAYS

NAMES = [way.__name__ for way in (*WAYS, *BY_THEMSELVES)]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcomes]:
    return run_all(PLACES)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", NAMES)
def test_whoever_waits_is_woken(outcomes: dict[str, Outcomes], way: str, place: str):
    assert outcomes[place][way] == ""
