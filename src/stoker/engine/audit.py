"""Check everything that must always be true of a shard, by recomputing it from the jobs.

Tests call it after every step, and recovery after every start. It trusts no counter, index or heap.
"""

from collections import Counter

from stoker.engine import deadlines as kinds
from stoker.engine.apply import kv as apply_kv
from stoker.engine.apply import schedules as apply_schedules
from stoker.engine.apply import transactions as apply_transactions
from stoker.engine.apply.moves import is_due_entry
from stoker.engine.jobs import ACTIVE, BLOCKED, DELAYED, FAILED, LIVE_BYTES, WAITING, Part, SingleJob, UniformBatch
from stoker.engine.retained_jobs import serial_of, size_of
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState, Scope, Tenant
from stoker.engine.state_dump import ready_ids
from stoker.engine.workflow_state import OPEN, ShardWorkflow, blocking_step, failed_before, lets_start
from stoker.model.ids import shard_of


def audit(shard: ShardState) -> None:
    """Raise AssertionError if something is wrong, and say what."""
    parts = [part for entry in shard.index.walk(None, ascending=True) if (part := shard.member(entry)) is not None]
    _ids_ascend(parts)
    _counters(shard, parts)
    _batches(shard)
    armed = Counter((at, id(holder)) for at, kind, _, holder in shard.deadlines.heap if kind == kinds.LEASE)
    for part in parts:
        _job(shard, part, armed)
    for tenant in shard.tenants.values():
        _claims(shard, tenant, parts)
        _kv(shard, tenant)
        _flows(shard, tenant, parts)
        _schedules(shard, tenant)
        for queue in tenant.queues.values():
            own = [part for part in parts if part.queue is queue]
            _queue(shard, queue, own)
            assert queue.dead_groups.letters == set(queue.dead), f"the groups of {queue.name} have other dead letters"
            oldest = min((part.pushed_at for part in own if shard.state_of(part) == WAITING), default=0)
            assert queue.ready.oldest_at() == oldest, f"{queue.name} does not know its oldest waiting job"
    _memory(shard)
    assert not shard.moved_steps and not shard.watching, "a changed step or a watched job was not reported"
    assert not shard.settling and not shard.dirty and not shard.ended_waits, "something was left undecided"


def _ids_ascend(parts: list[Part]) -> None:
    ids = [part.lowest for part in parts]
    assert ids == sorted(set(ids)), "a job is in two places, or the index is out of order"


def _counters(shard: ShardState, parts: list[Part]) -> None:
    expected: dict[int, list[int]] = {}
    shard.add_up()
    scopes: dict[int, Scope] = {id(shard.scope): shard.scope}
    for tenant in shard.tenants.values():
        scopes[id(tenant.scope)] = tenant.scope
        scopes |= {id(queue.scope): queue.scope for queue in tenant.queues.values()}
    for part in parts:
        queue = part.queue
        for scope in queue.scopes:
            expected.setdefault(id(scope), [0] * 9)[shard.state_of(part)] += 1
    for queue, live in shard.index.live_bytes().items():
        for scope in queue.scopes:
            expected.setdefault(id(scope), [0] * 9)[LIVE_BYTES] += live
    for key, scope in scopes.items():
        assert scope.counts == expected.get(key, [0] * 9), f"counters say {scope.counts}, jobs say {expected.get(key)}"
        assert min(scope.totals) >= 0, f"a total is negative: {scope.totals}"


def _memory(shard: ShardState) -> None:
    found = shard.index.bytes_found()
    for tenant in shard.tenants.values():
        found += sum(apply_kv.size_of(key, tenant.kv[key]) for key in tenant.kv.keys_from(""))
        _used(tenant)
        found += sum(flow.kept.in_memory for flow in tenant.flows.values())
        stages = [stage for transaction in tenant.transactions.values() for stage in transaction.stages.values()]
        found += sum(part.bytes for stage in stages for part in stage.parts)
        schedules = [one for queue in tenant.queues.values() for one in queue.schedules.values()]
        found += sum(map(apply_schedules.size_of, schedules))
    assert shard.index.bytes == found, f"{shard.index.bytes} bytes are counted, and there are {found}"


