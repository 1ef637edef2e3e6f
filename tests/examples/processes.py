"""An example in a directory of its own, and the processes that its reader would start there."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.reading import ONLY_OUR_PLUGIN

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SECONDS = 60
LISTENING = re.compile(r"running on (?P<url>http://127\.0\.0\.1:\d+)")


class Terminal:
    """Runs commands in a copy of an example; whatever still runs at the end is told to stop, and must do so well."""

    def __init__(self, directory: Path, example: str) -> None:
        self.directory = directory / "example"
        shutil.copytree(EXAMPLES / example, self.directory, ignore=shutil.ignore_patterns("__pycache__", "*.db"))
        own = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        self._environment = {**own, "PATH": path, "PYTHONUNBUFFERED": "1", "PYTEST_ADDOPTS": ONLY_OUR_PLUGIN}
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            for process in self._running:
                process.send_signal(signal.SIGTERM)
            ends = [process.wait(SECONDS) for process in self._running]
        finally:
            for process in self._running:
                process.kill()
                if process.stderr is not None:
                    process.stderr.close()
        assert set(ends) <= {0, -signal.SIGTERM}, ends  # uvicorn sends the signal to itself once it is done

    @property
    def url(self) -> str:
        """Of the queue that the processes share."""
        return f"sqlite:///{self.directory}/stoker.db"

    def run(self, *words: str, **more: str) -> str:
        """A command that ends; what it said."""
        done = subprocess.run(
            words,
            cwd=self.directory,
            env=self._environment | more,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *words: str, **more: str) -> None:
        """A command that goes on."""
        self._running.append(subprocess.Popen(words, cwd=self.directory, env=self._environment | more, text=True))

    def serve(self, *words: str, **more: str) -> str:
        """uvicorn on a free port; its address."""
        process = subprocess.Popen(
            ("uvicorn", *words, "--port", "0"),
            cwd=self.directory,
            env=self._environment | more,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        assert process.stderr is not None
        too_late = threading.Timer(SECONDS, process.kill)
        too_late.start()
        said = ""
        for line in process.stderr:
            said += line
            if found := LISTENING.search(line):
                too_late.cancel()
                threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it never blocks
                return found["url"]
        too_late.cancel()
        raise AssertionError(f"uvicorn ended before it served:\n{said}")
