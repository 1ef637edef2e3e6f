"""Views, pages, counts and the answer to: why is this job not running?"""

from collections.abc import Callable
from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound
from stoker.model.limits import Limits
from stoker.model.options import DAY_MS, Dependency
from stoker.model.replies import Counts, Totals
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    NEVER,
    STEADY,
    check_refused,
    finish,
    kill,
    pulled,
    push,
    push_many,
    start,
)


def browsed(client: Client, queue: str | None = None, state: State | None = None, **filters: Any) -> list[int]:
    return [view.id for view in client.browse(queue, state, **filters).jobs]


def one_of_each(world: ContractWorld) -> dict[str, int]:
    """A job in every state, in queue `q`."""
    client = world.client
    jobs = {"expired": push(client, ttl_ms=1)}
    world.advance(1)
    jobs["completed"] = finish(client)
    jobs["failed"] = kill(client)
    jobs["cancelled"] = push(client)
    client.cancel(jobs["cancelled"])
    jobs["active"] = push(client, lease_ms=DAY_MS)
    assert pulled(client) == [jobs["active"]]
    jobs["waiting"] = push(client)
    jobs["delayed"] = push(client, delay_ms=DAY_MS)
    jobs["blocked"] = push(client, depends_on=(Dependency(jobs["active"]),))
    return jobs


# --- one job -------------------------------------------------------------------------------------


def test_every_state_can_be_read(world: ContractWorld):
    for state, job in one_of_each(world).items():
        assert world.client.get_job(job).state == state
        assert world.client.get_state(job) == state


def test_a_job_that_is_gone_is_not_found(world: ContractWorld):
    gone = finish(world.client, remove_on_complete=True)
    for command in (c.GetJob(gone), c.Why(gone), c.GetLogs(gone), c.Cancel(gone), c.WaitJob(gone, 0)):
        check_refused(world, NotFound, command)


# --- waiting for the end -------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "expired"])
def test_waiting_for_an_ended_job_answers_at_once(world: ContractWorld, state: str):
    job = one_of_each(world)[state]
    begin = world.now
    ended = world.client.wait_job(job, 10_000)
    assert (ended.id, ended.state, ended.finished) == (job, state, True)
    assert ended.reason == world.client.get_job(job).reason
    assert ended.error == world.client.get_job(job).error
    assert world.now == begin


def test_waiting_for_a_result(client: Client):
    job = finish(client, result=b"42")
    assert client.wait_job(job).result == b"42"


def test_waiting_ends_with_the_time(world: ContractWorld):
    job = push(world.client)
    begin = world.now
    ended = world.client.wait_job(job, 1_000)
    assert (ended.id, ended.state, ended.finished) == (job, State.WAITING, False)
    assert world.now == begin + 1_000
    assert world.client.wait_job(job, 0).finished is False


def test_waiting_is_answered_when_the_job_ends(world: ContractWorld):
    job = push(world.client, ttl_ms=300)
    begin = world.now
    ended = world.client.wait_job(job, 10_000)
    assert (ended.state, ended.reason, ended.finished) == (State.EXPIRED, "ttl_expired", True)
    assert world.now == begin + 300


def test_waiting_sees_through_retries_to_the_end(world: ContractWorld):
    client = world.client
    job = push(client, lease_ms=100, max_attempts=1)
    start(client)
    ended = client.wait_job(job, 10_000)
    assert (ended.state, ended.reason) == (State.FAILED, "stalled")


def test_waiting_is_answered_for_a_job_that_is_forgotten_at_its_end(world: ContractWorld):
    """Whoever waited learns of it; whoever comes later finds nothing."""
    client = world.client
    job = push(client, ttl_ms=300, keep_completed_age_ms=0)
    assert client.wait_job(job, 10_000).state is State.EXPIRED
    check_refused(world, NotFound, c.WaitJob(job, 0))


# --- browsing ------------------------------------------------------------------------------------


def test_the_newest_come_first_unless_asked_otherwise(client: Client):
    ids = push_many(client, 3)
    assert browsed(client, "q") == ids[::-1]
    assert browsed(client, "q", ascending=True) == ids


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_bring_every_job_once(client: Client, ascending: bool, limit: int):
    ids = [*push_many(client, 4), push(client, priority=5), *push_many(client, 2, delay_ms=100)]
    assert pulled(client, count=2) == [ids[4], ids[0]]
    client.ack(ids[0])
    found: list[int] = []
    after = None
    while True:
        page = client.browse("q", after=after, limit=limit, ascending=ascending)
        assert len(page.jobs) <= limit
        found += [view.id for view in page.jobs]
        if page.next_after is None:
            break
        after = page.next_after
    assert found == (ids if ascending else ids[::-1])


