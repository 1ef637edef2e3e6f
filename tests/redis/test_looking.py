"""Calls that look at many jobs go in steps, so that no script holds Redis for long; callers see no steps."""

from collections.abc import Iterator

import pytest

from stoker.brokers.redis import looking
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.limits import Limits
from stoker.model.options import Settings
from tests.redis.backing import InRedis
from tests.redis.test_against_engine import drive
from tests.redis.twins import Twins


@pytest.fixture
def client() -> Iterator[Client]:
    world = InRedis("redis", Settings(), Limits())
    yield Client(world.broker)
    world.close()


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("limit", [7, 64, 1_000])
def test_pages_in_short_steps_show_every_job_once(
    client: Client, monkeypatch: pytest.MonkeyPatch, ascending: bool, limit: int
):
    monkeypatch.setattr(looking, "SHOWN", 5)
    monkeypatch.setattr(looking, "BUCKETS", 1)
    ids = list(client.push_batch("q", [b"x"] * 150).ids)
    after, found = None, []
    for _ in range(1_000):
        page = client.execute(c.Browse(after=after, limit=limit, ascending=ascending))
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        after = page.next_after
        if after is None:
            break
    assert found == sorted(ids, reverse=not ascending)


def test_priorities_are_counted_in_steps(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(looking, "COUNTED", 3)
    client.push_batch("q", [b""] * 10, priority=2)
    client.push_batch("q", [b""] * 4, lifo=True)
    client.push_batch("q", [b""] * 7, group_id="g", priority=-1)
    back = client.push("q", b"", priority=2).id
    client.move_to_delayed(back, 1_000)
    client.promote(back)  # its old entry in the list counts again, and it stands in the set, too
    assert client.execute(c.GetPriorities("q")).waiting == {2: 11, 0: 4, -1: 7}


def test_dead_letters_are_listed_and_counted_in_steps(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(looking, "SHOWN", 3)
    monkeypatch.setattr(looking, "COUNTED", 4)
    ids = [client.push("q", b"x", tags=("odd",) if number % 2 else ()).id for number in range(20)]
    for job in ids:
        client.discard(job)
    assert client.execute(c.GetDeadStats("q")).total == 20
    first = client.execute(c.ListDead("q", limit=8))
    rest = client.execute(c.ListDead("q", limit=12, after=first.next_after))
    assert [job.id for job in (*first.jobs, *rest.jobs)] == ids
    assert rest.next_after is None
    odd = client.execute(c.ListDead("q", limit=10, tag="odd"))
    assert [job.id for job in odd.jobs] == ids[1::2]
    assert odd.next_after is None


def test_short_steps_change_no_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(looking, "SHOWN", 2)
    monkeypatch.setattr(looking, "COUNTED", 2)
    twins = Twins()
    try:
        drive(twins, 7, 200, audit_every=200)
    finally:
        twins.close()
