"""How much room a data directory keeps for a full disk: a share of the disk within bounds, or what was asked for."""

from pathlib import Path

import pytest

from stoker.brokers.local import LocalSettings, open_sqlite
from stoker.journal.disk import Disk
from stoker.journal.sqlite import JournalSettings, reserve_of

MIB = 1 << 20
GIB = 1 << 30


class Sized(Disk):
    """A disk of a certain size."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size_bytes(self, path: Path) -> int:
        return self._size


@pytest.mark.parametrize(
    ("disk", "expected"),
    [(GIB, 4 * MIB), (100 * GIB, 100 * GIB // 10_000), (10_000 * GIB, 64 * MIB)],
    ids=["small", "usual", "large"],
)
def test_the_reserve_is_a_share_of_the_disk(disk: int, expected: int, tmp_path: Path):
    assert reserve_of(JournalSettings(), tmp_path, Sized(disk)) == pytest.approx(expected, abs=1)


def test_another_share_may_be_asked_for(tmp_path: Path):
    settings = JournalSettings(disk_reserve_share=0.001)
    assert reserve_of(settings, tmp_path, Sized(20 * GIB)) == pytest.approx(20 * GIB / 1_000, abs=1)


@pytest.mark.parametrize("size", [0, 8_192, 256 * MIB])
def test_a_size_in_bytes_counts_whatever_the_disk(size: int, tmp_path: Path):
    assert reserve_of(JournalSettings(disk_reserve_bytes=size), tmp_path, Sized(GIB)) == size


def kept(path: Path, settings: JournalSettings) -> int:
    open_sqlite(str(path), {}, LocalSettings(shards=1, journal=settings)).close()
    return (path / "reserve").stat().st_size if (path / "reserve").exists() else 0


def test_an_empty_directory_is_small(tmp_path: Path):
    """On a disk of ordinary size: where this runs, it is as much as the share says."""
    expected = reserve_of(JournalSettings(), tmp_path, Disk())
    assert kept(tmp_path / "data", JournalSettings()) == expected
    others = [file.stat().st_size for file in (tmp_path / "data").iterdir() if file.name != "reserve"]
    assert sum(others) < MIB


def test_what_an_earlier_release_kept_is_given_back(tmp_path: Path):
    assert kept(tmp_path / "data", JournalSettings(disk_reserve_bytes=9 * MIB)) == 9 * MIB
    assert kept(tmp_path / "data", JournalSettings(disk_reserve_bytes=5 * MIB)) == 5 * MIB
