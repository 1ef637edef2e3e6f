"""The memory limit: above a share of it, payloads and results stay in the journal until they are needed.

New jobs are at the end of the queue, so their payloads are needed last; results are read once, if at all. Data that
must stay in memory (jobs, batches, keys, log lines) counts too, and near the limit new jobs are refused. A journal in
memory can take nothing off the shards: there only the refusal holds.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from stoker.engine import workflow_state
from stoker.engine.jobs import UniformBatch
from stoker.engine.shard import Shard
from stoker.engine.state import StagedPart
from stoker.journal.contract import Journal, keeps
from stoker.model.ids import STEP
from stoker.records.records import (
    Completed,
    JobRun,
    JobsPushed,
    PartialAdded,
    PartPublished,
    PayloadUpdated,
    Record,
)
from stoker.records.stored import SMALL_BYTES, Stored, StoredRun, counted

SPILL_AT = 0.4
"""The share of the limit above which payloads of new jobs leave memory."""
FULL_AT = 0.9
SHARE_BYTES_MIN = 64 * 1024
"""With less than this left for each shard, memory is counted after every turn."""


class Memory:
    """How much of it the shards take."""

    def __init__(self, shards: Sequence[Shard], journal: Journal, bytes_max: int) -> None:
        self._shards = shards
        self._journal = journal
        self._spills: dict[type[Record], Callable[[Shard, Any, int], None]] = {
            JobsPushed: self._spill,
            PartPublished: self._spill_published,
            PayloadUpdated: self._spill_updated,
            Completed: self._spill_results,
            PartialAdded: self._spill_partial,
        }
        self.bytes_max = bytes_max
        self._full_above = bytes_max * FULL_AT if bytes_max > 0 else inf
        self._spill_above = bytes_max * SPILL_AT if bytes_max > 0 and keeps(journal) else inf
        self._quiet_up_to = min(self._spill_above, self._full_above)
        self._is_quiet = False
        """Whether shards are counted only when they have grown beyond their `quiet_bytes`."""
        self.is_full = False
        self.is_spilling = False
        self.is_stored = False
        """Whether any payload may lie in the journal alone."""
        self._bytes = 0
        self._counted: dict[Shard, int] = dict.fromkeys(shards, 0)
        """How much of it is each shard's, when it was last counted."""
        self.look()

    @property
    def bytes(self) -> int:
        return sum(shard.index.bytes for shard in self._shards)

    def look(self) -> None:
        """Count all shards."""
        for shard in self._shards:
            self._count(shard)
        self._judge()

    def _count(self, shard: Shard) -> None:
        size = shard.index.bytes
        self._bytes += size - self._counted[shard]
        self._counted[shard] = size

    def _judge(self) -> None:
        """Say what the sum means. Every shard must have been counted since its last turn."""
        self.is_spilling = self._bytes > self._spill_above
        self.is_full = self._bytes > self._full_above
        # What is left is shared out. While no shard uses more than its share, the sum is below the limit, and a turn
        # needs one comparison. A count after every turn was 84 of the 1,250 bytecodes of a single push.
        share = (self._quiet_up_to - self._bytes) / len(self._shards)
        was_quiet, self._is_quiet = self._is_quiet, share >= SHARE_BYTES_MIN
        if self._is_quiet or was_quiet:
            for shard, size in self._counted.items():
                shard.quiet_bytes = size + share if self._is_quiet else -1

    def after(self, shard: Shard) -> None:
        """A turn has been journaled; its records are still there."""
        if self._is_quiet:
            self.look()
        else:
            self._count(shard)
            self._judge()
        if self.is_spilling:
            first = self._journal.last(shard.number) - len(shard.records) + 1
            for sequence, record in enumerate(shard.records, first):
                spill = self._spills.get(type(record))
                if spill is not None:
                    spill(shard, record, sequence)
            for part, _ in shard.staged:
                forget_payloads(shard, part)
                self.is_stored = True
            if self.is_full:
                self._count(shard)  # perhaps it was all in what has just left
                self._judge()

    def _spill_published(self, shard: Shard, record: PartPublished, sequence: int) -> None:
        self._spill_batch(shard, record, record.payloads)

    def _spill_updated(self, shard: Shard, record: PayloadUpdated, sequence: int) -> None:
        job = shard.index.get(record.job)
        if job is not None and job.payload is record.payload and len(record.payload) > SMALL_BYTES:
            shard.index.forget_payload(job, Stored(sequence, 0, len(record.payload)))
            self.is_stored = True

    def _spill_partial(self, shard: Shard, record: PartialAdded, sequence: int) -> None:
        job = shard.index.get(record.job)
        partials = job.detail.partials if job is not None and job.detail is not None else None
        if job is not None and partials and len(record.data) > SMALL_BYTES:
            chunk = next((one for one in reversed(partials) if one.data is record.data), None)
            if chunk is not None:
                shard.index.forget_chunk(job, chunk, Stored(sequence, 0, len(record.data)))
                self.is_stored = True

    def _spill_results(self, shard: Shard, record: Completed, sequence: int) -> None:
        """What jobs returned, whether they are retained or only what they returned is kept for a workflow."""
        results, place = record.results, 0
        if results is None:
            return
        for run in record.runs:
            jobs = abs(run.count)
            stored = [
                Stored(sequence, at, len(result))
                if (result := results[at]) is not None and len(result) > SMALL_BYTES
                else None
                for at in range(place, place + jobs)
            ]
            place += jobs
            if any(stored):
                self._spill_run(shard, record.tenant, run, stored)
                self.is_stored = True

    @staticmethod
    def _spill_run(shard: Shard, tenant: str, run: JobRun, stored: Sequence[Stored | None]) -> None:
        index = shard.index
        workflow = run.labels.workflow if run.labels is not None else None
        found = index.find_batch(run.first) if len(stored) > 1 else None
        ended = found[0].ended.find(found[1]) if found is not None else None
        if found is not None and ended is not None:
            index.forget_results(ended, found[1], stored)
            return
        step = STEP if run.count > 0 else -STEP
        for job_id, one in zip(range(run.first, run.first + step * len(stored), step), stored, strict=True):
            job = index.get(job_id) if one is not None else None
            if job is not None and one is not None:
                index.forget_result(job, one)
            elif one is not None and workflow is not None:
                workflow_state.forget_kept(shard, tenant, workflow, job_id, one)

    def _spill(self, shard: Shard, record: JobsPushed, sequence: int) -> None:
        run = StoredRun(sequence, 0, len(record.payloads), counted(record.sizes, record.payloads))
        if self._spill_batch(shard, record, run):
            return
        for place, payload in enumerate(record.payloads):
            if len(payload) > SMALL_BYTES:
                job = shard.index.get(record.first + place * STEP)
                if job is not None and job.payload is payload:
                    shard.index.forget_payload(job, Stored(sequence, place, len(payload)))
                    self.is_stored = True

    def _spill_batch(self, shard: Shard, record: JobsPushed | PartPublished, run: StoredRun) -> bool:
        """Whether the jobs of a record are a batch."""
        found = shard.index.find_batch(record.first)
        if found is None or found[0].pushed_at != record.at:
            return False
        batch: UniformBatch = found[0]
        if batch.left and batch.count == len(run) and type(batch.payloads) is not StoredRun:
            shard.index.forget_payload(batch, run if batch.step > 0 else run.backwards())
            self.is_stored = True
        return True


def note_places(journal: Journal, shard: Shard) -> None:
    """Parts of stages that were just journaled: when they are published, nothing needs to be written again."""
    if not keeps(journal):
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
