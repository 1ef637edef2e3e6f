"""How far a lake is behind: what the queue has, and the lake has not. Without Spark."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import stoker
from stoker.cli.lag_watch import LagFile, LagMetrics, LagWatch
from stoker.cli.main import stoker as command
from stoker.client.sync import Client
from stoker.model.lag import FILE, Lag, ShardLag
from stoker.spark import lag
from stoker.spark.lag import measure, positions_of
from stoker.spark.lake.files import Files
from stoker.spark.lake.layout import SOURCE, Tables
from stoker.spark.logs import OffsetsOutOfRange, reaches
from stoker.spark.options import read_options
from tests.spark.lake_rows import finished
from tests.spark.test_retention import SHARD, Forgetful

PATIENCE_S = 60.0


def test_only_events_that_the_lake_will_have_count(url: str, queue: Client):
    options = read_options({"url": url, "queues": "mail"})
    with stoker.connect(url, tenant="other") as other:
        queue.push_batch("mail", [b"x"] * 7)
        other.push_batch("mail", [b"x"] * 5)
        queue.push_batch("sms", [b"x"] * 3)
    since = queue.read_records(0, counted=True).since or time.time() * 1000
    found = measure(options, {}, lambda: since / 1000 + 3600)
    assert (found.events, found.is_exact) == (7, True)
    assert 3500 < found.seconds < 3700
    ends = {shard: reach.last for shard, reach in reaches(queue).items()}
    done = measure(options, ends)
    assert (done.events, done.seconds) == (0, 0.0)
    assert {each.shard: each.position for each in done.shards} == ends


def test_what_is_too_much_to_count_is_estimated(url: str, queue: Client, monkeypatch: pytest.MonkeyPatch):
    for _ in range(40):
        queue.push_batch("mail", [b"x"] * 10)
    monkeypatch.setattr(lag, "COUNTED_BYTES", 400)
    found = measure(read_options({"url": url}), {})
    assert not found.is_exact
    assert 350 <= found.events <= 450


def test_sparks_progress_says_where_the_last_batch_ended():
    assert positions_of(None) == {}
    assert positions_of({"sources": [{"endOffset": None}]}) == {}
    assert positions_of({"sources": [{"endOffset": '{"00": 7, "11": 3}'}]}) == {0: 7, 11: 3}


def test_the_lag_is_told_to_a_file_and_to_prometheus(url: str, queue: Client, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("stoker.cli.lag_watch.EVERY_S", 0.01)
    queue.push_batch("mail", [b"x"] * 4)
    ends = json.dumps({f"{shard:02d}": 0 for shard in reaches(queue)})

    def write(name: str, told: dict[str, Any]) -> None:
        (tmp_path / name).write_text(json.dumps(told))

    metrics, file = LagMetrics(), LagFile(write)

    def tell(found: Lag) -> None:
        metrics.tell(found)
        file.tell(found)

    end = metrics.serve("127.0.0.1", 0)
    with LagWatch(read_options({"url": url}), lambda: {"sources": [{"endOffset": ends}]}, tell):
        give_up = time.monotonic() + PATIENCE_S
        while not (tmp_path / FILE).exists():
            assert time.monotonic() < give_up
            time.sleep(0.01)
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=PATIENCE_S) as answer:
        said = answer.read().decode()
    end()
    assert (
        sum(float(line.split()[-1]) for line in said.splitlines() if line.startswith("stoker_pipeline_lag_events{"))
        == 4
    )
    told = lag.read_lag(str(tmp_path))
    assert told is not None
    assert (told["events"], [each["shard"] for each in told["shards"]]) == (4, [0, 1, 2, 3])


def test_a_file_is_not_written_again_for_nothing():
    written: list[Any] = []
    file = LagFile(lambda name, told: written.append(told))
    same = (ShardLag(0, 5, 5, 0, 0.0, True),)
    for at in (0, 10, 40_000):
        file.tell(Lag(at, same))
    file.tell(Lag(40_001, (ShardLag(0, 5, 6, 1, 0.1, True),)))
    assert [told["at"] for told in written] == [0, 40_000, 40_001]


# --- `stoker pipeline status` -----------------------------------------------------------------------


def status(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["pipeline", "status", "--lake", str(lake), *words], env={"STOKER_URL": None})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Ten events of shard 0, all of them of the tenant `default` and the queue `mail`."""
    tables = Tables(str(tmp_path / "lake"), make=True)
    finished(tables, 0)
    tables.files.write_json(SOURCE, {"version": 2, "tenants": ["default"], "queues": ["mail"], "events": []})
    return tmp_path / "lake"


