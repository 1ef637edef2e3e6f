"""`stoker dlq`: list dead letters with their reasons, retry, remove or export them."""

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import away, columns, cut, now_ms, plain, when
from stoker.cli.listing import brief_cause, by_pages, show_job
from stoker.cli.parameters import (
    DURATION,
    Family,
    as_json,
    connected,
    destroying,
    echo_json,
    examples,
    look_at,
    queue_names,
    sure,
    tell_if_new,
)
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker import Client
    from stoker.model.replies import JobView

QUEUE = click.argument("queue", shell_complete=queue_names)
IDS = click.argument("job_ids", type=int, nargs=-1)
REASON = click.option(
    "--reason", help="Only dead letters with this reason: timeout, worker_lost, max_attempts_exceeded, ..."
)


@click.group(cls=Family)
def dlq() -> None:
    """Inspect dead letters, which are jobs that failed for good. Retry, remove or export them."""


@dlq.command(
    name="list", epilog=examples("stoker dlq list", "stoker dlq list mail --reason timeout --since 1h --limit 100")
)
@click.argument("queue", required=False, shell_complete=queue_names)
@REASON
@click.option("--since", "since_ms", type=DURATION, help="Only jobs that died within this period, for example 1h.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to list at most.")
@connected
@as_json
def list_(
    queue: str | None,
    reason: str | None,
    since_ms: int | None,
    tag: str | None,
    limit: int,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> None:
    """List the dead letters of QUEUE, oldest first; without QUEUE, count them by queue and reason."""
    from stoker.cli.payloads import job_value

    with look_at(url, tenant) as client:
        if queue is None:
            overview(client, is_json)
            return
        since = None if since_ms is None else now_ms() - since_ms
        found = letters(client, queue, limit, reason=reason, entered_from=since, tag=tag)
        if is_json:
            echo_json([job_value(job) for job in found])
        rows = [row_of(job) for job in found]
        total = client.get_dead_stats(queue).total
        if not total:
            tell_if_new(client, queue)
    if is_json:
        return
    heads = ("ID", "DIED", "NAME", "ATTEMPTS", "REASON", "ERROR")
    click.echo(columns(heads, rows, right=("ID", "ATTEMPTS")) if rows else "no dead letters")
    if len(rows) == limit < total:
        click.echo(f"{total:,} in all: a higher --limit shows more", err=True)


def overview(client: "Client", is_json: bool) -> None:
    found = {name: client.get_dead_stats(name) for name in client.list_queues()}
    found = {name: stats for name, stats in found.items() if stats.total}
    if is_json:
        echo_json([{"queue": name, "stats": stats} for name, stats in found.items()])
        return
    rows = [
        [
            name,
            f"{stats.total:,}",
            when(stats.oldest_at or 0),
            ", ".join(f"{r} {n:,}" for r, n in stats.by_reason.items()),
        ]
        for name, stats in found.items()
    ]
    click.echo(columns(("QUEUE", "DEAD", "OLDEST", "REASONS"), rows, right=("DEAD",)) if rows else "no dead letters")


def row_of(job: "JobView") -> list[str]:
    name = job.options.name
    return [
        str(job.id),
        away(job.finished_at),
        plain(name or "-"),
        str(job.attempts),
        click.style(job.reason, fg="red"),
        cut(brief_cause(job), 100),
    ]


def letters(client: "Client", queue: str, limit: int | None = None, **filters: Any) -> "Iterator[JobView]":
    return by_pages(lambda last, count: client.list_dead(queue, after=last, limit=count, **filters), limit)


@dlq.command(epilog=examples("stoker dlq show 76"))
@click.argument("job_id", type=int)
@connected
@as_json
def show(job_id: int, url: str | None, tenant: str, is_json: bool) -> None:
    """Print one dead letter: payload, reason, error, stack, every attempt."""
    from stoker.model.errors import WrongState

    with look_at(url, tenant) as client:
        found = client.get_job(job_id)
    if found.dead is None:
        raise WrongState(f"job {job_id} is {found.state}, not a dead letter: stoker job show {job_id}")
    show_job(found, is_json)


@dlq.command(epilog=examples("stoker dlq retry mail 76 77", "stoker dlq retry mail --reason timeout --dry-run"))
@QUEUE
@IDS
@REASON
@click.option("--limit", type=click.IntRange(1), help="How many at most, oldest first.")
@click.option("--dry-run", is_flag=True, help="Only say what would be affected.")
@connected
@as_json
def retry(
    queue: str,
    job_ids: Sequence[int],
    reason: str | None,
    limit: int | None,
    dry_run: bool,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> int:
    """Send dead letters back to work with a fresh count of attempts: the given ids, or all that match."""
    with look_at(url, tenant) as client:
        if dry_run:
            hit = chosen(client, queue, job_ids, reason, limit)
            sure(f"send {many(hit, 'dead letter')} of {queue} back to work", dry_run=True, yes=False)
            return exit_codes.OK
        done = client.retry_dead(queue, list(job_ids) or None, reason=reason, limit=limit)
        if not done.ids:
            tell_if_new(client, queue)
    if is_json:
        echo_json(done)
    else:
        click.echo(f"sent {many(len(done.ids), 'dead letter')} of {queue} back to work")
    for job_id, code in done.refused.items():
        why = "it is not a dead letter of this queue" if code == "not_found" else "another job has its key or id now"
        exit_codes.tell(f"job {job_id} was left: {why}", code)
    return exit_codes.REFUSED if done.refused else exit_codes.OK


@dlq.command(epilog=examples("stoker dlq purge mail --reason ttl_expired --dry-run", "stoker dlq purge mail 76 --yes"))
@QUEUE
@IDS
@REASON
@destroying
@connected
@as_json
def purge(
    queue: str,
    job_ids: Sequence[int],
    reason: str | None,
    dry_run: bool,
    yes: bool,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> int:
    """Remove dead letters for good: the given ids, or all that match. `stoker dlq export` keeps a copy."""
    with look_at(url, tenant) as client:
        hit = chosen(client, queue, job_ids, reason, None)
        if not sure(f"remove {many(hit, 'dead letter')} of {queue}", dry_run=dry_run, yes=yes):
            return exit_codes.OK
        done = client.purge_dead(queue, list(job_ids) or None, reason=reason)
    if is_json:
        echo_json({"queue": queue, "count": done})
    else:
        click.echo(f"removed {many(done, 'dead letter')} of {queue}")
    return exit_codes.OK if done or not job_ids else exit_codes.NOTHING


def chosen(client: "Client", queue: str, ids: Sequence[int], reason: str | None, limit: int | None) -> int:
    """How many dead letters match."""
    if not ids and reason is None:
        total = client.get_dead_stats(queue).total
    elif not ids:
        total = client.get_dead_stats(queue).by_reason.get(reason or "", 0)
    else:
        wanted = set(ids)
        total = sum(job.id in wanted for job in letters(client, queue, reason=reason))
    return total if limit is None else min(total, limit)


@dlq.command(epilog=examples("stoker dlq export mail --file dead.jsonl", "stoker dlq export mail --reason timeout"))
@QUEUE
@REASON
@click.option("--file", type=click.File("wb"), default="-", help="Write to this file. [default: standard output]")
@connected
def export(queue: str, reason: str | None, file: IO[bytes], url: str | None, tenant: str) -> int:
    """Write dead letters as JSON, one per line, with payloads, errors and attempts. They stay in the queue."""
    import msgspec

    from stoker.cli.payloads import job_value
    from stoker.cli.progress import counting

    number = 0
    with look_at(url, tenant) as client, counting("exporting", client.get_dead_stats(queue).total) as moved:
        for number, job in enumerate(letters(client, queue, reason=reason), 1):
            file.write(msgspec.json.encode(job_value(job)) + b"\n")
            moved(number)
    file.flush()
    if file.name != "<stdout>":
        click.echo(f"{many(number, 'dead letter')} of {queue} in {file.name}", err=True)
    return exit_codes.OK
