"""F4, F5: a data directory that does not hold what was written to it.

Every way in which one file can be wrong: a byte flipped, its end cut off, itself gone, an older one in its place, two
of them exchanged, a page of nothing. A new process must refuse to open it, and say which file and what to do; or it
finds exactly what was there. Only of the end of the log that was never flushed may something be missing, and then it is
an earlier state. After a refusal, everything is found again once the damage is undone.

Not noticed: an older copy of the file of old keys, and a key in it whose name is no longer its own. Such a key is not
found, and never one with another answer.
"""

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from stoker.journal.directory import read_manifest
from tests.crash.zygote import ChildFailed
from tests.faults.injecting import Fault
from tests.faults.roles import Found
from tests.faults.support import SEED, SOAK, fresh_directory, opened, sampled, seen, worked

FLIPS = 36
CUTS = 16
SWAPS = 10
PAGE = 4096
WAL_HEADER, FRAME_HEADER = 32, 24

TO_DO = ("restore the directory from a backup", "restore it, or the directory, from a backup", "later release")


class Past(msgspec.Struct, frozen=True):
    """A directory that a killed process has left, and what may be found in it."""

    path: Path
    older: Path
    """The same some time before."""
    whole: Found
    tails: frozenset[str]
    """States since the last flush."""

    def files(self) -> list[str]:
        """Those that hold anything."""
        return sorted(file.name for file in self.path.iterdir() if file.stat().st_size and file.name not in IDLE)

    def is_loose(self, name: str) -> bool:
        """Whether it is the log that was being written, of which the end was not flushed yet."""
        manifest = read_manifest(self.path / "manifest.json")
        return name in [f"{log.name}-wal" for log in manifest.logs if log.state == "open"]


IDLE = ("lock", "reserve")
"""Files whose content means nothing."""


@pytest.fixture(scope="module")
def past() -> Iterator[Past]:
    with fresh_directory() as path, fresh_directory() as older, fresh_directory() as copy:
        first = worked(path, seed=11, steps=50, closing=True)  # so that nothing is left in any -wal
        assert not first.report.bad
        shutil.copytree(path, older)
        second = worked(path, seed=12, steps=44)
        assert not second.report.bad
        flushed = max(place for place, outcome in enumerate(second.outcomes) if outcome.word == "fsync")
        tails = [outcome.state for outcome in second.outcomes[flushed:] if outcome.state is not None]
        shutil.copytree(path, copy)
        found = opened(copy)
        assert found.state == tails[-1]
        yield Past(path, older, found, frozenset(tails))


def test_the_directory_has_everything_that_can_be_damaged(past: Past):
    manifest = read_manifest(past.path / "manifest.json")
    assert sum(log.state == "sealed" for log in manifest.logs) >= 2
    assert any(log.state == "sparse" for log in manifest.logs)
    assert manifest.checkpoint
    assert manifest.keys
    assert len(past.tails) > 5
    assert any(past.is_loose(name) for name in past.files())
    assert past.whole.keys


# --- the ways ----------------------------------------------------------------------------------------


class Damage(msgspec.Struct, frozen=True):
    """One way to be wrong."""

    way: str
    name: str
    offset: int = 0
    value: int = 0
    other: str = ""

    def do(self, past: Past, path: Path) -> None:
        file = path / self.name
        match self.way:
            case "flip":
                data = bytearray(file.read_bytes())
                data[self.offset] ^= self.value
                file.write_bytes(data)
            case "zero":
                data = bytearray(file.read_bytes())
                data[self.offset : self.offset + PAGE] = bytes(len(data[self.offset : self.offset + PAGE]))
                file.write_bytes(data)
            case "cut":
                with file.open("r+b") as opened_file:
                    opened_file.truncate(self.offset)
            case "delete":
                file.unlink()
            case "older":
                shutil.copyfile(past.older / self.name, file)
            case "swap":
                other = path / self.other
                here, there = file.read_bytes(), other.read_bytes()
                file.write_bytes(there)
                other.write_bytes(here)


def places(name: str, data: bytes) -> list[int]:
    """Where a flip hurts most: headers, pointers and the beginnings of cells; and everywhere else."""
    if name.endswith("-wal"):
        pages = range(WAL_HEADER + FRAME_HEADER, len(data) - PAGE + 1, PAGE + FRAME_HEADER)
        found = [*range(WAL_HEADER)]
        for page in pages:
            found += [*range(page - FRAME_HEADER, page), *hot(data, page, 0)]
        return found
    if name.endswith(".db"):
        return [place for page in range(0, len(data), PAGE) for place in hot(data, page, 100 if page == 0 else 0)]
    return [*range(min(len(data), 400))]


def hot(data: bytes, page: int, skipped: int) -> list[int]:
    """The structure of one page of a B-tree."""
    start = page + skipped
    found = [*range(page, start + 12)]
    if data[start : start + 1] not in (b"\x0d", b"\x05", b"\x0a", b"\x02"):
        return found
    cells = struct.unpack_from(">H", data, start + 3)[0]
    pointers = start + (12 if data[start] in (5, 2) else 8)
    found += range(pointers, min(pointers + 2 * cells, page + PAGE))
    for cell in range(min(cells, 40)):
        at = page + struct.unpack_from(">H", data, pointers + 2 * cell)[0]
        found += range(at, min(at + 16, page + PAGE, len(data)))
    return found


def flips(past: Past) -> list[Damage]:
    chance = random.Random(SEED)
    if SOAK:
        return [
            Damage("flip", name, offset, 1 << chance.randrange(8))
            for name in past.files()
            for offset in range((past.path / name).stat().st_size)
        ]
    chosen: list[Damage] = []
    names = past.files()
    for number in range(FLIPS):
        name = names[number % len(names)]
        data = (past.path / name).read_bytes()
        anywhere = chance.random() < 0.3
        offset = chance.randrange(len(data)) if anywhere else chance.choice(places(name, data))
        chosen.append(Damage("flip", name, offset, chance.choice([1, 2, 16, 64, 128, 255])))
    return chosen


