"""`stoker workflow`: inspect, draw, cancel and retry workflows."""

from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import columns, facts, now_ms, terminal_width, when
from stoker.cli.parameters import (
    Family,
    as_json,
    connected,
    destroying,
    echo_json,
    examples,
    look_at,
    open_client,
    sure,
)
from stoker.model.wording import lasting

if TYPE_CHECKING:
    from stoker.model.replies import WorkflowView

WIDTH = 120
"""The width of graphs that are not printed to a terminal."""
STATES = ("running", "completed", "failed", "cancelled")
COLOURS = {"running": "cyan", "completed": "green", "failed": "red", "cancelled": "bright_black"}


@click.group(cls=Family)
def workflow() -> None:
    """Inspect workflows, cancel them, or retry them from the step that failed."""


@workflow.command(name="list", epilog=examples("stoker workflow list", "stoker workflow list --state failed"))
@click.option("--state", type=click.Choice(STATES), help="Only workflows in this state.")
@click.option("--name", help="Only workflows with this name.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many to list at most.")
@connected
@as_json
def list_(state: str | None, name: str | None, limit: int, url: str | None, tenant: str, is_json: bool) -> None:
    """List workflows, newest first."""
    from stoker.model.workflows import WorkflowState

    with look_at(url, tenant) as client:
        page = client.list_workflows(WorkflowState(state) if state else None, name=name, limit=limit)
    if is_json:
        echo_json(page.workflows)
    elif page.workflows:
        heads = ("WORKFLOW", "NAME", "STATE", "STEPS", "FAILED", "PUSHED", "TOOK")
        rows = [
            [
                str(one.id),
                one.name,
                click.style(one.state, fg=COLOURS[one.state]),
                f"{one.ended}/{one.steps}",
                str(one.failed) if one.failed else ".",
                when(one.pushed_at),
                lasting((one.finished_at or now_ms()) - one.pushed_at),
            ]
            for one in page.workflows
        ]
        click.echo(columns(heads, rows, right=("STEPS", "FAILED")))
    else:
        click.echo("no workflows")


@workflow.command(
    epilog=examples(
        "stoker workflow show 6400",
        "stoker workflow show 6400 --svg nightly.svg",
        "stoker workflow show 6400 --mermaid",
    )
)
@click.argument("id", type=int)
@click.option("--mermaid", "is_mermaid", is_flag=True, help="Print the graph as Mermaid, for Markdown pages.")
@click.option(
    "--svg", type=click.File("w", encoding="utf-8"), help="Write the graph as a picture; - is standard output."
)
@connected
@as_json
def show(id: int, is_mermaid: bool, svg: Any, url: str | None, tenant: str, is_json: bool) -> None:
    """Draw one workflow, and show its progress."""
    from stoker.app.graphs.boxes import boxes_of
    from stoker.app.graphs.mermaid import as_mermaid
    from stoker.app.graphs.svg import as_svg
    from stoker.app.graphs.terminal import as_graph, as_list

    with look_at(url, tenant) as client:
        view = client.get_workflow(id)
    boxes = boxes_of(view)
    if is_json:
        echo_json(view)
    elif is_mermaid:
        click.echo(as_mermaid(boxes), nl=False)
    elif svg is not None:
        svg.write(as_svg(boxes, view.name or f"workflow {view.id}"))
    else:
        click.echo(workflow_lines(view))
        click.echo()
        graph = as_graph(boxes, terminal_width() or WIDTH, colour=True)
        click.echo(graph or as_list(boxes, colour=True))
        if graph and any(box.dashed for box in boxes):
            click.echo(click.style("\n┄ a failure before it is tolerated", dim=True))


def workflow_lines(view: "WorkflowView") -> str:
    """Some lines about the whole workflow."""
    took = (view.finished_at or now_ms()) - view.pushed_at
    title = f"workflow {click.style(str(view.id), bold=True)}" + (f" ({view.name})" if view.name else "")
    lines = facts(
        [
            ("state", click.style(view.state, fg=COLOURS[view.state])),
            ("jobs", f"{view.total - view.remaining:,} of {view.total:,} have ended, {view.percent} %"),
            ("failed", f"{view.failed:,}" if view.failed else ""),
            ("pushed", when(view.pushed_at)),
            ("ended", when(view.finished_at) if view.finished_at else ""),
            ("took" if view.finished_at else "runs for", lasting(took)),
            ("retries", str(view.retries) if view.retries else ""),
        ]
    )
    return f"{title}\n{lines}"


@workflow.command(epilog=examples("stoker workflow cancel 6400 --yes"))
@click.argument("id", type=int)
@destroying
@connected
@as_json
def cancel(id: int, dry_run: bool, yes: bool, url: str | None, tenant: str, is_json: bool) -> int:
    """Cancel all jobs that have not started, and ask running ones to stop."""
    with open_client(url, tenant) as client:
        before = client.get_workflow(id)
        what = f"cancel workflow {id}: {before.remaining:,} of its {before.total:,} jobs have not ended"
        if not sure(what, dry_run=dry_run, yes=yes):
            return exit_codes.OK
        view = client.cancel_workflow(id)
    if is_json:
        echo_json(view)
    else:
        running = f"; {view.remaining:,} still run and were told to stop" if view.remaining else ""
        click.echo(f"cancelled workflow {id}{running}")
    return exit_codes.OK


@workflow.command(epilog=examples("stoker workflow retry 6400"))
@click.argument("id", type=int)
@connected
@as_json
def retry(id: int, url: str | None, tenant: str, is_json: bool) -> int:
    """Send its failed jobs back to work; jobs that failed because of them wait for them again."""
    with open_client(url, tenant) as client:
        view = client.retry_workflow(id)
    if is_json:
        echo_json(view)
    else:
        click.echo(f"workflow {id} is {view.state}: {view.remaining:,} of its {view.total:,} jobs are to be done")
    return exit_codes.OK
