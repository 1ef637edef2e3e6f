"""Counts what lies ahead of a reader, so that a stream's batches have as many events as were asked for.

The server counts. Each record is counted once, however often Spark asks: what was counted is kept until the reader has
moved on. This module knows the client, but not Spark.
"""

from dataclasses import dataclass
from typing import NamedTuple

from stoker.client.sync import Client
from stoker.records.codec import open_record
from stoker.records.runs import count_events
from stoker.spark.logs import OffsetsOutOfRange, compiled, read_page, wants_payloads
from stoker.spark.options import Offsets, ReadOptions

PAGE_BYTES = 4 * 1024 * 1024


class Limit(NamedTuple):
    """The most events and bytes that are wanted; 0 means any number."""

    events: int = 0
    bytes: int = 0


class Amount(NamedTuple):
    """What is in a range of a log."""

    reached: int
    """The position up to which it was counted."""
    events: int = 0
    bytes: int = 0
    since: int = 0
    """When the first of them happened, in milliseconds; 0 if there is none."""

    def plus(self, more: "Amount") -> "Amount":
        return Amount(more.reached, self.events + more.events, self.bytes + more.bytes, self.since or more.since)


def count(client: Client, options: ReadOptions, shard: int, after: int, until: int, limit: Limit) -> Amount:
    """Count the events that a reader gets, up to a limit. A record is never torn: if a single one has more, it is
    counted alone.
    """
    found = Amount(after)
    while found.reached < until:
        room, left = limit.events - found.events, limit.bytes - found.bytes
        if (limit.events and room <= 0) or (limit.bytes and left <= 0):
            break
        bytes_max = min(left, PAGE_BYTES) if limit.bytes else PAGE_BYTES
        payloads = bool(limit.bytes) and wants_payloads(options)
        page = count_page(client, options, shard, found.reached, until, Limit(max(0, room), bytes_max), payloads)
        if limit.events and found.events and page.events > room:
            break
        if page.reached <= found.reached:
            raise OffsetsOutOfRange(f"the log of shard {shard} ends at {page.reached}, and {until} was asked for")
        found = found.plus(page)
    return found


def count_page(
    client: Client, options: ReadOptions, shard: int, after: int, until: int, limit: Limit, payloads: bool
) -> Amount:
    """The same for one request. The server counts, unless a pattern chooses the queues: then it sends the heads."""
    pattern, most = compiled(options), limit.events or None
    if pattern is None:
        page = read_page(
            client,
            options,
            shard,
            after,
            until,
            counted=True,
            events_max=most,
            bytes_max=limit.bytes,
            payloads=payloads,
        )
        return Amount(max(page.next_after, min(page.lowest - 1, until)), page.events, page.bytes, page.since)
    page = read_page(client, options, shard, after, until, bytes_max=limit.bytes, payloads=payloads)
    found = Amount(after)
    for logged in page.records:
        record = open_record(logged.sequence, logged.head)
        if not pattern.fullmatch(getattr(record, "queue", "")):
            continue
        events = count_events(record, options.events)
        if most is not None and found.events and found.events + events > most:
            return found._replace(reached=logged.sequence - 1)
        at = record.at if events else 0  # type: ignore[attr-defined]
        found = found.plus(Amount(logged.sequence, events, len(logged.head) + len(logged.body), at))
    return found._replace(reached=max(page.next_after, min(page.lowest - 1, until)))


@dataclass
class CountedPart:
    """What is known of one shard's log from the reader's position on."""

    start: int
    amount: Amount
    nothing_until: int
    """There is no event for this reader up to here. Records that were lost before do not count as nothing."""

    def add(self, more: Amount) -> None:
        if not self.amount.events and not more.events and self.nothing_until == self.amount.reached:
            self.nothing_until = more.reached
        self.amount = self.amount.plus(more)


class LogBacklog:
    """The counted part of the logs ahead of one stream."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._parts: dict[int, CountedPart] = {}

    @property
    def events(self) -> int:
        return sum(part.amount.events for part in self._parts.values())

    @property
    def bytes(self) -> int:
        return sum(part.amount.bytes for part in self._parts.values())

    def reached(self) -> Offsets:
        return {shard: part.amount.reached for shard, part in self._parts.items()}

    def skipped(self) -> Offsets:
        """How many records without an event for this reader lie behind its position."""
        return {
            shard: part.amount.reached - part.start for shard, part in self._parts.items() if not part.amount.events
        }

    def begin(self, start: Offsets, readable: Offsets) -> None:
        """The reader is here, and can read from there on. What was counted stays if it lies behind that."""
        for shard, position in start.items():
            part, begin = self._parts.get(shard), readable[shard]
            if part is None or part.start != position or not part.nothing_until <= begin <= part.amount.reached:
                self._parts[shard] = CountedPart(position, Amount(begin), position)

    def begun(self, start: Offsets) -> Offsets:
        """Where reading may begin: behind the records that have nothing for this reader."""
        known = {shard: part.nothing_until for shard, part in self._parts.items() if part.start == start.get(shard)}
        return {shard: max(position, known.get(shard, 0)) for shard, position in start.items()}

    def count(self, client: Client, ends: Offsets, limit: Limit) -> None:
        """Count on until there is enough, from each shard in proportion to its lag. The last one may bring more only if
        nothing else has come.
        """
        full: set[int] = set()
        while True:
            lags = {shard: end - self._parts[shard].amount.reached for shard, end in ends.items() if shard not in full}
            lags = {shard: lag for shard, lag in lags.items() if lag > 0}
            total = sum(lags.values())
            for shard, lag in sorted(lags.items(), key=lambda each: -each[1]):
                room = self._room(limit)
                if room is None:
                    return
                share = Limit(*(max(1, most * lag // total) if most else 0 for most in room))
                part = self._parts[shard]
                found = count(client, self._options, shard, part.amount.reached, ends[shard], share)
                if room.events and self.events and found.events > room.events:
                    full.add(shard)
                else:
                    part.add(found)
            if not lags:
                return

    def _room(self, limit: Limit) -> Limit | None:
        """What is still missing; None if nothing is."""
        events, size = limit.events - self.events, limit.bytes - self.bytes
        if (limit.events and events <= 0) or (limit.bytes and size <= 0):
            return None
        return Limit(max(0, events), max(0, size))
