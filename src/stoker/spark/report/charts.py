"""Draws a report's numbers with matplotlib: as SVG for the page, or all together as one PNG.

All charts look alike: quiet axes, few colours, one message each.
"""

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from math import isnan
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import dates
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

INK, QUIET, LINE = "#1d2733", "#6b7785", "#e3e7ec"
BLUE, GREEN, RED, AMBER, VIOLET = "#2f6fde", "#2a9d62", "#d64550", "#e09f3e", "#7a5cc9"
VARIABLES = {
    INK: "--ink",
    QUIET: "--quiet",
    LINE: "--line",
    BLUE: "--blue",
    GREEN: "--good",
    RED: "--bad",
    AMBER: "--amber",
    VIOLET: "--violet",
}
"""The page's names of these colours. A page in the dark has others for them."""

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
"""Every chart has room for this many."""
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
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate(value)))
    with_legend(axes, 4)
    on_time(axes, times)


def latencies(axes: Axes, numbers: dict[str, Any]) -> None:
    times = moments(numbers)
    low, middle, high = (values(numbers, f"latency_ms_{word}") for word in ("p50", "p90", "p99"))
    if all(map(isnan, low)):
        empty(axes, "From due to completion", "no job has completed yet")
        return
    axes.fill_between(times, low, high, color=BLUE, alpha=0.12, lw=0, label="p50 to p99")
    axes.plot(times, middle, color=BLUE, lw=1.2, alpha=0.7, label="p90", **dot(times))
    axes.plot(times, low, color=BLUE, lw=1.8, label="p50", **dot(times))
    objective = numbers["headline"]["objective_ms"]
    if objective < axes.get_ylim()[1]:
        axes.axhline(objective, color=RED, lw=1.3, ls=(0, (2, 2)), label="objective")
    axes.set_title("From due to completion")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))
    with_legend(axes, 4)
    on_time(axes, times)
    axes.yaxis.set_major_locator(MultipleLocator(step_for(axes.get_ylim()[1])))


def backlog(axes: Axes, numbers: dict[str, Any]) -> None:
    times, left, seen = moments(numbers), values(numbers, "backlog"), moments(numbers)
    axes.fill_between(times, left, color=VIOLET, alpha=0.15, lw=0)
    axes.plot(times, left, color=VIOLET, lw=1.8, label="not done", **dot(times))
    drained = numbers["headline"]["drained_in_s"]
    span = (times[-1] - times[0]).total_seconds()
    if drained and drained < span:  # a drain further away would leave no room for the past
        seen = [*times, times[-1] + timedelta(seconds=drained)]
        axes.plot(seen[-2:], [left[-1], 0], color=VIOLET, lw=1.4, ls=":", label="if it goes on like this")
    axes.set_title("Jobs that are not done")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    with_legend(axes, 2)
    on_time(axes, seen)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def burn(axes: Axes, numbers: dict[str, Any]) -> None:
    times, burnt = moments(numbers), values(numbers, "slo_burn")
    head = numbers["headline"]
    title = f"Budget burnt: {share(head['objective_share'])} within {duration(head['objective_ms'])}"
    if all(map(isnan, burnt)):
        empty(axes, title, "no job has ended yet")
        return
    axes.plot(times, burnt, color=AMBER, lw=1.6, label="burn", **dot(times))
    over = [value > 1 for value in burnt]
    axes.fill_between(times, 1, burnt, where=over, interpolate=True, color=RED, alpha=0.18, lw=0)
    axes.axhline(1, color=RED, lw=1.3, ls=(0, (2, 2)), label="all that may be missed")
    axes.set_title(title)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} x"))
    with_legend(axes, 2)
    on_time(axes, times)


def failures(axes: Axes, numbers: dict[str, Any]) -> None:
    rows = [(shorten(row["fingerprint"] or "?"), row["count"]) for row in numbers["failures"][:8]]
    bars(axes, rows, RED, "Failed deliveries by what they said", count)


def dead(axes: Axes, numbers: dict[str, Any]) -> None:
    bars(axes, [(row["reason"], row["count"]) for row in numbers["dead"]], AMBER, "Dead letters now, by reason", count)


def slowest(axes: Axes, numbers: dict[str, Any]) -> None:
    timed = [row for row in numbers["kinds"] if row["run_ms_p95"] is not None]
    rows = [(shorten(f"{row['queue']}: {row['name'] or '-'}"), row["run_ms_p95"]) for row in timed[:8]]
    bars(axes, rows, BLUE, "Slowest kinds of jobs (p95 of a run)", duration)


def tenants(axes: Axes, numbers: dict[str, Any]) -> None:
    """By cost; by hours of work if no prices are given."""
    if any(row["cost"] for row in numbers["tenants"]):
        rows = [(shorten(row["tenant"]), row["cost"]) for row in numbers["tenants"][:8]]
        bars(axes, rows, GREEN, "Tenants by cost", "{:,.2f}".format)
        return
    rows = [(shorten(row["tenant"]), row["run_ms"]) for row in numbers["tenants"][:8]]
    bars(axes, rows, GREEN, "Tenants by time of work", duration)


