"""The command `stoker`: finds the sub-command, loads only that, and turns errors into exit codes.

Modules of commands import only click when they are loaded. A command imports what it needs when it runs.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from stoker.cli import exit_codes
from stoker.model.errors import StokerError
from stoker.model.hints import did_you_mean
from stoker.model.version import __version__

COMMANDS = {
    "dev": "stoker.cli.dev:dev",
    "worker": "stoker.cli.worker:worker",
    "serve": "stoker.cli.serve:serve",
    "demo": "stoker.cli.demo:demo",
    "push": "stoker.cli.push_pull:push",
    "pull": "stoker.cli.push_pull:pull",
    "job": "stoker.cli.job:job",
    "queue": "stoker.cli.queue:queue",
    "dlq": "stoker.cli.dlq:dlq",
    "bulk": "stoker.cli.bulk:bulk",
    "cron": "stoker.cli.cron:cron",
    "workflow": "stoker.cli.workflow:workflow",
    "inbox": "stoker.cli.inbox:inbox",
    "pipeline": "stoker.cli.pipeline:pipeline",
    "stats": "stoker.cli.stats:stats",
    "top": "stoker.cli.top:top",
    "ui": "stoker.cli.ui:ui",
    "bench": "stoker.cli.bench:bench",
    "doctor": "stoker.cli.doctor:doctor",
    "backup": "stoker.cli.backup:backup",
    "restore": "stoker.cli.backup:restore",
    "config": "stoker.cli.config:config",
    "token": "stoker.cli.token:token",
    "cluster": "stoker.cli.cluster:cluster",
    "completion": "stoker.cli.completion:completion",
}
"""In the order of the help text, with the first steps first."""

SECTIONS = {
    "Run": {
        "dev": "Run a server, and a worker that reloads your code.",
        "worker": "Run the jobs of an app.",
        "serve": "Serve a queue on the network.",
        "demo": "Show a queue at work, in a minute.",
    },
    "Jobs and queues": {
        "push": "Push a job.",
        "pull": "Take jobs and print them.",
        "job": "Inspect single jobs, cancel them, send them back to work.",
        "queue": "Inspect, pause, limit and empty queues.",
        "dlq": "Inspect dead letters, retry, remove or export them.",
        "bulk": "Act on every job that a filter finds, in the background.",
        "cron": "Push jobs on a schedule.",
        "workflow": "Inspect workflows, cancel and retry them.",
        "inbox": "Push jobs inside the transactions of your PostgreSQL.",
    },
    "Watch": {
        "stats": "Count jobs, and list workers.",
        "top": "Watch a queue live.",
        "ui": "Open the dashboard of a queue, on this machine.",
        "bench": "Measure the speed of a queue from here.",
        "pipeline": "Load the history of a queue into a lake with Spark, and report.",
    },
    "Maintain": {
        "doctor": "Check machine, data directory, server and queues.",
        "backup": "Back up a data directory.",
        "restore": "Make a data directory from a backup.",
        "config": "Check or show the configuration of a server.",
        "token": "Make, list and revoke API tokens.",
        "cluster": "Make a cluster in PostgreSQL, look at it, upgrade it.",
        "completion": "Complete commands in bash, zsh or fish.",
    },
}
"""The help text. It is here and not with the commands, so that the help loads no command."""


EXTRAS = {
    **dict.fromkeys(
        ("httptools", "jinja2", "jwt", "prometheus_client", "starlette", "uvicorn", "websockets"), "server"
    ),
    **dict.fromkeys(("grpc", "grpc_health", "grpc_reflection"), "grpc"),
    "psycopg": "postgres",
    **dict.fromkeys(("deltalake", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"), "spark"),
}
"""The extra that installs a missing package."""


class LazyGroup(click.Group):
    """A group that imports each command when it is used."""

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
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
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

    Commands that use a queue take its URL from --url or STOKER_URL. The default is the data directory stoker.db here.
    Commands that configure a server read stoker.toml, [tool.stoker] of pyproject.toml and STOKER_* variables.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no answer, 4 refused, 5 nothing to do, 6 not yet, 7 handed back.
    The reference has them in full.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code."""
    try:
        code = stoker.main(arguments, prog_name="stoker", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exit_codes.OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return exit_codes.USAGE
    except click.UsageError as error:
        exit_codes.tell_usage(error)
        return exit_codes.USAGE
    except click.ClickException as error:
        exit_codes.tell(error.format_message(), "usage")
        return exit_codes.USAGE
    except StokerError as error:
        exit_codes.tell_error(error)
        return exit_codes.exit_code_for(error)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        exit_codes.tell(
            f"this needs {package}, which is not installed: pip install 'stoker[{EXTRAS[package]}]'", "usage"
        )
        return exit_codes.USAGE
    except (click.Abort, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        forget_output()
        return exit_codes.FAILED
    except OSError as error:  # a full disk or a read-only file: the system's message says it best
        exit_codes.tell(str(error) or type(error).__name__, "system")
        try:
            sys.stdout.flush()
        except OSError:
            forget_output()
        return exit_codes.FAILED


def forget_output() -> None:
    """Drop unwritten output, so that the interpreter does not try to write it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
