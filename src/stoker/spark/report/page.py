"""The report as one self-contained page: numbers on top, charts below, then the tables behind them."""

from collections.abc import Callable
from html import escape
from typing import Any

from stoker.model.version import __version__
from stoker.spark.report import charts
from stoker.spark.report.charts import count, duration, share

Rows = list[dict[str, Any]]

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --quiet: #6b7785; --line: #e3e7ec; --paper: #f6f7f9; --card: white;
  --bad: #d64550; --good: #2a9d62; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf1; --quiet: #98a4b3; --line: #2c343e; --paper: #12161b; --card: #1a2027; --bad: #f0707a;
    --good: #4fc98a; }
  figure svg { filter: invert(0.92) hue-rotate(180deg); }
}
@media print { :root { color-scheme: light; } figure, tr { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 40px 0 12px; }
header p { color: var(--quiet); margin: 4px 0 24px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.number, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.number { padding: 14px 16px; } .number b { display: block; font-size: 24px; font-weight: 650; line-height: 1.3; }
.number span { color: var(--quiet); font-size: 13px; } .bad b { color: var(--bad); } .good b { color: var(--good); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 16px; margin-top: 24px; }
figure { margin: 0; padding: 8px; } figure svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: 7px 12px; text-align: left; border-top: 1px solid var(--line); vertical-align: top; font-size: 14px; }
th { border: 0; color: var(--quiet); font-weight: 500; } td.n, th.n { text-align: right; white-space: nowrap; }
td code { font-size: 13px; } td .long { display: block; min-width: 230px; overflow-wrap: anywhere; }
@media (max-width: 520px) { .charts { grid-template-columns: 1fr; } }
"""


def page(numbers: dict[str, Any], title: str = "Stoker report") -> str:
    head = numbers["headline"]
    if not head["events"]:
        body = "<p>This lake holds no events yet: run <code>stoker pipeline run</code> first.</p>"
    else:
        drawn = "".join(f"<figure>{charts.svg(name, numbers)}</figure>" for name in charts.CHARTS)
        body = f'<div class="numbers">{tiles(head)}</div><div class="charts">{drawn}</div>{tables(numbers)}'
    about = [*period(numbers), many(head["events"], "event"), f"Stoker {__version__}"]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>'
        f"<header><h1>{escape(title)}</h1><p>{escape(' · '.join(about))}</p></header>"
        f"{body}</main></body></html>"
    )


def period(numbers: dict[str, Any]) -> list[str]:
    """The period of the report: in days where charts are by day, else in minutes."""
    head, chars = numbers["headline"], len("2026-11-16" if numbers["grain"] == "day" else "2026-11-16 08:00")
    times = [head[name][:chars].replace("T", " ") for name in ("from", "until") if name in head]
    return [f"{' to '.join(dict.fromkeys(times))} UTC"] if times else []


def many(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def tiles(head: dict[str, Any]) -> str:
    success, in_time, burnt = head["success"], head["in_time"], head["slo_burn"]
    told = [
        ("pushed", count(head["pushed"]), ""),
        ("completed", count(head["completed"]), ""),
        ("dead letters", count(head["failed"]), "bad" if head["failed"] else "good"),
        ("succeeded", share(success), judged(success, success is not None and success > 0.99)),
        ("p50 push to done", span(head["total_ms_p50"]), ""),
        ("p99 push to done", span(head["total_ms_p99"]), ""),
        (
            f"done within {duration(head['objective_ms'])}",
            share(in_time),
            judged(in_time, in_time is not None and in_time >= head["objective_share"]),
        ),
        (
            "of the budget burnt",
            "-" if burnt is None else f"{burnt:.2g} x",
            judged(burnt, burnt is not None and burnt <= 1),
        ),
        ("deliveries a job", f"{head['retry_amplification']:.2f}" if head["retry_amplification"] else "-", ""),
        ("not done yet", count(head["backlog"]), ""),
        (
            "until the backlog is done, at this pace",
            drained(head["drained_in_s"]),
            "bad" if head["drained_in_s"] is None else "",
        ),
        ("cost", f"{head['cost']:,.2f}" if head["cost"] else "-", ""),
    ]
    return "".join(
        f'<div class="number {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value, kind in told
    )


def growth(per_s: float) -> str:
    """Per minute; a value that rounds to zero has no sign."""
    by_minute = round(per_s * 60, 1)
    return f"{by_minute:+,.1f}" if by_minute else "0"


def judged(value: float | None, is_good: bool) -> str:
    return "" if value is None else "good" if is_good else "bad"


def drained(seconds: float | None) -> str:
    """When a backlog is empty: never, if it does not shrink."""
    if seconds is None:
        return "never"
    return duration(seconds * 1000) if seconds else "-"


def tables(numbers: dict[str, Any]) -> str:
    return "".join(make(numbers[name]) for name, make in TABLES.items())


def failures_table(rows: Rows) -> str:
    return table(
        "What failed",
        ["fingerprint", "reasons", "queues", "failed deliveries", "dead", "an example"],
        [
            [
                f'<code class="long">{escape(row["fingerprint"] or "-")}</code>',
                escape(", ".join(row["reasons"])),
                escape(", ".join(row["queues"])),
                row["count"],
                row["dead"],
                f'<span class="long">{escape((row["example"] or "")[:160])}</span>',
            ]
            for row in rows
        ],
    )


def kinds_table(rows: Rows) -> str:
    return table(
        "Kinds of jobs",
        ["queue", "kind", "completed", "tried again", "dead", "run p50", "p95", "p99"],
        [
            [
                escape(row["queue"]),
                escape(row["name"] or "-"),
                row["completed"],
                row["retrying"],
                row["failed"],
                *[span(row[f"run_ms_{word}"]) for word in ("p50", "p95", "p99")],
            ]
            for row in rows
        ],
    )


def drains_table(rows: Rows) -> str:
    return table(
        "Queues, and when they are empty",
        ["queue", "not done", "growth a minute", "done in"],
        [
            [
                escape(row["queue"]),
                row["backlog"],
                growth(row["growth_per_s"]),
                drained(row["drained_in_s"]),
            ]
            for row in rows
        ],
    )


def states_table(rows: Rows) -> str:
    return table(
        "Where jobs spend their time",
        ["state", "times", "together", "on average", "at most", "in it now"],
        [
            [
                escape(row["state"]),
                row["stays"],
                span(row["ms_sum"]),
                span(row["ms_sum"] / row["stays"] if row["stays"] else None),
                span(row["ms_max"]),
                row["now"],
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
        ["tenant", "pushed", "completed", "dead", "hours of work", "payloads", "cost"],
        [
            [
                escape(row["tenant"]),
                row["pushed"],
                row["completed"],
                row["failed"],
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
    "failures": failures_table,
    "kinds": kinds_table,
    "drains": drains_table,
    "states": states_table,
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


def span(millis: float | None) -> str:
    return "-" if millis is None else duration(millis)


def size(number: float) -> str:
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= worth:
            return f"{number / worth:,.3g} {unit}"
    return f"{number:,.0f} B"
