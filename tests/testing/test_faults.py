"""Faults on purpose: what an application and its worker make of them."""

import pytest

from stoker.model import commands as c
from stoker.model.errors import Busy, DiskFull, InvalidRequest, Unknown, Unreachable
from stoker.testing import Harness
from tests.testing import shop
from tests.testing.shop import app, fetch, seen, thank


def test_a_call_that_does_not_arrive_changes_nothing(world: Harness):
    fault = world.fail_call("push")
    with pytest.raises(Unreachable):
        thank.push_sync("Ada")
    assert fault.has_fired
    assert world.pushed() == []
    thank.push_sync("Ada")
    assert len(world.pushed()) == 1


def test_the_number_of_the_call_and_the_error_can_be_chosen(world: Harness):
    world.fail_call(c.Push, number=2, error=Busy("not now"))
    thank.push_sync("Ada")
    with pytest.raises(Busy):
        thank.push_sync("Bob")
    thank.push_sync("Cleo")
    assert [job.arguments["customer"] for job in world.pushed()] == ["Ada", "Cleo"]


def test_a_reply_that_gets_lost_leaves_what_has_happened(world: Harness):
    world.lose_reply("push")
    with pytest.raises(Unknown):
        thank.push_sync("Ada")
    assert len(world.pushed()) == 1


def test_a_call_that_does_not_exist_is_refused(world: Harness):
    with pytest.raises(InvalidRequest, match="push_batch"):
        world.fail_call("fly")
    with pytest.raises(InvalidRequest, match=r"expected 1 \(the next call\)"):
        world.fail_call("push", number=0)


def test_a_lost_worker_costs_an_attempt_and_no_job(world: Harness):
    job = thank.push_sync("Ada")
    assert world.lose_worker(thank) == job.id
    assert seen == []
    world.run_for("1m")
    view = job.view_sync()
    assert (view.state, view.attempts, view.crashes, seen) == ("completed", 2, 1, ["Ada"])


def test_nobody_gets_lost_without_a_job(world: Harness):
    with pytest.raises(InvalidRequest, match="mail"):
        world.lose_worker(thank)


def test_a_job_whose_workers_get_lost_again_and_again_is_dead(world: Harness):
    job = thank.options(max_attempts=0).push_sync("Ada")
    for _ in range(3):
        world.lose_worker("mail")
        world.advance("1h")
    assert job.status_sync() == "failed"
    assert world.client.list_dead("mail").jobs[0].id == job.id


def test_an_ack_that_comes_after_the_lease_is_refused(world: Harness):
    job = slow.push_sync()
    world.drain()
    world.run_for("1m")
    assert seen == ["expired", "done"]
    assert job.view_sync().attempts == 2


@app.job(queue="orders")
def slow() -> None:
    """Outlives its lease, the first time."""
    import stoker

    context = stoker.current_job()
    assert context is not None
    if context.attempt == 1:
        assert shop.world is not None
        shop.world.expire_lease(context.id)
        seen.append("expired")
    else:
        seen.append("done")


def test_an_ack_whose_reply_gets_lost_does_not_run_the_job_again(world: Harness):
    thank.push_sync("Ada")
    fault = world.lose_reply("ack")
    world.drain()
    world.run_for("5m")
    assert fault.has_fired
    assert seen == ["Ada"]


def test_an_ack_that_does_not_arrive_is_sent_again(world: Harness):
    job = thank.push_sync("Ada")
    fault = world.fail_call("ack")
    world.drain()
    assert fault.has_fired
    assert (job.status_sync(), seen) == ("completed", ["Ada"])


def test_on_a_full_disk_jobs_are_refused_and_worked_off(world: Harness):
    job = fetch.push_sync(works_in=1)
    with world.disk_full():
        with pytest.raises(DiskFull):
            thank.push_sync("Ada")
        world.drain().check()
    assert job.status_sync() == "completed"
    assert thank.push_sync("Ada").created
