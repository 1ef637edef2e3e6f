"""The history of a queue, wherever a server samples it or not. What it holds is in `tests/served/test_history.py`."""

import time
from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, push


def minute_ended_since(began: float) -> bool:
    """Whether a server may have sampled its queues since then. One that is held up does it some seconds late."""
    return (began - 5) // 60 != time.time() // 60


def test_a_queue_that_was_just_made_has_no_past(world: ContractWorld):
    began = time.time()
    push(world.client)
    found = [*world.client.get_history("q", 86_400_000, 900_000), *world.client.get_history()]
    assert found == [] or minute_ended_since(began)
    assert world.client.execute(c.GetHistory("none", step_ms=120_000)).step_ms == 120_000


def test_queues_that_were_just_made_have_no_trends(world: ContractWorld):
    began = time.time()
    push(world.client)
    assert dict(world.client.get_trends(["q", "none"], 86_400_000, 900_000)) == {} or minute_ended_since(began)
    assert dict(world.client.get_trends([])) == {}


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (c.GetHistory("a b"), InvalidRequest),
        (c.GetHistory(step_ms=0), InvalidRequest),
        (c.GetHistory(step_ms=90_000), InvalidRequest),
        (c.GetHistory(range_ms=1_000), InvalidRequest),
        (c.GetHistory(range_ms=86_400_000 * 30), LimitExceeded),
        (c.GetTrends(["q", "a b"]), InvalidRequest),
        (c.GetTrends(["q"], step_ms=90_000), InvalidRequest),
        (c.GetTrends(["q"] * 200), LimitExceeded),
    ],
    ids=str,
)
def test_a_range_that_makes_no_sense_is_refused(
    world: ContractWorld, command: c.Command[Any], error: type[StokerError]
):
    check_refused(world, error, command)
