"""`stoker stats`: counts jobs by state, shows totals, and lists workers."""

from typing import TYPE_CHECKING

import click

from stoker.cli.formatting import averages, away, columns, facts, now_ms, plain, state
from stoker.cli.parameters import as_json, connected, echo_json, examples, look_at, queue_names
from stoker.model.wording import lasting, rate, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.model.replies import Stats
    from stoker.model.workers import WorkerView


@click.command(epilog=examples("stoker stats", "stoker stats --queue mail --json"))
@click.option("--queue", shell_complete=queue_names, help="Only this queue. [default: all queues]")
@connected
@as_json
def stats(queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """Count jobs by state, show totals since the beginning, and list workers."""
    import msgspec

    from stoker.cli.queue_snapshot import workers_of

    with look_at(url, tenant) as client:
        found = client.get_stats(queue)
        workers = [one for one in workers_of(client) if queue is None or queue in one.queues]
    if is_json:
        echo_json({**msgspec.structs.asdict(found), "workers": workers})
        return
    click.echo("\n".join(pages(found, workers)))


def pages(found: "Stats", workers: "Sequence[WorkerView]") -> list[str]:
    import msgspec

    totals = msgspec.structs.asdict(found.totals)
    average = averages(found.totals.completed, totals.pop("wait_ms_sum"), totals.pop("run_ms_sum"))
    counts = msgspec.structs.asdict(found.counts).items()
    lines = ["jobs", *(f"  {state(f'{name:<12}')} {number:>14,}" for name, number in counts)]
    lines += [
        "since the beginning",
        *(f"  {name.replace('_', ' '):<12} {number:>14,}" for name, number in totals.items()),
    ]
    lines.append(
        facts(
            [
                (
                    "completed in the last minute",
                    f"{found.completed_last_minute:,} ({rate(found.completed_last_minute / 60)})",
                ),
                ("a completed job on average", average),
                ("payloads of live jobs", size(found.payload_bytes)),
            ],
            indent="",
        )
    )
    return [*lines, "", worker_table(workers)] if workers else lines


def worker_table(workers: "Sequence[WorkerView]") -> str:
    rows = [
        [
            plain(one.id),
            plain(", ".join(one.queues)),
            f"{one.running:,}/{one.slots:,}",
            f"{one.succeeded:,}",
            f"{one.failed:,}",
            lasting(now_ms() - one.started_at) if one.started_at else "-",
            "stopping" if one.stopping else (f"polled {away(one.polled_at)}" if one.polled_at else "starting"),
        ]
        for one in workers
    ]
    heads = ("WORKER", "QUEUES", "BUSY", "DONE", "FAILED", "UP", "")
    return columns(heads, rows, right=("BUSY", "DONE", "FAILED", "UP"))
