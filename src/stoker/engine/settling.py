"""Decide what workers report about their deliveries: ack, fail, release, extend, progress, logs."""

from collections.abc import Mapping, Sequence

from stoker.engine import checks, fast_path
from stoker.engine.backoff import delay_ms
from stoker.engine.dependencies import settle
from stoker.engine.ending import cancel_jobs, fail_for_good, in_id_order, lowest, outcome_state, run_of
from stoker.engine.jobs import ACTIVE, CANCELLED, Detail, Members, Part, SingleJob, Slice
from stoker.engine.presence import see
from stoker.engine.shard_state import ShardState
from stoker.engine.state import NamedClaim, QueueState, Tenant
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.options import CODECS, Codec
from stoker.model.reasons import GIVEN_REASONS, Reason
from stoker.model.states import STATES, State
from stoker.records import records as rec

# --- finding deliveries ----------------------------------------------------------------------------


def held_deliveries(
    shard: ShardState, tenant: str, ids: Sequence[int], tokens: c.Tokens
) -> tuple[list[Part], dict[int, str]]:
    """The deliveries that the caller holds, in the order named, and an error code for each other id."""
    if len(ids) > 1:
        whole = _held_run(shard, tenant, ids, tokens)
        if whole is not None:
            return [whole], {}
    parts: list[Part] = []
    refused: dict[int, str] = {}
    seen: set[int] = set()
    place = 0
    while place < len(ids):
        job_id = ids[place]
        token = tokens if tokens is None or isinstance(tokens, int) else tokens[place]
        found, code = _held_one(shard, tenant, job_id, token)
        if found is None or job_id in seen:
            refused.setdefault(job_id, code or ("wrong_state" if token is None else "lost_lease"))
            place += 1
            continue
        stop = place + 1
        if type(found) is Members:
            stop = _neighbours(found, ids, place, tokens, seen)
            found = Members(found.batch, found.start, found.start + stop - place)
        seen.update(ids[place:stop])
        place = stop
        last = parts[-1] if parts else None
        if type(found) is Members and type(last) is Members and _follows(last, found):
            parts[-1] = Members(last.batch, last.start, found.stop)
        else:
            parts.append(found)
    return parts, refused


def _neighbours(member: Members, ids: Sequence[int], place: int, tokens: c.Tokens, seen: set[int]) -> int:
    """Where the run of ids ends that are neighbours of this member in its slice.

    A delivery from batches with holes is a dozen runs in one list. Looked up alone, each id costs 6 us; here 0.1.
    """
    piece = member.slice
    assert piece is not None
    each = None if tokens is None or isinstance(tokens, int) else tokens
    holes, step, job_id = piece.span.holes, member.batch.step, ids[place]
    before = member.start - place
    most = min(len(ids), piece.span.stop - before)
    for at in range(place + 1, most):
        job_id += step
        if ids[at] != job_id or job_id in seen or (holes and before + at in holes):
            return at
        if each is not None and each[at] != piece.token:
            return at
    return most


def _follows(last: Members, member: Members) -> bool:
    """Whether a member of a slice comes right after other members of the same slice."""
    return last.batch is member.batch and last.stop == member.start and last.slice is member.slice


def _held_run(shard: ShardState, tenant: str, ids: Sequence[int], tokens: c.Tokens) -> Part | None:
    """The common case in one look: all ids are neighbours in one slice. Comparing with a range runs at C speed."""
    if tokens is not None and not isinstance(tokens, int):
        return None
    first, step = ids[0], STEP if ids[-1] > ids[0] else -STEP
    expected = range(first, first + step * len(ids), step)
    if ids[-1] != expected[-1] or (ids != expected and list(ids) != list(expected)):
        return None
    found = shard.index.find_batch(first)
    if found is None or shard.index.get(first) is not None:
        return None
    batch, position = found
    piece = batch.slices.find(position)
    if piece is None or batch.step != step or batch.queue.tenant.name != tenant:
        return None
    stop = position + len(ids)
    if tokens is not None and tokens != piece.token:
        return None
    return Members(batch, position, stop) if piece.span.run(position, stop) == stop else None


