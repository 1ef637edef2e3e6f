"""Queues live in several shards; a tenant does not notice, but by the ids and the events."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound, TransactionOver, UnknownStage
from stoker.model.ids import sequence_of, shard_for, shard_of
from stoker.model.limits import Limits
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import NEVER, finish, kill, pulled, push

SHARDS = 4
HOMES: dict[int, str] = {}
for name in (f"q{number}" for number in range(100)):
    HOMES.setdefault(shard_for("default", name, SHARDS), name)
NAMES = [HOMES[shard] for shard in range(SHARDS)]
"""One queue of the default tenant in each shard."""


@pytest.fixture
def world(make_world: MakeWorld) -> ContractWorld:
    return make_world(shards=SHARDS)


def test_an_id_names_its_shard_and_grows_inside_it(client: Client):
    ids = [push(client, name) for name in NAMES for _ in range(2)]
    assert [(shard_of(job), sequence_of(job)) for job in ids] == [(s, n) for s in range(SHARDS) for n in (1, 2)]


def test_a_queues_home_depends_on_the_tenant_and_does_not_change(world: ContractWorld):
    for tenant in ("acme", "globex", "initech"):
        for name in NAMES:
            assert shard_of(push(world.client_for(tenant), name)) == shard_for(tenant, name, SHARDS)
    assert [shard_for("default", name, 64) for name in ("mail", "q", "default")] == [20, 27, 48], "written into ids"


def test_every_shard_has_events_of_its_own(client: Client):
    ids = [finish(client, name) for name in NAMES]
    for shard, job in enumerate(ids):
        page = client.read_events(shard)
        assert [(event.shard, event.job) for event in page.events] == [(shard, job)] * 3
        assert page.events[0].sequence >= page.lowest
    with pytest.raises(InvalidRequest):
        client.read_events(SHARDS)


def test_every_shard_has_records_of_its_own(client: Client):
    for name in NAMES:
        finish(client, name)
    for shard in range(len(NAMES)):
        page = client.read_records(shard)
        events = client.read_events(shard).events
        assert [record.sequence for record in page.records] == [event.sequence for event in events]
        assert page.shards == SHARDS


def test_a_pull_over_shards_has_one_token_and_keeps_the_order_of_queues(client: Client):
    ids = {name: push(client, name) for name in NAMES}
    queues = NAMES[::-1]
    delivery = client.pull(queues, 3)
    assert [job.id for job in delivery] == [ids[name] for name in queues[:3]]
    assert len({job.token for job in delivery}) == 1
    assert client.pull(queues).token > delivery.token
    assert client.ack_batch(list(delivery.ids), delivery.token).count == 3


def test_a_pull_over_shards_waits_for_all_of_them(world: ContractWorld):
    push(world.client, NAMES[0], delay_ms=500)
    job = push(world.client, NAMES[3], delay_ms=300)
    begin = world.now
    assert pulled(world.client, NAMES, wait_ms=1_000) == [job]
    assert world.now == begin + 300
    assert pulled(world.client, NAMES[1:], wait_ms=100) == []


def test_jobs_of_all_shards_are_settled_in_one_call(client: Client):
    ids = [push(client, name) for name in NAMES]
    deliveries = [client.pull(name).token for name in NAMES]
    reply = client.ack_batch([*ids, NEVER, 63], [*deliveries, 1, 1], [b"a", b"b", None, b"d", None, None])
    assert (reply.count, dict(reply.refused)) == (4, {NEVER: "not_found", 63: "not_found"})
    assert [client.get_result(job) for job in ids] == [b"a", b"b", None, b"d"]


@pytest.mark.parametrize("command", [c.Ack, c.Fail, c.Release, c.Extend])
def test_tokens_and_results_must_be_as_many_as_jobs(client: Client, command: type[c.Ack]):
    ids = [push(client, name) for name in NAMES]
    token = client.pull(NAMES, SHARDS).token
    for tokens in ([token] * 3, [token] * 5):
        with pytest.raises(InvalidRequest):
            client.execute(command(ids, tokens))
    with pytest.raises(InvalidRequest):
        client.execute(c.Ack(ids, token, [b""] * 3))
    assert client.get_counts().active == SHARDS


def test_a_call_that_is_refused_is_refused_in_every_shard(make_world: MakeWorld):
    """The last of the results is too long: nothing is settled of the others either, wherever they live."""
    client = make_world(limits=Limits(result_bytes_max=3), shards=SHARDS).client
    ids = [push(client, name) for name in NAMES]
    token = client.pull(NAMES, SHARDS).token
    with pytest.raises(LimitExceeded):
        client.ack_batch(ids, token, [b"ok", b"ok", b"ok", b"long"])
    assert client.get_counts().active == SHARDS
    with pytest.raises(InvalidRequest):
        client.fail_batch(ids, token, delay_ms=-1)
    assert client.get_counts().active == SHARDS


def test_failures_are_answered_in_the_order_asked(client: Client):
    ids = [push(client, name) for name in (*NAMES, *NAMES)]
    token = client.pull(NAMES, 8).token
    reply = client.fail_batch(ids, token, delay_ms=0)
    assert [job.id for job in reply.jobs] == ids


def test_a_claim_holds_jobs_of_all_shards_in_id_order(client: Client):
    ids = [push(client, name) for name in (*NAMES, *NAMES)]
    token = client.pull(NAMES, 8, claim="c").token
    again = client.pull(NAMES[0], claim="c")
    assert again.token == token
    assert [job.id for job in again] == sorted(ids)
    assert client.extend_claim("c").count == 8
    assert client.ack_claim("c", {ids[3]: b"r"}).count == 8
    assert client.get_result(ids[3]) == b"r"
    assert pulled(client, NAMES, claim="c") == []
    assert client.ack_claim("c").count == 0
    with pytest.raises(NotFound):
        client.release_claim("other")


def test_a_claim_brings_nothing_new_from_shards_it_had_no_jobs_in(client: Client):
    held = push(client, NAMES[0])
    assert pulled(client, NAMES, claim="c") == [held]
    push(client, NAMES[1])
    assert pulled(client, NAMES, claim="c") == [held]
    client.release_claim("c")
    assert pulled(client, NAMES[1], claim="c") == []


def test_looking_spans_all_shards(world: ContractWorld):
    client = world.client
    ids = [push(client, name, custom_id=name) for name in NAMES]
    for name in NAMES:
        push(client, name)
    assert sorted(client.list_queues()) == sorted(NAMES)
    assert client.get_counts().waiting == 8
    assert client.get_stats().totals.pushed == 8
    assert [client.find_job(name).id for name in NAMES] == ids
    with pytest.raises(NotFound):
        client.find_job("never")
    assert client.get_state(kill(client, NAMES[2], priority=1)) is State.FAILED


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_over_all_shards_bring_every_job_once(client: Client, ascending: bool, limit: int):
    ids = sorted(push(client, name) for name in NAMES * 3)
    found: list[int] = []
    after = None
    while True:
        page = client.browse(after=after, limit=limit, ascending=ascending)
        found += [view.id for view in page.jobs]
        after = page.next_after
        if after is None:
            break
    assert found == (ids if ascending else ids[::-1])


def test_a_transaction_spans_shards(client: Client):
    for name in NAMES:
        client.stage("t", name, name, [b"a", b"b"])
    with pytest.raises(UnknownStage):
        client.publish("t", [*NAMES, "never"])
    assert client.get_counts().waiting == 0
    reply = client.publish("t", NAMES[:3])
    assert (reply.outcome, reply.created) == ("published", 6)
    assert client.get_counts().waiting == 6
    assert client.publish("t", NAMES).created == 6
    assert client.abort("t").outcome == "published"
    assert client.get_counts().waiting == 6


def test_one_stage_may_hold_jobs_of_several_shards(client: Client):
    jobs = [client.stage("t", "s", name, [b"a"]).jobs for name in NAMES]
    assert jobs == [1, 2, 3, 4]
    assert client.publish("t", ["s"]).created == 4


def test_an_abort_holds_in_every_shard(client: Client):
    client.stage("t", "s", NAMES[0], [b"a"])
    client.abort("t")
    for name in NAMES:
        with pytest.raises(TransactionOver):
            client.stage("t", "s", name, [b"a"])


@pytest.mark.parametrize("command", [c.GetJob, c.Cancel, c.Why, c.Promote])
def test_an_id_of_a_shard_that_is_not_there_is_not_found(client: Client, command: type[c.GetJob]):
    for name in NAMES:
        push(client, name)
    for number in (64 + SHARDS, 127, NEVER + 63):
        with pytest.raises(NotFound):
            client.execute(command(number))
