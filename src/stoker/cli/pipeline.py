"""`stoker pipeline`: take what happens in a queue into a lake with Spark, and tell what it says."""

import functools
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exits
from stoker.cli.kinds import DURATION, TOKEN, as_json, connected, destroying, echo_json, examples, look_at, sure
from stoker.cli.layout import many
from stoker.model.errors import StokerError

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LAKE = click.option(
    "--lake", default="stoker-lake", show_default=True, help="Where the lake is: any path that Hadoop can read."
)
MASTER = click.option(
    "--master", help="Where Spark runs: local[2], spark://host:7077. Otherwise this machine, all cores."
)


class SparkFailed(StokerError):
    """Spark, or a part of ours that runs in it, gave up."""

    code = "spark_failed"


def taking(command: Callable[..., None]) -> Callable[..., None]:
    """How and whence events are taken in: options of the source, which the command gets as `reading`."""

    @click.option(
        "--payload-schema",
        help="Fields of payloads, as in 'user_id bigint, mail string': bronze has them decoded. Payloads that cannot be"
        " go to the table quarantine.",
    )
    @click.option(
        "--allow-loss",
        is_flag=True,
        help="Go on with the oldest events that are left if some were dropped before they were taken in.",
    )
    @click.option("--tenants", help="Of these, with commas between them, instead of one --tenant.")
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
        first = tenant if tenants is None else tenants.partition(",")[0].strip()
        with look_at(options["url"], first) as client:  # open meanwhile: not every worker of Spark's has to open it
            client.read_records(0, after=2**52, bytes_max=1)  # whoever is not there, or does not let us in, says so now
            with in_plain_words():
                command(reading=options, **given)

    return taken


@contextmanager
def in_plain_words() -> Iterator[None]:
    """What went wrong in Spark, without its stacks: if it was one of our errors, that one."""
    from pyspark.errors import PySparkException

    from stoker.spark.replay import said

    try:
        yield
    except PySparkException as error:
        ours = re.findall(r"^stoker\.[\w.]+: (.+)$", str(error), re.MULTILINE)
        raise SparkFailed(ours[-1] if ours else f"Spark cannot do this: {said(error)}") from None


def quarantined(count: int) -> None:
    if count:
        click.echo(f"{many(count, 'payload')} could not be decoded: see the table quarantine", err=True)


LOOK_S = 0.2
"""Between two looks at a stream."""
PRICE = click.FloatRange(0)
NEW_FILE = click.Path(dir_okay=False, writable=True)


