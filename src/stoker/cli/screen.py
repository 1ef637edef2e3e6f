"""Draws a snapshot of a queue as a rich page, for `stoker top` and the demo. It asks the queue nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stoker.cli.formatting import STATE_COLOURS, away, clock, cut, plain
from stoker.cli.listing import brief_cause
from stoker.cli.queue_snapshot import QueueFacts, QueueSnapshot, Rates, hold_of
from stoker.model.wording import lasting, many, rate

if TYPE_CHECKING:
    from stoker.model.replies import JobView
    from stoker.model.workers import WorkerView

BARS = "▁▂▃▄▅▆▇█"
METER_CELLS = 10
SPARK_CELLS = 40
WORKERS_MAX = 8
QUEUES_SHOWN = 20
EMPTY = "·"
"""Shown for zero, to be less conspicuous."""


def page(title: str, now: QueueSnapshot, rates: Rates, history: Sequence[float] = ()) -> RenderableType:
    parts: list[RenderableType] = [head(title, now), summary(now, rates, history), "", queue_table(now, rates)]
    if now.workers:
        parts += ["", worker_table(now.workers, now.at)]
    if now.failures:
        parts += ["", failure_table(now.failures)]
    return Group(*parts)


def notice(message: str, below: RenderableType) -> RenderableType:
    """An error above the last good page."""
    return Group(Text(f"no answer: {plain(message)}", style="bold red"), below)


def head(title: str, now: QueueSnapshot) -> Table:
    line = Table.grid(expand=True)
    line.add_column(ratio=1)
    line.add_column(justify="right")
    line.add_row(Text(title, style="bold"), Text(clock(now.at), style="dim"))
    return line


def summary(now: QueueSnapshot, rates: Rates, history: Sequence[float]) -> Table:
    counts = now.stats.counts
    grid = Table.grid(padding=(0, 3))
    live = {"waiting": counts.waiting, "delayed": counts.delayed, "blocked": counts.blocked, "active": counts.active}
    numbers = {**live, "dead": counts.failed}
    cells = [Text.assemble((f"{number:,} ", shade(name, number)), (name, "dim")) for name, number in numbers.items()]
    grid.add_row(*cells)
    flow = {"pushed": rates.pushed, "completed": rates.completed, "tried again": rates.retried, "failed": rates.failed}
    cells = [
        Text.assemble((f"{rate(value)} ", "bold" if value else "dim"), (name, "dim")) for name, value in flow.items()
    ]
    grid.add_row(*cells, Text(spark(history), style="green"))
    return grid


def shade(name: str, number: int) -> str:
    if not number:
        return "dim"
    return "bold " + STATE_COLOURS.get({"dead": "failed"}.get(name, name), "white")


def spark(values: Sequence[float]) -> str:
    """The last values as a line of bars, scaled to the highest."""
    shown = list(values)[-SPARK_CELLS:]
    top = max(shown, default=0.0)
    if not top:
        return ""
    return "".join(BARS[min(len(BARS) - 1, int(value / top * (len(BARS) - 1) + 0.5))] for value in shown)


def table(title: str, *heads: str, right: Sequence[str] = ()) -> Table:
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        border_style="bright_black",
        show_edge=False,
        expand=True,
        pad_edge=False,
        caption_justify="left",
    )
    for place, name in enumerate(heads):
        last = place == len(heads) - 1
        made.add_column(
            name,
            justify="right" if name in right else "left",
            header_style="dim",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
        )
    return made


def queue_table(now: QueueSnapshot, rates: Rates) -> Table:
    numbers = ("waiting", "delayed", "active", "dead", "in", "out")
    made = table("Queues", "queue", *numbers, "run", "held back", right=(*numbers, "run"))
    shown = sorted(now.queues, key=lambda queue: (-busy(queue, rates), queue.name))[:QUEUES_SHOWN]
    for queue in shown:
        counts, totals = queue.stats.counts, queue.stats.totals
        pushed, completed = rates.queues.get(queue.name, (0.0, 0.0))
        run = lasting(totals.run_ms_sum / totals.completed) if totals.completed else EMPTY
        made.add_row(
            Text(queue.name, style="dim" if queue.is_quiet else ""),
            number(counts.waiting, "waiting"),
            number(counts.delayed + counts.blocked, "delayed"),
            number(counts.active, "active"),
            number(counts.failed, "failed"),
            rate(pushed) if pushed else Text(EMPTY, style="dim"),
            rate(completed) if completed else Text(EMPTY, style="dim"),
            Text(run, style="dim"),
            Text(hold_of(queue), style="yellow"),
        )
    if now.queues_total > len(shown):
        made.caption = f"and {many(now.queues_total - len(shown), 'queue')} more"
    if not now.queues_total:
        made.caption = 'no queues yet: stoker push mail \'{"to": "ada"}\''
    return made


def busy(queue: QueueFacts, rates: Rates) -> float:
    counts = queue.stats.counts
    return sum(rates.queues.get(queue.name, (0.0, 0.0))) + counts.active * 10 + counts.waiting + counts.delayed


def number(count: int, name: str) -> Text:
    return Text(f"{count:,}", style=STATE_COLOURS.get(name, "")) if count else Text(EMPTY, style="dim")


def worker_table(workers: "Sequence[WorkerView]", now: int) -> Table:
    """Workers as they last reported, which may be some seconds ago."""
    heads = ("worker", "busy", "", "done", "failed", "up", "seen", "queues")
    made = table("Workers", *heads, right=("done", "failed", "up", "seen"))
    for one in workers[:WORKERS_MAX]:
        made.add_row(
            Text(plain(one.id), style="yellow" if one.stopping else ""),
            meter(one.running, one.slots),
            f"{one.running:,}/{one.slots:,}",
            f"{one.succeeded:,}",
            number(one.failed, "failed"),
            lasting(now - one.started_at) if one.started_at else EMPTY,
            Text(f"{lasting(max(0, now - one.seen_at))} ago", style="dim"),
            Text(plain(", ".join(one.queues)), style="dim"),
        )
    if len(workers) > WORKERS_MAX:
        made.caption = f"and {many(len(workers) - WORKERS_MAX, 'worker')} more"
    return made


def meter(value: int, top: int) -> Text:
    full = min(METER_CELLS, -(-value * METER_CELLS // top)) if top else 0
    return Text.assemble(("━" * full, "yellow"), ("━" * (METER_CELLS - full), "bright_black"))


def failure_table(failures: "Sequence[JobView]") -> Table:
    made = table("Latest dead letters", "died", "queue", "job", "name", "reason", "error", right=("job",))
    for job in failures:
        made.add_row(
            Text(away(job.finished_at), style="dim"),
            Text(job.queue),
            str(job.id),
            Text(plain(job.options.name or "-")),
            Text(job.reason, style="red"),
            Text(cut(brief_cause(job), 200)),
        )
    return made
