"""Reads the logs of a queue for the source: how far they reach, where a moment lies in them, and their rows.

Positions are sequence numbers; `after` is the last record that was read. This module knows the client, but not Spark.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.model.replies import Records
from stoker.records.codec import glance, open_record
from stoker.spark.columns import BufferedRuns
from stoker.spark.connecting import check_there, connect, is_tokens_own
from stoker.spark.options import EARLIEST, LATEST, STARTING, Offsets, QueueConnection, ReadOptions
from stoker.spark.payloads import needed
from stoker.spark.tables import JOB

PROBE_BYTES = 4096

log = logging.getLogger(__name__)


class OffsetsOutOfRange(StokerError):
    """The log does not reach back, or forward, to the requested position."""

    code = "offsets_out_of_range"


@dataclass(frozen=True)
class Reach:
    """The range of one shard's log."""

    lowest: int
    """The first record that is still there."""
    last: int


@contextmanager
def connected(options: ReadOptions) -> Iterator[Client]:
    """A client of the first tenant. If there are more, each request names all of them, and a server that refuses one
    says so at the first.
    """
    check_there(options.connection)
    with connect(options.connection, options.tenants[0]) as client:
        yield client


def several(options: ReadOptions) -> tuple[str, ...] | None:
    return options.tenants if len(options.tenants) > 1 else None


def reaches(client: Client) -> dict[int, Reach]:
    """How far the log of each shard reaches now. The logs contain all tenants."""
    first = client.read_records(0, after=2**52, bytes_max=1)
    found = {0: Reach(first.lowest, first.last)}
    for shard in range(1, first.shards):
        page = client.read_records(shard, after=2**52, bytes_max=1)
        found[shard] = Reach(page.lowest, page.last)
    return found


def reaches_for(client: Client, options: ReadOptions) -> dict[int, Reach]:
    """The same, after checking that we may read as each tenant."""
    if several(options) is not None:
        client.read_records(0, after=2**52, bytes_max=1, tenants=several(options))
    return reaches(client)


def name_of(client: Client, connection: QueueConnection, tenant: str) -> str | None:
    """The name of a tenant. That of a token is known only from its records; None if there are none."""
    if not is_tokens_own(connection, tenant):
        return tenant
    for shard, reach in reaches(client).items():
        page = client.read_records(shard, after=reach.lowest - 1, bytes_max=PROBE_BYTES)
        if page.records:
            return glance(page.records[0].head).tenant
    return None


def resolved(
    client: Client, options: ReadOptions, wanted: Offsets | str | datetime, known: dict[int, Reach], option: str
) -> Offsets:
    """Where reading begins, or ends, in each shard."""
    if wanted == EARLIEST:
        return {shard: reach.lowest - 1 for shard, reach in known.items()}
    if wanted == LATEST:
        return {shard: reach.last for shard, reach in known.items()}
    if isinstance(wanted, datetime):
        return {shard: moment_in(client, options, shard, wanted, reach) for shard, reach in known.items()}
    assert isinstance(wanted, dict)
    strange = sorted(wanted.keys() - known.keys())
    if strange:
        raise OffsetsOutOfRange(f"option {option} names shard {strange[0]}: the shards are 0 to {len(known) - 1}")
    for shard, position in wanted.items():
        if position > known[shard].last:
            raise OffsetsOutOfRange(
                f"option {option} says {position} of shard {shard}: its log ends at {known[shard].last}"
            )
    default = {shard: reach.lowest - 1 if option == STARTING else reach.last for shard, reach in known.items()}
    return default | wanted


# --- moments ----------------------------------------------------------------------------------------