def cuts(past: Past) -> list[Damage]:
    chance = random.Random(SEED)
    found: list[Damage] = []
    for name in past.files():
        size = (past.path / name).stat().st_size
        lengths = {0, 1, size - 1, size // 2, *(chance.randrange(size) for _ in range(40 if SOAK else 4))}
        if name.endswith(("-wal", ".db")):
            lengths |= set(range(0, size, PAGE)) | set(range(WAL_HEADER, size, PAGE + FRAME_HEADER))
        found += [Damage("cut", name, length) for length in sorted(lengths) if length < size]
    return sampled(found, CUTS, SEED)


def zeros(past: Past) -> list[Damage]:
    found = [
        Damage("zero", name, offset)
        for name in past.files()
        for offset in range(0, (past.path / name).stat().st_size, PAGE)
    ]
    return sampled(found, CUTS, SEED)


def others(past: Past) -> list[Damage]:
    """Gone, exchanged, or as they were before."""
    names = sorted(file.name for file in past.path.iterdir())
    logs = [name for name in names if name.endswith((".db", "-wal"))]
    pairs = [(one, other) for one in logs for other in logs if one < other]
    found = [Damage("delete", name) for name in names]
    found += [Damage("older", name) for name in names if (past.older / name).exists() and name != "lock"]
    return found + [Damage("swap", one, other=other) for one, other in sampled(pairs, SWAPS, SEED)]


# --- what must be so ---------------------------------------------------------------------------------


def content(path: Path) -> dict[str, bytes]:
    """What nobody may touch who refuses to open it."""
    return {
        file.name: data
        for file in path.iterdir()
        if not file.name.endswith("-shm") and file.name != "lock" and (data := file.read_bytes())
    }


def wrong_with(past: Past, damage: Damage) -> str:
    """Empty if all is as it should be."""
    with fresh_directory() as path:
        shutil.copytree(past.path, path)
        before = content(path)
        damage.do(past, path)
        damaged = content(path)
        try:
            found = seen(path)
        except ChildFailed as failed:
            return f"{damage}: {str(failed).strip().splitlines()[-1]}"
        if isinstance(found, Found):
            loose = damage.way in ("flip", "cut", "zero", "swap") and past.is_loose(damage.name)
            if found.state != past.whole.state and not (loose and found.state in past.tails):
                return f"{damage}: it was opened and is something else"
            if not set(found.keys) <= {*past.whole.keys, "None"}:
                return f"{damage}: it was opened and has other keys"
            if found.keys != past.whole.keys and not (damage.name == "keys.db" and damage.way in ("flip", "older")):
                return f"{damage}: it was opened and has lost keys"
            return ""
        if found.code not in ("damaged", "newer_format", "invalid"):
            return f"{damage}: {found.code}"
        names = {damage.name, damage.other, damage.name.removesuffix("-wal"), damage.other.removesuffix("-wal")} - {""}
        is_named = damage.way in ("older", "swap") or any(str(path / name) in found.message for name in names)
        if not is_named or not any(what in found.message for what in TO_DO):
            return f"{damage}: {found.message}"
        if found.at_open and content(path) != damaged:
            changed = [name for name in {*damaged, *content(path)} if damaged.get(name) != content(path).get(name)]
            return f"{damage}: it was refused ({found.message}) and has been changed: {changed}"
        for name in {*content(path), *before}:
            if name in before:
                (path / name).write_bytes(before[name])
            else:
                (path / name).unlink()
        if found.at_open and opened(path).state != past.whole.state:
            return f"{damage}: it was undone and something is missing"
        return ""


def swept(past: Past, damages: list[Damage]) -> list[str]:
    with ThreadPoolExecutor(2) as pool:
        return [wrong for wrong in pool.map(lambda damage: wrong_with(past, damage), damages) if wrong]


@pytest.mark.parametrize("way", [flips, cuts, zeros, others], ids=lambda way: way.__name__)
def test_damage_is_refused_or_harmless(past: Past, way: Callable[[Past], list[Damage]]):
    damages = way(past)
    wrong = swept(past, damages)
    assert not wrong, f"seed {SEED}, {len(wrong)} of {len(damages)}:\n" + "\n".join(wrong[:200])


def test_the_end_of_the_log_that_was_never_flushed_is_cut(past: Past):
    """Every frame less is an earlier turn, down to the flushed ones; beyond them the start is refused."""
    name = next(name for name in past.files() if past.is_loose(name))
    size = (past.path / name).stat().st_size
    states: list[str] = []
    for length in range(size, WAL_HEADER, -(PAGE + FRAME_HEADER)):
        with fresh_directory() as path:
            shutil.copytree(past.path, path)
            Damage("cut", name, length - 1).do(past, path)
            found = seen(path)
            if not isinstance(found, Found):
                assert found.code == "damaged", found
                break
            states.append(found.state)
    else:
        raise AssertionError("nothing was flushed")
    assert len(set(states)) >= 2
    assert set(states) <= past.tails


def test_a_process_that_only_looks_finds_the_same_again(past: Past):
    """The control: without damage everything is there, once and again."""
    with fresh_directory() as path:
        shutil.copytree(past.path, path)
        assert opened(path).state == past.whole.state
        assert opened(path).state == past.whole.state
        again = worked(path, Fault(), seed=13, steps=10, closing=True)
        assert not again.report.bad
        assert opened(path).state in again.possible
