"""`stoker worker` and `stoker dev`: an app in a file becomes a process that works."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from stoker import Client, connect
from stoker.cli import exit_codes
from stoker.cli.worker import address_of, queues_from, recycling_from
from tests.cli.conftest import Stoker

SHOP = """
import stoker

app = stoker.App()

@app.job(queue="mail", aliases=["greet"])
async def welcome(user_id: int) -> str:
    return f"hello {user_id}"

@app.job(queue="bills", max_attempts=1)
def charge(order: int) -> None:
    raise ValueError(f"order {order} is not paid")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


class Running:
    """A command in a process of its own, whose lines are read as they come."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stoker.cli.main", *arguments],
            cwd=cwd,
            env={**own, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        self._late = threading.Timer(300, self.process.kill)
        self._late.start()

    def until(self, text: str) -> str:
        """The line with this text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}: {self.said}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        self._late.cancel()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(*arguments: str, cwd: Path) -> Iterator[Running]:
    made = Running(*arguments, cwd=cwd)
    try:
        yield made
    finally:
        made.close()


def result_of(client: Client, user: int) -> bytes | None:
    """Of a welcome that is pushed now."""
    job = client.push("mail", b'{"user_id": %d}' % user, codec="json", name="welcome").id
    ended = client.wait_job(job, 60_000)
    assert ended.finished, "nobody ran it"
    return ended.result


def test_an_app_can_be_looked_at_without_running_it(stoker: Stoker, shop: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(shop))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    lines = [line.split() for line in stoker("worker", "shop:app", "--check").out.splitlines()]
    sys.modules.pop("shop", None)  # for good: other tests have a shop of their own
    assert lines[1] == ["welcome", "mail", "async", "3", "greet", "shop:welcome"]
    assert lines[2][:4] == ["charge", "bills", "thread", "1"]
    assert not (shop / "stoker.db").exists()


WRONG = """
import stoker

app = stoker.App({url!r})

@app.schedule("61 8 * * *")
@app.job
def cron() -> None: ...

@app.schedule("0 8 * * *", zone="Europe/Wien")
@app.job
def zone() -> None: ...

@app.schedule(every="5m")
@app.job
def arguments(drink: str) -> None: ...

app.schedule(every="5m", name="types")(arguments.s(7))

@app.schedule(every="5m", overlap="never")
@app.job
def overlap() -> None: ...

@app.job(queue="no name!")
def queue() -> None: ...

@app.job(max_attempts=-1)
def attempts() -> None: ...

@app.job(backoff=stoker.Backoff(kind="sometimes"))
def backoff() -> None: ...

@app.job(tags=["x" * 10_000])
def tags() -> None: ...

@app.job
def fine() -> None: raise AssertionError("a check runs nothing")
"""


@pytest.fixture
def project(tmp_path: Path, stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose modules the command line finds, and forgets."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_check_finds_everything_that_a_start_would(stoker: Stoker, project: Path):
    (project / "wrong_shop.py").write_text(WRONG.format(url=f"sqlite:///{project}/queue"))
    outcome = stoker("worker", "wrong_shop:app", "--check")
    assert (outcome.code, outcome.out) == (exit_codes.FAILED, "")
    lines = outcome.err.splitlines()
    named = [line.removeprefix("error: ").partition(":")[0] for line in lines]
    wrong_jobs = ["queue", "attempts", "backoff", "tags"]
    assert named == [
        *(f"job {name}" for name in wrong_jobs),
        *(f"schedule {name}" for name in ("cron", "zone", "arguments", "types", "overlap")),
    ]
    told = dict(zip(named, lines, strict=True))
    assert "61 8 * * *" in told["schedule cron"]
    assert "Europe/Wien" in told["schedule zone"]
    assert "drink" in told["schedule arguments"]
    assert "drink" in told["schedule types"]
    assert "max_attempts" in told["job attempts"]
    assert not (project / "queue").exists(), "the app's own queue is not touched"


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        ("import nowhere_at_all\n", (), "imports 'nowhere_at_all'"),
        ("import stoker\nstoker.RetryPolicy(retry_on='KeyError')\n", (), "'KeyError' is not an exception class"),
        ("import stoker\napp = stoker.App()\n", (), "this worker has no handlers"),
        ("import stoker\napp = stoker.App()\n@app.job\ndef a(): ...\n", ("--queue", "a b"), "a b"),
        ("import stoker\napp = stoker.App()\n@app.job\ndef a(): ...\n", ("--job", "b"), "no job 'b'"),
        ("import stoker\napp = stoker.App()\n@app.job\ndef a(): ...\n", ("--tenant", "a b"), "tenant"),
        ("import stoker\napp = stoker.App(include=['nowhere_b'])\n", (), "there is no module 'nowhere_b'"),
        (
            "import stoker\napp = stoker.App()\ndef make():\n    @app.job(kind='process')\n    def a(): ...\nmake()\n",
            (),
            "move it to module level (",
        ),
    ],
)
def test_a_check_of_what_cannot_start_exits_with_1(stoker: Stoker, project: Path, text: str, flags, told: str):
    (project / "cannot_start.py").write_text(text)
    outcome = stoker("worker", "cannot_start:app", "--check", *flags)
    assert outcome.code == exit_codes.FAILED
    assert told in outcome.err


