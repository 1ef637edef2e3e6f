"""What all tests need of their process."""

import gc
import http.client  # noqa: F401  before pytest comes to the folder of this name
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

# A process that was started in the background ignores Ctrl-C, and hands that on to its children: tests that send it to
# themselves or to a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test has written and writes again within a second is not compiled again if there is a file that says what it
# was: the children of tests leave none.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# What is drawn is the same in every run: a suite that fails now and then says nothing. The soak draws anew.
settings.register_profile("suite", derandomize=os.environ.get("STOKER_SOAK") != "1", database=None, deadline=None)
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def home_of_servers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Servers that several tests share live in this run's folder, which pytest clears."""
    os.environ["STOKER_TEST_HOME"] = str(tmp_path_factory.getbasetemp())


def pytest_collection_finish() -> None:
    """The tests themselves are no garbage, and there are thousands of them: nobody has to look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> "PostgresServer":
    """The PostgreSQL that all tests of this process share: see `tests/postgres_server.py`."""
    from tests.postgres_server import shared

    return shared()


@pytest.fixture
def database(postgres: "PostgresServer") -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    from tests.postgres_server import fresh_database

    with fresh_database(postgres) as name:
        yield postgres.url(name)


_SECONDS: dict[str, float] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long each file takes, for `tools/run_tests.py`."""
    name = report.nodeid.partition("::")[0]
    _SECONDS[name] = _SECONDS.get(name, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    path = os.environ.get("TEST_TIMES_FILE")
    if path is not None:
        Path(path).write_text(json.dumps(_SECONDS))
