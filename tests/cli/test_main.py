"""The command line as such: help, errors, exit codes, and how little it loads."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from stoker import __version__
from stoker.cli import exit_codes
from stoker.cli.main import COMMANDS, EXTRAS
from stoker.cli.main import stoker as program
from stoker.cli.parameters import DURATION, SECONDS, Duration
from stoker.model import errors
from stoker.model.units import duration_ms
from stoker.server.config import BadConfig
from stoker.server.packages import LISTENERS, lacking
from tests.cli.conftest import Stoker

ROOT = Path(__file__).parent.parent.parent


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, click.Context(inner, info_name=name, parent=context))


ALL = dict(commands(program, click.Context(program, info_name="stoker", **program.context_settings)))


DURATIONS = [
    (path, option.opts[0])
    for path, command in ALL.items()
    for option in command.params
    if isinstance(option.type, Duration) and option.type is not SECONDS
]


@pytest.mark.parametrize(("path", "option"), DURATIONS)
def test_a_duration_without_a_unit_is_refused(stoker: Stoker, path: str, option: str):
    """Python's `delay=30` are seconds: the command line must not take the same for milliseconds."""
    outcome = stoker(*path.split()[1:], option, "30")
    assert outcome.code == exit_codes.USAGE
    assert f"{option}': '30' has no unit: say 30s for seconds, or 30ms for milliseconds" in outcome.err


@pytest.mark.parametrize(
    ("text", "ms"), [("30s", 30_000), ("1h30m", 5_400_000), ("250ms", 250), ("0", 0), ("0.5s", 500)]
)
def test_a_duration_is_milliseconds(text: str, ms: int):
    assert DURATION.convert(text, None, None) == ms
    assert duration_ms(text) == ms, "Python reads it in the same way"


def test_an_option_that_names_its_unit_takes_a_number():
    assert [SECONDS.convert(text, None, None) for text in ("2", "0.5", "20ms")] == [2_000, 500, 20]


@pytest.mark.parametrize("path", ALL)
def test_every_command_and_option_has_a_help_text(path: str):
    command = ALL[path]
    assert command.help, f"{path} does not say what it does"
    silent = [one.name for one in command.params if isinstance(one, click.Option) and not one.help]
    assert silent == [], f"{path}: options without a help text"


@pytest.mark.parametrize("path", ALL)
def test_every_command_can_be_asked_for_help(stoker: Stoker, path: str):
    for flag in ("--help", "-h"):
        outcome = stoker(*path.split()[1:], flag)
        assert (outcome.code, outcome.err) == (0, "")
        assert f"Usage: {path}" in outcome.out


LEAVES = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}
CHANGING = (
    "stoker serve",
    "stoker worker",
    "stoker dev",
    "stoker demo",
    "stoker ui",
    "stoker completion",
    "stoker inbox init",
    "stoker inbox run",
    "stoker config check",
    "stoker pipeline stream",
)
"""Those that have nothing to say that a program could read, besides `dlq export`, which says nothing but JSON."""


def parse(line: str) -> str:
    """As if somebody had typed it, without running it: the command that it is."""
    words = list(takewhile(lambda word: word not in ("|", ">", "<", "&"), shlex.split(line, comments=True)))
    path = next(" ".join(words[:count]) for count in (3, 2, 1, 0) if " ".join(words[:count]) in LEAVES)
    with LEAVES[path].make_context(path, words[len(path.split()) :]) as context:
        assert not context.args
    return path


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_an_example_that_is_one(path: str):
    """Its own options, its own arguments."""
    lines = [line.strip() for line in (LEAVES[path].epilog or "").splitlines() if line.startswith("  ")]
    assert lines, f"{path} has no example"
    assert {parse(line) for line in lines} == {path}


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TYPED = re.compile(r"^(?:\$ )?(stoker .*)$", re.MULTILINE)
CODE = re.compile(r"`(stoker [a-z]+ [^`]*--[^`]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_in_the_documentation_are_command_lines(page: Path):
    """In blocks and in running text: nobody is told of an option that there is not."""
    text = page.read_text()
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in TYPED.findall(block)] + CODE.findall(text)
    for line in lines:
        parse(line)


@pytest.mark.parametrize("path", [path for path in LEAVES if path not in (*CHANGING, "stoker dlq export")])
def test_every_command_that_answers_can_answer_in_json(path: str):
    assert "is_json" in {one.name for one in LEAVES[path].params}


def test_every_command_stands_in_a_section_of_the_help(stoker: Stoker):
    shown = stoker("--help").out
    assert [name for name in COMMANDS if f"\n  {name} " not in shown] == []


def test_all_commands_were_found():
    assert {f"stoker {name}" for name in COMMANDS} | {"stoker token revoke"} <= set(ALL)


