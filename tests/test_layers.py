"""Imports point one way, and the pure packages stay pure.

The contracts themselves stand in pyproject.toml. Here they are run, together with what they cannot say: what the
pure packages may import at all, and what loading the client really loads.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "stoker"

PURE_PACKAGES = ("model", "records", "engine")

# What code without time, chance, threads, I/O and logs can need. A list of what is allowed, because a list of what is
# not would never be complete. Adding to it is fine for a module that always answers the same to the same arguments.
PURE_IMPORTS = frozenset(
    """
    __future__ abc array base64 binascii bisect collections contextlib copy dataclasses difflib enum functools hashlib
    heapq itertools json keyword math msgspec operator re stoker string struct sys types typing zlib
    """.split()
)


def imported_roots(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level name of each import, wherever in the file it stands; relative ones stay inside stoker."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "stoker" if node.level else (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield node.lineno, "__import__"


def impure_imports(source: str) -> list[tuple[int, str]]:
    return [(line, name) for line, name in imported_roots(source) if name not in PURE_IMPORTS]


def modules_loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads for this statement."""
    script = f"import sys; before = set(sys.modules)\n{statement}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_imports_follow_the_contracts():
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint_imports, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_a_place_in_the_contracts():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    placed = {
        name
        for contract in contracts
        if contract["type"] == "layers"
        for layer in contract["layers"]
        for name in re.findall(r"stoker\.(\w+)", layer)
    }
    packages = {init.parent.name for init in SOURCE.glob("*/__init__.py")}
    assert packages, f"no packages in {SOURCE}"
    assert packages <= placed, f"name them in [tool.importlinter]: {sorted(packages - placed)}"


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_pure_packages_import_nothing_with_a_will_of_its_own(package: str):
    files = sorted((SOURCE / package).rglob("*.py"))
    assert files, f"no code in {package}"
    found = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in files
        for line, name in impure_imports(file.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import heapq, random",
        "import os.path as heapq",
        "from datetime import datetime",
        "from asyncio.events import get_running_loop",
        "def later():\n    import logging",
        "if TYPE_CHECKING:\n    import socket",
        "__import__('threading')",
        "from importlib import import_module",
    ],
)
def test_no_spelling_of_an_impure_import_slips_through(source: str):
    assert impure_imports(source)


def test_pure_imports_pass():
    assert not impure_imports("import heapq\nfrom collections.abc import Iterator\nfrom . import x")


@pytest.mark.parametrize("module", ["stoker", "stoker.client", "stoker.brokers"])
def test_the_client_loads_without_the_engine(module: str):
    """A program that talks to a server pays neither for the engine nor for anything but msgspec."""
    loaded = modules_loaded_by(f"import {module}")
    queue_side = ("stoker.engine", "stoker.journal", "stoker.runtime", "stoker.brokers.local")
    assert not [name for name in loaded if name.startswith(queue_side)]
    others = loaded - modules_loaded_by("import msgspec")  # which takes typing_extensions along where it finds it
    assert {name.partition(".")[0] for name in others} - sys.stdlib_module_names <= {"stoker", "msgspec"}