def test_a_page_holds_the_same_views_as_asking_for_each(world: ContractWorld):
    jobs = one_of_each(world)
    page = world.client.browse("q", ascending=True)
    assert list(page.jobs) == [world.client.get_job(job) for job in sorted(jobs.values())]


@pytest.mark.parametrize("state", list(State))
def test_browsing_one_state(world: ContractWorld, state: State):
    jobs = one_of_each(world)
    assert browsed(world.client, "q", state) == [jobs[state]]
    assert browsed(world.client, None, state) == [jobs[state]]
    assert browsed(world.client, "other", state) == []


def test_browsing_all_queues(client: Client):
    ids = [push(client, queue) for queue in ("a", "b", "a", "c")]
    assert browsed(client, ascending=True) == ids
    assert browsed(client, "a", ascending=True) == [ids[0], ids[2]]
    assert browsed(client, limit=2, ascending=True) == ids[:2]
    assert browsed(client, after=ids[1], ascending=True) == ids[2:]
    assert browsed(client, after=ids[2]) == [ids[1], ids[0]]


def test_browsing_by_tag_and_group(client: Client):
    tagged = push(client, tags=("x", "y"))
    both = push(client, tags=("x",), group_id="g")
    grouped = push_many(client, 2, group_id="g")
    push(client)
    assert browsed(client, tag="x", ascending=True) == [tagged, both]
    assert browsed(client, tag="y") == [tagged]
    assert browsed(client, tag="z") == []
    assert browsed(client, group_id="g", ascending=True) == [both, *grouped]
    assert browsed(client, tag="x", group_id="g") == [both]


def test_browsing_by_the_kind_of_job(client: Client):
    welcome, reports = push(client, name="welcome"), push_many(client, 2, name="report")
    push(client)
    assert browsed(client, name="welcome") == [welcome]
    assert browsed(client, name="report", ascending=True) == reports
    assert browsed(client, name="other") == []
    assert client.get_job(welcome).name == "welcome"


def test_a_delivery_names_the_kind_of_each_run(client: Client):
    push_many(client, 2, name="report")
    push(client, name="welcome")
    push(client)
    runs = client.pull("q", 10).runs
    assert [run.name for run in runs for _ in run.ids] == ["report", "report", "welcome", None]


def test_browsing_by_the_time_of_the_push(world: ContractWorld):
    begin, ids = world.now, []
    for _ in range(4):
        ids.append(push(world.client))
        world.advance(10)
    client = world.client
    assert browsed(client, pushed_from=begin + 10, ascending=True) == ids[1:]
    assert browsed(client, pushed_before=begin + 10, ascending=True) == ids[:1]
    assert browsed(client, pushed_from=begin + 10, pushed_before=begin + 30, ascending=True) == ids[1:3]
    assert browsed(client, pushed_from=begin + 11, pushed_before=begin + 20) == []


def test_filters_do_not_shorten_the_search(client: Client):
    """A page is filled from however far away, and a last page says that it is the last."""
    rare = push(client, tags=("rare",))
    push_many(client, 500)
    page = client.browse("q", tag="rare", limit=1)
    assert [view.id for view in page.jobs] == [rare]
    assert browsed(client, "q", tag="rare", after=rare) == []


def test_a_page_is_limited(make_world: MakeWorld):
    world = make_world(limits=Limits(browse_jobs_max=2))
    push_many(world.client, 3)
    check_refused_quietly(world, c.Browse(limit=3))
    check_refused_quietly(world, c.ListDead("q", limit=3))
    assert len(browsed(world.client, limit=2)) == 2


def check_refused_quietly(world: ContractWorld, command: c.Command[Any]) -> None:
    """As `check_refused`, for a world whose pages are too small for a whole picture."""
    before = world.client.get_stats()
    with pytest.raises(LimitExceeded):
        world.client.execute(command)
    assert world.client.get_stats() == before


# --- why -----------------------------------------------------------------------------------------


def test_a_ready_job_has_only_those_ahead_of_it(client: Client):
    ids = push_many(client, 3)
    high = push(client, priority=1)
    lifo = push(client, lifo=True)
    for ahead, job in enumerate([high, lifo, *ids]):
        why = client.why(job)
        assert (why.state, why.jobs_ahead) == (State.WAITING, ahead)
        assert (why.paused, why.no_free_slot, why.rate_limited_until) == (False, False, None)
        assert (why.group_busy_with, why.blocked_by, why.delayed_until) == (None, (), None)


