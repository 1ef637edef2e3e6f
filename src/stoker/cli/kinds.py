"""Kinds of values that options take, and options that several commands share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stoker.model.units import parse_duration_ms, parse_plain

if TYPE_CHECKING:
    from stoker.client.sync import Client

RETRY_S = 2.0
"""Somebody sits and waits: better say soon that nobody answers. The URL may ask for more: `?retry_s=30`."""

F = TypeVar("F", bound=Callable[..., Any])


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


def connected(command: F) -> F:
    """The options of a command that talks to a queue."""
    command = click.option(
        "--tenant", envvar="STOKER_TENANT", default="default", show_default=True, help="Act for this tenant."
    )(command)
    return click.option(
        "--url",
        envvar="STOKER_URL",
        show_envvar=True,
        help="The queue: tcp://HOST:PORT, unix:///PATH, http://, grpc:// or sqlite:///DIRECTORY. A server's token comes"
        " from STOKER_TOKEN. [default: sqlite:///stoker.db]",
    )(command)


def as_json(command: F) -> F:
    return click.option("--json", "is_json", is_flag=True, help="Print JSON, for programs.")(command)


def open_client(url: str | None, tenant: str) -> "Client":
    from stoker.brokers.connect import DEFAULT_URL, open_broker
    from stoker.client.sync import Client

    url = url or DEFAULT_URL
    if url.startswith(("sqlite:", "memory:")):
        return Client(open_broker(url), tenant)
    from stoker.brokers.remote.settings import RemoteSettings

    return Client(open_broker(url, RemoteSettings(retry_s=RETRY_S)), tenant)


def echo_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))
