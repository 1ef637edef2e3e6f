"""Says what is wrong with a run of workers, from what handlers wrote down and from what the queue tells of each job.

unfinished   a job that has not completed, or completed more than once
invented     a handler began a job that no delivery was made for
repeated     a handler began the same delivery twice
outside      a handler began a job while its lease was not valid: before the delivery, or after its end
unproved     a job completed by a delivery whose handler never ended
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from stoker.model.events import Event, EventKind
from tests.worker_kill.scene import Note

CLOCK_MS = 50
"""How far the queue's time may be from the handlers': both count from the same clock of the machine."""

ENDS = (
    EventKind.COMPLETED,
    EventKind.RETRYING,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.RELEASED,
    EventKind.SNOOZED,
)


class Delivery(msgspec.Struct):
    """As the queue tells it."""

    began: int
    worker: str
    attempt: int
    ended: int = 2**53
    how: EventKind | None = None


def deliveries_of(events: Sequence[Event]) -> list[Delivery]:
    """Of one job, in order."""
    found: list[Delivery] = []
    for event in events:
        if event.kind is EventKind.STARTED:
            found.append(Delivery(event.at, event.worker, event.attempt))
        elif event.kind in ENDS and found and found[-1].how is None:
            found[-1].ended, found[-1].how = event.at, event.kind
    return found


def wrongs(stories: Mapping[int, Sequence[Event]], notes: Sequence[Note]) -> list[str]:
    """What is wrong, one line each. `stories` has the events of every job that was pushed."""
    by_job: dict[int, list[Note]] = defaultdict(list)
    for note in notes:
        by_job[note.job].append(note)
    found = [f"invented: job {job} was never pushed" for job in by_job.keys() - stories.keys()]
    for job, events in stories.items():
        deliveries = deliveries_of(events)
        completed = sum(delivery.how is EventKind.COMPLETED for delivery in deliveries)
        if completed != 1:
            found.append(f"unfinished: job {job} completed {completed} times")
        found += wrongs_of_job(job, deliveries, by_job[job])
    return found


def wrongs_of_job(job: int, deliveries: list[Delivery], notes: list[Note]) -> list[str]:
    found: list[str] = []
    begun = Counter(note.token for note in notes if note.what == "begin")
    found += [f"repeated: job {job} began {count} times in one delivery" for count in begun.values() if count > 1]
    for note in notes:
        if note.what == "begin":
            own = [delivery for delivery in deliveries if delivery.attempt == note.attempt]
            if not own:
                found.append(f"invented: job {job} began in an attempt {note.attempt} that was never made")
            elif not any(one.began - CLOCK_MS <= note.at <= one.ended + CLOCK_MS for one in own):
                found.append(f"outside: job {job} began at {note.at}, when no lease of that attempt was valid")
    ended = {note.attempt for note in notes if note.what == "end"}
    for delivery in deliveries:
        if delivery.how is EventKind.COMPLETED and delivery.attempt not in ended:
            found.append(f"unproved: job {job} completed in attempt {delivery.attempt}, whose handler never ended")
    return found
