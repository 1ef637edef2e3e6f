"""The trace of a job as text: W3C's `traceparent`, and after a line break `tracestate` if there is one.

The queue passes it on unchanged. This module builds and parses it, and adds it to pushes that have none.
"""

import re
from typing import Any, NamedTuple

import msgspec

from stoker.model.command_table import WITH_OPTIONS

PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
STATE_CHARS_MAX = 512
"""W3C allows dropping longer ones, and a job would carry them for its whole life."""


class Trace(NamedTuple):
    """The parts of a trace."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""


def written(trace: Trace) -> str:
    parent = f"00-{trace.trace_id:032x}-{trace.span_id:016x}-{trace.flags:02x}"
    return f"{parent}\n{trace.state}" if trace.state and is_state(trace.state) else parent


def from_headers(parent: str | None, state: str | None) -> str | None:
    """The trace of two request headers; None if they contain no valid trace."""
    if parent is None or PARENT.fullmatch(parent) is None:
        return None
    return f"{parent}\n{state}" if state and is_state(state) else parent


def read(text: str | None) -> Trace | None:
    """The trace in an option. An invalid one is ignored: it is no reason to refuse a job."""
    if not isinstance(text, str):
        return None
    parent, _, state = text.partition("\n")
    found = PARENT.fullmatch(parent)
    if found is None:
        return None
    return Trace(int(found[1], 16), int(found[2], 16), int(found[3], 16), state if is_state(state) else "")


def is_state(text: str) -> bool:
    return len(text) <= STATE_CHARS_MAX and text.isascii() and text.isprintable()


def carried(command: Any, trace: str) -> Any:
    """The same push with this trace, if it has none of its own. Other commands are returned unchanged."""
    if type(command) not in WITH_OPTIONS:
        return command
    each = getattr(command, "each", None)
    if each is not None:
        return msgspec.structs.replace(command, each=[with_trace(options, trace) for options in each])
    return msgspec.structs.replace(command, options=with_trace(command.options, trace))


def with_trace(options: Any, trace: str) -> Any:
    return msgspec.structs.replace(options, trace=trace) if options.trace is None else options
