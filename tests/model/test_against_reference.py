"""The engine does what the rules say: whatever is asked of it, the naive reference answers the same.

Commands are drawn small and close together, so that keys, groups, times and limits collide. Jobs and tokens are
drawn as "the n-th last one" and filled in when the command is given, so that failures shrink well.
"""

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from stoker.engine.parking import Parked
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Refused
from stoker.model.events import Event
from stoker.model.options import CODECS, Backoff, DeadLetterPolicy, Dependency, Options, RateLimit, Settings
from stoker.model.states import GONE, NEW, TRANSITIONS, State
from stoker.records import records as rec
from stoker.records.events import events_of
from tests.model.driver import NEVER, QUEUES, TENANTS, WORDS, Driver
from tests.model.pair import LIMITS, OK, SMALL, START, Pair, plain

SOAK = os.environ.get("STOKER_SOAK") == "1"
ROOT = Path(__file__).parent.parent.parent

PROFILE = settings(
    max_examples=2_000 if SOAK else 30,
    stateful_step_count=80 if SOAK else 40,
    derandomize=not SOAK,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    print_blob=False,
)

# --- what is drawn -------------------------------------------------------------------------------

KEYS = ("a", "b")
PUSHED, DELIVERED = 1_000, 2_000
"""A drawn id of -(PUSHED + n) is the n-th last id that was given, -(DELIVERED + n) the n-th last that was delivered."""
OWN = 0
"""A drawn token of 0 stands for the one that the job was last delivered with; -n for the n-th last one of all."""

queues = st.sampled_from(("q1", "q2", "q3"))
tenants = st.sampled_from(("t1", "t1", "t1", "t2"))
keys = st.sampled_from(KEYS)
payloads = st.sampled_from((b"", b"x", b"yy"))
spans = st.sampled_from((0, 1, 2, 10, 100, 1_000))
times = st.one_of(
    st.integers(0, 3),
    st.sampled_from((10, 100, 500, 1_000, 3_000)),
    st.sampled_from((0, 0, 0, 10_000, 60_000, 3_600_000, 86_400_000, 8 * 86_400_000)),
)
maybe = st.booleans()


def rarely(value: Any, otherwise: Any, one_in: int = 8) -> st.SearchStrategy[Any]:
    return st.integers(0, one_in - 1).flatmap(lambda roll: value if roll == one_in - 1 else otherwise)


pushed_ids = st.integers(0, 12).map(lambda n: -PUSHED - n)
delivered_ids = st.integers(0, 6).map(lambda n: -DELIVERED - n)
odd_ids = st.sampled_from((0, 1, 65, NEVER))
any_ids = rarely(odd_ids, st.one_of(pushed_ids, delivered_ids), 15)
active_ids = rarely(pushed_ids, delivered_ids)
tokens = rarely(st.integers(-5, -1), st.sampled_from((OWN, OWN, None)), 6)

backoffs = st.builds(
    Backoff,
    st.sampled_from(("fixed", "linear", "exponential")),
    st.sampled_from((10, 0, 100)),
    st.sampled_from((150, 1_000)),
    st.just("none"),
)
policies = st.sampled_from(("fail", "cancel", "continue"))
edges_to_jobs = st.builds(Dependency, rarely(odd_ids, pushed_ids, 15), policies)
edges_to_items = st.builds(lambda item, policy: Dependency(0, policy, item), st.integers(0, 4), policies)

