"""Fixtures for pytest. It is loaded in every run where Stoker is installed, so it imports nothing before it is used.

# pyproject.toml                        [tool.pytest.ini_options]
#                                       stoker_app = "shop.jobs:app"
def test_a_new_user_gets_mail(stoker_world):
    welcome.push_sync(7)
    stoker_world.drain().check()
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stoker.app.app import App
    from stoker.testing.app_harness import Harness

INI = "stoker_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, 'The App that the fixture stoker_world runs, as "module:name".', default="")


@pytest.fixture
def stoker_app(pytestconfig: pytest.Config) -> "App":
    """The App under test: the one named by `stoker_app` in pytest's configuration, or an empty one.

    Override it in conftest.py where one setting for all tests is not enough.
    """
    from stoker.app.app import App
    from stoker.app.errors import CannotLoad
    from stoker.app.loading import load_app

    named = str(pytestconfig.getini(INI))
    if not named:
        return App("memory://")
    try:
        return load_app(named, directory=str(pytestconfig.rootpath))
    except CannotLoad as error:
        raise pytest.UsageError(f"{INI} = {named!r} in pytest's configuration: {error}") from error


@pytest.fixture
def stoker_world(stoker_app: "App") -> "Iterator[Harness]":
    """The App over an engine in memory, under a clock that only the test moves; restored afterwards."""
    from stoker.testing.app_harness import harness

    with harness(stoker_app) as world:
        yield world
