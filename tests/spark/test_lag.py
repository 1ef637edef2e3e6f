"""How far a lake is behind: what the queue has, and the lake has not. Without Spark."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stoker
from stoker.cli.lag_watch import LagFile, LagMetrics, LagWatch
from stoker.cli.main import stoker as command
from stoker.client.sync import Client
from stoker.spark import lag
from stoker.spark.lag import FILE, Lag, ShardLag, measure, positions_of
from stoker.spark.logs import reaches
from stoker.spark.options import read_options

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
    shown = CliRunner().invoke(command, ["pipeline", "lag", "--lake", str(tmp_path)])
    assert shown.output.startswith("behind: 4 events, ")
    told = json.loads(CliRunner().invoke(command, ["pipeline", "lag", "--lake", str(tmp_path), "--json"]).output)
    assert (told["events"], [each["shard"] for each in told["shards"]]) == (4, [0, 1, 2, 3])


def test_a_file_is_not_written_again_for_nothing():
    written: list[Any] = []
    file = LagFile(lambda name, told: written.append(told))
    same = (ShardLag(0, 5, 5, 0, 0.0, True),)
    for at in (0, 10, 40_000):
        file.tell(Lag(at, same))
    file.tell(Lag(40_001, (ShardLag(0, 5, 6, 1, 0.1, True),)))
    assert [told["at"] for told in written] == [0, 40_000, 40_001]


def test_a_lake_without_a_lag_says_who_measures_it(tmp_path: Path):
    done = CliRunner().invoke(command, ["pipeline", "lag", "--lake", str(tmp_path)])
    assert done.exit_code != 0
    assert "`stoker pipeline stream` measures it" in str(done.exception)
