"""From a log to shards that can go on: what was saved last, and the log behind it, through `apply`.

It knows neither files nor databases: a log is a sequence of parts that can be read back (`LogPart`).
"""

import gc
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from stoker.engine.audit import audit_counts
from stoker.engine.checkpoint_saving import load
from stoker.engine.shard import Shard, apply_again
from stoker.journal.contract import Turn
from stoker.model.errors import Damaged
from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.records import records as rec
from stoker.records.codec import LogRow, UnreadableRecord, left_in_journal
from stoker.records.stored import SMALL_BYTES

GAP = 1 << 24
"""Ids and tokens left out after a crash: more than can be given out between two flushes, and lost with the power."""

SAME_BOOT_GAP = 1 << 16
"""The same after a crash of the process alone: what was answered is there, so this is only a margin."""

Saved = Iterable[tuple[int, Iterable[bytes]]]
"""A checkpoint as it is read: the chunks of each shard, which are read before those of the next."""


class LogPart(Protocol):
    """A part of a log that can be read back: a file, a table, a list of rows."""

    def ends_at(self, shard: int) -> int | None:
        """The last record of a shard that it must have. None for the part that is written to."""
        ...

    def rows(self, shard: int, after: int) -> Iterable[LogRow]:
        """Those with records above a sequence number, in order."""
        ...

    def damaged(self, what: str) -> Damaged:
        """The error that says what is wrong with it, and what to do."""
        ...


class Recovered(msgspec.Struct):
    """What was found in a log."""

    shards: list[Shard]
    last: list[int]
    """The last sequence number of each shard; 0 for those of other processes."""
    at: int
    """When the last record happened."""
    obliterated: set[tuple[str, str]]
    """Queues that were obliterated since the checkpoint, after the last of their keys was stored."""


def recover(own: Iterable[int], total: int, saved: Saved, parts: Sequence[LogPart], stored_from: int) -> Recovered:
    """The shards with these numbers, of so many, as they were.

    Payloads of records with at least `stored_from` of them stay in the journal.
    """
    enabled = gc.isenabled()
    gc.disable()  # millions of new objects, none of them garbage
    try:
        loaded = {number: load(chunks) for number, chunks in saved}
        shards, last, latest = [], [0] * total, 0
        obliterated: set[tuple[str, str]] = set()
        for number in own:
            shard, position = loaded.get(number) or (Shard(number), 0)
            end, at = replay_tail(shard, position, parts, stored_from, obliterated)
            audit_counts(shard)
            shards.append(shard)
            last[number] = end
            latest = max(latest, at, shard.now)
        return Recovered(shards, last, latest, obliterated)
    finally:
        if enabled:
            gc.enable()


def replay_tail(
    shard: Shard,
    position: int,
    parts: Iterable[LogPart],
    stored_from: int,
    obliterated: set[tuple[str, str]] | None = None,
) -> tuple[int, int]:
    """Apply what happened after a position; answers with the position and the time reached."""
    at, number = shard.now, shard.number
    for part in parts:
        end = part.ends_at(number)
        if end is not None and end <= position:
            continue
        for row in part.rows(number, position):
            if row.first != position + 1:
                raise part.damaged(f"lacks the records {position + 1} to {row.first - 1} of shard {number}")
            try:
                found = row.records(stored_from)
                records = [left_in_journal(record, row.first + n, SMALL_BYTES) for n, record in enumerate(found)]
            except UnreadableRecord as error:
                raise part.damaged(f"is damaged at shard {number} sequence {row.first} ({error})") from error
            apply_again(shard, records)
            if obliterated is not None:
                _note_obliterated(records, obliterated)
            position += len(records)
            at = records[-1].at  # type: ignore[attr-defined]  # every record has its time
        if end is not None and position < end:
            raise part.damaged(f"lacks the records {position + 1} to {end} of shard {number}")
    shard.now = at
    return position, at


def _note_obliterated(records: list[rec.Record], obliterated: set[tuple[str, str]]) -> None:
    for record in records:
        if type(record) is rec.QueueObliterated:
            obliterated.add((record.tenant, record.queue))
        elif type(record) is rec.KeysStored:
            obliterated.discard((record.tenant, record.queue))


def left_out(*, same_boot: bool) -> int:
    """How many ids and tokens to leave out after a crash: as many as may have been given out since the last one found.

    `same_boot` says that the machine ran on, so that everything is there that was answered.
    """
    return min(SAME_BOOT_GAP, GAP) if same_boot else GAP


def reopened(found: Recovered, at: int, epoch: int, gap: int, engine: Settings, limits: Limits) -> Turn:
    """The first turn over what was recovered: each shard notes its opening, and leaves out a gap of numbers."""
    turn = []
    for shard in found.shards:
        record = rec.Opened(at, "", epoch, shard.sequence + gap, shard.token + gap, engine, limits)
        apply_again(shard, [record])
        turn.append((shard.number, [record]))
    return turn
