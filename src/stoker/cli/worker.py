"""`stoker worker`: run the jobs of an app."""

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import columns
from stoker.cli.parameters import DURATION, examples, is_embedded, logged
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker.app.app import App

log = logging.getLogger("stoker.worker")


@click.command(
    epilog=examples(
        "stoker worker shop.jobs:app",
        "stoker worker shop.jobs:app --queue mail --queue bulk=4 --concurrency 100",
        "stoker worker shop.jobs:app --health 0.0.0.0:8080 --drain 25s --log-format json",
    ),
)
@click.argument("target", metavar="MODULE:APP")
@click.option("--url", help="The queue, instead of the app's own. [default: the app's URL, or STOKER_URL]")
@click.option("--tenant", help="Act for this tenant, instead of the app's own.")
@click.option("--token", envvar="STOKER_TOKEN", show_envvar=True, help="An API token or a JWT for the server.")
@click.option(
    "--queue",
    "pairs",
    metavar="NAME[=N]",
    multiple=True,
    help="Serve only this queue, with at most N of its jobs at once. May be repeated. [default: all queues of the"
    " app's jobs]",
)
@click.option(
    "--weight",
    "weights",
    metavar="NAME=W",
    multiple=True,
    help="Give this queue W times as many turns as others. May be repeated.",
)
@click.option(
    "--job", "jobs", multiple=True, help="Run only jobs with this name. May be repeated. [default: all of them]"
)
@click.option(
    "--concurrency", type=click.IntRange(1), help="How many jobs of each kind run at once. [default: 100 coroutines]"
)
@click.option("--threads", type=click.IntRange(1), help="How many plain functions run at once. [default: by the cores]")
@click.option(
    "--processes", type=click.IntRange(1), help='How many processes for jobs with kind="process". [default: the cores]'
)
@click.option("--name", help="The worker's name in lists and logs. [default: host, process id and a few letters]")
@click.option("--health", metavar="[HOST:]PORT", help="Serve /health and /ready at this address. [default: off]")
@click.option(
    "--drain",
    "drain_ms",
    type=DURATION,
    default="25s",
    show_default=True,
    help="How long running jobs may take to finish after a signal to stop.",
)
@click.option("--recycle-jobs", type=click.IntRange(1), help="Replace a process after this many jobs.")
@click.option(
    "--recycle-memory", metavar="SIZE", help="Replace a process that uses more memory than this, for example 512MiB."
)
@click.option("--burst", is_flag=True, help="Exit when no job is ready any more.")
@click.option("--no-schedules", is_flag=True, help="Do not register the app's schedules with the queue.")
@click.option("--check", is_flag=True, help="Check jobs, schedules and settings, print the jobs, and exit.")
@click.option("--log-jobs", is_flag=True, help="Log a line for each job that ends, at level info.")
@logged
def worker(
    target: str,
    url: str | None,
    tenant: str | None,
    token: str | None,
    jobs: Sequence[str],
    burst: bool,
    no_schedules: bool,
    check: bool,
    log_level: Any,
    log_format: Any,
    **flags: Any,
) -> int:
    """Run the jobs of MODULE:APP until a signal stops it.

    On SIGTERM or SIGINT, running jobs may end within --drain; jobs that have not started are handed back, which costs
    no attempt. A second signal hands back running jobs, too. Exits with 0 if every started job was finished, else
    with 7.

    --check finds mistakes that would keep the worker from starting: imports, arguments, options, limits, queues,
    schedules with their cron expressions and time zones. It needs no queue and runs no job. It prints a line for each
    problem and exits with 1 if there is one.
    """
    from stoker import logs
    from stoker.app.loading import load_app
    from stoker.worker.log_fields import JobFields

    if token is not None:
        os.environ["STOKER_TOKEN"] = token  # the client reads it there, in child processes, too
    if check:
        return checked(target, tenant, jobs, {"schedules": not no_schedules, **settings_from(flags)})
    app = load_app(target)
    if url is not None:
        app.url = url
    if tenant is not None:
        app.tenant = tenant
    logs.set_up(log_format, log_level, JobFields())
    warn_if_unreachable(app.url)
    with app:
        made = app.worker(jobs=jobs or None, schedules=not no_schedules, **settings_from(flags))
        if burst:
            done = made.run_until_idle()
            click.echo(f"no job is ready any more; settled {many(done, 'delivery', 'deliveries')}", err=True)
            return exit_codes.OK
        log.info(
            "%s: %s of %s, on %s",
            made.id,
            many(len(made.handlers), "job type"),
            target,
            ", ".join(made.queues),
        )
        return made.run()


