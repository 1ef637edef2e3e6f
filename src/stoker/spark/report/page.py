"""The report as one self-contained page: numbers on top, charts below, then the tables behind them."""

from html import escape
from typing import Any

from stoker.model.version import __version__
from stoker.spark.report import charts
from stoker.spark.report.charts import count, duration, share
from stoker.spark.report.page_tables import drained, span, tables

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --quiet: #6b7785; --line: #e3e7ec; --paper: #f6f7f9; --card: white;
  --bad: #d64550; --good: #2a9d62; --blue: #2f6fde; --amber: #e09f3e; --violet: #7a5cc9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf1; --quiet: #98a4b3; --line: #2c343e; --paper: #12161b; --card: #1a2027; --bad: #f0707a;
    --good: #4fc98a; --blue: #6d9ff5; --amber: #ecb75c; --violet: #a68cf0; }
}
@media print { :root { color-scheme: light; } figure, tr { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 40px 0 12px; }
header p { color: var(--quiet); margin: 4px 0 24px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.number, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.number { padding: 14px 16px; } .number b { display: block; font-size: 24px; font-weight: 650; line-height: 1.3;
  white-space: nowrap; }
.number span { color: var(--quiet); font-size: 13px; display: block; }
.number i { color: var(--quiet); font-size: 12px; font-style: normal; }
.bad b { color: var(--bad); } .good b { color: var(--good); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 16px; margin-top: 24px; }
figure { margin: 0; padding: 8px; } figure svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: 7px 12px; text-align: left; border-top: 1px solid var(--line); vertical-align: top; font-size: 14px; }
th { border: 0; color: var(--quiet); font-weight: 500; } td.n, th.n { text-align: right; }
td.n { white-space: nowrap; }
td code { font-size: 13px; }
td .job, td .at { white-space: nowrap; } td .long { display: block; min-width: 230px; overflow-wrap: anywhere; }
@media (max-width: 520px) {
  .charts { grid-template-columns: 1fr; } figure { overflow-x: auto; } figure svg { min-width: 520px; }
}
"""


def page(numbers: dict[str, Any], title: str = "Stoker report") -> str:
    head = numbers["headline"]
    if not head["events"]:
        body = f"<p>{nothing(numbers['scope'])}</p>"
    else:
        drawn = "".join(f"<figure>{charts.svg(name, numbers)}</figure>" for name in charts.CHARTS)
        shown = tiles(head, numbers.get("before"))
        body = f'<div class="numbers">{shown}</div><div class="charts">{drawn}</div>{tables(numbers)}'
    about = [*period(numbers), *narrowed(numbers), many(head["events"], "event"), f"Stoker {__version__}"]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>'
        f"<header><h1>{escape(title)}</h1><p>{escape(' · '.join(about))}</p></header>"
        f"{body}</main></body></html>"
    )


def nothing(scope: dict[str, Any]) -> str:
    if any(scope.values()):
        return "There are no events in this part of the lake: choose another period, queue or tenant."
    return "This lake holds no events yet: run <code>stoker pipeline run</code> first."


def narrowed(numbers: dict[str, Any]) -> list[str]:
    """The queue and the tenant of the report, if it is about one, and whether it is compared."""
    told = [f"{name} {numbers['scope'][name]}" for name in ("queue", "tenant") if numbers["scope"][name]]
    return [*told, "compared with the period before"] if "before" in numbers else told


def period(numbers: dict[str, Any]) -> list[str]:
    """The period of the report: in days where charts are by day, else in minutes."""
    asked, head = numbers["scope"], numbers["headline"]
    chars = len("2026-11-16" if numbers["grain"] == "day" else "2026-11-16 08:00")
    ends = [asked[name] or head.get(name) for name in ("from", "until")]
    times = [end[:chars].replace("T", " ") for end in ends if end]
    return [f"{' to '.join(dict.fromkeys(times))} UTC"] if times else []


def many(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def tiles(head: dict[str, Any], before: dict[str, Any] | None) -> str:
    success, in_time, burnt = head["success"], head["in_time"], head["slo_burn"]
    told = [
        ("pushed", "pushed", count(head["pushed"]), ""),
        ("completed", "completed", count(head["completed"]), ""),
        ("dead_letters", "dead letters now", count(head["dead_letters"]), "bad" if head["dead_letters"] else "good"),
        ("success", "of ended jobs succeeded", share(success), judged(success, success is not None and success > 0.99)),
        ("latency_ms_p50", "p50 due to done", span(head["latency_ms_p50"]), ""),
        ("latency_ms_p99", "p99 due to done", span(head["latency_ms_p99"]), ""),
        ("total_ms_p99", "p99 push to done", span(head["total_ms_p99"]), ""),
        (
            "in_time",
            f"done within {duration(head['objective_ms'])}",
            share(in_time),
            judged(in_time, in_time is not None and in_time >= head["objective_share"]),
        ),
        (
            "slo_burn",
            "of the budget burnt",
            "-" if burnt is None else f"{burnt:.2g} x",
            judged(burnt, burnt is not None and burnt <= 1),
        ),
        (
            "retry_amplification",
            "deliveries a job",
            f"{head['retry_amplification']:.2f}" if head["retry_amplification"] else "-",
            "",
        ),
        ("", "not done yet", count(head["backlog"]), ""),
        (
            "",
            "until the backlog is done, at this pace",
            drained(head["drained_in_s"]),
            "bad" if head["drained_in_s"] is None else "",
        ),
        *([("cost", "cost", f"{head['cost']:,.2f}", "")] if head["cost"] else []),
    ]
    return "".join(
        f'<div class="number {kind}"><b>{escape(value)}</b><span>{escape(name)}</span>'
        f"{compared(key, head, before)}</div>"
        for key, name, value, kind in told
    )


def compared(key: str, head: dict[str, Any], before: dict[str, Any] | None) -> str:
    """A number beside that of the period before."""
    if before is None or not key:
        return ""
    then, now = before.get(key), head[key]
    if then is None or now is None:
        says = "nothing before"
    elif now == then:
        says = "as before"
    elif key in ("success", "in_time"):
        says = f"{(now - then) * 100:+.2g} points"
    elif not then:
        says = "0 before"
    elif now >= 10 * then:
        says = f"{now / then:,.0f} times as much"
    else:
        says = f"{(now - then) / then * 100:+,.0f} %"
    return f"<i>{escape(says)}</i>"


def judged(value: float | None, is_good: bool) -> str:
    return "" if value is None else "good" if is_good else "bad"
