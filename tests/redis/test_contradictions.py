"""The contradictions of codeQ and FastQ, ruled out in Redis, too.

Each story that needs nothing but a broker is the one in `tests/contradictions`, told over Redis. Those about parts that
Redis does not have (filters, files) have a story of their own here.
"""

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import ModuleType, TracebackType

import pytest

from stoker.client.sync import Client
from stoker.model.errors import Damaged
from stoker.model.limits import DEFAULT_LIMITS
from stoker.model.options import Settings
from stoker.model.states import State
from stoker.model.units import duration_ms
from tests.contradictions import LATER, test_codeq, test_fastq
from tests.contradictions.support import pulled, push
from tests.redis.backing import InRedis

NOT_OF_A_BROKER = {"Q13": "an entitlement is checked by the server, before any broker"}


class RedisWorld(InRedis):
    """What `stoker.testing.World` is for the engine."""

    def __init__(self, settings: Settings | None = None, kind: str = "redis") -> None:
        super().__init__(kind, settings or Settings(), DEFAULT_LIMITS)
        self.client = Client(self.broker)

    def __enter__(self) -> "RedisWorld":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, by: int | str | timedelta) -> None:
        super().advance(by if isinstance(by, int) else duration_ms(by))

    def client_for(self, tenant: str) -> Client:
        return self.client.as_tenant(tenant)


@pytest.fixture(params=["redis", "valkey"])
def world(request: pytest.FixtureRequest) -> Iterator[RedisWorld]:
    with RedisWorld(kind=request.param) as made:
        yield made


def stories_of(module: ModuleType) -> dict[str, Callable[..., None]]:
    """Those that only need a world."""
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    return {name: test for name, test in tests.items() if "world" in inspect.signature(test).parameters}


globals().update(stories_of(test_codeq) | stories_of(test_fastq))


def test_c1_two_processes_that_push_one_key_make_one_job(world: RedisWorld):
    """A filter in each process said that the key of another one was new. Here the script decides, without a filter."""
    others = [Client(type(world.broker)(world.broker.target, world.broker.settings, world.broker.clock)) for _ in "ab"]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda number: others[number % 2].push("q", b"", custom_id="k"), range(50)))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    for other in others:
        other.close()


def test_c2_an_entry_whose_job_is_gone_is_skipped_and_drops_nothing(world: RedisWorld):
    """A sign that a task was gone dropped it unread. Here an entry of a list is compared with its job."""
    client = world.client
    jobs = [push(client) for _ in range(5)]
    client.cancel(jobs[0])
    client.move_to_delayed(jobs[1], 1_000)
    client.promote(jobs[1])
    client.move_to_delayed(jobs[2], 1_000)
    assert pulled(client) == [jobs[1], jobs[3], jobs[4]]
    world.advance(1_000)
    assert pulled(client) == [jobs[2]]


def test_c3_a_waiting_job_takes_the_memory_that_the_page_names(world: RedisWorld):
    """Figures of memory were computed wrongly. This one is asked of Redis."""
    redis = world.server.client()
    before = int(redis.info("memory")["used_memory"])
    for _ in range(10):
        world.client.push_batch("q", [b"x" * 100] * 1_000)
    used = int(redis.info("memory")["used_memory"]) - before
    redis.close()
    assert used / 10_000 - 100 <= 150


def test_c4_every_key_goes_when_its_time_is_over(world: RedisWorld):
    """One in a hundred expired entries stayed, because a filter said that it had been removed."""
    ids = list(world.client.push_batch("q", [b""] * 300, remove_on_complete=True, custom_id_ttl_ms=1_000).ids)
    for number in range(300):
        world.client.push("keyed", b"", custom_id=str(number), custom_id_ttl_ms=1_000, remove_on_complete=True)
    world.client.ack_batch(ids, world.client.pull("q", 300).token)
    delivery = world.client.pull("keyed", 300)
    world.client.ack_batch(list(delivery.ids), delivery.token)
    world.advance(1_001)
    redis = world.server.client()
    assert not redis.exists(f"{world.prefix}:{{default/0}}:q:5:keyed:keys")
    redis.close()


def test_c15_a_job_that_cannot_be_read_is_told_and_kept(world: RedisWorld):
    """An entry that could not be read was taken out of its queue and put nowhere."""
    jobs = [push(world.client) for _ in range(2)]
    redis, key = world.server.client(), f"{world.prefix}:{{default/0}}:j:0"
    good = redis.hget(key, "1")
    redis.hset(key, "1", b"\xc1 unreadable")
    with pytest.raises(Damaged):
        world.client.pull("q", 2)
    redis.hset(key, "1", good)
    redis.close()
    assert pulled(world.client) == jobs
    assert [world.client.get_state(job) for job in jobs] == [State.ACTIVE] * 2


@pytest.mark.parametrize("name", [name for name in vars(test_fastq) if name.startswith(("test_q8_", "test_q15_"))])
def test_q8_and_q15(monkeypatch: pytest.MonkeyPatch, name: str):
    """These make worlds of their own."""
    monkeypatch.setattr(test_fastq, "World", RedisWorld)
    getattr(test_fastq, name)()


def test_every_contradiction_of_both_has_a_test_here():
    names = [*globals(), *(name for name in vars(test_fastq) if name.startswith(("test_q4_", "test_q8_", "test_q15_")))]
    found = {name.split("_")[1].upper() for name in names if name.startswith(("test_c", "test_q"))}
    every = {f"C{number}" for number in range(1, 17)} | {f"Q{number}" for number in range(1, 16)}
    assert sorted(every - found - LATER.keys() - NOT_OF_A_BROKER.keys()) == []