def checked(target: str, tenant: str | None, jobs: Sequence[str], settings: dict[str, Any]) -> int:
    """Print everything that is wrong, or the app's jobs."""
    from stoker.app.checking import problems
    from stoker.app.loading import load_app
    from stoker.model.errors import StokerError

    try:
        app = load_app(target)
        app.tenant = tenant or app.tenant
        found = problems(app, jobs or None, **settings)
    except StokerError as error:
        exit_codes.tell_error(error)
        return exit_codes.FAILED
    for problem in found:
        exit_codes.tell(problem.text, problem.code)
    if found:
        return exit_codes.FAILED
    click.echo(described(app))
    return exit_codes.OK


def warn_if_unreachable(url: str | None) -> None:
    """Warn at once if the server does not answer: the URL may be mistyped, and the worker itself never gives up."""
    from stoker.brokers.connect import open_broker, settings_for
    from stoker.client.sync import Client
    from stoker.model.errors import Refused, Unavailable

    url = url or os.environ.get("STOKER_URL")
    if url is None or is_embedded(url):
        return
    try:
        with Client(open_broker(url, settings_for(url, 0))) as client:
            client.list_queues()
    except Unavailable as error:
        log.warning("%s; trying again until the server answers", error.message)
    except Refused:
        pass  # the server answered; whether this worker may work shows when it pulls


def settings_from(flags: dict[str, Any]) -> dict[str, Any]:
    """The worker's settings from the command line."""
    settings = {
        "queues": queues_from(flags["pairs"], flags["weights"]),
        "concurrency": flags["concurrency"],
        "threads": flags["threads"],
        "processes": flags["processes"],
        "id": flags["name"],
        "health": None if flags["health"] is None else address_of(flags["health"]),
        "drain": f"{flags['drain_ms']}ms",
        "recycling": recycling_from(flags["recycle_jobs"], flags["recycle_memory"]),
        "log_jobs": flags["log_jobs"] or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def queues_from(pairs: Sequence[str], weights: Sequence[str]) -> dict[str, Any] | None:
    from stoker.worker.queues import QueueSettings

    said = {name: number_of(number, "--queue") for name, number in map(split, pairs)}
    weight_of = {name: number_of(number, "--weight") for name, number in map(split, weights)}
    strange = [name for name in weight_of if name not in said]
    if strange:
        raise click.UsageError(f"--weight {strange[0]}: name the queue, too: --queue {strange[0]}")
    return {
        name: QueueSettings(weight=weight_of.get(name) or 1, concurrency=limit) for name, limit in said.items()
    } or None


def split(pair: str) -> tuple[str, str]:
    name, _, number = pair.partition("=")
    return name, number


def number_of(text: str, flag: str) -> int | None:
    if not text and flag == "--queue":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r}: expected NAME=NUMBER", param_hint=flag)
    return int(text)


def address_of(text: str) -> tuple[str, int]:
    """`8080` listens on this machine only, `0.0.0.0:8080` on all interfaces."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r}: expected PORT or HOST:PORT", param_hint="--health")
    return host.strip("[]") or "127.0.0.1", int(port)


def recycling_from(jobs: int | None, memory: str | None) -> Any:
    if jobs is None and memory is None:
        return None
    from stoker.model.units import parse_bytes
    from stoker.worker.recycling import Recycling

    try:
        size = 0 if memory is None else round(parse_bytes(memory))
    except ValueError as error:
        raise click.BadParameter(f"{memory!r}: {error}", param_hint="--recycle-memory") from None
    return Recycling(jobs or 0, size)


def described(app: "App") -> str:
    """The app's jobs, for people."""
    rows = [
        [
            one.name,
            one.queue,
            f"{one.kind}, {one.batch.size} at once" if one.batch is not None else one.kind,
            str(one.options.max_attempts or "without limit"),
            ", ".join(one.aliases) or "-",
            one.origin,
        ]
        for one in app.handlers()
    ]
    return columns(("JOB", "QUEUE", "RUNS AS", "ATTEMPTS", "ALIASES", "FUNCTION"), rows)
