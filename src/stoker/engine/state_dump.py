"""The whole state of a shard as plain, comparable data, for jobs in either form.

Two shards that would behave the same from now on give equal dumps. Tests use this to compare a replay with the
original. Bookkeeping that decides nothing (stale entries, armed deadlines) is left out.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.engine.jobs import Detail, Part, SingleJob, UniformBatch
from stoker.engine.kept_results import KeptResult
from stoker.engine.queries import view, whole
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Planned, QueueState, Scope, StagedPart, Tenant
from stoker.engine.workflow_state import ShardWorkflow
from stoker.model.ids import shard_of
from stoker.records import records as rec
from stoker.records.stored import Stored, StoredRun


def dump(shard: ShardState) -> dict[str, Any]:
    shard.add_up()
    return {
        "sequence": shard.sequence,
        "token": shard.token,
        "scope": _scope(shard.scope),
        "tenants": {name: _tenant(shard, tenant) for name, tenant in sorted(shard.tenants.items()) if _is_used(tenant)},
        "jobs": [_job(shard, part) for part in _parts(shard)],
        "dependents": _dependents(shard),
        "watchers": dict(sorted(shard.watchers.items())),
        "early": {workflow: list(said) for workflow, said in sorted(shard.early.items())},
        "senders": [
            (*key, [(number, list(reply.ids), dict(reply.duplicates)) for number, reply in answers.items()])
            for key, answers in shard.senders.items()
        ],
    }


def _is_used(tenant: Tenant) -> bool:
    queues = any(queue.known for queue in tenant.queues.values())
    return queues or tenant.is_used


def _parts(shard: ShardState) -> Iterator[Part]:
    for entry in shard.index.walk(None, ascending=True):
        part = shard.member(entry)
        if part is not None:
            yield part


def _job(shard: ShardState, part: Part) -> dict[str, Any]:
    found = msgspec.structs.asdict(view(shard, part, 0))
    for name in ("payload", "result"):
        found[name] = _whole(shard, found[name])
    lease = part.detail if type(part) is SingleJob else part.slice
    held = lease if lease is not None and lease.token else None
    found |= {
        "tenant": part.queue.tenant.name,
        "token": held.token if held else 0,
        "fires_at": held.fires_at if held else 0,
        "lease_ms": held.lease_ms if held else 0,
    }
    detail = (part.detail if type(part) is SingleJob else None) or Detail()
    if detail.blockers:
        found["due"] = detail.due
    found["ready_at"] = detail.ready_at if type(part) is SingleJob else part.batch.ready_at
    return found | {
        "blockers": dict(detail.blockers or {}),
        "logs": list(detail.logs or ()),
        "partials": [whole(shard, chunk) for chunk in detail.partials or ()],
        "next_chunk": detail.next_chunk,
        "revived": detail.revived,
    }


def _whole(shard: ShardState, value: Any) -> Any:
    """A payload or a result, read from the journal if it is there."""
    if type(value) is not Stored or shard.stored_payloads is None:
        return value
    return shard.stored_payloads(value.sequence)[value.place]


def _scope(scope: Scope) -> tuple[list[int], list[int], list[int], int]:
    return list(scope.counts), list(scope.totals), list(scope.recent), scope.recent_second


def _tenant(shard: ShardState, tenant: Tenant) -> dict[str, Any]:
    return {
        "scope": _scope(tenant.scope),
        "queues": {name: _queue(queue) for name, queue in sorted(tenant.queues.items()) if queue.known},
        "bulks": {
            key: (bulk.made, bulk.cursor, bulk.state, bulk.next_at, bulk.view()) for key, bulk in tenant.bulks.items()
        },
        "claims": {
            name: (claim.token, list(claim.runs), claim.held, claim.expires_at)
            for name, claim in sorted(tenant.claims.items())
        },
        "transactions": {
            name: (
                {
                    key: ([_staged(shard, part) for part in stage.parts], stage.jobs, stage.expires_at)
                    for key, stage in found.stages.items()
                },
                found.outcome,
                found.expires_at,
            )
            for name, found in sorted(tenant.transactions.items())
        },
        "ended_badly": tenant.ended_badly.ranges(),
        "flows": [_flow(shard, flow) for _, flow in sorted(tenant.flows.items())],
        "ended_flows": list(tenant.ended_flows),
        "keeping": list(tenant.keeping),
        "kv": {
            key: (entry.value, entry.codec, entry.expires_at)
            for key in tenant.kv.keys_from("")
            if (entry := tenant.kv.get(key)) is not None
        },
    }


def _staged(shard: ShardState, part: StagedPart) -> rec.PartStaged:
    """The part with its payloads, read from the journal if they are there."""
    record: rec.PartStaged = part.record
    payloads: Any = record.payloads
    if type(payloads) is not StoredRun or shard.stored_payloads is None:
        return record
    return msgspec.structs.replace(record, payloads=list(shard.stored_payloads(payloads.sequence)))


def _kept(shard: ShardState, kept: KeptResult) -> KeptResult:
    return msgspec.structs.replace(kept, result=_whole(shard, kept.result))


def _flow(shard: ShardState, flow: ShardWorkflow) -> dict[str, Any]:
    kept = {name: getattr(flow, name) for name in ("id", "name", "at", "cancelled", "round", "finished_at", "open")}
    return kept | {
        "steps": [msgspec.structs.astuple(step) for step in flow.steps],
        "forget_at": flow.forget_at,
        "readers": dict(flow.kept.readers),
        "kept": {
            step: {job: _kept(shard, kept) for job, kept in sorted(results.items())}
            for step, results in sorted(flow.kept.results.items())
        },
    }


def _queue(queue: QueueState) -> dict[str, Any]:
    return {
        "scope": _scope(queue.scope),
        "wait": list(queue.wait),
        "run": list(queue.run),
        "paused": queue.paused,
        "bucket": (queue.bucket.limit, queue.bucket.units, queue.bucket.filled_at) if queue.bucket else None,
        "concurrency": queue.concurrency,
        "policy": (queue.group_on_retry, queue.dead_policy),
        "ready": list(ready_ids(queue)),
        "groups": {
            name: ([job.id for job in group.lane], group.holder.id if group.holder else None)
            for name, group in sorted(queue.groups.items())
        },
        "keys": [
            {name: (key.job, key.expires_at) for name, key in sorted(table.items())}
            for table in (queue.unique_keys, queue.custom_ids, queue.debounces)
        ],
        "requests": {name: (list(found.reply.ids), found.expires_at) for name, found in sorted(queue.requests.items())},
        "dead": list(queue.dead),
        "ended": queue.retained.serial,
        "schedules": {name: _schedule(planned) for name, planned in sorted(queue.schedules.items())},
    }


def _schedule(planned: Planned) -> tuple[Any, ...]:
    found = msgspec.structs.asdict(planned)
    del found["queue"], found["due"]
    return *found.values(), list(planned.last or ())


def ready_ids(queue: QueueState) -> Iterator[int]:
    """The ids that pulls would bring, in order, without limits."""
    members: list[tuple[int, int, int, int]] = []
    for entry in queue.ready.entries():
        options = entry.options
        level = (-options.priority, 0 if options.lifo else 1)
        if type(entry) is UniformBatch:
            for start, stop in entry.waiting.runs():
                members += [(*level, entry.order_at(p), entry.id_at(p)) for p in range(start, stop)]
        else:
            assert type(entry) is SingleJob
            members.append((*level, entry.order, entry.id))
    return iter([job_id for *_, job_id in sorted(members)])


def _dependents(shard: ShardState) -> dict[int, list[int]]:
    """Which jobs wait for which, derived from the jobs that really wait."""
    waits: dict[int, list[int]] = {}
    for job in shard.index.jobs():
        if job.detail is not None and job.detail.blockers:
            for other in job.detail.blockers:
                waits.setdefault(other, []).append(job.id)
    for other in shard.watchers:
        elsewhere = [job_id for job_id in shard.dependents.get(other, ()) if shard_of(job_id) != shard.number]
        waits.setdefault(other, []).extend(elsewhere)
    return {other: sorted(jobs) for other, jobs in sorted(waits.items())}
