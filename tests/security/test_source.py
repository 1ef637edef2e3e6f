"""S6, S17, S23: ways of doing things that no code of ours may have, found by reading all of it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker

SOURCE = Path(stoker.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")))

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "yaml", "jsonpickle", "xmlrpc"}
"""Whatever reads these may run what was written there."""
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}
IMPORTERS = {"import_module", "__import__", "spec_from_file_location", "load_module", "exec_module", "find_spec"}
SHELLS = {"system", "popen", "getoutput", "getstatusoutput"}
LOADS = "import_module of something computed"
CHOSEN_FROM_A_TABLE = {
    "__init__.py": [LOADS, LOADS],
    "cli/main.py": [LOADS],
    "server/packages.py": ["find_spec of something computed"],
    "spark/__init__.py": [LOADS],
    "testing/__init__.py": [LOADS],
}
"""They load the module that their own table names for a word that is in that table."""
NAMED_BY_WHOEVER_STARTED_IT = {
    "app/importing.py": [LOADS],
    "worker/process_imports.py": [LOADS, LOADS],
    "worker/reload.py": ["compile"],
}
"""A worker loads the program that it was started for, and its processes load the same; nothing of a job decides it."""
SECRET_WORDS = ("secret", "token", "signature", "digest", "hash", "password", "credential", "hmac", "seal")
PUBLIC_WORDS = ("token_id", "tokens_file", "algorithm", "hash_algorithm", "needs_tokens")
SECRET_PLACES = (SOURCE / "server" / "auth", SOURCE / "server" / "webhooks")


def trees(files: list[Path] = FILES) -> Iterator[tuple[Path, ast.Module]]:
    for path in files:
        yield path, ast.parse(path.read_text(), str(path))


def name_of(node: ast.expr) -> str:
    """`x.y` is called `y`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or ""] if (node.module or "").split(".")[0] in UNSAFE_MODULES else []
        elif isinstance(node, ast.Call):
            called = name_of(node.func)
            is_builtin = isinstance(node.func, ast.Name) and called in UNSAFE_CALLS
            is_shell = called in SHELLS and isinstance(node.func, ast.Attribute) and name_of(node.func.value) == "os"
            shell = [word for word in node.keywords if word.arg == "shell" and not is_false(word.value)]
            found += [called] if is_builtin or is_shell or shell else []
            if called in IMPORTERS and not all(isinstance(arg, ast.Constant) for arg in node.args):
                found.append(f"{called} of something computed")
    return found


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def compares_secrets(tree: ast.Module) -> list[str]:
    """Comparisons with `==` or `!=`, or `in`, of what is called like a secret with what is no literal."""
    found: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) for side in sides):
            continue
        names = [name_of(side.func if isinstance(side, ast.Call) else side).lower() for side in sides]
        if any(word in name for name in names for word in SECRET_WORDS if name not in PUBLIC_WORDS):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_there_is_something_to_read():
    assert len(FILES) > 100
    assert all(place.is_dir() for place in SECRET_PLACES)


def test_nothing_reads_what_could_run_and_nothing_runs_what_was_read():
    assert {str(path.relative_to(SOURCE)): unsafe(tree) for path, tree in trees() if unsafe(tree)} == {
        **CHOSEN_FROM_A_TABLE,
        **NAMED_BY_WHOEVER_STARTED_IT,
    }


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from yaml import load",
        "import marshal as m",
        "eval(text)",
        "exec(code)",
        "__import__(name)",
        "importlib.import_module(name)",
        "import_module(message['path'])",
        "os.system(command)",
        "subprocess.run(command, shell=True)",
    ],
)
def test_the_reading_finds_what_it_looks_for(text: str):
    assert unsafe(ast.parse(text)) != []


def test_the_reading_lets_pass_what_is_harmless():
    harmless = "import json\nimport_module('stoker.x')\nre.compile(p)\nsubprocess.run(x, shell=False)"
    assert unsafe(ast.parse(harmless)) == []


def test_no_secret_is_compared_in_a_time_that_tells_something():
    files = [path for path in FILES if any(place in path.parents for place in SECRET_PLACES)]
    assert len(files) > 15
    found = {str(path.relative_to(SOURCE)): compares_secrets(tree) for path, tree in trees(files)}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_secrets_are_compared_where_they_are_proved():
    """The control: the right way is really used."""
    users = [path.name for path in FILES if "compare_digest" in path.read_text()]
    assert {"tokens.py", "entitlements.py"} <= set(users)


@pytest.mark.parametrize(
    "text", ["token == given", "if record.hash != _hash(secret): pass", "x = self.signature == y", "a == seal(b)"]
)
def test_a_comparison_of_secrets_would_be_found(text: str):
    assert compares_secrets(ast.parse(text)) != []


def test_other_comparisons_are_let_pass():
    assert compares_secrets(ast.parse("token == ''\nname == other\nhmac.compare_digest(a, b)")) == []