def test_jobs_ahead_are_those_of_the_same_queue_that_wait(client: Client):
    push(client, "other", priority=9)
    push(client, priority=9, delay_ms=1_000)
    running, waiting, asked = push(client), push(client), push(client)
    assert pulled(client, count=1) == [running]
    assert client.why(asked).jobs_ahead == 1
    client.cancel(waiting)
    assert client.why(asked).jobs_ahead == 0


def test_a_paused_queue_is_a_hindrance(client: Client):
    job = push(client)
    client.pause("q")
    assert client.why(job).paused is True
    client.resume("q")
    assert client.why(job).paused is False


def test_no_free_slot_is_a_hindrance(client: Client):
    client.set_concurrency("q", 1)
    running, waiting = push_many(client, 2)
    assert pulled(client) == [running]
    assert client.why(waiting).no_free_slot is True
    client.ack(running)
    assert client.why(waiting).no_free_slot is False


def test_an_empty_bucket_is_a_hindrance_until_its_refill(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 1_000)
    ids = push_many(client, 2)
    assert pulled(client) == ids[:1]
    assert client.why(ids[1]).rate_limited_until == world.now + 1_000
    world.advance(1_000)
    assert client.why(ids[1]).rate_limited_until is None


def test_a_busy_group_is_a_hindrance(client: Client):
    running, second, third = (push(client, group_id="g") for _ in range(3))
    assert pulled(client) == [running]
    assert client.why(second).group_busy_with == running
    assert client.why(third).group_busy_with is not None
    client.ack(running)
    assert client.why(second).group_busy_with is None
    assert client.why(third).group_busy_with == second


def test_those_before_it_in_its_group_are_ahead_of_a_grouped_job(client: Client):
    """Even where their priority is lower: they come first. Beside them count those with a better place in the queue."""
    head, second = push(client, group_id="g"), push(client, group_id="g")
    urgent, outside = push(client, group_id="g", priority=9), push(client, priority=10)
    assert client.why(outside).jobs_ahead == 0
    assert client.why(urgent).jobs_ahead == 3
    assert client.why(second).jobs_ahead == 3
    assert client.why(head).jobs_ahead == 2


def test_a_delayed_job_says_until_when(world: ContractWorld):
    push_many(world.client, 3)
    job = push(world.client, delay_ms=1_000)
    why = world.client.why(job)
    assert (why.state, why.delayed_until, why.jobs_ahead) == (State.DELAYED, world.now + 1_000, 0)


def test_a_blocked_job_says_by_whom(client: Client):
    one, other = push_many(client, 2)
    job = push(client, depends_on=(Dependency(one), Dependency(other)))
    why = client.why(job)
    assert (why.state, why.blocked_by, why.jobs_ahead) == (State.BLOCKED, (one, other), 0)


def test_all_hindrances_are_named_at_once(world: ContractWorld):
    client = world.client
    client.set_rate_limit("q", 1, 1_000)
    client.set_concurrency("q", 1)
    running, waiting = push(client, group_id="g"), push(client, group_id="g")
    assert pulled(client) == [running]
    client.pause("q")
    why = client.why(waiting)
    assert (why.paused, why.no_free_slot, why.group_busy_with) == (True, True, running)
    assert why.rate_limited_until == world.now + 1_000


@pytest.mark.parametrize("state", ["active", "completed", "failed", "cancelled", "expired"])
def test_a_job_that_runs_or_has_ended_says_only_its_state(world: ContractWorld, state: str):
    job = one_of_each(world)[state]
    world.client.pause("q")
    why = world.client.why(job)
    assert (why.state, why.paused, why.no_free_slot, why.jobs_ahead) == (state, False, False, 0)
    assert (why.rate_limited_until, why.group_busy_with, why.blocked_by, why.delayed_until) == (None, None, (), None)


# --- counts and totals ---------------------------------------------------------------------------


def test_counts_are_by_state(world: ContractWorld):
    one_of_each(world)
    everything = Counts(waiting=1, delayed=1, blocked=1, active=1, completed=1, failed=1, cancelled=1, expired=1)
    assert world.client.get_counts("q") == everything
    assert world.client.get_counts() == everything


