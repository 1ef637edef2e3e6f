"""The memory limit of a queue without a data directory: what does not fit is refused, and there is room again later."""

import pytest

import stoker
from stoker.brokers.local import LocalSettings
from stoker.model.errors import MemoryFull
from stoker.model.options import Options
from stoker.runtime.memory import FULL_AT

LIMIT = 1 << 20
GONE = Options(remove_on_complete=True)
SHARDS = pytest.mark.parametrize("shards", [1, 4])


def queue(shards: int, limit: int = LIMIT) -> stoker.Client:
    return stoker.connect("memory://", settings=LocalSettings(shards=shards, memory_bytes_max=limit))


def push_until_full(client: stoker.Client) -> None:
    for number in range(LIMIT // 1_000):
        client.push(f"q{number % 3}", bytes(1_000))


@SHARDS
def test_what_does_not_fit_into_memory_is_refused(shards: int):
    with queue(shards) as client:
        with pytest.raises(MemoryFull, match=f"the memory limit of {LIMIT} bytes is reached"):
            push_until_full(client)
        pushed = client.get_counts().waiting
        assert 0.5 * LIMIT < pushed * 1_000 < LIMIT
        with pytest.raises(MemoryFull):
            client.push_batch("q", [b""])
        with pytest.raises(MemoryFull):
            client.kv_set("k", b"")
        assert client.get_counts().waiting == pushed


@SHARDS
def test_one_large_batch_is_noticed_at_once(shards: int):
    with queue(shards) as client:
        client.push_batch("q", [bytes(LIMIT // 10)] * 10)
        with pytest.raises(MemoryFull):
            client.push("other", b"")


@SHARDS
def test_jobs_that_are_worked_off_make_room(shards: int):
    with queue(shards) as client:
        for _ in range(3):
            client.push_batch("q", [bytes(LIMIT // 10)] * 10, GONE)
            with pytest.raises(MemoryFull):
                client.push("other", b"", GONE)
            delivery = client.pull("q", 10)
            client.ack_batch(delivery.ids, delivery.token)
            assert client.push("other", b"", GONE).created


@pytest.mark.parametrize("shards", [1, 4, 16])
def test_the_limit_is_exact_however_the_shards_grow(shards: int):
    """Shards are counted only now and then while there is much room, and still none of it is overlooked."""
    limit = 16 * LIMIT
    with queue(shards, limit) as client:
        memory = client.broker.runtime.memory  # type: ignore[attr-defined]
        for _ in range(3):
            number = 0
            while not memory.is_full:
                number += 1
                client.push_batch(f"q{number % 40}", [bytes(1_000)] * (number % 30 + 2), GONE)
                assert memory.is_full == (memory.bytes > limit * FULL_AT)
            while (delivery := client.pull([f"q{place}" for place in range(40)], 100)).ids:
                client.ack_batch(delivery.ids, delivery.token)
                assert memory.is_full == (memory.bytes > limit * FULL_AT)


def test_zero_is_no_limit():
    with queue(1, limit=0) as client:
        client.push_batch("q", [bytes(LIMIT)] * 5)
        assert client.push("q", b"").created
