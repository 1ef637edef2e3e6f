"""Reading the journal of a broker in memory: what was pushed, and what became of it.

The journal and not the calls that were made: jobs that a schedule or a handler pushes are in it like all others.
"""

from collections.abc import Iterator

from stoker.brokers.local import LocalBroker
from stoker.model.ids import STEP
from stoker.model.states import STATES, State
from stoker.records import records as rec
from stoker.testing.outcomes import Drained

PAGE = 1_000

Position = tuple[int, ...]
"""The last sequence number of each shard."""


def position(broker: LocalBroker) -> Position:
    journal = broker.runtime.journal
    return tuple(journal.last(shard.number) for shard in broker.runtime.shards)


def records_since(broker: LocalBroker, since: Position) -> Iterator[rec.Record]:
    """Those of each shard in order."""
    journal = broker.runtime.journal
    for shard, after in zip(broker.runtime.shards, since, strict=True):
        while page := journal.read(shard.number, after, PAGE):
            yield from (record for _, record in page)
            after = page[-1][0]


def ids_of(runs: "list[rec.Run] | tuple[rec.Run, ...]") -> tuple[int, ...]:
    return tuple(
        run.first + place * (STEP if run.count > 0 else -STEP) for run in runs for place in range(abs(run.count))
    )


def outcome_since(broker: LocalBroker, tenant: str, since: Position) -> Drained:
    """What has ended or gone back since then."""
    found: dict[str, tuple[int, ...]] = dict.fromkeys(("completed", "retried", "failed", "cancelled", "snoozed"), ())
    errors: list[str] = []
    for record in records_since(broker, since):
        if getattr(record, "tenant", None) != tenant:
            continue
        if isinstance(record, rec.Completed):
            found["completed"] += ids_of(record.runs)
        elif isinstance(record, rec.Retrying | rec.Failed):
            found["retried" if isinstance(record, rec.Retrying) else "failed"] += ids_of((record.run,))
            said = f"{record.error_class}: {record.error}" if record.error_class else record.error or record.reason
            errors.append(record.stack or said)
        elif isinstance(record, rec.Ended) and STATES[record.state] is State.CANCELLED:
            found["cancelled"] += ids_of(record.runs)
        elif isinstance(record, rec.Released) and record.due:
            found["snoozed"] += ids_of(record.runs)
    return Drained(**found, errors=tuple(errors))
