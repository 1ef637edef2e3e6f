"""Turns settlements into commands: as few as possible, none larger than a server takes.

Acks are grouped by codec, failures and releases by their content; adjacent jobs become one range. Nothing here sends
anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.options import Codec
from stoker.worker.lane import JobChunk, JobFailure, JobsCompleted, JobsHandedBack, Settlement
from stoker.worker.outcomes import Failure, Verdict

IDS_MAX = 5_000
"""Ids in one command: half of a server's default limit."""
RESULTS_BYTES_MAX = 4 * 1024 * 1024
ALONE = 128
"""From this many jobs on, a chunk gets its own command, whose ids can be a range."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A command about a running job, sent before the job is settled."""

    chunk: JobChunk
    job: int
    command: c.Command[Any]


@dataclass(frozen=True, slots=True)
class SettleCommand:
    """A command and the jobs that it settles."""

    command: c.Command[Any]
    chunks: Sequence[tuple[JobChunk, int]]
    """Each chunk with the number of its jobs, in the order of the ids."""

    def chunk_of(self, job: int) -> JobChunk:
        return next(chunk for chunk, _ in self.chunks if job in chunk.ids)


def halves(command: Any) -> tuple[Any, Any]:
    """The command split into two, each for half of its jobs."""
    middle = len(command.ids) // 2
    parts = []
    for part in (slice(None, middle), slice(middle, None)):
        changes: dict[str, Any] = {"ids": command.ids[part]}
        if not isinstance(command.tokens, int):
            changes["tokens"] = command.tokens[part]
        if type(command) is c.Ack and command.results is not None:
            changes["results"] = command.results[part]
        parts.append(msgspec.structs.replace(command, **changes))
    return parts[0], parts[1]


def coalesced(reports: list[JobReport]) -> list[JobReport]:
    """Only the latest progress of each job is kept."""
    last = {(report.chunk.token, report.job): report for report in reports if type(report.command) is c.SetProgress}
    return [
        report
        for report in reports
        if type(report.command) is not c.KvDelete
        and (type(report.command) is not c.SetProgress or last[report.chunk.token, report.job] is report)
    ]


def sendings_of(ready: Sequence[Settlement]) -> list[SettleCommand]:
    """The commands for these settlements: acks by codec, failures and releases by their content."""
    sendings: list[SettleCommand] = []
    small: dict[Codec, list[JobsCompleted]] = {}
    failures: dict[tuple[Failure, Verdict], list[JobFailure]] = {}
    releases: dict[tuple[int, str], list[tuple[JobChunk, Sequence[int]]]] = {}
    for item in ready:
        if type(item) is JobsCompleted:
            if len(item.ids) >= ALONE:
                sendings.extend(acks_of_one(item))
            else:
                small.setdefault(item.chunk.handler.result_codec, []).append(item)
        elif type(item) is JobFailure:
            if item.verdict.kind == "snooze":
                releases.setdefault((item.verdict.after_ms or 0, item.verdict.reason), []).append(
                    (item.chunk, (item.id,))
                )
            elif item.verdict.kind != "cancel":
                failures.setdefault((item.failure, item.verdict), []).append(item)
        elif type(item) is JobsHandedBack:
            releases.setdefault((item.delay_ms, item.note), []).append((item.chunk, item.ids))
    for codec, items in small.items():
        sendings.extend(acks_of_many(items, codec))
    for (failure, verdict), failed in failures.items():
        sendings.extend(fails_of(failure, verdict, failed))
    for (delay_ms, note), released in releases.items():
        sendings.extend(releases_of(released, delay_ms, note))
    return sendings


def acks_of_one(done: JobsCompleted) -> list[SettleCommand]:
    """Acks of one chunk: one token, and often a range of ids."""
    chunk, codec = done.chunk, done.chunk.handler.result_codec
    together = in_a_row(done)
    pieces: list[SettleCommand] = []
    at = 0
    while at < len(together):
        results = None if done.results is None else done.results[at : at + IDS_MAX]
        count = min(IDS_MAX, len(together) - at) if results is None else fitting(results)
        ids = together[at : at + count]
        kept = None if results is None else results[:count]
        pieces.append(SettleCommand(c.Ack(ids, chunk.token, kept, codec if kept else "bytes"), ((chunk, count),)))
        at += count
    return pieces


