"""`stoker worker`: run the jobs of an app."""

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exits
from stoker.cli.kinds import DURATION, examples, is_embedded
from stoker.cli.layout import columns, many

if TYPE_CHECKING:
    from stoker.app.app import App

log = logging.getLogger("stoker.worker")

LEVELS = ("debug", "info", "warning", "error")


@click.command(
    epilog=examples(
        "stoker worker shop.jobs:app",
        "stoker worker shop.jobs:app --queue mail --queue bulk=4 --concurrency 100",
        "stoker worker shop.jobs:app --health 0.0.0.0:8080 --drain 25s --log-format json",
    ),
)
@click.argument("target", metavar="MODULE:APP")
@click.option("--url", help="The queue, in place of the app's own. [default: as the app says, or STOKER_URL]")
@click.option("--tenant", help="Act for this tenant, in place of the app's own.")
@click.option("--token", envvar="STOKER_TOKEN", show_envvar=True, help="What a server asks for: an API token or a JWT.")
@click.option(
    "--queue",
    "pairs",
    metavar="NAME[=N]",
    multiple=True,
    help="Only this queue, with at most N jobs of it at once. May be repeated. [default: all queues of the app's jobs]",
)
@click.option(
    "--weight", "weights", metavar="NAME=W", multiple=True, help="Give this queue W times the turns of others."
)
@click.option("--job", "jobs", multiple=True, help="Only jobs of this name. May be repeated. [default: all of them]")
@click.option("--concurrency", type=click.IntRange(1), help="So many at once, of each kind. [default: 100 coroutines]")
@click.option("--threads", type=click.IntRange(1), help="So many plain functions at once. [default: by the cores]")
@click.option("--processes", type=click.IntRange(1), help="So many processes for what wants one. [default: the cores]")
@click.option("--name", help="What it is called in lists and logs. [default: host, process id and a few letters]")
@click.option("--health", metavar="[HOST:]PORT", help="Answer /health and /ready there. [default: nowhere]")
@click.option(
    "--drain", "drain_ms", type=DURATION, default="25s", show_default=True, help="What runs may take so long to end."
)
@click.option("--recycle-jobs", type=click.IntRange(1), help="Replace a process after so many jobs.")
@click.option("--recycle-memory", metavar="SIZE", help="Replace a process that is larger than this: 512MiB.")
@click.option("--burst", is_flag=True, help="End when nothing is ready any more.")
@click.option("--no-schedules", is_flag=True, help="Do not tell the queue of the app's schedules.")
@click.option("--check", is_flag=True, help="Only load the app, print its jobs and end.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What to log.")
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True, help="How.")
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
    """Run the jobs of MODULE:APP until told to stop.

    SIGTERM and SIGINT let running jobs end within --drain; what was not begun goes back and costs no attempt. A second
    one hands back what runs, too. Exits with 0 if everything that was begun was finished, else with 7.
    """
    from stoker.app.loading import load_app
    from stoker.server import logs
    from stoker.server.config.tree import LogSettings

    if token is not None:
        os.environ["STOKER_TOKEN"] = token  # where the client looks, in child processes, too
    app = load_app(target)
    if url is not None:
        app.url = url
    if tenant is not None:
        app.tenant = tenant
    if check:
        click.echo(described(app))
        return exits.OK
    logs.set_up(LogSettings(format=log_format, level=log_level))
    warn_if_unreachable(app.url)
    with app:
        made = app.worker(jobs=jobs or None, schedules=not no_schedules, **settings_from(flags))
        if burst:
            done = made.run_until_idle()
            click.echo(f"nothing is ready any more; settled {many(done, 'delivery', 'deliveries')}", err=True)
            return exits.OK
        log.info(
            "%s: %s of %s, on %s",
            made.id,
            many(len(made.handlers), "job type"),
            target,
            ", ".join(made.queues),
        )
        return made.run()


def warn_if_unreachable(url: str | None) -> None:
    """The worker tries again for as long as it takes; somebody who mistyped a URL should not have to wait that long."""
    from stoker.brokers.connect import open_broker
    from stoker.brokers.remote.settings import RemoteSettings
    from stoker.client.sync import Client
    from stoker.model.errors import Refused, Unavailable

    url = url or os.environ.get("STOKER_URL")
    if url is None or is_embedded(url):
        return
    try:
        with Client(open_broker(url, RemoteSettings(retry_s=0))) as client:
            client.list_queues()
    except Unavailable as error:
        log.warning("%s; trying again until somebody does", error.message)
    except Refused:
        pass  # somebody answered; whether this worker may work is found out when it does


def settings_from(flags: dict[str, Any]) -> dict[str, Any]:
    """What the worker is told, from the options of the command line."""
    settings = {
        "queues": queues_from(flags["pairs"], flags["weights"]),
        "concurrency": flags["concurrency"],
        "threads": flags["threads"],
        "processes": flags["processes"],
        "id": flags["name"],
        "health": None if flags["health"] is None else address_of(flags["health"]),
        "drain": f"{flags['drain_ms']}ms",
        "recycling": recycling_from(flags["recycle_jobs"], flags["recycle_memory"]),
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
    """`8080` is for this machine alone, `0.0.0.0:8080` for everybody who can reach it."""
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
