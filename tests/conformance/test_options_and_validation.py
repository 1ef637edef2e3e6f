"""Every option arrives as it was sent, on every way into a queue; what makes no sense is refused without a trace."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, Refused
from stoker.model.limits import DURATION_MS_MAX, INT_MAX
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options, RateLimit
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import NEVER, OUT_OF_BOUNDS, check_refused, finish, push, start

SAMPLES: dict[str, Any] = {
    "priority": -7,
    "delay_ms": 1_234,
    "run_at": 1_700_000_005_000,
    "ttl_ms": 60_001,
    "timeout_ms": 60_002,
    "lease_ms": 60_003,
    "max_attempts": 7,
    "max_crashes": 8,
    "backoff": Backoff("linear", 11, 22, "full"),
    "unique_key": "key",
    "unique_ttl_ms": 60_004,
    "on_conflict": "replace",
    "custom_id": "custom",
    "custom_id_ttl_ms": 60_005,
    "debounce_id": "debounce",
    "debounce_ms": 60_006,
    "depends_on": (Dependency(64, "continue"),),
    "group_id": "group",
    "lifo": True,
    "tags": ("a", "b"),
    "remove_on_complete": True,
    "remove_on_fail": True,
    "keep_completed_age_ms": 60_007,
    "keep_completed_count": 9,
    "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "parent_id": 12_345,
    "codec": "json",
    "name": "mail.welcome",
    "workflow": 123_456,
    "schedule": "nightly",
    "slot": 1_700_000_000_000,
    "log_lines_max": 60,
    "stack_lines_max": 61,
}
"""One value a field, none of them the default. The dependency is the first job of the test."""

EVERY_OPTION = list(Options.__struct_fields__)


def by_push(client: Client, options: Options) -> int:
    return client.push("q", b"job", options).id


def by_batch(client: Client, options: Options) -> int:
    return client.push_batch("q", [b"job"], options).ids[0]


def by_batch_of_each(client: Client, options: Options) -> int:
    """Between two jobs that want something else."""
    return client.push_batch("q", [b"-", b"job", b"-"], each=[Options(tags=("x",)), options, Options()]).ids[1]


def by_transaction(client: Client, options: Options) -> int:
    client.stage("t", "s", "q", [b"job"], options)
    ((first, count),) = client.publish("t", ["s"]).runs
    assert count == 1
    return first


def by_transaction_of_each(client: Client, options: Options) -> int:
    client.stage("t", "s", "q", [b"job"], each=[options])
    return client.publish("t", ["s"]).runs[0][0]


WAYS_IN = [by_push, by_batch, by_batch_of_each, by_transaction, by_transaction_of_each]


def test_there_is_a_sample_of_every_option():
    defaults = Options()
    assert list(SAMPLES) == EVERY_OPTION
    assert [name for name in EVERY_OPTION if SAMPLES[name] == getattr(defaults, name)] == []


@pytest.mark.parametrize("field", EVERY_OPTION)
@pytest.mark.parametrize("way_in", WAYS_IN)
def test_every_option_arrives_on_every_way_in(
    world: ContractWorld, way_in: Callable[[Client, Options], int], field: str
):
    client = world.client
    assert finish(client, "other") == SAMPLES["depends_on"][0].id
    options = Options(**{field: SAMPLES[field]})
    job = way_in(client, options)
    assert client.get_job(job).options == options
    world.advance(60_000)
    delivered = {each.id: each for each in client.pull("q", 10)}
    assert delivered[job].options == options


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_all_options_at_once_survive_a_retry_a_release_and_a_death(
    world: ContractWorld, way_in: Callable[[Client, Options], int]
):
    client = world.client
    finish(client, "other")
    options = msgspec.structs.replace(Options(**SAMPLES), remove_on_fail=False, ttl_ms=0)
    job = way_in(client, options)
    client.drain("q")  # what the way in has pushed beside it
    assert client.get_job(job).state is State.DELAYED
    world.advance(5_000)
    client.fail(start(client).id, delay_ms=0)
    client.release(start(client).id)
    client.fail(start(client).id, retry=False)
    assert client.get_job(job).options == options
    client.retry_dead("q", [job])
    assert start(client).options == options


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("priority", [INT_MAX, -INT_MAX, 0]),
        ("delay_ms", [0, 1, DURATION_MS_MAX]),
        ("run_at", [0, 1]),
        ("ttl_ms", [0, 1, DURATION_MS_MAX]),
        ("timeout_ms", [0, 1, DURATION_MS_MAX]),
        ("lease_ms", [1, DURATION_MS_MAX]),
        ("max_attempts", [0, 1, 1_000_000]),
        ("max_crashes", [0, 1, 1_000_000]),
        ("backoff", [Backoff(base_ms=0), Backoff(cap_ms=0), Backoff("fixed", DURATION_MS_MAX, DURATION_MS_MAX)]),
        ("unique_key", ["k", "a key / of any ☂ kind", "k" * 1024]),
        ("unique_ttl_ms", [0, DURATION_MS_MAX]),
        ("custom_id", ["c", "an id / of any ☂ kind", "c" * 1024]),
        ("custom_id_ttl_ms", [0, DURATION_MS_MAX]),
        ("debounce_id", ["d" * 1024]),
        ("debounce_ms", [0, DURATION_MS_MAX]),
        ("group_id", ["g" * 1024]),
        ("tags", [(), ("t" * 256,), tuple(f"t{n}" for n in range(32))]),
        ("keep_completed_age_ms", [0, DURATION_MS_MAX]),
        ("keep_completed_count", [0, 1_000_000]),
        ("trace", ["", "t" * 2_048]),
        ("name", ["n", "any ☂ printable text", "n" * 256]),
        ("schedule", ["s", "s" * 1_024]),
        ("slot", [1, INT_MAX // 2]),
        ("log_lines_max", [0, 1_000_000]),
        ("stack_lines_max", [0, 1_000_000]),
    ],
)
def test_values_at_the_edge_are_taken(world: ContractWorld, field: str, values: list[Any]):
    for value in values:
        options = Options(**{field: value})
        assert world.client.get_job(world.client.push("q", b"", options).id).options == options


BAD_OPTIONS: list[tuple[str, Any]] = [
    *[("priority", bad) for bad in (INT_MAX + 1, -INT_MAX - 1, "high", 1.5, None)],
    *[("delay_ms", bad) for bad in (-1, DURATION_MS_MAX + 1, "5", 1.5, None)],
    *[("run_at", bad) for bad in (-1, INT_MAX + 1, "tomorrow", 1.5)],
    *[
        (name, bad)
        for name in ("ttl_ms", "timeout_ms", "unique_ttl_ms", "custom_id_ttl_ms", "debounce_ms")
        for bad in (-1, DURATION_MS_MAX + 1, "5", None)
    ],
    *[("lease_ms", bad) for bad in (0, -1, DURATION_MS_MAX + 1, None)],
    *[(name, bad) for name in ("max_attempts", "max_crashes") for bad in (-1, 1.5, None)],
    *[
        ("backoff", bad)
        for bad in (
            Backoff("cubic"),  # type: ignore[arg-type]
            Backoff(base_ms=-1),
            Backoff(base_ms=DURATION_MS_MAX + 1),
            Backoff(cap_ms=-1),
            Backoff(cap_ms=DURATION_MS_MAX + 1),
            Backoff(jitter="some"),  # type: ignore[arg-type]
            None,
        )
    ],
    *[("on_conflict", bad) for bad in ("error", "", None)],
    *[(name, bad) for name in ("unique_key", "custom_id", "debounce_id", "group_id") for bad in ("k" * 1025, 7, b"k")],
    *[("depends_on", bad) for bad in ((Dependency(64, "ignore"),), (64,), None)],  # type: ignore[arg-type]
    *[("lifo", bad) for bad in ("yes", None)],
    *[("tags", bad) for bad in (("t",) * 33, ("t" * 257,), (7,), "word", None)],
    *[(name, bad) for name in ("remove_on_complete", "remove_on_fail") for bad in ("yes", None)],
    *[("keep_completed_age_ms", bad) for bad in (-1, DURATION_MS_MAX + 1, "5")],
    *[("keep_completed_count", bad) for bad in (-1, "5")],
    *[("trace", bad) for bad in ("t" * 2_049, 7)],
    *[("parent_id", bad) for bad in (-1, INT_MAX + 1, "64")],
    *[("codec", bad) for bad in ("xml", "", "JSON", None, 1)],
    *[("name", bad) for bad in ("", "n" * 257, "two\nlines", 7, b"n")],
    *[("workflow", bad) for bad in (0, -1, INT_MAX + 1, "64")],
    *[("schedule", bad) for bad in ("", "s" * 1_025, 7)],
    *[("slot", bad) for bad in (-1, INT_MAX, "1", None)],
    *[(name, bad) for name in ("log_lines_max", "stack_lines_max") for bad in (-1, "5")],
]


@pytest.mark.parametrize(("field", "bad"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_a_bad_option_is_refused_on_every_way_in(world: ContractWorld, field: str, bad: Any):
    finish(world.client, "other")
    options = Options(**{field: bad})
    check_refused(world, OUT_OF_BOUNDS, c.Push("q", b"", options))
    check_refused(world, OUT_OF_BOUNDS, c.PushBatch("q", [b"a", b"b"], options, atomic=True))
    check_refused(world, OUT_OF_BOUNDS, c.PushBatch("q", [b"a", b"b"], each=[Options(), options], atomic=True))
    if world.has_transactions:
        check_refused(world, OUT_OF_BOUNDS, c.Stage("t", "s", "q", [b"a"], options))
        check_refused(world, OUT_OF_BOUNDS, c.Stage("t", "s", "q", [b"a", b"b"], each=[Options(), options]))
    reply = world.client.push_batch("q", [b"good", b"bad"], each=[Options(), options])
    assert reply.ids[1] == 0
    assert reply.refused[1].code in ("invalid", "limit_exceeded")
    assert world.client.get_counts("q").waiting == 1


def test_every_option_with_a_bad_value_has_one_in_the_list():
    """`priority` and the like can be wrong; an option that cannot be wrong would be missing here on purpose."""
    assert set(EVERY_OPTION) == {field for field, _ in BAD_OPTIONS}


def test_options_that_are_no_options_are_refused(world: ContractWorld):
    nothing: Any = None
    check_refused(world, InvalidRequest, c.Push("q", b"", nothing))


# --- commands ------------------------------------------------------------------------------------

BAD_COMMANDS: list[c.Command[Any]] = [
    c.PushBatch("q", []),
    c.PushBatch("q", [b"a", b"b"], each=[Options()]),
    c.PushBatch("q", [b"a"], each=[Options(), Options()]),
    c.PushBatch("q", [b"a"], request_key="k" * 1025),
    c.Stage("t", "s", "q", [b"a", b"b"], each=[Options()]),
    c.Stage("t" * 1025, "s", "q", [b"a"]),
    c.Stage("t", "s" * 1025, "q", [b"a"]),
    c.Stage("t", "s", "q", [b"a"], part=-1),
    c.Publish("t" * 1025, []),
    c.Abort("t" * 1025),
    c.Pull([]),
    c.Pull(["q"], 0),
    c.Pull(["q"], -1),
    c.Pull(["q"], 10_001),
    c.Pull(["q"], wait_ms=-1),
    c.Pull(["q"], wait_ms=600_001),
    c.Pull(["q"], lease_ms=0),
    c.Pull(["q"], lease_ms=-1),
    c.Pull(["q"], lease_ms=DURATION_MS_MAX + 1),
    c.Pull(["q"], claim="c" * 1025),
    c.Ack([]),
    c.Fail([]),
    c.Release([]),
    c.Extend([]),
    c.Ack([64], [1, 2]),
    c.Ack([64, 128], [1]),
    c.Ack([64], None, [b"a", b"b"]),
    c.Fail([64], [1, 2]),
    c.Fail([64], delay_ms=-1),
    c.Fail([64], delay_ms=DURATION_MS_MAX + 1),
    c.Release([64], [1, 2]),
    c.Release([64], delay_ms=-1),
    c.Release([64], delay_ms=DURATION_MS_MAX + 1),
    c.Extend([64], [1, 2]),
    c.Extend([64], lease_ms=0),
    c.Extend([64], lease_ms=-1),
    c.Extend([64], lease_ms=DURATION_MS_MAX + 1),
    c.ExtendClaim("c", lease_ms=0),
    c.AckClaim("c" * 1025),
    c.ReleaseClaim("c" * 1025),
    c.ExtendClaim("c" * 1025),
    c.SetProgress(64, -1),
    c.SetProgress(64, 101),
    c.AppendPartial(64, b"x", index=-1),
    c.WaitJob(64, -1),
    c.WaitJob(64, 600_001),
    c.Browse(limit=0),
    c.Browse(limit=-1),
    c.Browse(limit=1_001),
    c.Browse(queue="not a name"),
    c.Browse(state="sleeping"),  # type: ignore[arg-type]
    c.GetQueue("not a name"),
    c.GetStats("not a name"),
    c.FindJob("x", "not a name"),
    c.ReadEvents(limit=0),
    c.ReadEvents(limit=-1),
    c.ReadEvents(after=-1),
    c.ReadEvents(shard=-1),
    c.ReadEvents(shard=64),
    c.ReadEvents(wait_ms=-1),
    c.ReadEvents(wait_ms=600_001),
    c.SetRateLimit("q", RateLimit(0)),
    c.SetRateLimit("q", RateLimit(-1)),
    c.SetRateLimit("q", RateLimit(1, 0)),
    c.SetRateLimit("q", RateLimit(1, -1)),
    c.SetRateLimit("q", RateLimit(1, 1_000, -1)),
    c.SetConcurrency("q", -1),
    c.SetQueuePolicy("q", "wait"),  # type: ignore[arg-type]
    c.SetQueuePolicy("q", dead_letters=DeadLetterPolicy(entries_max=-1)),
    c.SetQueuePolicy("q", dead_letters=DeadLetterPolicy(age_ms_max=-1)),
    c.SetQueuePolicy("q", dead_letters=DeadLetterPolicy(auto_retry_interval_ms=-1)),
    c.SetQueuePolicy("q", dead_letters=DeadLetterPolicy(auto_retries_max=-1)),
    c.ChangePriority(64, INT_MAX + 1),
    c.ChangePriority(64, -INT_MAX - 1),
    c.MoveToDelayed(64, -1),
    c.MoveToDelayed(64, DURATION_MS_MAX + 1),
    c.Clean("q", State.ACTIVE),
    c.Clean("q", "sleeping"),  # type: ignore[arg-type]
    c.Clean("q", State.COMPLETED, -1),
    c.Clean("q", State.COMPLETED, 0, 0),
    c.Clean("q", State.COMPLETED, 0, -1),
    c.ListDead("q", limit=0),
    c.ListDead("q", limit=-1),
    c.ListDead("q", limit=1_001),
    c.RetryDead("q", limit=-1),
    c.RetryDead("q", limit=0),
]


@pytest.mark.parametrize("command", BAD_COMMANDS, ids=lambda command: str(command)[:90])
def test_a_command_that_makes_no_sense_is_refused(world: ContractWorld, command: c.Command[Any]):
    """The job and the claim that it speaks of are there, so that nothing else can be the reason."""
    job = push(world.client, tags=("x",))
    assert start(world.client, claim="c" if world.has_claims else None).id == job
    push(world.client)
    check_refused(world, OUT_OF_BOUNDS, command)


MISSING: list[c.Command[Any]] = [
    c.SetProgress(NEVER, 1),
    c.AppendLog(NEVER, "x"),
    c.AppendPartial(NEVER, b"x"),
    c.GetJob(NEVER),
    c.GetLogs(NEVER),
    c.GetPartials(NEVER),
    c.WaitJob(NEVER, 0),
    c.Why(NEVER),
    c.Cancel(NEVER),
    c.Promote(NEVER),
    c.ChangePriority(NEVER, 1),
    c.MoveToDelayed(NEVER, 1),
    c.UpdatePayload(NEVER, b""),
    c.Discard(NEVER),
]


@pytest.mark.parametrize("number", [NEVER, 0, -64, 63, 64 << 40])
@pytest.mark.parametrize("command", MISSING, ids=lambda command: type(command).__name__)
def test_a_job_that_never_was_is_not_found(world: ContractWorld, command: c.Command[Any], number: int):
    push(world.client)
    error = check_refused(world, Refused, msgspec.structs.replace(command, id=number))
    assert error.code in ("not_found", "invalid") if number < 64 else error.code == "not_found"


def test_errors_have_stable_codes_and_say_whose_fault_it_is(world: ContractWorld):
    error = check_refused(world, InvalidRequest, c.Push("not a name", b""))
    assert (error.code, error.retryable) == ("invalid", False)
    error = check_refused(world, Refused, c.GetJob(NEVER))
    assert (error.code, error.retryable) == ("not_found", False)
