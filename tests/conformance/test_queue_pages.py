"""Many queues at once: each with what `GetQueue` and `GetStats` say of it."""

import pytest

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError
from stoker.model.replies import QueuePage
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, push, push_many, start

NAMES = ("Mail.out", "a", "mail", "mail-2", "z")


@pytest.fixture
def filled(world: ContractWorld) -> ContractWorld:
    """Five queues that differ, and one of another tenant."""
    client = world.client
    for number, name in enumerate(NAMES):
        push_many(client, number + 1, queue=name)
    client.pause("mail")
    client.set_rate_limit("a", 5)
    client.set_concurrency("z", 3)
    started = start(client, "z")
    world.advance(20)
    client.ack(started.id, started.token)
    push(client.as_tenant("other"), queue="elsewhere")
    return world


def names_of(page: QueuePage) -> list[str]:
    return [one.name for one in page.queues]


def test_each_queue_says_what_it_says_by_itself(filled: ContractWorld):
    client = filled.client
    page = client.get_queues()
    assert names_of(page) == list(NAMES)
    assert (page.next_after, page.total) == (None, 5)
    for one in page.queues:
        assert one.policy == client.get_queue(one.name)
        assert one.stats == client.get_stats(one.name)
    assert [one.stats.counts.waiting for one in page.queues] == [1, 2, 3, 4, 4]


def test_pages_go_on_after_a_name(filled: ContractWorld):
    client, seen, after = filled.client, list[str](), None
    for _ in range(3):
        page = client.get_queues(after=after, limit=2)
        assert page.total == 5
        seen += names_of(page)
        after = page.next_after
    assert (seen, after) == (list(NAMES), None)
    assert names_of(client.get_queues(after="m", limit=1)) == ["mail"]
    assert client.get_queues(after="zz") == QueuePage([], None, 5)


def test_a_text_is_a_part_of_the_name_in_any_case(filled: ContractWorld):
    page = filled.client.get_queues("MAIL", limit=2)
    assert names_of(page) == ["Mail.out", "mail"]
    assert (page.next_after, page.total) == ("mail", 5)
    assert names_of(filled.client.get_queues("mail", page.next_after)) == ["mail-2"]
    assert names_of(filled.client.get_queues("%")) == []


def test_a_tenant_sees_its_own(filled: ContractWorld):
    assert names_of(filled.client.as_tenant("other").get_queues()) == ["elsewhere"]
    assert filled.client.as_tenant("none").get_queues() == QueuePage([])


def test_a_queue_that_is_gone_is_left_out(filled: ContractWorld):
    filled.client.obliterate("mail", force=True)
    assert "mail" not in names_of(filled.client.get_queues())
    assert filled.client.get_queues().total == 4


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (c.GetQueues(limit=0), InvalidRequest),
        (c.GetQueues(limit=1_001), LimitExceeded),
        (c.GetQueues(after="a b"), InvalidRequest),
        (c.GetQueues("x" * 257), LimitExceeded),
        (c.GetQueues("\ud800"), InvalidRequest),
    ],
    ids=ascii,
)
def test_a_page_that_makes_no_sense_is_refused(world: ContractWorld, command: c.GetQueues, error: type[StokerError]):
    check_refused(world, error, command)
