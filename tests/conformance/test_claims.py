"""A named pull can be asked for again and brings the same jobs."""

from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import LimitExceeded, NotFound
from stoker.model.limits import Limits
from stoker.model.options import HOUR_MS, Settings
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import check_refused, picture, pulled, push, push_many, start, story


def test_asking_again_brings_the_same_jobs_with_the_same_token(world: ContractWorld):
    client = world.client
    ids = push_many(client, 5)
    first = client.pull("q", 3, claim="c", worker="w")
    before = picture(client)
    again = client.pull("q", 3, claim="c", worker="w")
    assert list(again) == list(first)
    assert [job.id for job in again] == ids[:3]
    assert [job.attempt for job in again] == [1, 1, 1]
    assert picture(client) == before, "asking again is no delivery"


def test_the_claim_can_be_seen_on_its_jobs(client: Client):
    claimed, free = push(client), push(client)
    start(client, claim="c")
    start(client)
    assert client.get_job(claimed).claim == "c"
    assert client.get_job(free).claim is None
    client.release(claimed)
    assert client.get_job(claimed).claim is None


def test_queues_and_count_of_later_pulls_are_ignored(client: Client):
    ids = push_many(client, 5)
    push(client, "other")
    client.pull("q", 2, claim="c")
    assert pulled(client, "other", 100, claim="c") == ids[:2]
    assert pulled(client, "q", 1, claim="c") == ids[:2]


def test_a_claim_comes_in_id_order(client: Client):
    low, high = push(client), push(client, priority=1)
    assert pulled(client, claim="c") == [high, low]
    assert pulled(client, claim="c") == [low, high]


def test_settled_jobs_are_left_out(client: Client):
    ids = push_many(client, 5, max_attempts=1)
    token = client.pull("q", 4, claim="c").token
    client.ack(ids[0], token)
    client.fail(ids[1], token)
    client.release(ids[2], token)
    assert pulled(client, claim="c") == ids[3:4]


def test_lost_jobs_are_left_out_even_when_somebody_else_has_them(world: ContractWorld):
    client = world.client
    short, long = push(client, lease_ms=1_000), push(client, lease_ms=60_000)
    assert pulled(client, claim="c") == [short, long]
    world.advance(1_000)
    client.promote(short)
    assert pulled(client) == [short]
    assert pulled(client, claim="c") == [long]
    assert client.get_job(short).claim is None


def test_a_claim_brings_nothing_new_while_a_job_is_held(world: ContractWorld):
    client = world.client
    ids = push_many(client, 3)
    assert pulled(client, count=1, claim="c") == ids[:1]
    client.ack(ids[0])
    assert pulled(client, claim="c") == []
    assert client.get_counts("q").waiting == 2


@pytest.mark.parametrize("how", ["ack", "release", "lost", "cancel", "discard", "move"])
def test_a_claim_is_remembered_for_a_while_after_its_last_job(world: ContractWorld, how: str):
    client = world.client
    job = push(client, lease_ms=HOUR_MS, max_attempts=1)
    other = push(client, "other")
    assert pulled(client, claim="c") == [job]
    world.advance(HOUR_MS - 1)
    if how == "ack":
        client.ack(job)
    elif how == "release":
        client.release(job)
        client.cancel(job)
    elif how == "lost":
        world.advance(1)
    elif how == "cancel":
        client.cancel(job)
        client.fail(job)
    elif how == "discard":
        client.discard(job)
    else:
        client.move_to_delayed(job, 1)
    world.advance(HOUR_MS - 1)
    assert pulled(client, "other", claim="c") == []
    world.advance(1)
    assert pulled(client, "other", claim="c") == [other]


def test_how_long_a_claim_is_remembered_is_a_setting(make_world: MakeWorld):
    world = make_world(Settings(claim_ttl_ms=1_000))
    client = world.client
    ids = push_many(client, 2)
    assert pulled(client, count=1, claim="c") == ids[:1]
    world.advance(10_000)
    assert pulled(client, claim="c") == ids[:1], "as long as any is held"
    client.ack(ids[0])
    world.advance(999)
    assert pulled(client, claim="c") == []
    world.advance(1)
    assert pulled(client, claim="c") == ids[1:]


def test_a_pull_that_brings_nothing_makes_no_claim(client: Client):
    assert pulled(client, claim="c") == []
    job = push(client)
    assert pulled(client, claim="c") == [job]


def test_waiting_applies_to_the_making_only(world: ContractWorld):
    client = world.client
    job = push(client, delay_ms=300)
    begin = world.now
    assert pulled(client, claim="c", wait_ms=1_000) == [job]
    assert world.now == begin + 300
    client.ack(job)
    push(client, delay_ms=100)
    assert pulled(client, claim="c", wait_ms=1_000) == []
    assert world.now == begin + 300


def test_claims_are_the_tenants_own(world: ContractWorld):
    ours, theirs = push(world.client), push(world.client_for("acme"))
    assert pulled(world.client, claim="c") == [ours]
    assert pulled(world.client_for("acme"), claim="c") == [theirs]


