"""A search is a walk in steps. However short they are, it sees every job, and each of them once."""

import pytest

from stoker.engine.jobs import SingleJob
from stoker.engine.searching import JobSearch
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.filters import JobFilter
from stoker.model.options import Backoff, Options

STEADY = Backoff("fixed", 10, 10, "none")


def with_leavers() -> tuple[Shard, list[int]]:
    """Batches of which some jobs have failed: those are on their own now, in the middle of their batch."""
    shard, ids = Shard(), list[int]()
    for lifo in (False, True):
        options = Options(lifo=lifo, backoff=STEADY)
        ids += shard.execute("t", c.PushBatch("q", [b"x"] * 8, options), 1).ids
        ids.append(shard.execute("t", c.Push("q", b"alone", options), 1).id)
    for _ in range(4):
        delivery = shard.execute("t", c.Pull(["q"], 3), 2)
        shard.execute("t", c.Fail(delivery.ids[::2], delivery.token), 2)
        shard.execute("t", c.Ack(delivery.ids[1::2], delivery.token), 2)
    return shard, sorted(ids)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("work", range(1, 8))
def test_a_job_that_has_left_its_batch_is_seen_wherever_a_step_ends(work: int, ascending: bool):
    """A step that ended at the place which the job had left passed over the job itself."""
    shard, ids = with_leavers()
    found: list[int] = []
    after: int | None = 0 if ascending else 2**62
    for _ in range(100):
        search = JobSearch(shard, "t", JobFilter(), after, ascending=ascending, work=work)
        found += [part.id if isinstance(part, SingleJob) else part.lowest for part in search]
        after = search.last
        if search.is_over:
            break
    assert found == (ids if ascending else ids[::-1])
