"""`stoker pipeline compact, expire, forget, vacuum, history, status, convert`: a lake is kept small, and looked at.

Most of these only change or read the list of a table's files, and start no Spark.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.parameters import DURATION, as_json, echo_json, examples, look_at, with_token
from stoker.cli.pipeline_options import LAKE
from stoker.cli.spark_session import MASTER, by_flags, options_for, spark_at
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker.spark.lake.layout import Tables

NAMES = ("bronze", "attempts", "jobs", "minutes", "failures", "workers", "schedules", "quarantine")
LAYER = click.option(
    "--layer",
    "layers",
    multiple=True,
    type=click.Choice(NAMES),
    help="Only this table. May be repeated. [default: all]",
)


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@click.command(epilog=examples("stoker pipeline compact", "stoker pipeline compact --lake /data/lake"))
@LAKE
@MASTER
@as_json
def compact(lake: str, master: str | None, is_json: bool) -> None:
    """Merge many small files into few, sorted. Readers see the old ones or the new, and a second run does nothing."""
    from stoker.spark.lake.compaction import compact as compacted
    from stoker.spark.lake.layout import Lake

    with spark_at(master, "the next run compacts the rest") as spark:
        done = compacted(Lake(spark, lake, make=False))
    if is_json:
        echo_json([vars(one) for one in done])
        return
    for one in done:
        click.echo(f"{one.layer}: {many(one.files, 'file')} are {one.into} now")
    if not done:
        click.echo("nothing to compact")


@click.command(epilog=examples("stoker pipeline expire --keep 90d", "stoker pipeline expire --keep 30d --layer bronze"))
@click.option("--keep", type=DURATION, required=True, help="How long events are kept: 90d. Only whole days (UTC) go.")
@LAYER
@LAKE
@as_json
def expire(keep: int, layers: tuple[str, ...], lake: str, is_json: bool) -> None:
    """Remove the days that are older. Only the list of files changes; `vacuum` deletes the files."""
    from stoker.spark.lake import upkeep
    from stoker.spark.lake.layout import LAYERS, Tables

    done = upkeep.expire(Tables(lake), timedelta(milliseconds=keep), layers or LAYERS)
    if is_json:
        echo_json([vars(one) for one in done])
        return
    for one in done:
        span = f"{one.days[0]} to {one.days[-1]}" if len(one.days) > 1 else one.days[0]
        rows = f"{many(one.rows, 'row')} in {many(one.files, 'file')} ({megabytes(one.bytes)})"
        click.echo(f"{one.layer}: {span}: {rows}")
    if not done:
        click.echo("nothing to expire")


@click.command(
    epilog=examples("stoker pipeline forget --tenant acme", "stoker pipeline forget --tenant acme --now --json")
)
@click.option("--tenant", required=True, help="The tenant whose rows are removed from all tables.")
@click.option(
    "--now", is_flag=True, help="Delete the old files at once. Readers that are at work now can fail; run them again."
)
@LAKE
@MASTER
@as_json
def forget(tenant: str, now: bool, lake: str, master: str | None, is_json: bool) -> None:
    """Remove all rows of a tenant, and print a receipt: what was removed, and when its bytes are gone."""
    from stoker.spark.lake.forgetting import forget as forgotten
    from stoker.spark.lake.layout import Lake

    if now:
        click.echo("old files are deleted at once: readers that are at work now can fail", err=True)
    with spark_at(master, "run it again: it removes the rest") as spark:
        receipt = forgotten(Lake(spark, lake, make=False), tenant, now=now)
    if is_json:
        echo_json(vars(receipt))
        return
    for layer, rows in receipt.rows.items():
        click.echo(f"{layer}: {many(rows, 'row')} of {tenant} removed")
    if not receipt.rows:
        click.echo(f"no rows of {tenant}")
    elif now:
        click.echo(f"{many(receipt.deleted, 'file')} deleted: the bytes are gone")
    else:
        click.echo(f"`stoker pipeline vacuum` deletes the bytes from {receipt.bytes_gone} on")


@click.command(epilog=examples("stoker pipeline vacuum", "stoker pipeline vacuum --keep 7d --lake /data/lake"))
@click.option(
    "--keep",
    type=DURATION,
    default="24h",
    show_default=True,
    help="Keep files that a version of this period needs. Must be longer than a batch or a query takes.",
)
@LAKE
@as_json
def vacuum(keep: int, lake: str, is_json: bool) -> None:
    """Delete files that no version of the last 24 hours needs, and files that were never committed."""
    from stoker.spark.lake import upkeep
    from stoker.spark.lake.layout import Tables

    done = upkeep.vacuum(Tables(lake), timedelta(milliseconds=keep))
    if is_json:
        echo_json([vars(one) for one in done])
        return
    files, size = sum(one.files for one in done), sum(one.bytes for one in done)
    click.echo(f"{many(files, 'file')} deleted ({megabytes(size)})" if files else "nothing to delete")


@click.command(epilog=examples("stoker pipeline history", "stoker pipeline history --layer bronze --limit 5"))
@LAYER
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many versions.")
@LAKE
@as_json
def history(layers: tuple[str, ...], limit: int, lake: str, is_json: bool) -> None:
    """List the newest versions of the tables: batches with their positions in the log, and maintenance."""
    from stoker.spark.lake import upkeep
    from stoker.spark.lake.layout import LAYERS, Tables

    found = upkeep.history(Tables(lake), layers or LAYERS, limit)
    if is_json:
        echo_json(found)
        return
    for one in found:
        more = ", ".join(f"{name} {one[name]}" for name in ("batch", "rows", "removed", "added") if name in one)
        click.echo(f"{one['at']}  {one['layer']:<10} {one['version']:>6}  {one['operation']:<8} {more}".rstrip())


@click.command(epilog=examples("stoker pipeline status", "stoker pipeline status --url tcp://queue:6789 --json"))
@LAKE
@click.option(
    "--url",
    envvar="STOKER_URL",
    show_envvar=True,
    help="Ask this queue how far the lake is behind. [default: show what `stoker pipeline stream` has measured last]",
)
@with_token
@as_json
def status(lake: str, url: str | None, is_json: bool) -> None:
    """Show the tables as of the newest batch that all of them have, and how far the lake is behind its queue."""
    from stoker.spark.lag import lines, read_lag
    from stoker.spark.lake import upkeep
    from stoker.spark.lake.layout import Tables

    tables = Tables(lake)
    found = upkeep.status(tables)
    if is_json:
        echo_json(found | {"lag": asked(tables, url) if url else read_lag(lake)})
        return
    for one in found["layers"]:
        click.echo(line_of(one))
    ends = ", ".join(f"{shard}: {last}" for shard, last in found["positions"].items())
    click.echo(f"last record of each shard: {ends or 'none'}")
    for line in lines(asked(tables, url) if url else read_lag(lake)):
        click.echo(line)


def asked(tables: "Tables", url: str) -> dict[str, Any]:
    """How far a lake is behind, as its queue says now. It counts what the lake was begun with."""
    from stoker.spark.lag import measure
    from stoker.spark.lake.layout import SOURCE
    from stoker.spark.logs import OffsetsOutOfRange
    from stoker.spark.options import read_options

    source = tables.told(SOURCE, tenants=list, queues=list, events=list)
    tenant = (source["tenants"] or ["default"])[0]
    options = options_for(url, tenant) | {name: ",".join(names) for name, names in source.items() if names}
    if source["tenants"]:
        del options["tenant"]
    ends = tables.positions()
    if not ends:
        options["failOnDataLoss"] = "false"  # it has no events yet: the first run begins with those that are kept
    with look_at(options["url"], tenant):  # a server that is missing says so sooner than to a task
        try:
            return measure(read_options(options), ends).as_json()
        except OffsetsOutOfRange as error:
            raise OffsetsOutOfRange(f"this lake cannot go on with this queue: {by_flags(error.message)}") from None


def line_of(layer: dict[str, Any]) -> str:
    size = f"{many(layer['files'], 'file')}, {megabytes(layer['bytes'])}"
    until = f", {layer['first_day']} to {layer['newest']}" if layer["newest"] else ""
    return f"{layer['layer']:<10} version {layer['version']}: {many(layer['rows'], 'row')}, {size}{until}"


@click.command(epilog=examples("stoker pipeline convert", "stoker pipeline convert --lake /data/lake"))
@LAKE
@as_json
def convert(lake: str, is_json: bool) -> None:
    """Convert a lake of an earlier release into Delta tables, in its place. If interrupted, run it again."""
    from stoker.spark.lake.convert import convert as converted

    done = converted(lake)
    if is_json:
        echo_json([vars(one) for one in done])
        return
    for one in done:
        click.echo(f"{one.layer}: {many(one.rows, 'row')} of {many(one.directories, 'directory', 'directories')}")


@click.command(
    epilog=examples("stoker pipeline export --iceberg warehouse", "stoker pipeline export --iceberg warehouse --json")
)
@click.option("--iceberg", required=True, help="The name of a catalogue of pyiceberg.")
@click.option("--namespace", default="stoker", show_default=True, help="The tables are made in this namespace.")
@LAYER
@LAKE
@as_json
def export(iceberg: str, namespace: str, layers: tuple[str, ...], lake: str, is_json: bool) -> None:
    """Copy what is new in the tables to an Iceberg catalogue, version by version. If interrupted, run it again."""
    from stoker.spark.lake import iceberg as copying
    from stoker.spark.lake.layout import LAYERS, Tables

    done = list(copying.export(Tables(lake), iceberg, namespace, layers or LAYERS))
    if is_json:
        echo_json([vars(one) for one in done])
        return
    for one in done:
        news = f"{many(one.rows, 'row')} in {many(one.versions, 'version')}" if one.versions else "nothing new"
        click.echo(f"{one.layer}: {news}, now at version {one.version}")


COMMANDS = (compact, expire, forget, vacuum, history, status, convert, export)
