"""Every bound, at it and one over it. A refused request names the limit and leaves no trace."""

from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.errors import LimitExceeded
from stoker.model.limits import Limits
from stoker.model.options import Dependency, Options
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import OUT_OF_BOUNDS, check_refused, picture, pulled, push, push_many, start


def test_a_payload_may_be_so_large_and_no_larger(make_world: MakeWorld):
    world = make_world(limits=Limits(payload_bytes_max=1_000))
    push(world.client, payload=b"x" * 1_000)
    error = check_refused(world, LimitExceeded, c.Push("q", b"x" * 1_001))
    assert "1000" in error.message.replace(",", "").replace("_", "")
    check_refused(world, LimitExceeded, c.PushBatch("q", [b"", b"x" * 1_001], atomic=True))


def test_the_default_payload_limit_is_ten_mebibytes(world: ContractWorld):
    assert world.client.push("q", bytes(10 * 1024 * 1024)).created
    check_refused(world, LimitExceeded, c.Push("q", bytes(10 * 1024 * 1024 + 1)))


def test_a_tenant_may_have_so_many_queues(make_world: MakeWorld):
    world = make_world(limits=Limits(queues_per_tenant_max=3))
    push(world.client, "a")
    world.client.pause("b")
    push(world.client, "c")
    check_refused(world, LimitExceeded, c.Push("d", b""))
    check_refused(world, LimitExceeded, c.PushBatch("d", [b"", b""]))
    check_refused(world, LimitExceeded, c.Pause("d"))
    check_refused(world, LimitExceeded, c.SetConcurrency("d", 1))
    push(world.client, "a")
    push(world.client_for("acme"), "d")


def test_a_stage_may_not_prepare_one_queue_too_many(make_world: MakeWorld):
    world = make_world(limits=Limits(queues_per_tenant_max=1))
    push(world.client, "a")
    check_refused(world, LimitExceeded, c.Stage("t", "s", "b", [b""]))
    assert world.client.stage("t", "s", "a", [b""]).jobs == 1


def test_a_pull_may_name_so_many_queues(make_world: MakeWorld):
    world = make_world(limits=Limits(queues_per_pull_max=2))
    ids = [push(world.client, queue) for queue in ("a", "b", "c")]
    check_refused(world, LimitExceeded, c.Pull(["a", "b", "c"], 5))
    assert pulled(world.client, ["b", "c"]) == ids[1:]


def test_an_obliterated_queue_makes_room_for_another(make_world: MakeWorld):
    world = make_world(limits=Limits(queues_per_tenant_max=1))
    push(world.client, "a")
    world.client.obliterate("a")
    push(world.client, "b")


@pytest.mark.parametrize("field", ["unique_key", "custom_id", "debounce_id", "group_id"])
def test_keys_may_be_so_long(make_world: MakeWorld, field: str):
    world = make_world(limits=Limits(key_chars_max=5))
    good: dict[str, Any] = {field: "ü" * 5}
    bad: dict[str, Any] = {field: "x" * 6}
    push(world.client, **good)
    check_refused(world, LimitExceeded, c.Push("q", b"", Options(**bad)))


@pytest.mark.parametrize(
    "command",
    [
        c.PushBatch("q", [b""], request_key="x" * 6),
        c.Stage("x" * 6, "s", "q", [b""]),
        c.Stage("t", "x" * 6, "q", [b""]),
        c.Publish("x" * 6, []),
        c.Abort("x" * 6),
        c.Pull(["q"], claim="x" * 6),
    ],
    ids=lambda command: str(command)[:40],
)
def test_names_of_requests_claims_and_transactions_may_be_so_long(make_world: MakeWorld, command: c.Command[Any]):
    world = make_world(limits=Limits(key_chars_max=5))
    push(world.client)
    check_refused(world, LimitExceeded, command)


