"""`stoker stats`: how many jobs are where, and what has happened so far."""

import click

from stoker.cli.kinds import as_json, connected, echo_json, open_client


@click.command()
@click.option("--queue", help="Of this queue alone. [default: of all]")
@connected
@as_json
def stats(queue: str | None, url: str | None, tenant: str, is_json: bool) -> None:
    """Count jobs by state, and tell what has happened since the beginning."""
    with open_client(url, tenant) as client:
        found = client.get_stats(queue)
    if is_json:
        echo_json(found)
        return
    import msgspec

    sections = {"jobs": found.counts, "since the beginning": found.totals}
    for title, section in sections.items():
        click.echo(title)
        for name, number in msgspec.structs.asdict(section).items():
            click.echo(f"  {name:<12} {number:>12,}")
    click.echo(f"completed in the last minute: {found.completed_last_minute:,}")
