"""Decide transactions: jobs that stay invisible until their stages are published, all at once."""

from collections.abc import Sequence
from typing import Any

from stoker.engine import checks
from stoker.engine.plain_options import is_plain
from stoker.engine.pushing import due_of, push_many, refuse_malformed
from stoker.engine.shard_state import ShardState
from stoker.engine.state import StagedPart, TransactionState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP, make_id
from stoker.model.limits import Limits
from stoker.records import records as rec
from stoker.records.stored import StoredRun, sizes_of


def stage(shard: ShardState, tenant: str, command: c.Stage, now: int) -> r.Staged:
    limits = shard.limits
    checks.name(command.queue)
    checks.key(command.transaction, "transaction", limits)
    checks.key(command.stage, "stage", limits)
    if command.part is not None:
        checks.number(command.part, "part", 0, 2**53 - 1)
    checks.batch(command.payloads, command.each, limits)
    _check_items(shard, command)
    shard.check_room(tenant, [command.queue])
    found = find(shard, tenant, command.transaction)
    if found is not None and found.outcome is not None:
        raise over(command.transaction, found.outcome)
    stage = found.stages.get(command.stage) if found else None
    if stage is None and found is not None and len(found.stages) >= limits.stages_per_transaction_max:
        raise errors.LimitExceeded(
            f"transaction {command.transaction!r} already has {len(found.stages)} stages, which is the limit: use"
            " another transaction"
        )
    if stage is not None and command.part is not None and command.part in stage.numbers:
        return r.Staged(stage.jobs)
    payloads = list(command.payloads)
    shard.emit(
        rec.PartStaged(
            now,
            tenant,
            command.transaction,
            command.stage,
            command.queue,
            payloads,
            command.options,
            list(command.each) if command.each is not None else None,
            command.part,
            now + shard.settings.stage_ttl_ms,
            sizes_of(payloads),
        )
    )
    written = shard.tenant(tenant).transactions[command.transaction].stages[command.stage]
    shard.staged.append((written.parts[-1], len(shard.records) - 1))
    return r.Staged(written.jobs)


def _check_items(shard: ShardState, command: c.Stage) -> None:
    """Refuse the whole part if one item is bad. Edges to jobs that do not exist yet cannot be checked here."""
    payloads = command.payloads
    checks.options(command.options, shard.limits)
    checks.edges(len(payloads), command.each, command.options, shard.limits)
    if command.each is None and checks.payloads_are_fine(payloads, shard.limits):
        return
    options = command.each or [command.options] * len(payloads)
    for number, refusal in sorted(refuse_malformed(shard, payloads, options).items()):
        raise errors.BY_CODE[refusal.code](f"item {number}: {refusal.message}; nothing was staged")


def publish(shard: ShardState, tenant: str, command: c.Publish, now: int) -> r.Transaction:
    checks.key(command.transaction, "transaction", shard.limits)
    found = find(shard, tenant, command.transaction)
    if found is not None and found.outcome is not None:
        if found.outcome.outcome == "aborted":
            raise over(command.transaction, found.outcome)
        outcome: r.Transaction = found.outcome
        return outcome
    names = list(dict.fromkeys(command.stages))
    for name in names:
        checks.key(name, "stage", shard.limits)
        if found is None or name not in found.stages:
            raise unknown_stage(name, command.transaction)
    check_publish(shard, tenant, command)
    stages = found.stages if found is not None else {}
    parts = [(place, part) for name in names for place, part in enumerate(stages[name].parts)]
    runs: list[tuple[int, int]] = []
    for place, part in parts:
        _add_runs(runs, _publish_part(shard, part, _read(shard, part), place, now))
    created = sum(count for _, count in runs)
    _end(shard, tenant, command.transaction, True, created, runs, now)
    return r.Transaction("published", created, tuple(runs))


