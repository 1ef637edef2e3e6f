"""Restarts a command when its code changes: `stoker dev`.

The worker is a child process, so a restart forgets everything; the old worker gets time to drain. A file that was only
touched restarts nothing. A file with a syntax error is shown, and the old code keeps running.
"""

import hashlib
import importlib.util
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from stoker.worker.parent_death import die_with_parent

TICK_S = 0.3
"""How often files are checked where the system does not report changes, and how soon the end of a child is noticed."""
GRACE_S = 10.0
"""How long the old worker may drain before it is killed."""
SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages"))

Say = Callable[[str], Any]


class Reloader:
    """One command, restarted when a Python file under one of the roots changes."""

    def __init__(
        self, command: Sequence[str], roots: Sequence[str | Path], say: Say, *, grace_s: float = GRACE_S
    ) -> None:
        self._command = list(command)
        self._code = Code(roots)
        self._say = say
        self._grace_s = grace_s
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self) -> int:
        """Run until a signal comes. Returns the exit code of the command."""
        previous = {number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._start()
            for changed in self._code.changes(self._stopping):
                self._look_after_child()
                if changed:
                    self._changed(changed)
            return self._wait()
        finally:
            self._kill()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """The same as SIGTERM. May be called from any thread."""
        self._stopping.set()
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.stop()

    def _start(self) -> None:
        # Its own process group: Ctrl-C in a terminal reaches only this process, which passes it on exactly once.
        self._child = subprocess.Popen(self._command, process_group=0, preexec_fn=_die_with_reloader)
        if self._stopping.is_set():
            self._child.terminate()  # the signal came before there was a child

    def _changed(self, files: list[Path]) -> None:
        broken = [text for text in map(syntax_error, files) if text]
        if broken:
            self._say("\n".join(broken) + "\nnot reloaded: the old code keeps running until this is fixed")
            return
        self._say(f"reloading: {', '.join(sorted(map(_shown, files)))} changed")
        self._end()
        self._start()

    def _look_after_child(self) -> None:
        """Notice a worker that ended by itself, mostly because of an import; the next change starts it again."""
        if self._child is not None and (code := self._child.poll()) is not None:
            self._child = None
            if not self._stopping.is_set():
                self._say(f"the worker ended with exit code {code}: it starts again when the code changes")

    def _end(self) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(self._grace_s)
            except subprocess.TimeoutExpired:
                self._say(f"the worker did not stop within {self._grace_s:g} s and was killed: its jobs will run again")
        self._kill()

    def _wait(self) -> int:
        if self._child is None:
            return 0
        code = self._child.wait()
        self._child = None
        return code

    def _kill(self) -> None:
        if self._child is not None:
            if self._child.poll() is None:
                self._child.kill()
            self._child.wait()
            self._child = None


class Code:
    """The Python files under some directories, and their content when last seen."""

    def __init__(self, roots: Sequence[str | Path]) -> None:
        self._roots = [Path(root).resolve() for root in roots]
        self._seen = {file: digest(file) for file in self._files()}
        self._stamps: dict[Path, tuple[int, int]] = {}

    def changes(self, stop: threading.Event) -> Iterator[list[Path]]:
        """Yields the files that changed, and an empty list every now and then. Ends when told to stop."""
        candidates = self._told(stop) if importlib.util.find_spec("watchfiles") else self._looked(stop)
        for files in candidates:
            yield self.changed(files)

    def changed(self, files: set[Path]) -> list[Path]:
        """The files whose content differs from what was last seen. Remembers the new content."""
        found = []
        for file in sorted(files):
            if file.suffix != ".py":
                continue
            now = digest(file)
            if now != self._seen.get(file):
                found.append(file)
                self._seen[file] = now
        return found

    def _told(self, stop: threading.Event) -> Iterator[set[Path]]:
        import watchfiles

        roots = [root for root in self._roots if root.exists()]
        tick_ms = round(TICK_S * 1000)
        watch = watchfiles.watch(
            *roots,
            watch_filter=watchfiles.PythonFilter(),
            debounce=200,
            stop_event=stop,
            rust_timeout=tick_ms,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        missed = set(self._files())  # the first look finds what changed before watching began
        for changes in watch:
            yield {Path(path) for _, path in changes} | missed
            missed = set()

    def _looked(self, stop: threading.Event) -> Iterator[set[Path]]:
        while not stop.wait(TICK_S):  # the first look finds all files, and what changed before it
            now = {file: stamp(file) for file in self._files()}
            files = {file for file in now.keys() | self._stamps.keys() if now.get(file) != self._stamps.get(file)}
            self._stamps = now
            yield files

    def _files(self) -> Iterator[Path]:
        for root in self._roots:
            if root.is_file():
                yield root
            for folder, names, files in os.walk(root):
                names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
                for file in files:
                    if file.endswith(".py"):
                        yield Path(folder, file)


def digest(file: Path) -> bytes:
    """Hash of the content; empty if the file is gone."""
    try:
        return hashlib.blake2b(file.read_bytes(), digest_size=16).digest()
    except OSError:
        return b""


def stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def syntax_error(file: Path) -> str:
    """What is wrong with a file, in Python's words; empty if nothing is."""
    try:
        compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except FileNotFoundError:
        return ""  # a module that is gone: the module that imports it will say so
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{_shown(file)}{line}: {type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    except OSError as error:
        return f"{_shown(file)} cannot be read: {error}"
    return ""


def _shown(file: Path) -> str:
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def _die_with_reloader() -> None:
    die_with_parent(signal.SIGTERM)
