"""What the documentation says is so: pages made from the code are up to date, and every example runs.

Python examples run in this process; one that begins with a comment that names a file is saved as that file, as a reader
would do. On a page that starts a server or a worker, and in the guide, the shell examples (`sh`) run, too: `stoker
serve` is a real one on free ports, which stand in the place of the usual ones from then on, and `stoker worker` runs
until the page ends. TOML must be a configuration. Examples of other products carry a word behind their language, and
are not run.
"""

import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stoker.app.app import App
from stoker.brokers.remote.settings import RemoteSettings
from stoker.server.config import load
from stoker.wire import flashq
from tests.examples.processes import ONLY_OUR_PLUGIN
from tests.wire.flashq_peer import Peer
from tools import make_docs, wire_page

ROOT = Path(__file__).parent.parent
MADE = make_docs.pages()
FOLDERS = ("docs/guide", "docs/migrating")
"""Whose pages are a reader's first: nothing in them is only for show."""
PAGES = [
    *ROOT.glob("README.md"),
    *sorted(ROOT.glob("docs/*.md")),
    *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/*.md"))),
]
RUNNING = ("stoker serve", "stoker worker")
"""Commands that go on until they are told to stop."""

FENCED = re.compile(r"^```(?P<language>python|sh|toml)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<path>[\w/]+\.py)\n")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def examples(text: str, *, all_of_them: bool = False) -> list[tuple[str, int, str]]:
    """The blocks of a page that run, each with its language and the line that it starts at."""
    serves = all_of_them or any(f"```sh\n{command}" in text for command in RUNNING)
    return [
        (found["language"], text.count("\n", 0, found.start("code")), found["code"])
        for found in FENCED.finditer(text)
        if serves or found["language"] != "sh"
    ]


class Reader:
    """Somebody who types the examples of a page, one after another: a block may go on where the one before it ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._session: dict[str, object] = {"__name__": "__main__"}
        self._server: subprocess.Popen[str] | None = None
        self._workers: list[subprocess.Popen[str]] = []
        self._ports = {"tcp": "6789", "http": "6790", "grpc": "6791"}
        own = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        listeners = {f"STOKER_{name.upper()}": "127.0.0.1:0" for name in self._ports}
        self._environment = {**own, "PATH": path, "PYTEST_ADDOPTS": ONLY_OUR_PLUGIN, **listeners}

    def type(self, language: str, line: int, code: str, page: Path) -> None:
        for usual, port in zip(("6789", "6790", "6791"), self._ports.values(), strict=True):
            code = code.replace(usual, port)
        if language == "python" and (file := FILE.match(code)):
            self.save(self._directory / file["path"], code)
        elif language == "python":
            exec(compile("\n" * line + code, str(page), "exec"), self._session)
        elif language == "toml":
            (self._directory / "example.toml").write_text(code)
            load(file=self._directory / "example.toml", environ={}, directory=self._directory)
        elif code.startswith("stoker serve") and "--show-config" not in code:
            self.serve(code)
        elif code.startswith("stoker worker"):
            self.work(code)
        else:
            shell = ["bash", "-eu", "-o", "pipefail", "-c", code]
            done = subprocess.run(
                shell, cwd=self._directory, env=self._environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, f"line {line}: {done.stdout}{done.stderr}"
            assert '"ok":false' not in done.stdout, f"line {line}: {done.stdout}"

    def serve(self, command: str) -> None:
        self.stop_serving()
        words = command.split()
        self._server = subprocess.Popen(
            words, cwd=self._directory, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        too_late = threading.Timer(60, self._server.kill)
        too_late.start()
        while "grpc" not in (said := self._server.stdout.readline()):
            assert said, f"{command!r} ended before it served"
            name, *_, where = said.split()
            self._ports[name] = where.rpartition(":")[2]
        self._ports["grpc"] = said.strip().rpartition(":")[2]
        too_late.cancel()

    def save(self, file: Path, code: str) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
        importlib.invalidate_caches()

    def work(self, command: str) -> None:
        """Until it says that it works, as a reader would: pages give it seconds for a result, and none to start."""
        words = command.partition("#")[0].split()
        said = self._directory / f".worker-{len(self._workers)}"
        with said.open("w") as errors:
            worker = subprocess.Popen(words, cwd=self._directory, env=self._environment, stderr=errors, text=True)
        self._workers.append(worker)
        for _ in range(6_000):
            if "job type" in said.read_text():
                return
            assert worker.poll() is None, f"{command!r} ended: {said.read_text()}"
            time.sleep(0.01)
        raise AssertionError(f"{command!r} does not begin: {said.read_text()}")

    def stop(self) -> None:
        try:
            for name in [name for name, module in sys.modules.items() if self._is_mine(module)]:
                for value in list(vars(sys.modules.pop(name)).values()):
                    if isinstance(value, App):
                        value.close()
            for worker in self._workers:
                worker.send_signal(signal.SIGTERM)
            assert [worker.wait(60) for worker in self._workers] == [0] * len(self._workers)
        finally:
            for worker in self._workers:
                worker.kill()
            self.stop_serving()

    def _is_mine(self, module: object) -> bool:
        """Whether it was imported from a file of the page."""
        return str(getattr(module, "__file__", None) or "").startswith(str(self._directory))

    def stop_serving(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(signal.SIGTERM)
            server.send_signal(signal.SIGTERM)  # without waiting for jobs that an example has left running
            try:
                assert server.wait(60) == 0
            finally:
                server.kill()
                assert server.stdout is not None
                server.stdout.close()


@pytest.mark.parametrize("path", MADE, ids=name_of)
def test_a_page_made_from_the_code_is_up_to_date(path: Path):
    assert path.read_text() == MADE[path], "run: python tools/make_docs.py"


def test_nothing_but_made_pages_stands_in_the_reference():
    made = {path for path in MADE if path.parent.name == "reference"}
    assert set((make_docs.DOCS / "reference").iterdir()) == made


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_examples_of_a_page_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("STOKER_URL", raising=False)
    reader = Reader(tmp_path)
    first = any(name_of(path).startswith(folder) for folder in FOLDERS)
    try:
        for language, line, code in examples(path.read_text(), all_of_them=first):
            reader.type(language, line, code, path)
    finally:
        reader.stop()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(path: Path):
    targets = [found["target"] for found in LINK.finditer(path.read_text())]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_an_example_is_found_with_its_line():
    text = "# A page\n\n```python\nx = 1\n```\n\n```\nnot python\n```\n\n```sh\nls\n```\n"
    assert examples(text) == [("python", 3, "x = 1\n")]
    served = f"{text}\n```sh\nstoker serve\n```\n"
    assert examples(served) == [("python", 3, "x = 1\n"), ("sh", 11, "ls\n"), ("sh", 15, "stoker serve\n")]


@pytest.mark.parametrize("command", ["false", "false | true", "echo '{\"ok\":false}'", "nowhere"])
def test_a_shell_example_that_fails_would_be_noticed(command: str, tmp_path: Path):
    with pytest.raises(AssertionError):
        Reader(tmp_path).type("sh", 1, command, tmp_path)


def test_the_commands_of_the_wire_answer_with_the_fields_that_the_reference_names():
    """To a client of flashQ, too, which gets more fields than one that says hello."""
    peer = Peer()
    for request in wire_page.LIFE:
        answer = peer(**request)
        named = set(wire_page.answers_of(flashq.ROWS[request["cmd"]]))
        assert answer.keys() <= named | {"ok", "success", "reqId", "error", "code"}


def test_the_pages_say_what_the_code_says():
    """A parser that silently finds nothing would keep its pages up to date, too."""
    text = {path.name: content for path, content in MADE.items()}
    assert "    active --> completed: acknowledged" in text["states.md"]
    assert "| `lease_ms` | `int` | `30_000` | A delivery that is not renewed" in text["options.md"]
    assert "Answers with `Delivery` (`token`, `runs`, `next_at`)." in text["commands.md"]
    assert "| `closed` | `Closed` | `Unavailable` | yes | this broker was closed |" in text["errors.md"]
    assert "| `tags_max` | `32` |" in text["limits.md"]
    assert "- `cancel_requested`" in text["events.md"]
    assert "| `server.handshake_s` | a time in s | `10.0` | From the connection" in text["configuration.md"]
    assert "| `--count INTEGER RANGE` | How many jobs at most." in text["cli.md"]
    assert (
        "Needs `produce`; may be sent again with `request_key`. REST: `POST /queues/{queue}/jobs`." in text["wire.md"]
    )
    assert "| `payloads` | `list[bytes]` |  |" in text["wire.md"]


def test_the_server_page_names_every_parameter_of_a_url():
    page = (ROOT / "docs" / "server.md").read_text()
    assert [name for name in RemoteSettings.__struct_fields__ if f"`{name}`" not in page] == []
