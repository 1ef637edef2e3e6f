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


class OptionRow(msgspec.Struct, frozen=True):
    """What the layers must know about one option."""

    flashq: str
    """Its name in flashQ's dialect; empty if a client cannot set it."""
    batched: Batched = "always"
    is_column: bool = True
    """Whether a DataFrame column of this name sets this option."""


TABLE: dict[str, OptionRow] = {
    "priority": OptionRow("priority"),
    "delay_ms": OptionRow("delay", "general"),
    "run_at": OptionRow("run_at", "general"),
    "ttl_ms": OptionRow("ttl", "general"),
    "timeout_ms": OptionRow("timeout", "general"),
    "lease_ms": OptionRow("stall_timeout"),
    "max_attempts": OptionRow("max_attempts"),
    "max_crashes": OptionRow("max_crashes"),
    "backoff": OptionRow("backoff"),
    "unique_key": OptionRow("unique_key", "never"),
    "unique_ttl_ms": OptionRow("unique_ttl_ms"),
    "on_conflict": OptionRow("on_conflict"),
    "custom_id": OptionRow("job_id", "never"),
    "custom_id_ttl_ms": OptionRow("custom_id_ttl_ms"),
    "debounce_id": OptionRow("debounce_id", "never"),
    "debounce_ms": OptionRow("debounce_ttl"),
    "depends_on": OptionRow("depends_on", "never"),
    "group_id": OptionRow("group_id", "never"),
    "lifo": OptionRow("lifo", "general"),
    "tags": OptionRow("tags"),
    "remove_on_complete": OptionRow("remove_on_complete", "general"),
    "remove_on_fail": OptionRow("remove_on_fail"),
    "keep_completed_age_ms": OptionRow("keep_completed_age_ms", "general"),
    "keep_completed_count": OptionRow("keep_completed_count", "general"),
    "trace": OptionRow("trace"),
    "parent_id": OptionRow("parent_id"),
    "codec": OptionRow("codec", is_column=False),  # follows from the payload
    "name": OptionRow("name"),
    "workflow": OptionRow("workflow", "general", is_column=False),  # set by the queue, like the next two
    "schedule": OptionRow("", is_column=False),
    "slot": OptionRow("", is_column=False),
    "log_lines_max": OptionRow("keep_logs"),
    "stack_lines_max": OptionRow("stack_trace_limit"),
}

TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Options)}


def batched(how: Batched) -> tuple[str, ...]:
    """The names of the options with this kind of batching."""
    return tuple(name for name, row in TABLE.items() if row.batched == how)
