"""The broker in Redis does what the engine does: the same random commands at the same times, and nothing differs."""

import os
from collections.abc import Iterator

import pytest

from tests.model.driver import Driver
from tests.redis.twins import UNSUPPORTED, Twins, without_waiting

SOAK = os.environ.get("STOKER_SOAK") == "1"
SEEDS = range(100) if SOAK else range(2)
COMMANDS = 1_500 if SOAK else 400
LOOK_EVERY = 100


@pytest.fixture
def twins() -> Iterator[Twins]:
    found = Twins()
    yield found
    found.close()


def drive(twins: Twins, seed: int, commands: int, audit_every: int) -> None:
    driver = Driver(seed)
    for number in range(1, commands + 1):
        passed, tenant, command = driver.draw()
        if passed:
            twins.advance(passed)
        if isinstance(command, UNSUPPORTED):
            continue
        command = without_waiting(command)
        driver.learn(tenant, command, twins.execute(tenant, command))
        if number % audit_every == 0:
            twins.audit()
        if number % LOOK_EVERY == 0:
            twins.compare_pictures()
            twins.compare_events()
    twins.compare_pictures()
    twins.compare_events()
    twins.audit()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_have_the_same_replies_pictures_and_events(twins: Twins, seed: int):
    drive(twins, seed, COMMANDS, audit_every=COMMANDS)


@pytest.mark.parametrize("seed", range(100, 110 if SOAK else 101))
def test_every_counter_and_index_is_right_after_every_command(twins: Twins, seed: int):
    drive(twins, seed, 150, audit_every=1)
