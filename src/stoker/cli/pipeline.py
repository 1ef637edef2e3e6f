"""`stoker pipeline`: loads the history of a queue into a lake with Spark, and reports on it."""

import functools
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import lake_upkeep
from stoker.cli.lag_watch import Address, LagFile, LagMetrics, LagWatch
from stoker.cli.parameters import DURATION, Family, as_json, connected, echo_json, examples, look_at
from stoker.cli.pipeline_options import CHECKPOINT, LAKE, at_least, moment_of
from stoker.cli.replaying import replay
from stoker.cli.reporting import report
from stoker.cli.spark_session import MASTER, check, options_for, print_progress, raised, spark_at
from stoker.model.wording import many

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from stoker.model.lag import Lag


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


@click.group(cls=Family)
def pipeline() -> None:
    """Load the history of a queue into a lake with Spark, and make reports."""


for one in (replay, report, *lake_upkeep.COMMANDS):
    pipeline.add_command(one)


@pipeline.command(
    epilog=examples("stoker pipeline run", "stoker pipeline run --url tcp://queue:6789 --lake /data/lake")
)
@LAKE
@CHECKPOINT
@MASTER
@click.option("--most", type=MOST, default=1_000_000, show_default=True, help="Events in one batch.")
@taking
@connected
@as_json
def run(
    lake: str, checkpoint: str | None, master: str | None, most: int, reading: dict[str, str], is_json: bool
) -> None:
    """Take in all events until now, and exit. Each event is taken in once."""
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import checkpoint_of

    checkpoint_of(lake, checkpoint)
    done, reading = running.Filled(), reading | {"maxRecordsPerTrigger": str(most)}
    if not running.has_nothing_new(lake, reading, checkpoint=checkpoint):
        with spark_at(master, GO_ON) as spark:
            print_progress(f"taking events into {lake}")
            done = running.run(spark, lake, reading, checkpoint=checkpoint)
    if is_json:
        shown = {"batches": done.batches, "events": done.events, "quarantined": done.quarantined}
        echo_json({"lake": lake, **shown})
    else:
        click.echo(f"{many(done.events, 'new event')} in {many(done.batches, 'batch', 'batches')}: {lake}")
        quarantined(done.quarantined)


@pipeline.command(epilog=examples("stoker pipeline stream --every 10s", "stoker pipeline stream --lake /data/lake"))
@LAKE
@CHECKPOINT
@MASTER
@click.option(
    "--every",
    type=DURATION,
    callback=at_least(100),
    default="5s",
    show_default=True,
    help="How often to take in new events.",
)
@click.option("--metrics", type=Address(), help="Serve the lag for Prometheus at HOST:PORT, under /metrics.")
@taking
@connected
def stream(
    lake: str,
    checkpoint: str | None,
    master: str | None,
    every: int,
    metrics: tuple[str, int] | None,
    reading: dict[str, str],
) -> None:
    """Take in events continuously. Ctrl-C ends it; the next run continues from there."""
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import checkpoint_of
    from stoker.spark.options import read_options

    checkpoint_of(lake, checkpoint)
    with ExitStack() as ends, spark_at(master, GO_ON) as spark:
        place = running.lake_for(spark, lake, reading, checkpoint=checkpoint)
        query = running.start(spark, place, reading, {"processingTime": f"{every} milliseconds"})
        tell = told_by(place.files.write_json, metrics, ends)
        print_progress(f"taking events into {lake} every {every / 1000:g} s; Ctrl-C ends it")
        with LagWatch(read_options(reading, streaming=True), lambda: query.lastProgress, tell):
            until_asked(query)
        spark.sparkContext.setLogLevel("OFF")  # Spark logs being stopped as an error
        query.stop()


def told_by(
    write: Callable[[str, dict[str, Any]], None], metrics: tuple[str, int] | None, ends: ExitStack
) -> "Callable[[Lag], None]":
    """Tells the lag to the file of the lake, and to Prometheus if wanted."""
    file, served = LagFile(write), None if metrics is None else LagMetrics()
    if served is not None and metrics is not None:
        ends.callback(served.serve(*metrics))

    def tell(lag: "Lag") -> None:
        file.tell(lag)
        if served is not None:
            served.tell(lag)

    return tell


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
    epilog=examples(
        "stoker pipeline backfill --from 2026-11-01 --lake /data/november", "stoker pipeline backfill --from 7d"
    )
)
@click.option("--from", "since", required=True, help="A time such as 2026-11-16T08:00:00Z, or how long ago: 7d.")
@LAKE
@CHECKPOINT
@MASTER
@taking
@connected
@as_json
def backfill(
    since: str, lake: str, checkpoint: str | None, master: str | None, reading: dict[str, str], is_json: bool
) -> None:
    """Begin a lake with the events from a time on, as far as the queue keeps them. `run` continues from there."""
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import checkpoint_of

    checkpoint_of(lake, checkpoint)
    moment = moment_of(since)
    with spark_at(master, GO_ON) as spark:
        done = running.backfill(spark, lake, reading, moment, checkpoint=checkpoint)
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