def moment_in(client: Client, options: ReadOptions, shard: int, moment: datetime, reach: Reach) -> int:
    """The position such that everything after it happened at this moment or later, and nothing before it did."""
    millis = -(-round(moment.timestamp() * 1_000_000) // 1000)
    return position_before(client, shard, millis, reach, several(options))


def position_before(client: Client, shard: int, millis: int, reach: Reach, tenants: Sequence[str] | None = None) -> int:
    """The last record before a moment: every later one happened then or later. Times in a log only grow.

    If it lies among records of other tenants, it is any position there.
    """
    low, high = reach.lowest - 1, reach.last
    while low < high:
        middle = (low + high) // 2
        page = client.read_records(shard, after=middle, until=high, bytes_max=PROBE_BYTES, tenants=tenants)
        if not page.records:  # no records of this tenant there: continue with the part not looked at
            if page.next_after >= high:
                high = middle
            else:
                low = page.next_after
        elif glance(page.records[0].head).at < millis:
            low = page.records[0].sequence
        else:
            high = middle
    return low


# --- pages ------------------------------------------------------------------------------------------


def read_page(client: Client, options: ReadOptions, shard: int, after: int, until: int, **more: Any) -> Records:
    """What the options ask for of a range of a log: one page."""
    return client.read_records(
        shard,
        after,
        until,
        queues=options.queues,
        prefixes=options.prefixes,
        kinds=options.events,
        tenants=several(options),
        **more,
    )


def wants_payloads(options: ReadOptions) -> bool:
    return any(column.name == "payload" for column in options.columns)


def compiled(options: ReadOptions) -> "re.Pattern[str] | None":
    """The pattern that the names of queues must match: the server knows only how they begin."""
    return None if options.pattern is None else re.compile(options.pattern)


# --- rows -------------------------------------------------------------------------------------------


def rows(client: Client, options: ReadOptions, shard: int, after: int, until: int) -> Iterator[pa.RecordBatch]:
    """The rows of a range of a log, in batches."""
    gathered = BufferedRuns(shard)
    columns = options.columns if options.payload_schema is None else needed(options.columns, JOB)
    payloads, pattern = wants_payloads(options), compiled(options)
    while after < until:
        page = read_page(client, options, shard, after, until, payloads=payloads)
        if page.lowest > after + 1:
            lost(options, shard, after, min(page.lowest - 1, until), page.lowest)
        for logged in page.records:
            record = open_record(logged.sequence, logged.head, logged.body)
            if pattern is not None and not pattern.fullmatch(getattr(record, "queue", "")):
                continue
            gathered.add(logged.sequence, record)
            if gathered.rows >= options.batch_rows:
                yield gathered.batch(columns, options.events)
                gathered = BufferedRuns(shard)
        reached = max(page.next_after, min(page.lowest - 1, until))
        if reached <= after:
            raise OffsetsOutOfRange(f"the log of shard {shard} ends at {page.last}, and {until} was asked for")
        after = reached
    if gathered.rows:
        yield gathered.batch(columns, options.events)


# --- lost records -----------------------------------------------------------------------------------


def readable_start(options: ReadOptions, start: Offsets, known: dict[int, Reach], *, tell: bool = True) -> Offsets:
    """Where reading can begin: as requested, or from the oldest record on if earlier ones are lost.

    Either retention has overtaken a slow reader, or this is not the log that was read before: both are errors unless
    `failOnDataLoss` is false.
    """
    found: Offsets = {}
    for shard, reach in known.items():
        after = start.get(shard, 0)
        if after > reach.last:
            refuse_shorter_log(options, shard, after, reach.last, tell=tell)
            after = reach.last
        elif after < reach.lowest - 1:
            lost(options, shard, after, reach.lowest - 1, reach.lowest, tell=tell)
            after = reach.lowest - 1
        found[shard] = after
    return found


def lost(options: ReadOptions, shard: int, after: int, until: int, lowest: int, *, tell: bool = True) -> None:
    """Requested records are no longer kept. Their numbers count the records of all tenants."""
    what = (
        f"shard {shard}: records from {after + 1} on were asked for, and the oldest one that is kept is {lowest}:"
        f" {until - after} are lost"
    )
    if options.fail_on_data_loss:
        raise OffsetsOutOfRange(
            f"{what}. Set failOnDataLoss = false to go on from {lowest} without them, or begin anew with"
            " startingOffsets = earliest (a stream: and a new checkpoint). So that it does not happen again, read more"
            " often, or keep events longer: journal.events_age_ms_max and journal.events_bytes_max of the server"
        )
    if tell:
        log.warning("%s; reading continues from there (failOnDataLoss = false)", what)


def refuse_shorter_log(options: ReadOptions, shard: int, after: int, last: int, *, tell: bool = True) -> None:
    """The log is shorter than what was read of it."""
    what = f"shard {shard}: records up to {after} were read already, and the log ends at {last}"
    if options.fail_on_data_loss:
        raise OffsetsOutOfRange(
            f"{what}: this is another queue than the one that the checkpoint is about, or it was restored from a"
            " backup. Read it with a new checkpoint, or set failOnDataLoss = false to go on with what comes after"
            f" {last}"
        )
    if tell:
        log.warning("%s; reading continues with what comes after it (failOnDataLoss = false)", what)
