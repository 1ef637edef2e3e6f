"""Dead letters grouped by reason and fingerprint."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, kill, push, start


def grouped(client: Client, queue: str | None = None, limit: int = 100) -> r.DeadGroups:
    """The groups after all letters were looked at."""
    while True:
        found = client.get_dead_groups(queue, limit)
        if not found.ungrouped:
            return found


def keys(found: r.DeadGroups) -> list[tuple[str, str, str, int]]:
    return [(group.queue, group.reason, group.fingerprint, group.count) for group in found.groups]


def test_errors_that_differ_in_values_are_one_group(world: ContractWorld):
    client, began = world.client, world.now
    users = []
    for number in range(5):
        users.append(kill(client, error=f"no user {number}"))
        world.advance(10)
    kill(client, error="broken")
    kill(client, "other", error="no user 7")
    found = grouped(client)
    assert keys(found)[0] == ("q", "explicit_fail", "no user #", 5)
    assert sorted(keys(found)[1:]) == [
        ("other", "explicit_fail", "no user #", 1),
        ("q", "explicit_fail", "broken", 1),
    ]
    first = found.groups[0]
    assert (first.first_at, first.last_at, list(first.examples)) == (began, began + 40, users[:1:-1])
    assert keys(grouped(client, "other")) == [("other", "explicit_fail", "no user #", 1)]
    assert keys(grouped(client, "none")) == []
    assert keys(grouped(client.as_tenant("other"))) == []


def test_reasons_are_kept_apart(world: ContractWorld):
    client = world.client
    kill(client, error="x")
    push(client, max_attempts=1)
    job = start(client)
    client.fail(job.id, job.token, error="x")
    assert sorted(keys(grouped(client))) == [
        ("q", "explicit_fail", "x", 1),
        ("q", "max_attempts_exceeded", "x", 1),
    ]


def test_a_letter_that_is_retried_or_purged_leaves_its_group(client: Client):
    dead = [kill(client, error=f"e {number}") for number in range(4)]
    assert keys(grouped(client)) == [("q", "explicit_fail", "e #", 4)]
    client.retry_dead("q", ids=dead[:1])
    client.purge_dead("q", ids=dead[1:2])
    assert keys(grouped(client)) == [("q", "explicit_fail", "e #", 2)]
    again = start(client)
    client.fail(again.id, again.token, error="e 9", retry=False)
    assert list(grouped(client).groups[0].examples) == [dead[0], dead[3], dead[2]]
    client.purge_dead("q")
    assert keys(grouped(client)) == []


def test_a_short_list_says_how_many_it_leaves_out(client: Client):
    for word in ("a", "b", "b", "c", "c", "c"):
        kill(client, error=word)
    found = grouped(client, "q", limit=1)
    assert (keys(found), found.others) == ([("q", "explicit_fail", "c", 3)], 3)
    assert grouped(client, limit=2).others == 1


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (c.GetDeadGroups("a b"), InvalidRequest),
        (c.GetDeadGroups(limit=0), InvalidRequest),
        (c.GetDeadGroups(limit=1_001), LimitExceeded),
    ],
    ids=str,
)
def test_nonsense_is_refused(world: ContractWorld, command: c.GetDeadGroups, error: type[StokerError]):
    check_refused(world, error, command)
