"""Servers, visitors, and one browser for all tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from stoker.server.dashboard.pages import bulk, jobs
from tests.dashboard.chromium import Tab, browser
from tests.http.support import HttpServer


@pytest.fixture(autouse=True)
def counts_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages stop counting jobs after a moment. The moment is long here, so that a slow machine counts them all."""
    monkeypatch.setattr(bulk, "PREVIEW_S", 60.0)
    monkeypatch.setattr(jobs, "COUNT_S", 60.0)


@pytest.fixture
def serve() -> Iterator[Callable[..., HttpServer]]:
    made: list[HttpServer] = []

    def make(**config: Any) -> HttpServer:
        made.append(HttpServer(**config))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(serve: Callable[..., HttpServer]) -> HttpServer:
    return serve()


class Tokens:
    """A file of tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.auth = AuthSettings(tokens_file=str(path))

    def make(self, name: str = "someone", **more: Any) -> str:
        return create_token(self.path, name=name, now=1.0, **more).text


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("chromium")) as driver:
        yield Tab(driver)


@pytest.fixture
def tab(chromium: Tab, server: HttpServer) -> Iterator[Tab]:
    """The browser, at a server of its own; its console must stay silent."""
    chromium.driver.delete_all_cookies()
    chromium.base = f"http://127.0.0.1:{server.port}"
    chromium.problems()
    yield chromium
    assert chromium.problems() == []
    chromium.leave()
