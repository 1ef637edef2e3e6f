"""Kinds of values that options take, options that several commands share, and the way to the queue that they name."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stoker.model.units import parse_duration_ms, parse_plain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stoker.client.sync import Client

RETRY_S = 2.0
"""Somebody sits and waits: better say soon that nobody answers. The URL may ask for more: `?retry_s=30`."""

F = TypeVar("F", bound=Callable[..., Any])


class Family(click.Group):
    """Commands about one thing. Its help says of each what it does in a whole sentence, over two lines if need be."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(sys.maxsize)) for name, one in found if one is not None])


class Duration(click.ParamType[int]):
    """`30s`, `5m`, `1h30m`, or plain milliseconds; the value is whole milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            plain = parse_plain(value)
            return round(parse_duration_ms(value) if plain is None else plain)
        except ValueError as error:
            self.fail(f"{value!r}: {error}, or a number of milliseconds", param, ctx)


DURATION = Duration()


TOKEN = "stoker.token"
"""Where the token is kept in a click context: whoever asks for a client need not hand it on."""


def _remember_token(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[TOKEN] = value


def connected(command: F) -> F:
    """The options of a command that talks to a queue."""
    command = click.option(
        "--token",
        envvar="STOKER_TOKEN",
        show_envvar=True,
        expose_value=False,
        callback=_remember_token,
        help="What a server asks for: an API token or a JWT. One in the URL comes first.",
    )(command)
    command = click.option(
        "--tenant", envvar="STOKER_TENANT", default="default", show_default=True, help="Act for this tenant."
    )(command)
    return click.option(
        "--url",
        envvar="STOKER_URL",
        show_envvar=True,
        help="The queue: tcp://HOST:PORT, unix:///PATH, http://, grpc:// or sqlite:///DIRECTORY."
        " [default: sqlite:///stoker.db]",
    )(command)


def as_json(command: F) -> F:
    return click.option("--json", "is_json", is_flag=True, help="Print JSON, for programs.")(command)


def destroying(command: F) -> F:
    """The options of a command that takes something away for good."""
    command = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(command)
    return click.option("--dry-run", is_flag=True, help="Only say what it would hit.")(command)


def sure(what: str, *, dry_run: bool, yes: bool) -> bool:
    """Say what is going to happen, and whether it may. Where nobody can be asked, only --yes lets it."""
    if dry_run:
        if click.get_current_context().params.get("is_json"):
            echo_json({"would": what})
        else:
            click.echo(f"would {what}")
        return False
    if yes:
        return True
    if not is_attended():
        raise click.UsageError(f"this would {what}: say --yes to do it, or --dry-run to only look")
    click.confirm(f"This will {what}. Go on?", abort=True, err=True)
    return True


def is_attended() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def examples(*lines: str) -> str:
    """The end of a help text: command lines to copy. A test sees to it that they are command lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def open_client(url: str | None, tenant: str) -> "Client":
    from stoker.brokers.connect import DEFAULT_URL, open_broker
    from stoker.client.sync import Client

    url = url or DEFAULT_URL
    if is_embedded(url):
        return Client(open_broker(url), tenant)
    from stoker.brokers.remote.settings import RemoteSettings

    context = click.get_current_context(silent=True)
    token = context.meta.get(TOKEN) if context is not None else None
    return Client(open_broker(url, RemoteSettings(retry_s=RETRY_S, token=token)), tenant)


def look_at(url: str | None, tenant: str) -> "Client":
    """A client for a command that only looks: it does not make a data directory that is not there."""
    from stoker.brokers.connect import DEFAULT_URL

    directory = directory_of(url or DEFAULT_URL)
    if directory is not None:
        from pathlib import Path

        from stoker.model.errors import NotFound

        if not Path(directory).exists():
            raise NotFound(
                f"there is no data directory {directory!r}: push something first, or say which queue you mean with"
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
    """Whether there is no such queue. Who may not ask is not told."""
    from stoker.model.errors import Refused

    try:
        return queue not in client.list_queues()
    except Refused:
        return False


def tell_if_new(client: "Client", queue: str) -> None:
    """Nothing was found: perhaps because the name is mistyped."""
    if not is_new(client, queue):
        return
    from difflib import get_close_matches

    close = get_close_matches(queue, client.list_queues(), 1)
    hint = f"did you mean {close[0]}?" if close else "stoker queue list names those that there are"
    click.echo(f"there is no queue {queue}: {hint}", err=True)


def echo_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value, enc_hook=_plain))


def _plain(value: Any) -> Any:
    """Replies hold ranges of ids, and mappings that nobody may change."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """For the shell: the queues that there are. A queue that cannot be asked at once has none."""
    from click.shell_completion import CompletionItem

    from stoker.model.errors import StokerError

    try:
        with look_at(ctx.params.get("url"), ctx.params.get("tenant") or "default") as client:
            return [CompletionItem(name) for name in client.list_queues() if name.startswith(incomplete)]
    except (StokerError, OSError):
        return []
