"""The broker in Redis does what the engine does: the same random commands at the same times, and nothing differs."""

import os
from collections.abc import Iterator

import pytest

from tests.model.driver import Driver
from tests.model.test_workflows import Driver as WorkflowDriver
from tests.model.test_workflows import settings_of
from tests.redis.twins import Twins, TwinWorld, is_offered, without_waiting

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
        if not is_offered(command):
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


@pytest.mark.parametrize("seed", range(60 if SOAK else 2))
def test_random_workflows_have_the_same_replies_pictures_and_events(seed: int):
    """The driver also compares both with the naive reference of workflows."""
    world = TwinWorld(settings_of(seed, batching=False))
    driver = WorkflowDriver(seed, 1, False, world)
    for number in range(60):
        driver.step()
        if number % 10 == 9:
            driver.check()
            driver.check_inputs()
            world.twins.audit()
    world.twins.compare_pictures()
    world.twins.compare_events()
    world.twins.close()
