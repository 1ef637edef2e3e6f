"""Options that several commands of `stoker pipeline` have."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stoker.model.errors import InvalidRequest, StokerError

if TYPE_CHECKING:
    from datetime import datetime

LAKE = click.option(
    "--lake",
    default="stoker-lake",
    show_default=True,
    help="The path of the lake: a directory that all machines see, or s3://bucket/path.",
)
CHECKPOINT = click.option(
    "--checkpoint",
    help="A directory for the position of the stream. Needed if the lake is in an object store."
    " [default: inside the lake]",
)


def at_least(least_ms: int) -> Callable[[click.Context, click.Parameter, int | None], int | None]:
    def checked(context: click.Context, parameter: click.Parameter, millis: int | None) -> int | None:
        if millis is not None and millis < least_ms:
            raise click.BadParameter(f"{millis} ms: expected at least {least_ms} ms")
        return millis

    return checked


def moment_of(text: str, option: str = "--from") -> "datetime":
    """A time, or how long ago it was."""
    from datetime import UTC, datetime, timedelta

    from stoker.model.units import duration_ms
    from stoker.spark.options import moment

    try:
        ago_ms = duration_ms(text)
    except (StokerError, ValueError):
        ago_ms = -1
    try:
        if ago_ms >= 0:
            return datetime.now(UTC) - timedelta(milliseconds=ago_ms)
        return moment(option, text).astimezone(UTC)
    except (InvalidRequest, OverflowError):
        raise click.BadParameter(
            f"{text[:80]!r}: expected a time such as 2026-11-16T08:00:00Z, or how long ago it was, such as 7d or 12h",
            param_hint=option,
        ) from None
