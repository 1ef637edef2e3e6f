"""What was pushed, and saying so in a test."""

from uuid import UUID

import pytest

from stoker.model.ids import shard_of
from stoker.testing import Harness
from tests.testing.shop import Order, pack, thank

ORDER = Order(UUID(int=7), items=3)


def test_pushed_jobs_are_told_with_typed_arguments_and_defaults(world: Harness):
    pack.push_sync(ORDER)
    (job,) = world.pushed()
    assert (job.name, job.queue, job.arguments) == ("pack", "orders", {"order": ORDER, "express": False})


def test_jobs_are_told_in_order_and_by_kind_however_they_were_pushed(world: Harness):
    thank.push_sync("Ada")
    thank.push_batch_sync(["Bob", "Cleo"])
    pack.push_sync(ORDER)
    world.drain()
    assert [job.arguments["customer"] for job in world.pushed(thank)] == ["Ada", "Bob", "Cleo", str(ORDER.id)]
    assert len(world.pushed()) == 5


def test_a_push_that_met_an_older_job_made_none(world: Harness):
    once = thank.options(unique_key="Ada")
    once.push_sync("Ada")
    once.push_sync("Ada")
    assert len(world.pushed(thank)) == 1


def test_some_arguments_are_enough_to_find_a_job(world: Harness):
    first, second = pack.push_sync(ORDER, express=True), pack.push_sync(ORDER, express=True)
    assert world.assert_pushed(pack, express=True).id == second.id != first.id
    assert world.assert_pushed(pack, order=ORDER).arguments["express"]


def test_options_are_told_too(world: Harness):
    thank.options(delay="5m", priority=3).push_sync("Ada")
    options = world.assert_pushed(thank).options
    assert (options.delay_ms, options.priority) == (300_000, 3)


def test_a_job_that_was_not_pushed_is_told_beside_those_that_were(world: Harness):
    thank.push_sync("Ada")
    with pytest.raises(
        AssertionError, match=r"thank\(customer='Bob'\) was not pushed; these were pushed:\n  thank\(customer='Ada'\)"
    ):
        world.assert_pushed(thank, customer="Bob")
    with pytest.raises(AssertionError, match=r"pack\(\) was not pushed; these were pushed:\n  thank"):
        world.assert_pushed(pack)
    with pytest.raises(AssertionError, match="was not pushed"):
        world.assert_pushed(thank, nonsense=1)


def test_a_job_that_should_not_have_been_pushed_is_told(world: Harness):
    thank.push_sync("Ada")
    world.assert_not_pushed(thank, customer="Bob")
    world.assert_not_pushed(pack)
    with pytest.raises(AssertionError, match=r"thank\(customer='Ada'\) was pushed"):
        world.assert_not_pushed(thank, customer="Ada")


def test_what_was_pushed_can_be_forgotten(world: Harness):
    thank.push_sync("Ada")
    world.forget_pushed()
    assert world.pushed() == []
    thank.push_sync("Bob")
    assert len(world.pushed()) == 1


def test_a_payload_that_no_handler_can_read_is_told_without_arguments(world: Harness):
    world.client.push("mail", b"\xc1", name="thank", codec="msgpack")
    (job,) = world.pushed(thank)
    assert (job.arguments, job.payload) == ({}, b"\xc1")


def test_jobs_of_queues_in_different_shards_are_told_in_the_order_in_which_they_were_pushed(world: Harness):
    names = [f"q{number % 7}" for number in range(21)]
    ids = [world.client.push(name, b"").id for name in names]
    assert len({shard_of(job) for job in ids}) > 1
    assert [(job.queue, job.id) for job in world.pushed()] == list(zip(names, ids, strict=True))
