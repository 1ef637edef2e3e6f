"""`stoker serve`: serves a queue on the network."""

from typing import Any

import click

from stoker.cli.parameters import examples

LISTENER = "HOST:PORT|off"


@click.command(
    epilog=examples(
        "stoker serve --data stoker.db",
        "stoker serve --broker redis://127.0.0.1:6379/0 --tcp 127.0.0.1:7789 --http off --grpc off",
        "stoker serve --data /var/lib/stoker --tcp 0.0.0.0:6789 --tokens-file /etc/stoker/tokens --processes 4",
    )
)
@click.option(
    "--data",
    metavar="DIR",
    help="The data directory, created if it does not exist. Without one, the queue is in memory only.",
)
@click.option(
    "--broker",
    metavar="URL",
    help="Serve a queue in Redis instead: redis://HOST:PORT/DATABASE. Several servers may serve the same one.",
)
@click.option(
    "--cluster",
    metavar="URL",
    help="Serve as a node of a cluster: postgresql://USER@HOST/DATABASE, made by `stoker cluster init`.",
)
@click.option("--node", metavar="NAME", help="The name of this node in the cluster. [default: HOST:PORT]")
@click.option(
    "--cluster-listen", metavar="HOST:PORT", help="Where other nodes reach this one. [default: 127.0.0.1, a free port]"
)
@click.option("--tcp", metavar=LISTENER, help="The address for the TCP protocol. [default: 127.0.0.1:6789]")
@click.option("--http", metavar=LISTENER, help="The address for HTTP. [default: 127.0.0.1:6790]")
@click.option("--grpc", metavar=LISTENER, help="The address for gRPC. [default: 127.0.0.1:6791]")
@click.option("--unix", metavar="PATH|off", help="A Unix socket for the TCP protocol. [default: off]")
@click.option(
    "--durability",
    metavar="LEVEL",
    help="What replies wait for unless the push says: memory, commit or fsync. [default: commit]",
)
@click.option("--processes", metavar="N", help="Spread the shards over this many processes. [default: 1]")
@click.option(
    "--tokens-file", metavar="FILE", help="The tokens of clients that may connect: the file that `stoker token` writes."
)
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Allow other machines to connect without authentication.",
)
@click.option(
    "--set",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any other setting, as in --set limits.batch_jobs_max=100. May be repeated.",
)
@click.option("--config", "file", metavar="FILE", help="Read this file instead of stoker.toml.")
@click.option("--show-config", is_flag=True, help="Print every setting with its source, and exit.")
def serve(
    file: str | None,
    show_config: bool,
    tokens_file: str | None,
    node: str | None,
    cluster_listen: str | None,
    pairs: tuple[str, ...],
    **flags: Any,
) -> int:
    """Serve a queue until a signal stops it.

    Listens on this machine only, unless you configure other addresses. On SIGTERM or SIGINT the server lets running
    jobs end, then stops; a second signal stops it at once. SIGHUP makes it read tokens, keys and limits again.
    """
    from stoker.server.config import load, show

    flags |= {"auth.tokens_file": tokens_file, "cluster.node": node, "cluster.listen": cluster_listen}
    flags["cluster.url"] = flags.pop("cluster")
    loaded = load(settings_from(pairs) | {key: value for key, value in flags.items() if value is not None}, file=file)
    if show_config:
        click.echo(show(loaded))
        return 0
    from stoker.server.config import lines_of_flashq
    from stoker.server.packages import without_lacking
    from stoker.server.run import run

    config, lines = without_lacking(loaded)
    return run(config, lambda: loaded.again().config, [*lines, *lines_of_flashq(loaded)])


def settings_from(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r}: expected KEY=VALUE", param_hint="--set")
        found[key] = value
    return found