JOB_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "priority": st.sampled_from((0, 1, -1)),
    "codec": st.sampled_from(CODECS),
    "delay_ms": spans,
    "run_at": st.sampled_from((0, START, START + 100, START + 5_000)),
    "ttl_ms": st.sampled_from((1, 10, 100)),
    "timeout_ms": st.sampled_from((1, 10, 100)),
    "lease_ms": st.sampled_from((1, 10, 100, 1_000)),
    "max_attempts": st.integers(0, 3),
    "max_crashes": st.integers(0, 2),
    "unique_key": keys,
    "unique_ttl_ms": spans,
    "on_conflict": st.sampled_from(("keep", "extend", "replace")),
    "custom_id": keys,
    "custom_id_ttl_ms": spans,
    "debounce_id": keys,
    "debounce_ms": spans,
    "group_id": keys,
    "lifo": maybe,
    "tags": st.sampled_from(((), ("x",), ("x", "y"))),
    "remove_on_complete": maybe,
    "remove_on_fail": maybe,
    "keep_completed_age_ms": spans,
    "keep_completed_count": st.integers(0, 2),
    "trace": st.just("00-ab"),
    "parent_id": st.just(64),
    "workflow": st.just(640),
    "name": st.sampled_from(("welcome", "report")),
    "schedule": keys,
    "slot": st.just(START),
    "log_lines_max": st.integers(0, 2),
    "stack_lines_max": st.integers(0, 2),
}
BAD_OPTIONS: tuple[dict[str, Any], ...] = (
    {"delay_ms": -1},
    {"delay_ms": 1 << 50},
    {"lease_ms": 0},
    {"max_attempts": -1},
    {"unique_key": "much too long"},
    {"custom_id": "much too long"},
    {"tags": ("a", "b", "c")},
    {"tags": ("much too long",)},
    {"trace": "much too long"},
    {"on_conflict": "fight"},
    {"codec": "xml"},
    {"depends_on": (Dependency(64, "shrug"),)},  # type: ignore[arg-type]
    {"depends_on": (Dependency(64),) * 5},
    {"backoff": Backoff("random", 1, 1, "none")},  # type: ignore[arg-type]
)


@st.composite
def options(draw: st.DrawFn, in_batch: bool = False) -> Options:
    names = draw(st.lists(st.sampled_from(sorted(JOB_OPTIONS)), max_size=5, unique=True))
    if "unique_key" in names:
        names.append("on_conflict")
    fields = {name: draw(JOB_OPTIONS[name]) for name in names}
    fields["backoff"] = draw(backoffs)
    edges = st.one_of(edges_to_jobs, edges_to_items) if in_batch else edges_to_jobs
    fields["depends_on"] = tuple(draw(rarely(st.lists(edges, min_size=1, max_size=3), st.just([]), 3)))
    if draw(st.integers(0, 30)) == 30:
        fields |= draw(st.sampled_from(BAD_OPTIONS))
    return Options(**fields)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[bytes], Options, list[Options] | None]:
    bodies = draw(rarely(st.just([b"x"] * 9), st.lists(payloads, min_size=1, max_size=6), 30))
    if draw(maybe):
        return bodies, draw(options(in_batch=True)), None
    return bodies, Options(), [draw(options(in_batch=True)) for _ in bodies[: draw(rarely(st.just(1), st.just(9), 30))]]


# --- the machine ---------------------------------------------------------------------------------