def _used(tenant: Tenant) -> None:
    """Check the numbers that quotas use."""
    written = sum(apply_kv.written_bytes(key, tenant.kv[key]) for key in tenant.kv.keys_from(""))
    assert tenant.kv_bytes == written, f"{tenant.kv_bytes} bytes of entries are counted, and there are {written}"
    stages = [stage for transaction in tenant.transactions.values() for stage in transaction.stages.values()]
    parts = [part.record for stage in stages for part in stage.parts]
    staged = sum(len(part.payloads) for part in parts), sum(map(apply_transactions.staged_bytes, parts))
    assert (tenant.staged_jobs, tenant.staged_bytes) == staged, f"{staged} jobs and bytes are staged, but not counted"
    planned = [one.schedule.payload for queue in tenant.queues.values() for one in queue.schedules.values()]
    assert tenant.planned_bytes == sum(map(len, planned)), "payloads of schedules are not counted"


def _batches(shard: ShardState) -> None:
    for batch in shard.index.batches():
        slices = sum(piece.span.left for piece in batch.slices)
        ended = sum(run.stop - run.start for run in batch.ended)
        assert batch.left == batch.waiting.left + slices + ended, f"batch {batch.first} has lost count"
        for span in (batch.waiting, *(piece.span for piece in batch.slices)):
            assert span.left == span.stop - span.start - len(span.holes or ()), f"a span of batch {batch.first} is off"
            assert span.left >= 0


def _job(shard: ShardState, part: Part, armed: Counter[tuple[int, int]]) -> None:
    if type(part) is not SingleJob:
        batch, position, piece = part.batch, part.start, part.slice
        assert piece is None or armed[piece.fires_at, id(piece)], "a slice would never expire"
        assert batch.payloads[position] is not None, "a readable job has lost its payload"
        if shard.state_of(part) == BLOCKED:
            step = blocking_step(part.queue.tenant, part.options, part.lowest)
            assert step is not None, f"job {part.lowest} is blocked by no job and no step"
        return
    detail, queue = part.detail, part.queue
    if part.state == ACTIVE:
        assert detail is not None and detail.token > 0 and detail.attempts > 0, (
            f"job {part.id} is active without a delivery"
        )
        assert armed[detail.fires_at, id(part)], f"the lease of job {part.id} would never expire"
    else:
        assert detail is None or not detail.token, f"job {part.id} is not active but has a token"
    if part.state == BLOCKED:
        blockers = detail.blockers if detail is not None and detail.blockers is not None else {}
        step = blocking_step(queue.tenant, part.options, part.id)
        assert blockers or step is not None, f"job {part.id} is blocked by no job and no step"
        for other in blockers:
            is_live = shard_of(other) != shard.number or shard.is_live(queue.tenant, other)
            assert is_live or _is_coming(shard, other), f"job {part.id} waits for {other}, which has ended"
            assert part.id in shard.dependents.get(other, ()), f"job {part.id} would never hear of the end of {other}"
    else:
        assert detail is None or not detail.blockers
    assert (part.id in queue.dead) == (part.state == FAILED), f"job {part.id}: dead letters and state disagree"


def _queue(shard: ShardState, queue: QueueState, own: list[Part]) -> None:
    _ready(queue, own)
    _delayed(shard, queue, own)
    for name, group in queue.groups.items():
        assert [job.id for job in group.lane] == sorted(job.id for job in group.lane), f"group {name} is out of order"
        assert all(job.state == WAITING and job.options.group_id == name for job in group.lane)
        active = [p for p in own if type(p) is SingleJob and p.options.group_id == name and p.state == ACTIVE]
        assert len(active) <= 1, f"group {name} has two active jobs"
        assert not active or group.holder is active[0], f"group {name} does not know its holder"
        assert group.holder is None or group.holder.state in (ACTIVE, DELAYED), f"group {name} has a wrong holder"
        assert group.offered is (group.lane[0] if group.lane and group.holder is None else None)
        assert group.lane or group.holder, f"group {name} is empty and should be gone"
    for name, key in queue.unique_keys.items():
        job = shard.index.get(key.job)
        assert job is not None and job.state <= ACTIVE, f"unique key {name} is held by a job that is not live"
    assert len(queue.dead) <= queue.dead_policy.entries_max
    serials = [serial_of(ended) + n for ended in queue.retained.entries() for n in range(size_of(ended))]
    assert serials == sorted(set(serials)), "two ended jobs have one number"
    assert not serials or serials[-1] <= queue.retained.serial
    for policy, lane in queue.retained.lanes.items():
        assert not lane or policy in queue.retained.armed, "ended jobs would never be forgotten"


