"""A batch is its items one after another, with an outcome for each."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import DependencyCycle, InvalidRequest, LimitExceeded, UnknownDependency
from stoker.model.limits import Limits
from stoker.model.options import DAY_MS, Dependency, Options, Settings, UniquePolicy
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import (
    NEVER,
    OUT_OF_BOUNDS,
    check_refused,
    finish,
    picture,
    pulled,
    push,
    push_many,
    sequences,
    story,
)

SMALL = Limits(payload_bytes_max=10, batch_jobs_max=5)


def test_the_answer_has_one_id_an_item(client: Client):
    reply = client.push_batch("q", [b"a", b"b", b"c"])
    assert sequences(reply.ids) == [1, 2, 3]
    assert (reply.created, dict(reply.refused), dict(reply.duplicates)) == (3, {}, {})
    assert reply.level in ("memory", "commit", "fsync")


def test_the_jobs_come_in_the_order_of_the_batch(client: Client):
    client.push_batch("q", [b"a", b"b", b"c"])
    assert [job.payload for job in client.pull("q", 10)] == [b"a", b"b", b"c"]


def test_each_job_of_a_batch_is_a_job(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3, priority=5, tags=("t",))
    for number, job in enumerate(ids):
        view = client.get_job(job)
        assert (view.state, view.payload, view.pushed_at) == (State.WAITING, b"%d" % number, world.now)
        assert view.options == Options(priority=5, tags=("t",))
        assert story(client, job) == ["pushed"]
    assert client.get_counts("q").waiting == 3
    assert client.get_stats("q").totals.pushed == 3


def test_items_may_have_options_of_their_own(client: Client):
    each = [Options(priority=1), Options(priority=3), Options(priority=2)]
    ids = client.push_batch("q", [b"a", b"b", b"c"], each=each).ids
    assert [client.get_job(job).options for job in ids] == each
    assert [job.payload for job in client.pull("q", 10)] == [b"b", b"c", b"a"]


def test_options_of_an_items_own_replace_the_common_ones(client: Client):
    """`each` has one value for every payload: nothing of `options` is left."""
    (job,) = client.push_batch("q", [b"a"], Options(priority=9), each=[Options(tags=("t",))]).ids
    assert client.get_job(job).options == Options(tags=("t",))


def test_a_refused_item_leaves_the_others_alone(world: ContractWorld):
    client = world.client
    each = [Options(), Options(delay_ms=-1), Options(), Options(depends_on=(Dependency(NEVER),)), Options()]
    reply = client.push_batch("q", [b"a", b"b", b"c", b"d", b"e"], each=each)
    assert sequences(reply.ids) == [1, 0, 2, 0, 3]
    assert {item: refusal.code for item, refusal in reply.refused.items()} == {1: "invalid", 3: "unknown_dependency"}
    assert all(refusal.message for refusal in reply.refused.values())
    assert reply.created == 3
    assert [job.payload for job in client.pull("q", 10)] == [b"a", b"c", b"e"]
    assert client.get_stats("q").totals.pushed == 3


def test_a_payload_over_the_limit_is_refused_alone(make_world: MakeWorld):
    client = make_world(limits=SMALL).client
    reply = client.push_batch("q", [b"x" * 10, b"x" * 11, b""])
    assert reply.ids[1] == 0
    assert reply.refused[1].code == "limit_exceeded"
    assert "10" in reply.refused[1].message
    assert client.get_counts("q").waiting == 2


def test_a_batch_in_which_every_item_is_refused_changes_nothing(world: ContractWorld):
    push(world.client)
    before = picture(world.client)
    reply = world.client.push_batch("new", [b"a", b"b"], each=[Options(delay_ms=-1)] * 2)
    assert list(reply.ids) == [0, 0]
    assert {refusal.code for refusal in reply.refused.values()} == {"invalid"}
    assert reply.created == 0
    assert picture(world.client) == before


def test_bad_options_for_all_refuse_the_batch_whole(world: ContractWorld):
    """There is nothing to tell apart: atomic or not, it is one mistake."""
    for atomic in (False, True):
        check_refused(world, InvalidRequest, c.PushBatch("q", [b"a", b"b"], Options(delay_ms=-1), atomic=atomic))
        check_refused(world, LimitExceeded, c.PushBatch("q", [b"a"], Options(tags=("t",) * 33), atomic=atomic))


def test_edges_to_items_are_judged_item_by_item_even_when_all_have_them(client: Client):
    """Each waits for item 0, which cannot wait for itself; so the others cannot wait for it either."""
    reply = client.push_batch("q", [b"a", b"b"], depends_on=(Dependency(item=0),))
    assert {item: refusal.code for item, refusal in reply.refused.items()} == {
        0: "unknown_dependency",
        1: "unknown_dependency",
    }


def test_an_empty_batch_is_refused(world: ContractWorld):
    check_refused(world, OUT_OF_BOUNDS, c.PushBatch("q", []))


def test_a_batch_over_the_limit_is_refused_whole_and_told_the_limit(make_world: MakeWorld):
    world = make_world(limits=SMALL)
    assert len(push_many(world.client, 5)) == 5
    error = check_refused(world, LimitExceeded, c.PushBatch("q", [b""] * 6))
    assert "5" in error.message


def test_a_batch_of_the_greatest_size_goes_through(client: Client):
    ids = client.push_batch("q", [b"x"] * 10_000).ids
    assert len(set(ids)) == 10_000
    assert len(client.pull("q", 10_000)) == 10_000


# --- atomic --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Options(ttl_ms=-1), InvalidRequest),
        (Options(tags=("t",) * 33), LimitExceeded),
        (Options(depends_on=(Dependency(NEVER),)), UnknownDependency),
        (Options(depends_on=(Dependency(item=2),)), UnknownDependency),
        (Options(depends_on=(Dependency(item=7),)), UnknownDependency),
    ],
)
def test_an_atomic_batch_is_refused_with_its_bad_item(world: ContractWorld, bad: Options, error: type[InvalidRequest]):
    """Item 2 is bad (waiting for itself is, too), and the message says that it is number 2."""
    push(world.client)
    each = [Options(unique_key="k"), Options(custom_id="c"), bad, Options(debounce_id="d")]
    caught = check_refused(world, error, c.PushBatch("q", [b"a", b"b", b"c", b"d"], each=each, atomic=True))
    assert "2" in caught.message
    for options in each[:2] + each[3:]:
        assert world.client.push("q", b"", options).created, "a refused batch has taken no key"


def test_an_atomic_batch_with_a_cycle_is_refused(world: ContractWorld):
    each = [Options(depends_on=(Dependency(item=1),)), Options(depends_on=(Dependency(item=0),))]
    check_refused(world, DependencyCycle, c.PushBatch("q", [b"a", b"b"], each=each, atomic=True))


def test_an_atomic_batch_without_a_bad_item_goes_through(client: Client):
    reply = client.push_batch("q", [b"a", b"b"], atomic=True)
    assert reply.created == 2
    assert pulled(client) == list(reply.ids)


def test_a_duplicate_is_no_refusal_in_an_atomic_batch(client: Client):
    there = push(client, custom_id="c")
    reply = client.push_batch("q", [b"a", b"b"], each=[Options(custom_id="c"), Options()], atomic=True)
    assert reply.ids[0] == there
    assert dict(reply.duplicates) == {0: "custom_id"}
    assert reply.created == 1


# --- keys among the items ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "by"),
    [
        (Options(custom_id="x"), "custom_id"),
        (Options(unique_key="x"), "unique_key"),
        (Options(debounce_id="x"), "debounce_id"),
    ],
)
@pytest.mark.parametrize("spelled_out", [True, False])
def test_keys_hold_among_the_items_of_one_batch(client: Client, options: Options, by: str, spelled_out: bool):
    payloads = [b"a", b"b", b"c"]
    if spelled_out:
        reply = client.push_batch("q", payloads, each=[options] * 3)
    else:
        reply = client.push_batch("q", payloads, options)
    assert reply.created == 1
    assert list(reply.ids) == [reply.ids[0]] * 3
    assert dict(reply.duplicates) == {1: by, 2: by}
    assert [job.payload for job in client.pull("q", 10)] == [b"a"]


def test_replace_holds_among_the_items_of_one_batch(client: Client):
    reply = client.push_batch("q", [b"a", b"b", b"c"], unique_key="k", on_conflict="replace")
    assert reply.created == 3
    assert [client.get_state(job) for job in reply.ids] == [State.CANCELLED, State.CANCELLED, State.WAITING]
    assert [job.payload for job in client.pull("q", 10)] == [b"c"]


@pytest.mark.parametrize("policy", ["keep", "replace"])
def test_an_item_that_ends_at_once_holds_no_key_for_the_next(client: Client, policy: UniquePolicy):
    """It replaces the very job it depends on, which is a bad end; so does the next, and neither ends twice."""
    holder = push(client, unique_key="k")
    if policy == "keep":
        client.cancel(holder)
    options = Options(unique_key="k", on_conflict=policy, depends_on=(Dependency(holder),))
    reply = client.push_batch("q", [b"a", b"b"], options)
    assert reply.created == 2
    for job in reply.ids:
        view = client.get_job(job)
        assert (view.state, view.reason) == (State.FAILED, "dependency_failed")
        assert story(client, job) == ["pushed", "failed"]


def test_duplicates_of_earlier_jobs_take_no_id(client: Client):
    there = push(client, unique_key="k")
    each = [Options(), Options(unique_key="k"), Options()]
    reply = client.push_batch("q", [b"a", b"b", b"c"], each=each)
    assert reply.ids[1] == there
    assert sequences(reply.ids) == [2, 1, 3]


def test_a_batch_and_single_pushes_lead_to_the_same(make_world: MakeWorld):
    each = [
        Options(priority=2),
        Options(custom_id="c"),
        Options(custom_id="c"),
        Options(delay_ms=-1),
        Options(unique_key="k", group_id="g"),
        Options(unique_key="k"),
        Options(lifo=True, tags=("t",)),
        Options(depends_on=(Dependency(64),)),
        Options(debounce_id="d"),
        Options(debounce_id="d"),
    ]
    batch, single = make_world(), make_world()
    for world in (batch, single):
        assert push(world.client, "first") == 64
    reply = batch.client.push_batch("q", [b"%d" % n for n in range(10)], each=each)
    ids = []
    for number, options in enumerate(each):
        if number == 3:
            check_refused(single, InvalidRequest, c.Push("q", b"3", options))
            ids.append(0)
        else:
            ids.append(single.client.push("q", b"%d" % number, options).id)
    assert list(reply.ids) == ids
    assert pulled(batch.client) == pulled(single.client)
    assert batch.client.get_stats() == single.client.get_stats()


# --- sending it again ----------------------------------------------------------------------------


def test_a_request_key_makes_sending_again_harmless(world: ContractWorld):
    client = world.client
    each = [Options(), Options(delay_ms=-1), Options(custom_id="c"), Options(custom_id="c")]
    first = client.push_batch("q", [b"a", b"b", b"c", b"d"], each=each, request_key="r")
    before = picture(client)
    again = client.push_batch("q", [b"a", b"b", b"c", b"d"], each=each, request_key="r")
    assert (list(again.ids), dict(again.refused), dict(again.duplicates)) == (
        list(first.ids),
        dict(first.refused),
        dict(first.duplicates),
    )
    assert picture(client) == before


def test_the_first_sending_decides_whatever_comes_with_the_key_later(client: Client):
    first = client.push_batch("q", [b"a"], request_key="r")
    again = client.push_batch("q", [b"b", b"c"], request_key="r", priority=5)
    assert list(again.ids) == list(first.ids)
    assert client.get_counts("q").waiting == 1


def test_the_answer_stays_after_the_jobs_have_gone(client: Client):
    first = client.push_batch("q", [b"a"], request_key="r", remove_on_complete=True)
    client.ack_batch(pulled(client))
    assert list(client.push_batch("q", [b"a"], request_key="r").ids) == list(first.ids)
    assert client.get_counts("q").waiting == 0


def test_a_request_key_is_remembered_for_a_day(world: ContractWorld):
    client = world.client
    first = client.push_batch("q", [b"a"], request_key="r").ids[0]
    world.advance(DAY_MS - 1)
    assert client.push_batch("q", [b"a"], request_key="r").ids[0] == first
    world.advance(1)
    assert client.push_batch("q", [b"a"], request_key="r").ids[0] != first


def test_how_long_a_request_key_is_remembered_is_a_setting(make_world: MakeWorld):
    world = make_world(Settings(request_ttl_ms=1_000))
    first = world.client.push_batch("q", [b"a"], request_key="r").ids[0]
    world.advance(999)
    assert world.client.push_batch("q", [b"a"], request_key="r").ids[0] == first
    world.advance(1)
    assert world.client.push_batch("q", [b"a"], request_key="r").ids[0] != first


def test_a_request_key_is_the_queues_and_the_tenants_own(world: ContractWorld):
    ids = {
        world.client.push_batch("q", [b"a"], request_key="r").ids[0],
        world.client.push_batch("other", [b"a"], request_key="r").ids[0],
        world.client_for("acme").push_batch("q", [b"a"], request_key="r").ids[0],
        world.client.push_batch("q", [b"a"], request_key="s").ids[0],
    }
    assert len(ids) == 4


def test_a_batch_that_was_refused_whole_is_not_remembered(world: ContractWorld):
    check_refused(world, InvalidRequest, c.PushBatch("q", [b"a"], Options(ttl_ms=-1), None, True, "r"))
    assert world.client.push_batch("q", [b"a"], request_key="r").created == 1


# --- jobs of a batch go their own ways -----------------------------------------------------------


def test_a_batch_is_taken_in_slices(client: Client):
    ids = push_many(client, 10)
    assert pulled(client, count=3) == ids[:3]
    assert pulled(client, count=4) == ids[3:7]
    assert pulled(client, count=100) == ids[7:]


def test_each_job_ends_in_its_own_way(world: ContractWorld):
    client = world.client
    ids = push_many(client, 6)
    token = client.pull("q", 4).token
    client.ack(ids[1], token, b"done")
    client.fail(ids[2], token, "bad", retry=False)
    client.release(ids[0], token)
    client.cancel(ids[4])
    states = [client.get_state(job) for job in ids]
    assert states == ["waiting", "completed", "failed", "active", "cancelled", "waiting"]
    assert client.get_result(ids[1]) == b"done"
    assert pulled(client) == [ids[0], ids[5]]


def test_an_ended_batch_is_remembered_by_retention_as_its_jobs_are(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3, keep_completed_age_ms=1_000)
    for job in pulled(client):
        client.ack(job)
        world.advance(100)
    world.advance(700)
    assert [view.id for view in client.browse("q", ascending=True).jobs] == ids[1:]


def test_later_batches_stand_behind_earlier_ones(client: Client):
    first, second = push_many(client, 3), push_many(client, 3)
    single = push(client)
    assert pulled(client) == [*first, *second, single]


def test_a_batch_into_a_queue_of_another_kind_of_jobs(client: Client):
    """Neighbouring pushes with other options are not mistaken for one batch."""
    done = finish(client)
    low, high, same = push_many(client, 2), push_many(client, 2, priority=1), push_many(client, 2)
    assert done < low[0]
    assert pulled(client) == [*high, *low, *same]