def test_status_shows_the_tables_and_what_the_stream_has_measured(lake: Path):
    shown = status(lake)
    assert shown.output.startswith("bronze     version ")
    assert "behind: not known: --url asks the queue, and `stoker pipeline stream` measures it" in shown.output
    assert json.loads(status(lake, "--json").output)["lag"] is None
    measured = Lag(round(time.time() * 1000), (ShardLag(0, 10, 14, 4, 2.3, True), ShardLag(1, 5, 5, 0, 0.0, True)))
    Files(str(lake)).write_json(FILE, measured.as_json())
    assert json.loads(status(lake, "--json").output)["lag"] == measured.as_json()
    shown = status(lake)
    assert "behind: 4 events, 2.3 s (measured " in shown.output
    assert "  shard 0: 4 events, 2.3 s" in shown.output
    assert "shard 1:" not in shown.output
    old = [*lag.lines(measured.as_json(), lambda: measured.at / 1000 + 3600)]
    assert old[0].endswith("(measured 1h 00m ago; no stream has measured it since: --url asks the queue)")


@pytest.fixture
def one_shard(tmp_path: Path) -> Iterator[Client]:
    with stoker.connect(f"sqlite:///{tmp_path}/one?shards=1") as client:
        yield client


def test_status_asks_the_queue_for_what_the_lake_was_begun_with(lake: Path, tmp_path: Path, one_shard: Client):
    url = f"sqlite:///{tmp_path}/one"
    for _ in range(12):
        one_shard.push("mail", b"x")
        one_shard.push("sms", b"x")
    wanted = [event for event in one_shard.read_events(0, 10).events if event.queue == "mail"]
    assert 0 < len(wanted) < 12, "some of them are in the lake already"
    told = json.loads(status(lake, "--url", url, "--json").output)
    assert told["positions"] == {"0": 10}
    assert (told["lag"]["events"], told["lag"]["shards"][0]["position"]) == (len(wanted), 10)
    assert f"behind: {len(wanted)} events, " in status(lake, "--url", url).output
    by_environment = CliRunner().invoke(command, ["pipeline", "status", "--lake", str(lake)], env={"STOKER_URL": url})
    assert f"behind: {len(wanted)} events, " in by_environment.output


def test_status_says_if_this_is_not_the_queue_of_the_lake(lake: Path, tmp_path: Path, one_shard: Client):
    last = reaches(one_shard)[0].last
    assert last < 10
    done = status(lake, "--url", f"sqlite:///{tmp_path}/one")
    assert done.output.startswith("bronze     version ")
    assert isinstance(done.exception, OffsetsOutOfRange)
    assert f"records up to 10 were read already, and the log ends at {last}" in done.exception.message
    assert "failOnDataLoss" not in done.exception.message


def test_a_lake_without_events_is_behind_by_all_that_is_kept(tmp_path: Path, one_shard: Client):
    Files(str(tmp_path / "new")).write_json(SOURCE, {"version": 2, "tenants": ["default"], "queues": [], "events": []})
    one_shard.push_batch("mail", [b"x"] * 5)
    told = json.loads(status(tmp_path / "new", "--url", f"sqlite:///{tmp_path}/one", "--json").output)
    assert (told["layers"], told["lag"]["events"]) == ([], 5)


def test_events_that_the_queue_has_dropped_are_no_lag(tmp_path: Path):
    forgetful = Forgetful(tmp_path)
    try:
        reach = forgetful.forget()
        with pytest.raises(OffsetsOutOfRange, match=f"the oldest one that is kept is {reach.lowest}"):
            measure(read_options({"url": forgetful.url}), {})
        kept = measure(read_options({"url": forgetful.url, "failOnDataLoss": "false"}), {})
        assert kept.shards[SHARD].position == reach.lowest - 1
    finally:
        forgetful.close()
