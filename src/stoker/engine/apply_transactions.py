"""How records about transactions and claims change the state."""

from typing import TYPE_CHECKING

from stoker.engine import deadlines as kinds
from stoker.engine.state import Appliers, Stage, TransactionState
from stoker.model.replies import Transaction
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard


def staged(shard: "Shard", record: rec.Staged) -> None:
    tenant = shard.tenant(record.tenant)
    transaction = tenant.transactions.setdefault(record.transaction, TransactionState({}))
    stage = transaction.stages.setdefault(record.stage, Stage([], set()))
    stage.parts.append(record)
    stage.jobs += len(record.payloads)
    if record.part is not None:
        stage.numbers.add(record.part)
    stage.expires_at = record.expires_at
    shard.deadlines.arm(record.expires_at, kinds.STAGE, (tenant, record.transaction, record.stage))


def transaction_ended(shard: "Shard", record: rec.TransactionEnded) -> None:
    tenant = shard.tenant(record.tenant)
    outcome = Transaction("published" if record.published else "aborted", record.created, tuple(record.runs))
    tenant.transactions[record.transaction] = TransactionState({}, outcome, record.expires_at)
    shard.deadlines.arm(record.expires_at, kinds.TRANSACTION, (tenant, record.transaction))


def stage_expired(shard: "Shard", record: rec.StageExpired) -> None:
    tenant = shard.tenant(record.tenant)
    transaction = tenant.transactions[record.transaction]
    del transaction.stages[record.stage]
    if not transaction.stages:
        del tenant.transactions[record.transaction]


def transaction_forgotten(shard: "Shard", record: rec.TransactionForgotten) -> None:
    shard.tenant(record.tenant).transactions.pop(record.transaction, None)


def claim_forgotten(shard: "Shard", record: rec.ClaimForgotten) -> None:
    shard.tenant(record.tenant).claims.pop(record.claim, None)


APPLY: Appliers = {
    rec.Staged: staged,
    rec.TransactionEnded: transaction_ended,
    rec.StageExpired: stage_expired,
    rec.TransactionForgotten: transaction_forgotten,
    rec.ClaimForgotten: claim_forgotten,
}
