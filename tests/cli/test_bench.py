"""`stoker bench`: a table that says what was measured, and leaves nothing behind."""

import json

import pytest

from stoker import Client
from stoker.cli import bench, exit_codes, measuring
from tests.cli.conftest import Stoker


def test_the_table_says_payload_batch_and_durability(client: Client, at: Stoker):
    outcome = at("bench", "--seconds", "20ms", "--batch", 1, "--batch", 50, "--payload", 10)
    assert outcome.code == 0
    heads, first, second = outcome.out.splitlines()[1:4]
    assert heads.split()[:3] == ["BATCH", "JOBS", "DURABILITY"]
    assert [first.split()[0], second.split()[0]] == ["1", "50"]
    assert first.split()[2] == "memory"
    assert "payloads of 10 bytes" in outcome.out
    assert "a bare round trip" in outcome.out


def test_the_queue_of_a_benchmark_is_removed_again(client: Client, at: Stoker):
    found = json.loads(at("bench", "--seconds", "5ms", "--batch", 10, "--json").out)
    (row,) = found["rows"]
    assert row["jobs"] % 10 == 0
    assert row["lost"] == 0
    assert client.list_queues() == []


def test_a_job_that_does_not_come_back_is_noticed(client: Client, at: Stoker, monkeypatch: pytest.MonkeyPatch):
    def thieving(client: Client, *arguments: object) -> list[dict[str, object]]:
        return [{**bench.one_size(client, "q", [b""], 0.001, None), "lost": 3}]

    monkeypatch.setattr(bench, "measure", thieving)
    outcome = at("bench")
    assert outcome.code == exit_codes.FAILED
    assert "3 jobs did not come back" in outcome.err


def test_no_time_is_refused(client: Client, at: Stoker):
    outcome = at("bench", "--seconds", "0")
    assert outcome.code == exit_codes.USAGE
    assert "500ms" in outcome.err


def test_a_rate_is_bounded_by_time_and_by_jobs():
    assert measuring.rate(lambda: 1, 60.0, 5) > 0
    assert measuring.rate(lambda: pytest.fail("there was no time for it"), 0.0) == 0.0


def test_a_rate_ends_with_the_jobs_and_times_each_step():
    left, times = [3, 2, 0], list[float]()
    assert measuring.rate(lambda: left.pop(0), times_us=times) > 0
    assert (left, len(times)) == ([], 2)


def test_quantiles_are_times_that_were_measured():
    assert measuring.quantiles([float(us) for us in range(200)]) == (100.0, 198.0)
    assert measuring.quantiles([7.0]) == (7.0, 7.0)


def test_what_is_pushed_is_settled_once(client: Client):
    seen: list[int] = []
    one, level = measuring.push(client, "q", [b"1"])
    many, _ = measuring.push(client, "q", [b"2", b"3"])
    assert [measuring.settle(client, "q", 2, seen) for _ in range(3)] == [2, 1, 0]
    assert seen == [*one, *many]
    assert level == "memory"
    assert client.get_stats("q").totals.completed == 3