def _held_one(shard: ShardState, tenant: str, job_id: int, token: int | None) -> tuple[Part | None, str]:
    part = shard.find(job_id)
    if part is None or part.queue.tenant.name != tenant:
        return None, "not_found"
    lease = part.detail if type(part) is SingleJob else part.slice
    if lease is None or shard.state_of(part) != ACTIVE:
        return None, "wrong_state" if token is None else "lost_lease"
    if token is not None and token != lease.token:
        return None, "lost_lease"
    return part, ""


def by_queue(parts: list[Part]) -> list[tuple[QueueState, list[Part]]]:
    """Group the parts by queue, because slots, groups and records belong to a queue."""
    if len(parts) == 1:
        return [(parts[0].queue, parts)]
    queues: dict[int, tuple[QueueState, list[Part]]] = {}
    for part in parts:
        queues.setdefault(id(part.queue), (part.queue, []))[1].append(part)
    return list(queues.values())


def wants_cancel(part: Part) -> bool:
    """Whether the job was marked for cancelling while it ran. A marked job is always a `SingleJob`, never part of a
    batch."""
    return type(part) is SingleJob and part.detail is not None and part.detail.cancel


def check_settling(shard: ShardState, ids: Sequence[int], tokens: c.Tokens) -> None:
    checks.ids(ids, shard.limits)
    if tokens is None or type(tokens) is int:
        return
    if not checks.is_list(tokens) or len(tokens) != len(ids) or not set(map(type, tokens)) <= {int}:  # type: ignore[arg-type]
        raise errors.InvalidRequest("tokens: send one number for all, one for each id, or none")


def check(shard: ShardState, command: c.Ack | c.Fail | c.Release | c.Extend) -> None:
    """Check everything about such a command that does not depend on the state."""
    check_settling(shard, command.ids, command.tokens)
    if isinstance(command, c.Ack):
        check_results(shard, command.ids, command.results)
        checks.codec(command.codec)
    elif isinstance(command, c.Extend):
        if command.lease_ms is not None:
            checks.duration(command.lease_ms, "lease_ms", shard.limits.lease_ms_min)
        checks.flag(command.renew, "renew")
    else:
        if command.delay_ms is not None or isinstance(command, c.Release):
            checks.duration(command.delay_ms, "delay_ms")
        if isinstance(command, c.Release):
            checks.text(command.note, "note", 2**31)
        else:
            for what in ("error", "error_class", "stack"):
                checks.text(getattr(command, what), what, 2**31)
            check_reason(command)


def check_reason(command: c.Fail) -> None:
    if not command.reason:
        return
    if command.reason not in GIVEN_REASONS:
        raise errors.InvalidRequest(
            f"invalid reason {checks.short(command.reason)}: expected one of {', '.join(GIVEN_REASONS)}"
        )
    if command.retry:
        raise errors.InvalidRequest("invalid reason: it says why a job is not tried again, so it needs retry = false")


# --- ack -------------------------------------------------------------------------------------------


def ack(shard: ShardState, tenant: str, command: c.Ack, now: int) -> r.Settled:
    ids = command.ids
    if len(ids) == 1 and command.results is None and type(ids[0]) is int and command.codec == "bytes":
        done = fast_path.ack(shard, tenant, ids[0], command.tokens, now)
        if done is not None:
            return done
    check(shard, command)
    parts, refused = held_deliveries(shard, tenant, command.ids, command.tokens)
    results = None
    if command.results is not None:
        results = dict(zip(reversed(command.ids), reversed(command.results), strict=True))  # the first mention counts
    return complete(shard, parts, refused, results, now, command.codec)


def check_results(shard: ShardState, ids: Sequence[int], results: Sequence[bytes | None] | None) -> None:
    if results is None:
        return
    if len(results) != len(ids):
        raise errors.InvalidRequest(f"{len(ids)} ids but {len(results)} results: send one for each, or none")
    for result in results:
        if result is not None:
            checks.payload(result, shard.limits, "result", shard.limits.result_bytes_max)


