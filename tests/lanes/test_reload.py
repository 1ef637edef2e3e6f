"""Restarting a command when its code has changed, and only then."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from stoker.worker.recycling import Recycling, resident_bytes
from stoker.worker.reload import Code, Reloader, syntax_error

WAIT_S = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up, f"{what} never happened"
        time.sleep(0.005)


class Developing:
    """A reloader beside the test, whose command writes its code's number and its pid."""

    def __init__(self, folder: Path) -> None:
        self.code, self.log = folder / "code.py", folder / "log"
        self.said: list[str] = []
        self.write(1)
        script = f"import sys; sys.path.insert(0, {str(folder)!r}); sys.dont_write_bytecode = True; import code_of_test"
        self.code = folder / "code_of_test.py"
        self.write(1)
        self.reloader = Reloader([sys.executable, "-c", script], [folder], self.said.append, grace_s=5)

    def write(self, number: int, end: str = "time.sleep(60)") -> None:
        """All at once: of half a file the reloader may make a run of its own."""
        whole = self.code.with_suffix(".new")
        whole.write_text(
            f"import os, time\nopen({str(self.log)!r}, 'a').write('{number} ' + str(os.getpid()) + chr(10))\n{end}\n"
        )
        whole.replace(self.code)

    @property
    def runs(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.log.read_text().splitlines()]


@pytest.fixture(params=["told", "looking"])
def developing(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Developing]:
    """Where somebody tells of changes, and where one has to look."""
    if request.param == "looking":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    scene = Developing(tmp_path)
    stopper = threading.Thread(target=act, args=(scene,), daemon=True)
    scene.outcome = None  # type: ignore[attr-defined]
    stopper.start()
    yield scene
    stopper.join(WAIT_S)


def act(scene: Developing) -> None:
    """What somebody does at the keyboard while the reloader has the main thread."""
    try:
        until(lambda: scene.runs == ["1"], "the first run")
        os.utime(scene.code)
        scene.write(1)
        scene.write(2, "this is no Python")
        until(lambda: any("code_of_test.py, line 3" in line for line in scene.said), "the complaint")
        assert scene.runs == ["1"], "touching a file, or breaking it, restarts nothing"
        scene.write(3)
        until(lambda: scene.runs == ["1", "3"], "the second run")
        scene.write(4, "raise SystemExit(5)")
        until(lambda: any("exit code 5" in line for line in scene.said), "the end of the third run")
        scene.write(5)
        until(lambda: scene.runs == ["1", "3", "4", "5"], "the fourth run")
    except BaseException as error:
        scene.outcome = error  # type: ignore[attr-defined]
    finally:
        scene.reloader.stop()


def test_code_that_changed_is_run_again_and_nothing_else_is(developing: Developing):
    developing.reloader.run()
    assert developing.outcome is None, developing.outcome  # type: ignore[attr-defined]
    assert developing.runs == ["1", "3", "4", "5"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in developing.pids)


@pytest.mark.parametrize("way", ["told", "looking"])
def test_what_changes_before_anybody_looks_is_noticed(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch):
    """The command runs by then, perhaps with the code from before."""
    if way == "looking":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.py").write_text("a = 1")
    code, stop = Code([tmp_path]), threading.Event()
    (tmp_path / "a.py").write_text("a = 2")
    assert [tmp_path / "a.py"] in islice(code.changes(stop), 3)


def test_files_outside_of_the_code_are_not_watched(tmp_path: Path):
    (tmp_path / "a.py").write_text("a = 1")
    for folder in (".hidden", "__pycache__", "node_modules"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.py").write_text("b = 1")
    code = Code([tmp_path])
    assert [file.name for file in code._files()] == ["a.py"]
    assert code.changed({tmp_path / "a.py", tmp_path / "notes.txt"}) == []
    (tmp_path / "a.py").write_text("a = 2")
    assert code.changed({tmp_path / "a.py"}) == [tmp_path / "a.py"]
    (tmp_path / "a.py").unlink()
    assert code.changed({tmp_path / "a.py"}) == [tmp_path / "a.py"]


def test_a_syntax_error_names_its_place(tmp_path: Path):
    file = tmp_path / "bad.py"
    file.write_text("x = 1\ndef f(:\n")
    assert f"{file}, line 2: SyntaxError" in syntax_error(file)
    file.write_bytes(b"\xff\xfe\x00")
    assert str(file) in syntax_error(file)
    file.write_text("x = 1\n")
    assert syntax_error(file) == ""


def test_a_process_has_done_enough_by_jobs_or_by_memory():
    assert Recycling().reason(10**9) == ""
    assert Recycling(jobs=10).reason(9) == ""
    assert Recycling(jobs=10).reason(10) == "10 jobs"
    assert "memory" in Recycling(memory_bytes=1).reason(0)
    assert resident_bytes() > 1_000_000
    assert resident_bytes(2**22 + 1) == 0, "a process that is not there has nothing"
