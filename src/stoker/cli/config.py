"""`stoker config`: look at the configuration of a server without starting one."""

import click

from stoker.cli.parameters import Family, as_json, echo_json, examples


@click.group(cls=Family)
def config() -> None:
    """Check or show the configuration that `stoker serve` would use here."""


FILE = click.option("--config", "file", metavar="FILE", help="Read this file instead of stoker.toml.")


@config.command(epilog=examples("stoker config check", "stoker config check --config /etc/stoker/stoker.toml"))
@FILE
def check(file: str | None) -> None:
    """Check the configuration for unknown settings, wrong values, contradictions and unusable files.

    Prints nothing and exits with 0 if there is no problem. Else prints a line for each problem and exits with 2, or
    with 4 if the problem is a file that the configuration names.
    """
    from stoker.server.config import load
    from stoker.server.packages import without_lacking
    from stoker.server.run import check_files

    loaded = load(file=file)
    without_lacking(loaded)
    check_files(loaded.config)


@config.command(epilog=examples("stoker config show", "stoker config show --json"))
@FILE
@as_json
def show(file: str | None, is_json: bool) -> None:
    """Print every setting with its value and source. Secrets are masked."""
    from stoker.server import config as settings

    loaded = settings.load(file=file)
    if is_json:
        echo_json([one._asdict() for one in settings.settings_of(loaded)])
    else:
        click.echo(settings.show(loaded))