def complete(
    shard: ShardState,
    parts: list[Part],
    refused: dict[int, str],
    results: dict[int, bytes | None] | None,
    now: int,
    codec: Codec = "bytes",
) -> r.Settled:
    count = 0
    written = CODECS.index(codec) if results is not None else 0
    for queue, own in by_queue(parts):
        found = None
        if results is not None:
            found = [results.get(job_id) for part in own for job_id in part.ids]
        runs = tuple([run_of(part) for part in own])  # a list is faster than a generator, and most have one run
        count += sum([abs(run.count) for run in runs])
        see(queue, now)
        shard.emit(rec.Completed(now, queue.tenant.name, queue.name, runs, found, written))
    if shard.settling or shard.moved_steps:
        settle(shard, now)
    return r.Settled(count, refused) if refused else r.Settled(count)


# --- fail ------------------------------------------------------------------------------------------


def fail(shard: ShardState, tenant: str, command: c.Fail, now: int) -> r.Failed:
    check(shard, command)
    parts, refused = held_deliveries(shard, tenant, command.ids, command.tokens)
    for part in parts:
        see(part.queue, now)
    most = SHORT_CHARS if shard.is_full is not None and shard.is_full() else shard.limits.stack_chars_max
    error = clip(command.error, min(most, shard.limits.error_chars_max))
    stack = clip(command.stack, min(most, shard.limits.stack_chars_max))
    error_class = clip(command.error_class, shard.limits.key_chars_max)
    outcomes = [
        fail_delivery(
            shard,
            job_id,
            Reason.FAILED,
            now,
            error=error,
            error_class=error_class,
            stack=stack,
            final=None if command.retry else Reason(command.reason or Reason.EXPLICIT_FAIL),
            delay=command.delay_ms,
        )
        for part in parts
        for job_id in part.ids
    ]
    return r.Failed(outcomes, refused) if refused else r.Failed(outcomes)


SHORT_CHARS = 256
"""The length of an error and of a stack while memory is full. A failure is always accepted; its texts are cut."""


def clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def last_lines(text: str, most: int | None) -> str:
    """The last lines of a stack, which tell where it failed."""
    if most is None or not text:
        return text
    return "\n".join(text.splitlines()[-most:]) if most else ""


DEAD_REASONS = {
    Reason.FAILED: Reason.MAX_ATTEMPTS,
    Reason.TIMEOUT: Reason.TIMEOUT,
    Reason.STALLED: Reason.STALLED,
    Reason.CORRUPT: Reason.CORRUPT,
}
"""The reason of a dead letter, by the reason why its last attempt ended."""
CORRUPT_TRIES = 3
"""How often a payload that cannot be read is tried, since the disk may have had a passing fault."""


def fail_delivery(
    shard: ShardState,
    job_id: int,
    reason: Reason,
    at: int,
    *,
    error: str = "",
    error_class: str = "",
    stack: str = "",
    final: Reason | None = None,
    delay: int | None = None,
) -> r.FailedJob:
    """Fail one delivery: the job is tried again, dead (always with a `final` reason), or cancelled if marked."""
    part = shard.part(job_id)
    queue, options = part.queue, part.options
    if wants_cancel(part):
        cancel_jobs(shard, queue, [part], CANCELLED, Reason.CANCELLED, at, error=error, error_class=error_class)
        return r.FailedJob(job_id, STATES[outcome_state(queue, CANCELLED)])
    stack = last_lines(stack, options.stack_lines_max)
    detail = part.detail if type(part) is SingleJob else None
    attempts = detail.attempts if detail else 1
    crashes = (detail.crashes if detail else 0) + (reason == Reason.STALLED)
    dead = final
    if dead is None and reason == Reason.STALLED and options.max_crashes and crashes >= options.max_crashes:
        dead = Reason.WORKER_LOST
    elif dead is None and options.max_attempts and attempts >= options.max_attempts:
        dead = DEAD_REASONS[reason]
    elif reason == Reason.CORRUPT and attempts >= CORRUPT_TRIES:
        dead = Reason.CORRUPT
    if dead is not None:
        fail_for_good(shard, job_id, dead, at, error=error, error_class=error_class, stack=stack, delivery=reason)
        return r.FailedJob(job_id, State.FAILED)
    if delay is None:
        delay = delay_ms(options.backoff, attempts, shard.settings.seed, job_id)
    due = at + delay if delay else 0
    shard.emit(rec.Retrying(at, queue.tenant.name, queue.name, run_of(part), reason, due, error, error_class, stack))
    return r.FailedJob(job_id, State.DELAYED if due else State.WAITING, due)


