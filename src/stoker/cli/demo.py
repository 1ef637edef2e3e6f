"""`stoker demo`: shows a queue at work with one command and no setup, and leaves a report."""

import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import columns
from stoker.cli.parameters import examples
from stoker.model.wording import lasting

if TYPE_CHECKING:
    from pathlib import Path

    from stoker import Client
    from stoker.demo.story import DemoCheck

WORKERS = 2
STOP_S = 10.0
LOG_LINES = 20
SHOWN = 8
"""How many of the latest lines are shown."""
REPORT = "stoker-demo-report.html"
HTTP = "127.0.0.1:6790"


@click.command(epilog=examples("stoker demo", "stoker demo --keep demo.db", "stoker demo --serve --no-pipeline"))
@click.option("--keep", metavar="DIR", help="Keep the data directory here, to inspect it afterwards.")
@click.option("--plain", is_flag=True, help="Print plain lines, as without a terminal.")
@click.option(
    "--pipeline/--no-pipeline",
    default=True,
    show_default=True,
    help="At the end, load the history into a lake with Spark, and write a report.",
)
@click.option("--report", default=REPORT, show_default=True, help="The file for the report of the pipeline.")
@click.option("--serve", "is_served", is_flag=True, help="At the end, serve the dashboard over the demo's data.")
@click.option("--http", default=HTTP, show_default=True, metavar="HOST:PORT", help="The address of the dashboard.")
def demo(keep: str | None, plain: bool, pipeline: bool, report: str, is_served: bool, http: str) -> int:
    """Show a queue at work: some thousand jobs of every kind, two workers, a crash, and the outcome.

    Uses its own data directory, without a server, and takes about twenty seconds. Then Spark loads the history into a
    lake and draws a report, which takes about as long. Exits with 0 only if every number adds up.
    """
    import tempfile
    from pathlib import Path

    if keep is not None and Path(keep).exists():
        raise click.UsageError(f"{keep} already exists: name a new directory")
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as aside:
        directory = Path(keep) if keep is not None else Path(aside) / "demo.db"
        checks, said = tell(directory, Path(aside), is_live=sys.stdout.isatty() and not plain)
        if pipeline:
            checks.append(through_spark(directory, Path(aside) / "lake", report))
        code = conclude(checks, keep, said)
        return serve(directory, http) or code if is_served else code


def serve(directory: "Path", http: str) -> int:
    """Serve the dashboard over the demo's data, until Ctrl-C."""
    from stoker.server.config import HttpListener, ServerConfig, TcpListener
    from stoker.server.config.tree import GrpcListener
    from stoker.server.run import run

    click.echo("\nThe dashboard is open until you press Ctrl-C:")
    off = GrpcListener(listen="off")
    return run(
        ServerConfig(data=str(directory), tcp=TcpListener(listen="off"), grpc=off, http=HttpListener(listen=http))
    )


def tell(directory: "Path", aside: "Path", *, is_live: bool) -> "tuple[list[DemoCheck], str]":
    """Run the demo. Returns the checks that must hold after it, and the workers' output."""
    from stoker.demo import jobs
    from stoker.demo.story import TICK_S, Demo

    began = time.monotonic()
    url = f"sqlite:///{directory}"
    jobs.app.url = url
    with jobs.app, Screen(jobs.app.client, is_live, began) as screen, Workers(url, aside) as workers:
        screen.say(f"opened {directory}: an embedded queue, no server to run")
        story = Demo(jobs.app.client, aside, screen.say, workers.kill)
        for _ in range(WORKERS):
            screen.say(f"started {workers.start()}, a process of its own")
        for _ in story.steps():
            workers.check()
            screen.draw()
            if workers.lost:
                workers.lost = False
                screen.say(f"started {workers.start()} in its place")
            time.sleep(TICK_S)
        took = time.monotonic() - began
        screen.draw()
        checks = story.checks()
        report = summary(jobs.app.client)
    click.echo(f"\n{click.style(f'What happened in {took:.1f} seconds', bold=True)}\n{report}\n")
    return checks, workers.said()


def through_spark(directory: "Path", lake: "Path", report: str) -> "DemoCheck":
    """Load the demo's history into bronze, silver and gold tables, and write the report."""
    from importlib.util import find_spec
    from pathlib import Path

    from stoker.demo.story import DemoCheck

    if find_spec("pyspark") is None:
        click.echo("The pipeline needs Spark, which is not installed: pip install 'stoker[spark]'\n")
        return DemoCheck(False, "Spark has loaded the history into a lake (leave it out with --no-pipeline)")
    from stoker import connect
    from stoker.cli.reporting import headline
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake
    from stoker.spark.report.numbers import numbers
    from stoker.spark.report.page import page
    from stoker.spark.starting import session

    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:5.1f} s  {text}")

    click.echo(click.style("Spark loads the history into a lake, in about twenty seconds", bold=True))
    url = f"sqlite:///{directory.resolve()}"
    spark = session(name="stoker demo")
    try:
        say("started Spark, on this machine alone")
        done = running.run(spark, str(lake), {"url": url})
        say(f"loaded {done.events:,} events: bronze, silver and gold")
        found = numbers(Lake(spark, str(lake)))
    finally:
        spark.stop()
    say(headline(found["headline"]))
    Path(report).write_text(page(found, "Stoker demo"), encoding="utf-8")
    say(f"drew a report: open {Path(report).resolve()}\n")
    with connect(url) as client:
        totals = client.get_stats().totals
    counted = tuple(found["headline"][name] for name in ("pushed", "completed", "failed"))
    return DemoCheck(
        counted == (totals.pushed, totals.completed, totals.failed),
        f"the lake counts as the queue does: {counted[0]:,} pushed, {counted[1]:,} completed, {counted[2]:,} dead",
    )


