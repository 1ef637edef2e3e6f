"""Every view of a failed job shows the class and the message of its exception."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker import Client
from tests.cli.conftest import Place, Stoker

BOOKS = """
import stoker

app = stoker.App()

@app.job(queue="books", max_attempts=1)
def find(title: str) -> str:
    return {}[title]

@app.job(queue="books", max_attempts=1)
def lose(title: str) -> str:
    raise RuntimeError

@app.job(queue="books", max_attempts=3)
def number(title: str) -> int:
    return object()

@app.job(queue="books", max_attempts=3)
def copy(title: str) -> str:
    return title * 11 * 2**20

@app.job(queue="books", max_attempts=1, kind="process")
def apart(title: str) -> None: ...
"""


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "bookshop.py").write_text(BOOKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "bookshop", raising=False)
    yield
    sys.modules.pop("bookshop", None)


def push(client: Client, name: str, arguments: bytes = b'{"title": "nope"}') -> int:
    return client.push("books", arguments, codec="json", name=name, max_attempts=1).id


@pytest.mark.usefixtures("books")
def test_lists_name_the_exception_and_arguments_that_were_refused(stoker: Stoker, place: Place):
    with place.connect() as client:
        found, lost, unwritten = push(client, "find"), push(client, "lose"), push(client, "number")
        wrong = push(client, "find", b'{"title": 7}')
        apart = push(client, "apart", b'{"title": 7}')
        large = push(client, "copy", b'{"title": "x"}')
        assert stoker("worker", "bookshop:app", "--burst", *place.flags).code == 0
        reasons = {job: client.get_job(job).reason for job in (found, wrong, apart, unwritten, large)}
        view = client.get_job(found)
        assert client.get_dead_stats("books").by_reason["invalid_arguments"] == 2
    assert reasons == {
        found: "max_attempts_exceeded",
        wrong: "invalid_arguments",
        apart: "invalid_arguments",
        unwritten: "invalid_result",
        large: "invalid_result",
    }
    assert (view.error_class, view.error, view.history[0].error_class) == ("KeyError", "'nope'", "KeyError")
    for command in (["job", "list", "--queue", "books"], ["dlq", "list", "books"]):
        rows = {line.split()[0]: line for line in stoker(*command, *place.flags).out.splitlines()[1:]}
        assert "KeyError: 'nope'" in rows[str(found)]
        assert rows[str(lost)].rstrip().endswith(" RuntimeError")
        assert "invalid_arguments" in rows[str(wrong)]
        assert "BadArguments: find: title: expected `str`, got `int`" in rows[str(wrong)]
    for look in ("show", "why", "story"):
        assert "KeyError: 'nope'" in stoker("job", look, found, *place.flags).out
    assert json.loads(stoker("job", "show", found, "--json", *place.flags).out)["error_class"] == "KeyError"
