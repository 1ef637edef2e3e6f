"""The engine and the reference side by side: every command goes to both, and they must not differ.

Tokens are the one thing that each numbers for itself: they are compared by the order in which they were issued.
Commands are written in the reference's tokens and translated for the engine.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stoker.engine.audit import audit
from stoker.engine.parking import Parked as EngineParked
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Refused
from stoker.model.ids import STEP
from stoker.model.limits import Limits
from stoker.model.options import DeadLetterPolicy, Options, Retention, Settings
from stoker.records.codec import decode, encode
from stoker.runtime.calendar import IanaCalendar
from tests.model.reference import OWN_WORDS, Parked, Reference

START = 1_000_000
OK = "ok"

LIMITS = Limits(
    payload_bytes_max=16,
    result_bytes_max=8,
    batch_jobs_max=8,
    pull_jobs_max=9,
    queues_per_pull_max=4,
    queues_per_tenant_max=4,
    key_chars_max=8,
    tags_max=2,
    tag_chars_max=4,
    depends_on_max=4,
    error_chars_max=8,
    stack_chars_max=8,
    log_lines_max=3,
    log_line_chars_max=8,
    partials_max=3,
    attempt_history_max=2,
    message_chars_max=8,
    trace_chars_max=8,
    browse_jobs_max=20,
    wait_ms_max=20_000,
    stages_per_transaction_max=2,
    kv_key_chars_max=8,
    kv_value_bytes_max=32,
    kv_batch_max=3,
    kv_entries_per_tenant_max=5,
    kv_wildcards_max=2,
    kv_keys_max=9,
    schedules_per_tenant_max=4,
    schedule_interval_ms_min=100,
    schedule_payload_bytes_max=12,
    schedule_cron_chars_max=16,
    schedule_catch_up_max=5,
)
"""So small that everything is reached, and exceeded, by chance."""

SMALL = Settings(
    retention=Retention(completed_age_ms=20_000, completed_count=4),
    dead_letters=DeadLetterPolicy(entries_max=3, age_ms_max=30_000),
    stage_ttl_ms=5_000,
    transaction_ttl_ms=10_000,
    claim_ttl_ms=3_000,
    request_ttl_ms=8_000,
)


def plain(value: Any) -> Any:
    """A reply as data that compares by content: ranges and tuples as lists, deliveries and runs job by job."""
    if value is None or isinstance(value, int | str | bytes | Options):
        return value
    if isinstance(value, r.Delivery):
        return {"delivery": [plain(job) for job in value], "token": value.token, "next_at": value.next_at}
    if isinstance(value, r.Transaction):
        ids = [first + n * STEP for first, count in value.runs for n in range(count)]
        return {"transaction": value.outcome, "created": value.created, "ids": ids}
    if isinstance(value, r.Refusal):
        return value.code
    if isinstance(value, msgspec.Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name != "looked"}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    assert isinstance(value, Sequence), f"{type(value)} in a reply"
    return [plain(item) for item in value]


def brief(value: Any) -> str:
    """Like repr, without the fields that have their defaults: options have many."""
    if isinstance(value, msgspec.Struct):
        fields = [
            f"{field.name}={brief(getattr(value, field.name))}"
            for field in msgspec.structs.fields(value)
            if getattr(value, field.name) != field.default
        ]
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {brief(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(brief(item) for item in value) + "]"
    return repr(value)


def differences(expected: Any, got: Any, path: str = "") -> Iterator[str]:
    """Where two plain replies differ, one line a place."""
    if expected == OWN_WORDS and isinstance(got, str) and got:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            yield from differences(expected.get(key, "nothing"), got.get(key, "nothing"), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for position, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from differences(one, other, f"{path}[{position}]")
    elif expected != got:
        yield f"{path or 'reply'}: the reference says {brief(expected)}, the engine {brief(got)}"


class Pair:
    def __init__(self, settings: Settings = SMALL, limits: Limits = LIMITS) -> None:
        self.settings = settings
        self.limits = limits
        self.engine = Shard(number=0, settings=settings, limits=limits)
        self.engine.calendar = IanaCalendar()
        self.reference = Reference(settings, limits)
        self.now = START
        self.records: list[Any] = []
        self.reached: Counter[tuple[str, str]] = Counter()
        self.item_codes: Counter[str] = Counter()
        self.tokens: dict[int, int] = {}
        self.parked: list[tuple[EngineParked, Parked]] = []
        self.answered = 0

    # --- one step ------------------------------------------------------------------------------------

    def advance(self, by_ms: int) -> list[tuple[Parked, Any]]:
        """Time passes. Answers to those who waited."""
        self.now += by_ms
        self.engine.advance(self.now)
        self.reference.advance(self.now)
        self.records += self.engine.take_records()
        return self.compare_answers()

    def execute(self, tenant: str, command: c.Command[Any]) -> tuple[Any, list[tuple[Parked, Any]]]:
        """The reference's reply (or error code, or `Parked`) and the answers to others, after comparing both."""
        before = self.advance(0)
        expected = self.outcome(self.reference, tenant, command)
        got = self.outcome(self.engine, tenant, self.translated(command))
        records = self.engine.take_records()
        self.records += records
        self.measure(command, expected)

        if isinstance(expected, str) or isinstance(got, str):
            assert got == expected, self.difference(tenant, command, expected, got)
            assert records == [], f"a refused command left a trace: {command} {records}"
        elif isinstance(expected, Parked) or isinstance(got, EngineParked):
            assert isinstance(expected, Parked), self.difference(tenant, command, expected, got)
            assert isinstance(got, EngineParked), self.difference(tenant, command, expected, got)
            self.parked.append((got, expected))
        else:
            self.compare(tenant, command, expected, got)
        answers = self.compare_answers()
        audit(self.engine)
        return expected, before + answers

    def measure(self, command: c.Command[Any], reply: Any) -> None:
        """What the workload reaches: each command with each outcome, and the codes of refused items."""
        self.reached[type(command).__name__, reply if isinstance(reply, str) else OK] += 1
        for refusal in getattr(reply, "refused", {}).values():
            self.item_codes[refusal.code if isinstance(refusal, r.Refusal) else refusal] += 1

    def outcome(self, side: Any, tenant: str, command: c.Command[Any]) -> Any:
        try:
            return side.execute(tenant, command, self.now)
        except Refused as error:
            return error.code

    def compare(self, tenant: str, command: c.Command[Any], expected: Any, got: Any) -> None:
        if isinstance(expected, r.Delivery) and isinstance(got, r.Delivery) and expected.token:
            if expected.token not in self.tokens:
                assert got.token > max(self.tokens.values(), default=0), f"token {got.token} is not new"
                self.tokens[expected.token] = got.token
            expected = msgspec.structs.replace(expected, token=self.tokens[expected.token])
        if isinstance(expected, r.Page) and isinstance(got, r.Page):
            self.compare_page(tenant, command, got)
            return
        if isinstance(expected, r.Counted) and isinstance(got, r.Counted):
            expected, got = expected.count, self.counted(tenant, command, got)
        found = list(differences(plain(expected), plain(got)))
        assert not found, "\n".join([f"at {self.now}, {tenant}: {brief(command)}", *found])

    def counted(self, tenant: str, command: Any, first: r.Counted) -> int:
        """The sum of all steps of a count."""
        count, step = first.count, first
        while step.next_after is not None:
            again = msgspec.structs.replace(command, after=step.next_after)
            step = self.engine.execute(tenant, again, self.now)
            count += step.count
        return count

    def compare_page(self, tenant: str, command: Any, got: r.Page) -> None:
        """A page may be short of its limit, but what it leaves out must come after `next_after`."""
        whole = self.everything(tenant, command)
        count = len(got.jobs)
        found = list(differences(plain(whole[:count]), plain(got.jobs)))
        assert not found, "\n".join([f"at {self.now}, {tenant}: {brief(command)}", *found])
        assert count <= command.limit
        rest = [] if got.next_after is None else self.everything(tenant, command, got.next_after)
        assert [job.id for job in rest] == [job.id for job in whole[count:]], f"{brief(command)}: {got.next_after}"

    def everything(self, tenant: str, command: Any, after: int | None = None) -> list[r.JobView]:
        """All that the reference has for this command, from all pages."""
        found: list[r.JobView] = []
        after = command.after if after is None else after
        command = msgspec.structs.replace(command, after=after, limit=self.limits.browse_jobs_max)
        while True:
            page = self.reference.execute(tenant, command, self.now)
            found += page.jobs
            if page.next_after is None:
                return found
            command = msgspec.structs.replace(command, after=page.next_after)

    def difference(self, tenant: str, command: c.Command[Any], expected: Any, got: Any) -> str:
        return f"at {self.now}, {tenant}: {brief(command)}\nreference: {brief(expected)}\nengine: {brief(got)}"

    def compare_answers(self) -> list[tuple[Parked, Any]]:
        """Whoever was answered on one side was answered the same on the other."""
        new = self.reference.answers[self.answered :]
        self.answered = len(self.reference.answers)
        effects = list(self.engine.take_effects())
        for expected_parked, expected in new:
            [waiting] = [waiting for waiting, ours in self.parked if ours is expected_parked]
            self.parked = [entry for entry in self.parked if entry[1] is not expected_parked]
            replies = [reply for other, reply in effects if other is waiting]
            assert len(replies) == 1, self.difference(
                expected_parked.tenant, expected_parked.command, expected, replies
            )
            self.compare(expected_parked.tenant, expected_parked.command, expected, replies[0])
        assert len(effects) == len(new), f"the engine answered too much: {effects}, not {new}"
        return new

    def translated(self, command: c.Command[Any]) -> c.Command[Any]:
        """The same command in the engine's tokens."""
        if isinstance(getattr(command, "token", None), int):
            return msgspec.structs.replace(command, token=self.engine_token(command.token))  # type: ignore[attr-defined]
        tokens = getattr(command, "tokens", None)
        if tokens is None:
            return command
        if isinstance(tokens, int):
            return msgspec.structs.replace(command, tokens=self.engine_token(tokens))
        return msgspec.structs.replace(command, tokens=[self.engine_token(token) for token in tokens])

    def engine_token(self, token: int) -> int:
        return self.tokens.get(token, 10**12 + token)

    # --- everything that can be seen -----------------------------------------------------------------

    def observe(self, tenants: Sequence[str], queues: Sequence[str], custom_ids: Sequence[str] = ()) -> None:
        """Look at everything through both, as each tenant."""
        self.advance(0)
        looks: list[c.Command[Any]] = [c.GetJob(number * STEP) for number in range(self.reference.jobs_given + 2)]
        for queue in queues:
            looks += [c.GetStats(queue), c.GetQueue(queue), c.ListDead(queue, limit=20), c.GetDeadStats(queue)]
            looks += [c.GetPriorities(queue), c.GetTimings(queue), c.GetDeadGroups(queue, 1_000)]
            looks += [c.FindJob(custom_id, queue) for custom_id in custom_ids]
        looks += [c.GetStats(), c.ListQueues(), c.GetQueues(), *(c.FindJob(custom_id) for custom_id in custom_ids)]
        for tenant in tenants:
            for command in looks:
                seen = self.look(tenant, command)
                if isinstance(seen, r.JobView) and isinstance(command, c.GetJob):
                    for closer in (c.Why, c.GetLogs, c.GetPartials):
                        self.look(tenant, closer(seen.id))
            self.turn_pages(tenant, c.Browse(limit=19))
            for key in self.look(tenant, c.KvKeys(limit=9)).keys:
                self.look(tenant, c.KvGet(key))
            for schedule in self.look(tenant, c.ListSchedules(limit=20)).schedules:
                self.look(tenant, c.GetSchedule(schedule.queue, schedule.name))
            for queue in queues:
                self.turn_pages(tenant, c.Browse(queue, limit=5, ascending=True))
                self.turn_pages(tenant, c.ListDead(queue, limit=2))
        assert self.engine.take_records() == [], "looking changed something"

    def look(self, tenant: str, command: c.Command[Any]) -> Any:
        expected = self.outcome(self.reference, tenant, command)
        got = self.outcome(self.engine, tenant, command)
        if isinstance(expected, str) or isinstance(got, str):
            assert got == expected, self.difference(tenant, command, expected, got)
        else:
            self.compare(tenant, command, expected, got)
        return got

    def turn_pages(self, tenant: str, command: c.Browse | c.ListDead) -> None:
        for _ in range(self.reference.jobs_given + 2):
            page = self.look(tenant, command)
            if not isinstance(page, r.Page) or page.next_after is None:
                return
            command = msgspec.structs.replace(command, after=page.next_after)
        raise AssertionError(f"the pages never end: {brief(command)}")

    # --- the end -------------------------------------------------------------------------------------

    def compare_replay(self) -> None:
        """The records alone give the same shard again."""
        self.records += self.engine.take_records()
        read = [decode(encode(record)) for record in self.records]
        again = replay(read, number=0, settings=self.settings, limits=self.limits)
        assert dump(again) == dump(self.engine)

    def states_reached(self) -> set[tuple[str, str]]:
        return {(str(before), str(after)) for _, before, after in self.reference.steps}
