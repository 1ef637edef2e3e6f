"""Ten thousand dead letters are retried from the browser: with a preview, stopped, and resumed over a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from tests.dashboard.chromium import Tab
from tests.dashboard.test_ui_command import running
from tests.ports import kept_port

LETTERS = 10_000
BATCH = 1_000


def fill(url: str) -> None:
    with stoker.connect(url) as client:
        for _ in range(LETTERS // BATCH):
            client.push_batch("payments", [b"{}"] * BATCH, max_attempts=1)
            pulled = client.pull("payments", BATCH)
            client.fail_batch(list(pulled.ids), pulled.token, error="card declined: order 17")


def is_counted(tab: Tab) -> bool:
    """A preview counts for two seconds. A reader who wants to know more loads it again."""
    if tab.text(".hits").startswith("10,000 jobs"):
        return True
    tab.driver.refresh()
    return False


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


def test_many_dead_letters_are_retried_stopped_and_resumed_over_a_restart(chromium: Tab, port: int, tmp_path: Path):
    tab = chromium
    command = ("serve", "--data", "data", "--tcp", "off", "--grpc", "off", "--http")
    where = f"127.0.0.1:{port}"
    tab.base = f"http://{where}"
    with running(tmp_path, *command, where):
        fill(tab.base)
        tab.open("/ui/dead")
        tab.click("Retry")
        tab.until(lambda: is_counted(tab), "a count of all")
        tab.until_text("card declined: order 17")
        tab.fill("#rate", "100")  # it would take more than a minute: no browser is too slow to stop it
        tab.click("Retry")
        tab.until_text("running", "h1")
        tab.until(lambda: int(tab.text("#progress strong").replace(",", "") or 0) > 0)
        tab.click("Stop")
        tab.until_text("The operation is stopped")
        tab.until_text("stopped", "h1")
        stopped = int(tab.text("#progress strong").replace(",", ""))
        assert 0 < stopped < LETTERS
        tab.open("/ui/jobs?state=failed&queue=payments")
        tab.click("Retry all")
        tab.fill("#rate", "1000")
        tab.click("Retry")
        tab.until(lambda: any(word in tab.text("h1") for word in ("running", "done")))  # a slow browser comes too late
        key = tab.driver.current_url
        tab.leave()
    with running(tmp_path, *command, where):
        tab.driver.get(key)
        tab.until_text("done", "h1")
        assert int(tab.text("#progress strong").replace(",", "")) == LETTERS - stopped
        with stoker.connect(tab.base) as client:
            counts = client.get_stats("payments").counts
        assert (counts.waiting, counts.failed) == (LETTERS, 0)
        tab.leave()
    assert tab.problems() == []
