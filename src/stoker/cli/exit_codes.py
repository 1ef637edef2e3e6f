"""How a command ends: one exit code for each kind of outcome, one line on standard error for each error.

Scripts may rely on the exit codes and on the error code in brackets (`docs/reference/errors.md`). The text between is
for people.
"""

import click

from stoker.model.errors import Refused, StokerError, Unavailable

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
NOTHING = 5
NOT_YET = 6
RELEASED = 7
LOG_FAILED = 8
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    OK: "done",
    FAILED: "another failure: a data directory that cannot be opened, an unknown outcome, a job that failed,"
    " a problem that the doctor found, a bug",
    USAGE: "wrong usage: an unknown command or option, or a wrong configuration; nothing was done",
    UNREACHABLE: "the server does not answer, or cannot now (`unreachable`, `busy`, `disk_full`, ...): try again later",
    REFUSED: "the request was refused (`not_found`, `forbidden`, `limit_exceeded`, ...); nothing has changed",
    NOTHING: "there was nothing to do: a pull found no job, or the log has nothing about a job",
    NOT_YET: "the time ran out before the job ended",
    RELEASED: "a worker stopped before every started job was finished, and handed the rest back",
    LOG_FAILED: "a server stopped because it could not write or flush its log; a new start recovers from disk",
    INTERRUPTED: "interrupted from the keyboard",
    TERMINATED: "ended by SIGTERM before it was done; for `serve` and `worker`, SIGTERM is the normal way to stop",
}


WRONG_USAGE = ("bad_config", "cannot_load")
"""By name: the classes belong to the server and the app, which most commands never load."""


HINTS = {"unauthenticated": "; here that is --token or STOKER_TOKEN"}
"""Advice for the command line, added to messages that are written for any program."""


def exit_code_for(error: StokerError) -> int:
    if error.code in WRONG_USAGE:
        return USAGE
    if error.code == "log_failed":
        return LOG_FAILED
    if isinstance(error, Refused):
        return REFUSED
    return UNREACHABLE if isinstance(error, Unavailable) else FAILED


def tell(message: str, code: str) -> None:
    """`error: message (code)`, a line for each problem."""
    for line in message.splitlines() or [""]:
        click.echo(f"error: {line} ({code})", err=True)


def tell_error(error: StokerError) -> None:
    """Print the error, after the traceback of the user's own code if that is at fault."""
    click.echo(getattr(error, "trace", ""), err=True, nl=False)
    tell(error.message + HINTS.get(error.code, ""), error.code)


def tell_usage(error: click.UsageError) -> None:
    if error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"Try '{error.ctx.command_path} --help'.", err=True)
    tell(error.format_message(), "usage")