class EngineAgainstReference(RuleBasedStateMachine):
    batching = True

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(msgspec.structs.replace(SMALL, batching=self.batching), LIMITS)
        self.given: list[tuple[str, int]] = []
        self.delivered: list[tuple[str, int, int]] = []
        self.issued: list[int] = []
        self.count = 0

    @initialize(default=maybe)
    def begin(self, default: bool) -> None:
        if default:
            self.pair = Pair(Settings(batching=self.batching), LIMITS)

    # --- filling in and carrying out -----------------------------------------------------------------

    def real_id(self, drawn: int) -> int:
        """What a drawn id stands for now."""
        if drawn <= -DELIVERED:
            drawn += DELIVERED
            return self.delivered[drawn % len(self.delivered) - 1][1] if self.delivered else NEVER
        if drawn <= -PUSHED:
            drawn += PUSHED
            return self.given[drawn % len(self.given) - 1][1] if self.given else NEVER
        return drawn

    def real_token(self, drawn: int | None, job_id: int) -> int | None:
        if drawn is None:
            return None
        if drawn < 0:
            return self.issued[drawn % len(self.issued)] if self.issued else 1 << 50
        return next((token for _, other, token in reversed(self.delivered) if other == job_id), 1 << 50)

    def real_options(self, drawn: Options) -> Options:
        edges = tuple(msgspec.structs.replace(edge, id=self.real_id(edge.id)) for edge in drawn.depends_on)
        return msgspec.structs.replace(drawn, depends_on=edges)

    def owner(self, job_id: int, foreign: bool = False) -> str:
        tenant = next((tenant for tenant, other in self.given if other == job_id), "t1")
        return {"t1": "t2", "t2": "t1"}[tenant] if foreign else tenant

    def carry_out(self, tenant: str, command: c.Command[Any]) -> None:
        reply, answers = self.pair.execute(tenant, command)
        self.learn(tenant, reply)
        for parked, answer in answers:
            self.learn(parked.tenant, answer)
        self.count += 1
        if self.count % 8 == 0:
            self.pair.observe(("t1", "t2"), ("q1", "q2", "q3", "q4"), KEYS)

    def learn(self, tenant: str, reply: Any) -> None:
        if isinstance(reply, r.Delivery):
            self.delivered += [(tenant, job.id, job.token) for job in reply]
            self.issued += [reply.token] if reply.token and reply.token not in self.issued else []
        jobs = self.pair.reference.world.jobs
        self.given += [(job.tenant, job.id) for job in jobs[len(self.given) :]]

    @rule(by_ms=times)
    def time_passes(self, by_ms: int) -> None:
        for parked, answer in self.pair.advance(by_ms):
            self.learn(parked.tenant, answer)

    # --- producing -----------------------------------------------------------------------------------

    @rule(tenant=tenants, queue=queues, payload=payloads, wanted=options())
    def push(self, tenant: str, queue: str, payload: bytes, wanted: Options) -> None:
        self.carry_out(tenant, c.Push(queue, payload, self.real_options(wanted)))

    @rule(tenant=tenants, queue=queues, batch=batches(), atomic=maybe, request=rarely(keys, st.none(), 5))
    def push_batch(self, tenant: str, queue: str, batch: Any, atomic: bool, request: str | None) -> None:
        bodies, shared, each = batch
        each = each if each is None else [self.real_options(one) for one in each]
        self.carry_out(tenant, c.PushBatch(queue, bodies, self.real_options(shared), each, atomic, request))

    @rule(
        tenant=tenants,
        queue=queues,
        name=keys,
        kind=st.sampled_from(("custom_id", "unique_key", "debounce_id")),
        span=st.sampled_from((1, 2, 10)),
        off=st.sampled_from((-1, 0, 1)),
    )
    def push_twice(self, tenant: str, queue: str, name: str, kind: str, span: int, off: int) -> None:
        """Around the very moment in which a key ends: chance alone hardly ever meets it."""
        fields: dict[str, Any] = {kind: name, "backoff": Backoff(jitter="none")}
        keyed = Options(**fields, custom_id_ttl_ms=span, unique_ttl_ms=span, debounce_ms=span)
        self.carry_out(tenant, c.Push(queue, b"first", keyed))
        if kind == "custom_id" and self.given:
            self.carry_out(*self.cancel_last())
        self.time_passes(span + off)
        self.carry_out(tenant, c.Push(queue, b"second", keyed))

    def cancel_last(self) -> tuple[str, c.Command[Any]]:
        tenant, job_id = self.given[-1]
        return tenant, c.Cancel(job_id)

    @rule(tenant=tenants, queue=queues, count=st.integers(1, 6))
    def push_plain_batch(self, tenant: str, queue: str, count: int) -> None:
        plainly = Options(backoff=Backoff("fixed", 10, 10, "none"), lease_ms=100)
        self.carry_out(tenant, c.PushBatch(queue, [b"%d" % n for n in range(count)], plainly))

    @rule(
        tenant=tenants,
        name=keys,
        stage=rarely(st.just("third"), keys),
        queue=queues,
        batch=batches(),
        part=st.sampled_from((None, 0, 1)),
    )
    def stage(self, tenant: str, name: str, stage: str, queue: str, batch: Any, part: int | None) -> None:
        bodies, shared, each = batch
        each = each if each is None else [self.real_options(one) for one in each]
        self.carry_out(tenant, c.Stage(name, stage, queue, bodies, self.real_options(shared), each, part))

    @rule(
        tenant=tenants,
        name=keys,
        stages=st.lists(keys, max_size=2, unique=True),
        abort=rarely(st.just(True), st.just(False)),
    )
    def publish_or_abort(self, tenant: str, name: str, stages: list[str], abort: bool) -> None:
        self.carry_out(tenant, c.Abort(name) if abort else c.Publish(name, stages))

    # --- consuming -----------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        names=st.lists(queues, min_size=1, max_size=3, unique=True),
        count=st.integers(1, 5),
        wait_ms=st.sampled_from((0, 0, 10, 1_000)),
        worker=st.sampled_from(("", "w")),
        lease_ms=st.sampled_from((None, None, 1, 50)),
        claim=rarely(keys, st.none(), 5),
    )
    def pull(self, tenant: str, names: list[str], **fields: Any) -> None:
        self.carry_out(tenant, c.Pull(names, **fields))

    @rule(tenant=tenants)
    def pull_all(self, tenant: str) -> None:
        self.carry_out(tenant, c.Pull(["q1", "q2", "q3"], 8))

    def settle(self, make: Any, ids: Sequence[int], token: int | None, foreign: bool, **fields: Any) -> None:
        real = [self.real_id(drawn) for drawn in ids]
        each = [self.real_token(token, job_id) for job_id in real]
        tokens: Any = None if token is None else (each[0] if len(set(each)) == 1 else each)
        self.carry_out(self.owner(real[0], foreign), make(real, tokens, **fields))

    several = st.lists(active_ids, min_size=1, max_size=4)
    foreign = rarely(st.just(True), st.just(False), 15)

    @rule(
        ids=several,
        token=tokens,
        foreign=foreign,
        result=st.sampled_from((None, b"", b"r", b"too long.")),
        some=maybe,
        codec=st.sampled_from((*CODECS, "xml")),
    )
    def ack(
        self, ids: list[int], token: int | None, foreign: bool, result: bytes | None, some: bool, codec: str
    ) -> None:
        self.settle(c.Ack, ids, token, foreign, results=[result] * len(ids) if some else None, codec=codec)

    @rule(
        ids=several,
        token=tokens,
        foreign=foreign,
        error=st.sampled_from(("", "boom", "longer than eight")),
        error_class=st.sampled_from(("", "E", "shop.errors.NoStock")),
        reason=rarely(st.sampled_from(("invalid_arguments", "timeout")), st.just(""), 5),
        retry=rarely(st.just(False), st.just(True), 5),
        delay_ms=st.sampled_from((None, None, 0, 10)),
    )
    def fail(self, ids: list[int], token: int | None, foreign: bool, **fields: Any) -> None:
        self.settle(c.Fail, ids, token, foreign, **fields)

    @rule(
        ids=several,
        token=tokens,
        foreign=foreign,
        delay_ms=st.sampled_from((0, 0, 10, 100)),
        note=st.sampled_from(("", "", "not now", "longer than eight")),
    )
    def release(self, ids: list[int], token: int | None, foreign: bool, **fields: Any) -> None:
        self.settle(c.Release, ids, token, foreign, **fields)

    @rule(
        ids=several,
        token=tokens,
        foreign=foreign,
        lease_ms=st.sampled_from((None, 1, 10, 500, 0)),
        renew=rarely(st.just(False), st.just(True), 4),
    )
    def extend(self, ids: list[int], token: int | None, foreign: bool, **fields: Any) -> None:
        self.settle(c.Extend, ids, token, foreign, **fields)

    @rule(
        tenant=tenants,
        claim=keys,
        make=st.sampled_from((c.AckClaim, c.ReleaseClaim, c.ExtendClaim)),
        ids=st.lists(delivered_ids, max_size=2),
    )
    def by_claim(self, tenant: str, claim: str, make: Any, ids: list[int]) -> None:
        if make is c.AckClaim:
            self.carry_out(tenant, c.AckClaim(claim, {self.real_id(drawn): b"r" for drawn in ids}))
        else:
            self.carry_out(tenant, make(claim))

    @rule(drawn=active_ids, token=tokens, foreign=foreign, what=st.integers(0, 5))
    def note(self, drawn: int, token: int | None, foreign: bool, what: int) -> None:
        job_id = self.real_id(drawn)
        real = self.real_token(token, job_id)
        command = (
            c.SetProgress(job_id, 50, "half", real),
            c.SetProgress(job_id, 101, "", real),
            c.AppendLog(job_id, f"line{self.count}", "info", real),
            c.AppendPartial(job_id, b"part", None, real),
            c.AppendPartial(job_id, b"part", 5, real),
            c.AppendLog(job_id, "much too long", "info", real),
        )[what]
        self.carry_out(self.owner(job_id, foreign), command)

    # --- control -------------------------------------------------------------------------------------

    @rule(
        drawn=any_ids,
        foreign=foreign,
        make=st.sampled_from((c.Cancel, c.Cancel, c.Promote, c.Discard, c.GetJob, c.GetLogs, c.GetPartials, c.Why)),
    )
    def one_job(self, drawn: int, foreign: bool, make: Any) -> None:
        job_id = self.real_id(drawn)
        self.carry_out(self.owner(job_id, foreign), make(job_id))

    @rule(drawn=any_ids, foreign=foreign, delay_ms=spans, token=rarely(tokens, st.none(), 3))
    def move_to_delayed(self, drawn: int, foreign: bool, delay_ms: int, token: int | None) -> None:
        job_id = self.real_id(drawn)
        self.carry_out(self.owner(job_id, foreign), c.MoveToDelayed(job_id, delay_ms, self.real_token(token, job_id)))

    @rule(
        drawn=any_ids,
        foreign=foreign,
        priority=st.integers(-1, 2),
        payload=rarely(st.just(b"x" * 17), payloads),
        what=maybe,
    )
    def change_job(self, drawn: int, foreign: bool, priority: int, payload: bytes, what: bool) -> None:
        job_id = self.real_id(drawn)
        command = c.ChangePriority(job_id, priority) if what else c.UpdatePayload(job_id, payload)
        self.carry_out(self.owner(job_id, foreign), command)

    @rule(drawn=any_ids, foreign=foreign, wait_ms=st.sampled_from((0, 10, 1_000, 20_001)))
    def wait_job(self, drawn: int, foreign: bool, wait_ms: int) -> None:
        job_id = self.real_id(drawn)
        self.carry_out(self.owner(job_id, foreign), c.WaitJob(job_id, wait_ms))

    @rule(
        tenant=tenants,
        queue=rarely(st.sampled_from(("q4", "q5", "bad name")), queues),
        what=st.one_of(
            st.sampled_from((c.Pause, c.Resume)),
            st.builds(
                lambda limit: lambda queue: c.SetRateLimit(queue, limit),
                st.sampled_from((None, RateLimit(1, 10), RateLimit(3, 100, 2), RateLimit(0))),
            ),
            st.builds(lambda limit: lambda queue: c.SetConcurrency(queue, limit), st.sampled_from((0, 1, 2, -1))),
            st.builds(
                lambda hold, letters: lambda queue: c.SetQueuePolicy(queue, hold, letters),
                st.sampled_from((None, "hold", "skip", "jump")),
                st.one_of(
                    st.none(),
                    st.builds(
                        DeadLetterPolicy,
                        entries_max=st.sampled_from((1, 2, 10)),
                        age_ms_max=st.sampled_from((10, 1_000, 100_000)),
                        auto_retry=maybe,
                        auto_retry_interval_ms=st.sampled_from((1, 10, 1_000)),
                        auto_retries_max=st.integers(0, 2),
                        take_expired=maybe,
                        take_cancelled=maybe,
                    ),
                ),
            ),
        ),
    )
    def configure(self, tenant: str, queue: str, what: Any) -> None:
        self.carry_out(tenant, what(queue))

    @rule(
        tenant=tenants,
        queue=queues,
        state=st.sampled_from(tuple(State)),
        age_ms=spans,
        limit=st.sampled_from((1, 3, 8, 9)),
    )
    def clean(self, tenant: str, queue: str, **fields: Any) -> None:
        self.carry_out(tenant, c.Clean(queue, **fields))

    @rule(tenant=tenants, queue=queues, what=st.integers(0, 3))
    def empty_a_queue(self, tenant: str, queue: str, what: int) -> None:
        commands = (c.Drain(queue), c.Drain(queue, True), c.Obliterate(queue), c.Obliterate(queue, True))
        self.carry_out(tenant, commands[what])

    @rule(
        drawn=st.lists(pushed_ids, min_size=1, max_size=3),
        queue=queues,
        named=maybe,
        reason=st.sampled_from((None, None, "explicit_fail", "max_attempts_exceeded")),
        limit=st.sampled_from((None, 1)),
        purge=rarely(st.just(True), st.just(False), 4),
    )
    def dead_letters(
        self, drawn: list[int], queue: str, named: bool, reason: str | None, limit: int | None, purge: bool
    ) -> None:
        ids = [self.real_id(one) for one in drawn]
        tenant = self.owner(ids[0])
        home = next((job.queue for job in self.pair.reference.world.jobs if job.id == ids[0]), queue)
        if purge:
            self.carry_out(tenant, c.PurgeDead(home, ids if named else None, None if named else reason))
        elif named:
            self.carry_out(tenant, c.RetryDead(home, ids))
        else:
            self.carry_out(tenant, c.RetryDead(queue, None, reason, limit))

    # --- looking -------------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        queue=st.one_of(st.none(), queues),
        state=st.one_of(st.none(), st.sampled_from(tuple(State))),
        tag=st.sampled_from((None, None, "x", "y")),
        group_id=st.one_of(st.none(), st.none(), keys),
        limit=st.sampled_from((1, 2, 20, 21, 0)),
        ascending=maybe,
        after=st.one_of(st.none(), pushed_ids),
        around=st.sampled_from((None, -100, 0)),
    )
    def browse(self, tenant: str, after: int | None, around: int | None, **fields: Any) -> None:
        at = None if around is None else self.pair.now + around
        after = None if after is None else self.real_id(after)
        self.carry_out(tenant, c.Browse(after=after, pushed_from=at, **fields))
        self.carry_out(tenant, c.Browse(after=after, pushed_before=at, **fields))

    @precondition(lambda self: self.count > 0)
    @rule(
        tenant=tenants,
        queue=queues,
        around=st.sampled_from((-100, 0)),
        tag=st.sampled_from((None, "x")),
    )
    def look_at_queues(self, tenant: str, queue: str, around: int, tag: str | None) -> None:
        at = self.pair.now + around
        for command in (
            c.ListDead(queue, entered_from=at, tag=tag, limit=20),
            c.ListDead(queue, entered_before=at, tag=tag, limit=20),
            c.GetStats(queue),
            c.GetPriorities(queue),
            c.GetStats(),
            c.ListQueues(),
            c.GetDeadStats(queue),
            c.FindJob("a"),
        ):
            self.carry_out(tenant, command)

    def teardown(self) -> None:
        self.pair.observe(("t1", "t2"), ("q1", "q2", "q3", "q4"), KEYS)
        self.pair.compare_replay()


