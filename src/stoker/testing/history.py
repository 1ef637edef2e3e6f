"""Reads the journal of a broker in memory: what was pushed, and how it ended.

It reads the journal instead of the calls, because that also has the jobs that schedules and handlers push.
"""

from collections.abc import Iterator

from stoker.brokers.local import LocalBroker
from stoker.model.event_table import FAILS_DELIVERY
from stoker.model.events import EventKind
from stoker.records import records as rec
from stoker.records.events import ids_of
from stoker.records.runs import runs_of
from stoker.testing.outcomes import Drained

PAGE = 1_000

Position = tuple[int, ...]
"""The last sequence number of each shard."""


def position(broker: LocalBroker) -> Position:
    journal = broker.runtime.journal
    return tuple(journal.last(shard.number) for shard in broker.runtime.shards)


def records_since(broker: LocalBroker, since: Position) -> Iterator[rec.Record]:
    """The records of each shard, in order."""
    journal = broker.runtime.journal
    for shard, after in zip(broker.runtime.shards, since, strict=True):
        while page := journal.read(shard.number, after, PAGE):
            yield from (record for _, record in page)
            after = page[-1][0]


COUNTED = {
    "completed": EventKind.COMPLETED,
    "retried": EventKind.RETRYING,
    "failed": EventKind.FAILED,
    "cancelled": EventKind.CANCELLED,
    "snoozed": EventKind.SNOOZED,
}
"""The event that each field of `Drained` counts."""
FIELD_OF = {kind: field for field, kind in COUNTED.items()}


def outcome_since(broker: LocalBroker, tenant: str, since: Position) -> Drained:
    """The jobs that have ended or gone back since then."""
    found: dict[str, tuple[int, ...]] = dict.fromkeys(COUNTED, ())
    errors: list[str] = []
    for record in records_since(broker, since):
        if getattr(record, "tenant", None) != tenant:
            continue
        for run in runs_of(record):
            if run.event in FIELD_OF:
                found[FIELD_OF[run.event]] += tuple(ids_of(run.first, run.jobs))
            if run.event in FAILS_DELIVERY:
                said = f"{run.error_class}: {run.error}" if run.error_class else run.error or run.reason
                errors.append(record.stack or said)  # type: ignore[attr-defined]
    return Drained(**found, errors=tuple(errors))