def test_claims_have_names_of_their_own(client: Client):
    ids = push_many(client, 2)
    assert pulled(client, count=1, claim="c") == ids[:1]
    assert pulled(client, count=1, claim="d") == ids[1:]
    assert pulled(client, claim="c") == ids[:1]


def test_a_claim_over_several_queues(client: Client):
    a, b = push(client, "a"), push(client, "b")
    assert pulled(client, ["b", "a"], claim="c") == [b, a]
    assert [(job.id, job.queue) for job in client.pull("q", claim="c")] == [(a, "a"), (b, "b")]


def test_a_claims_name_is_limited(make_world: MakeWorld):
    world = make_world(limits=Limits(key_chars_max=4))
    push(world.client)
    check_refused(world, LimitExceeded, c.Pull(["q"], claim="x" * 5))
    assert len(world.client.pull("q", claim="x" * 4)) == 1


# --- settling a claim ----------------------------------------------------------------------------


def test_a_claim_is_acknowledged_with_results(client: Client):
    ids = push_many(client, 3)
    client.pull("q", 3, claim="c")
    reply = client.ack_claim("c", {ids[1]: b"result"})
    assert (reply.count, dict(reply.refused)) == (3, {})
    assert [client.get_state(job) for job in ids] == [State.COMPLETED] * 3
    assert [client.get_result(job) for job in ids] == [None, b"result", None]
    assert pulled(client, claim="c") == []


def test_acknowledging_a_claim_takes_what_is_left_of_it(client: Client):
    ids = push_many(client, 3)
    token = client.pull("q", 3, claim="c").token
    client.fail(ids[0], token, retry=False)
    client.release(ids[1], token)
    assert client.ack_claim("c").count == 1
    assert [client.get_state(job) for job in ids] == [State.FAILED, State.WAITING, State.COMPLETED]


def test_acknowledging_twice_is_acknowledging_once(world: ContractWorld):
    push_many(world.client, 2)
    world.client.pull("q", 2, claim="c")
    assert world.client.ack_claim("c").count == 2
    before = picture(world.client)
    assert world.client.ack_claim("c").count == 0
    assert picture(world.client) == before


def test_a_released_claim_gives_its_jobs_and_attempts_back(client: Client):
    ids = push_many(client, 3)
    client.pull("q", 3, claim="c")
    reply = client.release_claim("c")
    assert (reply.count, dict(reply.refused)) == (3, {})
    assert [client.get_job(job).attempts for job in ids] == [0, 0, 0]
    assert story(client, ids[0]) == ["pushed", "started", "released"]
    assert pulled(client) == ids


def test_an_extended_claim_keeps_its_jobs(world: ContractWorld):
    client = world.client
    ids = push_many(client, 2, lease_ms=1_000)
    client.pull("q", 2, claim="c")
    world.advance(600)
    reply = client.extend_claim("c")
    assert (reply.count, reply.lease_until, dict(reply.refused)) == (2, world.now + 1_000, {})
    world.advance(600)
    reply = client.extend_claim("c", 5_000)
    assert reply.lease_until == world.now + 5_000
    world.advance(4_999)
    assert [job.lease_until - world.now for job in client.pull("q", claim="c")] == [1, 1]
    world.advance(1)
    assert pulled(client, claim="c") == []
    assert {client.get_state(job) for job in ids} == {State.DELAYED}


def test_an_extended_claim_names_its_cancelled_jobs(client: Client):
    ids = push_many(client, 3)
    client.pull("q", 3, claim="c")
    client.cancel(ids[1])
    assert list(client.extend_claim("c").cancelled) == [ids[1]]


def test_a_result_for_a_job_outside_the_claim_settles_nothing_of_it(client: Client):
    ids = push_many(client, 2)
    client.pull("q", 1, claim="c")
    outside = start(client)
    client.execute(c.AckClaim("c", {ids[0]: b"good", outside.id: b"not mine"}))
    assert client.get_result(ids[0]) == b"good"
    assert client.get_state(outside.id) is State.ACTIVE


@pytest.mark.parametrize("command", [c.AckClaim("c"), c.ReleaseClaim("c"), c.ExtendClaim("c")])
def test_a_claim_that_was_never_made_is_not_found(world: ContractWorld, command: c.Command[Any]):
    push(world.client)
    check_refused(world, NotFound, command)
    assert pulled(world.client, "empty", claim="c") == []
    check_refused(world, NotFound, command)


@pytest.mark.parametrize("command", [c.AckClaim("c"), c.ReleaseClaim("c"), c.ExtendClaim("c")])
def test_nobody_settles_a_foreign_claim(world: ContractWorld, command: c.Command[Any]):
    client = world.client
    ids = push_many(client, 2)
    client.pull("q", 2, claim="c")
    push(world.client_for("acme"))
    world.client_for("acme").pull("q", claim="other")
    check_refused(world, NotFound, command, "acme")
    assert pulled(client, claim="c") == ids