class EngineWithoutBatching(EngineAgainstReference):
    batching = False


TestEngineAgainstReference = EngineAgainstReference.TestCase
TestEngineAgainstReference.settings = PROFILE
TestEngineWithoutBatching = EngineWithoutBatching.TestCase
TestEngineWithoutBatching.settings = PROFILE


# --- fixed seeds ---------------------------------------------------------------------------------


def drive(seed: int, commands: int, settings: Settings = SMALL, observe_every: int = 50) -> Pair:
    """The driver's commands through both."""
    pair, driver = Pair(settings, LIMITS), Driver(seed)
    for number in range(commands):
        passed, tenant, command = driver.draw()
        for parked, answer in pair.advance(passed):
            driver.learn(parked.tenant, parked.command, answer)
        reply, answers = pair.execute(tenant, command)
        driver.learn(tenant, command, reply)
        for parked, answer in answers:
            driver.learn(parked.tenant, parked.command, answer)
        if number % observe_every == 0:
            pair.observe(TENANTS, QUEUES, WORDS)
    pair.observe(TENANTS, QUEUES, WORDS)
    pair.compare_replay()
    return pair


SEEDS = range(100) if SOAK else (4, 23, 24, 28)
"""These reach everything together. A new command gives other choices: then look for other seeds."""