def test_a_job_may_have_so_many_tags_of_such_a_length(make_world: MakeWorld):
    world = make_world(limits=Limits(tags_max=2, tag_chars_max=3))
    push(world.client, tags=("abc", "ü" * 3))
    check_refused(world, LimitExceeded, c.Push("q", b"", Options(tags=("a", "b", "c"))))
    check_refused(world, LimitExceeded, c.Push("q", b"", Options(tags=("abcd",))))


def test_a_job_may_depend_on_so_many(make_world: MakeWorld):
    world = make_world(limits=Limits(depends_on_max=2))
    ids = push_many(world.client, 3)
    push(world.client, depends_on=tuple(Dependency(job) for job in ids[:2]))
    check_refused(world, LimitExceeded, c.Push("q", b"", Options(depends_on=tuple(Dependency(job) for job in ids))))


def test_a_batch_may_have_so_many_dependencies(make_world: MakeWorld):
    world = make_world(limits=Limits(edges_per_batch_max=4))
    edges = Options(depends_on=tuple(Dependency(job) for job in push_many(world.client, 2)))
    world.client.push_batch("q", [b""] * 2, edges)
    check_refused(world, LimitExceeded, c.PushBatch("q", [b""] * 3, edges))


def test_a_trace_may_be_so_long(make_world: MakeWorld):
    world = make_world(limits=Limits(trace_chars_max=3))
    push(world.client, trace="abc")
    check_refused(world, LimitExceeded, c.Push("q", b"", Options(trace="abcd")))


def test_a_message_may_be_so_long(make_world: MakeWorld):
    world = make_world(limits=Limits(message_chars_max=3))
    job = push(world.client)
    start(world.client)
    world.client.set_progress(job, 1, "abc")
    check_refused(world, LimitExceeded, c.SetProgress(job, 2, "abcd"))


def test_a_log_line_is_cut_not_refused(make_world: MakeWorld):
    world = make_world(limits=Limits(log_line_chars_max=5))
    job = push(world.client)
    world.client.append_log(job, "12345")
    world.client.append_log(job, "1234567")
    whole, cut = (line.message for line in world.client.get_logs(job))
    assert whole == "12345"
    assert len(cut) == 5
    assert cut.startswith("1234")


def test_a_partial_is_limited_as_a_result(make_world: MakeWorld):
    world = make_world(limits=Limits(result_bytes_max=3))
    job = push(world.client)
    start(world.client)
    world.client.append_partial(job, b"abc")
    check_refused(world, LimitExceeded, c.AppendPartial(job, b"abcd"))


def test_a_lease_may_be_so_short(make_world: MakeWorld):
    world = make_world(limits=Limits(lease_ms_min=100))
    job = push(world.client, lease_ms=100)
    check_refused(world, OUT_OF_BOUNDS, c.Push("q", b"", Options(lease_ms=99)))
    check_refused(world, OUT_OF_BOUNDS, c.Pull(["q"], lease_ms=99))
    start(world.client, lease_ms=100)
    check_refused(world, OUT_OF_BOUNDS, c.Extend([job], lease_ms=99))
    world.client.extend(job, lease_ms=100)


def test_a_result_over_the_limit_settles_nothing_of_its_job(make_world: MakeWorld):
    world = make_world(limits=Limits(result_bytes_max=3))
    job = push(world.client)
    token = start(world.client, claim="c" if world.has_claims else None).token
    before = picture(world.client)
    with pytest.raises(LimitExceeded):
        world.client.ack(job, token, b"long")
    assert picture(world.client) == before


def test_limits_are_not_reached_by_doing_things_one_by_one(make_world: MakeWorld):
    """They bound a request, not a queue."""
    world = make_world(limits=Limits(batch_jobs_max=2, pull_jobs_max=2))
    for _ in range(5):
        push_many(world.client, 2)
    assert sum(len(pulled(world.client, count=2)) for _ in range(5)) == 10


def test_reading_events_is_limited(make_world: MakeWorld):
    world = make_world(limits=Limits(events_max=5))
    push_many(world.client, 3)
    assert len(world.client.read_events(limit=5).events) == 3
    with pytest.raises(LimitExceeded):
        world.client.read_events(limit=6)
