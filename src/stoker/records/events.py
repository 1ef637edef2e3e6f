"""Turn records into events: one for each job that a record is about."""

from collections.abc import Iterable, Iterator
from typing import Any

from stoker.model.events import Event
from stoker.model.ids import STEP
from stoker.records import records as rec
from stoker.records.record_table import MEANS
from stoker.records.runs import EventRun, runs_of

OF_RUN = ("event", "first", "jobs", "payload_bytes", "result_bytes", "labels", "ready_at", "removed")
"""Fields of a run that are not fields of an event, or that may differ between jobs."""
SHARED = tuple((place, name) for place, name in enumerate(EventRun._fields) if name not in OF_RUN)
LABELS = rec.Labels.__struct_fields__


def events_of(shard: int, sequence: int, record: rec.Record, kinds: Iterable[str] | None = None) -> Iterator[Event]:
    """The events of a record; none for records that only concern the store.

    With `kinds`, a record that cannot have one of these kinds is skipped at no cost. Of other records all events come.
    """
    means = MEANS.get(type(record))
    if means is None or (kinds is not None and means.isdisjoint(kinds)):
        return
    tenant, queue, at = record.tenant, record.queue, record.at  # type: ignore[attr-defined]
    index = 0
    for run in runs_of(record):
        kind, shared = run.event, _shared(run)
        payloads, results = run.payload_bytes, run.result_bytes
        for place, job in enumerate(ids_of(run.first, run.jobs)):
            yield Event(
                shard=shard,
                sequence=sequence,
                index=index,
                at=at,
                kind=kind,
                tenant=tenant,
                queue=queue,
                job=job,
                payload_bytes=payloads if type(payloads) is int else payloads[place],  # type: ignore[index]
                result_bytes=results if type(results) is int else results[place],  # type: ignore[index]
                **shared,
            )
            index += 1


def _shared(run: EventRun) -> dict[str, Any]:
    """The fields that all events of a run share. Default values are left out; all of them are empty."""
    fields = {name: run[place] for place, name in SHARED if run[place]}
    labels = run.labels
    return fields if labels is None else fields | {name: getattr(labels, name) for name in LABELS}


def ids_of(first: int, count: int) -> range:
    """Neighbouring ids; descending if the count is negative."""
    step = STEP if count > 0 else -STEP
    return range(first, first + step * abs(count), step)


EVENT_BYTES = 600
"""The size in JSON of an event whose texts are short."""


def size_of(event: Event) -> int:
    """The approximate size of an event in a reply."""
    tags = sum(map(len, event.tags)) if event.tags else 0
    return EVENT_BYTES + len(event.data) + len(event.error) + len(event.message) + tags
