"""Random commands from a seed: the second generator, written apart from the one in test_against_reference.py.

    python tests/model/driver.py --seed 7 --commands 20000

runs them through an engine and prints a hash of the encoded records, which must depend on nothing but the seed.
It keeps whole jobs' stories going (push, pull, settle, look) and disturbs them now and then.
"""

import argparse
import hashlib
import random
import sys
from collections.abc import Callable
from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.options import (
    CODECS,
    Backoff,
    Codec,
    DeadLetterPolicy,
    Dependency,
    DependencyPolicy,
    Options,
    RateLimit,
    Settings,
)
from stoker.model.schedules import Schedule
from stoker.model.states import State

TENANTS = ("acme", "zeta")
QUEUES = ("mail", "thumbs", "sync")
WORDS = ("k1", "k2", "k3")
KV_KEYS = ("a", "ab", "abc", "b", "b.c", "ä")
PATTERNS = ("*", "a*", "?", "*b*", "a?c", "*c", "b.c", "*?b*", "**a", "")
SPANS_MS = (0, 1, 5, 20, 100, 400, 2_000)
PLAIN = Options(backoff=Backoff(base_ms=200, jitter="none"))
"""Jitter is left out: a reference could only repeat the engine's arithmetic."""
NEVER = 7 << 40
"""An id that nobody was given."""


