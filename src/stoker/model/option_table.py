"""What every layer must know about a job option, beside its type and its meaning: one row each.

Batching, the engine's short paths, flashQ's names and Spark's columns derive from this table. An option without a row
fails the tests.
"""

from typing import Any, Literal

import msgspec

from stoker.model.options import Options

Batched = Literal["always", "general", "never"]
"""Whether jobs with this option may share one batch: always, only on the engine's general path, or never, because each
of them needs data of its own.
"""


class Row(msgspec.Struct, frozen=True):
    """What the layers must know about one option."""

    flashq: str
    """Its name in flashQ's dialect; empty if a client cannot set it."""
    batched: Batched = "always"
    is_column: bool = True
    """Whether a DataFrame column of this name sets this option."""


TABLE: dict[str, Row] = {
    "priority": Row("priority"),
    "delay_ms": Row("delay", "general"),
    "run_at": Row("run_at", "general"),
    "ttl_ms": Row("ttl", "general"),
    "timeout_ms": Row("timeout", "general"),
    "lease_ms": Row("stall_timeout"),
    "max_attempts": Row("max_attempts"),
    "max_crashes": Row("max_crashes"),
    "backoff": Row("backoff"),
    "unique_key": Row("unique_key", "never"),
    "unique_ttl_ms": Row("unique_ttl_ms"),
    "on_conflict": Row("on_conflict"),
    "custom_id": Row("job_id", "never"),
    "custom_id_ttl_ms": Row("custom_id_ttl_ms"),
    "debounce_id": Row("debounce_id", "never"),
    "debounce_ms": Row("debounce_ttl"),
    "depends_on": Row("depends_on", "never"),
    "group_id": Row("group_id", "never"),
    "lifo": Row("lifo", "general"),
    "tags": Row("tags"),
    "remove_on_complete": Row("remove_on_complete", "general"),
    "remove_on_fail": Row("remove_on_fail"),
    "keep_completed_age_ms": Row("keep_completed_age_ms", "general"),
    "keep_completed_count": Row("keep_completed_count", "general"),
    "trace": Row("trace"),
    "parent_id": Row("parent_id"),
    "codec": Row("codec", is_column=False),  # follows from the payload
    "name": Row("name"),
    "workflow": Row("workflow", "general", is_column=False),  # set by the queue, like the next two
    "schedule": Row("", is_column=False),
    "slot": Row("", is_column=False),
    "log_lines_max": Row("keep_logs"),
    "stack_lines_max": Row("stack_trace_limit"),
}

TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Options)}


def batched(how: Batched) -> tuple[str, ...]:
    """The names of the options with this kind of batching."""
    return tuple(name for name, row in TABLE.items() if row.batched == how)
