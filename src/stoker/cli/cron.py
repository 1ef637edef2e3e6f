"""`stoker cron`: make, inspect, pause, run and delete schedules."""

import sys
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.formatting import NONE, away, columns, facts, now_ms
from stoker.cli.parameters import (
    DURATION,
    Family,
    as_json,
    connected,
    destroying,
    echo_json,
    examples,
    look_at,
    open_client,
    queue_names,
    sure,
)
from stoker.model.wording import lasting, many

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stoker import Client
    from stoker.model.schedules import Schedule, ScheduleRun, ScheduleView

PAGE = 100
COLOURS = {"pushed": "green", "skipped": "yellow", "duplicate": "yellow", "missed": "red", "refused": "red"}


def schedule_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Shell completion: schedule names with this prefix. Errors give none."""
    from click.shell_completion import CompletionItem

    try:
        with look_at(ctx.params.get("url"), ctx.params.get("tenant") or "default") as client:
            names = {view.name for view in client.list_schedules(limit=1_000).schedules}
    except Exception:
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


NAME = click.argument("name", shell_complete=schedule_names)
QUEUE = click.option(
    "--queue", shell_complete=queue_names, help="The schedule's queue, if several queues have a schedule of this name."
)


@click.group(cls=Family)
def cron() -> None:
    """Push jobs on a schedule: make, list, pause, run and delete schedules."""


# --- making ------------------------------------------------------------------------------------------


@cron.command(
    epilog=examples(
        "stoker cron add digest mail '{\"kind\": \"digest\"}' --cron '0 8 * * MON-FRI' --zone Europe/Vienna",
        "stoker cron add pulse probes --every 30s --overlap skip --jitter 5s",
        "stoker cron add launch mail '{}' --at 2027-01-01T09:00 --zone America/New_York",
    )
)
@click.argument("name")
@click.argument("queue", shell_complete=queue_names)
@click.argument("data", required=False)
@click.option(
    "--cron", "expression", help="A cron expression: five fields, six with seconds first, or @daily and the like."
)
@click.option("--every", "every_ms", type=DURATION, default=0, help="An interval: 30s, 5m, 1h30m.")
@click.option("--at", help="Once, at this time, in the zone or with an offset: 2027-01-01T09:00.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone, for example Europe/Vienna.")
@click.option("--start", help="No run before this time.")
@click.option("--end", help="Only runs before this time.")
@click.option("--limit", "runs_max", type=int, default=0, help="Stop after this many jobs; 0 is without limit.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "queue"]),
    default="allow",
    show_default=True,
    help="While a job of an earlier run is live: push another, push nothing, or push one that waits for it.",
)
@click.option(
    "--skip-if-no-worker",
    is_flag=True,
    help="Skip a run when no worker of the queue is there, or was within the last 30 seconds.",
)
@click.option(
    "--misfire",
    type=click.Choice(["skip", "once", "all"]),
    default="once",
    show_default=True,
    help="After missed runs, push none of them, the latest, or all up to --misfires-max.",
)
@click.option(
    "--misfires-max",
    type=int,
    default=100,
    show_default=True,
    help="How many missed runs to push at most, with --misfire all.",
)
@click.option(
    "--grace", "grace_ms", type=DURATION, default=60_000, help="A run that is later than this is missed. [default: 1m]"
)
@click.option(
    "--jitter",
    "jitter_ms",
    type=DURATION,
    default=0,
    help="Delay each run by up to this time, a different one for each.",
)
@click.option("--raw", is_flag=True, help="Take the data as bytes; they need not be JSON.")
@click.option(
    "--template", is_flag=True, help="Replace {slot}, {slot_ms}, {schedule} and {run} in the texts of the data."
)
@click.option("--job", "job_name", help="The job's name, which selects the handler in a worker.")
@click.option("--priority", type=int, help="Higher numbers run first. [default: 0]")
@click.option("--max-attempts", type=int, help="How many attempts a job has; 0 is without limit.")
@click.option("--timeout", "timeout_ms", type=DURATION, help="Fail an attempt that runs longer than this.")
@click.option("--ttl", "ttl_ms", type=DURATION, help="Expire a job that has not started within this time.")
@click.option("--tag", "tags", multiple=True, help="A label to find its jobs by. May be repeated.")
@click.option(
    "-o",
    "--option",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other option of its jobs, with a JSON or text value: -o group_id=reports. May be repeated.",
)
@connected
@as_json
def add(
    name: str,
    queue: str,
    data: str | None,
    expression: str | None,
    at: str | None,
    zone: str,
    start: str | None,
    end: str | None,
    raw: bool,
    job_name: str | None,
    priority: int | None,
    max_attempts: int | None,
    timeout_ms: int | None,
    ttl_ms: int | None,
    tags: tuple[str, ...],
    pairs: tuple[str, ...],
    url: str | None,
    tenant: str,
    is_json: bool,
    **rule: Any,
) -> None:
    """Make the schedule NAME, which pushes DATA, a JSON text, to QUEUE; or change it if it exists.

    Exactly one of --cron, --every and --at is required. DATA may be - for standard input; without it, jobs carry null.
    """
    from stoker.cli.push_pull import check_json, options_from
    from stoker.model.schedules import Schedule

    payload = sys.stdin.buffer.read() if data == "-" else (data or ("" if raw else "null")).encode()
    if not raw:
        check_json(payload)
    named = {
        "name": job_name,
        "priority": priority,
        "max_attempts": max_attempts,
        "timeout_ms": timeout_ms,
        "ttl_ms": ttl_ms,
        "tags": tags,
    }
    times: dict[str, Any] = {
        "at": read_time(at, zone),
        "start_at": read_time(start, zone),
        "end_at": read_time(end, zone),
    }
    schedule = Schedule(
        cron=expression, zone=zone, payload=payload, options=options_from(named, pairs, raw), **times, **rule
    )
    with open_client(url, tenant) as client:
        view = client.put_schedule(queue, name, schedule)
    tell(view, is_json)


def read_time(text: str | None, zone: str) -> int | None:
    """A time as people write it, in the zone unless it has its own offset."""
    if text is None:
        return None
    from datetime import datetime
    from zoneinfo import ZoneInfo

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time: expected one like 2027-01-01T09:00 or 2027-01-01") from None
    if moment.tzinfo is None:
        try:
            moment = moment.replace(tzinfo=ZoneInfo(zone))
        except (KeyError, ValueError, OSError):
            raise click.BadParameter(f"{zone!r} is not a time zone: expected one like Europe/Vienna") from None
    return round(moment.timestamp() * 1_000)


# --- looking -----------------------------------------------------------------------------------------


@cron.command(name="list", epilog=examples("stoker cron list", "stoker cron list --queue mail --json"))
@click.option("--queue", shell_complete=queue_names, help="Only schedules of this queue.")
@connected
@as_json
def list_(queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """List schedules: their rules, queues and next runs."""
    found: list[ScheduleView] = []
    with look_at(url, tenant) as client:
        page = client.list_schedules(queue, limit=PAGE)
        found += page.schedules
        while page.next_after is not None:
            page = client.list_schedules(queue, after=page.next_after, limit=PAGE)
            found += page.schedules
    if is_json:
        echo_json([as_value(view) for view in found])
    elif found:
        heads = ("QUEUE", "NAME", "WHEN", "ZONE", "STATE", "RUNS", "NEXT")
        click.echo(columns(heads, [row_of(view) for view in found], right=("RUNS",)))
    else:
        click.echo("no schedules yet")


def row_of(view: "ScheduleView") -> list[str]:
    state = click.style(view.state, fg={"active": "green", "paused": "yellow"}.get(view.state, "bright_black"))
    following = (
        f"{clock_in(view.next_runs[0], view.schedule.zone)} ({away(view.next_runs[0])})" if view.next_runs else NONE
    )
    return [view.queue, view.name, rule_of(view.schedule), view.schedule.zone, state, f"{view.runs:,}", following]


@cron.command(epilog=examples("stoker cron show digest", "stoker cron show digest --json"))
@NAME
@QUEUE
@connected
@as_json
def show(name: str, queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """Show one schedule: its rule, its next five runs, and the outcome of the last twenty."""
    with look_at(url, tenant) as client:
        tell(client.get_schedule(queue_of(client, name, queue), name), is_json)


def tell(view: "ScheduleView", is_json: bool) -> None:
    if is_json:
        echo_json(as_value(view))
        return
    from stoker.cli.payloads import line_of

    schedule, zone = view.schedule, view.schedule.zone
    click.echo(f"schedule {click.style(view.name, bold=True)} of queue {click.style(view.queue, bold=True)}")
    click.echo(
        facts(
            [
                ("state", view.state),
                ("when", f"{rule_of(schedule)}, {zone}"),
                ("start", clock_in(schedule.start_at, zone) if schedule.start_at is not None else ""),
                ("end", clock_in(schedule.end_at, zone) if schedule.end_at is not None else ""),
                ("limit", many(schedule.runs_max, "run") if schedule.runs_max else ""),
                ("overlap", schedule.overlap),
                ("no worker", "the run is skipped" if schedule.skip_if_no_worker else ""),
                ("misfire", schedule.misfire),
                ("jitter", f"up to {lasting(schedule.jitter_ms)}" if schedule.jitter_ms else ""),
                ("job", schedule.options.name or ""),
                ("data", line_of(schedule.payload, schedule.options.codec)),
                ("runs", f"{view.runs:,}"),
            ]
        )
    )
    if view.next_runs:
        click.echo("next runs")
        for slot in view.next_runs:
            click.echo(f"  {clock_in(slot, zone)}  {away(slot)}")
    if view.last_runs:
        click.echo("last runs")
        for run in reversed(view.last_runs):
            click.echo(f"  {line_of_run(run, zone)}")


def line_of_run(run: "ScheduleRun", zone: str) -> str:
    text = f"{clock_in(run.slot, zone)}  {click.style(run.outcome, fg=COLOURS[run.outcome])}"
    if run.until and run.until != run.slot:
        text += f", and all up to {clock_in(run.until, zone)}"
    if run.job:
        text += f"  job {run.job}"
    if run.state is not None:
        text += f", {run.state}"
    if run.reason:
        text += f" ({run.reason})"
    return text + (" by hand" if run.manual else "")


def rule_of(schedule: "Schedule") -> str:
    if schedule.cron is not None:
        return schedule.cron
    if schedule.every_ms:
        return f"every {lasting(schedule.every_ms)}"
    return f"once at {clock_in(schedule.at or 0, schedule.zone)}"


def clock_in(ms: int, zone: str) -> str:
    """A time on the zone's clock; in UTC if the zone is not known here."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    try:
        found: Any = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        found = UTC
    return datetime.fromtimestamp(ms / 1_000, found).strftime("%Y-%m-%d %H:%M:%S")


