"""A new user's first hours: the wheel in a fresh environment, and README and the guide as they are written.

What a page has not had its reader install before an example is not there when the example runs.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import stoker
from tests.installing import ROOT, Environment, build, unpack
from tests.reading import Example, examples

FIRST = [ROOT / "README.md", *sorted(ROOT.glob("docs/guide/*.md"))]
BEGINNINGS = ("README.md", "quickstart.md")
"""Where nothing is installed yet. The other pages are for those who have read one of these."""
EXTRAS = {
    "server": ("starlette", "uvicorn", "jwt", "websockets", "httptools", "prometheus_client"),
    "grpc": ("grpc", "grpc_health", "grpc_reflection", "google.protobuf"),
    "otel": ("opentelemetry",),
    "reload": ("watchfiles",),
    "s3": ("obstore",),
    "fastapi": ("fastapi",),
    "django": ("django",),
}
"""What to import of each. `spark` is missing: linking its files would take longer than all the rest."""
TOOLS = ("pytest", "pyspark", "pyarrow", "pydantic", "packaging", "setuptools")
"""What no extra of these should bring."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    place = tmp_path_factory.mktemp("wheel")
    return unpack(build(place), place / "unpacked")


@pytest.fixture
def environment(wheel: Distribution, tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env", wheel)


class Session:
    """A reader in an environment and a directory of its own."""

    def __init__(self, environment: Environment, directory: Path) -> None:
        self._environment = environment
        directory.mkdir()
        told, tell = os.pipe()
        self._process = subprocess.Popen(
            [environment.python, "-P", ROOT / "tests" / "reading.py", str(tell)],
            cwd=directory,
            env=environment.variables,
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=(tell,),
        )
        os.close(tell)
        self._told = os.fdopen(told)

    def type(self, example: Example, page: Path) -> None:
        for requirement in example.installed:
            self._environment.install(requirement)
        assert self._process.stdin is not None
        line = json.dumps([example.language, example.line, example.code, str(page)])
        print(line, file=self._process.stdin, flush=True)
        outcome = self._told.readline()
        assert outcome, "the reader's process ended"
        assert json.loads(outcome) == "", f"{page.name}, line {example.line}:\n{json.loads(outcome)}"

    def close(self) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            assert self._process.wait(120) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._told.close()


@pytest.mark.parametrize("page", FIRST, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_with_only_what_it_has_had_installed(page: Path, environment: Environment, tmp_path: Path):
    if page.name not in BEGINNINGS:
        environment.install("stoker")
    session = Session(environment, tmp_path / "work")
    try:
        for example in examples(page.read_text(), all_of_them=page.name != "README.md"):
            session.type(example, page)
    finally:
        session.close()


# --- what is there, and what is not ------------------------------------------------------------------


def importable(environment: Environment, names: Iterable[str]) -> set[str]:
    script = (
        "import importlib.util, sys\n"
        "def there(name):\n"
        "    try:\n"
        "        return importlib.util.find_spec(name) is not None\n"
        "    except ModuleNotFoundError:\n"
        "        return False\n"
        "print(*filter(there, sys.argv[1:]))\n"
    )
    return set(run(environment, environment.python, "-c", script, *names).split())


def run(environment: Environment, *command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env=environment.variables,
        cwd=environment.bin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_it_is_for(extra: str, environment: Environment):
    environment.install(f"stoker[{extra}]")
    assert importable(environment, EXTRAS[extra]) == {*EXTRAS[extra]}


@pytest.mark.parametrize("extra", ["", "server"])
def test_nothing_is_there_that_was_not_asked_for(extra: str, environment: Environment):
    environment.install(f"stoker[{extra}]")
    names = [name for names in EXTRAS.values() for name in (*names, *TOOLS)]
    assert importable(environment, names) == {*EXTRAS.get(extra, ())}


def test_a_plain_installation_has_every_module_for_users(environment: Environment):
    environment.install("stoker")
    names = [*(door for door in stoker._DOORS if door != "spark"), *stoker.__all__]
    script = "import sys, stoker\nfor name in sys.argv[1:]: getattr(stoker, name)"
    run(environment, environment.python, "-W", "error", "-c", script, *names)
    assert run(environment, environment.bin / "stoker", "--version").split()[-1] == stoker.__version__


def test_a_server_without_grpc_says_how_to_get_it(environment: Environment, tmp_path: Path):
    """And serves everything else: `pip install 'stoker[server]'` is enough for TCP and HTTP."""
    environment.install("stoker[server]")
    command = ["stoker", "serve", "--data", "data", "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with (tmp_path / "said").open("w") as said:
        server = subprocess.Popen(
            command, cwd=tmp_path, env=environment.variables, stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        assert server.stdout is not None
        ports: dict[str, str] = {}
        lines: list[str] = []
        while not {"tcp", "http"} <= ports.keys():
            lines.append(server.stdout.readline())
            assert lines[-1], (tmp_path / "said").read_text()
            ports[lines[-1].split()[0]] = lines[-1].strip().rpartition(":")[2]
        run(environment, "stoker", "push", "mail", "1", "--url", f"tcp://127.0.0.1:{ports['tcp']}")
        run(environment, "stoker", "pull", "mail", "--ack", "--url", f"http://127.0.0.1:{ports['http']}")
        server.terminate()
        lines += server.stdout.readlines()
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()
    assert re.search(r"pip install '?stoker\[[\w,]*grpc", "".join(lines) + (tmp_path / "said").read_text())