def test_waiting_jobs_are_counted_by_priority_whatever_form_they_have(world: ContractWorld):
    client = world.client
    batch = push_many(client, 5, priority=2)
    for priority in (0, 2, 2**31 - 1, -7):
        push(client, priority=priority)
    groups = [push(client, group_id="g", priority=priority) for priority in (2, 4, 4)]
    push(client, priority=4, delay_ms=1_000)
    push(client, priority=4, depends_on=(Dependency(batch[0]),))
    wanted = {2**31 - 1: 1, 4: 2, 2: 7, 0: 1, -7: 1}
    assert list(client.get_priorities("q").items()) == list(wanted.items())
    first = start(client)
    client.cancel(groups[1])
    client.change_priority(batch[4], 0)
    assert dict(client.get_priorities("q")) == {4: 1, 2: 6, 0: 2, -7: 1}
    client.release(first.id, first.token)
    assert sum(client.get_priorities("q").values()) == client.get_counts("q").waiting
    world.advance(1_000)
    assert client.get_priorities("q")[4] == 2
    assert dict(client.as_tenant("other").get_priorities("q")) == {}


def test_a_tenants_counts_are_the_sum_of_its_queues(world: ContractWorld):
    client = world.client
    push_many(client, 2, "a")
    push_many(client, 3, "b")
    finish(client, "c")
    push(world.client_for("acme"), "a")
    assert (client.get_counts().waiting, client.get_counts().completed) == (5, 1)
    assert client.get_stats().totals.pushed == 6
    assert world.client_for("acme").get_counts().waiting == 1


def test_an_unknown_queue_has_nothing(client: Client):
    stats = client.get_stats("never")
    assert (stats.counts, stats.totals, stats.completed_last_minute) == (Counts(), Totals(), 0)
    assert list(client.list_queues()) == []


def test_totals_count_what_happened(world: ContractWorld):
    client = world.client
    done = push(client)  # completed at the second attempt, after a release
    client.release(start(client).id)
    client.fail(start(client).id, delay_ms=0)
    client.ack(start(client).id)
    kill(client)
    push(client, timeout_ms=100, backoff=STEADY, max_attempts=1)
    start(client)
    world.advance(100)
    push(client)
    client.cancel(start(client).id)
    client.fail(client.browse("q", State.ACTIVE).jobs[0].id)
    stalled = push(client, lease_ms=100, backoff=STEADY)
    start(client)
    world.advance(100)
    push(client, ttl_ms=1, queue="q")
    world.advance(1)
    client.cancel(push(client))
    totals = client.get_stats("q").totals
    assert client.get_state(done) is State.COMPLETED
    assert client.get_state(stalled) is State.DELAYED
    assert (totals.pushed, totals.started) == (7, 7)
    assert (totals.completed, totals.failed, totals.cancelled, totals.expired) == (1, 2, 2, 1)
    assert (totals.timed_out, totals.stalled, totals.evicted) == (1, 1, 0)
    assert totals.retried == 2, "the failure of the first and the stall of the last; a cancelled one is not tried again"


def test_the_sums_of_waiting_and_running_are_over_completed_jobs(world: ContractWorld):
    client = world.client
    for wait, run in ((100, 20), (300, 5)):
        job = push(client)
        world.advance(wait)
        start(client)
        world.advance(run)
        client.ack(job)
    kill(client)
    totals = client.get_stats("q").totals
    assert (totals.wait_ms_sum, totals.run_ms_sum) == (400, 25)
    assert client.get_stats().totals.wait_ms_sum == 400


def test_the_last_minute_is_sixty_whole_seconds(world: ContractWorld):
    client = world.client
    finish(client)
    world.advance(10_000)
    finish(client)
    finish(client, "other")
    assert client.get_stats("q").completed_last_minute == 2
    assert client.get_stats().completed_last_minute == 3
    world.advance(48_000)
    assert client.get_stats("q").completed_last_minute == 2
    world.advance(4_000)
    assert client.get_stats("q").completed_last_minute == 1
    world.advance(10_000)
    assert client.get_stats("q").completed_last_minute == 0
    assert client.get_stats().completed_last_minute == 0


def test_counts_fit_what_can_be_browsed(world: ContractWorld):
    one_of_each(world)
    push_many(world.client, 7)
    client = world.client
    client.ack_batch(pulled(client, count=3))
    client.clean("q", State.CANCELLED)
    counts = client.get_counts("q")
    for state in State:
        assert getattr(counts, state) == len(browsed(client, "q", state))


# --- queues --------------------------------------------------------------------------------------


