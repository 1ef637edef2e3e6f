"""Prints one job as a page, and its story as lines: `stoker job show`, `stoker dlq show`, `stoker job story`."""

from typing import TYPE_CHECKING, Any

import click

from stoker.cli.formatting import clock, columns, cut, facts, plain, plain_lines, state, when
from stoker.cli.payloads import line_of
from stoker.model.replies import cause_of
from stoker.model.wording import lasting, many, size

if TYPE_CHECKING:
    from stoker.model.events import Event
    from stoker.model.options import Options
    from stoker.model.replies import JobView, Story

PAYLOAD_CHARS = 2_000
"""Longer payloads are shown only with --json."""
ERROR_CHARS = 80

TOLD_APART = frozenset(("codec", "name", "max_attempts", "parent_id", "schedule", "slot", "workflow"))
"""Options that the page shows elsewhere."""


def job_page(job: "JobView") -> str:
    name = job.options.name
    head = f"job {click.style(str(job.id), bold=True)} in {click.style(job.queue, bold=True)}: {state(job.state)}"
    blocks = [head + (f", {plain(name)}" if name else ""), facts(times(job) + what(job))]
    if job.history:
        blocks += ["", attempts(job)]
    if job.stack:
        blocks += ["", *(f"  {line}" for line in plain_lines(job.stack))]
    return "\n".join(blocks)


def times(job: "JobView") -> list[tuple[str, str]]:
    waited = f", after {lasting(job.started_at - job.pushed_at)}" if job.started_at else ""
    ran = f", after {lasting(job.finished_at - job.started_at)}" if job.started_at and job.finished_at else ""
    return [
        ("pushed", when(job.pushed_at)),
        ("due", when(job.due) if job.due else ""),
        ("started", when(job.started_at) + waited if job.started_at else ""),
        ("worker", plain(job.worker)),
        ("leased until", when(job.lease_until) if job.lease_until else ""),
        ("ended", when(job.finished_at) + ran if job.finished_at else ""),
    ]


def what(job: "JobView") -> list[tuple[str, str]]:
    limit = job.options.max_attempts
    pairs = [
        ("attempts", f"{job.attempts} of {limit}" if limit else f"{job.attempts}, without limit"),
        ("crashes", str(job.crashes) if job.crashes else ""),
        ("cancelling", "asked for" if job.cancel_requested else ""),
        ("waits for", ", ".join(map(str, job.blocked_by))),
        ("parent", str(job.options.parent_id or "")),
        ("workflow", str(job.options.workflow or "")),
        ("schedule", f"{job.options.schedule}, for {clock(job.options.slot)}" if job.options.schedule else ""),
        ("options", options_text(job.options)),
        ("payload", data(job.payload, job.options.codec)),
        ("progress", f"{job.progress.percent} %  {plain(job.progress.message)}" if job.progress.percent else ""),
        ("result", data(job.result, job.result_codec) if job.result is not None else ""),
        ("reason", job.reason),
        ("error", plain(job.cause)),
    ]
    if job.dead is not None:
        pairs.append(("dead letter", f"until {when(job.dead.expires_at)}"))
        if job.dead.next_retry_at:
            pairs.append(("tried again", when(job.dead.next_retry_at)))
    return pairs


def options_text(options: "Options") -> str:
    """The options that differ from their defaults."""
    import msgspec

    given = msgspec.to_builtins(options)  # leaves defaults out
    return "  ".join(f"{name}={brief(value)}" for name, value in given.items() if name not in TOLD_APART)


def brief(value: Any) -> str:
    import msgspec

    return plain(msgspec.json.encode(value).decode()) if isinstance(value, (dict, list, tuple)) else plain(str(value))


def data(payload: bytes, codec: str) -> str:
    text = line_of(payload, codec, PAYLOAD_CHARS)
    return f"{text}  {click.style(f'({codec}, {size(len(payload))})', dim=True)}"


def attempts(job: "JobView") -> str:
    rows = [
        [
            str(one.attempt),
            clock(one.started_at),
            lasting(one.duration_ms),
            one.reason,
            plain(one.worker),
            cut(plain(one.cause), ERROR_CHARS),
        ]
        for one in job.history
    ]
    return columns(["ATTEMPT", "STARTED", "RAN", "ENDED BY", "WORKER", "ERROR"], rows, right=("ATTEMPT", "RAN"))


# --- the story ---------------------------------------------------------------------------------------


def tale(story: "Story") -> str:
    steps = [(one.at, one.sequence, one.kind.value, words(one)) for one in story.events]
    steps += [(one.at, one.sequence, one.kind, plain(one.text)) for one in story.notes]
    steps.sort(key=lambda step: step[:2])
    began = steps[0][0]
    rows = [[clock(at), f"+{lasting(at - began)}", kind, text] for at, _, kind, text in steps]
    lines = [columns(["AT", "AFTER", "WHAT", ""], rows, right=("AFTER",))]
    if not story.complete:
        lines.append("the log no longer has the beginning")
    lines.append(f"{many(len(steps), 'step')} in {lasting(steps[-1][0] - began)}")
    return "\n".join(lines)


def words(event: "Event") -> str:
    """What an event says beyond its kind."""
    said = [
        f"attempt {event.attempt}" if event.attempt else "",
        f"by {event.worker}" if event.worker else "",
        f"due {clock(event.due)}" if event.due else "",
        f"{event.percent} %" if event.percent else "",
        event.reason,
        cut(cause_of(event.error_class, event.error), 200),
        event.message,
        f"result of {size(event.result_bytes)}" if event.result_bytes else "",
    ]
    return plain(", ".join(word for word in said if word))
