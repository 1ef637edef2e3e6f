"""Records of bulk operations."""

from stoker.model.bulk import BulkAction, BulkState
from stoker.model.filters import JobFilter
from stoker.records.records.shape import Record


class BulkStarted(Record, frozen=True, gc=False, tag=58):
    """A bulk operation began, on jobs with ids up to `until`."""

    at: int
    tenant: str
    key: str
    action: BulkAction
    filter: JobFilter
    until: int
    priority: int | None = None
    rate: float | None = None


class BulkStepped(Record, frozen=True, gc=False, tag=59):
    """A step of a bulk operation: how far it has looked, and what it has counted so far. The records before this one in
    the same turn say what it did.
    """

    at: int
    tenant: str
    key: str
    cursor: int
    looked: int
    changed: int
    refused: int
    state: BulkState = "running"
    next_at: int = 0
    """When the next step comes; 0 after the last."""
