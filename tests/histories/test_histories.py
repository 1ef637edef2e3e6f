"""Histories of whole systems: clients over TCP, HTTP and gRPC, or on one directory, while things go wrong.

Processes are killed with SIGKILL, stopped for longer than their leases, and left without descriptors or room on the
disk, in an order that the seed decides. What all clients asked and heard is checked by `checker.py`.

    STOKER_SEED=7 pytest tests/histories/test_histories.py    another seed
"""

import os
import random
from pathlib import Path

import pytest

from tests.histories.scene import DEEDS, KINDS, MAY_MOUNT, opened
from tests.soaking import SOAKS

LEFT_OUT = {
    "kill the broker": () if SOAKS else ("two processes",),
    "kill the supervisor": ("server", "shared directory") if SOAKS else KINDS,
    "fill the disk": () if MAY_MOUNT else KINDS,
}
"""What cannot be done; and in the suite what tests/processes/test_killed.py does with the same clients."""
SEEDS = [int(os.environ["STOKER_SEED"])] if "STOKER_SEED" in os.environ else list(range(1, 21 if SOAKS else 3))
ROUNDS = 4 if SOAKS else 1
"""Every deed is done as often, in two histories together."""

ALWAYS = ("Push", "PushBatch", "Stage", "Publish", "Pull", "Ack", "Fail", "Release", "Extend", "Cancel", "fsync")


def possible_with(kind: str) -> list[str]:
    return [deed for deed in DEEDS if kind not in LEFT_OUT.get(deed, ())]


def deeds_of(kind: str, seed: int) -> list[str]:
    """Half of what can be done, by chance; the next seed does the other half."""
    chance = random.Random(f"{kind} {(seed + 1) // 2}")
    found: list[str] = []
    possible = possible_with(kind)
    for _ in range(ROUNDS):
        shuffled = chance.sample(possible, len(possible))
        found += shuffled[seed % 2 :: 2]
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_or_accepted_from_a_stranger(kind: str, seed: int, tmp_path: Path):
    deeds = deeds_of(kind, seed)
    with opened(kind, seed, tmp_path) as scene:
        scene.play(*deeds)
        checker = scene.check()
        assert dict(checker.found) == {}, f"{kind}, seed {seed}, {deeds}\n{scene.broker.said()}"
        assert [what for what in ALWAYS if not checker.counts[what]] == []
        assert checker.counts["settled"] > 50


@pytest.mark.parametrize("kind", KINDS)
def test_two_seeds_do_everything_that_can_be_done(kind: str):
    assert sorted(deeds_of(kind, 1) + deeds_of(kind, 2)) == sorted(possible_with(kind) * ROUNDS)