class Reached:
    """What one history came to. The pair itself is let go: so many objects would cost all later tests time."""

    def __init__(self, pair: Pair) -> None:
        self.commands = {name for name, code in pair.reached if code == OK}
        self.codes = {code for _, code in pair.reached} | set(pair.item_codes)
        self.passed = {(record.outcome, record.reason) for record in pair.records if isinstance(record, rec.SlotPassed)}
        self.pushed = [record for record in pair.records if isinstance(record, rec.ScheduledPush)]
        self.steps = pair.states_reached()


@pytest.fixture(scope="module")
def driven() -> list[Reached]:
    return [Reached(drive(seed, 800)) for seed in SEEDS]


ERROR_CODES = frozenset(
    """
    invalid limit_exceeded not_found wrong_state lost_lease unknown_dependency dependency_cycle unknown_stage
    transaction_over queue_active
    """.split()
)


OF_WORKFLOWS = frozenset(
    "PushWorkflow FillStep GetInputs GetWorkflow ListWorkflows CancelWorkflow RetryWorkflow".split()
)
"""They have a reference and a driver of their own (`test_workflows.py`)."""


OF_BULK = frozenset(("StartBulk", "GetBulk", "ListBulks", "StopBulk"))
"""They have tests of their own (`tests/unit/test_bulk.py`)."""


