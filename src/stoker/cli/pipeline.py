"""`stoker pipeline`: loads the history of a queue into a lake with Spark, and reports on it."""

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.formatting import many
from stoker.cli.parameters import DURATION, Family, as_json, connected, echo_json, examples, look_at
from stoker.cli.replaying import replay
from stoker.cli.spark_session import MASTER, check, options_for, print_progress, raised, spark_at
from stoker.model.errors import InvalidRequest, StokerError

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql.streaming.query import StreamingQuery

LAKE = click.option(
    "--lake", default="stoker-lake", show_default=True, help="The path of the lake: any path that Hadoop can read."
)


def taking(command: Callable[..., None]) -> Callable[..., None]:
    """Options of the source, which the command gets as `reading`: where events come from, and how they are read."""

    @click.option(
        "--payload-schema",
        help="Fields of payloads to decode into bronze: 'user_id bigint, mail string'. Payloads that cannot be decoded"
        " go to the table quarantine.",
    )
    @click.option(
        "--allow-loss",
        is_flag=True,
        help="If the queue has dropped events that were not taken in, continue with the oldest that it still has.",
    )
    @click.option("--tenants", help="These tenants, separated by commas, instead of one --tenant.")
    @functools.wraps(command)
    def taken(
        payload_schema: str | None, allow_loss: bool, tenants: str | None, url: str | None, tenant: str, **given: Any
    ) -> None:
        options = options_for(url, tenant)
        if tenants is not None:
            del options["tenant"]
            options["tenants"] = tenants
        options |= {} if payload_schema is None else {"payloadSchema": payload_schema}
        options |= {"failOnDataLoss": "false"} if allow_loss else {}
        check(options)
        first = tenant if tenants is None else tenants.partition(",")[0].strip()
        # kept open meanwhile, so that Spark's workers need not each open it
        with look_at(options["url"], first) as client:
            client.read_records(0, after=2**52, bytes_max=1)  # a server that is missing, or refuses us, says so now
            command(reading=options, **given)

    return taken


def quarantined(count: int) -> None:
    if count:
        click.echo(f"{many(count, 'payload')} could not be decoded: see the table quarantine", err=True)


GO_ON = "the next run continues from there"
LOOK_S = 0.2
"""The pause between two looks at a stream."""
MOST = click.IntRange(1, 1_000_000_000)


class Finite(click.FloatRange):
    """A finite number. NaN compares false with everything, so a range alone would accept it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not isfinite(found):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return found


PRICE = Finite(0)
NEW_FILE = click.Path(dir_okay=False, writable=True)


def at_least(least_ms: int) -> Callable[[click.Context, click.Parameter, int], int]:
    def checked(context: click.Context, parameter: click.Parameter, millis: int) -> int:
        if millis < least_ms:
            raise click.BadParameter(f"{millis} ms: expected at least {least_ms} ms")
        return millis

    return checked


def place_for(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Fail at once if a file cannot be written, not after everything is computed."""
    if path is not None:
        directory = Path(path).resolve().parent
        if not directory.is_dir():
            raise click.BadParameter(f"there is no directory {directory}")
        if not os.access(directory, os.W_OK):
            raise click.BadParameter(f"the directory {directory} is not writable")
    return path


def moment_of(text: str) -> "datetime":
    """A time, or how long ago it was."""
    from datetime import UTC, datetime, timedelta

    from stoker.model.units import duration_ms
    from stoker.spark.options import moment

    try:
        ago_ms = duration_ms(text)
    except (StokerError, ValueError):
        ago_ms = -1
    try:
        if ago_ms >= 0:
            return datetime.now(UTC) - timedelta(milliseconds=ago_ms)
        return moment("--from", text).astimezone(UTC)
    except (InvalidRequest, OverflowError):
        raise click.BadParameter(
            f"{text[:80]!r}: expected a time such as 2026-11-16T08:00:00Z, or how long ago it was, such as 7d or 12h",
            param_hint="--from",
        ) from None


