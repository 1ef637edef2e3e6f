"""Jobs that will not be tried again: why, for how long, and the way back."""

from typing import Any

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, NotFound, WrongState
from stoker.model.options import DAY_MS, HOUR_MS, DeadLetterPolicy, Dependency, Settings
from stoker.model.replies import DeadLetter
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    NEVER,
    STEADY,
    all_events,
    check_refused,
    finish,
    kill,
    picture,
    pulled,
    push,
    push_many,
    start,
    story,
)


def dead_ids(client: Client, queue: str = "q", **filters: Any) -> list[int]:
    return [view.id for view in client.list_dead(queue, **filters).jobs]


def dead_letter(client: Client, job: int) -> DeadLetter:
    dead = client.get_job(job).dead
    assert dead is not None
    return dead


def set_policy(client: Client, queue: str = "q", **fields: Any) -> None:
    client.set_queue_policy(queue, dead_letters=DeadLetterPolicy(**fields))


def test_a_dead_letter_says_why_it_is_one(world: ContractWorld):
    client = world.client
    job = push(client, payload=b"hello", max_attempts=2, backoff=STEADY, tags=("t",))
    client.fail(start(client, worker="w1").id, error="first")
    world.advance(1_000)
    client.fail(start(client, worker="w2").id, error="second", stack="trace")
    (view,) = client.list_dead("q").jobs
    assert view == client.get_job(job)
    assert (view.id, view.payload, view.options.tags, view.state) == (job, b"hello", ("t",), State.FAILED)
    assert (view.attempts, view.reason, view.error, view.stack) == (2, "max_attempts_exceeded", "second", "trace")
    assert [(attempt.worker, attempt.error) for attempt in view.history] == [("w1", "first"), ("w2", "second")]
    assert view.dead is not None
    assert (view.dead.reason, view.dead.entered_at) == ("max_attempts_exceeded", world.now)
    assert view.dead.expires_at == world.now + 7 * DAY_MS
    assert (view.dead.retry_count, view.dead.next_retry_at) == (0, 0)


