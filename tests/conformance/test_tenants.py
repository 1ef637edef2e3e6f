"""A tenant never sees, counts or touches anything of another one."""

from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.options import Dependency, RateLimit
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import NEVER, all_events, finish, kill, picture, pulled, push, push_many, start


def test_the_same_name_is_two_queues(world: ContractWorld):
    ours, theirs = world.client_for("ours"), world.client_for("theirs")
    mine, foreign = push(ours), push(theirs)
    assert mine != foreign
    assert pulled(ours) == [mine]
    assert pulled(theirs) == [foreign]


def test_the_default_tenant_is_a_tenant_like_any_other(world: ContractWorld):
    push(world.client)
    assert pulled(world.client_for("acme")) == []
    assert len(pulled(world.client_for("default"))) == 1


def test_names_are_told_apart_by_case(world: ContractWorld):
    push(world.client_for("acme"))
    assert pulled(world.client_for("Acme")) == []


BY_ID: list[c.Command[Any]] = [
    c.GetJob(0),
    c.GetLogs(0),
    c.GetPartials(0),
    c.WaitJob(0, 0),
    c.Why(0),
    c.Cancel(0),
    c.Promote(0),
    c.ChangePriority(0, 1),
    c.MoveToDelayed(0, 1),
    c.UpdatePayload(0, b"new"),
    c.Discard(0),
    c.SetProgress(0, 1),
    c.AppendLog(0, "x"),
    c.AppendPartial(0, b"x"),
]


@pytest.mark.parametrize("command", BY_ID, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("state", ["waiting", "delayed", "active", "completed", "failed"])
def test_a_foreign_id_answers_exactly_as_one_that_never_was(world: ContractWorld, command: c.Command[Any], state: str):
    theirs, ours = world.client_for("theirs"), world.client_for("ours")
    if state == "completed":
        job = finish(theirs)
    elif state == "failed":
        job = kill(theirs)
    else:
        job = push(theirs, delay_ms=1_000 if state == "delayed" else 0)
        if state == "active":
            start(theirs)
    before = picture(theirs)
    answers = []
    for number in (job, NEVER):
        fields = {name: getattr(command, name) for name in command.__struct_fields__} | {"id": number}
        with pytest.raises(StokerError) as caught:
            ours.execute(type(command)(**fields))
        answers.append((caught.value.code, caught.value.message.replace(str(number), "ID")))
    assert answers[0] == answers[1]
    assert answers[0][0] == "not_found"
    assert picture(theirs) == before


def test_a_foreign_job_counts_as_completed_when_depended_on(world: ContractWorld):
    """An id that was given to somebody says nothing about whom: it holds nobody up, and nothing is learnt."""
    foreign = push(world.client_for("theirs"))
    behind = push(world.client_for("ours"), depends_on=(Dependency(foreign),))
    assert world.client_for("ours").get_state(behind) is State.WAITING
    failed = kill(world.client_for("theirs"), "other")
    behind = push(world.client_for("ours"), depends_on=(Dependency(failed),))
    assert world.client_for("ours").get_state(behind) is State.WAITING


@pytest.mark.parametrize(
    "command",
    [
        c.Pause("q"),
        c.SetRateLimit("q", RateLimit(1, 100_000)),
        c.SetConcurrency("q", 1),
        c.SetQueuePolicy("q", "skip"),
        c.Drain("q", True),
        c.Clean("q", State.WAITING),
        c.Clean("q", State.COMPLETED),
        c.Obliterate("q", True),
        c.RetryDead("q"),
        c.PurgeDead("q"),
        c.Abort("t"),
        c.PushBatch("q", [b"x"]),
        c.Pull(["q"], 10),
    ],
    ids=lambda command: type(command).__name__,
)
def test_control_stays_with_the_tenant(world: ContractWorld, command: c.Command[Any]):
    theirs = world.client_for("theirs")
    push_many(theirs, 3)
    push(theirs, delay_ms=1_000)
    finish(theirs, priority=1)
    kill(theirs, priority=1)
    before = picture(theirs)
    world.client_for("ours").execute(command)
    assert picture(theirs) == before
    assert len(pulled(theirs)) == 3


def test_settling_somebody_elses_jobs_settles_nothing(world: ContractWorld):
    theirs, ours = world.client_for("theirs"), world.client_for("ours")
    job = push(theirs)
    token = start(theirs).token
    mine = push(ours)
    my_token = start(ours).token
    reply = ours.ack_batch([job, mine], [token, my_token])
    assert (reply.count, dict(reply.refused)) == (1, {job: "not_found"})
    assert theirs.get_state(job) is State.ACTIVE


def test_one_tenant_fills_nobody_elses_slots_or_buckets(world: ContractWorld):
    for tenant in ("ours", "theirs"):
        client = world.client_for(tenant)
        client.set_concurrency("q", 1)
        client.set_rate_limit("r", 1, 60_000)
        push_many(client, 2)
        push_many(client, 2, "r")
    for tenant in ("ours", "theirs"):
        assert len(pulled(world.client_for(tenant), ["q", "r"])) == 2


def test_nothing_of_another_tenant_can_be_listed(world: ContractWorld):
    theirs, ours = world.client_for("theirs"), world.client_for("ours")
    push(theirs, tags=("t",), group_id="g", custom_id="c")
    finish(theirs, "done")
    kill(theirs, "dead")
    nothing = picture(world.client_for("nobody"))
    assert picture(ours) == nothing
    assert list(ours.list_queues()) == []
    assert list(ours.browse(tag="t").jobs) == []
    assert list(ours.browse(group_id="g").jobs) == []
    assert list(ours.list_dead("dead").jobs) == []
    assert ours.get_dead_stats("dead").total == 0
    assert all_events(ours) == []
    assert ours.read_events(kinds=["pushed"]).events == ours.read_events(queue="q").events


def test_another_tenants_work_does_not_wake_a_waiting_pull(world: ContractWorld):
    push(world.client_for("theirs"), delay_ms=100)
    begin = world.now
    assert pulled(world.client_for("ours"), wait_ms=1_000) == []
    assert world.now == begin + 1_000
