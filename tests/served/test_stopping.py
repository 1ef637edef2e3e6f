"""`stoker serve` in a process of its own: what signals do to it, and what is there afterwards."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker.model.errors import Unauthenticated, Unreachable
from stoker.model.states import State
from stoker.server.auth.tokens import create_token, revoke_token

QUICK = "?retry_s=0"


class Serve:
    """The command, its first line, and how it ends."""

    def __init__(self, directory: Path, *options: str) -> None:
        listen = ("--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off")
        command = [sys.executable, "-m", "stoker", "serve", "--data", str(directory / "data"), *listen, *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory
        )
        assert self.process.stdout is not None
        self.url = f"tcp://{self.process.stdout.readline().split()[1]}{QUICK}"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors

    def said(self, words: str) -> str:
        """The next line of its log with these words."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if re.search(words, line))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def serve(directory: Path) -> Iterator[Serve]:
    server = Serve(directory)
    yield server
    if server.process.poll() is None:
        server.process.kill()
        server.ended()


def test_sigterm_waits_for_running_jobs_and_ends_well(directory: Path, serve: Serve):
    with stoker.connect(serve.url) as client:
        client.push("q", b"a")
        (job,) = client.pull("q")
        serve.signal(signal.SIGTERM)
        client.ack(job.id, job.token)
    code, errors = serve.ended()
    assert code == 0
    assert "Traceback" not in errors
    with stoker.connect(f"sqlite:///{directory}/data") as client:
        assert client.get_job(job.id).state is State.COMPLETED


def test_a_second_signal_hands_running_jobs_back_and_counts_no_attempt(directory: Path, serve: Serve):
    with stoker.connect(serve.url) as client:
        pushed = client.push("q", b"a").id
        assert len(client.pull("q")) == 1
        serve.signal(signal.SIGTERM)
        client.get_job(pushed)
        serve.signal(signal.SIGTERM)
        code, errors = serve.ended()
    assert code == 0
    assert "handed 1 running jobs back" in errors
    with stoker.connect(f"sqlite:///{directory}/data") as client:
        view = client.get_job(pushed)
        assert (view.state, view.attempts) == (State.WAITING, 0)


def test_a_killed_server_forgets_nothing_that_it_answered(directory: Path, serve: Serve):
    with stoker.connect(serve.url) as client:
        ids = [client.push("q", b"%d" % number).id for number in range(50)]
        serve.process.kill()
        serve.ended()
        with pytest.raises(Unreachable):
            client.get_counts()
    again = Serve(directory)
    with stoker.connect(again.url) as client:
        assert list(client.pull("q", 100).ids) == ids
    again.process.kill()
    again.ended()


def test_sighup_takes_rights_away_from_open_connections(directory: Path):
    file = directory / "tokens.jsonl"
    token = create_token(file, name="worker", now=0)
    server = Serve(directory, "--tokens-file", str(file))
    with stoker.connect(server.url + f"&token={token.text}") as client:
        client.push("q", b"a")
        revoke_token(file, token.record.id)
        server.signal(signal.SIGHUP)
        server.said("again")
        with pytest.raises(Unauthenticated):
            client.push("q", b"b")
    server.signal(signal.SIGTERM)
    assert server.ended()[0] == 0


def test_a_bad_reload_changes_nothing_and_says_why(directory: Path):
    file = directory / "tokens.jsonl"
    token = create_token(file, name="worker", now=0)
    server = Serve(directory, "--tokens-file", str(file))
    file.write_text("this is no token\n")
    server.signal(signal.SIGHUP)
    assert "nothing was reloaded" in server.said("reload")
    with stoker.connect(server.url + f"&token={token.text}") as client:
        assert client.push("q", b"a").id
    server.signal(signal.SIGTERM)
    assert server.ended()[0] == 0