CHARTS: dict[str, Callable[[Axes, dict[str, Any]], None]] = {
    "rates": rates,
    "latencies": latencies,
    "backlog": backlog,
    "burn": burn,
    "failures": failures,
    "dead": dead,
    "slowest": slowest,
    "tenants": tenants,
}


OVER_TIME = ("rates", "latencies", "backlog", "burn")


def empty(axes: Axes, title: str, says: str) -> None:
    axes.set_title(title)
    axes.text(0.5, 0.5, says, color=QUIET, ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)


def bars(axes: Axes, rows: list[tuple[str, float]], colour: str, title: str, told: Callable[[float], str]) -> None:
    if not rows:
        empty(axes, title, "none")
        return
    axes.set_title(title)
    axes.grid(visible=False)
    rows = rows[::-1]
    most = max(value for _, value in rows) or 1
    axes.barh(range(len(rows)), [value for _, value in rows], color=colour, alpha=0.85, height=0.34)
    for place, (name, value) in enumerate(rows):  # names stand above their bars, where long ones have room
        axes.text(value + most * 0.015, place, told(value), va="center", color=INK, fontsize=8)
        axes.text(0, place + 0.24, name, va="bottom", color=QUIET, fontsize=8)
    axes.set_xlim(0, most * 1.15)
    axes.set_ylim(len(rows) - 0.2 - max(BARS, len(rows)), len(rows) - 0.2)  # few bars stay thin, at the top
    axes.set_yticks([])
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(minutes * 60_000 for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600_000 for hours in (1, 2, 3, 6, 12, 24, 48, 120, 240, 720, 2_400)),
)
"""Distances between marks on an axis of durations: round numbers."""


def step_for(highest: float) -> int:
    return next((step for step in STEPS_MS if highest / step <= 5), STEPS_MS[-1])


def with_legend(axes: Axes, entries: int) -> None:
    axes.set_ylim(0, (axes.get_ylim()[1] or 1) * HEADROOM)
    axes.legend(ncols=entries, loc="upper left", borderaxespad=0, fontsize=8)


MARKED = {
    "worker lost": RED,
    "queue paused": AMBER,
    "queue changed": QUIET,
    "queue obliterated": RED,
    "limit reached": RED,
    "new workers": GREEN,
}
"""Colours of the markers."""


def with_markers(axes: Axes, numbers: dict[str, Any]) -> None:
    """A short line at the bottom for each moment at which something happened besides jobs."""
    low, high = axes.get_xlim()
    for kind, at in dict.fromkeys((one["kind"], one["at"]) for one in numbers["markers"]):
        place: Any = dates.date2num(datetime.fromisoformat(at))  # type: ignore[no-untyped-call]
        if low <= place <= high:
            axes.axvline(place, ymax=0.06, color=MARKED[kind], lw=2.2, solid_capstyle="butt", zorder=3)


def on_time(axes: Axes, times: Any) -> None:
    """All charts show the same time range, even where a chart has no data."""
    around = (times[-1] - times[0]) * 0.03 or timedelta(minutes=7)  # a single point has no range of its own
    axes.set_xlim(times[0] - around, times[-1] + around)
    locator: Any = dates.AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def dot(times: Any) -> dict[str, Any]:
    """Few points are shown as dots: a line through one of them is invisible."""
    return {"marker": "o", "markersize": 3} if len(times) < 12 else {}


def shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def duration(millis: float) -> str:
    if millis < 1_000:
        return f"{millis:.0f} ms"
    if millis < 60_000:
        return f"{millis / 1_000:.3g} s"
    if millis < 3_600_000:
        return f"{millis / 60_000:.3g} min"
    if millis < 48 * 3_600_000:
        return f"{millis / 3_600_000:.3g} h"
    return f"{millis / 86_400_000:,.1f} days"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.4g} %"


def rate(value: float) -> str:
    return count(value) if value >= 10 else f"{value:.2g}"


def count(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:,.0f}"


def draw(name: str, axes: Axes, numbers: dict[str, Any]) -> None:
    CHARTS[name](axes, numbers)
    if name in OVER_TIME:
        with_markers(axes, numbers)


def svg(name: str, numbers: dict[str, Any]) -> str:
    """One chart, to be embedded in a page, whose style has the colours."""
    with mpl.rc_context(STYLE | {"svg.hashsalt": name}):
        figure, axes = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
        draw(name, axes, numbers)
        written = io.StringIO()
        timeless: dict[str, Any] = {"Date": None}  # the same numbers give the same bytes
        figure.savefig(written, format="svg", transparent=True, metadata=timeless)
        plt.close(figure)
    text = written.getvalue()
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text[text.index("<svg") :]


def png(numbers: dict[str, Any]) -> bytes:
    """All of them on one sheet."""
    with mpl.rc_context(STYLE):
        rows = len(CHARTS) // 2
        figure, grid = plt.subplots(rows, 2, figsize=(13, 3.3 * rows), layout="constrained", dpi=130)
        figure.get_layout_engine().set(h_pad=0.18, w_pad=0.18)  # type: ignore[union-attr, call-arg]
        for axes, name in zip(grid.flat, CHARTS, strict=True):
            draw(name, axes, numbers)
        written = io.BytesIO()
        figure.savefig(written, format="png")
        plt.close(figure)
    return written.getvalue()