def place_for(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Say now that a file cannot be written, and not when everything is computed."""
    if path is not None and not Path(path).resolve().parent.is_dir():
        raise click.BadParameter(f"there is no directory {Path(path).resolve().parent}")
    return path


@click.group()
def pipeline() -> None:
    """Take what happens in a queue into a lake with Spark, and tell what it says."""


@pipeline.command(
    epilog=examples("stoker pipeline run", "stoker pipeline run --url tcp://queue:6789 --lake /data/lake")
)
@LAKE
@MASTER
@click.option("--most", type=click.IntRange(1), default=200_000, show_default=True, help="Records in one batch.")
@taking
@connected
@as_json
def run(lake: str, master: str | None, most: int, reading: dict[str, str], is_json: bool) -> None:
    """Take in everything that has happened until now, and end. What is there already is not taken twice."""
    from stoker.spark.lake import running

    spark = quietly_started(master)
    told(f"taking events into {lake}")
    done = running.run(spark, lake, reading | {"maxRecordsPerTrigger": str(most)})
    if is_json:
        shown = {"batches": done.batches, "events": done.events, "quarantined": done.quarantined}
        echo_json({"lake": lake, **shown})
    else:
        click.echo(f"{done.events:,} new events in {done.batches} batches: {lake}")
        quarantined(done.quarantined)


@pipeline.command(epilog=examples("stoker pipeline stream --every 10s", "stoker pipeline stream --lake /data/lake"))
@LAKE
@MASTER
@click.option("--every", type=DURATION, default="5s", show_default=True, help="How often new events are taken in.")
@taking
@connected
def stream(lake: str, master: str | None, every: int, reading: dict[str, str]) -> None:
    """Take in what happens, for as long as this runs. Ctrl-C ends it; the next run goes on from there."""
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    spark = quietly_started(master)
    query = running.start(spark, Lake(spark, lake), reading, {"processingTime": f"{every} milliseconds"})
    told(f"taking events into {lake} every {every / 1000:g} s; Ctrl-C ends it")
    until_asked(query)
    spark.sparkContext.setLogLevel("OFF")  # Spark calls it an error that it is told to stop
    query.stop()


def until_asked(query: "StreamingQuery") -> None:
    """Return on Ctrl-C or SIGTERM, when no batch is under way. A second Ctrl-C does not wait for that."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    while not asked.wait(LOOK_S):
        if not query.isActive:
            query.awaitTermination()  # which says why
            return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told("ending with the batch that is under way; Ctrl-C ends it at once")
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
    "--objective", type=DURATION, default="60s", show_default=True, help="A job is in time if it completes so soon."
)
@click.option(
    "--objective-share",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.99,
    show_default=True,
    help="So many should be in time: 0.99 are 99 of 100.",
)
@click.option("--price-job", type=PRICE, default=0.0, help="Of one job, in whatever money you like.")
@click.option("--price-hour", type=PRICE, default=0.0, help="Of one hour that jobs run.")
@click.option("--price-gb", type=PRICE, default=0.0, help="Of one GB of payloads.")
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
    """Write what the lake tells as one page: rates, latencies, failures, the slowest jobs, tenants by cost."""
    from stoker.spark.lake.layout import Lake
    from stoker.spark.lake.reading import Settings
    from stoker.spark.report.numbers import numbers

    settings = Settings(objective, objective_share, price_job, price_hour, price_gb)
    spark = quietly_started(master)
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
    """Make few directories of many. Readers see the old ones or the new, and a second run finds nothing to do."""
    from stoker.spark.lake.compaction import compact as compacted
    from stoker.spark.lake.layout import Lake

    done = compacted(Lake(quietly_started(master), lake, make=False))
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
    """Begin a lake with what happened from a time on, as far as the queue keeps it. `run` goes on from there."""
    from stoker.spark.lake import running

    moment = moment_of(since)
    done = running.backfill(quietly_started(master), lake, reading, moment)
    if is_json:
        shown = {"batches": done.batches, "events": done.events, "quarantined": done.quarantined}
        echo_json({"lake": lake, "from": moment.isoformat(), **shown})
    else:
        click.echo(f"{done.events:,} events since {moment:%Y-%m-%d %H:%M:%S} UTC in {done.batches} batches: {lake}")
        quarantined(done.quarantined)


@pipeline.command(epilog=examples("stoker pipeline pack", "stoker pipeline pack --to /data/submit"))
@click.option("--to", default="stoker-submit", show_default=True, help="The directory to write to.")
@as_json
def pack(to: str, is_json: bool) -> None:
    """Write what spark-submit is given: a program, and Stoker as a zip for a cluster where it is not installed."""
    from stoker.spark.packing import pack as packed

    made = packed(to)
    if is_json:
        echo_json({"program": str(made.program), "archive": str(made.archive)})
        return
    files = f"--py-files {made.archive} {made.program}"
    click.echo(f"spark-submit --master spark://HOST:7077 {files} run --lake PATH --url URL")
    click.echo("Leave --py-files out where Stoker is installed.", err=True)


def moment_of(text: str) -> "datetime":
    """A time, or how long ago it was."""
    from datetime import UTC, datetime, timedelta

    from stoker.model.units import duration_ms
    from stoker.spark.options import moment

    try:
        return datetime.now(UTC) - timedelta(milliseconds=duration_ms(text))
    except (StokerError, ValueError):
        return moment("--from", text).astimezone(UTC)