def test_the_workload_reaches_every_command_with_success(driven: list[Reached]):
    reached = {name for each in driven for name in each.commands}
    of_the_log = {"ReadEvents", "ReadRecords", "GetStory", "GetHistory", "GetTrends"}
    assert {command.__name__ for command in c.ALL} - reached == of_the_log | OF_WORKFLOWS | OF_BULK


def test_the_workload_reaches_every_error_that_one_process_can_give(driven: list[Reached]):
    assert {code for each in driven for code in each.codes} - {OK} == ERROR_CODES


def test_the_workload_reaches_every_outcome_of_a_slot(driven: list[Reached]):
    """But `refused`: no disk and no memory is full here."""
    passed = {one for each in driven for one in each.passed}
    pushed = [record for each in driven for record in each.pushed]
    assert {outcome for outcome, _ in passed} == {"skipped", "missed", "duplicate"}
    assert {reason for outcome, reason in passed if outcome == "skipped"} == {"overlap", "no_worker"}
    assert {record.manual for record in pushed} == {True, False}
    assert {bool(record.options.depends_on) for record in pushed} == {True, False}
    assert {bool(record.made_up_to) for record in pushed} == {True, False}


def test_the_workload_reaches_every_transition(driven: list[Reached]):
    possible = {
        (str(before), str(after))
        for before, ways in TRANSITIONS.items()
        for after in ways
        if before != NEW and after != GONE
    }
    reached = {step for each in driven for step in each.steps}
    assert possible - reached == {("failed", "blocked")}  # only by retrying a workflow


