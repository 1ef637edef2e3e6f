"""`stoker config`: look at the configuration of a server without starting one."""

import click

from stoker.cli.kinds import Family, as_json, echo_json, examples


@click.group(cls=Family)
def config() -> None:
    """Look at the configuration that `stoker serve` would have here."""


FILE = click.option("--config", "file", metavar="FILE", help="Read this file in place of stoker.toml.")


@config.command(epilog=examples("stoker config check", "stoker config check --config /etc/stoker/stoker.toml"))
@FILE
def check(file: str | None) -> None:
    """Check the configuration: unknown settings, wrong values, what does not fit together, files that cannot be used.

    Says nothing and exits with 0 when all is well. Otherwise prints a line for each problem and exits with 2, or with
    4 when it is a file that the configuration names.
    """
    from stoker.server.auth.gate import Gate
    from stoker.server.config import load
    from stoker.server.config.tls import tls_context

    loaded = load(file=file)
    Gate(loaded.config.auth)
    for listener in (loaded.config.tcp, loaded.config.http, loaded.config.grpc):
        tls_context(listener.tls)


@config.command(epilog=examples("stoker config show", "stoker config show --json"))
@FILE
@as_json
def show(file: str | None, is_json: bool) -> None:
    """Print every setting, its value and where that came from. Secrets are masked."""
    from stoker.server import config as settings

    loaded = settings.load(file=file)
    if is_json:
        echo_json([one._asdict() for one in settings.settings_of(loaded)])
    else:
        click.echo(settings.show(loaded))
