"""A reader of a page of the documentation, who types its examples one after another.

Python examples run in this process; one that begins with a comment that names a file is saved as that file, as a reader
would do. `stoker serve` is a real one on free ports, which stand in the place of the usual ones from then on, and
`stoker worker` runs until the page ends. TOML must be a configuration.

Run as a program, it reads in an environment of its own, where there is nothing but what the page has had installed: an
example a line comes on standard input, an outcome a line goes to the given descriptor.
"""

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

RUNNING = ("stoker serve", "stoker worker")
"""Commands that go on until they are told to stop."""

ONLY_OUR_PLUGIN = "-p no:schemathesis -p no:hypothesispytest -p no:anyio -p no:cacheprovider"
"""For a pytest inside a test: loading those takes longer than all that it does."""

FENCED = re.compile(r"^```(?P<language>python|sh|toml)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<path>[\w/]+\.py)\n")
INSTALL = re.compile(r"pip install '?(?P<what>[a-z][a-z0-9,\[\]-]*)'?")


class Example(NamedTuple):
    """A block of a page that runs."""

    language: str
    line: int
    """Where it starts."""
    code: str
    installed: list[str]
    """What the page has had its reader install since the block before."""


def examples(text: str, *, all_of_them: bool = False) -> list[Example]:
    serves = all_of_them or any(f"```sh\n{command}" in text for command in RUNNING)
    found, at = [], 0
    for block in FENCED.finditer(text):
        if serves or block["language"] != "sh":
            said = [install["what"] for install in INSTALL.finditer(text, at, block.start())]
            at = block.end()
            found.append(Example(block["language"], text.count("\n", 0, block.start("code")), block["code"], said))
    return found


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
        self._environment = {**own, "PATH": path, "PYTEST_ADDOPTS": ONLY_OUR_PLUGIN}

    def type(self, language: str, line: int, code: str, page: str) -> None:
        for usual, port in zip(("6789", "6790", "6791"), self._ports.values(), strict=True):
            code = code.replace(usual, port)
        if language == "python" and (file := FILE.match(code)):
            self.save(self._directory / file["path"], code)
        elif language == "python":
            exec(compile("\n" * line + code, page, "exec"), self._session)
        elif language == "toml":
            from stoker.server.config import load

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
        """Until every listener is there. What is not installed is not asked for."""
        self.stop_serving()
        missing = {name for name in self._ports if name != "grpc" or importlib.util.find_spec("grpc") is not None}
        listeners = {f"STOKER_{name.upper()}": "127.0.0.1:0" for name in missing}
        environment = {**self._environment, **listeners}
        self._server = subprocess.Popen(
            command.split(), cwd=self._directory, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        too_late = threading.Timer(60, self._server.kill)
        too_late.start()
        try:
            while missing:
                said = self._server.stdout.readline()
                assert said, f"{command!r} ended before it served"
                name, *_, where = said.split()
                self._ports[name] = where.rpartition(":")[2]
                missing.discard(name)
        finally:
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
        from stoker.app.app import App

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


def main(descriptor: int) -> int:
    """Read a page in this process: what to type comes as JSON lines, and after each the outcome is told."""
    sys.path.insert(0, os.getcwd())
    reader = Reader(Path.cwd())
    with os.fdopen(descriptor, "w") as told:
        for line in sys.stdin:
            importlib.invalidate_caches()
            try:
                reader.type(*json.loads(line))
                outcome = ""
            except BaseException:
                outcome = traceback.format_exc()
            print(json.dumps(outcome), file=told, flush=True)
        reader.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
