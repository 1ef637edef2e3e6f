"""Decide pulls: which jobs can be taken now, which pulls wait, and when the next chance is."""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any

import msgspec

from stoker.engine import checks, fast_path
from stoker.engine import deadlines as kinds
from stoker.engine.apply.delivery import start_job, start_members
from stoker.engine.apply.moves import is_due_entry
from stoker.engine.ending import run_of
from stoker.engine.jobs import ACTIVE, Members, Part, SingleJob
from stoker.engine.parking import Parked, park
from stoker.engine.presence import see
from stoker.engine.settling import claimed_parts
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.records import records as rec

EMPTY = r.Delivery()


def pull(shard: ShardState, tenant: str, command: c.Pull, now: int) -> "r.Delivery | Parked":
    check_pull(shard, command)
    if command.claim is None and len(command.queues) == 1:
        queue = shard.known_queue(tenant, command.queues[0])
        if queue is not None:
            found = pull_first(shard, queue, command, now)
            if found is not None:
                return found
    for name in command.queues:
        if type(name) is not str or shard.known_queue(tenant, name) is None:
            checks.name(name)  # names of existing queues were checked when the queue was created
    if command.claim is not None:
        claimed = reread_claim(shard, tenant, command.claim)
        if claimed is not None:
            return claimed
    delivery = dispatch(shard, tenant, command, now)
    if delivery is not None:
        return delivery
    if command.wait_ms:
        return park(shard, tenant, command, now)
    return r.Delivery(next_at=next_chance(shard, tenant, command.queues, now))


def check_pull(shard: ShardState, command: c.Pull) -> None:
    limits, count = shard.limits, command.count
    if not command.queues or type(command.queues) is str:
        raise errors.InvalidRequest("no queues: name at least one, in a list")
    if len(command.queues) > 1:
        checks.count(len(command.queues), "number of queues", limits.queues_per_pull_max)
    if type(count) is not int or not 0 < count <= limits.pull_jobs_max:
        checks.count(count, "count", limits.pull_jobs_max)
    if command.wait_ms:
        checks.count(command.wait_ms, "wait_ms", limits.wait_ms_max, 0)
    if command.worker != "":
        checks.text(command.worker, "worker", limits.key_chars_max)
    if command.lease_ms is not None:
        checks.duration(command.lease_ms, "lease_ms", limits.lease_ms_min)
    if command.claim is not None:
        checks.key(command.claim, "claim", limits)


def pull_first(shard: ShardState, queue: QueueState, command: c.Pull, now: int) -> r.Delivery | None:
    """The first job of the only queue of a pull, on the short path, if that is all that the pull can get."""
    if not queue.is_free or (command.count != 1 and queue.ready.size != 1):
        return None
    queue.worker_seen_at = now
    return fast_path.pull(shard, queue, command, now)


def dispatch(shard: ShardState, tenant: str, command: c.Pull, now: int) -> r.Delivery | None:
    """Take what can be taken, from the queues in the order given; None if there is nothing."""
    found = shard.tenants.get(tenant)
    if found is None:
        return None
    room = PullRoom(command.count, shard.limits.reply_bytes_max)
    token = shard.token + 1
    runs: list[r.Run] = []
    for name in command.queues:
        queue = found.queues.get(name)
        if queue is not None:
            see(queue, now)
            take(shard, queue, room, token, command, now, runs)
            if not room.jobs:
                break
    return r.Delivery(token, runs) if runs else None


class PullRoom:
    """What still fits into a delivery."""

    __slots__ = ("bytes", "jobs")

    def __init__(self, jobs: int, size: int) -> None:
        self.jobs, self.bytes = jobs, size

    def fitting(self, run: rec.JobRun, is_first: bool) -> int:
        """How many jobs of a run fit. A delivery holds at least one. 0 means that it is full."""
        sizes, jobs = run.sizes, abs(run.count)
        total = sizes * jobs if type(sizes) is int else sum(sizes)  # type: ignore[arg-type]
        if total > self.bytes:
            jobs = fitting(sizes, jobs, self.bytes) or int(is_first)
            self.bytes = 0
        else:
            self.bytes -= total
        self.jobs -= jobs
        return jobs