def test_dead_letters_come_in_the_order_they_entered(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    for job in (ids[2], ids[0], ids[1]):
        client.fail(job, token, retry=False)
        world.advance(10)
    assert dead_ids(client) == [ids[2], ids[0], ids[1]]


def test_a_page_ends_and_the_next_begins_after_it(client: Client):
    ids = [kill(client) for _ in range(5)]
    page = client.list_dead("q", limit=2)
    assert [view.id for view in page.jobs] == ids[:2]
    page = client.list_dead("q", limit=2, after=page.next_after)
    assert [view.id for view in page.jobs] == ids[2:4]
    page = client.list_dead("q", limit=2, after=page.next_after)
    assert [view.id for view in page.jobs] == ids[4:]
    assert page.next_after is None


def test_pages_follow_the_order_of_entering_not_of_ids(client: Client):
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    for job in (ids[2], ids[0], ids[1]):
        client.fail(job, token, retry=False)
    assert dead_ids(client, limit=1) == [ids[2]]
    assert dead_ids(client, after=ids[2]) == [ids[0], ids[1]]
    assert dead_ids(client, after=ids[1]) == []


def test_dead_letters_can_be_filtered(world: ContractWorld):
    client = world.client
    begin = world.now
    plain = kill(client)
    world.advance(10)
    tagged = kill(client, tags=("x", "y"))
    world.advance(10)
    stalled = push(client, lease_ms=5, max_attempts=1, tags=("y",))
    start(client)
    world.advance(10)
    assert dead_ids(client) == [plain, tagged, stalled]
    assert dead_ids(client, reason="stalled") == [stalled]
    assert dead_ids(client, reason="explicit_fail") == [plain, tagged]
    assert dead_ids(client, reason="no_such_reason") == []
    assert dead_ids(client, tag="y") == [tagged, stalled]
    assert dead_ids(client, entered_from=begin + 10) == [tagged, stalled]
    assert dead_ids(client, entered_before=begin + 10) == [plain]
    assert dead_ids(client, entered_from=begin + 1, entered_before=begin + 25) == [tagged]
    assert dead_ids(client, tag="y", reason="stalled", limit=1) == [stalled]


def test_dead_letters_belong_to_their_queue_and_tenant(world: ContractWorld):
    kill(world.client)
    kill(world.client_for("acme"))
    assert len(dead_ids(world.client)) == 1
    assert dead_ids(world.client, "other") == []
    assert len(dead_ids(world.client_for("acme"))) == 1


def test_statistics_of_dead_letters(world: ContractWorld):
    client = world.client
    empty = client.get_dead_stats("q")
    assert (empty.total, dict(empty.by_reason), empty.oldest_at) == (0, {}, None)
    oldest = world.now
    first = kill(client)
    world.advance(10)
    kill(client)
    push(client, max_attempts=1)
    client.fail(start(client).id)
    stats = client.get_dead_stats("q")
    assert (stats.total, stats.oldest_at) == (3, oldest)
    assert dict(stats.by_reason) == {"explicit_fail": 2, "max_attempts_exceeded": 1}
    client.retry_dead("q", [first])
    stats = client.get_dead_stats("q")
    assert (stats.total, stats.oldest_at, dict(stats.by_reason)) == (
        2,
        oldest + 10,
        {"explicit_fail": 1, "max_attempts_exceeded": 1},
    )


# --- the way back --------------------------------------------------------------------------------


def test_a_retried_dead_letter_has_its_attempts_back(world: ContractWorld):
    client = world.client
    job = push(client, max_attempts=2, lease_ms=1_000, backoff=STEADY)
    start(client)
    world.advance(2_000)
    client.fail(start(client).id, error="again")
    reply = client.retry_dead("q", [job])
    assert (list(reply.ids), dict(reply.refused)) == ([job], {})
    view = client.get_job(job)
    assert (view.state, view.attempts, view.crashes, view.dead) == (State.WAITING, 0, 0, None)
    assert [attempt.reason for attempt in view.history] == ["stalled", "failed"]
    assert view.finished_at == 0
    assert dead_ids(client) == []
    assert story(client, job)[-1] == "revived"
    for attempt in (1, 2):
        delivered = start(client)
        assert delivered.attempt == attempt
        client.fail(delivered.id, delay_ms=0)
    assert client.get_state(job) is State.FAILED


def test_a_retry_by_hand_leaves_the_count_of_retries_as_it_is(world: ContractWorld):
    """What is counted are the queue's own retries, and those have a limit."""
    client = world.client
    set_policy(client, auto_retry=True, auto_retry_interval_ms=1_000)
    job = kill(client)
    world.advance(1_000)
    for _ in range(3):
        client.fail(start(client).id, retry=False)
        assert dead_letter(client, job).retry_count == 1
        client.retry_dead("q", [job])


def test_all_are_retried_when_none_is_named(client: Client):
    ids = [kill(client) for _ in range(3)]
    assert list(client.retry_dead("q").ids) == ids
    assert pulled(client) == ids


def test_those_with_a_reason_are_retried(world: ContractWorld):
    client = world.client
    explicit = kill(client)
    exhausted = push(client, max_attempts=1)
    client.fail(start(client).id)
    assert list(client.retry_dead("q", reason="max_attempts_exceeded").ids) == [exhausted]
    assert dead_ids(client) == [explicit]


def test_at_most_so_many_are_retried_oldest_first(client: Client):
    ids = [kill(client) for _ in range(4)]
    assert list(client.retry_dead("q", limit=2).ids) == ids[:2]
    assert dead_ids(client) == ids[2:]


def test_named_ones_may_be_narrowed_by_a_reason(client: Client):
    explicit = kill(client)
    exhausted = push(client, max_attempts=1)
    client.fail(start(client).id)
    reply = client.retry_dead("q", [explicit, exhausted], reason="explicit_fail")
    assert list(reply.ids) == [explicit]
    assert client.get_state(exhausted) is State.FAILED


def test_ids_that_are_no_dead_letters_are_not_found(world: ContractWorld):
    client = world.client
    dead, elsewhere, waiting = kill(client), kill(client, "other"), push(client)
    foreign = kill(world.client_for("acme"))
    done = finish(client, "other")
    reply = client.retry_dead("q", [NEVER, elsewhere, waiting, foreign, done, dead])
    assert list(reply.ids) == [dead]
    assert dict(reply.refused) == dict.fromkeys([NEVER, elsewhere, waiting, foreign, done], "not_found")


def test_retrying_twice_is_retrying_once(world: ContractWorld):
    job = kill(world.client)
    assert list(world.client.retry_dead("q", [job, job]).ids) == [job]
    assert story(world.client, job).count("revived") == 1
    before = picture(world.client)
    assert dict(world.client.retry_dead("q", [job]).refused) == {job: "not_found"}
    assert picture(world.client) == before


def test_a_queue_without_dead_letters_has_none_to_retry(world: ContractWorld):
    before = picture(world.client)
    assert list(world.client.retry_dead("never").ids) == []
    assert picture(world.client) == before


def test_a_key_that_was_taken_meanwhile_refuses_the_retry(world: ContractWorld):
    client = world.client
    job = kill(client, unique_key="k")
    holder = push(client, unique_key="k")
    before = picture(client)
    reply = client.retry_dead("q", [job])
    assert (list(reply.ids), dict(reply.refused)) == ([], {job: "wrong_state"})
    assert picture(client) == before
    client.cancel(holder)
    assert list(client.retry_dead("q", [job]).ids) == [job]
    assert client.push("q", b"", unique_key="k").id == job


def test_of_two_with_the_same_key_one_is_retried(client: Client):
    first, second = kill(client, unique_key="k"), kill(client, unique_key="k")
    reply = client.retry_dead("q")
    assert (list(reply.ids), dict(reply.refused)) == ([first], {second: "wrong_state"})


def test_a_dead_letter_can_be_mended_before_it_is_retried(client: Client):
    job = kill(client, payload=b"bad")
    client.update_payload(job, b"good")
    assert client.get_job(job).payload == b"good"
    client.retry_dead("q", [job])
    assert start(client).payload == b"good"


def test_the_ttl_of_a_revived_job_no_longer_counts(world: ContractWorld):
    """It says how long the first start may take, and that was long ago."""
    client = world.client
    job = push(client, ttl_ms=1_000)
    client.fail(start(client).id, retry=False)
    client.retry_dead("q", [job])
    world.advance(5_000)
    assert client.get_state(job) is State.WAITING
    client.release(start(client).id)
    world.advance(5_000)
    assert pulled(client) == [job]


# --- removing ------------------------------------------------------------------------------------


def test_purging_removes_them_all(world: ContractWorld):
    client = world.client
    ids = [kill(client) for _ in range(3)]
    kept = kill(client, "other")
    assert client.purge_dead("q") == 3
    assert dead_ids(client) == []
    assert client.get_counts("q").failed == 0
    assert client.get_stats("q").totals.failed == 3
    assert dead_ids(client, "other") == [kept]
    assert story(client, ids[0])[-1] == "removed"
    check_refused(world, NotFound, c.GetJob(ids[0]))


def test_purging_some(client: Client):
    ids = [kill(client) for _ in range(3)]
    assert client.purge_dead("q", [ids[1], NEVER]) == 1
    assert dead_ids(client) == [ids[0], ids[2]]


def test_purging_by_reason(client: Client):
    kill(client)
    exhausted = push(client, max_attempts=1)
    client.fail(start(client).id)
    assert client.purge_dead("q", reason="explicit_fail") == 1
    assert dead_ids(client) == [exhausted]
    assert client.purge_dead("q", reason="explicit_fail") == 0


def test_purging_touches_nothing_alive_and_nothing_foreign(world: ContractWorld):
    client = world.client
    waiting, done = push(client), finish(client, "other")
    theirs = kill(world.client_for("acme"))
    before = picture(client)
    assert client.purge_dead("q", [waiting, done, theirs]) == 0
    assert client.purge_dead("q") == 0
    assert picture(client) == before
    assert dead_ids(world.client_for("acme")) == [theirs]


def test_remove_on_fail_leaves_no_dead_letter(world: ContractWorld):
    client = world.client
    job = kill(client, remove_on_fail=True)
    assert dead_ids(client) == []
    assert client.get_counts("q").failed == 0
    assert client.get_stats("q").totals.failed == 1
    assert "failed" in story(client, job)
    check_refused(world, NotFound, c.GetJob(job))


def test_a_dead_letter_expires(world: ContractWorld):
    client = world.client
    job = kill(client)
    world.advance(7 * DAY_MS - 1)
    assert dead_ids(client) == [job]
    world.advance(1)
    assert dead_ids(client) == []
    check_refused(world, NotFound, c.GetJob(job))


def test_how_long_a_dead_letter_is_kept_is_the_queues_policy(world: ContractWorld):
    client = world.client
    set_policy(client, age_ms_max=1_000)
    job = kill(client)
    assert dead_letter(client, job).expires_at == world.now + 1_000
    world.advance(999)
    assert dead_ids(client) == [job]
    world.advance(1)
    assert dead_ids(client) == []


def test_a_retried_dead_letter_does_not_expire(world: ContractWorld):
    client = world.client
    set_policy(client, age_ms_max=1_000)
    job = kill(client)
    world.advance(500)
    client.retry_dead("q", [job])
    world.advance(5_000)
    assert client.get_state(job) is State.WAITING
    start(client)
    client.fail(job, retry=False)
    assert dead_letter(client, job).expires_at == world.now + 1_000


def test_beyond_their_number_the_oldest_leave_with_an_event(client: Client):
    set_policy(client, entries_max=2)
    ids = [kill(client) for _ in range(4)]
    assert dead_ids(client) == ids[2:]
    evicted = [event for event in all_events(client) if event.kind == "evicted"]
    assert [event.job for event in evicted] == ids[:2]
    assert client.get_stats("q").totals.evicted == 2
    order = [str(event.kind) for event in all_events(client) if event.kind in ("failed", "evicted")]
    assert order == ["failed", "failed", "evicted", "failed", "evicted", "failed"]


def test_the_oldest_by_entering_leave(client: Client):
    set_policy(client, entries_max=2)
    ids = push_many(client, 3)
    token = client.pull("q", 3).token
    for job in (ids[2], ids[0], ids[1]):
        client.fail(job, token, retry=False)
    assert dead_ids(client) == [ids[0], ids[1]]


def test_a_batch_that_dies_at_once_evicts_one_by_one(client: Client):
    set_policy(client, entries_max=2)
    ids = push_many(client, 5)
    client.fail_batch(ids, client.pull("q", 5).token, retry=False)
    assert dead_ids(client) == ids[3:]
    assert client.get_stats("q").totals.evicted == 3


def test_the_defaults_of_all_queues_are_a_setting(make_world: MakeWorld):
    policy = DeadLetterPolicy(entries_max=1, age_ms_max=500)
    client = make_world(Settings(dead_letters=policy)).client
    kill(client)
    last = kill(client)
    assert dead_ids(client) == [last]
    assert client.get_queue("q").dead_letters == policy


# --- automatic retry -----------------------------------------------------------------------------


def test_a_queue_may_retry_its_dead_letters_by_itself(world: ContractWorld):
    client = world.client
    set_policy(client, auto_retry=True, auto_retry_interval_ms=1_000, auto_retries_max=2)
    job = kill(client)
    for count in (0, 1):
        dead = dead_letter(client, job)
        assert (dead.retry_count, dead.next_retry_at) == (count, world.now + 1_000)
        world.advance(999)
        assert client.get_state(job) is State.FAILED
        world.advance(1)
        view = client.get_job(job)
        assert (view.state, view.attempts, view.crashes) == (State.WAITING, 0, 0)
        client.fail(start(client).id, retry=False)
    dead = dead_letter(client, job)
    assert (dead.retry_count, dead.next_retry_at) == (2, 0)
    world.advance(DAY_MS)
    assert client.get_state(job) is State.FAILED


def test_automatic_retry_is_off_by_default(world: ContractWorld):
    job = kill(world.client)
    world.advance(HOUR_MS * 10)
    assert world.client.get_state(job) is State.FAILED


def test_automatic_retry_happens_however_late_somebody_looks(world: ContractWorld):
    client = world.client
    set_policy(client, auto_retry=True, auto_retry_interval_ms=1_000)
    begin = world.now
    job = kill(client)
    world.advance(1_000_000)
    (event,) = [event for event in all_events(client) if event.kind == "revived"]
    assert (event.job, event.at) == (job, begin + 1_000)


def test_a_retry_at_the_moment_of_expiry_comes_first(world: ContractWorld):
    client = world.client
    set_policy(client, auto_retry=True, auto_retry_interval_ms=1_000, age_ms_max=1_000)
    job = kill(client)
    world.advance(1_000)
    assert client.get_state(job) is State.WAITING


def test_automatic_retry_waits_for_a_key_that_is_taken(world: ContractWorld):
    client = world.client
    set_policy(client, auto_retry=True, auto_retry_interval_ms=1_000, auto_retries_max=1)
    job = kill(client, unique_key="k")
    holder = push(client, unique_key="k")
    world.advance(1_000)
    view = client.get_job(job)
    assert view.state is State.FAILED
    assert view.dead is not None
    assert (view.dead.retry_count, view.dead.next_retry_at) == (0, world.now + 1_000)
    client.cancel(holder)
    world.advance(1_000)
    assert client.get_state(job) is State.WAITING
    assert client.push("q", b"", unique_key="k").id == job


# --- other ends as dead letters ------------------------------------------------------------------


def test_expired_jobs_are_dead_letters_only_where_the_queue_says_so(world: ContractWorld):
    client = world.client
    set_policy(client, "taking", take_expired=True)
    taken, plain = push(client, "taking", ttl_ms=1_000), push(client, ttl_ms=1_000)
    world.advance(1_000)
    view = client.get_job(taken)
    assert (view.state, view.reason) == (State.FAILED, "ttl_expired")
    assert view.dead is not None
    assert (view.dead.reason, view.dead.entered_at) == ("ttl_expired", world.now)
    assert dead_ids(client, "taking") == [taken]
    assert client.get_state(plain) is State.EXPIRED
    assert dead_ids(client) == []


def test_cancelled_jobs_are_dead_letters_only_where_the_queue_says_so(world: ContractWorld):
    client = world.client
    set_policy(client, "taking", take_cancelled=True)
    taken, plain = push(client, "taking"), push(client)
    view = client.cancel(taken)
    assert (view.state, view.reason) == (State.FAILED, "cancelled")
    assert dead_ids(client, "taking") == [taken]
    assert client.cancel(plain).state is State.CANCELLED


def test_a_job_cancelled_while_active_is_taken_too(client: Client):
    set_policy(client, take_cancelled=True)
    job = push(client)
    start(client)
    client.cancel(job)
    client.release(job)
    assert dead_ids(client) == [job]
    assert client.get_job(job).reason == "cancelled"


def test_one_taking_says_nothing_about_the_other(world: ContractWorld):
    client = world.client
    set_policy(client, take_expired=True)
    job = push(client)
    assert client.cancel(job).state is State.CANCELLED


@pytest.mark.parametrize("reason", ["ttl_expired", "cancelled"])
def test_a_taken_job_can_be_retried(world: ContractWorld, reason: str):
    client = world.client
    set_policy(client, take_expired=True, take_cancelled=True)
    job = push(client, ttl_ms=1_000 if reason == "ttl_expired" else 0)
    if reason == "ttl_expired":
        world.advance(1_000)
    else:
        client.cancel(job)
    assert list(client.retry_dead("q", reason=reason).ids) == [job]


def test_the_dead_letters_of_those_behind(world: ContractWorld):
    """A failed job takes those behind it along, each a dead letter of its own queue."""
    client = world.client
    first = push(client)
    behind = push(client, "other", depends_on=(Dependency(first),))
    client.fail(start(client).id, retry=False)
    assert (dead_ids(client), dead_ids(client, "other")) == ([first], [behind])
    assert dict(client.get_dead_stats("other").by_reason) == {"dependency_failed": 1}


# --- discard -------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked", "active"])
def test_any_live_job_can_be_discarded(world: ContractWorld, state: str):
    client = world.client
    first = push(client, "other")
    edges = (Dependency(first),) if state == "blocked" else ()
    job = push(client, delay_ms=1_000 if state == "delayed" else 0, depends_on=edges)
    token = start(client).token if state == "active" else 0
    assert client.get_state(job) == state
    client.discard(job)
    view = client.get_job(job)
    assert (view.state, view.reason, view.error) == (State.FAILED, "explicit_fail", "discarded")
    assert dead_ids(client) == [job]
    if state == "active":
        before = picture(client)
        assert dict(client.ack_batch([job], token).refused) == {job: "lost_lease"}
        assert picture(client) == before
    world.advance(10_000)
    assert client.get_state(job) is State.FAILED


def test_ended_jobs_cannot_be_discarded(world: ContractWorld):
    client = world.client
    cancelled = push(client)
    client.cancel(cancelled)
    for job in (finish(client), kill(client), cancelled):
        check_refused(world, WrongState, c.Discard(job))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [c.ListDead("no name"), c.GetDeadStats("no name"), c.RetryDead("no name"), c.PurgeDead("no name")],
)
def test_a_bad_queue_name_is_refused(world: ContractWorld, command: c.Command[Any]):
    kill(world.client)
    check_refused(world, InvalidRequest, command)


@pytest.mark.parametrize("field", ["entries_max", "age_ms_max", "auto_retry_interval_ms", "auto_retries_max"])
def test_a_policy_with_negative_numbers_is_refused(world: ContractWorld, field: str):
    kill(world.client)
    policy = msgspec.structs.replace(DeadLetterPolicy(), **{field: -1})
    check_refused(world, InvalidRequest, c.SetQueuePolicy("q", dead_letters=policy))
