"""Records of the log for readers that decode them themselves, filtered by tenant, queues and kinds.

The serving process reads only the beginning of each record; the reader turns records into events and columns. This
module knows no shards and no clock.
"""

from collections.abc import Collection

from stoker.journal.contract import Journal
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.records.codec import PART_PUBLISHED, LogRow, glance, open_record, queue_check, staged_at
from stoker.records.record_table import MEANS
from stoker.records.records import Record
from stoker.records.runs import count_events

SCANNED = 8
"""Times the bytes of a page that are looked through for it: a log may be full of other tenants' records."""

KINDS_OF: dict[object, frozenset[str]] = {
    kind.__struct_config__.tag: frozenset(map(str, means)) for kind, means in MEANS.items()
}
"""The kinds of events that a record can mean, by its tag."""


def read_records(journal: Journal, shards: int, tenant: str, command: c.ReadRecords) -> r.Records:
    """One page."""
    shard, after = command.shard, command.after
    until = journal.last(shard) if command.until is None else min(command.until, journal.last(shard))
    page = RecordPage(journal, command, tenant, until)
    scanned = SCANNED * command.bytes_max
    while page.has_room() and scanned > 0 and after < until:
        rows = journal.rows(shard, after, page.room)
        if not rows:
            break
        for row in rows:
            after = page.take(row, after)
            scanned -= row.size
            if not page.has_room() or scanned <= 0 or after >= until:
                break
    lowest, last, reached = journal.lowest(shard), journal.last(shard), max(after, command.after)
    return r.Records(page.records, reached, lowest, last, shards, page.events, page.bytes, page.since)


class RecordPage:
    """Gathers records that are asked for until there are enough."""

    def __init__(self, journal: Journal, command: c.ReadRecords, tenant: str, until: int) -> None:
        self.records: list[r.LoggedRecord] = []
        self.room = command.bytes_max
        self._is_full = False
        self.events = self.bytes = self.since = 0
        """Of the records that were counted."""
        self._journal, self._shard, self._until = journal, command.shard, until
        self._tenants = frozenset([tenant] if command.tenants is None else command.tenants)
        self._wanted = tags_for(command.kinds)
        self._chosen = queue_check(command.queues, command.prefixes)
        self._kinds = None if command.kinds is None else frozenset(command.kinds)
        self._payloads, self._counted, self._events_max = command.payloads, command.counted, command.events_max
        self._counts = command.counted or command.events_max is not None

    def has_room(self) -> bool:
        return not self._is_full

    def take(self, row: LogRow, after: int) -> int:
        """Those of a row behind a position; the position behind what was looked at."""
        tenants, wanted, chosen = self._tenants, self._wanted, self._chosen
        last = min(row.first + len(row) - 1, self._until)
        for sequence in range(max(row.first, after + 1), last + 1):
            head, body = row.parts(sequence - row.first)
            seen = glance(head)
            if seen.tenant not in tenants or seen.tag not in wanted or (chosen and not chosen(seen.queue)):
                continue
            if not self._payloads:
                body = b""
            elif seen.tag == PART_PUBLISHED:
                body = self._staged(head)
            if self._counts and not self._count(seen.at, open_record(sequence, head)):
                return sequence - 1
            if not self._counted:
                self.records.append(r.LoggedRecord(sequence, head, body))
            self.bytes += len(head) + len(body)
            self.room -= len(head) + len(body)
            if self.room <= 0:
                self._is_full = True
                return sequence
        return last

    def _count(self, at: int, record: Record) -> bool:
        """Whether there is room for the events of one more record."""
        events = count_events(record, self._kinds)
        if self._events_max is not None and self.events and self.events + events > self._events_max:
            self._is_full = True
            return False
        if events and not self.events:
            self.since = at
        self.events += events
        return True

    def _staged(self, head: bytes) -> bytes:
        """Payloads that were published where they lay; nothing if retention has come between the two records."""
        return self._journal.body(self._shard, staged_at(head)) or b""


def tags_for(kinds: Collection[str] | None) -> Collection[object]:
    if kinds is None:
        return KINDS_OF.keys()
    return frozenset(tag for tag, means in KINDS_OF.items() if not means.isdisjoint(kinds))
