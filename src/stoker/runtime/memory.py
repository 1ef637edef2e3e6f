"""Keeping to a memory limit: when there are many, payloads of new jobs stay in the journal alone until they are due.

New jobs stand at the end of the line, so theirs are the payloads that are needed last. What cannot be left out
(jobs, batches, keys) counts too, and near the limit new jobs are refused.
"""

from collections.abc import Sequence

import msgspec

from stoker.engine.jobs import Batch
from stoker.engine.shard import Shard
from stoker.engine.state import StagedPart
from stoker.journal.contract import Journal
from stoker.model.ids import STEP
from stoker.records.records import KvWritten, PartPublished, Pushed
from stoker.records.stored import Stored, StoredRun, counted

SPILL_AT = 0.4
"""The share of the limit above which payloads of new jobs leave memory."""
FULL_AT = 0.9

SMALL_BYTES = 256
"""A payload up to this size is not worth the place where it could be found again."""

LOOK_EVERY = 64
"""Turns with a push between two looks at the total."""


class Memory:
    """How much of it the shards take."""

    def __init__(self, shards: Sequence[Shard], journal: Journal, bytes_max: int) -> None:
        self._shards = shards
        self._journal = journal
        self.bytes_max = bytes_max
        self.is_watched = bytes_max > 0 and journal.level != "memory"
        self.is_full = False
        self.is_spilling = False
        self.is_stored = False
        """Whether any payload may lie in the journal alone."""
        self._turns = 0
        self.look()

    @property
    def bytes(self) -> int:
        return sum(shard.index.bytes for shard in self._shards)

    def look(self) -> None:
        total = self.bytes
        self.is_spilling = self.is_watched and total > self.bytes_max * SPILL_AT
        self.is_full = self.is_watched and total > self.bytes_max * FULL_AT

    def after(self, shard: Shard) -> None:
        """A turn has been journaled; its records are still there."""
        self._turns += 1
        first_of_all = shard.records[0]
        many = type(first_of_all) is KvWritten or len(getattr(first_of_all, "payloads", ())) > LOOK_EVERY
        if self._turns % LOOK_EVERY == 0 or self.is_full or many:
            self.look()
        if self.is_spilling:
            first = self._journal.last(shard.number) - len(shard.records) + 1
            for sequence, record in enumerate(shard.records, first):
                if type(record) is Pushed:
                    self._spill(shard, record, sequence)
                elif type(record) is PartPublished:
                    self._spill_batch(shard, record, record.payloads)
            for part, _ in shard.staged:
                forget_payloads(shard, part)
                self.is_stored = True

    def _spill(self, shard: Shard, record: Pushed, sequence: int) -> None:
        run = StoredRun(sequence, 0, len(record.payloads), counted(record.sizes, record.payloads))
        if self._spill_batch(shard, record, run):
            return
        for place, payload in enumerate(record.payloads):
            if len(payload) > SMALL_BYTES:
                job = shard.index.get(record.first + place * STEP)
                if job is not None and job.payload is payload:
                    shard.index.forget_payload(job, Stored(sequence, place, len(payload)))
                    self.is_stored = True

    def _spill_batch(self, shard: Shard, record: Pushed | PartPublished, run: StoredRun) -> bool:
        """Whether the jobs of a record are a batch."""
        found = shard.index.find_batch(record.first)
        if found is None or found[0].pushed_at != record.at:
            return False
        batch: Batch = found[0]
        if batch.left and batch.count == len(run) and type(batch.payloads) is not StoredRun:
            shard.index.forget_payload(batch, run if batch.step > 0 else run.backwards())
            self.is_stored = True
        return True


def note_places(journal: Journal, shard: Shard) -> None:
    """Parts of stages that were just journaled: when they are published, nothing needs to be written again."""
    if journal.level == "memory":
        return
    first = journal.last(shard.number) - len(shard.records) + 1
    for part, place in shard.staged:
        record = part.record
        part.stored = StoredRun(first + place, 0, len(record.payloads), counted(record.sizes, record.payloads))


def forget_payloads(shard: Shard, part: StagedPart) -> None:
    """From now on the payloads of a part lie in the journal only; one that is dropped already takes nothing."""
    part.record = msgspec.structs.replace(part.record, payloads=part.stored)
    shard.index.bytes -= part.bytes
    part.bytes = 0
