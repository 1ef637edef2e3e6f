"""F9: one call of one place fails, once or from then on, for every place and every call of it.

The same piece of work over and over (`script.py`), on a directory with a past. After any fault no call waits for ever,
nothing but a StokerError comes out, the broker goes on or stops with a reason; and a new process finds a state that the
old one was in, not before the last that it had promised to keep.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.injecting import PLACES, VFS_PLACES, Fault, When
from tests.faults.support import SEED, Worked, fresh_directory, opened, sampled, worked

PAST_SEED, WORK_SEED = 3, 7
STEPS = 40
CASES = 20

ERRORS = {place: errors for place, (_, _, errors) in PLACES.items()} | VFS_PLACES
WHENS: tuple[When, ...] = ("once", "for ever", "done and denied")
DENIABLE = ("log.append", "manifest.update", "disk.rename", "disk.fsync", "mark.set", "log.seal", "checkpoint.enforce")
"""Where it matters that something has happened and was denied."""


@pytest.fixture(scope="module")
def past() -> Iterator[Path]:
    """A directory that a process has left behind in the middle of its work."""
    with fresh_directory() as path:
        done = worked(path, seed=PAST_SEED, steps=STEPS)
        assert not done.report.bad
        yield path


def copied(past: Path, path: Path) -> Path:
    shutil.copytree(past, path, ignore=shutil.ignore_patterns("reserve"))  # it is made anew
    return path


def faults_of(calls: dict[str, int], at_open: bool) -> list[Fault]:
    return [
        Fault(place, error, number, when, at_open)
        for place, errors in ERRORS.items()
        for number in range(1, calls.get(place, 0) + 1)
        for error in errors
        for when in WHENS
        if when != "done and denied" or place in DENIABLE
        if error != "bug" or not at_open  # whoever opens it may see a bug as it is
    ]


def counted(past: Path, at_open: bool) -> dict[str, int]:
    """How often each place is called when nothing fails: the control of everything below."""
    calls: Counter[str] = Counter()
    for fault in (Fault(at_open=at_open), Fault("vfs.", at_open=at_open)):
        with fresh_directory() as path:
            done = worked(copied(past, path), fault, WORK_SEED, 0 if at_open else STEPS, closing=True)
            assert not done.report.bad, done.report.bad
            assert not done.report.stopped
            assert opened(path).state in done.possible
            calls |= Counter(done.report.calls)
    return calls


def wrong_with(done: Worked, path: Path) -> list[str]:
    """Everything that must not be so."""
    wrong = list(done.report.bad)
    if done.report.stopped and "journal failed" not in done.report.stopped:
        wrong.append(f"it stopped without a reason: {done.report.stopped}")
    closed = [outcome for outcome in done.outcomes if outcome.word in ("closed", "unavailable")]
    wrong += [f"{one.step}: {one.message}" for one in closed if "journal failed" not in one.message]
    found = opened(path)
    if done.refused is None and found.state not in done.possible:
        wrong.append("the state that was found is none that may be found")
    again = opened(path)
    if again.state != found.state:
        wrong.append("a second restart finds something else")
    return wrong


def swept(past: Path, faults: list[Fault], steps: int) -> tuple[list[str], Counter[str]]:
    def tried(fault: Fault) -> tuple[Fault, list[str], bool]:
        with fresh_directory() as path:
            done = worked(copied(past, path), fault, WORK_SEED, steps, closing=fault.number % 2 == 0)
            return fault, wrong_with(done, path), done.report.fired > 0

    wrong: list[str] = []
    fired: Counter[str] = Counter()
    with ThreadPoolExecutor(2) as pool:
        for fault, found, has_fired in pool.map(tried, faults):
            fired[fault.place] += has_fired
            wrong += [f"{fault}: {what}" for what in found]
    return wrong, fired


def test_everything_that_can_fail_is_reached(past: Path):
    """What is never called proves nothing."""
    calls = Counter(counted(past, at_open=False)) + Counter(counted(past, at_open=True))
    assert not [place for place in ERRORS if not calls[place]], calls


def test_one_fault_anywhere_in_the_work(past: Path):
    faults = sampled(faults_of(counted(past, at_open=False), at_open=False), CASES, SEED)
    wrong, fired = swept(past, faults, STEPS)
    print(f"seed {SEED}: {len(faults)} faults, fired {dict(fired)}")  # noqa: T201  # shown when it fails
    assert not wrong, "\n".join(wrong[:20])


def test_one_fault_anywhere_in_the_opening(past: Path):
    faults = sampled(faults_of(counted(past, at_open=True), at_open=True), CASES, SEED)
    wrong, fired = swept(past, faults, 0)
    print(f"seed {SEED}: {len(faults)} faults, fired {dict(fired)}")  # noqa: T201  # shown when it fails
    assert not wrong, "\n".join(wrong[:20])