def test_the_version_is_told(stoker: Stoker):
    assert stoker("--version") == (0, f"stoker {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["fly"], ["push"], ["push", "q", "1", "--fly"], ["pull", "q", "--count", "0"]])
def test_wrong_usage_exits_with_2(stoker: Stoker, arguments: list[str]):
    outcome = stoker(*arguments)
    assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert outcome.err.endswith(" (usage)\n")


def test_a_command_that_is_nearly_right_is_guessed(stoker: Stoker):
    assert "there is no command 'quue'; did you mean 'queue'?" in stoker("quue", "list").err
    assert "there is no command 'xyz' (usage)" in stoker("xyz").err


@pytest.mark.parametrize("arguments", [[], ["queue"]])
def test_a_command_line_without_a_command_is_answered_with_help(stoker: Stoker, arguments: list[str]):
    outcome = stoker(*arguments)
    assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")
    assert outcome.err.startswith("Usage: stoker")
    assert "error:" not in outcome.err


@pytest.mark.parametrize("kind", [*errors.BY_CODE.values(), BadConfig], ids=lambda kind: kind.code)
def test_every_error_has_an_exit_code(kind: type[errors.StokerError]):
    code = exit_codes.exit_code_for(kind("x"))
    assert code in exit_codes.MEANINGS
    assert code not in (exit_codes.OK, exit_codes.NOTHING)
    assert (code == exit_codes.REFUSED) == issubclass(kind, errors.Refused)
    assert (code == exit_codes.UNREACHABLE) == issubclass(kind, errors.Unavailable)


def test_an_error_is_told_in_one_line_with_its_code(stoker: Stoker):
    outcome = stoker("stats", "--url", "gopher://x")
    assert outcome.code == exit_codes.REFUSED
    assert outcome.err.startswith("error: cannot connect to 'gopher://x'")
    assert outcome.err.endswith(" (invalid)\n")
    assert len(outcome.err.splitlines()) == 1


# --- as a process ------------------------------------------------------------------------------------


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environ)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["push", "--help"], ["serve", "--help"], ["top", "--help"], ["worker", "--help"]],
)
def test_help_loads_neither_the_queue_nor_the_server(arguments: list[str]):
    heavy = (
        "stoker.engine",
        "stoker.journal",
        "stoker.runtime",
        "stoker.server",
        "apsw",
        "uvicorn",
        "grpc",
        "asyncio",
        "rich",
    )
    script = (
        f"import sys; from stoker.cli.main import run; code = run({arguments!r})\n"
        f"print([name for name in sys.modules if name.startswith({heavy!r})], file=sys.stderr); sys.exit(code)"
    )
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_help_loads_no_command():
    script = "import sys; from stoker.cli.main import run; run(['--help']); print(sys.modules.keys(), file=sys.stderr)"
    loaded = python("-c", script).stderr
    assert "stoker.cli.main" in loaded
    assert "stoker.cli.parameters" not in loaded


def test_a_package_that_is_not_installed_is_named_with_its_extra(tmp_path: Path):
    script = (
        "import sys; sys.modules['uvicorn'] = None; from stoker.cli.main import run\n"
        "sys.exit(run(['serve', '--tcp', 'off', '--grpc', 'off', '--http', '127.0.0.1:0']))"
    )
    done = python("-c", script)
    assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
    expected = "error: http.listen (--http): it needs the package uvicorn; pip install 'stoker[server]', or"
    assert done.stderr.splitlines()[-1].startswith(expected)


def test_what_a_server_would_need_is_named(monkeypatch: pytest.MonkeyPatch):
    """`stoker dev` goes without a server then."""
    assert lacking("http") == ""
    monkeypatch.setitem(sys.modules, "starlette", None)  # as if it were not installed
    assert lacking("http") == "starlette"


def test_what_listeners_need_comes_with_the_extras_that_are_named():
    needed = {package: needs.extra for needs in LISTENERS.values() for package in needs.packages}
    assert needed.items() <= EXTRAS.items()


def test_the_program_is_there_as_a_module():
    assert python("-m", "stoker.cli.main", "--version").stdout == f"stoker {__version__}\n"


def test_a_reader_that_has_seen_enough_is_no_traceback(tmp_path: Path):
    """`stoker config show | head -1`"""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "stoker.cli.main", "config", "show"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            cwd=tmp_path,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (exit_codes.FAILED, "")


def test_output_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path):
    """`stoker config show > /dev/full`: a disk without room."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stoker.cli.main", "config", "show"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            cwd=tmp_path,
        )
    assert (done.returncode, done.stderr) == (exit_codes.FAILED, "error: [Errno 28] No space left on device (system)\n")


def test_a_family_says_of_each_command_what_it_does_in_a_whole_sentence(stoker: Stoker):
    said = stoker("job", "--help").out
    assert "...\n" not in said.partition("Commands:")[2]
    assert "are not retried." in said


def test_an_interrupted_command_exits_with_130(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-m", "stoker.cli.main", "push", "q", "--file", "-", "--url", "memory://"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONVERBOSE": "1"},  # tells when click was imported, so that the signal hits the command
    ) as process:
        assert process.stderr is not None
        assert process.stdin is not None
        for line in process.stderr:
            if b"import 'stoker.cli.push_pull'" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode in (exit_codes.INTERRUPTED, -signal.SIGINT)
