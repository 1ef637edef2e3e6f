"""Records of transactions: jobs are staged first and then published together."""

from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records.records.shape import Record
from stoker.records.stored import StoredRun


class PartStaged(Record, frozen=True, gc=False, tag=28):
    """A part of a stage was written."""

    at: int
    tenant: str
    transaction: str
    stage: str
    queue: str
    payloads: list[bytes]
    options: Options
    each: list[Options] | None
    part: int | None
    expires_at: int
    sizes: int | list[int] | None = None
    """The size of each payload, or one number for all; None = count them."""


class PartPublished(Record, frozen=True, gc=False, tag=57):
    """Staged jobs were pushed. Their payloads stay in the record that staged them and are not written again."""

    at: int
    tenant: str
    queue: str
    first: int
    transaction: str
    stage: str
    place: int
    """The number of the part within the stage."""
    sequence: int
    """The sequence number of the record that staged it."""
    count: int
    sizes: int | list[int]
    options: Options = DEFAULT_OPTIONS
    due: int = 0

    @property
    def payloads(self) -> StoredRun:
        return StoredRun(self.sequence, 0, self.count, self.sizes)


class TransactionEnded(Record, frozen=True, gc=False, tag=29):
    """A transaction was published or aborted. Its stages are gone; its outcome is remembered."""

    at: int
    tenant: str
    transaction: str
    published: bool
    created: int
    runs: list[tuple[int, int]]
    expires_at: int


class StageExpired(Record, frozen=True, gc=False, tag=30):
    at: int
    tenant: str
    transaction: str
    stage: str


class TransactionForgotten(Record, frozen=True, gc=False, tag=31):
    at: int
    tenant: str
    transaction: str
