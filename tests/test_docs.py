"""What the documentation says is so: pages made from the code are up to date, and every Python example runs."""

import re
from pathlib import Path

import pytest

from tools import make_docs

ROOT = Path(__file__).parent.parent
MADE = make_docs.pages()
PAGES = [*ROOT.glob("README.md"), *sorted(ROOT.glob("docs/*.md"))]

FENCED = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def examples(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line that it starts at."""
    return [(text.count("\n", 0, found.start("code")), found["code"]) for found in FENCED.finditer(text)]


@pytest.mark.parametrize("path", MADE, ids=name_of)
def test_a_page_made_from_the_code_is_up_to_date(path: Path):
    assert path.read_text() == MADE[path], "run: python tools/make_docs.py"


def test_nothing_but_made_pages_stands_in_the_reference():
    made = {path for path in MADE if path.parent.name == "reference"}
    assert set((make_docs.DOCS / "reference").iterdir()) == made


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_examples_of_a_page_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One after another, as a reader would type them: a block may go on where the one before it ended."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in examples(path.read_text()):
        exec(compile("\n" * line + code, str(path), "exec"), namespace)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(path: Path):
    targets = [found["target"] for found in LINK.finditer(path.read_text())]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_an_example_is_found_with_its_line():
    text = "# A page\n\n```python\nx = 1\n```\n\n```\nnot python\n```\n\n```python\nassert x\n```\n"
    assert examples(text) == [(3, "x = 1\n"), (11, "assert x\n")]


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