def conclude(checks: "list[DemoCheck]", keep: str | None, said: str = "") -> int:
    for check in checks:
        mark = click.style("ok", fg="green") if check.holds else click.style("NO", fg="red")
        click.echo(f"  {mark}  {check.text}")
    click.echo(f"\n{click.style('What to try next', bold=True)}")
    for line in suggestions(keep):
        click.echo(f"  {line}")
    if all(check.holds for check in checks):
        return exit_codes.OK
    if said:
        click.echo(f"\nThe workers said:\n{said}", err=True)
    exit_codes.tell("not every number adds up: that is a bug, or this machine is too busy", "demo")
    return exit_codes.FAILED


def suggestions(keep: str | None) -> list[str]:
    import shutil
    from pathlib import Path

    found = shutil.which("stoker") is not None
    first = [] if found else [f". {Path(sys.prefix) / 'bin' / 'activate'}    first, and the command is found"]
    if keep is None:
        return [
            *first,
            "stoker demo --keep demo.db           the same, and its data stay for you to look around",
            'stoker push mail \'{"to": "ada"}\'     a job of your own, in stoker.db',
            "stoker pull mail --ack               and out again",
            "stoker bench                         how fast it is on this machine",
            "docs/guide                           jobs of your own: @app.job, and stoker worker",
            f"stoker demo --serve                  the same, and then its dashboard at http://{HTTP}/ui/",
        ]
    at = f"--url sqlite:///{keep}"
    return [
        *first,
        f"stoker queue list {at}",
        f"stoker dlq list payments {at}        then: stoker dlq show, stoker job story",
        f"stoker dlq retry payments {at}",
        f"stoker workflow list {at}",
        f"stoker cron show take_pulse {at}",
        f"stoker worker stoker.demo.jobs:app {at}",
        f"stoker top {at}",
        f"stoker ui {at}        its dashboard, at http://127.0.0.1:6792/ui/",
    ]


def summary(client: "Client") -> str:
    rows = []
    for name in client.list_queues():
        stats = client.get_stats(name)
        totals, done = stats.totals, max(1, stats.totals.completed)
        rows.append(
            [
                name,
                f"{totals.pushed:,}",
                f"{totals.completed:,}",
                f"{totals.retried:,}" if totals.retried else ".",
                f"{stats.counts.failed:,}" if stats.counts.failed else ".",
                lasting(totals.wait_ms_sum / done),
                lasting(totals.run_ms_sum / done),
            ]
        )
    heads = ("QUEUE", "PUSHED", "COMPLETED", "TRIED AGAIN", "DEAD", "WAITED", "RAN")
    return columns(heads, rows, right=heads[1:])


class Workers:
    """`stoker worker` in processes of their own, by name."""

    def __init__(self, url: str, aside: "Path") -> None:
        self._url = url
        self._log = aside / "workers.log"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self.lost = False

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self) -> str:
        self._started += 1
        name = f"worker-{self._started}"
        command = [sys.executable, "-m", "stoker.cli.main", "worker", "stoker.demo.jobs:app", "--url", self._url]
        with self._log.open("ab") as log:
            options = ["--name", name, "--log-level", "warning", "--processes", "1"]
            self._running[name] = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return name

    def check(self) -> None:
        """Raise if a worker ended by itself, with its output."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise click.ClickException(f"{name} ended with exit code {process.returncode}:\n{self.said()}")

    def said(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def kill(self, name: str) -> bool:
        process = self._running.pop(name, None)
        if process is None:
            return False
        process.kill()
        process.wait()
        self.lost = True
        return True


class Screen:
    """What the demo shows while it runs: a live page, or lines without a terminal."""

    def __init__(self, client: "Client", is_live: bool, began: float) -> None:
        self._client = client
        self._is_live = is_live
        self._began = began
        self._lines: list[str] = []
        self._history: deque[float] = deque(maxlen=120)
        self._before: Any = None
        self._live: Any = None

    def __enter__(self) -> "Screen":
        if self._is_live:
            from rich.live import Live

            self._live = Live(screen=True, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            for line in self._lines:
                click.echo(line)

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        self._lines.append(line)
        if self._is_live:
            self.draw()
        else:
            click.echo(line)

    def draw(self) -> None:
        if self._live is None:
            return
        from rich.console import Group
        from rich.text import Text

        from stoker.cli.queue_snapshot import rates_between, take_snapshot
        from stoker.cli.screen import page

        now = take_snapshot(self._client)
        rates = rates_between(self._before, now)
        if self._before is not None:
            self._history.append(rates.completed)
        self._before = now
        told = Text("\n".join(self._lines[-SHOWN:]), style="cyan")
        self._live.update(Group(page("stoker demo", now, rates, self._history), "", told), refresh=True)
