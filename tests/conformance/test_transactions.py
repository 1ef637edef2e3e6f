"""Jobs written in stages that stay invisible until they are published, all at once."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, TransactionOver, UnknownStage
from stoker.model.limits import Limits
from stoker.model.options import DAY_MS, HOUR_MS, Dependency, Options, Settings
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import NEVER, check_refused, picture, pulled, push, push_many, sequences, story


def created(client: Client, transaction: str, *stages: str) -> list[int]:
    reply = client.publish(transaction, stages)
    assert reply.outcome == "published"
    ids = [first + (step << 6) for first, count in reply.runs for step in range(count)]
    assert reply.created == len(ids)
    return ids


def test_nobody_sees_what_is_staged(world: ContractWorld):
    push(world.client)
    before = picture(world.client)
    world.client.stage("t", "s", "new", [b"a", b"b"])
    assert picture(world.client) == before
    assert pulled(world.client, "new") == []


def test_the_answer_says_how_many_jobs_the_stage_holds(client: Client):
    assert client.stage("t", "s", "q", [b"a", b"b"]).jobs == 2
    assert client.stage("t", "s", "q", [b"c"]).jobs == 3
    assert client.stage("t", "other", "q", [b"d"]).jobs == 1


def test_publishing_makes_the_jobs_of_a_stage_visible(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a", b"b"], priority=3)
    ids = created(client, "t", "s")
    assert sequences(ids) == [1, 2]
    assert [client.get_job(job).payload for job in ids] == [b"a", b"b"]
    assert all(client.get_job(job).options == Options(priority=3) for job in ids)
    assert [story(client, job) for job in ids] == [["pushed"], ["pushed"]]
    assert client.get_counts("q").waiting == 2
    assert pulled(client) == ids


def test_published_jobs_are_pushed_at_that_moment(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a"], delay_ms=1_000)
    world.advance(5_000)
    (job,) = created(client, "t", "s")
    view = client.get_job(job)
    assert (view.pushed_at, view.state, view.due) == (world.now, State.DELAYED, world.now + 1_000)


def test_ids_are_given_at_publishing(client: Client):
    client.stage("t", "s", "q", [b"a"])
    single = push(client)
    (published,) = created(client, "t", "s")
    assert sequences([single, published]) == [1, 2]


def test_stages_come_in_the_order_named_and_parts_in_the_order_written(client: Client):
    client.stage("t", "one", "q", [b"1a"], part=7)
    client.stage("t", "two", "q", [b"2a"])
    client.stage("t", "one", "q", [b"1b"], part=3)
    created(client, "t", "two", "one")
    assert [job.payload for job in client.pull("q", 10)] == [b"2a", b"1a", b"1b"]


def test_stages_may_write_to_several_queues(client: Client):
    client.stage("t", "s", "one", [b"a"])
    client.stage("t", "s", "other", [b"b"])
    created(client, "t", "s")
    assert [job.payload for job in client.pull(["one", "other"], 10)] == [b"a", b"b"]


def test_a_stage_that_is_not_named_is_dropped(client: Client):
    client.stage("t", "good", "q", [b"a"])
    client.stage("t", "bad", "q", [b"b"])
    created(client, "t", "good")
    assert [job.payload for job in client.pull("q", 10)] == [b"a"]


def test_sending_a_part_again_changes_nothing(client: Client):
    client.stage("t", "s", "q", [b"a"], part=0)
    assert client.stage("t", "s", "q", [b"b"], part=1).jobs == 2
    assert client.stage("t", "s", "q", [b"a"], part=0).jobs == 2
    assert client.stage("t", "s", "q", [b"other"], part=1).jobs == 2
    created(client, "t", "s")
    assert [job.payload for job in client.pull("q", 10)] == [b"a", b"b"]


def test_a_part_number_belongs_to_its_stage(client: Client):
    client.stage("t", "one", "q", [b"a"], part=0)
    assert client.stage("t", "two", "q", [b"b"], part=0).jobs == 1
    assert client.stage("u", "one", "q", [b"c"], part=0).jobs == 1


def test_a_stage_refuses_all_if_one_item_is_bad(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a"])
    check_refused(world, InvalidRequest, c.Stage("t", "s", "q", [b"b", b"c"], each=[Options(), Options(ttl_ms=-1)]))
    assert client.stage("t", "s", "q", [b"d"]).jobs == 2
    created(client, "t", "s")
    assert [job.payload for job in client.pull("q", 10)] == [b"a", b"d"]


def test_a_part_that_was_refused_can_be_sent_again(world: ContractWorld):
    check_refused(world, InvalidRequest, c.Stage("t", "s", "q", [b"a"], Options(ttl_ms=-1), part=0))
    assert world.client.stage("t", "s", "q", [b"a"], part=0).jobs == 1


def test_a_stage_keeps_to_the_limits_of_a_push(make_world: MakeWorld):
    world = make_world(limits=Limits(payload_bytes_max=3, batch_jobs_max=2, key_chars_max=4))
    check_refused(world, LimitExceeded, c.Stage("t", "s", "q", [b"ok", b"long"]))
    check_refused(world, LimitExceeded, c.Stage("t", "s", "q", [b"a", b"b", b"c"]))
    check_refused(world, LimitExceeded, c.Stage("t", "s", "q", [b"a"], Options(unique_key="longer")))
    assert world.client.stage("t", "s", "q", [b"a", b"b"]).jobs == 2


def test_a_stage_may_grow_beyond_one_batch(make_world: MakeWorld):
    world = make_world(limits=Limits(batch_jobs_max=2))
    for part in range(3):
        world.client.stage("t", "s", "q", [b"a", b"b"], part=part)
    assert len(created(world.client, "t", "s")) == 6


def test_the_number_of_stages_is_limited(make_world: MakeWorld):
    world = make_world(limits=Limits(stages_per_transaction_max=2))
    world.client.stage("t", "1", "q", [b"a"])
    world.client.stage("t", "2", "q", [b"a"])
    check_refused(world, LimitExceeded, c.Stage("t", "3", "q", [b"a"]))
    assert world.client.stage("t", "2", "q", [b"b"]).jobs == 2
    assert world.client.stage("u", "3", "q", [b"a"]).jobs == 1


def test_an_unknown_stage_refuses_the_publication_whole(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a"])
    check_refused(world, UnknownStage, c.Publish("t", ["s", "never"]))
    check_refused(world, UnknownStage, c.Publish("unheard", ["s"]))
    assert len(created(client, "t", "s")) == 1, "what was refused has dropped nothing"


# --- keys and dependencies are judged at publishing ----------------------------------------------


def test_keys_are_judged_at_publishing(client: Client):
    client.stage("t", "s", "q", [b"staged"], unique_key="k", custom_id="c", debounce_id="d")
    there = client.push("q", b"pushed", unique_key="k")
    assert there.created, "a staged job holds no key"
    reply = client.publish("t", ["s"])
    assert (reply.created, reply.runs) == (0, ())
    assert [job.payload for job in client.pull("q", 10)] == [b"pushed"]


def test_keys_hold_among_stages_and_parts(client: Client):
    client.stage("t", "one", "q", [b"a"], custom_id="c")
    client.stage("t", "two", "q", [b"b"], custom_id="c")
    assert len(created(client, "t", "one", "two")) == 1
    assert [job.payload for job in client.pull("q", 10)] == [b"a"]


def test_dependencies_are_judged_at_publishing(client: Client):
    """An unknown id refuses its item then, as in a batch, and nobody else."""
    client.stage("t", "s", "q", [b"a", b"b"], each=[Options(depends_on=(Dependency(NEVER),)), Options()])
    assert len(created(client, "t", "s")) == 1
    assert [job.payload for job in client.pull("q", 10)] == [b"b"]


def test_a_staged_job_may_depend_on_a_later_one(client: Client):
    """Its id is not given yet when the stage is written, only when it is published."""
    client.stage("t", "s", "q", [b"a"], depends_on=(Dependency(64),))
    first = push(client, "other")
    assert first == 64
    (job,) = created(client, "t", "s")
    assert client.get_job(job).blocked_by == (first,)


def test_items_of_a_part_may_name_each_other(client: Client):
    edges = Options(depends_on=(Dependency(item=1),))
    client.stage("t", "s", "q", [b"first part"])
    client.stage("t", "s", "q", [b"a", b"b"], each=[edges, Options()])
    _, a, b = created(client, "t", "s")
    assert client.get_job(a).blocked_by == (b,)


def test_published_jobs_have_every_right_of_pushed_ones(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a", b"b", b"c"], group_id="g", max_attempts=1)
    ids = created(client, "t", "s")
    assert pulled(client) == ids[:1]
    client.fail(ids[0])
    assert client.get_state(ids[0]) is State.FAILED
    assert pulled(client) == ids[1:2]


# --- the outcome ---------------------------------------------------------------------------------


def test_publishing_again_answers_the_same_and_does_nothing(world: ContractWorld):
    client = world.client
    client.stage("t", "one", "q", [b"a", b"b"])
    client.stage("t", "two", "q", [b"c"])
    first = client.publish("t", ["one"])
    before = picture(client)
    for stages in (["one"], ["two"], ["never"], []):
        again = client.publish("t", stages)
        assert (again.outcome, again.created, again.runs) == ("published", first.created, first.runs)
    assert picture(client) == before


def test_nothing_can_be_staged_after_publishing(world: ContractWorld):
    world.client.stage("t", "s", "q", [b"a"])
    world.client.publish("t", ["s"])
    check_refused(world, TransactionOver, c.Stage("t", "s", "q", [b"b"]))
    check_refused(world, TransactionOver, c.Stage("t", "new", "q", [b"b"]))


def test_an_abort_drops_everything(world: ContractWorld):
    client = world.client
    push(client)
    before = picture(client)
    client.stage("t", "s", "q", [b"a"])
    reply = client.abort("t")
    assert (reply.outcome, reply.created, reply.runs) == ("aborted", 0, ())
    assert picture(client) == before
    check_refused(world, TransactionOver, c.Publish("t", ["s"]))
    check_refused(world, TransactionOver, c.Stage("t", "s", "q", [b"a"]))


def test_aborting_twice_is_aborting_once(client: Client):
    client.stage("t", "s", "q", [b"a"])
    assert client.abort("t").outcome == "aborted"
    assert client.abort("t").outcome == "aborted"


def test_an_abort_of_an_unknown_transaction_is_remembered(world: ContractWorld):
    assert world.client.abort("t").outcome == "aborted"
    check_refused(world, TransactionOver, c.Stage("t", "s", "q", [b"a"]))


def test_an_abort_after_publishing_does_nothing_and_says_so(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a"])
    first = client.publish("t", ["s"])
    before = picture(client)
    reply = client.abort("t")
    assert (reply.outcome, reply.created, reply.runs) == ("published", first.created, first.runs)
    assert picture(client) == before


@pytest.mark.parametrize("outcome", ["published", "aborted"])
def test_an_outcome_is_remembered_for_a_while(world: ContractWorld, outcome: str):
    client = world.client
    client.stage("t", "s", "q", [b"a"])
    if outcome == "published":
        client.publish("t", ["s"])
    else:
        client.abort("t")
    world.advance(DAY_MS - 1)
    check_refused(world, TransactionOver, c.Stage("t", "s", "q", [b"a"]))
    world.advance(1)
    assert client.stage("t", "s", "q", [b"a"]).jobs == 1


def test_how_long_an_outcome_is_remembered_is_a_setting(make_world: MakeWorld):
    world = make_world(Settings(transaction_ttl_ms=1_000))
    world.client.abort("t")
    world.advance(999)
    check_refused(world, TransactionOver, c.Stage("t", "s", "q", [b"a"]))
    world.advance(1)
    assert world.client.stage("t", "s", "q", [b"a"]).jobs == 1


def test_a_stage_is_dropped_a_while_after_its_last_write(world: ContractWorld):
    client = world.client
    client.stage("t", "s", "q", [b"a"])
    world.advance(HOUR_MS - 1)
    assert client.stage("t", "s", "q", [b"b"]).jobs == 2
    world.advance(HOUR_MS - 1)
    assert client.stage("t", "s", "q", [b"c"]).jobs == 3
    world.advance(HOUR_MS)
    check_refused(world, UnknownStage, c.Publish("t", ["s"]))
    assert client.stage("t", "s", "q", [b"d"]).jobs == 1


def test_how_long_a_stage_is_kept_is_a_setting(make_world: MakeWorld):
    world = make_world(Settings(stage_ttl_ms=1_000))
    world.client.stage("t", "old", "q", [b"a"])
    world.advance(999)
    world.client.stage("t", "new", "q", [b"b"])
    world.advance(1)
    check_refused(world, UnknownStage, c.Publish("t", ["old", "new"]))
    assert len(created(world.client, "t", "new")) == 1


def test_transactions_are_the_tenants_own(world: ContractWorld):
    ours, theirs = world.client, world.client_for("acme")
    ours.stage("t", "s", "q", [b"ours"])
    check_refused(world, UnknownStage, c.Publish("t", ["s"]), "acme")
    theirs.abort("t")
    assert len(created(ours, "t", "s")) == 1
    assert pulled(theirs) == []


def test_transactions_do_not_know_each_other(world: ContractWorld):
    world.client.stage("t", "s", "q", [b"a"])
    world.client.stage("u", "s", "q", [b"b"])
    created(world.client, "u", "s")
    assert [job.payload for job in world.client.pull("q", 10)] == [b"b"]
    assert len(created(world.client, "t", "s")) == 1


def test_a_large_publication_is_told_in_runs(client: Client):
    for part in range(3):
        client.stage("t", "s", "q", [b"x"] * 1_000, part=part)
    reply = client.publish("t", ["s"])
    assert reply.created == 3_000 == sum(count for _, count in reply.runs)
    assert len(reply.runs) <= 3
    assert len(client.pull("q", 3_000)) == 3_000


def test_a_publication_stands_behind_what_was_pushed_before(client: Client):
    client.stage("t", "s", "q", [b"x"] * 2)
    before = push_many(client, 2)
    published = created(client, "t", "s")
    assert pulled(client) == [*before, *published]
