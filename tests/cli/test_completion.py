"""Shell completion: the words that a shell gets when a user presses the tab key."""

import os
import subprocess
import sys

import pytest

from stoker import Client
from stoker.cli.main import stoker as program
from tests.cli.conftest import Stoker


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(stoker: Stoker, shell: str):
    outcome = stoker("completion", shell)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"_STOKER_COMPLETE={shell}_complete" in outcome.out


def completions(words: str) -> list[str]:
    """What bash would be offered for the last word."""
    count = len(words.split(" ")) - 1
    done = subprocess.run(
        [sys.executable, "-m", "stoker.cli.main"],
        env={**os.environ, "_STOKER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_are_completed():
    assert completions("stoker queue re") == ["resume"]


def test_queues_are_completed_by_name(client: Client, at: Stoker):
    from click.shell_completion import ShellComplete

    client.push("mail", b"")
    client.push("mails", b"")
    client.push("bills", b"")
    found = ShellComplete(program, {}, "stoker", "_STOKER_COMPLETE").get_completions(["queue", "show"], "ma")
    assert [one.value for one in found] == ["mail", "mails"]


def test_a_queue_that_cannot_be_asked_has_no_names(stoker: Stoker, monkeypatch: pytest.MonkeyPatch):
    from click.shell_completion import ShellComplete

    monkeypatch.setenv("STOKER_URL", "sqlite:///nowhere")
    assert ShellComplete(program, {}, "stoker", "_STOKER_COMPLETE").get_completions(["queue", "show"], "") == []