def check_publish(shard: ShardState, tenant: str, command: c.Publish) -> None:
    """Check that the tenant may have all queues of the stages in this shard, and that payloads that are needed can be
    read: what was decided must be done.
    """
    found = find(shard, tenant, command.transaction)
    stages = found.stages if found is not None else {}
    parts = [part for name in command.stages if name in stages for part in stages[name].parts]
    shard.check_room(tenant, [part.record.queue for part in parts])
    for part in parts:
        _read(shard, part)


def _read(shard: ShardState, part: StagedPart) -> Sequence[bytes] | None:
    """The payloads of a part whose jobs are checked one by one. None if they share their options: their payloads stay
    where they are.
    """
    record, stored = part.record, part.stored
    if stored is None or record.each is not None or not is_plain(record.options) or not _fits(stored, shard.limits):
        return _payloads(shard, record)
    return None


def _publish_part(
    shard: ShardState, part: StagedPart, payloads: Sequence[bytes] | None, place: int, now: int
) -> r.PushedBatch:
    """Push the jobs of one part."""
    record, stored = part.record, part.stored
    options = record.options
    if payloads is not None:
        queue = shard.queue(record.tenant, record.queue)
        return push_many(shard, queue, payloads, options, record.each, now)
    assert stored is not None
    first = make_id(shard.sequence + 1, shard.number)
    shard.emit(
        rec.PartPublished(
            now,
            record.tenant,
            record.queue,
            first,
            record.transaction,
            record.stage,
            place,
            stored.sequence,
            stored.count,
            stored.sizes,
            options,
            due_of(shard, options, now),
        )
    )
    return r.PushedBatch(range(first, first + stored.count * STEP, STEP))


def _fits(stored: StoredRun, limits: Limits) -> bool:
    """Whether all payloads are within the limit, which may have changed since they were staged."""
    sizes = stored.sizes
    return (sizes if isinstance(sizes, int) else max(sizes)) <= limits.payload_bytes_max


def _payloads(shard: ShardState, record: rec.PartStaged) -> Sequence[bytes]:
    """The staged payloads, read from the journal if they are only there."""
    stored: Any = record.payloads  # a StoredRun if the journal left the payloads on disk
    if type(stored) is not StoredRun:
        return record.payloads
    assert shard.stored_payloads is not None
    return shard.stored_payloads(stored.sequence)


def _add_runs(runs: list[tuple[int, int]], reply: r.PushedBatch) -> None:
    """Add the ids that a part created, neighbours together."""
    if type(reply.ids) is range:
        created = [(reply.ids[0], len(reply.ids))]
    else:
        created = [(i, 1) for n, i in enumerate(reply.ids) if i and n not in reply.duplicates]
    for first, count in created:
        if runs and runs[-1][0] + runs[-1][1] * STEP == first:
            runs[-1] = (runs[-1][0], runs[-1][1] + count)
        else:
            runs.append((first, count))


def abort(shard: ShardState, tenant: str, command: c.Abort, now: int) -> r.Transaction:
    checks.key(command.transaction, "transaction", shard.limits)
    found = find(shard, tenant, command.transaction)
    if found is not None and found.outcome is not None:
        outcome: r.Transaction = found.outcome
        return outcome
    _end(shard, tenant, command.transaction, False, 0, [], now)
    return r.Transaction("aborted")


def _end(
    shard: ShardState, tenant: str, name: str, published: bool, created: int, runs: list[tuple[int, int]], now: int
) -> None:
    expires_at = now + shard.settings.transaction_ttl_ms
    shard.emit(rec.TransactionEnded(now, tenant, name, published, created, runs, expires_at))


def find(shard: ShardState, tenant: str, name: str) -> TransactionState | None:
    found = shard.tenants.get(tenant)
    return found.transactions.get(name) if found else None


def over(name: str, outcome: r.Transaction) -> errors.TransactionOver:
    return errors.TransactionOver(f"transaction {name!r} was already {outcome.outcome}: use a new one")


def unknown_stage(name: str, transaction: str) -> errors.UnknownStage:
    return errors.UnknownStage(
        f"stage {name!r} of transaction {transaction!r} does not exist: it expired or was never written; nothing was"
        " published"
    )
