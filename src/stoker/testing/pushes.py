"""Pushed jobs in a form that tests can compare."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from stoker.brokers.local import LocalBroker
from stoker.model.ids import STEP
from stoker.model.options import Options
from stoker.records.record_table import PUSHES
from stoker.testing.history import Position, records_since


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


def pushed_since(broker: LocalBroker, tenant: str, since: Position) -> Iterator[PushedJob]:
    """Jobs in the order of their pushes; their arguments are not decoded."""
    record: Any
    for record in records_since(broker, since):
        if type(record) in PUSHES and record.tenant == tenant:
            at = datetime.fromtimestamp(record.at / 1000, UTC)
            for place, payload in enumerate(record.payloads):
                yield PushedJob(
                    record.first + place * STEP, record.queue, record.options.name, payload, record.options, at
                )
