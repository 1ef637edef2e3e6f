"""`stoker pipeline report`: what happened, as one page, as a picture, or as numbers."""

import os
from math import isfinite
from pathlib import Path
from typing import Any

import click

from stoker.cli.parameters import DURATION, as_json, echo_json, examples
from stoker.cli.pipeline_options import LAKE, at_least, moment_of
from stoker.cli.spark_session import MASTER, spark_at
from stoker.model.wording import many


class Finite(click.FloatRange):
    """A finite number. NaN compares false with everything, so a range alone would accept it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not isfinite(found):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return found


PRICE = Finite(0)
NEW_FILE = click.Path(dir_okay=False, writable=True)


def place_for(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Fail at once if a file cannot be written, not after everything is computed."""
    if path is not None:
        directory = Path(path).resolve().parent
        if not directory.is_dir():
            raise click.BadParameter(f"there is no directory {directory}")
        if not os.access(directory, os.W_OK):
            raise click.BadParameter(f"the directory {directory} is not writable")
    return path


def scope_of(since: str | None, until: str | None, last: int | None, queue: str | None, tenant: str | None) -> Any:
    """The part of the lake that a report is about."""
    from datetime import UTC, datetime, timedelta

    from stoker.spark.report.scope import ReportScope

    if last is not None and (since is not None or until is not None):
        raise click.UsageError("--last is a period that ends now: leave --from and --until out")
    begin = None if since is None else moment_of(since)
    end = None if until is None else moment_of(until, "--until")
    if last is not None:
        end = datetime.now(UTC)
        begin = end - timedelta(milliseconds=last)
    if begin is not None and end is not None and begin >= end:
        raise click.UsageError("the period is empty: --from must be before --until")
    return ReportScope(begin, end, queue, tenant)


@click.command(
    epilog=examples(
        "stoker pipeline report",
        "stoker pipeline report --last 2h --compare --queue mail",
        "stoker pipeline report --out report.html --png report.png",
    )
)
@LAKE
@MASTER
@click.option(
    "--out",
    type=NEW_FILE,
    callback=place_for,
    help="The page to write. [default: stoker-report.html, or none with --json]",
)
@click.option("--png", type=NEW_FILE, callback=place_for, help="Also write the charts as one picture.")
@click.option("--from", "since", help="Begin at this time, such as 2026-11-16T08:00:00Z, or so long ago: 12h.")
@click.option("--until", help="End at this time, which is not included.")
@click.option("--last", type=DURATION, callback=at_least(60_000), help="The period that ends now: 2h, 7d.")
@click.option("--queue", help="Only this queue.")
@click.option("--tenant", help="Only this tenant.")
@click.option(
    "--compare", is_flag=True, help="Compare with the period of the same length before. Needs --last or --from."
)
@click.option(
    "--objective",
    type=DURATION,
    callback=at_least(1),
    default="60s",
    show_default=True,
    help="A job is in time if it completes this soon after it was due.",
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
    out: str | None,
    png: str | None,
    since: str | None,
    until: str | None,
    last: int | None,
    queue: str | None,
    tenant: str | None,
    compare: bool,
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

    scope = scope_of(since, until, last, queue, tenant)
    if compare and scope.since is None:
        raise click.UsageError("--compare needs a period: add --last 2h, or --from")
    settings = ReportSettings(objective, objective_share, price_job, price_hour, price_gb)
    with spark_at(master, "no report was written") as spark:
        found = numbers(Lake(spark, lake, make=False).pinned(), settings, scope, compare=compare)
    page_path = out or (None if is_json else "stoker-report.html")
    write_report(found, page_path, png)
    if is_json:
        echo_json(found)
        return
    assert page_path is not None
    click.echo(headline(found["headline"]))
    click.echo(f"report: {Path(page_path).resolve()}")


def write_report(found: dict[str, Any], out: str | None, png: str | None) -> None:
    """The page and the picture, as far as they are wanted. Without events there is nothing to draw."""
    if out is None and png is None:
        return
    from stoker.spark.report import charts, page

    if out is not None:
        Path(out).write_text(page.page(found), encoding="utf-8")
    if png is not None and found["series"]:
        Path(png).write_bytes(charts.png(found))


def headline(head: dict[str, Any]) -> str:
    """The report in one line."""
    if not head["events"]:
        return "no events yet"
    from stoker.spark.report.charts import count, duration, share

    p99 = "-" if head["latency_ms_p99"] is None else duration(head["latency_ms_p99"])
    return (
        f"{many(head['events'], 'event')}: {count(head['pushed'])} pushed, {count(head['completed'])} completed"
        f" ({share(head['success'])} of those that ended), {count(head['dead_letters'])} dead letters now; p99 {p99}"
    )
