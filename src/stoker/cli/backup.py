"""`stoker backup` and `stoker restore`: back up a data directory, and restore it."""

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import clock, columns, when
from stoker.cli.parameters import as_json, directory_of, echo_json, examples
from stoker.model.wording import many, size

URL = click.option(
    "--url",
    envvar="STOKER_URL",
    show_envvar=True,
    help="The data directory: sqlite:///DIRECTORY. [default: sqlite:///stoker.db]",
)


@click.command(
    epilog=examples("stoker backup /var/backups/stoker", "stoker backup s3://bucket/prefix --json"),
)
@click.argument("place")
@URL
@as_json
def backup(place: str, url: str | None, is_json: bool) -> None:
    """Write a consistent backup of a data directory to PLACE, a directory or s3://bucket/prefix.

    An application, workers or a server may use the directory meanwhile: the process that owns it makes a snapshot and
    goes on, and this command writes the backup. Every file is stored with its checksum.
    """
    from stoker import maintenance
    from stoker.cli.parameters import look_at
    from stoker.cli.progress import moving

    with look_at(checked(url), "default") as client, moving("backing up") as moved:
        made = maintenance.backup(client, place, moved)
    if is_json:
        echo_json({"name": made.name, "size": made.size, "stored_size": made.stored_size, "files": len(made.files)})
    else:
        stored = f"{many(len(made.files), 'file')}, {size(made.size)} stored in {size(made.stored_size)}"
        click.echo(f"{made.name}  {stored}")


def checked(url: str | None) -> str | None:
    if url is not None and directory_of(url) is None:
        raise click.UsageError(
            "only a data directory can be backed up, on the machine that has it: --url sqlite:///DIRECTORY"
        )
    return url


@click.command(
    epilog=examples(
        "stoker restore /var/backups/stoker --list",
        "stoker restore s3://bucket/prefix restored.db",
        "stoker restore /var/backups/stoker restored.db --name stoker-20260131T120000.000Z-0123abcd",
    ),
)
@click.argument("place")
@click.argument("into", required=False)
@click.option("--name", help="The name of the backup. [default: the latest]")
@click.option("--list", "is_list", is_flag=True, help="Only list the backups at PLACE.")
@as_json
def restore(place: str, into: str | None, name: str | None, is_list: bool, is_json: bool) -> int:
    """Make the new data directory INTO from a backup at PLACE. The backup is verified first."""
    from stoker import maintenance
    from stoker.cli.progress import moving

    if is_list:
        return list_backups(place, is_json)
    if into is None:
        raise click.UsageError(
            "INTO is missing, the new directory: stoker restore PLACE INTO; --list shows the backups"
        )
    with moving("restoring") as moved:
        made = maintenance.restore(place, into, name, moved)
    if is_json:
        echo_json({"name": made.name, "into": into, "created_at": made.created_at, "size": made.size})
    else:
        click.echo(
            f"{into} is {made.name}, taken {when(made.created_at)}, {size(made.size)}; use it as sqlite:///{into}"
        )
    return exit_codes.OK


def list_backups(place: str, is_json: bool) -> int:
    from stoker import maintenance

    found = maintenance.list_backups(place)
    if is_json:
        echo_json(found)
    elif found:
        rows = [
            [one.name, clock(one.info.created_at), size(one.info.size), size(one.info.stored_size), ""]
            if one.info is not None
            else [one.name, "-", "-", "-", one.problem]
            for one in found
        ]
        click.echo(columns(("BACKUP", "TAKEN", "SIZE", "STORED", ""), rows, right=("SIZE", "STORED")))
    else:
        click.echo("no backups there")
    return exit_codes.OK if found else exit_codes.NOTHING
