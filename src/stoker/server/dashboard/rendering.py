"""Turns templates and values into pages. All text is escaped, whatever template shows it."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from stoker.model import wording
from stoker.model.replies import QueueView
from stoker.model.states import STATES
from stoker.model.version import __version__
from stoker.server.dashboard import assets, drawing

FOLDER = Path(__file__).parent / "templates"

SIGNS = {
    "waiting": "◔",
    "delayed": "◷",
    "blocked": "◫",
    "active": "▶",
    "completed": "✔",
    "failed": "✘",
    "cancelled": "⊘",
    "expired": "◌",
    "running": "▶",
    "paused": "⏸",
    "over": "■",
    "done": "✔",
    "stopped": "■",
}
"""Beside the colour of a state, for people who see no colours."""


def render(template: str, **values: Any) -> bytes:
    return environment().get_template(template).render(values).encode("utf-8", "backslashreplace")


@cache
def environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "clock": clock,
        "iso": iso,
        "lasting": wording.lasting,
        "n": lambda count: f"{count:,}",
        "q": lambda text: quote(str(text), safe=""),
        "size": wording.size,
        "rate": wording.rate,
        "cut": cut,
        "held_by": held_by,
    }
    found.globals |= {
        "away": wording.away,
        "asset": assets.url_of,
        "limit_text": wording.limit_text,
        "many": wording.many,
        "sparkline": lambda *asked, **named: Markup(drawing.sparkline(*asked, **named)),
        "sign_of": lambda state: SIGNS.get(str(state), "•"),
        "states": [str(state) for state in STATES],
        "version": __version__,
    }
    return found


def held_by(policy: QueueView) -> str:
    """What holds a queue back: `paused`, `at most 4`, `100/s`."""
    words = ["paused"] if policy.paused else []
    if policy.concurrency:
        words.append(f"at most {policy.concurrency:,}")
    if policy.rate_limit is not None:
        words.append(wording.limit_text(policy.rate_limit.count, policy.rate_limit.per_ms))
    return ", ".join(words)


def clock(ms: int) -> str:
    """The exact time, in UTC: `2026-01-31 12:00:00.250 UTC`."""
    return _moment(ms).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1_000:03d} UTC"


def iso(ms: int) -> str:
    return _moment(ms).isoformat()


def _moment(ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):  # a time beyond the year 9999, which a job may ask for
        return datetime.max.replace(tzinfo=UTC)


def cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
