"""`stoker queue`: inspect, pause, limit and empty queues."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import averages, columns, facts, now_ms, wait, when
from stoker.cli.listing import STATES, by_pages
from stoker.cli.parameters import (
    DURATION,
    Family,
    as_json,
    connected,
    destroying,
    echo_json,
    examples,
    is_new,
    look_at,
    open_client,
    queue_names,
    sure,
)
from stoker.model.wording import lasting, many, rate, size

if TYPE_CHECKING:
    from stoker import Client
    from stoker.cli.queue_snapshot import QueueFacts
    from stoker.model.replies import QueueView
    from stoker.model.states import State

CLEAN_AT_ONCE = 1_000

NAME = click.argument("name", shell_complete=queue_names)
NAMES = click.argument("names", nargs=-1, required=True, shell_complete=queue_names)


@click.group(cls=Family)
def queue() -> None:
    """Inspect, pause, limit and empty queues."""


# --- looking -----------------------------------------------------------------------------------------


@queue.command(name="list", epilog=examples("stoker queue list", "stoker queue list --json"))
@connected
@as_json
def list_(url: str | None, tenant: str, is_json: bool) -> None:
    """List all queues: jobs by state, and what holds them back."""
    from stoker.cli.queue_snapshot import QueueFacts, policy_of

    with look_at(url, tenant) as client:
        found = [QueueFacts(name, client.get_stats(name), policy_of(client, name)) for name in client.list_queues()]
    if is_json:
        echo_json([as_value(one) for one in found])
    elif found:
        heads = ("QUEUE", "WAITING", "DELAYED", "BLOCKED", "ACTIVE", "COMPLETED", "DEAD", "LAST MIN", "HELD BACK")
        click.echo(columns(heads, [row_of(one) for one in found], right=heads[1:8]))
    else:
        click.echo("no queues yet")


def row_of(one: "QueueFacts") -> list[str]:
    from stoker.cli.queue_snapshot import hold_of

    counts = one.stats.counts
    numbers = (counts.waiting, counts.delayed, counts.blocked, counts.active, one.stats.totals.completed, counts.failed)
    cells = [f"{number:,}" if number else "." for number in (*numbers, one.stats.completed_last_minute)]
    if counts.failed:
        cells[5] = click.style(cells[5], fg="red")
    return [one.name, *cells, click.style(hold_of(one), fg="yellow")]


def as_value(one: "QueueFacts") -> dict[str, Any]:
    return {"name": one.name, "stats": one.stats, "policy": one.policy}


@queue.command(epilog=examples("stoker queue show mail"))
@NAME
@connected
@as_json
def show(name: str, url: str | None, tenant: str, is_json: bool) -> None:
    """Show one queue: its jobs, its policy, its oldest job and its dead letters."""
    from stoker.cli.queue_snapshot import QueueFacts, oldest_waiting, workers_of

    with look_at(url, tenant) as client:
        one = QueueFacts(name, client.get_stats(name), client.get_queue(name))
        dead = client.get_dead_stats(name)
        priorities = client.get_priorities(name)
        oldest = oldest_waiting(client, name)
        workers = [worker.id for worker in workers_of(client) if name in worker.queues]
    if is_json:
        since = oldest.pushed_at if oldest else None
        told = {"waiting_by_priority": priorities, "dead_letters": dead, "oldest_waiting_since": since}
        echo_json({**as_value(one), **told, "workers": workers})
        return
    counts, totals = one.stats.counts, one.stats.totals
    assert one.policy is not None
    click.echo(f"queue {click.style(name, bold=True)}")
    live = {"waiting": counts.waiting, "delayed": counts.delayed, "blocked": counts.blocked, "active": counts.active}
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in dead.by_reason.items())
    click.echo(
        facts(
            [
                ("jobs", ", ".join(f"{number:,} {state}" for state, number in live.items())),
                ("by priority", by_priority(priorities)),
                ("payloads", size(one.stats.payload_bytes)),
                ("oldest", f"job {oldest.id}, pushed {when(oldest.pushed_at)}" if oldest else ""),
                ("completed", f"{totals.completed:,}, {rate(one.stats.completed_last_minute / 60)} in the last minute"),
                ("on average", averages(totals.completed, totals.wait_ms_sum, totals.run_ms_sum)),
                ("tried again", f"{totals.retried:,}"),
                ("dead letters", f"{dead.total:,}" + (f": {reasons}" if reasons else "")),
                ("oldest of them", when(dead.oldest_at) if dead.oldest_at else ""),
                ("workers", ", ".join(workers) or "none is registered"),
                *policy_facts(one.policy),
            ]
        )
    )


def by_priority(waiting: Mapping[int, int]) -> str:
    """Waiting jobs by priority; empty if all have the default priority."""
    if not waiting.keys() - {0}:
        return ""
    return ", ".join(f"{number:,} with {priority}" for priority, number in waiting.items()) + " (waiting)"


def policy_facts(policy: "QueueView") -> list[tuple[str, str]]:
    from stoker.model.wording import limit_text

    limit = policy.rate_limit
    burst = f", {limit.burst:,} at once" if limit is not None and limit.burst else ""
    letters = policy.dead_letters
    again = f", tried again every {lasting(letters.auto_retry_interval_ms)}" if letters.auto_retry else ""
    return [
        ("paused", "yes" if policy.paused else "no"),
        ("rate limit", limit_text(limit.count, limit.per_ms) + burst if limit is not None else "none"),
        ("concurrency", f"at most {policy.concurrency:,} active" if policy.concurrency else "without limit"),
        ("group on retry", policy.group_on_retry),
        ("keeps", f"{letters.entries_max:,} dead letters for {lasting(letters.age_ms_max)}{again}"),
    ]


def wanted_state(name: str) -> "State":
    from stoker.model.states import State

    return State(name)


# --- holding back ------------------------------------------------------------------------------------


@queue.command(epilog=examples("stoker queue pause mail"))
@NAMES
@connected
@as_json
def pause(names: Sequence[str], url: str | None, tenant: str, is_json: bool) -> None:
    """Give out no more jobs of these queues. Running jobs continue, and pushes are accepted."""
    hold(names, url, tenant, is_json, paused=True)


@queue.command(epilog=examples("stoker queue resume mail"))
@NAMES
@connected
@as_json
def resume(names: Sequence[str], url: str | None, tenant: str, is_json: bool) -> None:
    """Give out jobs of these queues again."""
    hold(names, url, tenant, is_json, paused=False)


def hold(names: Sequence[str], url: str | None, tenant: str, is_json: bool, *, paused: bool) -> None:
    """Pause queues, or resume them."""
    done = []
    with open_client(url, tenant) as client:
        for name in names:
            new = "; the queue is new" if is_new(client, name) else ""
            (client.pause if paused else client.resume)(name)
            waiting = client.get_stats(name).counts.waiting
            done.append({"name": name, "paused": paused, "waiting": waiting})
            if not is_json:
                click.echo(f"{name} {'is paused' if paused else 'goes on'}, {wait(waiting)}{new}")
    if is_json:
        echo_json(done)


@queue.command(
    epilog=examples("stoker queue limit mail --rate 100/s --concurrency 20", "stoker queue limit mail --rate off")
)
@NAME
@click.option("--rate", "rate_text", metavar="N/UNIT|off", help="Deliveries per period: 100/s, 5000/h, 10/30s.")
@click.option(
    "--burst", type=click.IntRange(1), help="How many unused deliveries may be saved up. [default: the rate's count]"
)
@click.option("--concurrency", metavar="N|off", help="How many jobs may be active at once.")
@connected
@as_json
def limit(
    name: str,
    rate_text: str | None,
    burst: int | None,
    concurrency: str | None,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> None:
    """Limit the rate or the number of active jobs of a queue, for all of its workers together."""
    if rate_text is None and concurrency is None:
        raise click.UsageError("no limit given: say --rate 100/s or --concurrency 20; off lifts one")
    if burst is not None and rate_text in (None, "off"):
        raise click.UsageError("--burst needs --rate: --rate 100/s --burst 500")
    pace = None if rate_text is None else parse_rate(rate_text)
    slots = None if concurrency is None else parse_slots(concurrency)
    with open_client(url, tenant) as client:
        if pace is not None:
            count, per_ms = pace
            if count:
                client.set_rate_limit(name, count, per_ms, burst or 0)
            else:
                client.clear_rate_limit(name)
        if slots is not None:
            client.set_concurrency(name, slots)
        policy = client.get_queue(name)
    if is_json:
        echo_json(policy)
    else:
        click.echo(facts(policy_facts(policy)[:3], indent=""))


def parse_rate(text: str) -> tuple[int, int]:
    """`100/s` is 100 in 1,000 ms; `off` is 0."""
    from stoker.model.units import parse_duration_ms

    if text == "off":
        return 0, 0
    count, _, unit = text.partition("/")
    try:
        number = int(count.replace("_", "").replace(",", ""))
        per_ms = round(parse_duration_ms(unit if unit[:1].isdigit() else f"1{unit}"))
        if number < 1 or per_ms < 1:
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected 100/s, 5000/h, 10/30s or off", param_hint="--rate") from None
    return number, per_ms


def parse_slots(text: str) -> int:
    if text == "off":
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r}: expected a number of jobs or off", param_hint="--concurrency")
    return int(text)


# --- emptying ----------------------------------------------------------------------------------------


@queue.command(epilog=examples("stoker queue drain mail --dry-run", "stoker queue drain mail --delayed --yes"))
@NAME
@click.option("--delayed", is_flag=True, help="Also cancel delayed jobs.")
@destroying
@connected
@as_json
def drain(name: str, delayed: bool, dry_run: bool, yes: bool, url: str | None, tenant: str, is_json: bool) -> int:
    """Cancel every waiting job of a queue. Running jobs continue."""
    with look_at(url, tenant) as client:
        client.get_queue(name)  # fails if the queue does not exist
        counts = client.get_stats(name).counts
        hit = counts.waiting + (counts.delayed if delayed else 0)
        words = "waiting and delayed" if delayed else "waiting"
        if not sure(f"cancel {many(hit, f'{words} job')} of {name}", dry_run=dry_run, yes=yes):
            return exit_codes.OK
        done = client.drain(name, delayed=delayed)
    print_result(is_json, f"cancelled {many(done, 'job')} of {name}", name=name, count=done)
    return exit_codes.OK


@queue.command(epilog=examples("stoker queue clean mail --state completed --older 1h --yes"))
@NAME
@click.option(
    "--state",
    type=click.Choice(STATES[:3] + STATES[4:]),
    default="completed",
    show_default=True,
    help="Remove jobs in this state.",
)
@click.option(
    "--older",
    "age_ms",
    type=DURATION,
    default=0,
    help="Only jobs that ended, or were pushed, at least this long ago, for example 1h.",
)
@click.option("--limit", type=click.IntRange(1), help="How many at most, oldest first. [default: all]")
@destroying
@connected
@as_json
def clean(
    name: str,
    state: str,
    age_ms: int,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> int:
    """Remove the jobs of a queue that are in one state, for good."""
    from stoker.cli.progress import counting

    wanted = wanted_state(state)
    with look_at(url, tenant) as client:
        client.get_queue(name)
        hit = sum(1 for _ in jobs_to_clean(client, name, wanted, age_ms, limit))
        if not sure(f"remove {many(hit, f'{state} job')} of {name}", dry_run=dry_run, yes=yes):
            return exit_codes.OK
        done = 0
        with counting("removing", hit) as moved:
            while (left := CLEAN_AT_ONCE if limit is None else min(limit - done, CLEAN_AT_ONCE)) > 0:
                gone = len(client.clean(name, wanted, age_ms, left))
                done += gone
                moved(done)
                if gone < left:
                    break
    print_result(is_json, f"removed {many(done, f'{state} job')} of {name}", name=name, count=done)
    return exit_codes.OK


def jobs_to_clean(client: "Client", name: str, wanted: "State", age_ms: int, limit: int | None) -> Iterator[int]:
    """The jobs that a clean would remove, at most `limit`; the command itself has no dry run."""
    before = now_ms() - age_ms
    jobs = by_pages(lambda last, count: client.browse(name, wanted, after=last, limit=count, ascending=True))
    return islice((job.id for job in jobs if (job.finished_at or job.pushed_at) <= before), limit)


@queue.command(epilog=examples("stoker queue obliterate old --dry-run", "stoker queue obliterate old --yes"))
@NAME
@click.option(
    "--force", is_flag=True, help="Remove the queue even if jobs are running; their workers' reports are then refused."
)
@destroying
@connected
@as_json
def obliterate(name: str, force: bool, dry_run: bool, yes: bool, url: str | None, tenant: str, is_json: bool) -> int:
    """Remove a queue with everything in it: jobs, dead letters, results, limits."""
    with look_at(url, tenant) as client:
        client.get_queue(name)
        counts = client.get_stats(name).counts
        live = counts.waiting + counts.delayed + counts.blocked + counts.active
        words = f"{many(live, 'live job')}, {many(counts.failed, 'dead letter')}, {many(counts.completed, 'result')}"
        if not sure(f"remove the queue {name} with {words}", dry_run=dry_run, yes=yes):
            return exit_codes.OK
        done = client.obliterate(name, force=force)
    print_result(is_json, f"removed {name} with {many(done, 'job')}", name=name, count=done)
    return exit_codes.OK


def print_result(is_json: bool, text: str, **fields: Any) -> None:
    if is_json:
        echo_json(fields)
    else:
        click.echo(text)
