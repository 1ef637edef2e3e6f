"""Pushed jobs in a form that tests can compare."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from stoker.model.ids import STEP
from stoker.model.options import Options
from stoker.records.record_table import PUSHES
from stoker.testing.history import KeepingJournal


@dataclass(frozen=True, slots=True)
class PushedJob:
    """A job as it was pushed, whatever happened to it later."""

    id: int
    queue: str
    name: str | None
    """The kind of job."""
    payload: bytes
    options: Options
    at: datetime
    """When it was pushed, by the test's clock."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """By name, as the handler will get them; empty if there is no handler."""

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name or self.queue}({shown})"


def pushed_since(journal: KeepingJournal, tenant: str, since: int) -> Iterator[PushedJob]:
    """Jobs that came in after so many records, in the order in which they did; their arguments are not looked at."""
    record: Any
    for record in journal.records[since:]:
        if type(record) in PUSHES and record.tenant == tenant:
            at = datetime.fromtimestamp(record.at / 1000, UTC)
            for place, payload in enumerate(record.payloads):
                yield PushedJob(
                    record.first + place * STEP, record.queue, record.options.name, payload, record.options, at
                )
