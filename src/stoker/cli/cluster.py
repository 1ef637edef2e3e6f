"""`stoker cluster`: make a cluster in PostgreSQL, look at it, upgrade it."""

from typing import TYPE_CHECKING

import click

from stoker.cli.formatting import away, columns
from stoker.cli.parameters import Family, as_json, echo_json, examples
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker.server.cluster import ClusterStatus

DATABASE = click.argument("database", metavar="URL", envvar="STOKER_CLUSTER__URL")


@click.group(cls=Family)
def cluster() -> None:
    """Make a cluster in PostgreSQL, look at it, upgrade it.

    URL is postgresql://USER@HOST/DATABASE. The tables lie in the schema `stoker`; ?schema=NAME names another one.
    """


@cluster.command(epilog=examples("stoker cluster init postgresql://stoker@db/stoker"))
@DATABASE
@click.option("--shards", type=int, default=16, show_default=True, help="How many shards the queue has.")
@click.option(
    "--seats", type=int, default=4, show_default=True, help="How many processes can share them: at most as many nodes."
)
@as_json
def init(database: str, shards: int, seats: int, is_json: bool) -> None:
    """Make the tables of a new cluster. The numbers of shards and seats stay as they are for ever."""
    from stoker.server.cluster import install

    made = install(database, shards, seats)
    if is_json:
        echo_json({"shards": made.shards, "seats": made.seats, "format": made.format})
        return
    click.echo(f"a cluster with {many(made.shards, 'shard')} and {many(made.seats, 'seat')} is ready")
    click.echo("start a node: stoker serve --cluster URL")


@cluster.command(epilog=examples("stoker cluster status postgresql://stoker@db/stoker"))
@DATABASE
@as_json
def status(database: str, is_json: bool) -> int:
    """Show the nodes and their seats. Exits with 1 if a seat is held by no node."""
    from stoker.server.cluster import status_of

    found = status_of(database)
    if is_json:
        echo_json(found)
    else:
        show(found)
    return 1 if found.unserved else 0


def show(found: "ClusterStatus") -> None:
    rows = [
        (
            row.node,
            row.address,
            ", ".join(map(str, found.seats_of(row.node))) or "-",
            away(row.seen_at),
            ("alive" if row.is_alive else "silent") + (", leader" if row.node == found.leader else ""),
        )
        for row in found.nodes
    ]
    click.echo(columns(("NODE", "ADDRESS", "SEATS", "SEEN", "STATE"), rows))
    if found.unserved:
        click.echo(f"held by no node: {many(len(found.unserved), 'seat')} ({', '.join(map(str, found.unserved))})")


@cluster.command(epilog=examples("stoker cluster upgrade postgresql://stoker@db/stoker"))
@DATABASE
@as_json
def upgrade(database: str, is_json: bool) -> None:
    """Bring the tables to the format of this release. Stop all nodes first."""
    from stoker.server.cluster import upgrade as upgraded

    found = upgraded(database)
    if is_json:
        echo_json({"format": found.format})
    else:
        click.echo(f"the cluster has format {found.format}")
