"""What the documentation says is so: pages made from the code are up to date, and every example runs.

A reader (`reading.py`) types the examples. On a page that starts a server or a worker, and in the guide, the shell
examples (`sh`) run, too. Examples of other products carry a word behind their language, and are not run. README and the
guide are read where only what they name is installed: see `test_installed.py`.
"""

import re
from pathlib import Path

import pytest

import stoker
from stoker.brokers.remote.settings import RemoteSettings
from stoker.server.auth.settings import JwtKey
from stoker.server.config.tree import NOT_SETTINGS
from stoker.wire import flashq
from tests.reading import Reader, examples
from tests.test_installed import FIRST
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
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MADE, ids=name_of)
def test_a_page_made_from_the_code_is_up_to_date(path: Path):
    assert path.read_text() == MADE[path], "run: python tools/make_docs.py"


def test_nothing_but_made_pages_stands_in_the_reference():
    made = {path for path in MADE if path.parent.name == "reference"}
    assert set((make_docs.DOCS / "reference").iterdir()) == made


@pytest.mark.parametrize("path", [page for page in PAGES if page not in FIRST], ids=name_of)
def test_the_examples_of_a_page_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("STOKER_URL", raising=False)
    reader = Reader(tmp_path)
    first = any(name_of(path).startswith(folder) for folder in FOLDERS)
    try:
        for example in examples(path.read_text(), all_of_them=first):
            reader.type(example.language, example.line, example.code, str(path))
    finally:
        reader.stop()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(path: Path):
    targets = [found["target"] for found in LINK.finditer(path.read_text())]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_an_example_is_found_with_its_line():
    text = "# A page\n\n```python\nx = 1\n```\n\n```\nnot python\n```\n\n```sh\nls\n```\n"
    assert examples(text) == [("python", 3, "x = 1\n", [])]
    served = f"{text}\nGet it: `pip install 'stoker[server]' `.\n\n```sh\nstoker serve\n```\n"
    assert examples(served) == [
        ("python", 3, "x = 1\n", []),
        ("sh", 11, "ls\n", []),
        ("sh", 17, "stoker serve\n", ["stoker[server]"]),
    ]


@pytest.mark.parametrize("command", ["false", "false | true", "echo '{\"ok\":false}'", "nowhere"])
def test_a_shell_example_that_fails_would_be_noticed(command: str, tmp_path: Path):
    with pytest.raises(AssertionError):
        Reader(tmp_path).type("sh", 1, command, str(tmp_path))


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
    assert "| `server.handshake_s` | a time in s | `10.0` | For the handshakes of TLS" in text["configuration.md"]
    assert "| `--count INTEGER RANGE` | How many jobs at most." in text["cli.md"]
    assert (
        "Needs `produce`; may be sent again with `request_key`. REST: `POST /queues/{queue}/jobs`." in text["wire.md"]
    )
    assert "| `payloads` | `list[bytes]` |  |" in text["wire.md"]


def test_every_setting_of_a_server_says_what_it_means():
    rows = [line for line in MADE[make_docs.DOCS / "reference" / "configuration.md"].splitlines() if "| `" in line]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_tables_of_a_list_have_their_fields_in_the_configuration_page():
    text = MADE[make_docs.DOCS / "reference" / "configuration.md"]
    assert "`[[auth.jwt.keys]]`" in text
    assert [name for name in JwtKey.__struct_fields__ if f"| `auth.jwt.keys.{name}` |" not in text] == []


def test_the_settings_that_python_takes_have_a_page_and_a_way_to_import_them():
    text = MADE[make_docs.DOCS / "reference" / "settings.md"]
    for name in ("LocalSettings", "JournalSettings", "BackupSettings", "RemoteSettings", "RedisSettings"):
        kind = getattr(stoker, name)
        assert f"## {name}" in text
        shown = [field for field in kind.__struct_fields__ if f"journal.{field}" not in NOT_SETTINGS]
        assert [field for field in shown if f"| `{field}` |" not in text] == []


def test_the_server_page_names_every_parameter_of_a_url():
    page = (ROOT / "docs" / "server.md").read_text()
    assert [name for name in RemoteSettings.__struct_fields__ if f"`{name}`" not in page] == []
