"""Types of option values, options that several commands share, and opening the queue that they name."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stoker.model.hints import nearest
from stoker.model.units import parse_duration_ms, parse_plain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stoker.client.sync import Client

RETRY_S = 2.0
"""Short, because a person waits for the answer. The URL may ask for more: `?retry_s=30`."""

F = TypeVar("F", bound=Callable[..., Any])


class Family(click.Group):
    """Commands about one thing. Its help describes each in a whole sentence, over two lines if needed."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(sys.maxsize)) for name, one in found if one is not None])


class Duration(click.ParamType[int]):
    """`30s`, `5m`, `1h30m`; the value is whole milliseconds.

    A number without a unit is refused, unless it is 0: Python's `delay=30` means seconds, the wire's `delay` means
    milliseconds, and a mistake by a factor of a thousand is found late. An option with the unit in its name accepts
    plain numbers.
    """

    name = "duration"

    def __init__(self, plain_ms: int | None = None) -> None:
        self._plain_ms = plain_ms
        """The milliseconds of a number without a unit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        plain = parse_plain(value)
        if plain is not None and (self._plain_ms is not None or not plain):
            return round(plain * (self._plain_ms or 0))
        if plain is not None:
            number = value.strip()
            self.fail(f"{number!r} has no unit: say {number}s for seconds, or {number}ms for milliseconds", param, ctx)
        try:
            return round(parse_duration_ms(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


DURATION = Duration()
SECONDS = Duration(plain_ms=1_000)


TOKEN = "stoker.token"
"""The key of the token in a click context, so that callers of `open_client` need not pass it."""


def _remember_token(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[TOKEN] = value


def with_token(command: F) -> F:
    """The token, which `open_client` finds by itself."""
    return click.option(
        "--token",
        envvar="STOKER_TOKEN",
        show_envvar=True,
        expose_value=False,
        callback=_remember_token,
        help="An API token or a JWT for the server. A token in the URL wins.",
    )(command)


def connected(command: F) -> F:
    """The options of a command that talks to a queue."""
    command = click.option(
        "--tenant", envvar="STOKER_TENANT", default="default", show_default=True, help="Act for this tenant."
    )(with_token(command))
    return click.option(
        "--url",
        envvar="STOKER_URL",
        show_envvar=True,
        help="The queue: tcp://HOST:PORT, unix:///PATH, http://, grpc:// or sqlite:///DIRECTORY."
        " [default: sqlite:///stoker.db]",
    )(command)


def as_json(command: F) -> F:
    """Print the answer as one JSON document: an object, or an array for a command about several things.

    Only commands that keep running (`push --lines`, `job logs --follow`) print one document per line, and their help
    says so.
    """
    return click.option("--json", "is_json", is_flag=True, help="Print one JSON document, for programs.")(command)


def logged(command: F) -> F:
    """The options of a command that keeps running and logs."""
    command = click.option(
        "--log-format",
        type=click.Choice(["plain", "json"]),
        default="plain",
        show_default=True,
        help="The format of log lines.",
    )(command)
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="The lowest level to log.",
    )(command)


def destroying(command: F) -> F:
    """The options of a command that removes something for good."""
    command = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(command)
    return click.option("--dry-run", is_flag=True, help="Only say what would be affected.")(command)


def sure(what: str, *, dry_run: bool, yes: bool) -> bool:
    """Say what is going to happen, and ask whether to do it. Without a terminal to ask on, --yes is required."""
    if dry_run:
        if click.get_current_context().params.get("is_json"):
            echo_json({"would": what})
        else:
            click.echo(f"would {what}")
        return False
    if yes:
        return True
    if not is_attended():
        raise click.UsageError(f"this would {what}: add --yes to do it, or --dry-run to only look")
    click.confirm(f"This will {what}. Go on?", abort=True, err=True)
    return True


def is_attended() -> bool:
    """Whether a person is at the terminal."""
    return sys.stdin.isatty()


def examples(*lines: str) -> str:
    """The end of a help text: command lines to copy. A test checks them."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def open_client(url: str | None, tenant: str) -> "Client":
    from stoker.brokers.connect import DEFAULT_URL, open_broker, settings_for
    from stoker.client.sync import Client

    url = url or DEFAULT_URL
    context = click.get_current_context(silent=True)
    token = context.meta.get(TOKEN) if context is not None else None
    return Client(open_broker(url, settings_for(url, RETRY_S, token)), tenant)


def look_at(url: str | None, tenant: str) -> "Client":
    """A client for a command that only reads: it does not create a missing data directory."""
    from stoker.brokers.connect import DEFAULT_URL

    directory = directory_of(url or DEFAULT_URL)
    if directory is not None:
        from pathlib import Path

        from stoker.model.errors import NotFound

        if not Path(directory).exists():
            raise NotFound(
                f"there is no data directory {directory!r}: push something first, or name another queue with"
                " --url or STOKER_URL"
            )
    return open_client(url, tenant)


def is_embedded(url: str) -> bool:
    return url.startswith(("sqlite:", "memory:"))


def directory_of(url: str) -> str | None:
    """The data directory in an embedded URL."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    return unquote(parts.path[1:]) if parts.scheme == "sqlite" and not parts.netloc else None


def is_new(client: "Client", queue: str) -> bool:
    """Whether there is no such queue. False without the permission to list queues."""
    from stoker.model.errors import Refused

    try:
        return queue not in client.list_queues()
    except Refused:
        return False


def tell_if_new(client: "Client", queue: str) -> None:
    """Say so if there is no such queue: the name may be mistyped."""
    if not is_new(client, queue):
        return
    near = nearest(queue, client.list_queues())
    hint = f"did you mean {near}?" if near else "stoker queue list lists them"
    click.echo(f"there is no queue {queue}: {hint}", err=True)


def echo_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value, enc_hook=_plain))


def _plain(value: Any) -> Any:
    """Converts ranges of ids and read-only mappings, which replies contain."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Shell completion: the names of existing queues. None, if the queue does not answer at once."""
    from click.shell_completion import CompletionItem

    from stoker.model.errors import StokerError

    try:
        with look_at(ctx.params.get("url"), ctx.params.get("tenant") or "default") as client:
            return [CompletionItem(name) for name in client.list_queues() if name.startswith(incomplete)]
    except (StokerError, OSError):
        return []
