"""The side of the tests: start processes, collect what they say, and hold what is left against what was promised."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from stoker.journal.sqlite import JournalSettings
from tests.crash.zygote import the_zygote
from tests.faults.injecting import Fault
from tests.faults.roles import BUSY, Found, Outcome, Report, Unopened, look, work
from tests.faults.script import START_MS

SOAK = bool(os.environ.get("STOKER_SOAK"))
"""Everything instead of a sample."""

SEED = int(os.environ.get("STOKER_SEED", "20"))
"""Of whatever is chosen by chance; printed where something fails."""

SHARED_MEMORY = Path("/dev/shm")

NO_FAULT = Fault()


@contextmanager
def fresh_directory() -> Iterator[Path]:
    """In memory where that is possible: it is faults that are tested, not the disk."""
    home = Path(tempfile.mkdtemp(prefix="stoker-faults-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    try:
        yield home / "data"
    finally:
        shutil.rmtree(home, ignore_errors=True)


def sampled(cases: list[Any], most: int, seed: int) -> list[Any]:
    """All of them in a soak; otherwise so many, in order."""
    if SOAK or len(cases) <= most:
        return cases
    chosen = sorted(random.Random(seed).sample(range(len(cases)), most))
    return [cases[place] for place in chosen]


class Worked(msgspec.Struct, frozen=True):
    """What a process has told of its work."""

    outcomes: list[Outcome]
    last: list[str]
    """What it had come to when it stopped."""
    report: Report
    refused: tuple[str, str] | None = None
    """Code and message, when it could not even open the directory."""

    @property
    def possible(self) -> set[str]:
        """The states that may be found afterwards: from the last one that was promised to the last one there was."""
        found: list[str] = []
        for outcome in self.outcomes:
            if outcome.state is None or (found and outcome.state == found[-1]):
                continue
            if outcome.ok and outcome.word != "memory":
                found.clear()
            found.append(outcome.state)
        return {*found, *self.last}


def worked(
    path: Path,
    fault: Fault = NO_FAULT,
    seed: int = 1,
    steps: int = 40,
    closing: bool = False,
    settings: JournalSettings = BUSY,
    room: int = 0,
) -> Worked:
    """Let a new process work, and kill it. With `room` it works on a disk of so many bytes."""
    outcomes: list[Outcome] = []
    last: list[str] = []
    refused = None
    with the_zygote().fork(work, str(path), fault, seed, steps, closing, settings, room) as child:
        while True:
            message = child.receive()
            match message:
                case Outcome():
                    outcomes.append(message)
                case "last", state:
                    last.append(state)
                case "refused", code, text:
                    refused = (code, text)
                case Report():
                    return Worked(outcomes, last, message, refused)


def seen(path: Path, now_ms: int = START_MS) -> Found | Unopened:
    """What a new process finds."""
    with the_zygote().fork(look, str(path), now_ms) as child:
        found: Found | Unopened = child.receive()
        child.join()
        return found


def opened(path: Path, now_ms: int = START_MS) -> Found:
    found = seen(path, now_ms)
    assert isinstance(found, Found), found
    return found
