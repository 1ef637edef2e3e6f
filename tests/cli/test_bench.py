"""`stoker bench`: a table that says what was measured, and leaves nothing behind."""

import json

import pytest

from stoker import Client
from stoker.cli import bench, exits
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
        return [{**bench.one_size(client, "q", 1, b"", 0.001, None), "lost": 3}]

    monkeypatch.setattr(bench, "measure", thieving)
    outcome = at("bench")
    assert outcome.code == exits.FAILED
    assert "3 jobs did not come back" in outcome.err


def test_a_benchmark_is_bounded_by_time_and_by_jobs():
    assert bench.timed(lambda: 1, 60.0, 5) > 0
    assert bench.timed(lambda: pytest.fail("there was no time for it"), 0.0, 1 << 30) == 0.0
