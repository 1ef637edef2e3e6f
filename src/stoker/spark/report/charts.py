"""Charts of a report's numbers, drawn by matplotlib: as SVG for the page, all together as one PNG.

One look for all of them: quiet axes, few colours, one thing to say each.
"""

import io
from collections.abc import Callable
from datetime import datetime
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import dates
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

INK, QUIET, LINE = "#1d2733", "#6b7785", "#e3e7ec"
BLUE, GREEN, RED, AMBER, VIOLET = "#2f6fde", "#2a9d62", "#d64550", "#e09f3e", "#7a5cc9"

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": LINE,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "legend.frameon": False,
    "legend.labelcolor": QUIET,
    "svg.fonttype": "none",
    "figure.facecolor": "white",
}


BARS = 6
"""For so many there is room in every chart."""
HEADROOM = 1.18
"""Above the highest line, for the legend."""


def moments(numbers: dict[str, Any]) -> Any:
    return [datetime.fromisoformat(point["start"]) for point in numbers["series"]]


def values(numbers: dict[str, Any], name: str) -> list[float]:
    return [point[name] if point[name] is not None else float("nan") for point in numbers["series"]]


def rates(axes: Axes, numbers: dict[str, Any]) -> None:
    times = moments(numbers)
    per = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}[numbers["grain"]]
    for name, colour in (("pushed", BLUE), ("completed", GREEN), ("failed", RED), ("retrying", AMBER)):
        axes.plot(
            times, [value / per for value in values(numbers, name)], color=colour, label=name, lw=1.6, **dot(times)
        )
    axes.set_title("Jobs a second")
    with_legend(axes, 4)
    on_time(axes)


def latencies(axes: Axes, numbers: dict[str, Any]) -> None:
    times = moments(numbers)
    low, middle, high = (values(numbers, f"total_ms_{word}") for word in ("p50", "p90", "p99"))
    axes.fill_between(times, low, high, color=BLUE, alpha=0.12, lw=0, label="p50 to p99")
    axes.plot(times, middle, color=BLUE, lw=1.2, alpha=0.7, label="p90", **dot(times))
    axes.plot(times, low, color=BLUE, lw=1.8, label="p50", **dot(times))
    axes.set_title("From push to completion")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    with_legend(axes, 3)
    on_time(axes)


def backlog(axes: Axes, numbers: dict[str, Any]) -> None:
    times = moments(numbers)
    axes.fill_between(times, values(numbers, "backlog"), color=VIOLET, alpha=0.15, lw=0)
    axes.plot(times, values(numbers, "backlog"), color=VIOLET, lw=1.8, **dot(times))
    axes.set_title("Jobs that are not done")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    on_time(axes)


def failures(axes: Axes, numbers: dict[str, Any]) -> None:
    rows = [(shorten(row["fingerprint"] or "?"), row["count"]) for row in numbers["failures"][:8]]
    bars(axes, rows, RED, "Failed deliveries by what they said", count)


def dead(axes: Axes, numbers: dict[str, Any]) -> None:
    bars(axes, [(row["reason"], row["count"]) for row in numbers["dead"]], AMBER, "Dead letters by reason", count)


def slowest(axes: Axes, numbers: dict[str, Any]) -> None:
    rows = [(row["name"] or row["queue"], row["run_ms_p95"] or 0) for row in numbers["kinds"][:8]]
    bars(axes, rows, BLUE, "Slowest kinds of jobs (p95 of a run)", duration)


CHARTS: dict[str, Callable[[Axes, dict[str, Any]], None]] = {
    "rates": rates,
    "latencies": latencies,
    "backlog": backlog,
    "failures": failures,
    "dead": dead,
    "slowest": slowest,
}


def bars(axes: Axes, rows: list[tuple[str, float]], colour: str, title: str, told: Callable[[float], str]) -> None:
    axes.set_title(title)
    axes.grid(visible=False)
    if not rows:
        axes.text(0.5, 0.5, "none", color=QUIET, ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    rows = rows[::-1]
    most = max(value for _, value in rows) or 1
    axes.barh(range(len(rows)), [value for _, value in rows], color=colour, alpha=0.85, height=0.62)
    for place, (_, value) in enumerate(rows):
        axes.text(value + most * 0.015, place, told(value), va="center", color=INK, fontsize=8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], color=INK, fontsize=8)
    axes.set_xlim(0, most * 1.15)
    axes.set_ylim(len(rows) - 0.5 - max(BARS, len(rows)), len(rows) - 0.5)  # few bars stay thin, at the top
    axes.tick_params(left=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def with_legend(axes: Axes, entries: int) -> None:
    axes.set_ylim(0, (axes.get_ylim()[1] or 1) * HEADROOM)
    axes.legend(ncols=entries, loc="upper left", borderaxespad=0, fontsize=8)


def on_time(axes: Axes) -> None:
    low, high = axes.get_xlim()
    if high - low > 1 and len(axes.lines[0].get_xdata()) < 2:  # type: ignore[arg-type]
        middle = (low + high) / 2  # one point has no scale of its own: show it in its quarter of an hour
        axes.set_xlim(middle - 0.005, middle + 0.005)
    locator: Any = dates.AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(5))


def dot(times: Any) -> dict[str, Any]:
    """Few points are shown as points: a line through one of them is invisible."""
    return {"marker": "o", "markersize": 3} if len(times) < 12 else {}


def shorten(text: str) -> str:
    return text if len(text) <= 44 else text[:43] + "…"


def duration(millis: float) -> str:
    if millis < 1_000:
        return f"{millis:.0f} ms"
    if millis < 60_000:
        return f"{millis / 1_000:.3g} s"
    if millis < 3_600_000:
        return f"{millis / 60_000:.3g} min"
    return f"{millis / 3_600_000:.3g} h"


def count(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:,.0f}"


def svg(name: str, numbers: dict[str, Any]) -> str:
    """One chart, to stand in a page."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
        CHARTS[name](axes, numbers)
        written = io.StringIO()
        figure.savefig(written, format="svg")
        plt.close(figure)
    text = written.getvalue()
    return text[text.index("<svg") :]


def png(numbers: dict[str, Any]) -> bytes:
    """All of them on one sheet."""
    with mpl.rc_context(STYLE):
        figure, grid = plt.subplots(3, 2, figsize=(13, 10), layout="constrained", dpi=130)
        figure.get_layout_engine().set(h_pad=0.18, w_pad=0.18)  # type: ignore[union-attr, call-arg]
        for axes, draw in zip(grid.flat, CHARTS.values(), strict=True):
            draw(axes, numbers)
        written = io.BytesIO()
        figure.savefig(written, format="png")
        plt.close(figure)
    return written.getvalue()
