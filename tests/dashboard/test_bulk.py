"""Ten thousand dead letters are retried from the browser: with a preview, stopped, and resumed over a restart."""

from pathlib import Path
from urllib.parse import urlsplit

import stoker
from tests.dashboard.chromium import Tab
from tests.dashboard.test_ui_command import running

LETTERS = 10_000
BATCH = 1_000


def fill(url: str) -> None:
    with stoker.connect(url) as client:
        for _ in range(LETTERS // BATCH):
            client.push_batch("payments", [b"{}"] * BATCH, max_attempts=1)
            pulled = client.pull("payments", BATCH)
            client.fail_batch(list(pulled.ids), pulled.token, error="card declined: order 17")


def test_many_dead_letters_are_retried_stopped_and_resumed_over_a_restart(chromium: Tab, tmp_path: Path):
    tab = chromium
    command = ("serve", "--data", "data", "--tcp", "off", "--grpc", "off", "--http")
    with running(tmp_path, *command, "127.0.0.1:0") as address:
        where = f"127.0.0.1:{urlsplit(address).port}"
        tab.base = f"http://{where}"
        fill(tab.base)
        tab.open("/ui/dead")
        tab.click("Retry")
        tab.until_text("10,000 jobs", ".hits")
        tab.until_text("card declined: order 17")
        tab.fill("#rate", "500")
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
        tab.driver.get("about:blank")
    with running(tmp_path, *command, where):
        tab.driver.get(key)
        tab.until_text("done", "h1")
        assert int(tab.text("#progress strong").replace(",", "")) == LETTERS - stopped
        with stoker.connect(tab.base) as client:
            counts = client.get_stats("payments").counts
        assert (counts.waiting, counts.failed) == (LETTERS, 0)
        tab.driver.get("about:blank")
    assert tab.problems() == []
