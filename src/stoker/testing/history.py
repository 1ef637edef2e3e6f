"""The journal of a harness: what was pushed, and what became of it, in the order in which it happened.

It reads the journal instead of the calls, because that also has the jobs that schedules and handlers push.
"""

from stoker.journal.contract import Turn
from stoker.journal.memory import MemoryJournal
from stoker.model.event_table import FAILS_DELIVERY
from stoker.model.events import EventKind
from stoker.records import records as rec
from stoker.records.events import ids_of
from stoker.records.runs import runs_of
from stoker.testing.outcomes import Drained


class KeepingJournal(MemoryJournal):
    """Also keeps all records of all shards in one list: shards have no order among each other."""

    def __init__(self, shards: int, bytes_max: int) -> None:
        super().__init__(shards, bytes_max)
        self.records: list[rec.Record] = []

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        super().append(turn, defer=defer, waits=waits)
        for _, records in turn:
            self.records += records


COUNTED = {
    "completed": EventKind.COMPLETED,
    "retried": EventKind.RETRYING,
    "failed": EventKind.FAILED,
    "cancelled": EventKind.CANCELLED,
    "snoozed": EventKind.SNOOZED,
}
"""The event that each field of `Drained` counts."""
FIELD_OF = {kind: field for field, kind in COUNTED.items()}


def outcome_since(journal: KeepingJournal, tenant: str, since: int) -> Drained:
    """What has ended or gone back after so many records."""
    found: dict[str, tuple[int, ...]] = dict.fromkeys(COUNTED, ())
    errors: list[str] = []
    for record in journal.records[since:]:
        if getattr(record, "tenant", None) != tenant:
            continue
        for run in runs_of(record):
            if run.event in FIELD_OF:
                found[FIELD_OF[run.event]] += tuple(ids_of(run.first, run.jobs))
            if run.event in FAILS_DELIVERY:
                said = f"{run.error_class}: {run.error}" if run.error_class else run.error or run.reason
                errors.append(record.stack or said)  # type: ignore[attr-defined]
    return Drained(**found, errors=tuple(errors))
