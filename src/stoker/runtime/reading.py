"""Records of the log for readers that unpack them themselves: of one tenant, of some queues and kinds.

The serving process only glances at the beginning of each record; turning them into events and columns is the reader's
work. Nothing here knows a shard or a clock.
"""

from collections.abc import Collection

from stoker.journal.contract import Journal
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.records.codec import Row, glance
from stoker.records.events import MEANS

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
    room, scanned = command.bytes_max, SCANNED * command.bytes_max
    wanted = tags_for(command.kinds)
    queues = None if command.queues is None else frozenset(command.queues)
    found: list[r.LoggedRecord] = []
    while room > 0 and scanned > 0 and after < until:
        rows = journal.rows(shard, after, room)
        if not rows:
            break
        for row in rows:
            taken, after = records_of(row, after, until, tenant, wanted, queues, command.payloads)
            found += taken
            room -= sum([len(record.head) + len(record.body) for record in taken])
            scanned -= row.size
            if room <= 0 or scanned <= 0 or after >= until:
                break
    return r.Records(found, max(after, command.after), journal.lowest(shard), journal.last(shard), shards)


def records_of(
    row: Row,
    after: int,
    until: int,
    tenant: str,
    wanted: Collection[object],
    queues: Collection[str] | None,
    payloads: bool,
) -> tuple[list[r.LoggedRecord], int]:
    """Those of a row that are asked for, and the position behind what was looked at."""
    found: list[r.LoggedRecord] = []
    last = min(row.first + len(row) - 1, until)
    for sequence in range(max(row.first, after + 1), last + 1):
        head, body = row.parts(sequence - row.first)
        seen = glance(head)
        if seen.tenant == tenant and seen.tag in wanted and (queues is None or seen.queue in queues):
            found.append(r.LoggedRecord(sequence, head, body if payloads else b""))
    return found, last


def tags_for(kinds: Collection[str] | None) -> Collection[object]:
    if kinds is None:
        return KINDS_OF.keys()
    return frozenset(tag for tag, means in KINDS_OF.items() if not means.isdisjoint(kinds))
