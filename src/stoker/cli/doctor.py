"""`stoker doctor`: finds problems here, and says what helps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stoker.cli import exit_codes
from stoker.cli.formatting import hanging
from stoker.cli.parameters import as_json, connected, directory_of, echo_json, examples, look_at
from stoker.model.wording import many

if TYPE_CHECKING:
    from stoker.maintenance import Finding

MARKS = {"ok": ("ok     ", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "red")}


@click.command(
    epilog=examples(
        "stoker doctor",
        "stoker doctor --url tcp://127.0.0.1:6789 --inbox postgresql://shop@db/shop",
        "stoker doctor --url sqlite:///stoker.db --full",
    ),
)
@click.option("--full", is_flag=True, help="Also read every record of a data directory. It may be in use.")
@click.option(
    "--inbox", metavar="POSTGRESQL_URL", envvar="STOKER_INBOX", help="Also look at the inbox in this database."
)
@click.option("--strict", is_flag=True, help="Exit with 1 for a warning, too.")
@connected
@as_json
def doctor(full: bool, inbox: str | None, strict: bool, url: str | None, tenant: str, is_json: bool) -> int:
    """Check this machine, a data directory or a server, and find paused, limited or stuck queues.

    Prints each finding and what to do about it, and changes nothing. Exits with 1 if there is a problem.
    """
    from stoker.brokers.connect import DEFAULT_URL
    from stoker.cli.doctor_checks import worst

    found = examine(url or DEFAULT_URL, tenant, full)
    if inbox is not None:
        from stoker.cli.inbox_checks import check_inbox

        found += check_inbox(inbox)
    if is_json:
        echo_json(found)
    else:
        click.echo(page(found))
    bad = ("problem", "warning") if strict else ("problem",)
    return exit_codes.FAILED if worst(found) in bad else exit_codes.OK


def examine(url: str, tenant: str, full: bool) -> "list[Finding]":
    from pathlib import Path

    from stoker import maintenance
    from stoker.cli import doctor_checks
    from stoker.cli.progress import moving
    from stoker.maintenance import Finding
    from stoker.model.errors import StokerError

    found = doctor_checks.machine()
    directory = directory_of(url)
    if directory is not None:
        found += maintenance.check(directory)
        if full:
            with moving("reading") as moved:
                found += maintenance.verify(directory, moved)
        if not Path(directory).exists() or doctor_checks.worst(found) == "problem":
            return found  # nothing to inspect, or unsafe to open
    elif full:
        raise click.UsageError("--full reads a data directory, on the machine that has it: --url sqlite:///DIRECTORY")
    try:
        with look_at(url, tenant) as client:
            if directory is None:
                found += doctor_checks.connection(client)
            if doctor_checks.worst(found) != "problem":
                found += doctor_checks.queues(client)
    except StokerError as error:
        found.append(Finding("queues", "problem", error.message, "nothing else could be checked"))
    return found


def page(findings: "Sequence[Finding]") -> str:
    width = max(len(one.name) for one in findings)
    lines = []
    for one in findings:
        mark, colour = MARKS[one.status]
        lines.append(hanging(f"{click.style(mark, fg=colour)}  {one.name:<{width}}  ", one.found))
        if one.advice:
            lines.append(hanging(f"{'':9}{'':<{width}}  ", click.style(f"-> {one.advice}", fg=colour)))
    problems = sum(one.status == "problem" for one in findings)
    warnings = sum(one.status == "warning" for one in findings)
    verdict = f"{many(problems, 'problem')}, {many(warnings, 'warning')}" if problems or warnings else "all is well"
    return "\n".join([*lines, click.style(verdict, bold=True)])
