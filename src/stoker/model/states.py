"""The states of a job and the allowed transitions between them.

`TRANSITIONS` is the complete list. The audit checks every recorded step against it, and the states page of the
documentation is made from it. Paused, limited or behind a busy group are not states but answers to *why is this job
waiting?*
"""

from enum import StrEnum


class State(StrEnum):
    WAITING = "waiting"
    DELAYED = "delayed"
    BLOCKED = "blocked"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


STATES = tuple(State)
"""The order in which records and counters number the states."""

LIVE = (State.WAITING, State.DELAYED, State.BLOCKED, State.ACTIVE)
PENDING = (State.WAITING, State.DELAYED, State.BLOCKED)
ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)

NEW = "new"
GONE = "gone"

TRANSITIONS: dict[str, dict[str, str]] = {
    NEW: {
        State.WAITING: "pushed",
        State.DELAYED: "pushed with a delay or a time",
        State.BLOCKED: "pushed with unfinished dependencies",
    },
    State.WAITING: {
        State.ACTIVE: "pulled",
        State.DELAYED: "moved to delayed",
        State.CANCELLED: "cancelled, replaced, drained or cleaned",
        State.EXPIRED: "ttl passed before the first start",
        State.FAILED: "discarded",
    },
    State.DELAYED: {
        State.WAITING: "due or promoted",
        State.DELAYED: "moved to another time",
        State.CANCELLED: "cancelled, replaced, drained or cleaned",
        State.EXPIRED: "ttl passed before the first start",
        State.FAILED: "discarded",
    },
    State.BLOCKED: {
        State.WAITING: "last dependency finished",
        State.DELAYED: "last dependency finished, not due yet",
        State.CANCELLED: "cancelled, or a dependency failed with policy cancel",
        State.EXPIRED: "ttl passed before the first start",
        State.FAILED: "a dependency failed with policy fail, or discarded",
    },
    State.ACTIVE: {
        State.COMPLETED: "acknowledged",
        State.WAITING: "released, or failed with no delay",
        State.DELAYED: "failed and will be tried again, snoozed, or moved to delayed",
        State.FAILED: "no attempt left, failed for good, too many crashes, or discarded",
        State.CANCELLED: "cancel was asked for while it ran",
    },
    State.COMPLETED: {GONE: "retention passed or cleaned"},
    State.FAILED: {
        State.WAITING: "retried by hand or by the queue's policy",
        State.BLOCKED: "its workflow is retried, and steps before it have not ended",
        GONE: "retention passed, evicted, purged or cleaned",
    },
    State.CANCELLED: {GONE: "retention passed or cleaned"},
    State.EXPIRED: {GONE: "retention passed or cleaned"},
}
