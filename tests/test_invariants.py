"""Invariants that hold whatever is done: random work, and a checker that reads nothing but the events.

The checker knows the options that jobs were pushed with and replays the events of a tenant one by one. It has a state
machine, leases, groups, keys and limits of its own, written down as plainly as the rules, and no code of the engine.
"""

import hashlib
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

import stoker
from stoker.client.sync import Client
from stoker.model.errors import DependencyCycle, NotFound, WrongState
from stoker.model.events import Event
from stoker.model.ids import shard_for, shard_of
from stoker.model.options import Backoff, Dependency, Options, RateLimit, Retention, Settings
from stoker.model.states import ENDED, GONE, LIVE, NEW, TRANSITIONS, State
from stoker.testing import World

SEEDS = range(8)
STEPS = 1_200
TENANTS = ("acme", "globex")

RATE = RateLimit(2, 100, 3)
SLOTS = 2
QUEUES = ("plain", "rated", "narrow", "skipping")


# --- random work ---------------------------------------------------------------------------------


class Work:
    """One tenant's producers, workers and operators, all of them clumsy."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client = client
        self.chance = chance
        self.options: dict[int, Options] = {}
        self.deliveries: list[tuple[list[int], int]] = []
        self.delivered: set[int] = set()
        self.refused_without_trace = 0
        client.set_concurrency("narrow", SLOTS)
        client.set_rate_limit("rated", RATE.count, RATE.per_ms, RATE.burst)
        client.set_queue_policy("skipping", group_on_retry="skip")

    def some_options(self) -> Options:
        chance = self.chance
        recent = sorted(self.options)[-12:]
        parents = chance.sample(recent, min(len(recent), chance.choice([0, 0, 0, 1, 2])))
        return Options(
            priority=chance.choice([-1, 0, 0, 1]),
            delay_ms=chance.choice([0, 0, 20, 90]),
            ttl_ms=chance.choice([0, 0, 0, 60, 150]),
            timeout_ms=chance.choice([0, 0, 60]),
            lease_ms=chance.choice([60, 400]),
            max_attempts=chance.choice([1, 2, 3, 0]),
            max_crashes=chance.choice([0, 1, 3]),
            backoff=Backoff("fixed", chance.choice([0, 30]), 1_000, "none"),
            lifo=chance.random() < 0.2,
            group_id=chance.choice([None, None, "g", "h"]),
            unique_key=chance.choice([None, None, None, "k", "l"]),
            on_conflict=chance.choice(["keep", "replace"]),
            custom_id=chance.choice([None, None, None, "c", "d"]),
            custom_id_ttl_ms=100,
            depends_on=tuple(Dependency(job, chance.choice(["fail", "cancel", "continue"])) for job in parents),
        )

    def step(self) -> None:
        chance = self.chance
        chance.choices(
            [self.push, self.push_batch, self.pull, self.settle, self.settle_late, self.control, self.sweep],
            [20, 6, 30, 30, 5, 25, 2],
        )[0]()

    def push(self) -> None:
        options = self.some_options()
        reply = self.client.push(self.chance.choice(QUEUES), b"x", options)
        if reply.created:
            self.options[reply.id] = options

    def push_batch(self) -> None:
        options = self.some_options()
        reply = self.client.push_batch(self.chance.choice(QUEUES), [b"x"] * self.chance.randint(2, 6), options)
        for item, job in enumerate(reply.ids):
            if item not in reply.duplicates:
                self.options[job] = options

    def pull(self) -> None:
        queues = self.chance.sample(QUEUES, self.chance.randint(1, 3))
        delivery = self.client.pull(queues, self.chance.randint(1, 4), worker="w")
        if len(delivery):
            self.deliveries.append(([job.id for job in delivery], delivery.token))
            self.delivered.update(delivery.ids)

    def settle(self) -> None:
        if not self.deliveries:
            return
        ids, token = self.chance.choice(self.deliveries[-3:])
        some = self.chance.sample(ids, self.chance.randint(1, len(ids)))
        chance = self.chance.random()
        if chance < 0.4:
            self.client.ack_batch(some, token)
        elif chance < 0.65:
            self.client.fail_batch(some, token, "x", retry=self.chance.random() < 0.8)
        elif chance < 0.8:
            self.client.release_batch(some, token, self.chance.choice([0, 25]))
        else:
            self.client.extend_batch(some, token)

    def settle_late(self) -> None:
        """With a token that is surely not the current one: nothing may come of it."""
        if not self.deliveries:
            return
        ids, token = self.chance.choice(self.deliveries)
        before = self.client.get_stats(), last_position(self.client)
        for settle in (
            self.client.ack_batch,
            self.client.fail_batch,
            self.client.release_batch,
            self.client.extend_batch,
        ):
            reply = settle(ids, -token)
            assert set(reply.refused) == set(ids)
            assert set(reply.refused.values()) <= {"lost_lease", "not_found"}
        assert (self.client.get_stats(), last_position(self.client)) == before
        self.refused_without_trace += 1

    def control(self) -> None:
        if not self.options:
            return
        job = self.chance.choice(sorted(self.options)[-20:])
        deed: Callable[[], object] = self.chance.choice(
            [
                lambda: self.client.cancel(job),
                lambda: self.client.promote(job),
                lambda: self.client.discard(job),
                lambda: self.client.move_to_delayed(job, self.chance.choice([0, 40])),
                lambda: self.client.change_priority(job, self.chance.randint(-1, 1)),
            ]
        )
        try:
            deed()
        except (NotFound, WrongState):
            pass

    def sweep(self) -> None:
        queue = self.chance.choice(QUEUES)
        self.chance.choice(
            [
                lambda: self.client.retry_dead(queue, limit=3),
                lambda: self.client.drain(queue),
                lambda: self.client.clean(queue, State.COMPLETED),
                lambda: self.client.clean(queue, State.DELAYED, limit=2),
                lambda: self.client.purge_dead(queue, reason="explicit_fail"),
            ]
        )()


def last_position(client: Client) -> int:
    after = 0
    while (page := client.read_events(after=after, limit=100_000)).events:
        after = page.next_after
    return after


def events_of(client: Client, shard: int = 0) -> list[Event]:
    found: list[Event] = []
    after = 0
    while (page := client.read_events(shard, after)).events:
        found.extend(page.events)
        after = page.next_after
    return found


def settings(seed: int) -> Settings:
    return Settings(seed=seed, batching=seed % 2 == 0, retention=Retention(completed_age_ms=400, completed_count=6))


# --- the checker ---------------------------------------------------------------------------------


class Job:
    def __init__(self, event: Event, options: Options) -> None:
        self.id = event.job
        self.queue = event.queue
        self.options = options
        self.priority = options.priority
        self.pushed_at = event.at
        self.due = event.at + options.delay_ms
        self.state: str = NEW
        self.attempts = 0
        self.crashes = 0
        self.started_at = 0
        self.lease_until = 0
        self.open_edges: dict[int, str] = {}
        self.doomed_at: int | None = None
        self.revived = False

    @property
    def place(self) -> tuple[int, int, int]:
        return (-self.priority, 0, -self.id) if self.options.lifo else (-self.priority, 1, self.id)


class History:
    """A tenant's events, replayed and judged: how often each invariant was looked at, and where it did not hold."""

    def __init__(self, options: dict[int, Options]) -> None:
        self.options = options
        self.jobs: dict[int, Job] = {}
        self.ended_as: dict[int, str] = {}
        self.active: dict[int, Job] = {}
        self.waiting: dict[str, dict[int, Job]] = defaultdict(dict)
        self.children: dict[int, list[Job]] = defaultdict(list)
        self.held: dict[tuple[str, str], int] = {}
        self.keys: dict[tuple[str, str], int] = {}
        self.starts: dict[str, list[int]] = defaultdict(list)
        self.paths: set[tuple[str, str]] = set()
        self.totals: dict[str, Counter[str]] = defaultdict(Counter)
        self.looked: Counter[str] = Counter()
        self.broken: dict[str, list[str]] = defaultdict(list)

    def check(self, invariant: str, holds: bool, message: str) -> None:
        self.looked[invariant] += 1
        if not holds:
            self.broken[invariant].append(message)

    def replay(self, events: list[Event]) -> "History":
        now = 0
        for event in events:
            self.check("I17", event.at >= now, f"{event.kind} of {event.job}: time runs backwards")
            now = event.at
            self.check_deadlines(event)
            if event.job:
                self.take(event)
        for job in self.jobs.values():
            doomed = job.doomed_at is not None and job.state in LIVE
            self.check("I11", not doomed, f"{job.id} lives on although a parent failed")
        return self

    def check_deadlines(self, event: Event) -> None:
        """Nobody runs beyond its lease or its timeout; what is over is recorded before what comes later."""
        for job in self.active.values():
            self.check("I3", event.at <= job.lease_until, f"{job.id} outlived its lease")
            if job.options.timeout_ms:
                until = job.started_at + job.options.timeout_ms
                self.check("I3", event.at <= until, f"{job.id} outlived its timeout")

    def take(self, event: Event) -> None:
        if event.kind == "pushed":
            self.check("I2", event.job in self.options, f"{event.job} was pushed by nobody")
            self.check("I2", event.job not in self.jobs, f"{event.job} was pushed twice")
            self.jobs[event.job] = Job(event, self.options.get(event.job, Options()))
        self.check("I2", event.job in self.jobs, f"{event.kind} of {event.job}, which was never pushed")
        handler = getattr(self, f"on_{event.kind}", None)
        if handler is not None and event.job in self.jobs:
            handler(self.jobs[event.job], event)

    def move(self, job: Job, state: str, event: Event) -> None:
        legal = state in TRANSITIONS.get(job.state, {})
        self.check("I6", legal, f"{job.id}: {job.state} -> {state} by {event.kind}")
        self.check("I5", job.state not in ENDED or event.kind == "revived", f"{job.id} went on after its end")
        self.paths.add((job.state, state))
        self.waiting[job.queue].pop(job.id, None)
        self.active.pop(job.id, None)
        job.state = state
        if state == State.WAITING:
            self.waiting[job.queue][job.id] = job
        group = (job.queue, job.options.group_id or "")
        if state != State.DELAYED and self.held.get(group) == job.id:
            del self.held[group]
        if state in ENDED:
            self.end(job, event)

    def end(self, job: Job, event: Event) -> None:
        self.ended_as[job.id] = job.state
        key = (job.queue, job.options.unique_key or "")
        if self.keys.get(key) == job.id:
            del self.keys[key]
        for child in self.children.pop(job.id, ()):
            policy = child.open_edges.pop(job.id, None)
            if policy is not None:
                self.settle_edge(child, job.state, policy, event.at)

    def settle_edge(self, job: Job, state: str, policy: str, at: int) -> None:
        if state != State.COMPLETED and policy != "continue" and job.doomed_at is None:
            job.doomed_at = at

    def take_key(self, job: Job) -> None:
        if job.options.unique_key is not None:
            key = (job.queue, job.options.unique_key)
            self.check("I12", key not in self.keys, f"{job.id} and {self.keys.get(key)} hold {key}")
            self.keys[key] = job.id

    def leave(self, job: Job, state: State, event: Event, *, counted: bool) -> None:
        """Out of active and not yet at an end."""
        if not counted:
            job.attempts -= 1
        self.move(job, state, event)
        if state is State.DELAYED:
            job.due = event.due
            if job.options.group_id is not None and job.queue != "skipping":
                self.held[job.queue, job.options.group_id] = job.id

    # --- one method a kind of event --------------------------------------------------------------

    def on_pushed(self, job: Job, event: Event) -> None:
        self.totals[job.queue]["pushed"] += 1
        self.take_key(job)
        for edge in job.options.depends_on:
            if edge.id not in self.ended_as or self.jobs[edge.id].state in LIVE:
                job.open_edges[edge.id] = edge.on_failure
                self.children[edge.id].append(job)
            else:
                self.settle_edge(job, self.ended_as[edge.id], edge.on_failure, event.at)
        if job.open_edges or job.doomed_at is not None:
            self.move(job, State.BLOCKED, event)
        else:
            self.move(job, State.DELAYED if job.due > event.at else State.WAITING, event)

    def on_unblocked(self, job: Job, event: Event) -> None:
        self.check("I11", not job.open_edges and job.doomed_at is None, f"{job.id} was unblocked too early")
        self.move(job, State.DELAYED if job.due > event.at else State.WAITING, event)

    def on_ready(self, job: Job, event: Event) -> None:
        self.check("I16", event.at == job.due, f"{job.id} was due at {job.due}, not at {event.at}")
        self.move(job, State.WAITING, event)

    def on_promoted(self, job: Job, event: Event) -> None:
        job.due = event.at
        self.move(job, State.WAITING, event)

    def on_delayed(self, job: Job, event: Event) -> None:
        later = event.due > event.at
        if job.state == State.ACTIVE:
            self.leave(job, State.DELAYED if later else State.WAITING, event, counted=False)
            return
        job.due = max(event.due, event.at)
        if later:
            self.move(job, State.DELAYED, event)
        elif job.state != State.WAITING:
            self.move(job, State.WAITING, event)

    def on_reprioritised(self, job: Job, event: Event) -> None:
        job.priority = event.priority

    def on_started(self, job: Job, event: Event) -> None:
        self.check_start(job, event)
        self.totals[job.queue]["started"] += 1
        self.starts[job.queue].append(event.at)
        self.move(job, State.ACTIVE, event)
        self.active[job.id] = job
        job.attempts += 1
        job.started_at = event.at
        job.lease_until = event.at + job.options.lease_ms
        most = job.options.max_attempts or job.attempts
        self.check("I6", event.attempt == job.attempts <= most, f"{job.id}: attempt {event.attempt}")
        if job.queue == "narrow":
            running = sum(other.queue == "narrow" for other in self.active.values())
            self.check("I15", running <= SLOTS, f"{running} are active at {event.at}")

    def check_start(self, job: Job, event: Event) -> None:
        self.check("I3", job.state == State.WAITING, f"{job.id} started when it was {job.state}")
        self.check("I16", event.at >= job.due, f"{job.id} started before {job.due}")
        if job.options.depends_on:
            self.check("I11", not job.open_edges and job.doomed_at is None, f"{job.id} started before its parents")
        candidates = [other for other in self.waiting[job.queue].values() if self.may_start(other)]
        if job.options.group_id is not None:
            self.check("I9", job in candidates, f"{job.id} was not the head of an idle group")
        if len(candidates) > 1:
            first = min(other.place for other in candidates)
            self.check("I10", job.place == first, f"{first} stood before {job.place}")

    def may_start(self, job: Job) -> bool:
        name = job.options.group_id
        if name is None:
            return True
        if (job.queue, name) in self.held:
            return False
        if any(other.queue == job.queue and other.options.group_id == name for other in self.active.values()):
            return False
        line = [other for other in self.waiting[job.queue].values() if other.options.group_id == name]
        return job.id == min(other.id for other in line)

    def on_extended(self, job: Job, event: Event) -> None:
        self.check("I4", job.state == State.ACTIVE, f"{job.id} was extended when it was {job.state}")
        job.lease_until = event.at + job.options.lease_ms

    def on_completed(self, job: Job, event: Event) -> None:
        self.totals[job.queue]["completed"] += 1
        self.move(job, State.COMPLETED, event)

    def on_retrying(self, job: Job, event: Event) -> None:
        self.check_loss(job, event)
        self.totals[job.queue]["retried"] += 1
        self.leave(job, State.DELAYED if event.due > event.at else State.WAITING, event, counted=True)

    def on_released(self, job: Job, event: Event) -> None:
        self.leave(job, State.WAITING, event, counted=False)

    def on_snoozed(self, job: Job, event: Event) -> None:
        self.leave(job, State.DELAYED, event, counted=False)

    def on_failed(self, job: Job, event: Event) -> None:
        self.totals[job.queue]["failed"] += 1
        if job.state == State.ACTIVE:
            self.check_loss(job, event)
        if event.reason == "max_attempts_exceeded":
            self.check("I6", job.attempts == job.options.max_attempts, f"{job.id} died after {job.attempts} attempts")
        self.check_doom(job, event)
        self.move(job, State.FAILED, event)

    def on_cancelled(self, job: Job, event: Event) -> None:
        self.totals[job.queue]["cancelled"] += 1
        self.check_doom(job, event)
        self.move(job, State.CANCELLED, event)

    def on_expired(self, job: Job, event: Event) -> None:
        self.totals[job.queue]["expired"] += 1
        self.check("I6", job.attempts == 0 and not job.revived, f"{job.id} expired after a start")
        in_time = event.at >= job.pushed_at + job.options.ttl_ms > job.pushed_at
        self.check("I16", in_time, f"{job.id} expired at {event.at}")
        self.move(job, State.EXPIRED, event)

    def on_revived(self, job: Job, event: Event) -> None:
        self.take_key(job)
        job.attempts = job.crashes = 0
        job.due = event.at
        job.open_edges.clear()
        job.doomed_at = None
        job.revived = True
        self.move(job, State.WAITING, event)

    def on_evicted(self, job: Job, event: Event) -> None:
        self.totals[job.queue]["evicted"] += 1

    def on_removed(self, job: Job, event: Event) -> None:
        self.check("I7", job.state in ENDED, f"{job.id} was removed when it was {job.state}")

    def check_loss(self, job: Job, event: Event) -> None:
        """A lease and a timeout end a delivery at their own time, whoever looked when."""
        if event.reason in ("stalled", "worker_lost"):
            job.crashes += 1
            self.totals[job.queue]["stalled"] += 1
            self.check("I3", event.at == job.lease_until, f"{job.id} lost its lease of {job.lease_until} at {event.at}")
            too_many = 0 < job.options.max_crashes <= job.crashes
            self.check("I6", (event.reason == "worker_lost") == too_many, f"{job.id}: {event.reason}")
        elif event.reason == "timeout":
            until = job.started_at + job.options.timeout_ms
            self.totals[job.queue]["timed_out"] += 1
            self.check("I3", event.at == until, f"{job.id} timed out at {event.at}, not at {until}")

    def check_doom(self, job: Job, event: Event) -> None:
        if event.reason == "dependency_failed":
            self.check("I11", job.doomed_at == event.at, f"{job.id} failed with no parent, or later than it")


