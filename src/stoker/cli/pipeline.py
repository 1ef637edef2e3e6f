"""`stoker pipeline`: take what happens in a queue into a lake with Spark, and tell what it says."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.kinds import TOKEN, as_json, connected, echo_json, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = click.option(
    "--lake", default="stoker-lake", show_default=True, help="Where the lake is: any path that Hadoop can read."
)
MASTER = click.option(
    "--master", help="Where Spark runs: local[2], spark://host:7077. Otherwise this machine, all cores."
)


@click.group()
def pipeline() -> None:
    """Take what happens in a queue into a lake with Spark, and tell what it says."""


@pipeline.command(
    epilog=examples("stoker pipeline run", "stoker pipeline run --url tcp://queue:6789 --lake /data/lake")
)
@LAKE
@MASTER
@click.option("--most", type=int, default=200_000, show_default=True, help="Records in one batch.")
@connected
@as_json
def run(lake: str, master: str | None, most: int, url: str | None, tenant: str, is_json: bool) -> None:
    """Take in everything that has happened until now, and end. What is there already is not taken twice."""
    from stoker.spark.lake import running

    spark = quietly_started(master)
    told(f"taking events into {lake}")
    done = running.run(spark, lake, options_for(url, tenant) | {"maxRecordsPerTrigger": str(most)})
    if is_json:
        echo_json({"lake": lake, "batches": done.batches, "events": done.events})
    else:
        click.echo(f"{done.events:,} new events in {done.batches} batches: {lake}")


@pipeline.command(epilog=examples("stoker pipeline stream --every 10s", "stoker pipeline stream --lake /data/lake"))
@LAKE
@MASTER
@click.option("--every", default="5s", show_default=True, help="How often new events are taken in.")
@connected
def stream(lake: str, master: str | None, every: str, url: str | None, tenant: str) -> None:
    """Take in what happens, for as long as this runs. Ctrl-C ends it; the next run goes on from there."""
    from stoker.model.units import duration_ms
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    millis = duration_ms(every)
    spark = quietly_started(master)
    query = running.start(
        spark, Lake(spark, lake), options_for(url, tenant), {"processingTime": f"{millis} milliseconds"}
    )
    told(f"taking events into {lake} every {every}; Ctrl-C ends it")
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


@pipeline.command(
    epilog=examples("stoker pipeline report", "stoker pipeline report --out report.html --png report.png")
)
@LAKE
@MASTER
@click.option("--out", default="stoker-report.html", show_default=True, help="The page to write.")
@click.option("--png", help="Also write the charts as one picture.")
@click.option("--objective", default="60s", show_default=True, help="A job is in time if it completes so soon.")
@click.option("--objective-share", type=float, default=0.99, show_default=True, help="So many should be in time.")
@click.option("--price-job", type=float, default=0.0, help="Of one job.")
@click.option("--price-hour", type=float, default=0.0, help="Of one hour that jobs run.")
@click.option("--price-gb", type=float, default=0.0, help="Of one GB of payloads.")
@as_json
def report(
    lake: str,
    master: str | None,
    out: str,
    png: str | None,
    objective: str,
    objective_share: float,
    price_job: float,
    price_hour: float,
    price_gb: float,
    is_json: bool,
) -> None:
    """Write what the lake tells as one page: rates, latencies, failures, the slowest jobs, tenants by cost."""
    from stoker.model.units import duration_ms
    from stoker.spark.lake.layout import Lake
    from stoker.spark.lake.reading import Settings
    from stoker.spark.report.numbers import numbers

    settings = Settings(duration_ms(objective), objective_share, price_job, price_hour, price_gb)
    spark = quietly_started(master)
    found = numbers(Lake(spark, lake), settings)
    if is_json:
        echo_json(found)
        return
    from stoker.spark.report import charts, page

    Path(out).write_text(page.page(found), encoding="utf-8")
    if png is not None and found["series"]:
        Path(png).write_bytes(charts.png(found))
    click.echo(headline(found["headline"]))
    click.echo(f"report: {Path(out).resolve()}")


def headline(head: dict[str, Any]) -> str:
    """The report in one line."""
    if not head["events"]:
        return "no events yet"
    from stoker.spark.report.charts import count, duration
    from stoker.spark.report.page import share

    p99 = "-" if head["total_ms_p99"] is None else duration(head["total_ms_p99"])
    return (
        f"{head['events']:,} events: {count(head['pushed'])} pushed, {count(head['completed'])} completed"
        f" ({share(head['success'])} of those that ended), {count(head['failed'])} dead; p99 {p99}"
    )


def quietly_started(master: str | None) -> "SparkSession":
    """A session; who waits is told what for."""
    from stoker.spark.session import session

    told("starting Spark ...")
    return session(master, name="stoker pipeline")


def told(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)


def options_for(url: str | None, tenant: str) -> dict[str, str]:
    """How executors reach the queue: a relative path would be another one for them."""
    from stoker.brokers.connect import DEFAULT_URL
    from stoker.cli.kinds import directory_of

    given = url or DEFAULT_URL
    directory = directory_of(given)
    if directory is not None:
        given = f"sqlite:///{Path(directory).resolve()}"
    token = click.get_current_context().meta.get(TOKEN)
    return {"url": given, "tenant": tenant} | ({"token": token} if token else {})
