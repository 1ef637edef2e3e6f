"""Log lines: plain text, or one JSON object a line. The server and `stoker worker` use them; any program may.

    from stoker.logs import JsonLines

    handler.setFormatter(JsonLines())
    handler.addFilter(stoker.JobFields())        # what a job's handler logs carries the job's id, name, queue, ...

Text from outside is escaped, so that a line break or a terminal code in a name has no effect.
"""

import json
import logging
import sys
import time
from typing import Any, Literal

from stoker.tracing import active_context

Format = Literal["plain", "json"]

PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The fields of every record; others were given with `extra`."""
JOB_FIELDS = ("job_id", "job_name", "queue", "attempt", "worker")
"""The fields that describe a job."""
WORKER = "stoker.worker"
"""The logger of workers. Its messages name the job, so plain lines do not repeat it."""


def set_up(format: Format, level: str | int, *filters: logging.Filter) -> None:
    """Let the root logger write to standard error. Called once, by a server or a worker process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else PlainLines())
    for one in filters:
        handler.addFilter(one)
    logging.basicConfig(handlers=[handler], level=level.upper() if isinstance(level, str) else level, force=True)


def escaped(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class PlainLines(logging.Formatter):
    """`2026-01-31T12:00:00Z INFO  server: text key=value`, followed by the stack if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        hidden = JOB_FIELDS if record.name == WORKER else JOB_FIELDS[2:]
        shown = {key: value for key, value in extras(record).items() if key not in hidden}
        more = "".join(f" {key}={escaped(str(value))}" for key, value in shown.items())
        name = record.name.removeprefix("stoker.")
        line = f"{at}.{int(record.msecs):03d}Z {record.levelname:<7} {name}: {escaped(record.getMessage())}{more}"
        return f"{line}\n{self._stack(record)}" if record.exc_info else line

    def _stack(self, record: logging.LogRecord) -> str:
        """Indented, so that no text in it looks like a log line."""
        assert record.exc_info
        stack = self.formatException(record.exc_info)
        return "\n".join(f"    {escaped(line)}" for line in stack.split("\n"))


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger`, `message`, the fields of `extra`, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of `extra`, and the active span, which links logs to traces."""
    found = {key: value for key, value in vars(record).items() if key not in PLAIN_FIELDS}
    span = active_context()
    if span is not None:
        found |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    return found
