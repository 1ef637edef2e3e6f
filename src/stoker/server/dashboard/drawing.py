"""Sparklines, and the life of a job drawn to scale, as SVG without styles: the stylesheet has the colours."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from stoker.model.event_table import ENDS_JOB, TABLE
from stoker.model.events import Event, EventKind
from stoker.model.replies import JobView
from stoker.model.wording import lasting

SPARK_WIDTH, SPARK_HEIGHT = 120, 24


def sparkline(values: Sequence[float], label: str) -> str:
    """A line over time, from 0 to its highest value."""
    top = max([*values, 1e-9])
    step = SPARK_WIDTH / max(1, len(values) - 1)
    points = " ".join(
        f"{number * step:.1f},{SPARK_HEIGHT - 2 - value / top * (SPARK_HEIGHT - 4):.1f}"
        for number, value in enumerate(values)
    )
    size = f'width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}"'
    line = f'<polyline points="{points}" fill="none"/>'
    return f'<svg class="spark" {size} role="img" aria-label="{escape(label)}">{line}</svg>'


# --- the life of a job -------------------------------------------------------------------------------


class Span(NamedTuple):
    """A part of a job's life: what it did, from when to when."""

    kind: str
    """`waiting`, `delayed`, `blocked`, `active`, `retrying`."""
    start: int
    end: int
    text: str = ""

    @property
    def ms(self) -> int:
        return self.end - self.start


BEGINS = {kind: row.state.value for kind, row in TABLE.items() if row.state is not None and kind not in ENDS_JOB}
BEGINS[EventKind.RETRYING] = "retrying"
"""The part of its life that begins with an event."""


def spans_of(job: JobView, events: Sequence[Event], now: int) -> list[Span]:
    """The parts of a job's life, from its story; from the job itself where the log no longer has the beginning."""
    if not events or events[0].kind is not EventKind.PUSHED:
        return _spans_of_view(job, now)
    found: list[Span] = []
    kind, start, text = "", 0, ""
    for event in events:
        begins = BEGINS.get(event.kind)
        if event.kind is EventKind.PUSHED:
            begins = "blocked" if job.options.depends_on else "delayed" if event.due > event.at else "waiting"
        if begins is None and event.kind not in ENDS_JOB:
            continue
        if kind:
            found.append(Span(kind, start, event.at, text))
        if begins == "retrying" and not event.due > event.at:
            begins = "waiting"
        kind, start = begins or "", event.at
        text = f"attempt {event.attempt}" if begins == "active" else ""
    if kind:
        found.append(Span(kind, start, now, text))
    return found


def _spans_of_view(job: JobView, now: int) -> list[Span]:
    found, at = list[Span](), job.pushed_at
    for attempt in job.history:
        found.append(Span("waiting" if attempt.attempt == 1 else "retrying", at, attempt.started_at))
        found.append(Span("active", attempt.started_at, attempt.ended_at, f"attempt {attempt.attempt}"))
        at = attempt.ended_at
    if job.started_at and (not job.history or job.attempts > job.history[-1].attempt):
        found.append(Span("waiting", at, job.started_at))
        found.append(Span("active", job.started_at, job.finished_at or now, f"attempt {job.attempts}"))
    elif not job.finished_at:
        found.append(Span(str(job.state), at, now))
    return found


WIDTH, BAR, TOP = 1_000, 26, 4
NARROW = 3.0
"""No part is drawn narrower than this, so that a short run beside a long wait can be seen."""


def timeline(spans: Sequence[Span]) -> str:
    """The parts side by side, each as long as it took."""
    if not spans:
        return ""
    start, end = spans[0].start, max(span.end for span in spans)
    scale = WIDTH / max(1, end - start)
    parts = "".join(_bars(spans, start, scale))
    title = ", ".join(f"{span.kind} {lasting(span.ms)}" for span in spans[:20])
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {BAR + 2 * TOP}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(title)}">{parts}</svg>'
    )


def _bars(spans: Sequence[Span], start: int, scale: float) -> Iterator[str]:
    for span in spans:
        left, width = (span.start - start) * scale, max(NARROW, span.ms * scale)
        left = min(left, WIDTH - width)
        name = escape(f"{span.kind}{f', {span.text}' if span.text else ''}: {lasting(span.ms)}")
        yield (
            f'<rect class="span-{escape(span.kind)}" x="{left:.2f}" y="{TOP}" width="{width:.2f}" height="{BAR}">'
            f"<title>{name}</title></rect>"
        )
