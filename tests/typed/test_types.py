"""Type checkers find the mistakes of `api.py`, and nothing else in it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "typed" / "api.py"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)


def test_mypy_finds_the_mistakes_and_nothing_else():
    done = run(sys.executable, "-m", "mypy", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_finds_the_mistakes_and_nothing_else():
    pyright = Path(sys.executable).with_name("basedpyright")
    done = run(pyright, "--outputjson", "--project", CASES.parent, "--pythonpath", sys.executable)
    found = json.loads(done.stdout)
    told = [f"{each['range']['start']['line'] + 1}: {each['message']}" for each in found["generalDiagnostics"]]
    assert told == []
    assert found["summary"]["filesAnalyzed"] == 1