def test_no_step_is_taken_that_the_table_of_transitions_does_not_have(driven: list[Reached]):
    reached = {step for each in driven for step in each.steps}
    assert {step for step in reached if step[1] not in TRANSITIONS[step[0]]} == set()


# --- batching changes nothing ----------------------------------------------------------------------


def run_both_ways(seed: int, commands: int) -> tuple[list[Event], list[Event]]:
    """The same commands with batching and without: the replies must be equal. Gives the events of both."""
    driver = Driver(seed)
    shards = [
        Shard(number=0, settings=msgspec.structs.replace(SMALL, batching=on), limits=LIMITS) for on in (True, False)
    ]
    events: tuple[list[Event], list[Event]] = ([], [])
    asked: list[tuple[Parked, ...]] = []
    now = START
    for _ in range(commands):
        passed, tenant, command = driver.draw()
        now += passed
        replies = []
        for shard in shards:
            try:
                replies.append(shard.execute(tenant, command, now))
            except Refused as error:
                replies.append(error.code)
        if all(isinstance(reply, Parked) for reply in replies):
            asked.append(tuple(replies))
        else:
            assert plain(replies[0]) == plain(replies[1]), f"at {now}, {tenant}: {command}"
            driver.learn(tenant, command, replies[0])
        effects = [list(shard.take_effects()) for shard in shards]
        assert len(effects[0]) == len(effects[1])
        for (batched, answer), (single, other) in zip(*effects, strict=True):
            assert any(pair[0] is batched and pair[1] is single for pair in asked)
            assert plain(answer) == plain(other)
            driver.learn(tenant, c.Pull(["any"]), answer)
        for shard, found in zip(shards, events, strict=True):
            for record in shard.take_records():
                found += events_of(0, len(found), record)
    return events


def by_job(events: Sequence[Event]) -> dict[int, list[Event]]:
    stories: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        stories[event.job].append(msgspec.structs.replace(event, sequence=0, index=0))
    return stories


@pytest.mark.parametrize("seed", range(200, 300 if SOAK else 204))
def test_batching_changes_neither_replies_nor_any_jobs_story(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.engine.searching.WORK_MAX", 10**9)  # a batch is passed over in one step
    batched, single = (by_job(events) for events in run_both_ways(seed, 2_000))
    queues_batched, queues_single = batched.pop(0, []), single.pop(0, [])
    assert batched == single
    assert Counter(map(repr, queues_batched)) == Counter(map(repr, queues_single))


# --- determinism -----------------------------------------------------------------------------------


COMMANDS = 20_000 if SOAK else 2_000


@cache
def hash_of_records(seed: int, hash_seed: str) -> str:
    command = [
        sys.executable,
        str(ROOT / "tests" / "model" / "driver.py"),
        "--seed",
        str(seed),
        "--commands",
        str(COMMANDS),
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 2 * hashlib.sha256().digest_size
    return done.stdout


def test_the_same_seed_gives_the_same_records_in_every_process():
    assert hash_of_records(1, "0") == hash_of_records(1, "12345")


def test_another_seed_gives_other_records():
    """Otherwise the claim above could not fail."""
    assert hash_of_records(1, "0") != hash_of_records(2, "0")
