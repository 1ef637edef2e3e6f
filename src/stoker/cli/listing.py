"""Shared by the commands about jobs: states, paged lists, and printing one job."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from stoker.cli.formatting import plain
from stoker.cli.parameters import echo_json
from stoker.model.states import STATES as ALL_STATES

if TYPE_CHECKING:
    from stoker.model.replies import JobView, Page

STATES = tuple(state.value for state in ALL_STATES)
PAGE_JOBS = 1_000


def by_pages(
    ask: "Callable[[int | None, int], Page]", limit: int | None = None, after: int | None = None
) -> "Iterator[JobView]":
    """All jobs that `ask(after, count)` returns, or up to `limit`; a page may be short although more follow."""
    left = limit
    while left is None or left > 0:
        page = ask(after, PAGE_JOBS if left is None else min(left, PAGE_JOBS))
        yield from page.jobs
        left = None if left is None else left - len(page.jobs)
        after = page.next_after
        if after is None:
            return


def brief_cause(job: "JobView") -> str:
    """The exception for a list: `NoStock: 3 left`, without the module of its class."""
    from stoker.model.replies import cause_of

    return plain(cause_of(job.error_class.rpartition(".")[2], job.error))


def show_job(job: "JobView", is_json: bool) -> None:
    """Print everything about a job."""
    from stoker.cli.job_page import job_page
    from stoker.cli.payloads import job_value

    if is_json:
        echo_json(job_value(job))
    else:
        click.echo(job_page(job))
