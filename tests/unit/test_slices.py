"""Very many jobs that follow from one end are let go, or given up, a slice at a time; a restart loses none of them."""

from typing import Any

import pytest

from stoker.engine import dependencies, workflows
from stoker.engine.audit import audit
from stoker.engine.shard import Shard, replay
from stoker.model import commands as c
from stoker.model.options import Dependency, Options
from stoker.model.workflows import Edge, Step

T = "acme"


def blocked(shard: Shard) -> int:
    count: int = shard.execute(T, c.GetStats(), shard.now).counts.blocked
    return count


def fan(shard: Shard, count: int) -> None:
    steps = [Step("a", [b""], Options(max_attempts=1)), Step("b", [b""] * count, after=[Edge(0)])]
    shard.execute(T, c.PushWorkflow(steps), 1_000)


def edged(shard: Shard, count: int) -> None:
    first = shard.execute(T, c.Push("a", b"", Options(max_attempts=1)), 1_000).id
    shard.execute(T, c.PushBatch("b", [b""] * count, Options(depends_on=(Dependency(first),))), 1_000)


CASES = [
    (fan, workflows.SLICE, c.Fail),
    (edged, dependencies.SLICE, c.Ack),
    (edged, dependencies.SLICE, c.Fail),
]


@pytest.mark.parametrize(("make", "size", "end"), CASES, ids=["step fails", "job completes", "job fails"])
def test_very_many_jobs_go_a_slice_at_a_time(make: Any, size: int, end: Any):
    shard = Shard()
    make(shard, size + size // 2)
    delivery = shard.execute(T, c.Pull(["a"]), 1_001)
    shard.execute(T, end(list(delivery.ids), delivery.token), 1_002)
    assert blocked(shard) == size // 2
    audit(shard)
    shard.advance(1_003)
    assert blocked(shard) == 0
    audit(shard)


@pytest.mark.parametrize(("make", "size", "end"), CASES, ids=["step fails", "job completes", "job fails"])
def test_a_restart_between_two_slices_goes_on(make: Any, size: int, end: Any):
    shard = Shard()
    make(shard, size + size // 2)
    delivery = shard.execute(T, c.Pull(["a"]), 1_001)
    shard.execute(T, end(list(delivery.ids), delivery.token), 1_002)
    again = replay(shard.records)
    assert blocked(again) == size // 2
    workflows.resume(again, 2_000)
    dependencies.resume(again, 2_000)
    again.advance(2_000)
    assert blocked(again) == 0
    audit(again)


def test_a_job_of_a_step_is_released_whole_however_large_it_is():
    shard = Shard()
    fan(shard, 50_000)
    delivery = shard.execute(T, c.Pull(["a"]), 1_001)
    shard.execute(T, c.Ack(list(delivery.ids), delivery.token), 1_002)
    assert blocked(shard) == 0
    assert len(shard.execute(T, c.Pull(["b"], 10_000), 1_003)) == 10_000
