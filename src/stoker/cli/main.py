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
    "dev": "stoker.cli.dev:dev",
    "worker": "stoker.cli.worker:worker",
    "serve": "stoker.cli.serve:serve",
    "demo": "stoker.cli.demo:demo",
    "push": "stoker.cli.jobs:push",
    "pull": "stoker.cli.jobs:pull",
    "job": "stoker.cli.job:job",
    "queue": "stoker.cli.queue:queue",
    "dlq": "stoker.cli.dlq:dlq",
    "cron": "stoker.cli.cron:cron",
    "workflow": "stoker.cli.workflow:workflow",
    "pipeline": "stoker.cli.pipeline:pipeline",
    "stats": "stoker.cli.stats:stats",
    "top": "stoker.cli.top:top",
    "bench": "stoker.cli.bench:bench",
    "doctor": "stoker.cli.doctor:doctor",
    "backup": "stoker.cli.backup:backup",
    "restore": "stoker.cli.backup:restore",
    "config": "stoker.cli.config:config",
    "token": "stoker.cli.token:token",
    "completion": "stoker.cli.completion:completion",
}
"""In the order of the help text: what one needs first comes first."""

SECTIONS = {
    "Run": {
        "dev": "Run a server, and a worker that reloads your code.",
        "worker": "Run the jobs of an app.",
        "serve": "Serve a queue on the network.",
        "demo": "See a queue at work, in a minute.",
    },
    "Jobs and queues": {
        "push": "Push a job.",
        "pull": "Take jobs and print them.",
        "job": "Look at single jobs, cancel them, send them back to work.",
        "queue": "Look at queues, pause and limit them, empty them.",
        "dlq": "Look at dead letters, send them back to work, remove them.",
        "cron": "Push jobs by the clock.",
        "workflow": "Look at workflows, cancel and retry them.",
    },
    "Watch": {
        "stats": "Count jobs, and tell who works.",
        "top": "Watch a queue, live.",
        "bench": "Measure how fast it is, from here.",
        "pipeline": "Take what happens into a lake with Spark, and report.",
    },
    "Look after": {
        "doctor": "Check machine, data directory, server and queues.",
        "backup": "Back up a data directory.",
        "restore": "Make a data directory from a backup.",
        "config": "Check or show the configuration of a server.",
        "token": "Make, list and revoke API tokens.",
        "completion": "Complete commands in bash, zsh or fish.",
    },
}
"""The help text: it stands here and not with the commands, so that nothing has to be loaded for it."""


EXTRAS = {
    **dict.fromkeys(("httptools", "jwt", "prometheus_client", "starlette", "uvicorn", "websockets"), "server"),
    "grpc": "grpc",
    **dict.fromkeys(("matplotlib", "numpy", "pandas", "pyarrow", "pyspark"), "spark"),
}
"""What a package that is missing comes with."""


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}" + (f": did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, summaries in SECTIONS.items():
            rows = [(name, summary) for name, summary in summaries.items() if name in COMMANDS]
            with formatter.section(title):
                formatter.write_dl(rows)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="stoker", message="%(prog)s %(version)s")
def stoker() -> None:
    """Stoker, a job queue that keeps workers fed.

    Commands that talk to a queue take its URL from --url, or from STOKER_URL, or use the data directory stoker.db
    here. Those that configure a server read stoker.toml, [tool.stoker] of pyproject.toml and STOKER_* variables.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nobody answers, 4 refused, 5 nothing to do, 6 not yet,
    7 handed back. The reference has them in full.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line; the exit code."""
    try:
        code = stoker.main(arguments, prog_name="stoker", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return exits.USAGE
    except click.UsageError as error:
        exits.tell_usage(error)
        return exits.USAGE
    except click.ClickException as error:
        exits.tell(error.format_message(), "usage")
        return exits.USAGE
    except StokerError as error:
        exits.tell(error.message + exits.HINTS.get(error.code, ""), error.code)
        return exits.exit_code_for(error)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        exits.tell(f"this needs {package}, which is not installed: pip install 'stoker[{EXTRAS[package]}]'", "usage")
        return exits.USAGE
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        forget_output()
        return exits.FAILED
    except OSError as error:  # a full disk, a file that may not be written: the system's own words say it best
        exits.tell(str(error) or type(error).__name__, "system")
        try:
            sys.stdout.flush()
        except OSError:
            forget_output()
        return exits.FAILED


def forget_output() -> None:
    """What could not be written must not be tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