def test_queues_are_listed(client: Client):
    assert list(client.list_queues()) == []
    for name in ("b", "a", "c", "a"):
        push(client, name)
    assert sorted(client.list_queues()) == ["a", "b", "c"]


def test_an_emptied_queue_is_still_a_queue(world: ContractWorld):
    client = world.client
    client.purge_dead("q", [kill(client)])
    client.clean("q", State.FAILED)
    world.advance(100 * DAY_MS)
    assert list(client.list_queues()) == ["q"]


def test_looking_makes_no_queue(world: ContractWorld):
    client = world.client
    client.get_stats("never")
    client.browse("never")
    client.list_dead("never")
    client.get_dead_stats("never")
    client.get_priorities("never")
    client.pull("never")
    assert list(client.list_queues()) == []


@pytest.mark.parametrize(
    "command", [c.GetQueue("a b"), c.GetStats("a b"), c.GetPriorities("a b"), c.Browse("a b"), c.FindJob("x", "a b")]
)
def test_a_bad_name_is_refused(world: ContractWorld, command: c.Command[Any]):
    check_refused(world, InvalidRequest, command)


def test_an_id_that_never_was_is_not_found(world: ContractWorld):
    for command in (c.GetJob(NEVER), c.Why(NEVER), c.WaitJob(NEVER, 0), c.GetLogs(NEVER), c.GetPartials(NEVER)):
        check_refused(world, NotFound, command)


# --- bytes of payloads -----------------------------------------------------------------------------


def payload_bytes(client: Client, queue: str | None = "q") -> int:
    return client.get_stats(queue).payload_bytes


def test_payload_bytes_count_what_is_live(world: ContractWorld):
    client = world.client
    assert (payload_bytes(client), payload_bytes(client, None)) == (0, 0)
    ids = list(client.push_batch("q", [b"1", b"22", b"333", b"4444"]).ids)
    push(client, payload=b"delayed", delay_ms=50)
    push(client, payload=b"blocked", depends_on=(Dependency(ids[0]),))
    assert payload_bytes(client) == 10 + 7 + 7
    client.pull("q", 4)
    assert payload_bytes(client) == 24
    client.ack_batch(ids[:2])
    assert payload_bytes(client) == 24 - 1 - 2
    client.fail(ids[2], delay_ms=5)
    client.release(ids[3])
    assert payload_bytes(client) == 21


def test_payload_bytes_leave_with_every_end(world: ContractWorld):
    client = world.client
    ends: dict[bytes, Callable[[int], Any]] = {
        b"1": lambda job: client.cancel(job),
        b"22": lambda job: client.discard(job),
        b"4444": lambda job: client.drain("q"),
        b"55555": lambda job: client.clean("q", State.WAITING),
        b"666666": lambda job: client.obliterate("q", force=True),
    }
    for payload, end in ends.items():
        end(push(client, payload=payload))
        assert payload_bytes(client) == 0, payload
    client.push_batch("q", [b"1", b"22", b"333"], ttl_ms=10)
    assert payload_bytes(client) == 6
    world.advance(10)
    assert payload_bytes(client) == 0


def test_payload_bytes_come_back_with_a_dead_letter(client: Client):
    job = kill(client, payload=b"12345")
    assert payload_bytes(client) == 0
    client.update_payload(job, b"1234567")
    assert payload_bytes(client) == 0
    client.retry_dead("q", [job])
    assert payload_bytes(client) == 7


def test_payload_bytes_follow_a_new_payload(client: Client):
    ids = list(client.push_batch("q", [b"1", b"22", b"333"]).ids)
    client.update_payload(ids[1], b"22222")
    assert payload_bytes(client) == 9
    client.pull("q", 3)
    client.update_payload(ids[1], b"")
    assert payload_bytes(client) == 4
    client.ack_batch(ids)
    assert payload_bytes(client) == 0


def test_payload_bytes_of_a_tenant_are_those_of_its_queues(make_world: MakeWorld):
    world = make_world(shards=4)
    for number in range(8):
        push(world.client, f"q{number}", b"x" * number)
    push(world.client_for("other"), "q1", b"theirs")
    assert payload_bytes(world.client, None) == sum(range(8))
    assert [payload_bytes(world.client, f"q{number}") for number in range(8)] == list(range(8))
    assert payload_bytes(world.client_for("other"), None) == 6


def test_staged_payloads_count_once_they_are_published(client: Client):
    client.stage("tx", "a", "q", [b"1", b"22"])
    assert payload_bytes(client) == 0
    client.publish("tx", ["a"])
    assert payload_bytes(client) == 3