def _ready(queue: QueueState, own: list[Part]) -> None:
    expected = set()
    for part in own:
        if type(part) is SingleJob:
            group = queue.groups.get(part.options.group_id) if part.options.group_id is not None else None
            if part.state == WAITING and (group is None or group.offered is part):
                expected.add(part.id)
        elif part.start in part.batch.waiting and part.batch.pending == WAITING:
            expected.add(part.lowest)
    found = list(ready_ids(queue))
    assert set(found) == expected and len(found) == len(expected), (
        f"ready order has {found}, jobs say {sorted(expected)}"
    )
    front = queue.ready.front()
    if found:
        assert front is not None
        first = front.id_at(front.waiting.start) if type(front) is UniformBatch else front.lowest
        assert first == found[0], f"the front of the queue is {first}, the order says {found[0]}"
    else:
        assert front is None


def _delayed(shard: ShardState, queue: QueueState, own: list[Part]) -> None:
    holders = {id(holder) for due, n, holder in queue.delayed if is_due_entry((due, n, holder))}
    dues = []
    for part in own:
        holder = part if type(part) is SingleJob else part.batch
        if shard.state_of(part) == DELAYED:
            assert id(holder) in holders, f"{part} would never become due"
            due = part.details().due if type(part) is SingleJob else part.batch.due
            dues.append(due)
    if dues:
        assert 0 < queue.delayed_armed <= min(dues), f"queue {queue.name} would miss a due time"


def _claims(shard: ShardState, tenant: Tenant, parts: list[Part]) -> None:
    held: Counter[str] = Counter()
    for part in parts:
        queue = part.queue
        if queue.tenant is not tenant or shard.state_of(part) != ACTIVE:
            continue
        piece = part.detail if type(part) is SingleJob else part.slice
        if piece is not None and piece.claim is not None:
            held[piece.claim] += 1
    for name, claim in tenant.claims.items():
        assert claim.held == held.pop(name, 0), f"claim {name} counts {claim.held}"
    assert not held, f"claims without a record: {held}"


def _kv(shard: ShardState, tenant: Tenant) -> None:
    listed = list(tenant.kv.keys_from(""))
    assert listed == sorted(set(listed)), f"the keys of {tenant.name} are out of order"
    assert len(listed) == len(tenant.kv) and all(key in tenant.kv for key in listed), "a key is listed and not there"
    armed = {(at, place[1]) for at, kind, _, place in shard.deadlines.heap if kind == kinds.KV and place[0] is tenant}
    for key in listed:
        expires_at = tenant.kv[key].expires_at
        assert not expires_at or (expires_at, key) in armed, f"the entry {key} would never expire"


def _is_coming(shard: ShardState, job_id: int) -> bool:
    """Whether a deadline will settle the edges of this ended job, because there were too many for one turn."""
    return any(kind == kinds.EDGES and holder[0] == job_id for _, kind, _, holder in shard.deadlines.heap)