class Driver:
    """Draws commands, and learns ids and tokens from the replies."""

    def __init__(self, seed: int, *, known_max: int = 60) -> None:
        self.random = random.Random(seed)
        self.known: list[tuple[str, int]] = []
        self.held: list[tuple[str, int, int]] = []
        self.lost: list[tuple[str, int, int]] = []
        self.slow: list[tuple[str, int]] = []
        self.busy = (TENANTS[0], QUEUES[0])
        self.known_max = known_max
        self.menu: list[Callable[[], tuple[str, c.Command[Any]]]] = []
        for weight, draw in (
            (14, self.push),
            (8, self.push_batch),
            (16, self.pull),
            (16, self.settle),
            (3, self.settle_strangely),
            (7, self.by_claim),
            (4, self.note),
            (7, self.control_job),
            (3, self.control_slow_job),
            (4, self.control_queue),
            (3, self.sweep),
            (4, self.dead_letters),
            (4, self.transaction),
            (5, self.key_value),
            (6, self.schedule),
            (7, self.look),
            (2, self.nonsense),
        ):
            self.menu += [draw] * weight

    def draw(self) -> tuple[int, str, c.Command[Any]]:
        """How much time passes, and then who wants what."""
        rng = self.random
        roll = rng.random()
        if roll < 0.65:
            passed = 0
        elif roll < 0.97:
            passed = rng.choice(SPANS_MS)
        elif roll < 0.995:
            passed = rng.randrange(1, 10_000)
        else:
            passed = rng.choice((60_000, 3_600_000, 86_400_000, 8 * 86_400_000))
        tenant, command = rng.choice(self.menu)()
        return passed, tenant, command

    def learn(self, tenant: str, command: c.Command[Any], reply: Any) -> None:
        if isinstance(reply, r.Pushed):
            self.known.append((tenant, reply.id))
            if isinstance(command, c.Push) and command.options.delay_ms >= 1_000:
                self.slow = [*self.slow[-4:], (tenant, reply.id)]
        elif isinstance(reply, r.PushedBatch):
            self.known += [(tenant, job_id) for job_id in reply.ids if job_id]
        elif isinstance(reply, r.Transaction):
            self.known += [(tenant, first) for first, _ in reply.runs]
        elif isinstance(reply, r.Delivery):
            self.held += [(tenant, job_id, reply.token) for job_id in reply.ids]
            self.busy = (tenant, reply.runs[-1].queue) if reply.runs else self.busy
        elif isinstance(command, c.Ack | c.Fail | c.Release) and not isinstance(reply, str):
            gone = [entry for entry in self.held if entry[1] in command.ids]
            self.held = [entry for entry in self.held if entry[1] not in command.ids]
            self.lost = (self.lost + gone)[-20:]
        del self.known[: -self.known_max]
        self.lost += self.held[:-30]
        del self.held[:-30]

    # --- who and what --------------------------------------------------------------------------------

    def tenant(self) -> str:
        return TENANTS[self.random.random() < 0.2]

    def queue(self) -> str:
        return self.random.choice(QUEUES)

    def span(self) -> int:
        return self.random.choice(SPANS_MS)

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def job(self) -> tuple[str, int]:
        """A job and its tenant, mostly; sometimes one that never was, or somebody else's."""
        roll = self.random.random()
        if roll < 0.03 or not self.known:
            return self.tenant(), NEVER
        tenant, job_id = self.random.choice(self.known[-self.random.choice((2, 6, 20, 60)) :])
        if roll < 0.06:
            return next(other for other in TENANTS if other != tenant), job_id
        return tenant, job_id

    def options(self, tenant: str, items: int = 0, number: int = 0) -> Options:
        rng = self.random
        fields: dict[str, Any] = {
            "backoff": Backoff(
                rng.choice(("exponential", "linear", "fixed")),
                rng.choice((0, 10, 500)),
                rng.choice((50, 2_000)),
                "none",
            ),
            "lease_ms": rng.choice((50, 1_000, 30_000)),
            "max_attempts": rng.choice((0, 1, 2, 3)),
            "max_crashes": rng.choice((0, 1, 2, 3)),
        }
        if self.chance(0.3):
            fields["priority"] = rng.randrange(-1, 3)
        if self.chance(0.1):
            fields["codec"] = rng.choice(CODECS)
        if self.chance(0.25):
            fields["delay_ms"] = rng.choice((0, 5, 100, 4_000, 60_000))
        if self.chance(0.1):
            fields["ttl_ms"] = self.span()
        if self.chance(0.1):
            fields["timeout_ms"] = self.span()
        if self.chance(0.25):
            fields["group_id"] = rng.choice(WORDS)
        if self.chance(0.15):
            fields["lifo"] = True
        if self.chance(0.2):
            fields["tags"] = (rng.choice(("x", "y")),)
        if self.chance(0.1):
            fields["name"] = rng.choice(WORDS)
        if self.chance(0.15):
            fields |= {"unique_key": rng.choice(WORDS), "unique_ttl_ms": self.span()}
            fields["on_conflict"] = rng.choice(("keep", "extend", "replace"))
        if self.chance(0.1):
            fields |= {"custom_id": rng.choice(WORDS), "custom_id_ttl_ms": self.span()}
        if self.chance(0.07):
            fields |= {"debounce_id": rng.choice(WORDS), "debounce_ms": self.span()}
        if self.chance(0.1):
            fields |= {"keep_completed_age_ms": self.span(), "keep_completed_count": rng.randrange(4)}
        if self.chance(0.05):
            fields |= {"remove_on_complete": True, "remove_on_fail": True}
        if self.chance(0.15):
            fields["depends_on"] = tuple(self.edge(tenant, items, number) for _ in range(rng.randrange(1, 3)))
            if self.chance(0.5):
                fields["delay_ms"] = 60_000
        return Options(**fields)

    def edge(self, tenant: str, items: int, number: int) -> Dependency:
        rng = self.random
        policy: DependencyPolicy = rng.choice(("fail", "cancel", "continue"))
        if items and self.chance(0.6):
            # Mostly backwards, as people write them; forwards makes a cycle now and then.
            item = rng.randrange(number) if number and self.chance(0.7) else rng.randrange(items + 1)
            return Dependency(on_failure=policy, item=item)
        mine = [job_id for owner, job_id in self.known if owner == tenant] or [NEVER]
        mine = mine[-rng.choice((3, 20)) :]
        return Dependency(rng.choice(mine) if self.chance(0.97) else NEVER, policy)

    def payload(self) -> bytes:
        return self.random.randbytes(self.random.randrange(1, 9))

    # --- producing -----------------------------------------------------------------------------------

    def push(self) -> tuple[str, c.Command[Any]]:
        tenant = self.tenant()
        options = self.options(tenant) if self.chance(0.8) else PLAIN
        return tenant, c.Push(self.queue(), self.payload(), options, sending=self.sending())

    def sending(self) -> c.Sending | None:
        """Few numbers of few senders, so that some are sent again."""
        rng = self.random
        return c.Sending(rng.choice(WORDS), rng.randrange(3, 8), rng.randrange(4)) if self.chance(0.15) else None

    def push_batch(self) -> tuple[str, c.Command[Any]]:
        tenant, rng = self.tenant(), self.random
        payloads = [self.payload() for _ in range(rng.randrange(1, 8))]
        request_key = rng.choice(WORDS) if self.chance(0.15) else None
        if self.chance(0.5):
            options = self.options(tenant, len(payloads)) if self.chance(0.7) else PLAIN
            sending = self.sending()
            return tenant, c.PushBatch(self.queue(), payloads, options, request_key=request_key, sending=sending)
        each = [self.options(tenant, len(payloads), number) for number in range(len(payloads))]
        return tenant, c.PushBatch(self.queue(), payloads, each=each, atomic=self.chance(0.3), request_key=request_key)

    def transaction(self) -> tuple[str, c.Command[Any]]:
        tenant, rng = self.tenant(), self.random
        name, stage, roll = rng.choice(WORDS), rng.choice(WORDS[:2]), rng.random()
        if roll < 0.6:
            payloads = [self.payload() for _ in range(rng.randrange(1, 4))]
            part = rng.choice((None, 0, 1))
            if self.chance(0.5):
                return tenant, c.Stage(
                    name, stage, self.queue(), payloads, self.options(tenant, len(payloads)), part=part
                )
            each = [self.options(tenant, len(payloads), number) for number in range(len(payloads))]
            return tenant, c.Stage(name, stage, self.queue(), payloads, each=each, part=part)
        if roll < 0.9:
            return tenant, c.Publish(name, rng.sample(WORDS[:2], rng.randrange(3)))
        return tenant, c.Abort(name)

    # --- consuming -----------------------------------------------------------------------------------

    def pull(self) -> tuple[str, c.Command[Any]]:
        rng = self.random
        return self.tenant(), c.Pull(
            rng.sample(QUEUES, rng.randrange(1, 4)),
            rng.choice((1, 1, 2, 5)),
            rng.choice((0, 0, 0, 10, 2_000)),
            rng.choice(("", "w1", "w2")),
            rng.choice((None, None, None, 20, 5_000)),
            rng.choice(WORDS) if self.chance(0.1) else None,
        )

    def settle(self) -> tuple[str, c.Command[Any]]:
        rng = self.random
        if not self.held:
            return self.pull()
        tenant, _, token = rng.choice(self.held)
        ids = [job_id for owner, job_id, other in self.held if owner == tenant and other == token]
        ids = ids[: rng.randrange(1, len(ids) + 1)]
        tokens: c.Tokens = token if self.chance(0.8) else None
        roll = rng.random()
        if roll < 0.4:
            results = [rng.choice((None, b"", b"fine")) for _ in ids] if self.chance(0.5) else None
            return tenant, c.Ack(ids, tokens, results, rng.choice(CODECS))
        if roll < 0.75:
            return tenant, c.Fail(
                ids, tokens, "boom", "E", "line 1", self.chance(0.85), rng.choice((None, None, 0, 30, 3_000))
            )
        if roll < 0.88:
            return tenant, c.Release(ids, tokens, rng.choice((0, 0, 40, 3_000)), "not now" if token % 3 == 0 else "")
        return tenant, c.Extend(ids, tokens, rng.choice((None, 1, 200, 10_000)), token % 3 != 0)

    def settle_strangely(self) -> tuple[str, c.Command[Any]]:
        """Late, twice, of several deliveries at once, or not one's own."""
        rng = self.random
        entries = [entry for entry in self.held + self.lost if self.chance(0.3)] or self.lost[-1:] or self.held[-1:]
        if not entries:
            return self.push()
        tenant = entries[0][0]
        ids = [job_id for _, job_id, _ in entries][:8]
        tokens = [token for _, _, token in entries][:8]
        if self.chance(0.2):
            ids, tokens = ids + ids[:1], tokens + tokens[:1]
        if self.chance(0.2):
            rng.shuffle(tokens)
        make = rng.choice((c.Ack, c.Fail, c.Release, c.Extend))
        return tenant, make(ids, tokens)

    def by_claim(self) -> tuple[str, c.Command[Any]]:
        tenant, rng, claim = self.tenant(), self.random, self.random.choice(WORDS[:2])
        roll = rng.random()
        if roll < 0.4:
            return tenant, c.Pull(rng.sample(QUEUES, 2), 3, rng.choice((0, 500)), claim=claim)
        if roll < 0.6:
            return tenant, c.AckClaim(claim, {job_id: b"r" for _, job_id, _ in self.held[-3:]}, rng.choice(CODECS))
        if roll < 0.8:
            return tenant, c.ReleaseClaim(claim)
        return tenant, c.ExtendClaim(claim, rng.choice((None, 100, 5_000)))

    def note(self) -> tuple[str, c.Command[Any]]:
        rng = self.random
        if self.held and self.chance(0.8):
            tenant, job_id, token = rng.choice(self.held)
        else:
            (tenant, job_id), token = self.job(), 0
        given = token if self.chance(0.7) else None
        roll = rng.random()
        if roll < 0.35:
            return tenant, c.SetProgress(job_id, rng.randrange(101), "half", given)
        if roll < 0.7:
            return tenant, c.AppendLog(job_id, "hello", rng.choice(("info", "warn")), given)
        return tenant, c.AppendPartial(
            job_id, self.payload()[:8], rng.choice((None, None, 3)), given, rng.choice(CODECS)
        )

    # --- control -------------------------------------------------------------------------------------

    def control_job(self) -> tuple[str, c.Command[Any]]:
        rng = self.random
        tenant, job_id = self.job()
        if self.held and self.chance(0.3):
            tenant, job_id, _ = rng.choice(self.held)
        make: tuple[Callable[[], c.Command[Any]], ...] = (
            lambda: c.Cancel(job_id),
            lambda: c.Promote(job_id),
            lambda: c.ChangePriority(job_id, rng.randrange(-1, 3)),
            lambda: c.MoveToDelayed(job_id, rng.choice((0, 20, 2_000, 60_000))),
            lambda: c.UpdatePayload(job_id, self.payload(), rng.choice((None, *CODECS))),
            lambda: c.Discard(job_id),
            lambda: c.DeleteJob(job_id),
        )
        return tenant, rng.choice(make)()

    def control_slow_job(self) -> tuple[str, c.Command[Any]]:
        """One that is probably still delayed."""
        if not self.slow:
            return self.push()
        tenant, job_id = self.slow[-1]
        return tenant, self.random.choice(
            (c.Promote(job_id), c.MoveToDelayed(job_id, 2_000), c.MoveToDelayed(job_id, 60_000), c.Discard(job_id))
        )

    def control_queue(self) -> tuple[str, c.Command[Any]]:
        rng, queue = self.random, self.queue()
        make: tuple[Callable[[], c.Command[Any]], ...] = (
            lambda: c.Pause(queue),
            lambda: c.Resume(queue),
            lambda: c.Resume(queue),
            lambda: c.SetRateLimit(
                queue, rng.choice((None, None, RateLimit(2, 100), RateLimit(3, 1_000, 1), RateLimit(7, 300, 4)))
            ),
            lambda: c.SetConcurrency(queue, rng.choice((0, 0, 1, 3))),
            lambda: c.SetQueuePolicy(
                queue, rng.choice((None, "hold", "skip")), self.policy() if self.chance(0.6) else None
            ),
        )
        return self.tenant(), rng.choice(make)()

    def policy(self) -> DeadLetterPolicy:
        rng = self.random
        return DeadLetterPolicy(
            entries_max=rng.choice((1, 3, 20)),
            age_ms_max=rng.choice((500, 10_000, 10**9)),
            auto_retry=self.chance(0.5),
            auto_retry_interval_ms=rng.choice((50, 3_000)),
            auto_retries_max=rng.randrange(3),
            take_expired=self.chance(0.3),
            take_cancelled=self.chance(0.3),
        )

    def sweep(self) -> tuple[str, c.Command[Any]]:
        rng, queue = self.random, self.queue()
        roll = rng.random()
        if roll < 0.25:
            return self.tenant(), c.Drain(queue, self.chance(0.5))
        if roll < 0.75:
            return self.tenant(), c.Clean(queue, rng.choice(tuple(State)), self.span(), rng.choice((1, 3, 8)))
        tenant, queue = self.busy
        return tenant, c.Obliterate(queue, self.chance(0.3))

    def dead_letters(self) -> tuple[str, c.Command[Any]]:
        rng, queue = self.random, self.queue()
        tenant, job_id = self.job()
        reason = rng.choice((None, None, "explicit_fail", "stalled"))
        roll = rng.random()
        if roll < 0.3:
            return tenant, c.RetryDead(queue, [job_id])
        if roll < 0.6:
            return tenant, c.RetryDead(queue, reason=reason, limit=rng.choice((None, 1, 2)))
        if roll < 0.7:
            return tenant, c.PurgeDead(queue, None if self.chance(0.3) else [job_id], reason)
        if roll < 0.9:
            return tenant, c.ListDead(queue, reason, limit=rng.choice((1, 20)))
        return tenant, c.GetDeadStats(queue)

    # --- key-value entries -----------------------------------------------------------------------------

    def key_value(self) -> tuple[str, c.Command[Any]]:
        rng = self.random
        key, some = rng.choice(KV_KEYS), rng.sample(KV_KEYS, 2)
        make: tuple[Callable[[], c.Command[Any]], ...] = (
            lambda: c.KvSet(*self.entry(key)),
            lambda: c.KvSet(*self.entry(key)),
            lambda: c.KvSetMany([c.KvEntry(*self.entry(one)) for one in some]),
            lambda: c.KvDelete(some),
            lambda: c.KvExpire(key, self.span()),
            lambda: c.KvIncrement(key, rng.choice((1, 1, -5, 2**63 - 1))),
            lambda: c.KvIncrement(key, 1),
            lambda: c.KvGet(key),
            lambda: c.KvGetMany(some),
            lambda: c.KvExists(some),
            lambda: c.KvTtl(key),
            lambda: c.KvKeys(rng.choice(PATTERNS), rng.choice((None, "", key)), rng.choice((1, 2, 9))),
        )
        return self.tenant(), rng.choice(make)()

    def entry(self, key: str) -> tuple[str, bytes, int, Codec]:
        rng = self.random
        value = rng.choice(
            (b"5", b"-5", b"9223372036854775807", b"007", b"", b"\x05", b"true", b"\xc1", self.payload())
        )
        return key, value, rng.choice(SPANS_MS) if self.chance(0.4) else 0, rng.choice(CODECS)

    # --- schedules -------------------------------------------------------------------------------------

    def schedule(self) -> tuple[str, c.Command[Any]]:
        rng, queue, name = self.random, self.queue(), self.random.choice(WORDS)
        make: tuple[Callable[[], c.Command[Any]], ...] = (
            lambda: c.PutSchedule(queue, name, self.rule()),
            lambda: c.PutSchedule(queue, name, self.rule()),
            lambda: c.PutSchedule(queue, name, self.rule()),
            lambda: c.GetSchedule(queue, name),
            lambda: c.ListSchedules(rng.choice((None, queue)), rng.choice((None, name)), limit=20),
            lambda: c.PauseSchedule(queue, name),
            lambda: c.ResumeSchedule(queue, name),
            lambda: c.RunSchedule(queue, name),
            lambda: c.RunSchedule(queue, name),
            lambda: c.DeleteSchedule(queue, name),
        )
        return self.tenant(), rng.choice(make)()

    def rule(self) -> Schedule:
        """Few rules, so that some are put again; times of the past and of the near future."""
        rng = self.random
        fields: dict[str, Any] = rng.choice(
            (
                {"every_ms": rng.choice((400, 2_000, 60_000))},
                {"every_ms": 3_000, "start_at": rng.choice((0, 1_000_500, 1_020_000))},
                {"every_ms": 500, "end_at": rng.choice((1_010_000, 90_000_000_000))},
                {"at": rng.choice((1_000_100, 1_030_000, 1_100_000, 90_000_000))},
                {"cron": rng.choice(("* * * * *", "*/15 * * * * *", "@hourly"))},
            )
        )
        fields["grace_ms"] = rng.choice((0, 100, 1_500))
        fields["misfire"] = rng.choice(("skip", "once", "all"))
        fields["misfires_max"] = rng.choice((1, 3, 5))
        fields["overlap"] = rng.choice(("allow", "skip", "queue"))
        fields["skip_if_no_worker"] = self.chance(0.3)
        if self.chance(0.3):
            fields["runs_max"] = rng.choice((1, 3))
        if self.chance(0.3):
            fields |= {"payload": b"{slot_ms}", "template": True}
        if self.chance(0.4):
            extra: dict[str, Any] = rng.choice(
                ({}, {"delay_ms": 300}, {"ttl_ms": 2_000}, {"unique_key": "k1"}, {"group_id": "k1"})
            )
            fields["options"] = Options(backoff=PLAIN.backoff, lease_ms=rng.choice((50, 1_000)), **extra)
        else:
            fields["options"] = PLAIN
        return Schedule(**fields)

    # --- looking, and asking for what cannot be --------------------------------------------------------

    def look(self) -> tuple[str, c.Command[Any]]:
        rng = self.random
        tenant, job_id = self.job()
        make: tuple[Callable[[], c.Command[Any]], ...] = (
            lambda: c.GetJob(job_id),
            lambda: c.FindJob(rng.choice(WORDS), rng.choice((None, *QUEUES))),
            lambda: c.FindJob(rng.choice(WORDS)),
            lambda: c.GetLogs(job_id),
            lambda: c.GetPartials(job_id),
            lambda: c.WaitJob(job_id, self.span()),
            lambda: c.Browse(rng.choice((None, *QUEUES)), rng.choice((None, *State)), limit=rng.choice((1, 3, 8))),
            lambda: c.Browse(
                tag=rng.choice((None, "x")), group_id=rng.choice((None, "k1")), after=job_id, ascending=True, limit=5
            ),
            lambda: c.Browse(name=rng.choice(WORDS), limit=5),
            lambda: c.Browse(**self.searched(), limit=5),
            lambda: c.CountJobs(**self.searched()),
            lambda: c.CountJobs(rng.choice((None, *QUEUES)), rng.choice((None, *State))),
            lambda: c.Why(job_id),
            lambda: c.ListQueues(),
            lambda: c.GetQueue(self.queue()),
            lambda: c.GetQueues(rng.choice((None, self.queue())), rng.choice((None, self.queue())), rng.randint(1, 3)),
            lambda: c.GetStats(rng.choice((None, *QUEUES))),
            lambda: c.GetPriorities(self.queue()),
            lambda: c.GetDeadGroups(rng.choice((None, *QUEUES)), 1_000),
            lambda: c.GetTimings(rng.choice((None, *QUEUES))),
        )
        return tenant, rng.choice(make)()

    def searched(self) -> dict[str, Any]:
        """Fields of a search, a few at a time."""
        rng = self.random
        fields: dict[str, Any] = {
            "worker": rng.choice(("w1", "w2", "")),
            "priority": rng.randrange(3),
            "attempts_from": rng.randrange(3),
            "ended_from": self.span() * 20,
            "ended_before": self.span() * 20,
            "reason": rng.choice(("timeout", "stalled", "max_attempts", "cancelled")),
            "fingerprint": rng.choice(("boom", "E: boom", "E: # times")),
            "text": rng.choice(("boom", "E: ", "\x01", "zz")),
            "state": rng.choice(list(State)),
        }
        return {name: fields[name] for name in rng.sample(list(fields), rng.randrange(1, 3))}

    def nonsense(self) -> tuple[str, c.Command[Any]]:
        """Each of these is refused, in whole or in part, whatever the state."""
        rng, queue = self.random, self.queue()
        tenant, job_id = self.job()
        cycle = [Options(depends_on=(Dependency(item=item),)) for item in (1, 0, 0)]
        return tenant, rng.choice(
            (
                c.Push("no such name!", b"x"),
                c.Push(queue, b"x" * 17),
                c.Push(queue, b"x", Options(delay_ms=-1)),
                c.Push(queue, b"x", Options(unique_key="far too long")),
                c.Push(queue, b"x", Options(depends_on=(Dependency(NEVER),))),
                c.PushBatch(queue, []),
                c.PushBatch(queue, [b"x"] * 9),
                c.PushBatch(queue, [b"x"] * 2, each=[Options()]),
                c.PushBatch(queue, [b"x", b"x" * 17], atomic=True),
                c.PushBatch(queue, [b"x"] * 3, each=cycle, atomic=True),
                c.PushBatch(queue, [b"x"] * 3, each=cycle),
                c.Pull([]),
                c.Pull([queue] * 5),
                c.Pull([queue], count=0),
                c.Pull([queue], wait_ms=20_001),
                c.Ack([job_id], tokens=[1, 2]),
                c.Ack([job_id], results=[]),
                c.Ack([job_id], codec="xml"),  # type: ignore[arg-type]
                c.UpdatePayload(job_id, b"", "xml"),  # type: ignore[arg-type]
                c.SetProgress(job_id, 101),
                c.Clean(queue, State.ACTIVE),
                c.SetConcurrency(queue, -1),
                c.SetRateLimit(queue, RateLimit(0)),
                c.Browse(limit=21),
                c.Publish("k1", ["never"]),
                c.KvSet("", b"x"),
                c.KvSet("far too long", b"x"),
                c.KvSet("a", b"x" * 33),
                c.KvSet("a", b"x", -1),
                c.KvSetMany([]),
                c.KvSetMany([c.KvEntry("a", b"1"), c.KvEntry("", b"1")]),
                c.KvSetMany([c.KvEntry(f"a{n}", b"1") for n in range(4)]),
                c.KvGetMany(["a"] * 4),
                c.KvDelete([]),
                c.KvExpire("a", -1),
                c.KvIncrement("a", 2**63),
                c.KvKeys("a*b?c*d"),
                c.KvKeys(limit=10),
                c.PutSchedule(queue, "k1", Schedule()),
                c.PutSchedule(queue, "k1", Schedule(every_ms=99)),
                c.PutSchedule(queue, "k1", Schedule(every_ms=1_000, at=2_000)),
                c.PutSchedule(queue, "k1", Schedule(every_ms=1_000, start_at=5, end_at=5)),
                c.PutSchedule(queue, "k1", Schedule(every_ms=1_000)),  # a grace of a minute is too long for that
                c.PutSchedule(queue, "far too long", Schedule(every_ms=60_000)),
                c.PutSchedule(queue, "k1", Schedule(every_ms=60_000, payload=b"x" * 13)),
                c.PutSchedule(queue, "k1", Schedule(every_ms=60_000, options=Options(delay_ms=-1))),
                c.ListSchedules(limit=21),
            )
        )


def main(arguments: list[str]) -> int:
    from stoker.engine.parking import Parked
    from stoker.engine.shard import Shard
    from stoker.model.errors import Refused
    from stoker.records.codec import encode

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=20_000)
    parser.add_argument("--no-batching", action="store_true")
    chosen = parser.parse_args(arguments)

    driver = Driver(chosen.seed)
    shard = Shard(number=0, settings=Settings(batching=not chosen.no_batching))
    digest = hashlib.sha256()
    now = 1_000_000
    asked: list[tuple[Parked, str, c.Command[Any]]] = []
    for _ in range(chosen.commands):
        passed, tenant, command = driver.draw()
        now += passed
        try:
            reply = shard.execute(tenant, command, now)
        except Refused as error:
            reply = error.code
        if isinstance(reply, Parked):
            asked.append((reply, tenant, command))
        else:
            driver.learn(tenant, command, reply)
        for parked, answer in shard.take_effects():
            for entry in asked:
                if entry[0] is parked:
                    asked.remove(entry)
                    driver.learn(entry[1], entry[2], answer)
                    break
        for record in shard.take_records():
            digest.update(encode(record))
    sys.stdout.write(digest.hexdigest() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
