"""Records of the log for readers that decode them themselves, filtered by tenant, queues and kinds.

The serving process reads only the beginning of each record; the reader turns records into events and columns. This
module knows no shards and no clock.
"""

from collections.abc import Collection

from stoker.journal.contract import Journal
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.records.codec import PART_PUBLISHED, LogRow, glance, staged_at
from stoker.records.record_table import MEANS

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
    while page.room > 0 and scanned > 0 and after < until:
        rows = journal.rows(shard, after, page.room)
        if not rows:
            break
        for row in rows:
            after = page.take(row, after)
            scanned -= row.size
            if page.room <= 0 or scanned <= 0 or after >= until:
                break
    return r.Records(page.records, max(after, command.after), journal.lowest(shard), journal.last(shard), shards)


class RecordPage:
    """Gathers records that are asked for until there are enough."""

    def __init__(self, journal: Journal, command: c.ReadRecords, tenant: str, until: int) -> None:
        self.records: list[r.LoggedRecord] = []
        self.room = command.bytes_max
        self._journal, self._shard, self._tenant, self._until = journal, command.shard, tenant, until
        self._wanted = tags_for(command.kinds)
        self._queues = None if command.queues is None else frozenset(command.queues)
        self._payloads = command.payloads

    def take(self, row: LogRow, after: int) -> int:
        """Those of a row behind a position; the position behind what was looked at."""
        tenant, wanted, queues = self._tenant, self._wanted, self._queues
        last = min(row.first + len(row) - 1, self._until)
        for sequence in range(max(row.first, after + 1), last + 1):
            head, body = row.parts(sequence - row.first)
            seen = glance(head)
            if seen.tenant != tenant or seen.tag not in wanted or (queues is not None and seen.queue not in queues):
                continue
            if not self._payloads:
                body = b""
            elif seen.tag == PART_PUBLISHED:
                body = self._staged(head)
            self.records.append(r.LoggedRecord(sequence, head, body))
            self.room -= len(head) + len(body)
            if self.room <= 0:
                return sequence
        return last

    def _staged(self, head: bytes) -> bytes:
        """Payloads that were published where they lay; nothing if retention has come between the two records."""
        return self._journal.body(self._shard, staged_at(head)) or b""


def tags_for(kinds: Collection[str] | None) -> Collection[object]:
    if kinds is None:
        return KINDS_OF.keys()
    return frozenset(tag for tag, means in KINDS_OF.items() if not means.isdisjoint(kinds))