@click.group(cls=Family)
def pipeline() -> None:
    """Load the history of a queue into a lake with Spark, and make reports."""


pipeline.add_command(replay)


@pipeline.command(
    epilog=examples("stoker pipeline run", "stoker pipeline run --url tcp://queue:6789 --lake /data/lake")
)
@LAKE
@MASTER
@click.option("--most", type=MOST, default=200_000, show_default=True, help="Records in one batch.")
@taking
@connected
@as_json
def run(lake: str, master: str | None, most: int, reading: dict[str, str], is_json: bool) -> None:
    """Take in all events until now, and exit. Each event is taken in once."""
    from stoker.spark.lake import running

    with spark_at(master, GO_ON) as spark:
        print_progress(f"taking events into {lake}")
        done = running.run(spark, lake, reading | {"maxRecordsPerTrigger": str(most)})
    if is_json:
        shown = {"batches": done.batches, "events": done.events, "quarantined": done.quarantined}
        echo_json({"lake": lake, **shown})
    else:
        click.echo(f"{many(done.events, 'new event')} in {many(done.batches, 'batch', 'batches')}: {lake}")
        quarantined(done.quarantined)


@pipeline.command(epilog=examples("stoker pipeline stream --every 10s", "stoker pipeline stream --lake /data/lake"))
@LAKE
@MASTER
@click.option(
    "--every",
    type=DURATION,
    callback=at_least(100),
    default="5s",
    show_default=True,
    help="How often to take in new events.",
)
@taking
@connected
def stream(lake: str, master: str | None, every: int, reading: dict[str, str]) -> None:
    """Take in events continuously. Ctrl-C ends it; the next run continues from there."""
    from stoker.spark.lake import running

    with spark_at(master, GO_ON) as spark:
        place = running.lake_for(spark, lake, reading)
        query = running.start(spark, place, reading, {"processingTime": f"{every} milliseconds"})
        print_progress(f"taking events into {lake} every {every / 1000:g} s; Ctrl-C ends it")
        until_asked(query)
        spark.sparkContext.setLogLevel("OFF")  # Spark logs being stopped as an error
        query.stop()


