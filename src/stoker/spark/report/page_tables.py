"""The tables of a report as HTML. Every text from outside is escaped."""

from collections.abc import Callable
from html import escape
from typing import Any

from stoker.spark.report.charts import duration

Rows = list[dict[str, Any]]
MARKERS = 20
"""Rows of the table of markers. The charts have all of them."""


def tables(numbers: dict[str, Any]) -> str:
    drains = {row["queue"]: row for row in numbers["drains"]}
    numbers = numbers | {"queues": [row | drains[row["queue"]] for row in numbers["queues"]]}
    return "".join(make(numbers[name]) for name, make in TABLES.items())


def shown(job: int) -> str:
    """The command that shows a job."""
    return f'<code class="job">stoker job show {job}</code>'


def moment(text: str) -> str:
    """A time in minutes. Not a number, so it is not aligned like one."""
    return f'<span class="at">{escape(text[:16].replace("T", " "))}</span>'


def markers_table(rows: Rows) -> str:
    return table(
        "What happened besides jobs, the newest last",
        ["time (UTC)", "what", "queue", "how often", "about"],
        [
            [
                moment(row["at"]),
                escape(row["kind"]),
                escape(row["queue"] or "-"),
                escape(row["says"]),
                f'<span class="long">{escape((row["about"] or "")[:120])}</span>',
            ]
            for row in rows[-MARKERS:]
        ],
    )


def dead_table(rows: Rows) -> str:
    return table(
        "Dead letters, then and now",
        ["reason", "at the beginning", "new", "left", "now"],
        [
            [escape(row["reason"]), row["then"], row["new"], row["then"] + row["new"] - row["count"], row["count"]]
            for row in rows
        ],
    )


def letters_table(rows: Rows) -> str:
    return table(
        "The newest dead letters",
        ["job", "died (UTC)", "queue", "kind", "reason", "attempts", "error"],
        [
            [
                shown(row["job"]),
                moment(row["time"]),
                escape(row["queue"]),
                escape(row["name"] or "-"),
                escape(row["reason"]),
                row["attempts"],
                f'<span class="long">{escape((row["error"] or "")[:160])}</span>',
            ]
            for row in rows
        ],
    )


def failures_table(rows: Rows) -> str:
    return table(
        "What failed",
        ["fingerprint", "reasons", "queues", "failed deliveries", "dead letters now", "an example"],
        [
            [
                f'<code class="long">{escape(row["fingerprint"] or "-")}</code>',
                escape(", ".join(row["reasons"])),
                escape(", ".join(row["queues"])),
                row["count"],
                row["dead_letters"],
                f'<span class="long">{escape((row["example"] or "")[:160])}</span>{shown(row["example_job"])}',
            ]
            for row in rows
        ],
    )


def kinds_table(rows: Rows) -> str:
    return table(
        "Kinds of jobs",
        ["queue", "kind", "completed", "tried again", "died", "dead letters now", "run p50", "p95", "p99"],
        [
            [
                escape(row["queue"]),
                escape(row["name"] or "-"),
                row["completed"],
                row["retrying"],
                row["failed"],
                row["dead_letters"],
                *[span(row[f"run_ms_{word}"]) for word in ("p50", "p95", "p99")],
            ]
            for row in rows
        ],
    )


def queues_table(rows: Rows) -> str:
    return table(
        "Queues",
        [
            *("queue", "due to done p50", "p99", "due to start p99", "run p99"),
            *("dead letters now", "not done", "growth a minute", "done in", "intended delay"),
        ],
        [
            [
                escape(row["queue"]),
                span(row["latency_ms_p50"]),
                span(row["latency_ms_p99"]),
                span(row["ready_ms_p99"]),
                span(row["run_ms_p99"]),
                row["dead_letters"],
                row["backlog"],
                growth(row["growth_per_s"]),
                drained(row["drained_in_s"]),
                span(row["intended_ms"]) if row["intended_ms"] else "-",
            ]
            for row in rows
        ],
    )


def payloads_table(rows: Rows) -> str:
    return table(
        "Largest payloads",
        ["queue", "kind", "jobs", "largest", "on average", "together", "results"],
        [
            [
                escape(row["queue"]),
                escape(row["name"] or "-"),
                row["pushed"],
                size(row["payload_bytes_max"]),
                size(row["payload_bytes"] / row["pushed"] if row["pushed"] else 0),
                size(row["payload_bytes"]),
                size(row["result_bytes"]),
            ]
            for row in rows
        ],
    )


def tenants_table(rows: Rows) -> str:
    return table(
        "Tenants",
        ["tenant", "pushed", "completed", "died", "dead letters now", "hours of work", "payloads", "cost"],
        [
            [
                escape(row["tenant"]),
                row["pushed"],
                row["completed"],
                row["failed"],
                row["dead_letters"],
                f"{row['run_ms'] / 3_600_000:,.2f}",
                size(row["payload_bytes"]),
                f"{row['cost']:,.2f}",
            ]
            for row in rows
        ],
    )


def workers_table(rows: Rows) -> str:
    return table(
        "Workers",
        ["worker", "deliveries", "at work", "from first to last", "jobs at a time"],
        [
            [
                escape(row["worker"]),
                row["attempts"],
                span(row["busy_ms"]),
                span(row["span_ms"]),
                f"{row['busy_ms'] / row['span_ms']:.2f}" if row["span_ms"] else "-",
            ]
            for row in rows
        ],
    )


def schedules_table(rows: Rows) -> str:
    return table(
        "Schedules",
        ["schedule", "runs", "late on average", "at most"],
        [
            [escape(row["schedule"]), row["runs"], span(row["lag_ms_sum"] / row["runs"]), span(row["lag_ms_max"])]
            for row in rows
        ],
    )


TABLES: dict[str, Callable[[Rows], str]] = {
    "queues": queues_table,
    "failures": failures_table,
    "dead": dead_table,
    "letters": letters_table,
    "markers": markers_table,
    "kinds": kinds_table,
    "payloads": payloads_table,
    "tenants": tenants_table,
    "workers": workers_table,
    "schedules": schedules_table,
}
"""By subject, in the order of the page."""


def table(title: str, heads: list[str], rows: list[list[Any]]) -> str:
    if not rows:
        return ""
    kinds = ["n" if all(is_number(row[place]) for row in rows) else "" for place in range(len(heads))]
    top = "".join(f'<th class="{kind}">{escape(head)}</th>' for head, kind in zip(heads, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{f"{value:,}" if isinstance(value, int) else value}</td>'
            for value, kind in zip(row, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<h2>{escape(title)}</h2><div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def is_number(value: Any) -> bool:
    """Whether to right-align a cell: numbers with units, and placeholders."""
    return not isinstance(value, str) or value.lstrip("+-")[:1].isdigit() or value in ("-", drained(None))


def size(number: float) -> str:
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= worth:
            return f"{number / worth:,.3g} {unit}"
    return f"{number:,.0f} B"


def span(millis: float | None) -> str:
    return "-" if millis is None else duration(millis)


def growth(per_s: float) -> str:
    """Per minute; a value that rounds to zero has no sign."""
    by_minute = round(per_s * 60, 1)
    return f"{by_minute:+,.1f}" if by_minute else "0"


def drained(seconds: float | None) -> str:
    """When a backlog is empty: never, if it does not shrink."""
    if seconds is None:
        return "never"
    return duration(seconds * 1000) if seconds else "-"