def fitting(sizes: int | Sequence[int], jobs: int, most: int) -> int:
    """How many of the first jobs have at most `most` bytes together."""
    if isinstance(sizes, int):
        return min(jobs, most // sizes) if sizes else jobs
    return sum(1 for total in accumulate(sizes) if total <= most)


def capacity(queue: QueueState, most: int, now: int) -> int:
    """How many jobs may start: pause, free slots and rate limit allow no more."""
    if queue.paused:
        return 0
    if queue.concurrency:
        most = min(most, queue.concurrency - queue.scope.counts[ACTIVE])
    if queue.bucket is not None:
        most = min(most, queue.bucket.available(now))
    return max(0, most)


def take(
    shard: ShardState, queue: QueueState, room: PullRoom, token: int, command: c.Pull, now: int, delivered: list[r.Run]
) -> None:
    """Start jobs of one queue while there is room. They are one record, applied run by run, since each run decides the
    next.
    """
    left = room.jobs if queue.is_free else capacity(queue, room.jobs, now)
    record: rec.Started | None = None
    runs: list[rec.JobRun] = []
    while left:
        front = queue.ready.front_run(left)
        if front is None:
            break
        entry, jobs = front
        if type(entry) is SingleJob:
            part: Part = entry
        else:
            part = Members(entry, entry.waiting.start, entry.waiting.start + jobs)
        run = run_of(part)
        fits = room.fitting(run, not delivered)
        if fits < jobs:
            if not fits:
                room.jobs = 0
                break
            assert type(part) is Members
            jobs, part = fits, Members(part.batch, part.start, part.start + fits)
            run = run_of(part)
        if record is None:
            record = rec.Started(
                now, queue.tenant.name, queue.name, token, command.worker, command.lease_ms, command.claim, ()
            )
            shard.records.append(record)  # before anything changes, so that an interrupted turn is recognised as one
        lease_until = now + (entry.options.lease_ms if command.lease_ms is None else command.lease_ms)
        if type(entry) is SingleJob:
            payloads: Any = [
                entry.payload
            ]  # stored payloads are read when the reply leaves: runtime/payload_loading.py
            start_job(shard, queue, record, run, entry)
        else:
            assert type(part) is Members
            payloads = entry.payloads[part.start : part.stop]
            start_members(shard, queue, record, run, part)
        delivered.append(
            r.Run(queue.name, part.ids, payloads, entry.options, run.attempt + 1, run.pushed_at, lease_until)
        )
        runs.append(run)
        left -= jobs
        if not room.bytes:
            room.jobs = 0
            break
    if record is not None:
        shard.records[-1] = msgspec.structs.replace(record, runs=tuple(runs))


def next_chance(shard: ShardState, tenant: str, queues: Sequence[str], now: int) -> int | None:
    """The earliest known time at which one of the queues may have a job to give."""
    found = shard.tenants.get(tenant)
    times = [time for name in queues if found and name in found.queues for time in chances(found.queues[name], now)]
    return min(times, default=None)


def chances(queue: QueueState, now: int) -> list[int]:
    if queue.paused:
        return []
    times = []
    if queue.delayed:
        due = min((entry[0] for entry in queue.delayed[:1] if is_due_entry(entry)), default=None)
        if due is None:
            due = min((entry[0] for entry in queue.delayed if is_due_entry(entry)), default=None)
        if due is not None:
            times.append(due)
    if queue.bucket is not None and not queue.bucket.available(now) and queue.ready.front() is not None:
        times.append(queue.bucket.next_at(now))
    return times


def reread_claim(shard: ShardState, tenant: str, name: str) -> r.Delivery | None:
    """The jobs that are still held under a claim; None if there is no such claim."""
    found = shard.tenants.get(tenant)
    claim = found.claims.get(name) if found else None
    if claim is None:
        return None
    runs = [delivered_run(part) for part in claimed_parts(shard, tenant, claim, name)]
    return r.Delivery(claim.token, runs)


def delivered_run(part: Part) -> r.Run:
    """A delivery again, as its pull brought it."""
    payloads: Any  # stored payloads are read when the reply leaves: runtime/payload_loading.py
    if type(part) is SingleJob:
        detail = part.details()
        payloads = (part.payload,)
        return r.Run(
            part.queue.name,
            (part.id,),
            payloads,
            part.options,
            detail.attempts,
            part.pushed_at,
            detail.lease_until,
        )
    piece = part.slice
    assert piece is not None
    payloads = part.batch.payloads[part.start : part.stop]
    return r.Run(part.queue.name, part.ids, payloads, part.options, 1, part.pushed_at, piece.lease_until)


# --- waiting pulls ---------------------------------------------------------------------------------


def serve(shard: ShardState, now: int) -> None:
    """Answer waiting pulls for which something has become possible, first come first served over all queues."""
    touched: dict[QueueState, None] = {}
    line: list[tuple[int, int, QueueState]] = []
    while True:
        for queue in shard.dirty:
            touched[queue] = None
            stand_in_line(line, queue, now)
        shard.dirty.clear()
        if not line:
            break
        arrival, _, queue = heappop(line)
        parked = first_waiter(queue)
        if parked is not None and parked.arrival == arrival and can_deliver(queue, now):
            shard.answer(parked, deliver(shard, parked, queue, now))
        stand_in_line(line, queue, now)
    for queue in touched:
        if queue.waiters:
            arm_refill(shard, queue, now)
        shard.drop_unknown(queue)


def stand_in_line(line: list[tuple[int, int, QueueState]], queue: QueueState, now: int) -> None:
    """Put the first pull that waits for this queue into the line, if there is something for it."""
    parked = first_waiter(queue)
    if parked is not None and can_deliver(queue, now):
        heappush(line, (parked.arrival, id(queue), queue))


def deliver(shard: ShardState, parked: Parked, queue: QueueState, now: int) -> r.Delivery:
    """What a waiting pull gets now that this queue has something for it.

    If another pull has made its claim in the meantime, it gets what that claim holds.
    """
    command = parked.command
    assert type(command) is c.Pull
    delivery = None
    if command.claim is not None:
        delivery = reread_claim(shard, parked.tenant, command.claim)
    elif len(command.queues) == 1:
        delivery = pull_first(shard, queue, command, now)
    if delivery is None:
        delivery = dispatch(shard, parked.tenant, command, now)
    assert delivery is not None
    return delivery


def see_all(shard: ShardState, parked: Parked) -> None:
    """A worker has waited for nothing; it was there until now."""
    command, found = parked.command, shard.tenants.get(parked.tenant)
    assert type(command) is c.Pull
    for name in command.queues:
        if found is not None and name in found.queues:
            see(found.queues[name], parked.expires_at)


def first_waiter(queue: QueueState) -> Parked | None:
    while queue.waiters and queue.waiters[0].done:
        queue.waiters.popleft()
    return queue.waiters[0] if queue.waiters else None


def can_deliver(queue: QueueState, now: int) -> bool:
    return (queue.is_free or capacity(queue, 1, now) > 0) and queue.ready.front() is not None


def arm_refill(shard: ShardState, queue: QueueState, now: int) -> None:
    """A pull waits for a rate limit: arm a deadline for the next token."""
    if queue.bucket is None or queue.paused or queue.bucket.available(now) or queue.ready.front() is None:
        return
    at = queue.bucket.next_at(now)
    if queue.refill_armed <= now or at < queue.refill_armed:
        queue.refill_armed = at
        shard.deadlines.arm(at, kinds.REFILL, queue)
