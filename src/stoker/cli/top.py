"""`stoker top`: a queue at work, live in the terminal."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from stoker.cli.parameters import DURATION, as_json, connected, echo_json, examples, is_embedded, look_at, queue_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from stoker import Client
    from stoker.cli.queue_snapshot import QueueSnapshot

HISTORY = 120
LEAVING = ("q", "Q", "\x04")


@click.command(
    epilog=examples("stoker top", "stoker top --queue mail --interval 500ms", "stoker top --once"),
)
@click.option(
    "--queue", "queues", multiple=True, shell_complete=queue_names, help="Show only this queue. May be repeated."
)
@click.option(
    "--interval", "interval_ms", type=DURATION, default="1s", show_default=True, help="The time between two updates."
)
@click.option("--once", is_flag=True, help="Print one page and exit. This is the default without a terminal.")
@connected
@as_json
def top(queues: Sequence[str], interval_ms: int, once: bool, url: str | None, tenant: str, is_json: bool) -> None:
    """Watch a queue live: waiting and running jobs, rates, workers, the latest failures. Press q to quit.

    Rates compare two updates, so --once shows none. --json prints one update.
    """
    from stoker.cli.queue_snapshot import take_snapshot

    with look_at(url, tenant) as client:
        if is_json:
            from stoker.cli.payloads import job_value

            found = take_snapshot(client, queues)
            echo_json(
                {
                    "at": found.at,
                    "stats": found.stats,
                    "queues": [{"name": q.name, "stats": q.stats, "policy": q.policy} for q in found.queues],
                    "workers": found.workers,
                    "failures": [job_value(job) for job in found.failures],
                }
            )
            return
        watch(client, title_of(url, tenant), queues, max(interval_ms, 100) / 1_000, once or not sys.stdout.isatty())


def title_of(url: str | None, tenant: str) -> str:
    from urllib.parse import urlsplit

    from stoker.brokers.connect import DEFAULT_URL, shown

    url = url or DEFAULT_URL
    where = url.partition("?")[0] if is_embedded(url) else shown(urlsplit(url))
    whose = "" if tenant == "default" else f"  tenant {tenant}"
    return f"stoker  {where}{whose}"


def watch(client: "Client", title: str, queues: Sequence[str], interval_s: float, once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from stoker.cli.keyboard import keys
    from stoker.cli.queue_snapshot import Rates, take_snapshot
    from stoker.cli.screen import page

    console = Console()
    if once:
        console.print(page(title, take_snapshot(client, queues), Rates()))
        return
    drawn = pages(client, title, queues)
    live = Live(next(drawn), console=console, screen=True, auto_refresh=False)
    try:
        with keys() as pressed, live:  # keys are read as soon as there is something to see
            while pressed(interval_s) not in LEAVING:
                live.update(next(drawn), refresh=True)
    except KeyboardInterrupt:
        pass  # Ctrl-C is one way to quit


def pages(client: "Client", title: str, queues: Sequence[str]) -> "Iterator[RenderableType]":
    """Pages, one after another, forever. While the queue does not answer, or not all of it, the reason is shown."""
    from stoker.cli.queue_snapshot import Rates, rates_between, take_snapshot
    from stoker.cli.screen import notice, page
    from stoker.model.errors import Unavailable, Unreachable

    history: deque[float] = deque(maxlen=HISTORY)
    drawn: RenderableType = ""
    before: QueueSnapshot | None = None
    while True:
        try:
            now = take_snapshot(client, queues)
        except Unavailable as error:
            if before is None and isinstance(error, Unreachable):
                raise  # most likely the address is wrong
            yield notice(error.message, drawn)
            continue
        if before is None:
            drawn = page(title, now, Rates())
        else:
            rates = rates_between(before, now)
            history.append(rates.completed)
            drawn = page(title, now, rates, history)
        before = now
        yield drawn
