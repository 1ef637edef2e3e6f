"""Every limit on requests: what just fits passes, what is just over is refused by its limit."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stoker.engine import checks
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, Refused
from stoker.model.limits import DEFAULT_LIMITS, DURATION_MS_MAX, INT_MAX, Limits
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options, RateLimit
from stoker.model.schedules import Schedule
from stoker.model.workflows import Edge, Step
from stoker.testing import World

TIGHT = Limits(
    payload_bytes_max=4,
    result_bytes_max=3,
    batch_jobs_max=3,
    pull_jobs_max=2,
    queues_per_pull_max=2,
    queues_per_tenant_max=2,
    key_chars_max=5,
    tags_max=2,
    tag_chars_max=3,
    depends_on_max=2,
    edges_per_batch_max=4,
    workflow_jobs_max=3,
    workflow_steps_max=3,
    workflow_edges_max=2,
    workflows_per_tenant_max=1,
    error_chars_max=6,
    stack_chars_max=7,
    log_lines_max=2,
    log_line_chars_max=8,
    partials_max=2,
    attempt_history_max=2,
    message_chars_max=4,
    trace_chars_max=9,
    browse_jobs_max=3,
    events_max=4,
    wait_ms_max=50,
    lease_ms_min=10,
    stages_per_transaction_max=2,
    sendings_max=2,
    kv_key_chars_max=6,
    kv_value_bytes_max=2,
    kv_batch_max=2,
    kv_entries_per_tenant_max=2,
    kv_wildcards_max=2,
    kv_keys_max=3,
    schedules_per_tenant_max=2,
    schedule_interval_ms_min=5_000,
    schedule_payload_bytes_max=2,
    schedule_cron_chars_max=9,
    schedule_catch_up_max=3,
)

JOB = 1 << 6
"""The id of the one job that is there: pulled from queue "q", active."""


@pytest.fixture
def world():
    with World(limits=TIGHT) as world:
        assert world.client.push("q", b"").id == JOB
        world.client.pull("q")
        world.client.stage("tx", "a", "q", [b""])
        yield world


def push(**options: Any) -> c.Command[Any]:
    return c.Push("q", b"", Options(**options))


def put(name: str = "s", **fields: Any) -> c.Command[Any]:
    return c.PutSchedule("q", name, Schedule(**{"every_ms": 5_000, "misfires_max": 3, "grace_ms": 0, **fields}))


TWO_EDGES = Options(depends_on=(Dependency(JOB),) * 2)


def workflow(*jobs: int, edges: int = 0) -> c.Command[Any]:
    """Steps with so many jobs; the last one has the first edges, the one before the others."""
    steps = [Step("q", [b""] * count) for count in jobs]
    for number in range(edges):
        place = len(steps) - 1 - number // 2
        after = [*steps[place].after, Edge(number % 2)]
        steps[place] = msgspec.structs.replace(steps[place], after=after)
    return c.PushWorkflow(steps)


REFUSING: dict[str, list[tuple[c.Command[Any], c.Command[Any]]]] = {
    "payload_bytes_max": [
        (c.Push("q", b"1234"), c.Push("q", b"12345")),
        (c.UpdatePayload(JOB, b"1234"), c.UpdatePayload(JOB, b"12345")),
        (c.Stage("tx", "b", "q", [b"1234"]), c.Stage("tx", "b", "q", [b"12345"])),
        (c.PushBatch("q", [b"1234"], atomic=True), c.PushBatch("q", [b"12345"], atomic=True)),
    ],
    "result_bytes_max": [
        (c.Ack([JOB], None, [b"123"]), c.Ack([JOB], None, [b"1234"])),
        (c.AppendPartial(JOB, b"123"), c.AppendPartial(JOB, b"1234")),
    ],
    "batch_jobs_max": [
        (c.PushBatch("q", [b""] * 3), c.PushBatch("q", [b""] * 4)),
        (c.Stage("tx", "b", "q", [b""] * 3), c.Stage("tx", "b", "q", [b""] * 4)),
        (c.Ack([JOB, 128, 192]), c.Ack([JOB, 128, 192, 256])),
        (c.Fail([JOB, 128, 192]), c.Fail([JOB, 128, 192, 256])),
        (c.Release([JOB, 128, 192]), c.Release([JOB, 128, 192, 256])),
        (c.Extend([JOB, 128, 192]), c.Extend([JOB, 128, 192, 256])),
        (c.RetryDead("q", [JOB, 128, 192]), c.RetryDead("q", [JOB, 128, 192, 256])),
        (c.PurgeDead("q", [JOB, 128, 192]), c.PurgeDead("q", [JOB, 128, 192, 256])),
    ],
    "pull_jobs_max": [(c.Pull(["q"], 2), c.Pull(["q"], 3))],
    "queues_per_pull_max": [(c.Pull(["a", "b"]), c.Pull(["a", "b", "c"]))],
    "key_chars_max": [
        *(
            (push(**{field: "12345"}), push(**{field: "123456"}))
            for field in ("unique_key", "custom_id", "debounce_id", "group_id")
        ),
        (c.Pull(["q"], claim="12345"), c.Pull(["q"], claim="123456")),
        (c.Pull(["q"], worker="12345"), c.Pull(["q"], worker="123456")),
        (c.PushBatch("q", [b""], request_key="12345"), c.PushBatch("q", [b""], request_key="123456")),
        (c.Stage("12345", "a", "q", [b""]), c.Stage("123456", "a", "q", [b""])),
        (c.Stage("tx", "12345", "q", [b""]), c.Stage("tx", "123456", "q", [b""])),
        (c.Abort("12345"), c.Abort("123456")),
        (c.Publish("tx", ["a"]), c.Publish("123456", ["a"])),
        (put("12345"), put("123456")),
        (c.DeleteSchedule("q", "12345"), c.DeleteSchedule("q", "123456")),
        (c.ListSchedules(name="12345", limit=1), c.ListSchedules(name="123456", limit=1)),
    ],
    "tags_max": [(push(tags=("1", "2")), push(tags=("1", "2", "3")))],
    "tag_chars_max": [(push(tags=("123",)), push(tags=("1234",)))],
    "depends_on_max": [(push(depends_on=(Dependency(JOB),) * 2), push(depends_on=(Dependency(JOB),) * 3))],
    "edges_per_batch_max": [
        (c.PushBatch("q", [b""] * 2, TWO_EDGES), c.PushBatch("q", [b""] * 3, TWO_EDGES)),
        (c.PushBatch("q", [b""] * 2, each=[TWO_EDGES] * 2), c.PushBatch("q", [b""] * 3, each=[TWO_EDGES] * 3)),
        (c.Stage("tx", "b", "q", [b""] * 2, TWO_EDGES), c.Stage("tx", "b", "q", [b""] * 3, TWO_EDGES)),
    ],
    "workflow_jobs_max": [(workflow(1, 2), workflow(2, 2))],
    "workflow_steps_max": [(workflow(1, 1, 1), workflow(1, 1, 1, 1))],
    "workflow_edges_max": [(workflow(1, 1, 1, edges=2), workflow(1, 1, 1, edges=3))],
    "workflows_per_tenant_max": [(workflow(1), workflow(1))],
    "message_chars_max": [(c.SetProgress(JOB, 1, "1234"), c.SetProgress(JOB, 1, "12345"))],
    "trace_chars_max": [(push(trace="1" * 9), push(trace="1" * 10))],
    "browse_jobs_max": [
        (c.Browse(limit=3), c.Browse(limit=4)),
        (c.ListDead("q", limit=3), c.ListDead("q", limit=4)),
        (c.ListSchedules(limit=3), c.ListSchedules(limit=4)),
    ],
    "events_max": [(c.ReadEvents(limit=4), c.ReadEvents(limit=5))],
    "wait_ms_max": [
        (c.Pull(["q"], wait_ms=50), c.Pull(["q"], wait_ms=51)),
        (c.WaitJob(JOB, 50), c.WaitJob(JOB, 51)),
        (c.ReadEvents(0, 99, 4, wait_ms=50), c.ReadEvents(0, 99, 4, wait_ms=51)),
    ],
    "sendings_max": [
        (
            c.Push("q", b"", sending=c.Sending("one", 1)),
            c.Push("q", b"", sending=c.Sending("full", 3)),
        )
    ],
    "stages_per_transaction_max": [(c.Stage("tx", "b", "q", [b""]), c.Stage("full", "c", "q", [b""]))],
    "queues_per_tenant_max": [(c.Push("r", b""), c.Push("s", b""))],
    "kv_key_chars_max": [
        (c.KvSet("123456", b""), c.KvSet("1234567", b"")),
        (c.KvSetMany([c.KvEntry("123456", b"")]), c.KvSetMany([c.KvEntry("1234567", b"")])),
        (c.KvGet("123456"), c.KvGet("1234567")),
        (c.KvGetMany(["123456"]), c.KvGetMany(["1234567"])),
        (c.KvDelete(["123456"]), c.KvDelete(["1234567"])),
        (c.KvExists(["123456"]), c.KvExists(["1234567"])),
        (c.KvExpire("123456", 1), c.KvExpire("1234567", 1)),
        (c.KvTtl("123456"), c.KvTtl("1234567")),
        (c.KvKeys("123456", limit=1), c.KvKeys("1234567", limit=1)),
        (c.KvKeys(after="123456", limit=1), c.KvKeys(after="1234567", limit=1)),
        (c.KvIncrement("123456"), c.KvIncrement("1234567")),
    ],
    "kv_value_bytes_max": [
        (c.KvSet("k", b"12"), c.KvSet("k", b"123")),
        (c.KvSetMany([c.KvEntry("k", b"12")]), c.KvSetMany([c.KvEntry("k", b"123")])),
    ],
    "kv_batch_max": [
        (c.KvSetMany([c.KvEntry("k", b"")] * 2), c.KvSetMany([c.KvEntry("k", b"")] * 3)),
        (c.KvGetMany(["k"] * 2), c.KvGetMany(["k"] * 3)),
        (c.KvDelete(["k"] * 2), c.KvDelete(["k"] * 3)),
        (c.KvExists(["k"] * 2), c.KvExists(["k"] * 3)),
    ],
    "kv_entries_per_tenant_max": [
        (c.KvSet("there", b""), c.KvSet("new", b"")),
        (c.KvIncrement("there"), c.KvIncrement("new")),
    ],
    "kv_wildcards_max": [(c.KvKeys("a*b?", limit=1), c.KvKeys("a*b?*", limit=1))],
    "kv_keys_max": [(c.KvKeys(limit=3), c.KvKeys(limit=4))],
    "schedules_per_tenant_max": [(put("there"), put("new"))],
    "schedule_interval_ms_min": [(put(every_ms=5_000), put(every_ms=4_999))],
    "schedule_payload_bytes_max": [(put(payload=b"12"), put(payload=b"123"))],
    "schedule_cron_chars_max": [(put(every_ms=0, cron="* * * * *"), put(every_ms=0, cron="*  * * * *"))],
    "schedule_catch_up_max": [
        (put(misfires_max=3), put(misfires_max=4)),
        (put(grace_ms=15_000), put(grace_ms=15_001)),
    ],
}

CUTTING = {
    "workflow_results_bytes_max",
    "error_chars_max",
    "stack_chars_max",
    "log_lines_max",
    "log_line_chars_max",
    "partials_max",
    "attempt_history_max",
}
"""Limits that never refuse: what is too long is cut, what is too much makes the oldest leave."""

cases = [(field, *case) for field, found in REFUSING.items() for case in found]


def test_every_limit_is_tested_here():
    assert set(REFUSING) | CUTTING | {"lease_ms_min", "senders_max", "reply_bytes_max"} == set(Limits.__struct_fields__)


@pytest.mark.parametrize(("field", "fits", "over"), cases, ids=lambda value: getattr(type(value), "__name__", value))
def test_what_fits_passes_and_what_is_over_a_limit_is_refused(world: World, field: str, fits: Any, over: Any):
    if field == "stages_per_transaction_max":
        world.client.stage("full", "a", "q", [b""])
        world.client.stage("full", "b", "q", [b""])
    if field == "sendings_max":
        for number in (1, 2):
            world.client.execute(c.Push("q", b"", sending=c.Sending("full", number)))
    if field == "kv_entries_per_tenant_max":
        world.client.kv_set_many([c.KvEntry("there", b"1"), c.KvEntry("other", b"2")])
    if field == "schedules_per_tenant_max":
        world.client.execute(put("there"))
        world.client.execute(put("other"))
    world.client.execute(fits)
    with pytest.raises(LimitExceeded) as caught:
        world.client.execute(over)
    assert "limit" in caught.value.message or str(getattr(TIGHT, field)) in caught.value.message


@pytest.mark.parametrize(
    "command_of",
    [
        lambda lease_ms: push(lease_ms=lease_ms),
        lambda lease_ms: c.Pull(["q"], lease_ms=lease_ms),
        lambda lease_ms: c.Extend([JOB], lease_ms=lease_ms),
    ],
    ids=["push", "pull", "extend"],
)
def test_a_lease_is_at_least_lease_ms_min(world: World, command_of: Callable[[int], c.Command[Any]]):
    world.client.execute(command_of(10))
    with pytest.raises(InvalidRequest, match="10"):
        world.client.execute(command_of(9))


def test_long_errors_and_stacks_are_cut(world: World):
    world.client.fail(JOB, error="e" * 100, stack="s" * 100, retry=False)
    job = world.client.get_job(JOB)
    assert (job.error, job.stack) == ("eeeee…", "ssssss…")


def test_errors_that_just_fit_are_kept(world: World):
    world.client.fail(JOB, error="e" * 6, stack="s" * 7, retry=False)
    job = world.client.get_job(JOB)
    assert (job.error, job.stack) == ("e" * 6, "s" * 7)


def test_long_log_lines_are_cut_and_the_oldest_make_room(world: World):
    for line in ("first", "12345678", "123456789"):
        world.client.append_log(JOB, line)
    assert [line.message for line in world.client.get_logs(JOB)] == ["12345678", "1234567…"]


def test_the_oldest_partials_make_room(world: World):
    for chunk in (b"1", b"2", b"3"):
        world.client.append_partial(JOB, chunk)
    assert [(chunk.index, chunk.data) for chunk in world.client.get_partials(JOB)] == [(1, b"2"), (2, b"3")]


def test_the_oldest_attempts_make_room(world: World):
    client = world.client
    job = client.push("q", b"", max_attempts=0).id
    for _ in range(4):
        client.pull("q")
        client.fail(job, delay_ms=0)
    assert [attempt.attempt for attempt in client.get_job(job).history] == [3, 4]


# --- options ---------------------------------------------------------------------------------------

LOOK_ALIKES: dict[str, list[Any]] = {
    "priority": [INT_MAX + 1, -INT_MAX - 1, 1.0, True, "1", None],
    "delay_ms": [-1, DURATION_MS_MAX + 1, 1.0, True, None],
    "run_at": [-1, INT_MAX, 1.0, True, "now"],
    "ttl_ms": [-1, DURATION_MS_MAX + 1, 1.0, None],
    "timeout_ms": [-1, DURATION_MS_MAX + 1, 1.0, None],
    "lease_ms": [0, -1, DURATION_MS_MAX + 1, None],
    "max_attempts": [-1, INT_MAX + 1, 1.0, True, None],
    "max_crashes": [-1, INT_MAX + 1, 1.0, True, None],
    "backoff": [
        None,
        {"kind": "fixed"},
        Backoff("quadratic"),  # type: ignore[arg-type]
        Backoff(base_ms=-1),
        Backoff(base_ms=DURATION_MS_MAX + 1),
        Backoff(cap_ms=-1),
        Backoff(cap_ms=1.5),  # type: ignore[arg-type]
        Backoff(jitter="some"),  # type: ignore[arg-type]
    ],
    "unique_key": ["", 7, b"k", "\ud800"],
    "unique_ttl_ms": [-1, DURATION_MS_MAX + 1, None],
    "on_conflict": ["drop", None, ""],
    "custom_id": ["", 7, b"k"],
    "custom_id_ttl_ms": [-1, DURATION_MS_MAX + 1, None],
    "debounce_id": ["", 7, b"k"],
    "debounce_ms": [-1, DURATION_MS_MAX + 1, None],
    "depends_on": [
        [Dependency(64)],
        (64,),
        None,
        (Dependency(-1),),
        (Dependency(64, "ignore"),),  # type: ignore[arg-type]
        (Dependency(item=-1),),
        (Dependency(64.0),),  # type: ignore[arg-type]
    ],
    "group_id": ["", 7, b"k"],
    "lifo": [1, None, "yes"],
    "tags": [["a"], ("",), (7,), "ab", None],
    "remove_on_complete": [1, None],
    "remove_on_fail": [1, None],
    "keep_completed_age_ms": [-1, DURATION_MS_MAX + 1, 1.0, True],
    "keep_completed_count": [-1, INT_MAX + 1, 1.0, True],
    "trace": [7, b"t", "\udfff"],
    "parent_id": [0, -1, INT_MAX + 1, "1"],
    "codec": ["xml", "", None, 1, b"json"],
    "workflow": [0, -1, INT_MAX + 1, "1", True],
    "name": ["", "n" * 257, "a\tb", "\x00", "\udfff", 7, b"n"],
    "schedule": ["", "s" * 1_025, "\udfff", 7, b"s"],
    "slot": [-1, 1 << 53, None, "5", 1.5],
    "log_lines_max": [-1, INT_MAX + 1, 1.0, True],
    "stack_lines_max": [-1, INT_MAX + 1, 1.0, True],
}


def test_every_option_is_tested_here():
    assert set(LOOK_ALIKES) == set(Options.__struct_fields__)


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, bad in LOOK_ALIKES.items() for value in bad])
def test_an_option_that_is_not_what_it_should_be_is_refused_by_name(field: str, value: Any):
    with pytest.raises(Refused) as caught:
        checks.options(Options(**{field: value}), DEFAULT_LIMITS)
    told = {"depends_on": ("depend", "on_failure"), "tags": ("tag",)}.get(field, (field,))
    assert any(word in caught.value.message for word in told)


@pytest.mark.parametrize(
    "options",
    [
        Options(priority=INT_MAX),
        Options(priority=-INT_MAX),
        Options(delay_ms=DURATION_MS_MAX, ttl_ms=DURATION_MS_MAX, timeout_ms=DURATION_MS_MAX),
        Options(lease_ms=1, max_attempts=0, max_crashes=0),
        Options(run_at=0),
        Options(backoff=Backoff("fixed", 0, 0, "none")),
        Options(unique_key="k" * 1024, tags=("t" * 256,) * 32, trace=""),
        Options(keep_completed_age_ms=0, keep_completed_count=0),
        Options(depends_on=(Dependency(64, "continue"), Dependency(item=0))),
    ],
)
def test_options_at_their_bounds_pass(options: Options):
    checks.options(options, DEFAULT_LIMITS)


def test_options_must_be_options():
    with pytest.raises(InvalidRequest, match="dict"):
        checks.options({"priority": 1}, DEFAULT_LIMITS)  # type: ignore[arg-type]


# --- the single checks -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-z_0.9:x", "q" * 256])
def test_good_names_pass(name: str):
    checks.name(name)


@pytest.mark.parametrize("name", ["", "q" * 257, "a b", "a/b", "a\n", "ä", "a\0", None, 7, b"q", "*"])
def test_bad_names_are_refused(name: Any):
    with pytest.raises(InvalidRequest, match="invalid queue name"):
        checks.name(name)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, -1, 11])
def test_numbers_are_whole_and_within_their_bounds(value: Any):
    with pytest.raises(InvalidRequest, match="from 0 to 10"):
        checks.number(value, "thing", 0, 10)


@pytest.mark.parametrize(
    "limit",
    [
        RateLimit(0),
        RateLimit(-1),
        RateLimit(10**9 + 1),
        RateLimit(1, 0),
        RateLimit(1, DURATION_MS_MAX + 1),
        RateLimit(1, 1, -1),
        RateLimit(1, 1, 10**9 + 1),
        RateLimit(1.5),  # type: ignore[arg-type]
    ],
)
def test_bad_rate_limits_are_refused(limit: RateLimit):
    with pytest.raises(InvalidRequest, match="rate limit"):
        checks.rate_limit(limit)


POLICY_FIELDS: dict[str, list[Any]] = {
    "entries_max": [0, -1, INT_MAX + 1],
    "age_ms_max": [0, DURATION_MS_MAX + 1],
    "auto_retry": [1, None],
    "auto_retry_interval_ms": [0, DURATION_MS_MAX + 1],
    "auto_retries_max": [-1, INT_MAX + 1],
    "take_expired": [1],
    "take_cancelled": ["no"],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, bad in POLICY_FIELDS.items() for value in bad])
def test_bad_dead_letter_policies_are_refused_by_field(field: str, value: Any):
    with pytest.raises(InvalidRequest, match=field):
        checks.dead_letter_policy(msgspec.structs.replace(DeadLetterPolicy(), **{field: value}))


def test_every_field_of_the_dead_letter_policy_is_tested_here():
    assert set(POLICY_FIELDS) == set(DeadLetterPolicy.__struct_fields__)


@pytest.mark.parametrize("payload", ["text", bytearray(b"x"), memoryview(b"x"), None, 7])
def test_payloads_are_bytes(payload: Any):
    with pytest.raises(InvalidRequest, match="expected bytes"):
        checks.payload(payload, DEFAULT_LIMITS)
    assert not checks.payloads_are_fine([b"good", payload], DEFAULT_LIMITS)


def test_a_message_shows_a_long_value_shortened():
    with pytest.raises(InvalidRequest) as caught:
        checks.name("x" * 100_000)
    assert len(caught.value.message) < 250