def test_a_module_that_cannot_be_imported_shows_its_traceback(stoker: Stoker, project: Path):
    (project / "raising_shop.py").write_text("import stoker\n\nprint(1 / 0)\n")
    outcome = stoker("worker", "raising_shop:app")
    assert outcome.code == exit_codes.USAGE
    lines = outcome.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'raising_shop.py", line 3, in <module>' in lines[1]
    assert "raising_shop.py, line 3" in lines[-1]
    assert lines[-1].endswith("(cannot_load)")


@pytest.mark.parametrize("target", ["nowhere:app", "json:app", "shop.py:app", ""])
def test_an_app_that_cannot_be_loaded_is_wrong_usage(stoker: Stoker, target: str):
    outcome = stoker("worker", target)
    assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")
    assert outcome.err.endswith("(cannot_load)\n")


@pytest.mark.parametrize(
    "flags",
    [
        ["--queue", "mail=0"],
        ["--queue", "mail=x"],
        ["--weight", "mail=2"],
        ["--health", "here"],
        ["--recycle-memory", "much"],
        ["--concurrency", "0"],
    ],
)
def test_settings_that_make_no_sense_are_wrong_usage(stoker: Stoker, flags: list[str]):
    assert stoker("worker", "stoker.demo.jobs:app", *flags).code == exit_codes.USAGE


def test_what_the_options_mean_to_a_worker():
    found = queues_from(["mail=20", "bills"], ["bills=3"])
    assert found is not None
    assert (found["mail"].concurrency, found["mail"].weight) == (20, 1)
    assert (found["bills"].concurrency, found["bills"].weight) == (None, 3)
    assert queues_from([], []) is None
    assert address_of("8080") == ("127.0.0.1", 8080)
    assert address_of("[::]:8080") == ("::", 8080)
    with pytest.raises(click.BadParameter):
        address_of("host:99999")
    assert (recycling_from(5, "1MiB").jobs, recycling_from(None, "1MiB").memory_bytes) == (5, 1 << 20)


def test_a_burst_works_off_what_is_there(shop: Path):
    with connect(f"sqlite:///{shop}/stoker.db") as client:
        good = client.push("mail", b'{"user_id": 7}', codec="json", name="greet").id
        bad = client.push("bills", b"[1]", codec="json", name="charge", max_attempts=1).id
        with running("worker", "shop:app", "--burst", cwd=shop) as worker:
            assert "settled 2 deliveries" in worker.until("no job is ready any more")
            assert worker.process.wait(60) == 0
        assert client.get_result(good) is not None
        assert client.get_job(bad).error == "order 1 is not paid"


def test_a_worker_tells_of_its_health_and_drains_on_sigterm(shop: Path):
    url = f"sqlite:///{shop}/elsewhere.db"
    flags = ["--url", url, "--name", "w-1", "--queue", "mail=5", "--health", "0", "--log-format", "json"]
    with connect(url) as client, running("worker", "shop:app", *flags, cwd=shop) as worker:
        assert json.loads(worker.until("w-1"))["level"] == "info"
        assert result_of(client, 7) == b"\xa7hello 7"
        (listed,) = client.list_workers()
        assert (listed.id, listed.queues) == ("w-1", ("mail",))
        assert worker.stop() == 0
        assert client.list_workers() == []


def test_a_worker_says_at_once_that_nobody_answers(shop: Path):
    with running("worker", "shop:app", "--url", "tcp://127.0.0.1:1", cwd=shop) as worker:
        assert "trying again until the server answers" in worker.until("127.0.0.1:1")
        worker.process.send_signal(signal.SIGTERM)


def test_dev_serves_works_and_reloads(shop: Path):
    flags = ["--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with running("dev", "shop:app", *flags, cwd=shop) as dev:
        tcp, http = (dev.until(f"server  {name}").split()[-1] for name in ("tcp", "http"))
        with urllib.request.urlopen(f"{http}/health", timeout=30) as answer:
            assert json.load(answer)["ok"]
        with connect(f"tcp://{tcp}") as client:
            assert result_of(client, 7) == b"\xa7hello 7"
            (shop / "shop.new").write_text(SHOP.replace("hello", "good day"))
            (shop / "shop.new").replace(shop / "shop.py")  # all at once: half a file would be a change, too
            dev.until("reloading: shop.py changed")
            dev.until("2 job types of shop:app")  # the new one: the old one said so before it ran anything
            assert result_of(client, 8) == b"\xaagood day 8"
        assert dev.stop() == 0


def test_dev_says_why_its_server_does_not_start(shop: Path):
    with running("dev", "shop:app", "--tcp", "127.0.0.1:99999", cwd=shop) as dev:
        dev.until("the server did not start")
        assert dev.process.wait(60) == exit_codes.USAGE


@pytest.mark.parametrize("flags", [["--url", "memory://"], ["--watch", "nowhere"]])
def test_dev_refuses_what_cannot_work(stoker: Stoker, flags: list[str]):
    assert stoker("dev", "shop:app", *flags).code == exit_codes.USAGE