def as_value(view: "ScheduleView") -> dict[str, Any]:
    """All fields for JSON, with the payload decoded."""
    import msgspec

    from stoker.cli.payloads import value_of

    schedule = msgspec.structs.asdict(view.schedule)
    schedule["payload"] = value_of(view.schedule.payload, view.schedule.options.codec)
    return {**msgspec.structs.asdict(view), "schedule": schedule}


def queue_of(client: "Client", name: str, queue: str | None) -> str:
    """The queue that has the schedule."""
    if queue is not None:
        return queue
    found = [view.queue for view in client.list_schedules(name=name).schedules]
    if len(found) > 1:
        raise click.UsageError(f"there are schedules {name!r} in {', '.join(found)}: say which one, with --queue")
    if not found:
        from stoker.model.errors import NotFound

        raise NotFound(f"there is no schedule {name!r}: `stoker cron list` lists them")
    return found[0]


# --- changing ----------------------------------------------------------------------------------------


@cron.command(epilog=examples("stoker cron pause digest"))
@NAME
@QUEUE
@connected
@as_json
def pause(name: str, queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """Pause a schedule: its runs pass without a job until it is resumed."""
    with look_at(url, tenant) as client:
        view = client.pause_schedule(queue_of(client, name, queue), name)
    echo_json(as_value(view)) if is_json else click.echo(f"{name} is {view.state}")


@cron.command(epilog=examples("stoker cron resume digest"))
@NAME
@QUEUE
@connected
@as_json
def resume(name: str, queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """Resume a schedule with its next run. Runs during the pause are not made up for."""
    with look_at(url, tenant) as client:
        view = client.resume_schedule(queue_of(client, name, queue), name)
    if is_json:
        echo_json(as_value(view))
        return
    following = f", next {clock_in(view.next_runs[0], view.schedule.zone)}" if view.next_runs else ""
    click.echo(f"{name} is {view.state}{following}")


@cron.command(epilog=examples("stoker cron run digest"))
@NAME
@QUEUE
@connected
@as_json
def run(name: str, queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """Push one of the schedule's jobs now, and print its id. The regular runs do not change."""
    with look_at(url, tenant) as client:
        reply = client.run_schedule(queue_of(client, name, queue), name)
    echo_json(reply) if is_json else click.echo(reply.id)


@cron.command(epilog=examples("stoker cron delete digest --yes"))
@NAME
@QUEUE
@destroying
@connected
@as_json
def delete(name: str, queue: str | None, dry_run: bool, yes: bool, url: str | None, tenant: str, is_json: bool) -> None:
    """Delete a schedule. Jobs that it has pushed stay."""
    with look_at(url, tenant) as client:
        found = queue_of(client, name, queue)
        view = client.get_schedule(found, name)
        if not sure(
            f"delete the schedule {name} of queue {found} ({rule_of(view.schedule)})", dry_run=dry_run, yes=yes
        ):
            return
        count = client.delete_schedule(found, name)
    echo_json({"deleted": count, "at": now_ms()}) if is_json else click.echo(f"deleted {name} of queue {found}")
