"""A push whose answer was lost may be sent again: it is carried out once."""

import pytest

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError
from stoker.model.limits import Limits
from stoker.model.options import Options
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import OUT_OF_BOUNDS, check_refused


def send(world: ContractWorld, sending: c.Sending, payload: bytes = b"", tenant: str = "default") -> int:
    return world.broker.execute(tenant, c.Push("q", payload, sending=sending)).id


def test_a_push_sent_again_answers_with_the_first_job(world: ContractWorld):
    first = world.broker.execute("default", c.Push("q", b"a", sending=c.Sending("web-1", 1)))
    again = world.broker.execute("default", c.Push("q", b"a", sending=c.Sending("web-1", 1)))
    assert again == first
    assert again.created
    assert world.client.get_counts("q").waiting == 1


def test_a_batch_sent_again_answers_with_the_first_jobs(world: ContractWorld):
    each = [Options(unique_key="k"), Options(unique_key="k"), Options(priority=2**60), Options()]
    batch = c.PushBatch("q", [b"a", b"b", b"c", b"d"], each=each, sending=c.Sending("web-1", 1))
    first, again = (world.broker.execute("default", batch) for _ in range(2))
    assert list(again.ids) == list(first.ids)
    assert again.duplicates == first.duplicates == {1: "unique_key"}
    assert again.refused == first.refused
    assert first.refused.keys() == {2}
    assert world.client.get_counts("q").waiting == 2


def test_it_is_remembered_after_the_job_has_ended(world: ContractWorld):
    job = send(world, c.Sending("web-1", 1))
    (delivered,) = world.client.pull("q")
    world.client.ack(delivered.id, delivered.token)
    world.advance(86_400_000)
    assert send(world, c.Sending("web-1", 1)) == job


def test_numbers_senders_and_tenants_are_told_apart(world: ContractWorld):
    send(world, c.Sending("web-1", 1))
    send(world, c.Sending("web-1", 2))
    send(world, c.Sending("web-2", 1))
    send(world, c.Sending("web-1", 1), tenant="other")
    assert world.client.get_counts("q").waiting == 3
    assert world.client_for("other").get_counts("q").waiting == 1


def test_what_is_settled_is_forgotten(world: ContractWorld):
    send(world, c.Sending("web-1", 1))
    later = send(world, c.Sending("web-1", 2, settled=2))
    assert send(world, c.Sending("web-1", 2, settled=2)) == later
    assert send(world, c.Sending("web-1", 1)) > later


def test_a_number_that_settles_itself_is_refused(world: ContractWorld):
    check_refused(world, InvalidRequest, c.Push("q", b"", sending=c.Sending("web-1", 1, settled=2)))


def test_a_refused_push_is_not_remembered(world: ContractWorld):
    with pytest.raises(StokerError):
        world.broker.execute("default", c.Push("q", b"", Options(priority=2**60), sending=c.Sending("web-1", 1)))
    assert send(world, c.Sending("web-1", 1))
    assert world.client.get_counts("q").waiting == 1


def test_pushes_that_are_never_settled_are_bounded(make_world: MakeWorld):
    world = make_world(limits=Limits(sendings_max=2))
    send(world, c.Sending("web-1", 1))
    send(world, c.Sending("web-1", 2))
    check_refused(world, LimitExceeded, c.Push("q", b"", sending=c.Sending("web-1", 3)))
    assert send(world, c.Sending("web-1", 3, settled=2))


def test_the_sender_that_was_quiet_for_longest_makes_room(make_world: MakeWorld):
    world = make_world(limits=Limits(senders_max=2))
    quiet, busy = send(world, c.Sending("quiet", 1)), send(world, c.Sending("busy", 1))
    send(world, c.Sending("new", 1))
    assert send(world, c.Sending("busy", 1)) == busy
    assert send(world, c.Sending("quiet", 1)) != quiet


@pytest.mark.parametrize(
    "bad", [c.Sending("", 1), c.Sending("s" * 1_025, 1), c.Sending("s", -1), c.Sending("s", 1, -1)]
)
def test_a_sending_that_is_none_is_refused(world: ContractWorld, bad: c.Sending):
    check_refused(world, OUT_OF_BOUNDS, c.Push("q", b"", sending=bad))
    check_refused(world, OUT_OF_BOUNDS, c.PushBatch("q", [b""], sending=bad))
