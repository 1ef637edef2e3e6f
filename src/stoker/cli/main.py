"""The command `stoker`: finds the sub-command, loads it alone, and turns errors into exit codes.

Modules of commands import nothing but click when they are loaded; what a command needs, it imports when it runs.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from stoker.cli import exits
from stoker.model.errors import StokerError
from stoker.model.version import __version__

COMMANDS = {
    "serve": "stoker.cli.serve:serve",
    "config": "stoker.cli.config:config",
    "token": "stoker.cli.token:token",
    "push": "stoker.cli.jobs:push",
    "pull": "stoker.cli.jobs:pull",
    "stats": "stoker.cli.stats:stats",
}
"""In the order of the help text: what one needs first comes first."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="stoker", message="%(prog)s %(version)s")
def stoker() -> None:
    """Stoker, a job queue that keeps workers fed.

    Commands that talk to a queue take its URL from --url, or from STOKER_URL, or use the data directory stoker.db
    here. Those that configure a server read stoker.toml, [tool.stoker] of pyproject.toml and STOKER_* variables.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line; the exit code."""
    try:
        code = stoker.main(arguments, prog_name="stoker", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.OK
    except click.UsageError as error:
        exits.tell_usage(error)
        return exits.USAGE
    except click.ClickException as error:
        exits.tell(error.format_message(), "usage")
        return exits.USAGE
    except StokerError as error:
        exits.tell(error.message, error.code)
        return exits.exit_code_for(error)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough; the interpreter must not try to flush it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
