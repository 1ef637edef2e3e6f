"""Any number of jobs in one call: cut into batches that a server takes, answered as one."""

import asyncio
from collections.abc import Iterator

import pytest

import stoker
import stoker.aio
from stoker.brokers.local import LocalSettings
from stoker.client.batches import joined, pieces
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.limits import Limits
from stoker.model.replies import PushedBatch, Refusal

SMALL = LocalSettings(limits=Limits(batch_jobs_max=10, payload_bytes_max=100))


def numbers(count: int) -> Iterator[bytes]:
    return (b"%d" % number for number in range(count))


def test_more_jobs_than_a_batch_may_hold_go_in_in_their_order():
    client = stoker.connect("memory://", settings=SMALL)
    with pytest.raises(LimitExceeded):
        client.push_batch("a", list(numbers(11)))
    reply = client.push_many("a", numbers(25), batch_jobs=10, priority=3)
    assert reply.created == len(reply.ids) == 25
    delivered = [job for _ in range(3) for job in client.pull("a", 10)]
    assert [job.payload for job in delivered] == list(numbers(25))
    assert [job.id for job in delivered] == list(reply.ids)
    assert {job.options.priority for job in delivered} == {3}
    client.close()


def test_the_asynchronous_client_can_do_it_too():
    async def main() -> None:
        client = await stoker.aio.connect("memory://", settings=SMALL)
        assert (await client.push_many("a", numbers(25), batch_jobs=10)).created == 25
        await client.close()

    asyncio.run(main())


def test_refusals_and_duplicates_are_numbered_over_all_batches():
    client = stoker.connect("memory://", settings=SMALL)
    payloads = [b"", b"", bytes(101), b"", bytes(101)]
    reply = client.push_many("a", payloads, batch_jobs=2)
    assert set(reply.refused) == {2, 4}
    assert [bool(job) for job in reply.ids] == [True, True, False, True, False]
    again = client.push_many("a", [b"", b"", b""], batch_jobs=2, unique_key="k")
    assert again.duplicates == {1: "unique_key", 2: "unique_key"}
    client.close()


def test_with_a_key_the_whole_call_can_be_repeated():
    """The first time it breaks off in the middle."""

    def breaking() -> Iterator[bytes]:
        yield from numbers(15)
        raise OSError("the file cannot be read any further")

    client = stoker.connect("memory://", settings=SMALL)
    with pytest.raises(OSError, match="any further"):
        client.push_many("a", breaking(), batch_jobs=10, request_key="import-7")
    assert client.get_counts("a").waiting == 10
    assert len(set(client.push_many("a", numbers(15), batch_jobs=10, request_key="import-7").ids)) == 15
    assert client.get_counts("a").waiting == 15
    client.close()


def test_nothing_is_pushed_for_nothing():
    client = stoker.connect("memory://")
    assert client.push_many("a", []) == PushedBatch([])
    client.close()


def test_batches_are_cut_by_number_and_by_size():
    assert [len(piece) for piece in pieces(numbers(7), 3)] == [3, 3, 1]
    assert [len(piece) for piece in pieces([bytes(40)] * 5, 100, 100)] == [2, 2, 1]
    assert [len(piece) for piece in pieces([bytes(400), b"", bytes(400)], 100, 100)] == [1, 1, 1]
    with pytest.raises(InvalidRequest):
        list(pieces(numbers(1), 0))


def test_the_level_of_all_is_the_weakest_of_any():
    refusal = Refusal("invalid", "no")
    reply = joined([PushedBatch([1], level="fsync"), PushedBatch([0], {0: refusal}, level="commit")])
    assert reply == PushedBatch([1, 0], {1: refusal}, {}, "commit")
