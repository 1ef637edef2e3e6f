"""The fixtures of the suite, and the bookkeeping behind `test_contract_is_covered.py`."""

import ast
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from stoker.client.sync import Client
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings

pytest.register_assert_rewrite("tests.conformance.support")

from tests.conformance import dialect_gaps, redis_gaps  # noqa: E402  the helpers' assertions are to be rewritten first
from tests.conformance.brokers import (  # noqa: E402
    BROKERS,
    DEFAULT_SETTINGS,
    ContractWorld,
    Coverage,
    MakeWorld,
)

HERE = Path(__file__).parent
LAST = "test_contract_is_covered.py"

coverages = pytest.StashKey[dict[str, Coverage]]()


CHOSEN = os.environ.get("STOKER_BROKERS", " ".join(BROKERS)).split()
"""`make test` runs some of them in one process, and others in others."""
CASES_MAX = int(os.environ.get("CONFORMANCE_CASES", "0"))
"""So many cases of a test are run, other ones for each broker; 0 = all. `make test` runs all of them over the brokers
whose code decides, and some over those that only carry what was decided; `make soak` runs all over all."""
EVERY = int(os.environ.get("CONFORMANCE_EVERY", "1"))
"""One test in so many is run, other ones for each broker: enough over a broker that carries as another one does."""


@pytest.fixture(params=CHOSEN)
def broker_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def coverage(request: pytest.FixtureRequest, broker_name: str) -> Coverage:
    """What this broker has been through so far, in tests that passed."""
    return request.config.stash.setdefault(coverages, {}).setdefault(broker_name, Coverage())


@pytest.fixture
def make_world(broker_name: str, coverage: Coverage) -> Iterator[MakeWorld]:
    """For tests that need other settings or limits than the defaults."""
    made: list[ContractWorld] = []

    def make(settings: Settings = DEFAULT_SETTINGS, limits: Limits = DEFAULT_LIMITS, shards: int = 1) -> ContractWorld:
        coverage.accept(settings)
        coverage.accept(limits)
        made.append(ContractWorld(BROKERS[broker_name](settings, limits, shards), coverage))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> ContractWorld:
    return make_world()


@pytest.fixture
def client(world: ContractWorld) -> Client:
    return world.client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Only what happened in a test that passed counts as covered."""
    report = yield
    for each in item.config.stash.get(coverages, {}).values():
        if report.when == "call" and report.passed:
            each.keep()
        elif report.when == "teardown":
            each.forget()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """The check of the coverage runs last, and only when the whole suite runs: else it could say nothing."""
    own = [item for item in items if HERE in item.path.parents]
    left_out = [item for item in own if is_left_out(item)]
    gone = set(left_out)
    if CASES_MAX:
        left_out += beyond_the_sample([item for item in own if item not in gone])
        gone = set(left_out)
    left_out += [item for item in own if item not in gone and is_of_another_part(item)]
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left_out)
    before = {item.nodeid for item in items if HERE in item.path.parents}
    yield
    ours = [item for item in items if HERE in item.path.parents]
    names = {(item.path.name, name_of(item)) for item in [*ours, *left_out]}
    complete = (
        not CASES_MAX
        and EVERY == 1
        and before == {item.nodeid for item in ours}
        and names >= all_tests()
        and not part_of_a_test(config)
    )
    last = [item for item in ours if item.path.name == LAST]
    items[:] = [item for item in items if item not in last]
    if complete:
        items.extend(last)
    elif last:
        config.hook.pytest_deselected(items=last)


def is_left_out(item: pytest.Item) -> bool:
    """Tests without a broker run where `memory` does, once; strangers and Redis leave some things out."""
    if "broker_name" not in getattr(item, "fixturenames", ()):
        return "memory" not in CHOSEN
    spec = item.callspec  # type: ignore[attr-defined]
    asked = str(spec.params["broker_name"]), item.path.name, name_of(item), spec.id
    return dialect_gaps.is_left_out(*asked) or redis_gaps.is_left_out(*asked)


def beyond_the_sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of tests that are not run this time. Of those about an option there are some for every option."""
    groups: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        key = (item.path.name, name_of(item), parameters.get("broker_name"), parameters.get("field"))
        groups.setdefault(key, []).append(item)
    found: list[pytest.Item] = []
    for group, cases in groups.items():
        begin = crc32(repr(group).encode()) % len(cases)
        found += (cases[begin:] + cases[:begin])[CASES_MAX:]
    return found


def is_of_another_part(item: pytest.Item) -> bool:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return crc32(f"{parameters.get('broker_name')} {name_of(item)}".encode()) % EVERY != 0


def name_of(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", item.name))


def all_tests() -> set[tuple[str, str]]:
    """File and name of every test of the suite, as written."""
    return {
        (file.name, node.name)
        for file in HERE.glob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def part_of_a_test(config: pytest.Config) -> bool:
    """Was a single case of a test asked for, or does this process run only a share of the tests?"""
    return any("[" in str(argument) for argument in config.args) or hasattr(config, "workerinput")
