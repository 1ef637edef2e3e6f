"""The pipeline on the dashboard: how far its lake is behind, and its newest report, without Spark in the server."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.cli.lag_watch import LagFile
from stoker.model.lag import FILE, Lag, ShardLag
from stoker.server.config import DashboardSettings
from stoker.spark.lake.files import Files
from stoker.spark.report.page import page
from tests.dashboard.chromium import Tab
from tests.dashboard.conftest import Tokens
from tests.dashboard.visitor import Visitor
from tests.http.support import HttpServer
from tests.spark.test_report import told
from tests.test_layers import modules_loaded_by

Serve = Callable[..., HttpServer]
BEHIND = (ShardLag(0, 10, 10, 0, 0.0, True), ShardLag(1, 88_121, 88_925, 1_204, 2.5, False))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def over(serve: Serve, lake: Path, **more: object) -> HttpServer:
    return serve(dashboard=DashboardSettings(lake=str(lake)), **more)


def measured(lake: Path, ago_s: float = 0.0, shards: tuple[ShardLag, ...] = BEHIND) -> None:
    """What a stream writes."""
    LagFile(Files(str(lake)).write_json).tell(Lag(round((time.time() - ago_s) * 1_000), shards))


def test_the_lag_of_the_lake_is_shown_by_shard(serve: Serve, lake: Path):
    visitor = Visitor(over(serve, lake))
    measured(lake)
    assert "Behind its queue by about 1,204 events, 2.5 s, measured" in visitor.get("/ui/").words
    assert "1 about 1,204 2.5 s 88,121 88,925" in visitor.get("/ui/server").words


def test_a_lake_that_needs_attention_says_so(serve: Serve, lake: Path):
    visitor = Visitor(over(serve, lake))
    measured(lake, shards=(ShardLag(0, 1, 9, 8, 61.0, True),))
    assert "The lake is behind its queue: 8 events, 1m 01s." in visitor.get("/ui/").words
    measured(lake, ago_s=3_600)
    shown = visitor.get("/ui/").words
    assert "The lake's stream has not reported its lag for 1h 00m." in shown
    assert "Its stream has stopped, or cannot reach the queue." in shown
    measured(lake, shards=BEHIND[:1])
    shown = visitor.get("/ui/").words
    assert "The lake has every event" in shown
    assert "The lake is behind" not in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "There is no lake at"),
        ("", "_lag.json of the lake cannot be read"),
        ('{"at": "<script>"}', "_lag.json of the lake cannot be read"),
        ('{"at": 1, "shards": [7]}', "_lag.json of the lake cannot be read"),
        ("x" * 1_100_000, "has more than 1,048,576 bytes"),
    ],
)
def test_a_lake_without_a_good_lag_is_a_sentence(text: str | None, said: str, serve: Serve, lake: Path):
    visitor = Visitor(over(serve, lake))
    if text is not None:
        lake.mkdir()
        (lake / FILE).write_text(text)
    for path in ("/ui/", "/ui/server"):
        answer = visitor.get(path)
        assert (answer.status, said in answer.words) == (200, True)


def test_the_newest_report_is_served_and_links_are_not_followed(serve: Serve, lake: Path, tmp_path: Path):
    visitor = Visitor(over(serve, lake))
    measured(lake)
    assert visitor.get("/ui/report").status == 404
    assert f"stoker pipeline report --lake {lake}" in visitor.get("/ui/server").words
    (lake / "old.html").write_text("old")
    os.utime(lake / "old.html", (1, 1))
    (lake / "new.html").write_text("new")
    (tmp_path / "secret.html").write_text("secret")
    (lake / "link.html").symlink_to(tmp_path / "secret.html")
    (lake / "folder.html").mkdir()
    answer = visitor.get("/ui/report")
    assert (answer.status, answer.text) == (200, "new")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'; style-src 'unsafe-inline'")
    assert "allow-" not in policy
    assert 'href="/ui/report"' in visitor.get("/ui/").text


def test_only_operators_see_the_lake(serve: Serve, lake: Path, tokens: Tokens):
    measured(lake)
    (lake / "report.html").write_text("secret")
    of_reader = tokens.make("reader", permissions={"read"})
    of_other, of_operator = tokens.make("other", tenant="acme"), tokens.make("operator")
    server = over(serve, lake, auth=tokens.auth)
    reader, other, operator = (Visitor(server) for _ in range(3))
    for visitor, token in ((reader, of_reader), (other, of_other), (operator, of_operator)):
        assert visitor.login(token).status == 303
    for visitor in (reader, other):
        assert "Pipeline" not in visitor.get("/ui/").words
        assert visitor.get("/ui/report").status == 403
    assert "Pipeline" in operator.get("/ui/").words
    assert operator.get("/ui/report").text == "secret"


def test_a_server_reads_the_lag_without_spark():
    loaded = {name.partition(".")[0] for name in modules_loaded_by("import stoker.server.dashboard.routes")}
    assert loaded & {"pyspark", "pyarrow", "deltalake"} == set()


def test_a_report_has_its_looks_and_runs_nothing(serve: Serve, lake: Path, chromium: Tab):
    """In a real browser: the report's own styles and pictures work, and a script in it does not."""
    server = over(serve, lake)
    lake.mkdir()
    hostile = '<script>document.title = "ran"</script><img src="x" onerror="document.title = 1"></main>'
    (lake / "report.html").write_text(page(told()).replace("</main>", hostile))
    chromium.base = f"http://127.0.0.1:{server.port}"
    chromium.open("/ui/")
    chromium.click("Report")
    look = "const of = getComputedStyle(document.querySelector('main')); return [of.maxWidth, document.title, origin]"
    assert chromium.driver.execute_script(look) == ["1120px", "Stoker report", "null"]
    assert chromium.driver.execute_script("return document.querySelectorAll('svg').length") > 0
    assert any("script" in problem for problem in chromium.problems())
    chromium.driver.get("about:blank")