def _flows(shard: ShardState, tenant: Tenant, parts: list[Part]) -> None:
    """Check every count of a workflow against its jobs, and every step against the steps before it."""
    live: dict[int, Counter[int]] = {}
    for part in parts:
        if part.queue.tenant is tenant and part.options.workflow is not None and shard.state_of(part) <= ACTIVE:
            live.setdefault(part.options.workflow, Counter())[part.lowest] = shard.state_of(part) + 1
    armed = {holder for _, kind, _, holder in shard.deadlines.heap if kind == kinds.FLOW}
    assert list(tenant.keeping) == [one for one in tenant.keeping if tenant.flows[one].kept.size]
    assert tenant.kept_bytes == sum(_kept_bytes(flow) for flow in tenant.flows.values())
    for flow in tenant.flows.values():
        jobs = live.get(flow.id, Counter())
        assert flow.open == sum(1 for step in flow.steps if step.standing == OPEN), f"workflow {flow.id} has lost count"
        for step in flow.steps:
            if step.made.shard != shard.number:
                continue
            where = f"step {step.number} of workflow {flow.id}"
            own = [jobs[job_id] - 1 for job_id in step.ids if job_id in jobs]
            assert len(own) == step.left, f"{where} counts {step.left} live jobs, and there are {len(own)}"
            waits = sum(not lets_start(flow.steps[n].standing, policy) for n, policy in step.made.after)
            assert step.waits == waits, f"{where} waits for {step.waits} steps, and should for {waits}"
            if step.released or flow.cancelled:
                assert BLOCKED not in own, f"{where} was released, but not all of its jobs"
                continue
            assert waits, f"{where} may start and does not"
            given_up = failed_before(flow, step) is not None
            assert not (given_up and BLOCKED in own) or (flow, step.number) in armed, f"{where} waits in vain"
        if flow.home == shard.number:
            assert bool(flow.finished_at) == (not flow.open) == (flow.id in tenant.ended_flows)
            assert not flow.finished_at or (flow, -1) in armed, f"workflow {flow.id} would never be forgotten"


def _schedules(shard: ShardState, tenant: Tenant) -> None:
    planned = [one for queue in tenant.queues.values() for one in queue.schedules.values()]
    assert shard.schedules == sum(one.schedules for one in shard.tenants.values()), "schedules are counted wrongly"
    assert tenant.schedules == len(planned), f"{tenant.name} counts {tenant.schedules} schedules, not {len(planned)}"
    heap = shard.deadlines.heap
    armed = {(at, id(holder)) for at, kind, _, holder in heap if kind == kinds.SCHEDULE}
    armed |= {(at, id(one)) for at, one in shard.backlog}
    assert not shard.backlog or any(kind == kinds.SLOTS and at == shard.backlog.armed for at, kind, _, _ in heap)
    for one in planned:
        assert one.queue.schedules[one.name] is one and one.queue.known, f"schedule {one.name} is in a wrong place"
        assert bool(one.due) == bool(one.next_slot and not one.paused), f"schedule {one.name} is due {one.due}"
        assert not one.due or (one.due, id(one)) in armed, f"the next slot of schedule {one.name} would never come"
        assert not one.next_slot or one.next_slot > one.done_to, f"schedule {one.name} would push a slot twice"
        assert not one.schedule.runs_max or one.runs <= one.schedule.runs_max or not one.next_slot


def audit_counts(shard: ShardState) -> None:
    """The short check for every recovery: compare each counter with the jobs, without visiting jobs inside batches."""
    counted: dict[int, list[int]] = {}
    live = shard.index.live_bytes()
    for job in shard.index.jobs():
        counted.setdefault(id(job.queue), [0] * 9)[job.state] += 1
    for batch in shard.index.batches():
        counts = counted.setdefault(id(batch.queue), [0] * 9)
        counts[batch.pending] += batch.waiting.left
        counts[ACTIVE] += sum(piece.span.left for piece in batch.slices)
        for run in batch.ended:
            counts[run.state] += run.stop - run.start
    for tenant in shard.tenants.values():
        for queue in tenant.queues.values():
            found = counted.get(id(queue), [0] * 9)
            found[LIVE_BYTES] = live.get(queue, 0)
            assert queue.counts == found, f"queue {queue.name} counts {queue.counts}, and there are {found}"


def _kept_bytes(flow: ShardWorkflow) -> int:
    """The bytes of kept results, counted one by one. Results without readers must not be kept."""
    assert set(flow.kept.results) <= set(flow.kept.readers), f"workflow {flow.id} keeps results without readers"
    found = sum(kept.size for results in flow.kept.results.values() for kept in results.values())
    assert flow.kept.size == found, f"workflow {flow.id} has lost count of what it keeps"
    held = sum(kept.in_memory for results in flow.kept.results.values() for kept in results.values())
    assert flow.kept.in_memory == held, f"workflow {flow.id} has lost count of what it keeps in memory"
    return found
