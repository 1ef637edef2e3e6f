"""What every layer must know about a kind of event: one row each, and the sets that follow from the rows.

Stories, readers of one job, clients that lost an answer, and Spark's tables derive from this table what ends a delivery
or a job. A kind without a row fails the tests, and so does a module that keeps a set of kinds of its own.
"""

from typing import Literal

import msgspec

from stoker.model.events import EventKind
from stoker.model.states import ENDED, State

Outcome = Literal["", "done", "failed", "handed back", "stopped"]
"""How an event ends a delivery: not at all, acknowledged, failed, handed back, or together with its job."""


class EventRow(msgspec.Struct, frozen=True):
    """What the layers must know about one kind of event."""

    state: State | None = None
    """The state of the job after the event; None if it does not change. An event with a later `due` leaves the job
    delayed.
    """
    delivery: Outcome = ""
    """How the event ends the delivery of the job, if there is one."""
    removes: bool = False
    """Whether the job is gone after the event. No later event is about it."""
    explains: bool = False
    """Whether it may explain what is seen in the minutes after it: a queue was changed, or a limit was reached."""
    frees_dead: bool = False
    """Whether a dead letter that the event is about is none any more."""


TABLE: dict[EventKind, EventRow] = {
    EventKind.PUSHED: EventRow(State.WAITING),
    EventKind.UNBLOCKED: EventRow(State.WAITING),
    EventKind.READY: EventRow(State.WAITING),
    EventKind.STARTED: EventRow(State.ACTIVE),
    EventKind.COMPLETED: EventRow(State.COMPLETED, "done"),
    EventKind.RETRYING: EventRow(State.WAITING, "failed"),
    EventKind.FAILED: EventRow(State.FAILED, "failed"),
    EventKind.CANCELLED: EventRow(State.CANCELLED, "stopped"),
    EventKind.EXPIRED: EventRow(State.EXPIRED, "stopped"),
    EventKind.RELEASED: EventRow(State.WAITING, "handed back"),
    EventKind.SNOOZED: EventRow(State.DELAYED, "handed back"),
    EventKind.EXTENDED: EventRow(),
    EventKind.CANCEL_REQUESTED: EventRow(),
    EventKind.PROGRESS: EventRow(),
    EventKind.LOG: EventRow(),
    EventKind.PARTIAL: EventRow(),
    EventKind.PROMOTED: EventRow(State.WAITING),
    EventKind.DELAYED: EventRow(State.DELAYED),
    EventKind.REPRIORITISED: EventRow(),
    EventKind.UPDATED: EventRow(),
    EventKind.REVIVED: EventRow(State.WAITING, frees_dead=True),
    EventKind.EVICTED: EventRow(removes=True, explains=True, frees_dead=True),
    EventKind.REMOVED: EventRow(removes=True, frees_dead=True),
    EventKind.QUEUE_CONFIGURED: EventRow(explains=True),
    # about no job; the jobs of the queue are gone with it
    EventKind.QUEUE_OBLITERATED: EventRow(explains=True, frees_dead=True),
    EventKind.SCHEDULE_CHANGED: EventRow(),
    EventKind.SLOT_PASSED: EventRow(),
}

Kinds = frozenset[EventKind]


def with_outcome(*outcomes: Outcome) -> Kinds:
    return frozenset(kind for kind, row in TABLE.items() if row.delivery in outcomes)


def in_order(kinds: Kinds) -> tuple[str, ...]:
    """The names of these kinds in the order of the table, for columns whose order must not change."""
    return tuple(kind.value for kind in TABLE if kind in kinds)


ENDS_DELIVERY = with_outcome("done", "failed", "handed back", "stopped")
"""They end the delivery of the job, if there is one."""
FAILS_DELIVERY = with_outcome("failed")
"""A delivery failed, whether or not the job is tried again."""
HANDS_BACK = with_outcome("handed back")
"""A delivery was given back. Its attempt does not count."""
ENDS_JOB = frozenset(kind for kind, row in TABLE.items() if row.state in ENDED)
REMOVES_JOB = frozenset(kind for kind, row in TABLE.items() if row.removes)
EXPLAINS = frozenset(kind for kind, row in TABLE.items() if row.explains)
FREES_DEAD = frozenset(kind for kind, row in TABLE.items() if row.frees_dead)
"""A dead letter went back to work, or was removed."""
