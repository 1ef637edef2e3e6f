"""How a command ends: one exit code for each kind of outcome, one line on standard error for each error.

Scripts may rely on the codes and on the word in brackets (`docs/reference/errors.md`); the text between is for people.
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
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    OK: "done",
    FAILED: "something else went wrong: a data directory that cannot be opened, an unknown outcome, a job that failed,"
    " a problem that the doctor found, a bug",
    USAGE: "not a command, option or configuration that there is; nothing was done",
    UNREACHABLE: "nobody answers, or not now (`unreachable`, `busy`, `disk_full`, ...): trying again later may help",
    REFUSED: "the request was refused (`not_found`, `forbidden`, `limit_exceeded`, ...); nothing has changed",
    NOTHING: "there was nothing to do: a pull that brought no job, a story that nobody remembers",
    NOT_YET: "the time ran out first: a job that was waited for has not ended",
    RELEASED: "a worker ended, and not everything that it had begun was finished: the rest was handed back",
    INTERRUPTED: "interrupted from the keyboard",
    TERMINATED: "ended by SIGTERM before it was done; commands that serve or work end well by it instead",
}


WRONG_USAGE = ("bad_config", "cannot_load")
"""Known by their names: the classes live with the server and the app, which most commands never load."""


HINTS = {"unauthenticated": "; here that is --token or STOKER_TOKEN"}
"""What helps on the command line, where an error is told to programs of any kind."""


def exit_code_for(error: StokerError) -> int:
    if error.code in WRONG_USAGE:
        return USAGE
    if isinstance(error, Refused):
        return REFUSED
    return UNREACHABLE if isinstance(error, Unavailable) else FAILED


def tell(message: str, code: str) -> None:
    """`error: message (code)`, a line for each problem."""
    for line in message.splitlines() or [""]:
        click.echo(f"error: {line} ({code})", err=True)


def tell_usage(error: click.UsageError) -> None:
    if error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"Try '{error.ctx.command_path} --help'.", err=True)
    tell(error.format_message(), "usage")
