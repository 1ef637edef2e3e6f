"""The format of a checkpoint of a shard: a sequence of entries, in chunks.

A chunk is a msgpack array of three: its number, the options that its entries refer to by index, and the entries, each a
tagged array. The first chunk contains only the first entry; the last one ends with the last entry. A field may be added
at the end of a struct with a default, and structs with new tags may be added. `FORMAT` is raised each time, so that an
older release refuses what it cannot know. Older checkpoints stay readable. When you add something to the state, add it
here, in `checkpoint_saving.py` and in `checkpoint_loading.py`.
"""

from typing import Any

import msgspec

from stoker.engine.kept_results import KeptResult
from stoker.model.bulk import BulkState
from stoker.model.limits import Limits
from stoker.model.options import Codec, DeadLetterPolicy, GroupPolicy, Options, RateLimit, Settings
from stoker.model.replies import Level
from stoker.model.schedules import Schedule, ScheduleRun
from stoker.records.records import BulkStarted, FillStepHere, Message, TellStep, WorkflowMade
from stoker.records.stored import Stored, StoredRun

FORMAT = 6
"""2 added codecs of results and partial results, key-value entries and bytes of payloads; 3 workflows and schedules; 4
kept results of forgotten jobs of workflows; 5 classes of errors; 6
histograms of queues and bulk operations.
"""

CHUNK_ENTRIES = 4_096
CHUNK_BYTES = 1 << 20
"""A chunk ends with the entry that fills it, so it is at most this large plus one entry."""
PILE_BYTES = CHUNK_BYTES // 4
"""Larger lists of payloads or results are saved apart from their owner."""
IDS_MAX = 8_192
"""Ids or ranges in one entry."""

Values = list[bytes | Stored | None] | int
"""Payloads or results. A number n stands for the next n values in the piles before this entry."""
Runs = list[tuple[int, int]]
Counters = tuple[list[int], list[int], list[int], int]
"""A scope: counts, totals, the ring of the last minute and its second."""

HISTORY_FIELDS = 6
"""Fields of an attempt that are saved together. `SavedDetail.history_classes` has the class of its error."""

KEY_TABLES = ("unique_keys", "custom_ids", "debounces")
"""Tables of a queue in which a job holds a key, in the order in which entries number them."""


class Saved(msgspec.Struct, array_like=True, gc=False, tag_field="t"):
    """Base of all entries."""


# --- the shard, its tenants and queues -----------------------------------------------------------------


class SavedShard(Saved, gc=False, tag=1):
    """The first entry."""

    format: int
    number: int
    position: int
    """The last record of the journal that this state includes."""
    sequence: int
    token: int
    now: int
    epoch: int
    settings: Settings
    limits: Limits
    counters: Counters
    sent: dict[int, int]
    taken: dict[int, int]
    never_given: list[tuple[int, int]]


class SavedMessage(Saved, gc=False, tag=2):
    """A message that another shard has not taken yet."""

    to: int
    number: int
    tenant: str
    message: Message


class SavedTenant(Saved, gc=False, tag=3):
    """A tenant. Tenants and queues are numbered in the order in which they are saved."""

    name: str
    counters: Counters


class SavedBadEnds(Saved, gc=False, tag=4):
    """Some of a tenant's `ended_badly`."""

    tenant: int
    ranges: Runs


class SavedQueue(Saved, gc=False, tag=5):
    tenant: int
    name: str
    known: bool
    paused: bool
    rate_limit: RateLimit | None
    units: int
    filled_at: int
    concurrency: int
    group_on_retry: GroupPolicy
    dead_letters: DeadLetterPolicy
    durability: Level | None
    counters: Counters
    serial: int
    wait: list[int] = []
    run: list[int] = []


# --- jobs ----------------------------------------------------------------------------------------------


class SavedPile(Saved, gc=False, tag=6):
    """Payloads or results of the entries that follow, in their order."""

    values: list[bytes | Stored | None]


