"""`stoker bulk`: one action on every job that a filter finds, in the background."""

from typing import TYPE_CHECKING, Any

import click

from stoker.cli.formatting import columns, plain, when
from stoker.cli.listing import STATES
from stoker.cli.parameters import (
    Family,
    as_json,
    connected,
    destroying,
    echo_json,
    examples,
    look_at,
    queue_names,
    sure,
)
from stoker.model.bulk import ACTIONS
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker.model.bulk import BulkView


@click.group(cls=Family)
def bulk() -> None:
    """Act on every job that a filter finds: retry, cancel, delete, promote, or change the priority."""


@bulk.command(
    epilog=examples(
        "stoker bulk start retry --queue mail --reason timeout --rate 10",
        "stoker bulk start priority --name report --priority 5 --yes",
    )
)
@click.argument("action", type=click.Choice(ACTIONS))
@click.option("--queue", shell_complete=queue_names, help="Only jobs of this queue.")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--name", help="Only jobs with this name.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--group", "group_id", help="Only jobs of this group.")
@click.option("--parent", "parent_id", type=int, help="Only jobs that this job has pushed.")
@click.option("--worker", help="Only jobs that this worker has, or had last.")
@click.option("--reason", help="Only jobs that ended for this reason.")
@click.option("--fingerprint", help="Only jobs whose last error has this fingerprint.")
@click.option("--text", help="Only jobs with this text in payload, error or result.")
@click.option("--priority", "new_priority", type=int, help="The new priority, with the action `priority`.")
@click.option("--rate", type=float, help="At most this many jobs a second.")
@click.option("--key", help="The name of the operation; a new one by default.")
@destroying
@connected
@as_json
def start(
    action: Any,
    new_priority: int | None,
    rate: float | None,
    key: str | None,
    dry_run: bool,
    yes: bool,
    url: str | None,
    tenant: str,
    is_json: bool,
    **wanted: Any,
) -> None:
    """Start an operation. It runs in the background and goes on after a restart."""
    from uuid import uuid4

    from stoker.model.filters import JobFilter
    from stoker.model.states import State

    if wanted["state"] is not None:
        wanted["state"] = State(wanted["state"])
    meant = JobFilter(**wanted)
    with look_at(url, tenant) as client:
        step = client.count_jobs(meant)
        least = "at least " if step.next_after is not None else ""
        what = f"{action} among {least}{many(step.count, 'job')} that match, as far as their states allow it"
        if sure(what, dry_run=dry_run, yes=yes):
            name = key or f"{action}-{uuid4().hex[:8]}"
            show(client.start_bulk(name, action, meant, priority=new_priority, rate=rate), is_json)


@bulk.command(name="show", epilog=examples("stoker bulk show retry-1a2b3c4d"))
@click.argument("key")
@connected
@as_json
def show_(key: str, url: str | None, tenant: str, is_json: bool) -> None:
    """Print how far an operation is."""
    with look_at(url, tenant) as client:
        show(client.get_bulk(key), is_json)


@bulk.command(epilog=examples("stoker bulk stop retry-1a2b3c4d"))
@click.argument("key")
@connected
@as_json
def stop(key: str, url: str | None, tenant: str, is_json: bool) -> None:
    """End an operation where it is. What it has done stays."""
    with look_at(url, tenant) as client:
        show(client.stop_bulk(key), is_json)


@bulk.command(name="list", epilog=examples("stoker bulk list"))
@connected
@as_json
def list_(url: str | None, tenant: str, is_json: bool) -> None:
    """List the operations that run and the last ones that ended."""
    with look_at(url, tenant) as client:
        found = list(client.list_bulks())
    if is_json:
        echo_json([value_of(one) for one in found])
        return
    rows = [row_of(one) for one in found]
    click.echo(columns(HEADS, rows, right=("LOOKED AT", "CHANGED", "REFUSED")) if rows else "no bulk operations")


HEADS = ("KEY", "ACTION", "STATE", "LOOKED AT", "CHANGED", "REFUSED", "STARTED")


def row_of(view: "BulkView") -> list[str]:
    counts = [str(view.looked), str(view.changed), str(view.refused)]
    return [plain(view.key), view.action, view.state, *counts, when(view.started_at)]


def show(view: "BulkView", is_json: bool) -> None:
    if is_json:
        echo_json(value_of(view))
    else:
        click.echo(columns(HEADS, [row_of(view)], right=("LOOKED AT", "CHANGED", "REFUSED")))


def value_of(view: "BulkView") -> Any:
    import msgspec

    return msgspec.to_builtins(view)
