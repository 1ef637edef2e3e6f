"""Every limit on what a caller may send, each with its reason. Units come last in the names.

A request over a limit is refused with `limit_exceeded` and changes nothing. A deployment may change the limits in
`Limits`; the constants above it are fixed.
"""

import re

import msgspec

NAME_PATTERN = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
"""Names of queues and tenants: safe in a URL, a file name, a metric label and a Redis key."""

KIND_CHARS_MAX = 256
"""The name of a kind of job. It is as long as a queue's name, but may be any printable text, since functions and people
choose it.
"""

QUEUES_PAGE_MAX = 1_000
"""Queues of one page of `GetQueues`, which takes about 10 ms."""

INT_MAX = 2**53 - 1
"""Times, durations and priorities stay exact in JSON and in JavaScript."""

DURATION_MS_MAX = 10 * 366 * 86_400_000
"""Ten years: longer than any sane delay, short enough that sums of times never overflow INT_MAX."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    payload_bytes_max: int = 10 * 1024 * 1024
    """As in flashQ: 10 MiB. Larger data belongs into an object store, with a reference in the payload."""
    result_bytes_max: int = 10 * 1024 * 1024
    """As large as a payload, since a job may pass on what it got. Also the limit for partial results."""
    batch_jobs_max: int = 10_000
    """Keeps one turn of the loop to a few milliseconds. The client's `push_many` splits larger pushes."""
    pull_jobs_max: int = 10_000
    """As many as a batch: what was pushed at once can be pulled at once."""
    reply_bytes_max: int = 32 * 1024 * 1024
    """Payloads, results and events in one pull or page, but at least one. So a reply fits into a frame, even in base64.
    """
    queues_per_pull_max: int = 1_000
    """A waiting pull is in the wait list of each of its queues."""
    queues_per_tenant_max: int = 10_000
    """Names are never forgotten, so a bug in a name template would otherwise fill memory."""
    key_chars_max: int = 1024
    """For unique_key, custom_id, debounce_id, group_id, and the keys of claims, transactions and stages."""
    tags_max: int = 32
    """Each event of a job repeats its tags."""
    tag_chars_max: int = 256
    """As long as a name."""
    depends_on_max: int = 10_000
    """A job may wait for a whole batch. Wider joins go through a job in between."""
    edges_per_batch_max: int = 20_000
    """All edges are checked in one turn. Push a larger graph in several batches."""
    workflow_jobs_max: int = 200_000
    """Twenty batches in one push, which take a tenth of a second. Larger workflows grow while they run: their jobs fill
    open steps.
    """
    workflow_steps_max: int = 10_000
    """Each shard that has a part of the workflow knows all of its steps."""
    workflow_edges_max: int = 50_000
    """Each edge is checked when the workflow is pushed, and again when its step ends."""
    workflows_per_tenant_max: int = 100_000
    """Unfinished workflows in one shard. Each takes a few hundred bytes, and as much again for each step."""
    workflow_results_bytes_max: int = 256 * 1024 * 1024
    """Results of forgotten jobs that later steps of a workflow may still read, for one tenant in one shard: a kilobyte
    for each job of the largest workflow. Beyond it, the results of the oldest workflow are dropped.
    """
    error_chars_max: int = 16_384
    """Longer errors are cut, not refused: a failing job must always be able to report that it failed."""
    stack_chars_max: int = 65_536
    """Enough for a deep stack trace. Longer ones are cut."""
    log_lines_max: int = 1_000
    """For one job. The oldest lines are dropped."""
    log_line_chars_max: int = 8_192
    """Longer lines are cut, as errors are."""
    partials_max: int = 1_000
    """Streamed chunks kept for late readers. The oldest are dropped; the events keep all of them."""
    attempt_history_max: int = 100
    """For one dead letter. A job without an attempt limit keeps its latest attempts."""
    message_chars_max: int = 1024
    """The text beside a progress bar."""
    trace_chars_max: int = 2_048
    """Room for a traceparent and four times the 512 characters of a full W3C tracestate."""
    browse_jobs_max: int = 1_000
    """A page for a person or a dashboard. Programs that need more read events."""
    events_max: int = 100_000
    """One read of the history: ten full batches."""
    wait_ms_max: int = 600_000
    """Ten minutes. Proxies and people give up earlier, so ask again instead."""
    lease_ms_min: int = 1
    """A lease of 0 would end before it begins."""
    senders_max: int = 10_000
    """Whose unfinished pushes a shard remembers; the one that has been quiet for longest makes room."""
    sendings_max: int = 1_000
    """Pushes of one sender that it has not settled: as many as a connection may have in flight."""
    stages_per_transaction_max: int = 100_000
    """One for each task attempt of a large Spark job."""
    kv_key_chars_max: int = 1024
    """As long as the other keys."""
    kv_value_bytes_max: int = 10 * 1024 * 1024
    """As large as a payload."""
    kv_batch_max: int = 1_000
    """Keys of one command, because a command is one turn of the loop and one record."""
    kv_entries_per_tenant_max: int = 1_000_000
    """They are all in memory, in one shard."""
    kv_wildcards_max: int = 32
    """`*` and `?` in one pattern. Each one makes comparing slower, and real patterns have about three."""
    kv_keys_max: int = 10_000
    """One page of keys. One turn of the loop looks at about twice as many."""
    schedules_per_tenant_max: int = 10_000
    """They are all in memory. Counted for each shard, like queues."""
    schedule_interval_ms_min: int = 1_000
    """As fine as the seconds of a cron expression."""
    schedule_payload_bytes_max: int = 65_536
    """Each schedule keeps its own payload, and each job gets a copy."""
    schedule_cron_chars_max: int = 256
    """As in flashQ. A list of all minutes has 170 characters."""
    schedule_catch_up_max: int = 1_000
    """Slots that are made up for at once after the server was down. Each is a job in the same turn."""


DEFAULT_LIMITS = Limits()