class SavedDetail(msgspec.Struct, array_like=True, gc=False):
    """The fields of `Detail` in their order up to `result_codec`, then those that were added later."""

    attempts: int = 0
    crashes: int = 0
    due: int = 0
    token: int = 0
    worker: str = ""
    claim: str | None = None
    started_at: int = 0
    lease_ms: int = 0
    lease_until: int = 0
    fires_at: int = 0
    cancel: bool = False
    blockers: dict[int, str] | None = None
    error: str = ""
    stack: str = ""
    reason: str = ""
    history: list[tuple[int, int, int, str, str, str]] | None = None
    percent: int = 0
    message: str = ""
    logs: tuple[int, list[tuple[int, str, str]]] | None = None
    """How many lines are kept at most, and the lines."""
    partials: tuple[int, list[int], Values] | None = None
    """How many chunks are kept at most, their indexes and their data."""
    next_chunk: int = 0
    ended_at: int = 0
    result: bytes | Stored | None = None
    serial: int = 0
    expires_at: int = 0
    retry_count: int = 0
    next_retry_at: int = 0
    revived: bool = False
    result_codec: Codec = "bytes"
    partial_codecs: list[Codec] | None = None
    """The codecs of the partial results, if not all are bytes. Not a field of `Detail`."""
    error_class: str = ""
    history_classes: list[str] | None = None
    """The classes of the errors in `history`, if any has one. Not a field of `Detail`."""
    heard_at: int = 0
    ready_at: int = 0


class SavedJob(Saved, gc=False, tag=7):
    """A single job. Jobs and batches are saved in the order of their lowest ids."""

    id: int
    queue: int
    options: int
    payload: bytes | Stored
    pushed_at: int
    state: int
    detail: SavedDetail | None = None
    holds_group: bool = False
    ttl_ends_at: int = 0
    """Set if it does not follow from the push: the job was released when its ttl had already passed."""


class SavedSlice(msgspec.Struct, array_like=True, gc=False):
    origin: int
    start: int
    stop: int
    left: int
    holes: list[int]
    token: int
    worker: str
    claim: str | None
    started_at: int
    lease_ms: int
    lease_until: int
    fires_at: int
    heard_at: int = 0


class SavedRun(msgspec.Struct, array_like=True, gc=False):
    """An `EndedRun`."""

    origin: int
    start: int
    stop: int
    state: int
    ended_at: int
    serial: int
    started_at: int
    worker: str
    reason: str
    results: Values | None
    codec: Codec = "bytes"


class SavedBatch(Saved, gc=False, tag=8):
    first: int
    step: int
    count: int
    queue: int
    options: int
    payloads: Values
    stored: StoredRun | None
    """The places of the payloads, if they are in the journal."""
    sizes: int | list[int] | None
    """None if `stored` knows them."""
    pushed_at: int
    start: int
    stop: int
    waiting: int
    holes: list[int]
    slices: list[SavedSlice]
    ended: list[SavedRun]
    due: int
    left: int
    ready_at: int = 0


class SavedLine(Saved, gc=False, tag=9):
    """Ended jobs of a queue in their order: those retained under a policy, or without a policy the dead letters.

    A run of ended jobs is named by its first job that is left.
    """

    queue: int
    policy: tuple[int, int] | None
    ids: list[int]


# --- remembered for a time: each kind in the order in which it will be forgotten ---------------------


class SavedAge(Saved, gc=False, tag=10):
    """When the oldest ended job under a policy is checked."""

    queue: int
    policy: tuple[int, int]
    at: int


class SavedKey(Saved, gc=False, tag=11):
    queue: int
    table: int
    key: str
    job: int
    expires_at: int


class SavedRequest(Saved, gc=False, tag=12):
    """The fields of `RequestRemembered`."""

    queue: int
    key: str
    runs: Runs
    refused: list[tuple[int, str, str]]
    duplicates: list[tuple[int, str]]
    expires_at: int


