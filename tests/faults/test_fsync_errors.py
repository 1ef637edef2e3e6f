"""F7: a flush fails, and what was not flushed is gone, as Linux does it.

The n-th fsync of the journal itself or of SQLite fails, or a write does; once, or from then on. After it no call is
told that anything is safe: calls that wait for `fsync` get `unknown`, and the broker stops and says why. Then
the process is killed and every file is cut back to what its last good flush has seen: a new process finds everything
that was acknowledged with `fsync`, and a state that was there.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.zygote import Child, the_zygote
from tests.faults.injecting import Fault, When
from tests.faults.roles import BUSY, Flushed, Pushed, Report, Unopened, push_and_flush, wait_together
from tests.faults.support import SEED, fresh_directory, opened, sampled, seen

WHENS: tuple[When, ...] = ("once", "for ever")
CASES = {"disk.fsync": 40, "mark.set": 30, "log.append": 16, "vfs.sync": 12, "vfs.write": 12}
"""Many flushes of ours, some of the others; all of them in a soak."""
PUSHES = 24
REASON = "journal failed"


class Tale:
    """What a process has told."""

    def __init__(self) -> None:
        self.pushed: list[Pushed] = []
        self.sizes: dict[str, int] = {}
        """Of every log that was written, at its last good flush."""
        self.report: Report | None = None
        self.refused = ""

    @property
    def unknown(self) -> list[Pushed]:
        return [pushed for pushed in self.pushed if pushed.code == "unknown"]


def told(path: Path, fault: Fault) -> Tale:
    return heard(the_zygote().fork(push_and_flush, str(path), fault, PUSHES, BUSY))


def heard(child: Child) -> Tale:
    tale = Tale()
    with child:
        while tale.report is None:
            message = child.receive()
            match message:
                case Pushed():
                    tale.pushed.append(message)
                case Flushed():
                    tale.sizes[message.name] = message.size
                case Report():
                    tale.report = message
                case "refused", code, _:
                    tale.refused = code
    return tale


def cut_back(path: Path, tale: Tale) -> None:
    """Every write-ahead log is as long as when it was last flushed, if it is still there."""
    for file in path.glob("*.db-wal"):
        size = tale.sizes.get(file.name)
        if size is not None and size < file.stat().st_size:
            with file.open("r+b") as opened_file:
                opened_file.truncate(size)


def wrong_with(fault: Fault) -> tuple[list[str], bool]:
    with fresh_directory() as path:
        tale = told(path, fault)
        assert tale.report is not None
        wrong = list(tale.report.bad)
        if tale.report.fired and fault.place in ("disk.fsync", "log.append", "vfs.write") and not tale.refused:
            wrong += stopped_wrongly(tale)
        safe = {pushed.id for pushed in tale.pushed if pushed.level == "fsync"}
        after = False
        for pushed in tale.pushed:
            after = after or pushed.code == "unknown"
            if after and pushed.level == "fsync" and fault.place == "disk.fsync":
                wrong.append(f"push {pushed.id} was called safe after the flush had failed")
        if tale.refused:
            return [f"{fault}: {what}" for what in wrong], tale.report.fired > 0
        cut_back(path, tale)
        found = opened(path)
        there = {job for job, *_ in found.jobs}
        if not safe <= there:
            wrong.append(f"lost: {sorted(safe - there)}")
        acknowledged = {pushed.id for pushed in tale.pushed if pushed.id}
        if not tale.unknown and not there <= acknowledged:
            wrong.append(f"invented: {sorted(there - acknowledged)}")
        return [f"{fault}: {what}" for what in wrong], tale.report.fired > 0


def stopped_wrongly(tale: Tale) -> list[str]:
    """The broker has stopped, and everybody who asks hears why."""
    assert tale.report is not None
    wrong = []
    if REASON not in tale.report.stopped:
        wrong.append(f"it has not stopped: {tale.report.stopped!r}")
    codes = [pushed.code for pushed in tale.pushed]
    if "unknown" in codes:
        later = tale.pushed[codes.index("unknown") + 1 :]
        wrong += [f"a later one heard {one}" for one in later if one.code != "unavailable" or REASON not in one.message]
    return wrong


def calls() -> dict[str, int]:
    """How often each is called when nothing fails."""
    found: dict[str, int] = {}
    for fault in (Fault(), Fault("vfs.")):
        with fresh_directory() as path:
            tale = told(path, fault)
            assert tale.report is not None
            assert not tale.report.bad
            assert [pushed.code for pushed in tale.pushed] == [""] * (PUSHES + 2)
            assert {pushed.level for pushed in tale.pushed} == {"memory", "commit", "fsync"}
            found |= tale.report.calls
            cut_back(path, tale)
            safe = {pushed.id for pushed in tale.pushed if pushed.level == "fsync"}
            assert safe <= {job for job, *_ in opened(path).jobs}
    return found


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("disk.fsync", "EIO"),
        ("vfs.sync", "IOERR"),
        ("vfs.write", "IOERR"),
        ("log.append", "IOERR"),
        ("mark.set", "EIO"),
    ],
)
def test_nothing_is_safe_after_a_flush_or_a_write_has_failed(place: str, error: str):
    number = calls()[place]
    assert number > 2
    faults = [Fault(place, error, n, when) for n in range(1, number + 1) for when in WHENS]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(wrong_with, sampled(faults, CASES[place], SEED)))
    wrong = [what for found, _ in done for what in found]
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong[:20])
    assert sum(fired for _, fired in done) > len(done) // 2, "most of them must have happened"


@pytest.mark.parametrize("fault", [Fault(), *(Fault("disk.fsync", "EIO", 1, when) for when in WHENS)])
def test_all_who_wait_for_the_same_flush_hear_the_same(fault: Fault):
    with fresh_directory() as path:
        tale = heard(the_zygote().fork(wait_together, str(path), fault))
        assert tale.report is not None
        assert not tale.report.bad
        *waited, later = tale.pushed
        if not fault.number:
            assert [pushed.level for pushed in tale.pushed] == ["fsync"] * 5
        else:
            assert [pushed.code for pushed in waited] == ["unknown"] * 4
            assert later.code == "unavailable"
            assert "injected" in later.message, "and why"
        assert len(opened(path).jobs) == (4 if fault.number else 5), "they were written, after all"


def test_a_disk_that_lies_is_found_out():
    """The control of cutting back: were nothing flushed, what was called safe would be lost: the start is refused."""
    with fresh_directory() as path:
        tale = told(path, Fault())
        tale.sizes = dict.fromkeys(tale.sizes, 8_192)
        cut_back(path, tale)
        found = seen(path)
        assert isinstance(found, Unopened)
        assert found.code == "damaged"
