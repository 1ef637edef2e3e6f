"""The logs of a queue, as the source reads them: how far they reach, where a moment is in them, and their rows.

Positions are sequence numbers; `after` is the last record that was read. This part knows the client, and no Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

import stoker
from stoker.brokers.remote.settings import RemoteSettings
from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.records.codec import glance, open_record
from stoker.spark.columns import Gathered
from stoker.spark.options import EARLIEST, LATEST, Connection, Offsets, ReadOptions
from stoker.spark.payloads import needed

PROBE_BYTES = 4096


class OffsetsOutOfRange(StokerError):
    """The log does not reach back, or not so far on, as somebody wants to read it."""

    code = "offsets_out_of_range"


@dataclass(frozen=True)
class Reach:
    """Of one shard's log."""

    lowest: int
    """The first record that is still there."""
    last: int


def connect(connection: Connection) -> Client:
    settings = RemoteSettings(token=connection.token) if connection.token is not None else None
    return stoker.connect(connection.url, tenant=connection.tenant, settings=settings, tracing=False)


def reaches(client: Client) -> dict[int, Reach]:
    """How far the log of each shard reaches now."""
    first = client.read_records(0, after=2**52, bytes_max=1)
    found = {0: Reach(first.lowest, first.last)}
    for shard in range(1, first.shards):
        page = client.read_records(shard, after=2**52, bytes_max=1)
        found[shard] = Reach(page.lowest, page.last)
    return found


def resolved(client: Client, wanted: Offsets | str | datetime, known: dict[int, Reach]) -> Offsets:
    """Where reading begins, or ends, in each shard."""
    if wanted == EARLIEST:
        return {shard: reach.lowest - 1 for shard, reach in known.items()}
    if wanted == LATEST:
        return {shard: reach.last for shard, reach in known.items()}
    if isinstance(wanted, datetime):
        millis = round(wanted.timestamp() * 1000)
        return {shard: position_before(client, shard, millis, reach) for shard, reach in known.items()}
    assert isinstance(wanted, dict)
    strange = sorted(wanted.keys() - known.keys())
    if strange:
        raise OffsetsOutOfRange(f"offsets name shard {strange[0]}: the shards are 0 to {len(known) - 1}")
    for shard, position in wanted.items():
        if position > known[shard].last:
            raise OffsetsOutOfRange(f"offset {position} of shard {shard}: its log ends at {known[shard].last}")
    return {shard: wanted.get(shard, reach.lowest - 1) for shard, reach in known.items()}


def position_before(client: Client, shard: int, millis: int, reach: Reach) -> int:
    """The last record before a moment: every one behind it happened then or later. Times in a log only grow."""
    low, high = reach.lowest - 1, reach.last
    while low < high:
        middle = (low + high) // 2
        page = client.read_records(shard, after=middle, until=high, bytes_max=PROBE_BYTES)
        if not page.records:  # nothing of ours there: go on with what was not looked at
            if page.next_after >= high:
                high = middle
            else:
                low = page.next_after
        elif glance(page.records[0].head).at < millis:
            low = page.records[0].sequence
        else:
            high = middle
    return low


def rows(client: Client, options: ReadOptions, shard: int, after: int, until: int) -> Iterator[pa.RecordBatch]:
    """The rows of a stretch of a log, in batches."""
    gathered = Gathered(shard)
    columns = options.columns if options.payload_schema is None else needed(options.columns)
    payloads = any(column.name == "payload" for column in columns)
    while after < until:
        page = client.read_records(shard, after, until, queues=options.queues, kinds=options.events, payloads=payloads)
        check_kept(options, shard, after, page.lowest)
        for record in page.records:
            gathered.add(record.sequence, open_record(record.sequence, record.head, record.body))
            if gathered.rows >= options.batch_rows:
                yield gathered.batch(columns, options.events)
                gathered = Gathered(shard)
        if page.next_after <= after:
            raise OffsetsOutOfRange(f"the log of shard {shard} ends at {page.last}, and {until} was asked for")
        after = page.next_after
    if gathered.rows:
        yield gathered.batch(columns, options.events)


def check_kept(options: ReadOptions, shard: int, after: int, lowest: int) -> None:
    """Retention may have overtaken a slow reader."""
    if options.fail_on_data_loss and lowest > after + 1:
        raise OffsetsOutOfRange(
            f"records {after + 1} to {lowest - 1} of shard {shard} are not kept any more: raise the retention of"
            " events, read more often, or set failOnDataLoss = false to go on without them"
        )
