"""Progress bars on standard error, if that is a terminal. Without a terminal nothing is shown."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Moved = Callable[[int], None]
"""Called with the amount that is done."""


@contextmanager
def counting(what: str, total: int | None, *, is_wanted: bool = True) -> Iterator[Moved]:
    """A bar over a number of jobs, or only a count if the total is not known."""
    with _bar(what, total, is_bytes=False, is_wanted=is_wanted) as moved:
        yield lambda done: moved(done, None)


@contextmanager
def moving(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over bytes; each step gives the total."""
    with _bar(what, None, is_bytes=True) as moved:
        yield moved


@contextmanager
def _bar(
    what: str, total: int | None, *, is_bytes: bool, is_wanted: bool = True
) -> Iterator[Callable[[int, int | None], None]]:
    if not is_wanted or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)