def in_a_row(done: JobsCompleted) -> Sequence[int]:
    """The ids as a range where they are adjacent: a few bytes on the wire, and one step for the queue."""
    known, ids = done.chunk.ids, done.ids
    if type(known) is not range or type(ids) is range or ids[0] not in known:
        return ids
    at = known.index(ids[0])
    row = known[at : at + len(ids)]
    return row if list(row) == ids else ids


def fitting(results: Sequence[bytes | None]) -> int:
    """How many of the results fit into one command; at least one."""
    size = 0
    for count, result in enumerate(results):
        size += len(result) if result is not None else 1
        if size > RESULTS_BYTES_MAX and count:
            return count
    return len(results)


def acks_of_many(items: Sequence[JobsCompleted], codec: Codec) -> list[SettleCommand]:
    """Acks of several chunks: a token for each id. Acks without results go into their own command."""
    sendings: list[SettleCommand] = []
    bare = [item for item in items if item.results is None]
    for group in (bare, [item for item in items if item.results is not None]):
        at = 0
        while at < len(group):
            jobs = size = 0
            until = at
            while until < len(group) and jobs < IDS_MAX and size < RESULTS_BYTES_MAX:
                jobs += len(group[until].ids)
                size += sum(len(result) for result in group[until].results or () if result is not None)
                until += 1
            sendings.append(ack_of(group[at:until], codec))
            at = until
    return sendings


def ack_of(group: Sequence[JobsCompleted], codec: Codec) -> SettleCommand:
    chunks = [(item.chunk, len(item.ids)) for item in group]
    ids, tokens = joined([(item.chunk, item.ids) for item in group])
    if group[0].results is None:
        return SettleCommand(c.Ack(ids, tokens), chunks)
    return SettleCommand(c.Ack(ids, tokens, [result for item in group for result in item.results or ()], codec), chunks)


def joined(parts: Sequence[tuple[JobChunk, Sequence[int]]]) -> tuple[Sequence[int], c.Tokens]:
    """Ids and tokens: one token where it is the same for all."""
    if len(parts) == 1:
        return parts[0][1], parts[0][0].token
    ids = [job for _, each in parts for job in each]
    if all(chunk.token == parts[0][0].token for chunk, _ in parts):
        return ids, parts[0][0].token
    return ids, [chunk.token for chunk, each in parts for _ in each]


def fails_of(failure: Failure, verdict: Verdict, failed: list[JobFailure]) -> list[SettleCommand]:
    sendings = []
    for at in range(0, len(failed), IDS_MAX):
        piece = failed[at : at + IDS_MAX]
        ids, tokens = joined([(item.chunk, (item.id,)) for item in piece])
        error = verdict.reason or failure.error
        retry = verdict.kind == "retry"
        reason = "" if retry else failure.final_reason
        command = c.Fail(ids, tokens, error, failure.error_class, failure.stack, retry, verdict.after_ms, reason)
        sendings.append(SettleCommand(command, [(item.chunk, 1) for item in piece]))
    return sendings


def releases_of(released: list[tuple[JobChunk, Sequence[int]]], delay_ms: int, note: str = "") -> list[SettleCommand]:
    sendings: list[SettleCommand] = []
    parts: list[tuple[JobChunk, Sequence[int]]] = []
    for chunk, ids in released:
        parts.extend((chunk, ids[at : at + IDS_MAX]) for at in range(0, len(ids), IDS_MAX))
    at = 0
    while at < len(parts):
        jobs, until = len(parts[at][1]), at + 1
        while until < len(parts) and jobs + len(parts[until][1]) <= IDS_MAX:
            jobs += len(parts[until][1])
            until += 1
        ids, tokens = joined(parts[at:until])
        command = c.Release(ids, tokens, delay_ms, note)
        sendings.append(SettleCommand(command, [(chunk, len(each)) for chunk, each in parts[at:until]]))
        at = until
    return sendings