class SavedClaim(Saved, gc=False, tag=13):
    tenant: int
    name: str
    token: int
    runs: Runs
    held: int
    expires_at: int


class SavedPart(Saved, gc=False, tag=14):
    """A part of a stage: the fields of `Staged`."""

    at: int
    tenant: int
    transaction: str
    stage: str
    queue: str
    payloads: Values
    stored: StoredRun | None
    options: Options
    each: list[Options] | None
    part: int | None
    expires_at: int


class SavedOutcome(Saved, gc=False, tag=15):
    """How a transaction ended."""

    tenant: int
    transaction: str
    published: bool
    created: int
    runs: Runs
    expires_at: int


class SavedKv(Saved, gc=False, tag=17):
    tenant: int
    key: str
    value: bytes
    codec: Codec
    expires_at: int


class SavedAnswer(Saved, gc=False, tag=18):
    """An answer that may be asked for again, in the order of senders and numbers."""

    tenant: str
    sender: str
    number: int
    runs: Runs
    refused: list[tuple[int, str, str]]
    duplicates: list[tuple[int, str]]


class SavedSchedule(Saved, gc=False, tag=19):
    """The fields of `Planned`. Its due time follows from its slot."""

    queue: int
    name: str
    schedule: Schedule
    created_at: int
    changed_at: int
    anchor: int
    paused: bool
    runs: int
    next_slot: int
    done_to: int
    made_up_to: int
    jobs: list[int]
    last: list[ScheduleRun]


class SavedStep(msgspec.Struct, array_like=True, gc=False):
    """The progress of a step of a workflow: the fields of `Step` after `before`."""

    first: int
    count: int
    waits: int
    released: bool
    due: int
    ended: list[int]
    skipped: bool
    standing: int
    failing: bool
    round: int


class SavedFlow(Saved, gc=False, tag=30):
    """A workflow, saved in id order. `ended` is its place among the ended ones, from 1 on."""

    tenant: int
    at: int
    made: WorkflowMade
    steps: list[SavedStep]
    cancelled: bool
    round: int
    finished_at: int
    forget_at: int
    open: int
    ended: int
    readers: dict[int, int] = {}


class SavedEarly(Saved, gc=False, tag=31):
    """A message about a workflow that had not arrived yet."""

    workflow: int
    message: TellStep | FillStepHere


class SavedWatch(Saved, gc=False, tag=32):
    """Jobs of other shards that wait for a job of this shard."""

    tenant: str
    job: int
    waiting: list[int]


class SavedKept(Saved, gc=False, tag=33):
    """How a forgotten job of a workflow ended, in the order in which the workflows began to keep results."""

    tenant: int
    workflow: int
    step: int
    job: int
    kept: KeptResult


class SavedBulk(Saved, gc=False, tag=34):
    """A bulk operation."""

    tenant: int
    made: BulkStarted
    cursor: int
    looked: int
    changed: int
    refused: int
    state: BulkState
    next_at: int
    ended_at: int


class SavedEnd(Saved, gc=False, tag=16):
    """The last entry."""


Entry = (
    SavedShard
    | SavedMessage
    | SavedTenant
    | SavedBadEnds
    | SavedQueue
    | SavedPile
    | SavedJob
    | SavedBatch
    | SavedLine
    | SavedAge
    | SavedKey
    | SavedRequest
    | SavedClaim
    | SavedPart
    | SavedOutcome
    | SavedKv
    | SavedAnswer
    | SavedSchedule
    | SavedFlow
    | SavedEarly
    | SavedWatch
    | SavedKept
    | SavedBulk
    | SavedEnd
)

Chunk = tuple[int, list[Options], list[Entry]]

encode = msgspec.msgpack.Encoder().encode
decode: Any = msgspec.msgpack.Decoder(Chunk).decode
