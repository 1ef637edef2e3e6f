"""What jobs of a workflow returned, kept beyond the jobs themselves for the steps that read it.

A job is forgotten by the retention of its queue. What it returned stays here until every step behind its own has ended
well, so that a join finds all of its inputs however long the others take. It changes only while records are applied,
so a restart brings the same; it knows numbers of steps and ids of jobs, and nothing of queues.
"""

import msgspec

from stoker.model.options import Codec

ENTRY_BYTES = 200
"""What one of them takes beside its result."""


class Kept(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a job ended that is forgotten. Those that completed without a result need no entry."""

    state: int
    result: bytes | None = None
    codec: Codec = "bytes"
    error: str = ""

    @property
    def size(self) -> int:
        return ENTRY_BYTES + len(self.result or b"") + len(self.error)


class KeptResults:
    """Of one workflow, as far as its jobs live in one shard."""

    __slots__ = ("readers", "results", "size")

    def __init__(self, readers: dict[int, int]) -> None:
        self.readers = readers
        """How many steps behind each step may still read from it. What was returned to one that is not here is gone
        with its jobs: it has no readers, or none any more, or had too much to keep."""
        self.results: dict[int, dict[int, Kept]] = {}
        """By the number of the step and the id of the job."""
        self.size = 0
        """Bytes of all of it."""

    def add(self, step: int, job: int, kept: Kept) -> None:
        self.results.setdefault(step, {})[job] = kept
        self.size += kept.size

    def read(self, step: int, readers: int = 1) -> None:
        """So many steps behind this one will not read any more; less than none: they may, again."""
        left = self.readers.get(step)
        if left is None:
            return
        self.readers[step] = left - readers
        if left <= readers:
            self.let_go(step)

    def let_go(self, step: int) -> None:
        """From now on what its jobs returned is gone with them."""
        self.readers.pop(step, None)
        self.size -= sum(kept.size for kept in self.results.pop(step, {}).values())

    def let_go_all(self) -> None:
        self.readers.clear()
        self.results.clear()
        self.size = 0