@pipeline.command(
    epilog=examples(
        "stoker pipeline replay --where \"reason = 'timeout' and queue = 'mail'\" --dry-run",
        'stoker pipeline replay --where "payload.user_id = 7" --set "payload.user_id = 8" --set "priority = 5" --yes',
    )
)
@click.option("--where", required=True, help="Which dead letters: SQL over the table dead_letters; payload.NAME, too.")
@click.option(
    "--set", "sets", multiple=True, help="Mend: payload.NAME = SQL, or an option of jobs such as priority = 5."
)
@click.option("--to", help="Push them there. Otherwise each goes back to its queue.")
@click.option("--queue", "queues", multiple=True, help="Look only there; others are not even read.")
@click.option("--schema", help="Fields of the payload: user_id bigint, mail string. Otherwise payloads are looked at.")
@click.option(
    "--ticket", help="Name the replay: what ran under a name is not pushed again. Otherwise made of the above."
)
@click.option("--purge", is_flag=True, help="Remove the dead letters whose jobs are in. Otherwise they stay.")
@click.option("--show", type=click.IntRange(0), default=10, show_default=True, help="So many of them beforehand.")
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
    """Push dead letters back to work: chosen with SQL, mended by expressions, each once however often this runs.

    The new job has the old one as its parent. The dead letter stays, unless --purge removes it; either way the same
    replay pushes nothing twice.
    """
    from stoker.spark import replay as replays

    plan = replays.plan(where, sets, to, queues, ticket)
    options = options_for(url, tenant)
    with look_at(options["url"], tenant) as client:
        spark = quietly_started(master)
        picked = replays.pick(spark, client, plan, options, schema)
        if not is_json:
            click.echo(preview([each.shown for each in picked[:show]]), err=not dry_run)
        elif dry_run:
            rows = [each.shown for each in picked[:show]]
            echo_json({"ticket": plan.ticket, "count": len(picked), "rows": rows})
            return exits.OK
        what = f"push {many(len(picked), 'dead letter')} back to {to or 'work'} (ticket {plan.ticket})"
        if not picked or not sure(what, dry_run=dry_run, yes=yes):
            return exits.OK
        done = replays.push_back(client, plan, picked, purge=purge)
    if is_json:
        echo_json({"ticket": plan.ticket, **{name: getattr(done, name) for name in done.__dataclass_fields__}})
    else:
        before = f", {len(done.known):,} were pushed before" if done.known else ""
        removed = f", {many(done.purged, 'dead letter')} removed" if purge else ""
        click.echo(f"{many(len(done.pushed), 'job')} pushed{before}{removed}")
    for job, why in done.refused.items():
        exits.tell(f"dead letter {job} was left: {why}", "refused")
    return exits.REFUSED if done.refused else exits.OK


def preview(rows: list[dict[str, Any]]) -> str:
    """Some of the dead letters, with the values that they will get."""
    from stoker.cli.layout import columns, cut, plain

    if not rows:
        return "no dead letters like that"
    heads = tuple(name.upper() for name in rows[0])
    return columns(heads, [[cut(plain(str(value)), 60) for value in row.values()] for row in rows])


def headline(head: dict[str, Any]) -> str:
    """The report in one line."""
    if not head["events"]:
        return "no events yet"
    from stoker.spark.report.charts import count, duration, share

    p99 = "-" if head["total_ms_p99"] is None else duration(head["total_ms_p99"])
    return (
        f"{head['events']:,} events: {count(head['pushed'])} pushed, {count(head['completed'])} completed"
        f" ({share(head['success'])} of those that ended), {count(head['failed'])} dead; p99 {p99}"
    )


def quietly_started(master: str | None) -> "SparkSession":
    """A session; who waits is told what for."""
    from stoker.spark.starting import session

    told("starting Spark ...")
    started = session(master, name="stoker pipeline")
    started.sparkContext.setLogLevel("FATAL")  # errors are raised, and told once: here, and by `in_plain_words`
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
    return started


def told(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)


def options_for(url: str | None, tenant: str) -> dict[str, str]:
    """How executors reach the queue: a relative path would be another one for them."""
    from stoker.brokers.connect import DEFAULT_URL
    from stoker.cli.kinds import directory_of
    from stoker.model.errors import InvalidRequest

    given = url or DEFAULT_URL
    if given.startswith("memory:"):
        raise InvalidRequest(f"{given} lives in one process, and Spark has others: use a directory or a server")
    directory = directory_of(given)
    if directory is not None:
        given = f"sqlite:///{Path(directory).resolve()}"
    token = click.get_current_context().meta.get(TOKEN)
    return {"url": given, "tenant": tenant} | ({"token": token} if token else {})
