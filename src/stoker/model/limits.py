"""Every bound on what a caller may send, each with its reason. Units stand last in the names.

A request over a limit is refused with `limit_exceeded` and leaves no trace. `Limits` holds those
that a deployment may change; the constants below it are fixed by a format.
"""

import re

import msgspec

NAME_PATTERN = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
"""Queues, tenants, workers' queues: safe in a URL, a file name, a metric label and a Redis key."""

KIND_CHARS_MAX = 256
"""The name of a kind of job: as long as a queue's, but of any printable text, since functions and people give it."""

INT_MAX = 2**53 - 1
"""Times, durations and priorities stay exact in JSON and in JavaScript."""

DURATION_MS_MAX = 10 * 366 * 86_400_000
"""Ten years: longer than any sane delay, short enough that sums of times never overflow INT_MAX."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    payload_bytes_max: int = 10 * 1024 * 1024
    """flashQ's 10 MiB; bigger things belong into an object store, with a reference in the payload."""
    result_bytes_max: int = 10 * 1024 * 1024
    """As large as a payload: a job may hand on what it got. Bounds partial results, too."""
    batch_jobs_max: int = 10_000
    """Bounds one turn of the loop to a few milliseconds. `push_many` of the client splits more."""
    pull_jobs_max: int = 10_000
    """As many as a batch: what came in at once can go out at once."""
    reply_bytes_max: int = 32 * 1024 * 1024
    """Payloads, results and events in one pull or page, at least one: so a reply fits into a frame, also in base64."""
    queues_per_pull_max: int = 1_000
    """A waiting pull stands in the line of each of its queues."""
    queues_per_tenant_max: int = 10_000
    """Names are kept for ever; an unbounded set is a leak waiting for a template bug."""
    key_chars_max: int = 1024
    """unique_key, custom_id, debounce_id, group_id, claim, transaction and stage keys."""
    tags_max: int = 32
    """Each event of a job repeats its tags."""
    tag_chars_max: int = 256
    """As long as a name."""
    depends_on_max: int = 10_000
    """A fan-in of a whole batch; wider joins go through an intermediate job."""
    edges_per_batch_max: int = 20_000
    """Each is judged in the same turn; a wider graph is pushed in several batches."""
    workflow_jobs_max: int = 200_000
    """Twenty batches in one push, a tenth of a second; larger ones are made by their jobs, which fill open steps."""
    workflow_steps_max: int = 10_000
    """Each shard that has a part of the workflow knows all of its steps."""
    workflow_edges_max: int = 50_000
    """Each is looked at when the workflow is pushed, and once more when its step ends."""
    workflows_per_tenant_max: int = 100_000
    """Unfinished ones of a shard; a few hundred bytes each and as much for each step."""
    workflow_results_bytes_max: int = 256 * 1024 * 1024
    """What forgotten jobs of a tenant's workflows returned, kept in a shard for steps that read it: a kilobyte for each
    job of the largest workflow. Beyond it the oldest workflow's is gone with its jobs."""
    error_chars_max: int = 16_384
    """Longer errors are cut, not refused: a failing job must always be able to say that it failed."""
    stack_chars_max: int = 65_536
    """A deep stack trace; longer ones are cut."""
    log_lines_max: int = 1_000
    """Per job; the oldest lines make room."""
    log_line_chars_max: int = 8_192
    """Longer lines are cut, for the same reason as errors."""
    partials_max: int = 1_000
    """Streamed chunks kept for late readers; the oldest make room, the events keep them all."""
    attempt_history_max: int = 100
    """Of a dead letter; a job without an attempt limit keeps its latest ones."""
    message_chars_max: int = 1024
    """The line beside a progress bar."""
    trace_chars_max: int = 2_048
    """A traceparent and a full tracestate of the W3C's 512 characters fit four times."""
    browse_jobs_max: int = 1_000
    """A page for a person or a dashboard; more is a job for events."""
    events_max: int = 100_000
    """One read of the history; ten full batches."""
    wait_ms_max: int = 600_000
    """Ten minutes: proxies and people give up earlier; ask again."""
    lease_ms_min: int = 1
    """A lease of 0 would end before it begins."""
    senders_max: int = 10_000
    """Whose unfinished pushes a shard remembers; the one that has been quiet for longest makes room."""
    sendings_max: int = 1_000
    """Pushes of one sender that it has not settled: as many as a connection may have in flight."""
    stages_per_transaction_max: int = 100_000
    """One per task attempt of a large Spark job."""
    kv_key_chars_max: int = 1024
    """As long as the other keys."""
    kv_value_bytes_max: int = 10 * 1024 * 1024
    """As large as a payload."""
    kv_batch_max: int = 1_000
    """Keys of one command: it is one turn of the loop and one record."""
    kv_entries_per_tenant_max: int = 1_000_000
    """They are all in memory, and one shard holds them all."""
    kv_wildcards_max: int = 32
    """`*` and `?` in one pattern; people write three, and each makes the comparison with a key longer."""
    kv_keys_max: int = 10_000
    """One page of keys; one turn of the loop looks at about twice as many."""
    schedules_per_tenant_max: int = 10_000
    """They are all in memory; counted shard by shard, like queues."""
    schedule_interval_ms_min: int = 1_000
    """As fine as the seconds of a cron expression."""
    schedule_payload_bytes_max: int = 65_536
    """Each schedule keeps its own, and each job gets a copy."""
    schedule_cron_chars_max: int = 256
    """As long as flashQ's; a list of all minutes has 170."""
    schedule_catch_up_max: int = 1_000
    """Slots made up for at once after a time without a server: each is a job in the same turn."""


DEFAULT_LIMITS = Limits()
