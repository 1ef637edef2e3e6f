"""Everything that the log still holds about one job, in order.

The log has no index by job, so a story is found by reading from the job's push on. The push is found by bisection,
because ids grow with the log. Each record is first asked whether it is about the job, before any event is made of it: a
million records about other jobs cost a fraction of a second. Nothing here knows which journal it reads.
"""

from collections.abc import Callable, Iterable
from typing import Any

from stoker.model.event_table import ENDS_JOB, REMOVES_JOB
from stoker.model.events import Event
from stoker.model.ids import STEP, shard_of
from stoker.model.replies import Note, Story
from stoker.records import records as rec
from stoker.records.events import events_of
from stoker.records.record_table import NOTED, PUSHES, STEPS, TABLE, Jobs, RecordType

Read = Callable[[int, int, int], list[tuple[int, rec.Record]]]
"""The journal's `read(shard, after, limit)`."""

PAGE = 1024
"""Records read at once: a few hundred kilobytes, and few enough calls."""


def story(read: Read, shard: int, job_id: int, tenant: str, *, lowest: int, finished_at: int = 0) -> Story:
    """The story of a job for its own tenant. Other tenants get the answer for a job that never existed.

    `lowest` is the journal's: below it there may be pushes, but not everything that followed them. A caller that still
    has the job and knows when it ended may pass `finished_at`: nothing happens after that, so the rest of the log is
    not read.
    """
    teller = _Teller(shard, job_id, tenant, lowest, finished_at)
    if shard_of(job_id) != shard:
        return teller.told()
    after = _before_push(read, shard, job_id)
    while not teller.over:
        page = read(shard, after, PAGE)
        if not page:
            break
        after = page[-1][0]
        teller.hear(page)
    return teller.told()


def _before_push(read: Read, shard: int, job_id: int) -> int:
    """A position shortly before the job's push; 0 if the push is not in the log."""
    low, high = 0, PAGE
    while read(shard, high, 1):
        high *= 2
    while high - low > PAGE:
        middle = (low + high) // 2
        found = _next_push(read, shard, middle, high)
        if found is None or found[1] > job_id:
            high = middle  # the push that holds the job is at `middle` or before
        else:
            low = found[0] - 1
    return low


def _next_push(read: Read, shard: int, after: int, up_to: int) -> tuple[int, int] | None:
    """The sequence number and the first id of the next push in the log. Ids grow from push to push."""
    while after < up_to:
        page = read(shard, after, min(PAGE, up_to - after))
        if not page:
            return None
        for sequence, record in page:
            if type(record) in PUSHES:
                return (sequence, record.first) if sequence <= up_to else None  # type: ignore[attr-defined]
        after = page[-1][0]
    return None


