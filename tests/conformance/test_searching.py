"""Searching for jobs and counting them, by everything that a filter knows."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.filters import FIELDS, JobFilter
from stoker.model.states import State
from stoker.model.workflows import Step
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import check_refused, finish, kill, push, push_many, start


def searched(client: Client, wanted: JobFilter, limit: int = 100) -> list[int]:
    """The ids of all pages. Every page goes on where the last one ended."""
    found: list[int] = []
    after = None
    while True:
        page = client.search(wanted, after=after, limit=limit)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        after = page.next_after
        if after is None:
            return found


def counted(client: Client, wanted: JobFilter) -> int:
    """The sum of all steps."""
    count, after = 0, None
    while True:
        step = client.count_jobs(wanted, after)
        count += step.count
        after = step.next_after
        if after is None:
            return count


def check(client: Client, ids: list[int], **fields: object) -> None:
    """Search and count agree on what there is."""
    wanted = JobFilter(**fields)  # type: ignore[arg-type]
    newest_first = sorted(ids, reverse=True)
    assert searched(client, wanted, limit=1_000) == newest_first
    if len(ids) < 10:
        assert searched(client, wanted, limit=1) == newest_first
    assert counted(client, wanted) == len(ids)


def test_by_worker_and_attempts(client: Client):
    waiting = push_many(client, 3)
    other = push(client, "other")
    job = client.pull("q", worker="w1")
    client.fail(job.ids[0], job.token, error="x", delay_ms=0)
    again = client.pull("q", 2, worker="w2")
    check(client, list(again.ids), worker="w2")
    check(client, [], worker="w1")
    check(client, [job.ids[0]], attempts_from=2)
    check(client, list(again.ids), attempts_from=1)
    check(client, [*waiting, other], attempts_from=0)
    client.ack_batch(again.ids, again.token)
    check(client, list(again.ids), worker="w2", state=State.COMPLETED)


def test_by_priority_name_and_tag_together(client: Client):
    push(client, priority=5, name="a")
    meant = push(client, priority=5, name="a", tags=("x",))
    push(client, priority=4, name="a", tags=("x",))
    batch = push_many(client, 4, priority=5, name="a", tags=("x",))
    check(client, [meant, *batch], priority=5, name="a", tag="x")
    check(client, [], priority=-5)
    client.change_priority(batch[2], 9)
    check(client, [batch[2]], priority=9)


def test_by_group_workflow_and_the_time_of_the_push(world: ContractWorld):
    client, began = world.client, world.now
    first = push(client, group_id="g")
    world.advance(10)
    second = push(client, group_id="g")
    flow = client.push_workflow([Step("q", [b""])])
    check(client, [first, second], group_id="g")
    check(client, [second], group_id="g", pushed_from=began + 10)
    check(client, [first], pushed_before=began + 10)
    assert counted(client, JobFilter(workflow=flow.id)) == 1


def test_by_the_job_that_pushed_it(client: Client):
    parent = push(client)
    push(client, queue="other")
    children = [push(client, parent_id=parent), push(client, parent_id=parent, queue="other")]
    batch = push_many(client, 3, parent_id=parent)
    check(client, [*children, *batch], parent_id=parent)
    check(client, [children[1]], parent_id=parent, queue="other")
    check(client, [], parent_id=children[0])


def test_by_the_time_of_the_end(world: ContractWorld):
    client, ends = world.client, []
    ids = []
    for _ in range(3):
        ids.append(finish(client))
        ends.append(world.now)
        world.advance(10)
    push(client)
    check(client, ids[1:], ended_from=ends[1])
    check(client, ids[:1], ended_before=ends[1])
    check(client, [ids[1]], ended_from=ends[1], ended_before=ends[2])
    check(client, [], ended_from=world.now)


def test_by_reason_and_fingerprint(client: Client):
    first = [kill(client, error=f"no user {number}") for number in range(3)]
    other = kill(client, error="broken")
    retried = push(client)
    job = start(client)
    client.fail(job.id, job.token, error="no user 77", delay_ms=1_000)
    push(client)
    check(client, [*first, retried], fingerprint="no user #")
    check(client, first, fingerprint="no user #", state=State.FAILED)
    check(client, [other], fingerprint="broken")
    check(client, [*first, other], reason="explicit_fail")
    check(client, [], reason="ttl_expired")


def test_by_text_in_payload_error_and_result(client: Client):
    error = kill(client, error="user j\u00fcrgen is not there")
    result = finish(client, result="for j\u00fcrgen".encode())
    payload = push(client, payload=b'{"user": "j\xc3\xbcrgen", "n": 1}')
    batch = list(client.push_batch("q", [b"none", "j\u00fcrgen again".encode(), b"none"]).ids)
    check(client, [payload, error, result, batch[1]], text="j\u00fcrgen")
    check(client, [payload], text='"n": 1}')
    check(client, [], text="J\u00fcrgen")
    check(client, [], text="nothing has this")
    check(client, [error], text="is not there", state=State.FAILED)


def test_a_long_search_goes_on_where_it_ended(client: Client):
    """Steps are short, and miss nothing: neither in batches nor among single jobs."""
    singles = [push(client, payload=b"needle") for _ in range(3)]
    batches = [push_many(client, 1_100, "other") for _ in range(2)]
    late = push(client, payload=b"a needle")
    check(client, [*singles, late], text="needle")
    check(client, [job for batch in batches for job in batch], queue="other")
    step = client.count_jobs(JobFilter(text="needle"))
    assert step.next_after is not None or step.looked >= len(singles)


@pytest.mark.parametrize("state", [None, *State])
def test_states_and_queues_are_counted_at_once(client: Client, state: State | None):
    kill(client)
    finish(client)
    push_many(client, 5)
    push_many(client, 4, delay_ms=1_000)
    push(client, "other")
    for queue in (None, "q", "other", "none"):
        wanted = JobFilter(queue=queue, state=state)
        step = client.count_jobs(wanted)
        assert step.next_after is None
        assert step.count == len(searched(client, wanted))


def test_other_tenants_are_not_seen(client: Client):
    push(client, payload=b"mine")
    other = client.as_tenant("other")
    assert searched(other, JobFilter(text="mine")) == []
    assert counted(other, JobFilter(text="mine")) == counted(other, JobFilter()) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": "a b"},
        {"text": ""},
        {"text": "x" * 1_025},
        {"fingerprint": "x" * 201},
        {"attempts_from": -1},
        {"priority": 2**60},
    ],
    ids=["queue", "text", "long-text", "fingerprint", "attempts", "priority"],
)
def test_a_filter_that_makes_no_sense_is_refused(world: ContractWorld, fields: dict[str, object]):
    wanted = JobFilter(**fields)  # type: ignore[arg-type]
    told = {name: getattr(wanted, name) for name in FIELDS}
    check_refused(world, (InvalidRequest, LimitExceeded), c.Browse(**told))
    check_refused(world, (InvalidRequest, LimitExceeded), c.CountJobs(**told))