def fail_unreadable(shard: ShardState, unread: Mapping[int, str], at: int) -> None:
    """Fail deliveries whose payloads could not be read, so that no worker got them. They are tried again, then dead
    letters.
    """
    for job_id, why in unread.items():
        error = clip(why, shard.limits.error_chars_max)
        fail_delivery(shard, job_id, Reason.CORRUPT, at, error=error, error_class="Damaged")


def hand_back_unread(shard: ShardState, ids: Sequence[int], at: int) -> None:
    """Return deliveries whose payloads cannot be read for now: they are as if never pulled."""
    parts = [part for job_id in ids if (part := shard.find(job_id)) is not None]
    hand_back(shard, parts, {}, 0, at)


# --- release, extend -------------------------------------------------------------------------------


def release(shard: ShardState, tenant: str, command: c.Release, now: int) -> r.Settled:
    check(shard, command)
    parts, refused = held_deliveries(shard, tenant, command.ids, command.tokens)
    return hand_back(shard, parts, refused, command.delay_ms, now, clip(command.note, shard.limits.error_chars_max))


def hand_back(
    shard: ShardState, parts: list[Part], refused: dict[int, str], delay: int, now: int, note: str = ""
) -> r.Settled:
    count = 0
    due = now + delay if delay else 0
    for queue, own in by_queue(parts):
        runs = [run_of(part) for part in own if not wants_cancel(part)]
        count += sum(abs(run.count) for run in runs)
        if runs:
            shard.emit(rec.JobsReleased(now, queue.tenant.name, queue.name, runs, due, note))
        for part in own:
            if wants_cancel(part):
                count += 1
                cancel_jobs(shard, queue, [part], CANCELLED, Reason.CANCELLED, now)
    return r.Settled(count, refused) if refused else r.Settled(count)


def extend(shard: ShardState, tenant: str, command: c.Extend, now: int) -> r.Extended:
    check(shard, command)
    parts, refused = held_deliveries(shard, tenant, command.ids, command.tokens)
    if not command.renew:
        return looked_at(parts, refused)
    return prolong(shard, parts, refused, command.lease_ms, now)


def looked_at(parts: list[Part], refused: dict[int, str]) -> r.Extended:
    """The answer of a renewal, with the leases as they are."""
    leases = [lease_of(part) for part in parts]
    until = max((lease.lease_until for lease in leases), default=0)
    return r.Extended(sum(len(part.ids) for part in parts), until, refused, marked(parts))


def prolong(
    shard: ShardState, parts: list[Part], refused: dict[int, str], lease_ms: int | None, now: int
) -> r.Extended:
    count, until = 0, 0
    for queue, own in by_queue(parts):
        runs = [(run.first, run.count) for run in map(run_of, own)]
        count += sum(abs(jobs) for _, jobs in runs)
        until = max(until, *(lease_end(part, lease_ms, now) for part in own))
        shard.emit(rec.LeasesExtended(now, queue.tenant.name, queue.name, runs, lease_ms))
    return r.Extended(count, until, refused, marked(parts))


def marked(parts: list[Part]) -> list[int]:
    """The jobs that are marked for cancelling."""
    return [part.id for part in parts if type(part) is SingleJob and wants_cancel(part)]


def lease_of(part: Part) -> Detail | Slice:
    lease = part.detail if type(part) is SingleJob else part.slice
    assert lease is not None
    return lease


def lease_end(part: Part, lease_ms: int | None, now: int) -> int:
    return now + (lease_of(part).lease_ms if lease_ms is None else lease_ms)


# --- claims ----------------------------------------------------------------------------------------


def ack_claim(shard: ShardState, tenant: str, command: c.AckClaim, now: int) -> r.Settled:
    for result in command.results.values():
        checks.payload(result, shard.limits, "result", shard.limits.result_bytes_max)
    checks.codec(command.codec)
    parts = claim_parts(shard, tenant, command.claim)
    results: dict[int, bytes | None] | None = {**command.results} if command.results else None
    return complete(shard, parts, {}, results, now, command.codec)


