"""`stoker inbox`: make the inbox in a PostgreSQL, and read it."""

from typing import Any

import click

from stoker.cli.parameters import DURATION, Family, examples, logged


@click.group(cls=Family)
def inbox() -> None:
    """Push jobs inside the transactions of your own PostgreSQL.

    A program inserts a row into the table stoker_inbox in the same transaction as its own changes. A reader pushes
    each committed row once.
    """


@inbox.command(epilog=examples("stoker inbox init postgresql://shop@db/shop", "stoker inbox init --print"))
@click.argument("url", metavar="[POSTGRESQL_URL]", required=False)
@click.option("--print", "is_printed", is_flag=True, help="Only print the SQL, for a migration of your own.")
def init(url: str | None, is_printed: bool) -> None:
    """Make the table stoker_inbox in a database. Nothing happens if it is there."""
    from stoker.inbox import schema

    if is_printed:
        click.echo(schema.sql(), nl=False)
        return
    if url is None:
        raise click.UsageError("name the database, as in postgresql://shop@db/shop, or use --print")
    made = schema.init(url)
    click.echo("made the table stoker_inbox" if made else "the table stoker_inbox is there already")


@inbox.command(
    epilog=examples(
        "stoker inbox run --from postgresql://shop@db/shop --to tcp://127.0.0.1:6789",
        "stoker inbox run --from postgresql://shop@db/shop --to sqlite:///stoker.db --tenant shop --tenant web",
    )
)
@click.option(
    "--from", "source", required=True, metavar="POSTGRESQL_URL", envvar="STOKER_INBOX", help="The database to read."
)
@click.option(
    "--to", "target", metavar="URL", envvar="STOKER_URL", help="The queue to push to. [default: sqlite:///stoker.db]"
)
@click.option("--token", envvar="STOKER_TOKEN", show_envvar=True, help="An API token or a JWT for the server.")
@click.option(
    "--tenant",
    "tenants",
    multiple=True,
    default=("default",),
    show_default=True,
    help="A tenant that rows may name. May be repeated; rows of other tenants are set aside.",
)
@click.option(
    "--request-ttl",
    "request_ttl_ms",
    type=DURATION,
    default="24h",
    show_default=True,
    help="engine.request_ttl_ms of the queue. A batch that is older than half of it is set aside, not sent again.",
)
@logged
def run(
    source: str,
    target: str | None,
    token: str | None,
    tenants: tuple[str, ...],
    request_ttl_ms: int,
    log_level: Any,
    log_format: Any,
) -> None:
    """Push the rows of an inbox to a queue, until a signal stops it.

    Any number of readers may share an inbox. A reader that dies leaves nothing undone: a minute later another one, or
    the same one started again, sends what it had begun.
    """
    import asyncio

    from stoker import logs

    logs.set_up(log_format, log_level)
    asyncio.run(read(source, target, token, tenants, request_ttl_ms))


async def read(
    source: str, target: str | None, token: str | None, tenants: tuple[str, ...], request_ttl_ms: int
) -> None:
    import asyncio
    import signal

    import psycopg

    from stoker.brokers.connect import DEFAULT_URL, open_broker, settings_for
    from stoker.cli.parameters import RETRY_S
    from stoker.inbox import schema
    from stoker.inbox.reader import Reader

    target = target or DEFAULT_URL
    if target.startswith("memory:"):
        raise click.UsageError("--to memory:// would lose the jobs with this process: name a queue that outlives it")
    try:
        await (await schema.connect(source)).close()
    except psycopg.Error as error:
        raise schema.friendly(error) from error
    broker = open_broker(target, settings_for(target, RETRY_S, token))
    try:
        reader = Reader(source, broker.execute_async, tenants=tenants, request_ttl_ms=request_ttl_ms)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, reader.stop)
        await reader.run()
    finally:
        broker.close()
