"""`stoker job`: inspect single jobs, and explain their state."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import columns, cut, hanging, now_ms, plain, state, when
from stoker.cli.listing import STATES, brief_cause, by_pages, show_job
from stoker.cli.parameters import (
    DURATION,
    Family,
    as_json,
    connected,
    echo_json,
    examples,
    look_at,
    queue_names,
    tell_if_new,
)
from stoker.model.wording import lasting

if TYPE_CHECKING:
    from stoker import Client
    from stoker.model.filters import JobFilter
    from stoker.model.replies import JobView, LogLine

WAIT_MS = 30_000
"""The wait of one request to the server; a longer wait is several of them."""
FOLLOW_MS = 500


@click.group(cls=Family)
def job() -> None:
    """Inspect single jobs, cancel them, or send them back to work."""


@job.command(epilog=examples("stoker job show 76", "stoker job show 76 --json"))
@click.argument("job_id", type=int)
@connected
@as_json
def show(job_id: int, url: str | None, tenant: str, is_json: bool) -> None:
    """Print everything about a job: options, times, payload, result, errors, attempts."""
    with look_at(url, tenant) as client:
        found = client.get_job(job_id)
    show_job(found, is_json)


@job.command(
    name="list",
    epilog=examples(
        "stoker job list --queue mail --state failed",
        "stoker job list --name welcome --since 1h --limit 100 --json",
    ),
)
@click.option("--queue", shell_complete=queue_names, help="Only jobs of this queue.")
@click.option("--state", "wanted", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--name", help="Only jobs with this name.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--group", help="Only jobs of this group.")
@click.option("--since", "since_ms", type=DURATION, help="Only jobs pushed within this period, for example 1h.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to list at most.")
@click.option("--after", type=int, help="Continue after this id, where the last list ended.")
@click.option("--oldest", is_flag=True, help="List the oldest first.")
@connected
@as_json
def list_(
    queue: str | None,
    wanted: Any,
    name: str | None,
    tag: str | None,
    group: str | None,
    since_ms: int | None,
    limit: int,
    after: int | None,
    oldest: bool,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> None:
    """List jobs, newest first."""
    from stoker.cli.payloads import job_value

    named = {} if name is None else {"name": name}
    since = None if since_ms is None else now_ms() - since_ms
    with look_at(url, tenant) as client:
        filters: dict[str, Any] = {"tag": tag, "group_id": group, "pushed_from": since, "ascending": oldest, **named}
        found = by_pages(
            lambda last, count: client.browse(queue, wanted, after=last, limit=count, **filters), limit, after
        )
        if is_json:
            echo_json([job_value(one) for one in found])
            return
        rows = [row_of(one) for one in found]
        if queue is not None and not rows:
            tell_if_new(client, queue)
    click.echo(columns(HEADS, rows, right=("ID", "ATTEMPTS")) if rows else "no such jobs")
    if len(rows) == limit:
        click.echo(f"and perhaps more: --after {rows[-1][0]}, or a higher --limit", err=True)


@job.command(
    epilog=examples(
        "stoker job search --text alice@example.com",
        "stoker job search --state failed --fingerprint 'KeyError: ...' --count",
    ),
)
@click.option("--queue", shell_complete=queue_names, help="Only jobs of this queue.")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--name", help="Only jobs with this name.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--group", "group_id", help="Only jobs of this group.")
@click.option("--parent", "parent_id", type=int, help="Only jobs that this job has pushed.")
@click.option("--worker", help="Only jobs that this worker has, or had last.")
@click.option("--priority", type=int, help="Only jobs with this priority.")
@click.option("--attempts", "attempts_from", type=click.IntRange(0), help="Only jobs delivered at least this often.")
@click.option("--reason", help="Only jobs that ended for this reason.")
@click.option("--fingerprint", help="Only jobs whose last error has this fingerprint.")
@click.option("--text", help="Only jobs with this text in payload, error or result.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to list at most.")
@click.option("--after", type=int, help="Continue after this id, where the last list ended.")
@click.option("--count", "counts", is_flag=True, help="Only count the jobs.")
@connected
@as_json
def search(
    limit: int, after: int | None, counts: bool, url: str | None, tenant: str, is_json: bool, **wanted: Any
) -> None:
    """Search for jobs by anything that is known of them, newest first."""
    from stoker.cli.payloads import job_value
    from stoker.model.filters import JobFilter
    from stoker.model.states import State

    if wanted["state"] is not None:
        wanted["state"] = State(wanted["state"])
    meant = JobFilter(**wanted)
    with look_at(url, tenant) as client:
        if counts:
            total = counted(client, meant)
            echo_json(total) if is_json else click.echo(total)
            return
        found = list(by_pages(lambda last, count: client.search(meant, after=last, limit=count), limit, after))
    if is_json:
        echo_json([job_value(one) for one in found])
        return
    rows = [row_of(one) for one in found]
    click.echo(columns(HEADS, rows, right=("ID", "ATTEMPTS")) if rows else "no such jobs")
    if len(rows) == limit:
        click.echo(f"and perhaps more: --after {rows[-1][0]}, or a higher --limit", err=True)


def counted(client: "Client", wanted: "JobFilter") -> int:
    """All steps of a count."""
    step = client.count_jobs(wanted)
    total = step.count
    while step.next_after is not None:
        step = client.count_jobs(wanted, step.next_after)
        total += step.count
    return total


HEADS = ("ID", "STATE", "QUEUE", "NAME", "ATTEMPTS", "PUSHED", "")


def row_of(view: "JobView") -> list[str]:
    limit = view.options.max_attempts
    return [
        str(view.id),
        state(view.state),
        view.queue,
        plain(view.options.name or "-"),
        f"{view.attempts}/{limit}" if limit else str(view.attempts),
        f"{lasting(now_ms() - view.pushed_at)} ago",
        cut(remark(view), 80),
    ]


def remark(view: "JobView") -> str:
    """The most useful fact about a job in its state."""
    if view.state == "delayed":
        cause = brief_cause(view)
        return f"due {when(view.due)}" + (f", after: {cause}" if cause else "")
    if view.state == "blocked":
        return f"waits for {', '.join(map(str, view.blocked_by[:5]))}{' ...' if len(view.blocked_by) > 5 else ''}"
    if view.state == "active":
        progress = f"{view.progress.percent} % {view.progress.message}".strip() if view.progress.percent else ""
        return plain(", ".join(word for word in (view.worker, progress) if word))
    if view.state == "completed":
        return f"in {lasting(view.finished_at - view.pushed_at)}"
    return ": ".join(word for word in (plain(view.reason), brief_cause(view)) if word)


@job.command(epilog=examples("stoker job retry 76 77"))
@click.argument("job_ids", type=int, nargs=-1, required=True)
@connected
@as_json
def retry(job_ids: Sequence[int], url: str | None, tenant: str, is_json: bool) -> int:
    """Send jobs back to work now: dead letters with a fresh count of attempts, delayed ones at once."""
    from stoker.model.errors import StokerError

    code = exit_codes.OK
    done = []
    with look_at(url, tenant) as client:
        for job_id in job_ids:
            try:
                was = retry_one(client, job_id)
            except StokerError as error:
                exit_codes.tell(error.message, error.code)
                code = exit_codes.exit_code_for(error)
                continue
            done.append({"id": job_id, "was": was})
            if not is_json:
                click.echo(f"{job_id} was {was}, and waits for a worker now")
    if is_json:
        echo_json(done)
    return code


def retry_one(client: "Client", job_id: int) -> str:
    from stoker.model.errors import BY_CODE, WrongState

    found = client.get_job(job_id)
    if found.state == "failed":
        refused = client.retry_dead(found.queue, [job_id]).refused
        if job_id in refused:
            kind = BY_CODE[refused[job_id]]
            raise kind(f"job {job_id} cannot go back to work: another job has its unique key or its custom id now")
    elif found.state == "delayed":
        client.promote(job_id)
    else:
        raise WrongState(f"job {job_id} is {found.state}: only dead letters and delayed jobs can be sent back to work")
    return str(found.state)


@job.command(epilog=examples("stoker job cancel 76"))
@click.argument("job_ids", type=int, nargs=-1, required=True)
@connected
@as_json
def cancel(job_ids: Sequence[int], url: str | None, tenant: str, is_json: bool) -> int:
    """Cancel jobs: those that have not started end at once, running ones are asked to stop and are not retried."""
    from stoker.model.errors import StokerError

    code = exit_codes.OK
    done = []
    with look_at(url, tenant) as client:
        for job_id in job_ids:
            try:
                found = client.cancel(job_id)
            except StokerError as error:
                exit_codes.tell(error.message, error.code)
                code = exit_codes.exit_code_for(error)
                continue
            done.append({"id": job_id, "state": found.state, "cancel_requested": found.cancel_requested})
            if is_json:
                continue
            if found.state == "active":
                click.echo(f"{job_id} runs on {plain(found.worker) or 'a worker'}, which is told to stop it")
            else:
                click.echo(f"{job_id} is {found.state}")
    if is_json:
        echo_json(done)
    return code


@job.command(epilog=examples("stoker job logs 76", "stoker job logs 76 --follow"))
@click.argument("job_id", type=int)
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the job has ended.")
@connected
@as_json
def logs(job_id: int, follow: bool, url: str | None, tenant: str, is_json: bool) -> None:
    """Print the lines that a job's handler has logged.

    With --follow and --json it prints one JSON document per line, one for each line of the log.
    """
    from stoker.cli.formatting import clock

    with look_at(url, tenant) as client:
        lines = log_lines(client, job_id, follow)
        if is_json and not follow:
            echo_json(list(lines))
            return
        for line in lines:
            if is_json:
                echo_json(line)
            else:
                click.echo(f"{clock(line.at)}  {line.level:<7}  {plain(line.message)}")


def log_lines(client: "Client", job_id: int, follow: bool) -> "Iterator[LogLine]":
    last: LogLine | None = None
    while True:
        over = not follow or client.wait_job(job_id, FOLLOW_MS).finished
        lines = list(client.get_logs(job_id))
        yield from lines[lines.index(last) + 1 if last in lines else 0 :]
        last = lines[-1] if lines else last
        if over:
            return


@job.command(epilog=examples("stoker job wait 76 --timeout 5m"))
@click.argument("job_id", type=int)
@click.option("--timeout", "timeout_ms", type=DURATION, help="Give up after this time. [default: never]")
@connected
@as_json
def wait(job_id: int, timeout_ms: int | None, url: str | None, tenant: str, is_json: bool) -> int:
    """Wait until a job has ended, and print its result.

    Exits with 0 if the job completed, with 1 if it ended in another way, with 6 if the time ran out first.
    """
    from stoker.cli.payloads import text_of, value_of

    until = None if timeout_ms is None else now_ms() + timeout_ms
    with look_at(url, tenant) as client:
        while True:
            left = WAIT_MS if until is None else max(0, until - now_ms())
            found = client.wait_job(job_id, min(left, WAIT_MS))
            if found.finished or (until is not None and now_ms() >= until):
                break
    result = None if found.result is None else value_of(found.result, found.result_codec)
    if is_json:
        import msgspec

        echo_json({**msgspec.structs.asdict(found), "result": result})
    elif not found.finished:
        click.echo(f"job {job_id} is still {found.state}", err=True)
    elif found.state == "completed":
        if found.result is not None:
            click.echo(text_of(found.result, found.result_codec))
    else:
        click.echo(f"job {job_id} {found.state}: {plain(found.error or found.reason)}", err=True)
    if not found.finished:
        return exit_codes.NOT_YET
    return exit_codes.OK if found.state == "completed" else exit_codes.FAILED


@job.command(epilog=examples("stoker job why 76"))
@click.argument("job_id", type=int)
@connected
@as_json
def why(job_id: int, url: str | None, tenant: str, is_json: bool) -> None:
    """Say why a job is not running, and what would help."""
    from stoker.cli.wait_reasons import reasons

    with look_at(url, tenant) as client:
        found = client.why(job_id)
        if is_json:
            echo_json(found)
            return
        lines = reasons(client, client.get_job(job_id), found)
    click.echo(f"job {job_id} is {state(found.state)}")
    for line in lines:
        click.echo(hanging("  ", line))


@job.command(epilog=examples("stoker job story 76"))
@click.argument("job_id", type=int)
@connected
@as_json
def story(job_id: int, url: str | None, tenant: str, is_json: bool) -> int:
    """Print everything that the log still has about a job, in order. The job itself may be forgotten."""
    from stoker.cli.job_page import tale

    with look_at(url, tenant) as client:
        found = client.story(job_id)
    if is_json:
        echo_json(found)
    elif found.events or found.notes:
        click.echo(tale(found))
    else:
        click.echo(f"the log has nothing about job {job_id} (any more)", err=True)
    return exit_codes.OK if found.events or found.notes else exit_codes.NOTHING