def release_claim(shard: ShardState, tenant: str, command: c.ReleaseClaim, now: int) -> r.Settled:
    return hand_back(shard, claim_parts(shard, tenant, command.claim), {}, 0, now)


def extend_claim(shard: ShardState, tenant: str, command: c.ExtendClaim, now: int) -> r.Extended:
    if command.lease_ms is not None:
        checks.duration(command.lease_ms, "lease_ms", shard.limits.lease_ms_min)
    return prolong(shard, claim_parts(shard, tenant, command.claim), {}, command.lease_ms, now)


def claim_parts(shard: ShardState, tenant: str, name: str) -> list[Part]:
    checks.key(name, "claim", shard.limits)
    found: Tenant | None = shard.tenants.get(tenant)
    claim = found.claims.get(name) if found else None
    if claim is None:
        raise errors.NotFound(f"claim {name!r} not found: it never had a job, or is forgotten")
    return claimed_parts(shard, tenant, claim, name)


def claimed_parts(shard: ShardState, tenant: str, claim: NamedClaim, name: str) -> list[Part]:
    """The deliveries still held under a claim, in id order."""
    parts: list[Part] = []
    for first, count in claim.runs:
        step = STEP if count > 0 else -STEP
        jobs = range(first, first + step * abs(count), step)
        found, _ = held_deliveries(shard, tenant, jobs, claim.token)
        parts += [piece for part in found if is_claimed(part, name) for piece in in_id_order(part)]
    return sorted(parts, key=lowest)


def is_claimed(part: Part, name: str) -> bool:
    lease = part.detail if type(part) is SingleJob else part.slice
    return lease is not None and lease.claim == name


# --- progress, logs, partial results ---------------------------------------------------------------


def set_progress(shard: ShardState, tenant: str, command: c.SetProgress, now: int) -> r.Done:
    checks.number(command.percent, "percent", 0, 100)
    checks.text(command.message, "message", shard.limits.message_chars_max)
    queue = held_or_raise(shard, tenant, command.id, command.token)
    shard.emit(rec.Progressed(now, tenant, queue.name, command.id, command.percent, command.message))
    return r.Done()


def append_partial(shard: ShardState, tenant: str, command: c.AppendPartial, now: int) -> r.Done:
    checks.payload(command.data, shard.limits, "data", shard.limits.result_bytes_max)
    if command.index is not None:
        checks.number(command.index, "index", 0, 2**53 - 1)
    checks.codec(command.codec)
    queue = held_or_raise(shard, tenant, command.id, command.token)
    job = shard.index.get(command.id)
    index = command.index
    if index is None:
        index = job.detail.next_chunk if job is not None and job.detail is not None else 0
    codec = CODECS.index(command.codec)
    shard.emit(rec.PartialAdded(now, tenant, queue.name, command.id, index, command.data, codec))
    return r.Done()


def append_log(shard: ShardState, tenant: str, command: c.AppendLog, now: int) -> r.Done:
    checks.text(command.message, "message", 2**31)
    checks.text(command.level, "level", 32, 1)
    if command.token is not None:
        queue = held_or_raise(shard, tenant, command.id, command.token)
    else:
        queue = shard.live_or_dead(tenant, command.id, "be logged to").queue
    message = clip(command.message, shard.limits.log_line_chars_max)
    shard.emit(rec.Logged(now, tenant, queue.name, command.id, command.level, message))
    return r.Done()


def held_or_raise(shard: ShardState, tenant: str, job_id: int, token: int | None) -> QueueState:
    check_settling(shard, (job_id,), token)
    part, code = _held_one(shard, tenant, job_id, token)
    if part is None:
        raise errors.BY_CODE[code](f"job {checks.short(job_id)}: {REFUSED[code]}")
    return part.queue


REFUSED: dict[str, str] = {
    "not_found": "job not found: it never existed, is forgotten, or belongs to another tenant",
    "lost_lease": "its lease ended, or it was already settled; discard its outcome",
    "wrong_state": "it is not active: pull it first",
}