def until_asked(query: "StreamingQuery") -> None:
    """Return on Ctrl-C or SIGTERM, when no batch is under way. The second one does not wait for that."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    while not asked.wait(LOOK_S):
        if not query.isActive:
            query.awaitTermination()  # raises the error of the stream
            return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raised)
    print_progress("ending with the batch that is under way; Ctrl-C ends it at once")
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(LOOK_S)


@pipeline.command(
    epilog=examples("stoker pipeline report", "stoker pipeline report --out report.html --png report.png")
)
@LAKE
@MASTER
@click.option(
    "--out",
    type=NEW_FILE,
    callback=place_for,
    default="stoker-report.html",
    show_default=True,
    help="The page to write.",
)
@click.option("--png", type=NEW_FILE, callback=place_for, help="Also write the charts as one picture.")
@click.option(
    "--objective",
    type=DURATION,
    callback=at_least(1),
    default="60s",
    show_default=True,
    help="A job is in time if it completes within this time.",
)
@click.option(
    "--objective-share",
    type=Finite(0, 1, max_open=True),
    default=0.99,
    show_default=True,
    help="The share of jobs that should be in time: 0.99 is 99 of 100.",
)
@click.option("--price-job", type=PRICE, default=0.0, help="The price of one job, in any currency.")
@click.option("--price-hour", type=PRICE, default=0.0, help="The price of one hour of running jobs.")
@click.option("--price-gb", type=PRICE, default=0.0, help="The price of one GB of payloads.")
@as_json
def report(
    lake: str,
    master: str | None,
    out: str,
    png: str | None,
    objective: int,
    objective_share: float,
    price_job: float,
    price_hour: float,
    price_gb: float,
    is_json: bool,
) -> None:
    """Write a report of the lake as one page: rates, latencies, failures, the slowest jobs, tenants by cost."""
    from stoker.spark.lake.layout import Lake
    from stoker.spark.lake.reading import ReportSettings
    from stoker.spark.report.numbers import numbers

    settings = ReportSettings(objective, objective_share, price_job, price_hour, price_gb)
    with spark_at(master, "no report was written") as spark:
        found = numbers(Lake(spark, lake, make=False), settings)
    if is_json:
        echo_json(found)
        return
    from stoker.spark.report import charts, page

    Path(out).write_text(page.page(found), encoding="utf-8")
    if png is not None and found["series"]:
        Path(png).write_bytes(charts.png(found))
    click.echo(headline(found["headline"]))
    click.echo(f"report: {Path(out).resolve()}")


@pipeline.command(epilog=examples("stoker pipeline compact", "stoker pipeline compact --lake /data/lake"))
@LAKE
@MASTER
@as_json
def compact(lake: str, master: str | None, is_json: bool) -> None:
    """Merge many directories into few. Readers see the old ones or the new, and a second run does nothing."""
    from stoker.spark.lake.compaction import compact as compacted
    from stoker.spark.lake.layout import Lake

    with spark_at(master, "the next run compacts the rest") as spark:
        done = compacted(Lake(spark, lake, make=False))
    if is_json:
        echo_json([{"layer": one.layer, "directories": one.directories, "name": one.name} for one in done])
        return
    for one in done:
        click.echo(f"{one.layer}: {one.directories} directories are one")
    if not done:
        click.echo("nothing to compact")


@pipeline.command(
    epilog=examples(
        "stoker pipeline backfill --from 2026-11-01 --lake /data/november", "stoker pipeline backfill --from 7d"
    )
)
@click.option("--from", "since", required=True, help="A time such as 2026-11-16T08:00:00Z, or how long ago: 7d.")
@LAKE
@MASTER
@taking
@connected
@as_json
def backfill(since: str, lake: str, master: str | None, reading: dict[str, str], is_json: bool) -> None:
    """Begin a lake with the events from a time on, as far as the queue keeps them. `run` continues from there."""
    from stoker.spark.lake import running

    moment = moment_of(since)
    with spark_at(master, GO_ON) as spark:
        done = running.backfill(spark, lake, reading, moment)
    if is_json:
        shown = {"batches": done.batches, "events": done.events, "quarantined": done.quarantined}
        echo_json({"lake": lake, "from": moment.isoformat(), **shown})
    else:
        taken = f"{many(done.events, 'event')} since {moment:%Y-%m-%d %H:%M:%S} UTC"
        click.echo(f"{taken} in {many(done.batches, 'batch', 'batches')}: {lake}")
        quarantined(done.quarantined)


@pipeline.command(epilog=examples("stoker pipeline pack", "stoker pipeline pack --to /data/submit"))
@click.option("--to", default="stoker-submit", show_default=True, help="The directory to write to.")
@as_json
def pack(to: str, is_json: bool) -> None:
    """Write the files for spark-submit: a program, and Stoker as a zip for clusters without it."""
    from stoker.spark.packing import pack as packed

    made = packed(to)
    if is_json:
        echo_json({"program": str(made.program), "archive": str(made.archive)})
        return
    files = f"--py-files {made.archive} {made.program}"
    click.echo(f"spark-submit --master spark://HOST:7077 {files} run --lake PATH --url URL")
    click.echo("Leave --py-files out where Stoker is installed.", err=True)


def headline(head: dict[str, Any]) -> str:
    """The report in one line."""
    if not head["events"]:
        return "no events yet"
    from stoker.spark.report.charts import count, duration, share

    p99 = "-" if head["total_ms_p99"] is None else duration(head["total_ms_p99"])
    return (
        f"{many(head['events'], 'event')}: {count(head['pushed'])} pushed, {count(head['completed'])} completed"
        f" ({share(head['success'])} of those that ended), {count(head['failed'])} dead; p99 {p99}"
    )
