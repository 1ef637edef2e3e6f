"""Hostile text in every field of every page stays text: a page has the same tags as with plain text."""

import time
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from tests.dashboard.furnishing import Furnished, furnish
from tests.dashboard.visitor import Visitor
from tests.http.support import HttpServer

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</title></script><script>alert(1)</script>",
    "\"'><svg onload=alert(1)>",
    "{{7*7}}{% raw %}${7*7}",
    "javascript:alert(1)",
    "'; DROP TABLE jobs; --\r\nset-cookie: a=b",
    "=cmd|' /C calc'!A0 \x1b[31m\u202eevil\u2066",
    "&lt;b&gt;&#x3c;b&#x3e;",
)


class Tags(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "hx-get")]


Pages = tuple[list[tuple[str, Tags]], list[tuple[str, Tags]]]


def seen(server: HttpServer, made: Furnished) -> list[tuple[str, Tags]]:
    visitor = Visitor(server)
    found = []
    for path in made.pages():
        answer = visitor.get(path)
        assert answer.status == 200, path
        assert set(answer.headers) <= KNOWN, "no header is added by a text"
        found.append((path, Tags(answer.text)))
    return found


KNOWN = frozenset(
    "content-type x-content-type-options cache-control content-security-policy x-frame-options referrer-policy"
    " cross-origin-opener-policy cross-origin-resource-policy set-cookie content-length date".split()
)


def within_a_minute(look: Callable[[], Pages]) -> Pages:
    """What was seen while no minute ended: charts get a row with each."""
    for _ in range(20):
        minute = time.time() // 60
        found = look()
        if time.time() // 60 == minute:
            return found
    raise AssertionError("a look takes longer than a minute")


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_text_stays_text(serve, word: str):
    def look() -> Pages:
        plain, hostile = serve(shards=1), serve(shards=1)  # one log has one order
        return seen(plain, furnish(plain)), seen(hostile, furnish(hostile, word))

    expected, found = within_a_minute(look)
    for (path, one), (_, other) in zip(expected, found, strict=True):
        assert one.found == other.found, path
        assert all(link.startswith(("/", "#")) for link in other.links), path


@pytest.mark.parametrize(
    "path",
    [
        "/ui/jobs?state=nonsense",
        "/ui/jobs?after=x",
        "/ui/jobs?queue=%00%ff",
        "/ui/jobs?a",
        "/ui/jobs?queue=a&queue=b",
        "/ui/jobs?workflow=1e999",
        "/ui/jobs?nonsense=1",
        "/ui/jobs?pushed_since=never",
        "/ui/jobs?text=%F0%9F%92%A3&priority=9&worker=w&attempts_from=2&ended_since=1h",
        "/ui/jobs/0",
        "/ui/jobs/-1",
        "/ui/jobs/99999999999999999999999",
        "/ui/jobs/<script>",
        "/ui/queue",
        "/ui/queue?name=../..",
        "/ui/queue?name=<b>",
        "/ui/schedule?queue=a&name=b",
        "/ui/workflows/1",
        "/ui/workflows?state=x",
        "/ui/events?kind=x",
        "/ui/act/nothing",
        "/ui/act/drain",
        "/ui/act/cancel?id=1",
        "/ui/nothing/here",
        "/ui/search?q=%00<img src=x>".replace(" ", "%20"),
        "/ui/search?q=%E2%80%AE",
        "/ui/login?next=//evil",
    ],
)
def test_any_address_gets_a_clear_page(server: HttpServer, path: str):
    answer = Visitor(server).get(path)
    assert answer.status in (200, 400, 404), answer.words
    if answer.status != 200 and not path.endswith("/here"):
        assert "That did not work" in answer.words
        assert "<b>" not in answer.text
        assert "<script>" not in answer.text
        assert "<img src=x>" not in answer.text