# --- many runs -----------------------------------------------------------------------------------


class Run:
    """What one seed led to."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        with World(settings(seed)) as world:
            self.work = {tenant: Work(world.client_for(tenant), self.chance) for tenant in TENANTS}
            for _ in range(STEPS):
                self.chance.choice(list(self.work.values())).step()
                if self.chance.random() < 0.4:
                    world.advance(self.chance.choice([1, 1, 2, 5, 10, 30, 150]))
            self.events = {tenant: events_of(work.client) for tenant, work in self.work.items()}
            self.stats = {
                tenant: {name: work.client.get_stats(name) for name in (None, *QUEUES)}
                for tenant, work in self.work.items()
            }
        self.histories = {
            tenant: History(work.options).replay(self.events[tenant]) for tenant, work in self.work.items()
        }


@cache
def run(seed: int) -> Run:
    """A run and its replay, done once however many tests look at it."""
    return Run(seed)


def histories(seeds: Iterable[int] = SEEDS) -> Iterator[tuple[Run, str, History]]:
    for seed in seeds:
        for tenant, history in run(seed).histories.items():
            yield run(seed), tenant, history


def check_all(invariant: str, at_least: int) -> None:
    """It held wherever it was looked at, and that was often enough to mean something."""
    broken = [message for _, _, history in histories() for message in history.broken[invariant]]
    assert broken == []
    assert sum(history.looked[invariant] for _, _, history in histories()) >= at_least


def test_i2_nothing_is_delivered_that_was_not_pushed():
    check_all("I2", 5_000)
    for done, tenant, history in histories():
        assert history.jobs.keys() == done.work[tenant].options.keys()
        assert done.work[tenant].delivered
        assert done.work[tenant].delivered <= history.jobs.keys()


def test_i3_no_job_has_two_leases_and_none_outlives_its_lease():
    check_all("I3", 5_000)


def test_i4_a_token_that_is_not_current_changes_nothing():
    """The work itself compares before and after; a change would have ended it."""
    check_all("I4", 50)
    assert sum(work.refused_without_trace for seed in SEEDS for work in run(seed).work.values()) > 100


def test_i5_every_job_has_one_end():
    check_all("I5", 2_000)
    for _, _, history in histories():
        for job in history.jobs.values():
            assert (job.id in history.ended_as) == (job.state in ENDED or job.revived)


def test_i6_only_legal_paths_are_walked_and_all_of_them_are():
    check_all("I6", 2_000)
    walked = set().union(*(history.paths for _, _, history in histories()))
    of_workflows = {(State.FAILED, State.BLOCKED)}  # tests/model/test_workflows.py walks these
    legal = {(before, after) for before, afters in TRANSITIONS.items() for after in afters if after != GONE}
    assert walked == legal - of_workflows


def test_i7_jobs_are_conserved_in_every_queue_and_tenant():
    for done, tenant, history in histories():
        for queue in (None, *QUEUES):
            jobs = [job for job in history.jobs.values() if queue in (None, job.queue)]
            by_state = Counter(job.state for job in jobs)
            counts = done.stats[tenant][queue].counts
            for state in LIVE:
                assert getattr(counts, state) == by_state[state], f"{tenant} {queue} {state}"
            for state in ENDED:
                assert getattr(counts, state) <= by_state[state], f"{tenant} {queue} {state}"
            assert sum(by_state.values()) == done.stats[tenant][queue].totals.pushed


def test_i8_every_total_equals_its_recount():
    seen: Counter[str] = Counter()
    for done, tenant, history in histories():
        whole: Counter[str] = Counter()
        for queue in QUEUES:
            recount = history.totals[queue]
            whole += recount
            for name in ("pushed", "started", "completed", "failed", "cancelled", "expired", "retried"):
                assert getattr(done.stats[tenant][queue].totals, name) == recount[name]
            for name in ("timed_out", "stalled", "evicted"):
                assert getattr(done.stats[tenant][queue].totals, name) == recount[name]
        for name, count in whole.items():
            assert getattr(done.stats[tenant][None].totals, name) == count
        seen += whole
    assert {name for name, count in seen.items() if count > 20} >= {"stalled", "timed_out", "expired", "retried"}


def test_i9_groups_run_one_at_a_time_in_order():
    check_all("I9", 500)


def test_i10_nobody_is_overtaken_by_a_lower_priority():
    check_all("I10", 500)


def test_i11_children_start_after_their_parents_and_fail_with_them():
    check_all("I11", 500)


def test_i11_cycles_are_refused():
    with World() as world:
        chance = random.Random(4)
        for size in range(2, 12):
            ring = list(range(size))
            chance.shuffle(ring)
            each = [Options()] * size
            for item, parent in zip(ring, [*ring[1:], ring[0]], strict=True):
                each[item] = Options(depends_on=(Dependency(item=parent),))
            with pytest.raises(DependencyCycle):
                world.client.push_batch("q", [b""] * size, each=each, atomic=True)
        assert world.client.get_stats().totals.pushed == 0


def test_i12_a_key_has_one_live_holder():
    check_all("I12", 200)


def test_i12_all_who_push_a_key_get_the_same_job():
    with World() as world:
        replies = [world.client.push("q", b"", unique_key="k") for _ in range(20)]
        replies_of_batch = world.client.push_batch("q", [b""] * 20, unique_key="k")
        assert {reply.id for reply in replies} | set(replies_of_batch.ids) == {replies[0].id}
        assert sum(reply.created for reply in replies) + replies_of_batch.created == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_i13_sending_again_makes_nothing_new_and_answers_the_same(seed: int):
    """Every batch is sent one to three times, in any order, as after lost replies."""
    chance = random.Random(seed)
    with World(settings(seed)) as world:
        requests = [(f"r{number}", chance.randint(1, 5)) for number in range(20)] * 3
        chance.shuffle(requests)
        answers: dict[str, list[int]] = {}
        for key, count in requests:
            ids = list(world.client.push_batch("q", [b""] * count, request_key=key).ids)
            assert answers.setdefault(key, ids) == ids
            if chance.random() < 0.3:
                for job in world.client.pull("q", 3):
                    world.client.ack(job.id, job.token)
        pushed = [job for ids in answers.values() for job in ids]
        assert len(set(pushed)) == len(pushed) == world.client.get_stats().totals.pushed


def test_i14_no_window_has_more_deliveries_than_burst_and_rate_allow():
    busiest = 0.0
    for _, _, history in histories():
        starts = history.starts["rated"]
        for first, begin in enumerate(starts):
            for last in range(first, len(starts)):
                allowed = RATE.burst + RATE.count * (starts[last] - begin) / RATE.per_ms
                assert last - first + 1 <= allowed
                busiest = max(busiest, (last - first + 1) / allowed)
    assert busiest == 1, "the limit was reached, so that it had something to hold"


def test_i15_active_jobs_keep_to_the_limit():
    check_all("I15", 200)


def test_i16_nothing_starts_before_its_time():
    check_all("I16", 1_000)


def test_i17_time_never_runs_backwards():
    check_all("I17", 5_000)


def test_i17_setting_the_clock_of_the_machine_ends_no_lease(monkeypatch: pytest.MonkeyPatch):
    true_time = time.time_ns
    with stoker.connect("memory://") as client:
        job = client.push("q", b"").id
        (delivered,) = client.pull("q")
        for jump in (86_400 * 10**9, -86_400 * 10**9):
            monkeypatch.setattr(time, "time_ns", lambda jump=jump: true_time() + jump)
            assert client.get_state(job) is State.ACTIVE
            assert client.extend(job, delivered.token).lease_until >= delivered.lease_until
        view = client.get_job(job)
        assert 0 <= view.lease_until - delivered.lease_until < 60_000


FINGERPRINT = "from tests.test_invariants import fingerprint; print(fingerprint(3))"


def fingerprint(seed: int) -> str:
    """A hash of everything that happened under a seed."""
    done = run(seed)
    digest = hashlib.sha256()
    for tenant in TENANTS:
        for event in done.events[tenant]:
            digest.update(repr(event).encode())
    return digest.hexdigest()


def test_i19_the_same_seed_leads_to_the_same_events_in_every_process():
    """With other hashes of strings, so that no order of a set or of memory addresses can hide."""
    root = Path(__file__).parent.parent
    seen = {fingerprint(3)}
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            cwd=root,
            env={"PYTHONHASHSEED": salt, "PYTHONPATH": ":".join([str(root), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout.strip())
    assert len(seen) == 1
    assert fingerprint(4) not in seen


def test_i20_a_job_lives_in_one_shard():
    """Its id names it, its events are there and nowhere else, and nothing is lost or doubled between shards."""
    shards, chance = 8, random.Random(1)
    with World(shards=shards) as world:
        client = world.client
        queues = [f"q{number}" for number in range(30)]
        pushed = {}
        for _ in range(300):
            queue = chance.choice(queues)
            pushed[client.push(queue, b"").id] = queue
        for _ in range(60):
            delivery = client.pull(chance.sample(queues, 5), 4)
            if len(delivery):
                client.ack_batch(list(delivery.ids), delivery.token)
        assert len(pushed) == 300
        counts = client.get_counts()
        assert counts.waiting + counts.completed == 300
        assert counts.completed > 50
        places: dict[int, set[int]] = defaultdict(set)
        for shard in range(shards):
            for event in events_of(client, shard):
                places[event.job].add(shard)
        for job, queue in pushed.items():
            assert places[job] == {shard_of(job)} == {shard_for("default", queue, shards)}


# --- the checker itself --------------------------------------------------------------------------

Tampering = Callable[[list[Event]], list[Event]]


def a_start(events: list[Event]) -> int:
    """Of a job that is pushed, started and completed without anything in between."""
    steps: dict[int, list[str]] = defaultdict(list)
    for event in events:
        steps[event.job].append(event.kind)
    plain = ["pushed", "started", "completed"]
    return next(
        place for place, event in enumerate(events) if event.kind == "started" and steps[event.job][:3] == plain
    )


def never_pushed(events: list[Event]) -> list[Event]:
    victim = events[a_start(events)].job
    return [event for event in events if event.job != victim or event.kind != "pushed"]


def started_twice(events: list[Event]) -> list[Event]:
    place = a_start(events)
    return [*events[:place], events[place], *events[place:]]


def never_started(events: list[Event]) -> list[Event]:
    place = a_start(events)
    return [*events[:place], *events[place + 1 :]]


def completed_twice(events: list[Event]) -> list[Event]:
    return [*events, next(event for event in events if event.kind == "completed")]


def two_starts_swapped(events: list[Event]) -> list[Event]:
    """A pull of two jobs that stood in one order, recorded in the other."""
    for place in range(1, len(events)):
        one, two = events[place - 1 : place + 1]
        if one.kind == two.kind == "started" and (one.queue, one.sequence) == (two.queue, two.sequence):
            return [*events[: place - 1], two, one, *events[place + 1 :]]
    raise AssertionError("no pull brought two jobs of one queue")


def changed(select: Callable[[Event], bool], **changes: Callable[[Event], object]) -> Tampering:
    def tamper(events: list[Event]) -> list[Event]:
        return [
            msgspec.structs.replace(event, **{name: change(event) for name, change in changes.items()})
            if select(event)
            else event
            for event in events
        ]

    return tamper


def without(*kinds: str) -> Tampering:
    return lambda events: [event for event in events if event.kind not in kinds]


WAYS_OUT = ("completed", "failed", "cancelled", "retrying", "released", "snoozed")

FALSE_HISTORIES: dict[str, tuple[str, Tampering]] = {
    "a job that nobody pushed": ("I2", never_pushed),
    "a second start": ("I3", started_twice),
    "leases that ended late": ("I3", changed(lambda event: event.reason == "stalled", at=lambda event: event.at + 1)),
    "a heartbeat after the end": ("I4", without("started")),
    "a second end": ("I5", completed_twice),
    "a start that is missing": ("I6", never_started),
    "attempts that were not counted": ("I6", changed(lambda event: event.kind == "started", attempt=lambda event: 9)),
    "groups that were never freed": (
        "I9",
        without(*WAYS_OUT),
    ),
    "two starts swapped": ("I10", two_starts_swapped),
    "parents that never completed": ("I11", without("completed")),
    "keys that were never freed": ("I12", without(*ENDED)),
    "slots that were never freed": (
        "I15",
        without(*WAYS_OUT),
    ),
    "due times that came early": ("I16", changed(lambda event: event.kind == "ready", at=lambda event: event.at - 1)),
    "a clock that was set back": ("I17", lambda events: [*events, events[0]]),
}


@pytest.mark.parametrize("name", FALSE_HISTORIES)
def test_the_checker_sees_a_false_history(name: str):
    """A checker that finds nothing in a false history proves nothing about a true one."""
    invariant, tamper = FALSE_HISTORIES[name]
    found = 0
    for done, tenant, history in histories(SEEDS[:3]):
        false = History(done.work[tenant].options).replay(tamper(done.events[tenant]))
        found += len(false.broken[invariant]) - len(history.broken[invariant])
    assert found > 0
