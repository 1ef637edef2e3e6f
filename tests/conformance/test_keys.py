"""unique_key, custom_id, debounce_id: three ways for a push to find that its job is already there."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import NotFound, UnknownDependency
from stoker.model.options import DAY_MS, Dependency, Options
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import (
    NEVER,
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

# --- unique_key ----------------------------------------------------------------------------------


def test_the_second_push_with_a_key_answers_with_the_holder(client: Client):
    holder = push(client, unique_key="k")
    before = picture(client)
    again = client.push("q", b"other", unique_key="k", priority=9)
    assert (again.id, again.created, again.duplicate_by) == (holder, False, "unique_key")
    assert picture(client) == before


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked", "active", "backoff"])
def test_a_key_is_held_as_long_as_the_job_lives(world: ContractWorld, state: str):
    client = world.client
    first = push(client, "other")
    edges = (Dependency(first),) if state == "blocked" else ()
    holder = push(client, unique_key="k", delay_ms=5_000 if state == "delayed" else 0, depends_on=edges)
    if state in ("active", "backoff"):
        assert pulled(client) == [holder]
    if state == "backoff":
        client.fail(holder, delay_ms=5_000)
    assert client.push("q", b"", unique_key="k").id == holder


ENDS = ["completed", "dead", "cancelled", "expired", "discarded", "drained", "cleaned", "cancelled while active"]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_frees_the_key(world: ContractWorld, end: str):
    client = world.client
    holder = push(client, unique_key="k", ttl_ms=1_000)
    if end in ("completed", "dead", "cancelled while active"):
        assert pulled(client) == [holder]
    if end == "completed":
        client.ack(holder)
    elif end == "dead":
        client.fail(holder, retry=False)
    elif end == "cancelled":
        client.cancel(holder)
    elif end == "expired":
        world.advance(1_000)
    elif end == "discarded":
        client.discard(holder)
    elif end == "drained":
        client.drain("q")
    elif end == "cleaned":
        client.clean("q", State.WAITING)
    else:
        client.cancel(holder)
        client.release(holder)
    assert client.push("q", b"", unique_key="k").created


def test_a_key_is_the_queues_and_the_tenants_own(world: ContractWorld):
    replies = [
        world.client.push("q", b"", unique_key="k"),
        world.client.push("other", b"", unique_key="k"),
        world.client_for("acme").push("q", b"", unique_key="k"),
        world.client.push("q", b"", unique_key="K"),
    ]
    assert all(reply.created for reply in replies)


def test_a_key_with_a_ttl_is_freed_while_the_job_lives(world: ContractWorld):
    client = world.client
    first = push(client, unique_key="k", unique_ttl_ms=1_000)
    world.advance(999)
    assert client.push("q", b"", unique_key="k").id == first
    world.advance(1)
    second = client.push("q", b"", unique_key="k")
    assert second.created
    assert client.get_state(first) is State.WAITING


def test_the_end_of_a_job_whose_key_passed_on_does_not_free_it(world: ContractWorld):
    client = world.client
    first = push(client, unique_key="k", unique_ttl_ms=1_000)
    world.advance(1_000)
    second = push(client, unique_key="k")
    assert pulled(client, count=1) == [first]
    client.ack(first)
    assert client.push("q", b"", unique_key="k").id == second


def test_the_ttl_of_a_key_that_passed_on_does_not_free_it(world: ContractWorld):
    """The first holder's deadline is not the second one's."""
    client = world.client
    first = push(client, unique_key="k", unique_ttl_ms=1_000)
    client.cancel(first)
    second = push(client, unique_key="k")
    world.advance(1_000)
    assert client.push("q", b"", unique_key="k").id == second


def test_keep_does_not_touch_the_ttl(world: ContractWorld):
    client = world.client
    first = push(client, unique_key="k", unique_ttl_ms=1_000)
    world.advance(900)
    assert client.push("q", b"", unique_key="k", unique_ttl_ms=1_000).id == first
    world.advance(100)
    assert client.push("q", b"", unique_key="k").created


def test_extend_starts_the_ttl_anew_with_the_new_pushs_length(world: ContractWorld):
    client = world.client
    first = push(client, unique_key="k", unique_ttl_ms=1_000)
    world.advance(900)
    again = client.push("q", b"", unique_key="k", unique_ttl_ms=300, on_conflict="extend")
    assert (again.id, again.created, again.duplicate_by) == (first, False, "unique_key")
    world.advance(299)
    assert client.push("q", b"", unique_key="k").id == first
    world.advance(1)
    assert client.push("q", b"", unique_key="k").created


def test_extend_without_a_ttl_holds_the_key_until_the_end(world: ContractWorld):
    client = world.client
    first = push(client, unique_key="k", unique_ttl_ms=1_000)
    client.push("q", b"", unique_key="k", on_conflict="extend")
    world.advance(1_000_000)
    assert client.push("q", b"", unique_key="k").id == first


def test_extend_can_set_a_ttl_where_there_was_none(world: ContractWorld):
    client = world.client
    push(client, unique_key="k")
    client.push("q", b"", unique_key="k", on_conflict="extend", unique_ttl_ms=500)
    world.advance(500)
    assert client.push("q", b"", unique_key="k").created


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked", "backoff"])
def test_replace_cancels_a_pending_holder(world: ContractWorld, state: str):
    client = world.client
    first = push(client, "other")
    edges = (Dependency(first),) if state == "blocked" else ()
    old = push(client, unique_key="k", delay_ms=5_000 if state == "delayed" else 0, depends_on=edges)
    if state == "backoff":
        client.fail(start(client).id, delay_ms=5_000)
    reply = client.push("q", b"new", unique_key="k", on_conflict="replace")
    assert (reply.created, reply.duplicate_by) == (True, None)
    view = client.get_job(old)
    assert (view.state, view.reason) == (State.CANCELLED, "replaced")
    assert client.push("q", b"", unique_key="k").id == reply.id
    assert pulled(client) == [reply.id]


def test_replace_keeps_an_active_holder(client: Client):
    holder = push(client, unique_key="k")
    assert pulled(client) == [holder]
    before = picture(client)
    reply = client.push("q", b"new", unique_key="k", on_conflict="replace")
    assert (reply.id, reply.created, reply.duplicate_by) == (holder, False, "unique_key")
    assert picture(client) == before


def test_replacing_settles_the_edges_to_the_old_job(client: Client):
    old = push(client, unique_key="k")
    behind = push(client, "other", depends_on=(Dependency(old, "continue"),))
    push(client, unique_key="k", on_conflict="replace")
    assert client.get_state(behind) is State.WAITING


def test_the_new_pushs_policy_decides(client: Client):
    old = push(client, unique_key="k", on_conflict="replace")
    assert client.push("q", b"", unique_key="k").id == old


# --- custom_id -----------------------------------------------------------------------------------


def test_the_second_push_with_a_custom_id_answers_with_the_first_job(client: Client):
    first = push(client, custom_id="c")
    before = picture(client)
    again = client.push("q", b"other", custom_id="c", priority=9)
    assert (again.id, again.created, again.duplicate_by) == (first, False, "custom_id")
    assert picture(client) == before


@pytest.mark.parametrize("end", ["completed", "dead", "cancelled", "expired"])
def test_a_custom_id_is_remembered_for_a_day_after_the_end(world: ContractWorld, end: str):
    client = world.client
    job = push(client, custom_id="c", ttl_ms=1_000)
    world.advance(500)
    if end in ("completed", "dead"):
        assert pulled(client) == [job]
    if end == "completed":
        client.ack(job)
    elif end == "dead":
        client.fail(job, retry=False)
    elif end == "cancelled":
        client.cancel(job)
    else:
        world.advance(500)
    world.advance(DAY_MS - 1)
    assert client.push("q", b"", custom_id="c").id == job
    world.advance(2)
    assert client.push("q", b"", custom_id="c").created


def test_how_long_is_the_option_of_the_job_that_holds_the_id(world: ContractWorld):
    client = world.client
    job = finish(client, custom_id="c", custom_id_ttl_ms=1_000)
    world.advance(999)
    assert client.push("q", b"", custom_id="c", custom_id_ttl_ms=0).id == job
    world.advance(2)
    assert client.push("q", b"", custom_id="c", custom_id_ttl_ms=DAY_MS).created


def test_a_custom_id_lives_as_long_as_its_job_however_long_that_is(world: ContractWorld):
    job = push(world.client, custom_id="c", custom_id_ttl_ms=1)
    world.advance(100 * DAY_MS)
    assert world.client.push("q", b"", custom_id="c").id == job


def test_a_custom_id_with_no_ttl_is_free_after_the_end(world: ContractWorld):
    finish(world.client, custom_id="c", custom_id_ttl_ms=0)
    world.advance(1)
    assert world.client.push("q", b"", custom_id="c").created


def test_a_custom_id_is_remembered_when_the_job_is_no_longer_readable(world: ContractWorld):
    client = world.client
    job = finish(client, custom_id="c", remove_on_complete=True)
    again = client.push("q", b"", custom_id="c")
    assert (again.id, again.created, again.duplicate_by) == (job, False, "custom_id")
    check_refused(world, NotFound, c.GetJob(job))
    check_refused(world, NotFound, c.FindJob("c", "q"))


def test_a_custom_id_is_the_queues_and_the_tenants_own(world: ContractWorld):
    replies = [
        world.client.push("q", b"", custom_id="c"),
        world.client.push("other", b"", custom_id="c"),
        world.client_for("acme").push("q", b"", custom_id="c"),
        world.client.push("q", b"", custom_id="C"),
    ]
    assert all(reply.created for reply in replies)


def test_a_job_is_found_by_its_custom_id(client: Client):
    job = push(client, custom_id="c")
    assert client.find_job("c", "q") == client.get_job(job)
    assert client.find_job("c") == client.get_job(job)
    assert client.find_job("c").options.custom_id == "c"


def test_finding_looks_into_the_named_queue_only(world: ContractWorld):
    one, other = push(world.client, "one", custom_id="c"), push(world.client, "other", custom_id="c")
    assert world.client.find_job("c", "one").id == one
    assert world.client.find_job("c", "other").id == other
    assert world.client.find_job("c").id in (one, other)
    check_refused(world, NotFound, c.FindJob("c", "third"))
    check_refused(world, NotFound, c.FindJob("d"))


def test_nobody_finds_a_foreign_custom_id(world: ContractWorld):
    push(world.client, custom_id="c")
    check_refused(world, NotFound, c.FindJob("c", "q"), "acme")
    check_refused(world, NotFound, c.FindJob("c"), "acme")


def test_an_ended_job_is_found_while_it_is_readable(world: ContractWorld):
    job = finish(world.client, custom_id="c", keep_completed_age_ms=1_000)
    assert world.client.find_job("c").id == job
    world.advance(1_000)
    check_refused(world, NotFound, c.FindJob("c"))


def test_a_revived_job_holds_its_custom_id_again(world: ContractWorld):
    client = world.client
    job = kill(client, custom_id="c", custom_id_ttl_ms=1_000)
    client.retry_dead("q", [job])
    world.advance(10_000)
    assert client.push("q", b"", custom_id="c").id == job


# --- debounce_id ---------------------------------------------------------------------------------


def test_pushes_within_the_window_answer_with_the_first_job(world: ContractWorld):
    client = world.client
    first = push(client, debounce_id="d")
    world.advance(4_999)
    before = picture(client)
    again = client.push("q", b"other", debounce_id="d")
    assert (again.id, again.created, again.duplicate_by) == (first, False, "debounce_id")
    assert picture(client) == before


def test_after_the_window_a_push_is_accepted_again(world: ContractWorld):
    client = world.client
    first = push(client, debounce_id="d")
    world.advance(5_000)
    second = client.push("q", b"", debounce_id="d")
    assert second.created
    world.advance(4_999)
    assert client.push("q", b"", debounce_id="d").id == second.id != first


def test_a_swallowed_push_does_not_prolong_the_window(world: ContractWorld):
    client = world.client
    push(client, debounce_id="d", debounce_ms=1_000)
    world.advance(600)
    assert not client.push("q", b"", debounce_id="d", debounce_ms=1_000).created
    world.advance(400)
    assert client.push("q", b"", debounce_id="d", debounce_ms=1_000).created


def test_the_window_is_that_of_the_accepted_push(world: ContractWorld):
    client = world.client
    first = push(client, debounce_id="d", debounce_ms=1_000)
    world.advance(999)
    assert client.push("q", b"", debounce_id="d", debounce_ms=0).id == first
    world.advance(1)
    assert client.push("q", b"", debounce_id="d", debounce_ms=60_000).created


def test_a_window_of_nothing_debounces_nothing(client: Client):
    assert client.push("q", b"", debounce_id="d", debounce_ms=0).created
    assert client.push("q", b"", debounce_id="d", debounce_ms=0).created


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_the_window_outlives_the_job(world: ContractWorld, end: str):
    client = world.client
    first = push(client, debounce_id="d", remove_on_complete=True)
    if end == "completed":
        client.ack(start(client).id)
    else:
        client.cancel(first)
    assert client.push("q", b"", debounce_id="d").id == first


def test_a_debounce_id_is_the_queues_and_the_tenants_own(world: ContractWorld):
    replies = [
        world.client.push("q", b"", debounce_id="d"),
        world.client.push("other", b"", debounce_id="d"),
        world.client_for("acme").push("q", b"", debounce_id="d"),
        world.client.push("q", b"", debounce_id="D"),
    ]
    assert all(reply.created for reply in replies)


def test_a_refused_push_opens_no_window(world: ContractWorld):
    refused = Options(debounce_id="d", depends_on=(Dependency(NEVER),))
    check_refused(world, UnknownDependency, c.Push("q", b"", refused))
    assert world.client.push("q", b"", debounce_id="d").created


# --- together ------------------------------------------------------------------------------------


def test_the_custom_id_is_asked_first_then_the_debounce_id_then_the_key(client: Client):
    by_key, by_debounce = push(client, unique_key="k"), push(client, debounce_id="d")
    by_custom = push(client, custom_id="c")
    everything = Options(custom_id="c", debounce_id="d", unique_key="k")
    assert client.push("q", b"", everything).id == by_custom
    assert client.push("q", b"", debounce_id="d", unique_key="k", custom_id="new").id == by_debounce
    assert client.push("q", b"", unique_key="k", custom_id="new", debounce_id="new").id == by_key


def test_a_duplicate_leaves_none_of_its_own_keys_behind(client: Client):
    push(client, custom_id="c")
    push(client, custom_id="c", unique_key="k", debounce_id="d")
    assert client.push("q", b"", unique_key="k").created
    assert client.push("q", b"", debounce_id="d").created
    push(client, unique_key="k", custom_id="new")
    assert client.push("q", b"", custom_id="new").created


def test_a_refused_push_leaves_no_key_behind(world: ContractWorld):
    refused = Options(unique_key="k", custom_id="c", depends_on=(Dependency(NEVER),))
    check_refused(world, UnknownDependency, c.Push("q", b"", refused))
    assert world.client.push("q", b"", unique_key="k").created
    assert world.client.push("q", b"", custom_id="c").created


def test_a_refused_replacement_replaces_nothing(world: ContractWorld):
    holder = push(world.client, unique_key="k")
    refused = Options(unique_key="k", on_conflict="replace", depends_on=(Dependency(NEVER),))
    check_refused(world, UnknownDependency, c.Push("q", b"", refused))
    assert world.client.get_state(holder) is State.WAITING


def test_edges_are_judged_before_duplicates_are_looked_for(world: ContractWorld):
    """A push that names jobs that never were is refused, whatever its keys say."""
    push(world.client, custom_id="c", unique_key="k", debounce_id="d")
    bad = (Dependency(NEVER),)
    for options in (
        Options(custom_id="c", depends_on=bad),
        Options(unique_key="k", depends_on=bad),
        Options(debounce_id="d", depends_on=bad),
    ):
        check_refused(world, UnknownDependency, c.Push("q", b"", options))


def test_duplicates_make_no_events(client: Client):
    first = push(client, custom_id="c", unique_key="k", debounce_id="d")
    for options in (Options(custom_id="c"), Options(unique_key="k"), Options(debounce_id="d")):
        client.push("q", b"", options)
    assert story(client, first) == ["pushed"]
    assert client.get_stats("q").totals.pushed == 1


def test_a_job_of_a_batch_holds_its_key_alone(client: Client):
    """Uniform batches cannot hide keys: the first item took it."""
    ids = push_many(client, 3)
    holder = push(client, unique_key="k")
    assert client.push("q", b"", unique_key="k").id == holder not in ids
