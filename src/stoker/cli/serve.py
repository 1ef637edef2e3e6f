"""`stoker serve`: the queue on the network."""

from typing import Any

import click

from stoker.cli.kinds import examples

LISTENER = "HOST:PORT|off"


@click.command(
    epilog=examples(
        "stoker serve --data stoker.db",
        "stoker serve --data /var/lib/stoker --tcp 0.0.0.0:6789 --tokens-file /etc/stoker/tokens --processes 4",
    )
)
@click.option("--data", metavar="DIR", help="The data directory, made if it is new. Without one nothing is kept.")
@click.option("--tcp", metavar=LISTENER, help="Where to speak the TCP protocol. [default: 127.0.0.1:6789]")
@click.option("--http", metavar=LISTENER, help="Where to speak HTTP. [default: 127.0.0.1:6790]")
@click.option("--grpc", metavar=LISTENER, help="Where to speak gRPC. [default: 127.0.0.1:6791]")
@click.option("--unix", metavar="PATH|off", help="A socket in the file system for the TCP protocol. [default: off]")
@click.option(
    "--durability",
    metavar="LEVEL",
    help="What replies wait for where the push does not say: memory, commit or fsync. [default: commit]",
)
@click.option("--processes", metavar="N", help="Spread the work over this many processes. [default: 1]")
@click.option("--tokens-file", metavar="FILE", help="The file that `stoker token` writes: who may connect.")
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Listen beyond this machine although no authentication is configured.",
)
@click.option(
    "--set",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any other setting, as in --set limits.batch_jobs_max=100. May be repeated.",
)
@click.option("--config", "file", metavar="FILE", help="Read this file in place of stoker.toml.")
@click.option("--show-config", is_flag=True, help="Print every setting with its source, and end.")
def serve(file: str | None, show_config: bool, tokens_file: str | None, pairs: tuple[str, ...], **flags: Any) -> int:
    """Serve a queue until it is told to stop.

    Listens on this machine alone, unless you say otherwise. SIGTERM and SIGINT let running jobs end and then stop; a
    second one stops at once. SIGHUP reads tokens, keys and limits again.
    """
    from stoker.server.config import load, show

    flags["auth.tokens_file"] = tokens_file
    loaded = load(settings_from(pairs) | {key: value for key, value in flags.items() if value is not None}, file=file)
    if show_config:
        click.echo(show(loaded))
        return 0
    from stoker.server.run import run

    return run(loaded.config, lambda: loaded.again().config)


def settings_from(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r}: expected KEY=VALUE", param_hint="--set")
        found[key] = value
    return found
