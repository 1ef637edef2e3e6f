"""The report as one page that needs nothing else: numbers on top, charts below, then the tables behind them."""

from html import escape
from typing import Any

from stoker.model.version import __version__
from stoker.spark.report import charts
from stoker.spark.report.charts import count, duration

STYLE = """
:root { color-scheme: light; --ink: #1d2733; --quiet: #6b7785; --line: #e3e7ec; --paper: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 40px 0 12px; }
header p { color: var(--quiet); margin: 4px 0 24px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.number, figure { background: white; border: 1px solid var(--line); border-radius: 10px; }
.number { padding: 14px 16px; } .number b { display: block; font-size: 24px; font-weight: 650; line-height: 1.3; }
.number span { color: var(--quiet); font-size: 13px; } .bad b { color: #d64550; } .good b { color: #2a9d62; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 16px; margin-top: 24px; }
figure { margin: 0; padding: 8px; } figure svg { width: 100%; height: auto; display: block; }
table { width: 100%; border-collapse: collapse; background: white; border: 1px solid var(--line); border-radius: 10px; }
th, td { padding: 7px 12px; text-align: left; border-top: 1px solid var(--line); vertical-align: top; font-size: 14px; }
th { border: 0; color: var(--quiet); font-weight: 500; } td.n, th.n { text-align: right; white-space: nowrap; }
td code { font-size: 13px; overflow-wrap: anywhere; } .scroll { overflow-x: auto; }
@media (max-width: 520px) { .charts { grid-template-columns: 1fr; } }
"""


def page(numbers: dict[str, Any], title: str = "Stoker report") -> str:
    head = numbers["headline"]
    if not head["events"]:
        body = "<p>This lake holds no events yet: run <code>stoker pipeline run</code> first.</p>"
    else:
        drawn = "".join(f"<figure>{charts.svg(name, numbers)}</figure>" for name in charts.CHARTS)
        body = f'<div class="numbers">{tiles(head)}</div><div class="charts">{drawn}</div>{tables(numbers)}'
    when = " to ".join(head[name][:16].replace("T", " ") for name in ("from", "until") if name in head)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>'
        f"<header><h1>{escape(title)}</h1><p>{escape(when)} UTC · {head['events']:,} events ·"
        f" Stoker {__version__}</p></header>"
        f"{body}</main></body></html>"
    )


def tiles(head: dict[str, Any]) -> str:
    success, in_time = head["success"], head["in_time"]
    drained = "growing" if head["backlog"] > 0 else "none"
    if head["drained_in_s"] is not None:
        drained = duration(head["drained_in_s"] * 1000)
    told = [
        ("pushed", count(head["pushed"]), ""),
        ("completed", count(head["completed"]), ""),
        ("dead letters", count(head["failed"]), "bad" if head["failed"] else "good"),
        ("succeeded", share(success), "good" if success is None or success > 0.99 else "bad"),
        ("p50 push to done", span(head["total_ms_p50"]), ""),
        ("p99 push to done", span(head["total_ms_p99"]), ""),
        (
            f"within {duration(head['objective_ms'])}",
            share(in_time),
            "good" if in_time is None or in_time >= head["objective_share"] else "bad",
        ),
        ("deliveries a job", f"{head['retry_amplification']:.2f}" if head["retry_amplification"] else "-", ""),
        ("not done yet", count(head["backlog"]), ""),
        ("backlog gone in", drained, ""),
    ]
    return "".join(
        f'<div class="number {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value, kind in told
    )


def tables(numbers: dict[str, Any]) -> str:
    return (
        table(
            "What failed",
            ["fingerprint", "reasons", "queues", "failed deliveries", "dead", "an example"],
            [
                [
                    f"<code>{escape(row['fingerprint'] or '-')}</code>",
                    escape(", ".join(row["reasons"])),
                    escape(", ".join(row["queues"])),
                    row["count"],
                    row["dead"],
                    escape((row["example"] or "")[:160]),
                ]
                for row in numbers["failures"]
            ],
        )
        + table(
            "Kinds of jobs",
            ["queue", "kind", "completed", "tried again", "dead", "run p50", "p95", "p99"],
            [
                [
                    escape(row["queue"]),
                    escape(row["name"] or "-"),
                    row["completed"],
                    row["retrying"],
                    row["failed"],
                    *[cell(row[f"run_ms_{word}"]) for word in ("p50", "p95", "p99")],
                ]
                for row in numbers["kinds"]
            ],
        )
        + table(
            "Tenants",
            ["tenant", "pushed", "completed", "dead", "hours of work", "payloads", "cost"],
            [
                [
                    escape(row["tenant"]),
                    row["pushed"],
                    row["completed"],
                    row["failed"],
                    f"{row['run_ms'] / 3_600_000:.2f}",
                    f"{row['payload_bytes'] / 1e6:,.1f} MB",
                    f"{row['cost']:,.2f}",
                ]
                for row in numbers["tenants"]
            ],
        )
        + table(
            "Workers",
            ["worker", "deliveries", "busy", "of their time"],
            [
                [escape(row["worker"]), row["attempts"], span(row["busy_ms"]), share(row["busy_ms"] / row["span_ms"])]
                for row in numbers["workers"]
            ],
        )
        + table(
            "Schedules",
            ["schedule", "runs", "late on average", "at most"],
            [
                [escape(row["schedule"]), row["runs"], span(row["lag_ms_sum"] / row["runs"]), span(row["lag_ms_max"])]
                for row in numbers["schedules"]
            ],
        )
    )


def table(title: str, heads: list[str], rows: list[list[Any]]) -> str:
    if not rows:
        return ""
    numeric = [
        all(not isinstance(row[place], str) or row[place][:1].isdigit() for row in rows) for place in range(len(heads))
    ]
    kinds = ["n" if is_number else "" for is_number in numeric]
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
    return not isinstance(value, str) or value[:1].isdigit() or value == "-"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.4g} %"


def span(millis: float | None) -> str:
    return "-" if millis is None else duration(millis)


def cell(millis: float | None) -> str:
    return span(millis)
