"""`stoker pipeline replay`: push dead letters again, selected with SQL."""

from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.parameters import as_json, connected, destroying, echo_json, examples, look_at, sure, tell_if_new
from stoker.cli.spark_session import MASTER, check, options_for, spark_at
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker.spark.replay import Replayed

AGAIN = "run the same command again: it pushes the rest, and nothing twice"


@click.command(
    epilog=examples(
        "stoker pipeline replay --where \"reason = 'timeout' and queue = 'mail'\" --dry-run",
        'stoker pipeline replay --where "payload.user_id = 7" --set "payload.user_id = 8" --set "priority = 5" --yes',
    )
)
@click.option(
    "--where",
    required=True,
    help="Which dead letters: SQL over the table dead_letters, with payload.NAME for fields of the payload.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    help="A change: payload.NAME = SQL, or an option of jobs such as priority = 5. May be repeated.",
)
@click.option("--to", help="Push them to this queue. [default: each to its own]")
@click.option("--queue", "queues", multiple=True, help="Read only dead letters of this queue. May be repeated.")
@click.option("--schema", help="Fields of the payload: user_id bigint, mail string. [default: inferred from payloads]")
@click.option(
    "--ticket",
    help="The name of the replay: a ticket pushes each dead letter once. [default: derived from the options above]",
)
@click.option("--purge", is_flag=True, help="Remove the dead letters whose new jobs are pushed. [default: keep them]")
@click.option(
    "--show", type=click.IntRange(0), default=10, show_default=True, help="How many dead letters to show first."
)
@destroying
@MASTER
@connected
@as_json
def replay(
    where: str,
    sets: tuple[str, ...],
    to: str | None,
    queues: tuple[str, ...],
    schema: str | None,
    ticket: str | None,
    purge: bool,
    show: int,
    dry_run: bool,
    yes: bool,
    master: str | None,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> int:
    """Push dead letters again: selected with SQL, changed by expressions, each once however often this runs.

    The new job has the old one as its parent. The dead letter stays, unless --purge removes it; either way the same
    replay pushes nothing twice.
    """
    from stoker.spark import replay as replays

    plan = replays.plan(where, sets, to, queues, ticket)
    options = options_for(url, tenant)
    check(options | {"table": "dead_letters"} | ({} if schema is None else {"payloadSchema": schema}))
    with look_at(options["url"], tenant) as client:
        there = client.list_queues()  # a server that is missing, or refuses us, says so now
        for queue in queues:
            if queue not in there:
                tell_if_new(client, queue)
        with spark_at(master, AGAIN) as spark:
            picked = replays.pick(spark, client, plan, options, schema)
            if not is_json:
                click.echo(preview([each.shown for each in picked[:show]]), err=not dry_run)
            elif dry_run:
                rows = [each.shown for each in picked[:show]]
                echo_json({"ticket": plan.ticket, "count": len(picked), "rows": rows})
                return exit_codes.OK
            what = f"push {many(len(picked), 'dead letter')} back to {to or 'work'} (ticket {plan.ticket})"
            if not picked or not sure(what, dry_run=dry_run, yes=yes):
                return exit_codes.OK
            done = replays.push_back(client, plan, picked, purge=purge)
    if is_json:
        echo_json({"ticket": plan.ticket, **{name: getattr(done, name) for name in done.__dataclass_fields__}})
    else:
        click.echo(told_of(done, purge))
    for job, why in done.refused.items():
        exit_codes.tell(f"dead letter {job} was not pushed: {why}", "refused")
    return exit_codes.REFUSED if done.refused else exit_codes.OK


def told_of(done: "Replayed", purge: bool) -> str:
    before = f", {len(done.known):,} {'was' if len(done.known) == 1 else 'were'} pushed before" if done.known else ""
    removed = f", {many(done.purged, 'dead letter')} removed" if purge else ""
    return f"{many(len(done.pushed), 'job')} pushed{before}{removed}"


def preview(rows: list[dict[str, Any]]) -> str:
    """Some of the dead letters, with the values that they will get."""
    from stoker.cli.formatting import columns, cut, plain

    if not rows:
        return "no dead letters match"
    heads = tuple(name.upper() for name in rows[0])
    return columns(heads, [[cut(plain(str(value)), 60) for value in row.values()] for row in rows])
