"""Ids and the homes of queues: what other processes and later releases rely on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.ids import SHARDS_MAX, STEP, make_id, sequence_of, shard_for, shard_of

HOMES = [
    ("default", "mail", [0, 0, 0, 4, 4, 20, 20]),
    ("default", "thumbs", [0, 1, 3, 3, 11, 11, 11]),
    ("acme", "mail", [0, 1, 1, 1, 9, 9, 9]),
    ("acme", "mail:eu-1", [0, 1, 1, 5, 13, 13, 45]),
    ("a", "b", [0, 1, 1, 1, 1, 17, 49]),
    ("a" * 256, "b" * 256, [0, 1, 1, 1, 9, 25, 25]),
]
"""For 1, 2, 4, ..., 64 shards. A queue that moves to another shard loses its jobs: these never change."""


@pytest.mark.parametrize(("tenant", "queue", "homes"), HOMES)
def test_a_queue_lives_where_it_always_did(tenant: str, queue: str, homes: list[int]):
    assert [shard_for(tenant, queue, 1 << bits) for bits in range(7)] == homes


def test_tenant_and_queue_do_not_run_into_each_other():
    assert shard_for("ab", "c", 64) != shard_for("a", "bc", 64)


def test_queues_are_spread_over_all_shards():
    homes = [shard_for("acme", f"queue-{number}", 64) for number in range(6_400)]
    assert set(homes) == set(range(64))
    assert max(homes.count(shard) for shard in range(64)) < 200


@given(st.integers(1, 2**47 - 1), st.integers(0, SHARDS_MAX - 1))
def test_an_id_names_its_sequence_and_its_shard_and_fits_into_json(sequence: int, shard: int):
    job_id = make_id(sequence, shard)
    assert (sequence_of(job_id), shard_of(job_id)) == (sequence, shard)
    assert 0 < job_id < 2**53
    assert make_id(sequence + 1, shard) - job_id == STEP