class _Teller:
    """Picks the records that are about the job. It remembers the keys that the job holds, to recognise records about
    them.
    """

    def __init__(self, shard: int, job_id: int, tenant: str, lowest: int, finished_at: int) -> None:
        self.shard, self.job_id, self.tenant = shard, job_id, tenant
        self.lowest, self.finished_at = lowest, finished_at
        self.events: list[Event] = []
        self.notes: list[Note] = []
        self.queue: str | None = None
        """Known from the first event on."""
        self.options: Any = None
        self.keys: dict[str, str] = {}
        """The keys that the job holds at this point of the story, by table."""
        self.complete = lowest <= 1
        self.over = False
        """Nothing more can come. The page is still read to its end, because notes about an end come after it."""

    def told(self) -> Story:
        return Story(self.events, self.notes, self.complete)

    def hear(self, page: list[tuple[int, rec.Record]]) -> None:
        job_id = self.job_id
        for sequence, record in page:
            about = _ABOUT.get(type(record))
            if about is None:
                if type(record) in NOTED and record.tenant == self.tenant:  # type: ignore[attr-defined]
                    self._note(sequence, record)
            elif about(record, job_id) and record.tenant == self.tenant:  # type: ignore[attr-defined]
                self._step(sequence, record)

    def _step(self, sequence: int, record: Any) -> None:
        own = [event for event in events_of(self.shard, sequence, record) if event.job == self.job_id]
        self.events += own
        self.queue = record.queue
        if type(record) in PUSHES:
            self.complete = sequence >= self.lowest
            self.options = record.options
            self._hold("unique_keys", "custom_ids", "debounces")
        elif type(record) is rec.Revived:
            self._hold("unique_keys")
        elif type(record) is rec.Unblocked and not own:
            self._say(
                sequence, record.at, "edge_settled", f"no longer waits for job {record.dependency}, but for others"
            )
        kind = own[-1].kind if own else None
        if kind in ENDS_JOB:
            self.keys.pop("unique_keys", None)
            if self.options is not None and not self.options.custom_id_ttl_ms:
                self.keys.pop("custom_ids", None)
        self.over = kind in REMOVES_JOB or (kind in ENDS_JOB and record.at == self.finished_at)

    def _hold(self, *tables: str) -> None:
        if self.options is not None:
            named = {table: getattr(self.options, _OPTION_OF[table]) for table in tables}
            self.keys |= {table: key for table, key in named.items() if key is not None}

    def _note(self, sequence: int, record: Any) -> None:
        if type(record) is rec.TransactionEnded:
            if _in_pairs(record.runs, self.job_id):
                self._say(sequence, record.at, "published", f"by transaction {record.transaction}")
        elif type(record) is rec.RequestRemembered:
            if _in_pairs(record.runs, self.job_id):
                self.keys["requests"] = record.key
                self._say(sequence, record.at, "request_remembered", f"request {record.key} is answered with this job")
        elif type(record) is rec.RetryPostponed:
            if record.job == self.job_id:
                text = (
                    f"could not be retried automatically, because its key is taken; next try at {record.next_retry_at}"
                )
                self._say(sequence, record.at, "retry_postponed", text)
        elif record.queue == self.queue:
            self._note_of_queue(sequence, record)

    def _note_of_queue(self, sequence: int, record: Any) -> None:
        """Records about keys do not name the job that holds them."""
        if type(record) is rec.QueueObliterated:
            self._say(sequence, record.at, "queue_obliterated", "what was left of the job was removed with its queue")
            self.over, self.queue = True, None  # a later queue of the same name is another one
        elif type(record) is rec.KeyExtended:
            if self.keys.get("unique_keys") == record.key:
                text = f"unique_key {record.key} is held until {record.expires_at}"
                self._say(sequence, record.at, "key_extended", text)
        else:
            for table, key in record.keys:
                if self.keys.get(table) == key:
                    self._note_key(sequence, record, table, key)

    def _note_key(self, sequence: int, record: Any, table: str, key: str) -> None:
        name = _OPTION_OF[table]
        if type(record) is rec.KeysForgotten:
            del self.keys[table]
            self._say(sequence, record.at, "key_forgotten", f"{name} {key} is free again")
        else:
            self._say(sequence, record.at, "key_stored", f"{name} {key} is kept on disk from here on")

    def _say(self, sequence: int, at: int, kind: str, text: str) -> None:
        self.notes.append(Note(sequence, at, kind, text))


_OPTION_OF = {
    "unique_keys": "unique_key",
    "custom_ids": "custom_id",
    "debounces": "debounce_id",
    "requests": "request_key",
}


# --- is a record about the job? ----------------------------------------------------------------------


def _in_run(first: int, count: int, job_id: int) -> bool:
    """For ids of the same shard: every id between two of a run is in the run."""
    offset = job_id - first
    return 0 <= offset < count * STEP if count > 0 else 0 <= -offset < -count * STEP


def _in_pairs(runs: Iterable[tuple[int, int]], job_id: int) -> bool:
    """Runs that begin with 0 stand for refused items. Runs of a transaction may be in other shards."""
    return any(first and shard_of(first) == shard_of(job_id) and _in_run(first, count, job_id) for first, count in runs)


def _pushed(record: rec.JobsPushed | rec.ScheduledPush | rec.PartPublished, job_id: int) -> bool:
    return record.first <= job_id < record.first + len(record.payloads) * STEP


def _runs(record: Any, job_id: int) -> bool:
    for run in record.runs:  # noqa: SIM110  any() makes a generator for each record, and a long log has millions
        if _in_run(run.first, run.count, job_id):
            return True
    return False


def _run(record: Any, job_id: int) -> bool:
    return _in_run(record.run.first, record.run.count, job_id)


def _pairs(record: Any, job_id: int) -> bool:
    return _in_pairs(record.runs, job_id)


def _one(record: Any, job_id: int) -> bool:
    return bool(record.job == job_id)


def _jobs(record: rec.DeadRemoved, job_id: int) -> bool:
    return job_id in record.jobs


_SHAPES: dict[Jobs, Callable[[Any, int], bool]] = {
    "push": _pushed,
    "runs": _runs,
    "run": _run,
    "pairs": _pairs,
    "job": _one,
    "jobs": _jobs,
}

_ABOUT: dict[RecordType, Callable[[Any, int], bool]] = {kind: _SHAPES[TABLE[kind].jobs] for kind in STEPS}
