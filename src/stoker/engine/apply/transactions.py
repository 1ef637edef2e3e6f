"""Apply records about transactions and claims."""

from typing import Any

from stoker.engine import deadlines as kinds
from stoker.engine.apply.push import pushed
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers, OpenStage, StagedPart, Tenant, TransactionState
from stoker.model.replies import Transaction
from stoker.records import records as rec
from stoker.records.stored import StoredRun, counted, total_size


def staged(shard: ShardState, record: rec.PartStaged) -> None:
    tenant = shard.tenant(record.tenant)
    transaction = tenant.transactions.setdefault(record.transaction, TransactionState({}))
    stage = transaction.stages.setdefault(record.stage, OpenStage([], set()))
    payloads: Any = record.payloads  # a StoredRun if the journal left the payloads on disk
    if type(payloads) is StoredRun:
        stage.parts.append(StagedPart(record, payloads, 0))
    else:
        size = total_size(counted(record.sizes, payloads), len(payloads))
        stage.parts.append(StagedPart(record, None, size))
        shard.index.bytes += stage.parts[-1].bytes
    stage.jobs += len(payloads)
    tenant.staged_jobs += len(payloads)
    tenant.staged_bytes += staged_bytes(record)
    if record.part is not None:
        stage.numbers.add(record.part)
    stage.expires_at = record.expires_at
    shard.deadlines.arm(record.expires_at, kinds.STAGE, (tenant, record.transaction, record.stage))


def part_published(shard: ShardState, record: rec.PartPublished) -> None:
    """Push jobs whose payloads are already there, in memory or in the journal."""
    stage = shard.tenant(record.tenant).transactions[record.transaction].stages[record.stage]
    payloads, options = stage.parts[record.place].record.payloads, record.options
    push = rec.JobsPushed(
        record.at, record.tenant, record.queue, record.first, payloads, options, record.due, record.sizes
    )
    pushed(shard, push)


def transaction_ended(shard: ShardState, record: rec.TransactionEnded) -> None:
    tenant = shard.tenant(record.tenant)
    before = tenant.transactions.get(record.transaction)
    for stage in before.stages.values() if before is not None else ():
        _drop(shard, tenant, stage)
    outcome = Transaction("published" if record.published else "aborted", record.created, tuple(record.runs))
    tenant.transactions[record.transaction] = TransactionState({}, outcome, record.expires_at)
    shard.deadlines.arm(record.expires_at, kinds.TRANSACTION, (tenant, record.transaction))


def stage_expired(shard: ShardState, record: rec.StageExpired) -> None:
    tenant = shard.tenant(record.tenant)
    transaction = tenant.transactions[record.transaction]
    _drop(shard, tenant, transaction.stages.pop(record.stage))
    if not transaction.stages:
        del tenant.transactions[record.transaction]


def staged_bytes(record: rec.PartStaged) -> int:
    """The bytes of the payloads of one part, in memory or in the journal."""
    return total_size(counted(record.sizes, record.payloads), len(record.payloads))


def _drop(shard: ShardState, tenant: Tenant, stage: OpenStage) -> None:
    tenant.staged_jobs -= stage.jobs
    for part in stage.parts:
        tenant.staged_bytes -= staged_bytes(part.record)
        shard.index.bytes -= part.bytes
        part.bytes = 0


def transaction_forgotten(shard: ShardState, record: rec.TransactionForgotten) -> None:
    shard.tenant(record.tenant).transactions.pop(record.transaction, None)


def claim_forgotten(shard: ShardState, record: rec.ClaimForgotten) -> None:
    shard.tenant(record.tenant).claims.pop(record.claim, None)


APPLY: Appliers = {
    rec.PartStaged: staged,
    rec.PartPublished: part_published,
    rec.TransactionEnded: transaction_ended,
    rec.StageExpired: stage_expired,
    rec.TransactionForgotten: transaction_forgotten,
    rec.ClaimForgotten: claim_forgotten,
}
