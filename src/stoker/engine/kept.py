"""What jobs of a workflow returned, kept beyond the jobs themselves for the steps that read it.

A job is forgotten by the retention of its queue. What it returned stays here until every step behind its own has ended
well, so that a join finds all of its inputs however long the others take. It changes only while records are applied,
so a restart brings the same; it knows numbers of steps and ids of jobs, and nothing of queues.
"""

import msgspec

from stoker.model.options import Codec
from stoker.records.stored import Stored

ENTRY_BYTES = 200
"""What one of them takes beside its result."""


class Kept(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a job ended that is forgotten. Those that completed without a result need no entry."""

    state: int
    result: bytes | Stored | None = None
    codec: Codec = "bytes"
    error: str = ""

    @property
    def size(self) -> int:
        """What counts against a tenant's bound, wherever the result lies: a replay must decide alike."""
        return ENTRY_BYTES + len(self.result or b"") + len(self.error)

    @property
    def in_memory(self) -> int:
        return self.size - (len(self.result) if type(self.result) is Stored else 0)


class KeptResults:
    """Of one workflow, as far as its jobs live in one shard."""

    __slots__ = ("in_memory", "readers", "results", "size")

    def __init__(self, readers: dict[int, int]) -> None:
        self.readers = readers
        """How many steps behind each step may still read from it. What was returned to one that is not here is gone
        with its jobs: it has no readers, or none any more, or had too much to keep."""
        self.results: dict[int, dict[int, Kept]] = {}
        """By the number of the step and the id of the job."""
        self.size = 0
        """Bytes of all of it."""
        self.in_memory = 0
        """Bytes of what does not lie in the journal."""

    def add(self, step: int, job: int, kept: Kept) -> None:
        self.results.setdefault(step, {})[job] = kept
        self.size += kept.size
        self.in_memory += kept.in_memory

    def replace(self, step: int, job: int, kept: Kept) -> None:
        """The result of a job lies elsewhere from now on."""
        before = self.results[step][job]
        self.results[step][job] = kept
        self.in_memory += kept.in_memory - before.in_memory

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
        gone = self.results.pop(step, {}).values()
        self.size -= sum(kept.size for kept in gone)
        self.in_memory -= sum(kept.in_memory for kept in gone)

    def let_go_all(self) -> None:
        self.readers.clear()
        self.results.clear()
        self.size = self.in_memory = 0
