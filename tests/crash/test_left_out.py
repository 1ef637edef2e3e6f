"""How many ids are left out after a crash: few if only the process died, many if more may be lost with it."""

import shutil
from pathlib import Path

import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.recovery import GAP, SAME_BOOT_GAP
from stoker.journal.sqlite import JournalSettings
from stoker.model.replies import Level
from tests.crash.roles import push_once
from tests.crash.zygote import the_zygote

SETTINGS = LocalSettings(shards=1, journal=JournalSettings(disk_reserve_bytes=4096, checkpoint_process=False))


def lived(path: Path, *arguments: object, closes: bool = False) -> int:
    """A process that pushes one job and is killed: the number that the job got."""
    with the_zygote().fork(push_once, str(path), SETTINGS, *arguments) as child:
        number: int = child.receive()
        if closes:
            child.send("close")
            assert child.receive() == "closed"
        return number


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_few_ids_are_left_out_when_only_the_process_died(data: Path):
    numbers = [lived(data) for _ in range(3)]
    assert numbers == [1, SAME_BOOT_GAP + 2, 2 * SAME_BOOT_GAP + 3]
    assert numbers[-1] << 6 < 2**31, "a column of 32 bits holds it"


def test_none_is_left_out_after_a_close(data: Path):
    assert [lived(data, closes=True) for _ in range(2)] == [1, 2]


def test_many_ids_are_left_out_after_a_reboot(data: Path):
    assert [lived(data, None, boot) for boot in ("one", "two")] == [1, GAP + 2]


def test_many_ids_are_left_out_where_no_boot_is_known(data: Path):
    assert [lived(data, None, "") for _ in range(2)] == [1, GAP + 2]


@pytest.mark.parametrize("level", ["memory", "fsync"])
def test_many_ids_are_left_out_if_a_reply_did_not_wait_for_the_log(data: Path, level: Level):
    """A push at level `memory` may be answered, and lost with the process."""
    first = lived(data, level)
    gap = GAP if level == "memory" else SAME_BOOT_GAP
    again = lived(data)
    assert (first, again - gap) in ((1, 2), (1, 1)), "the push itself may be lost, or not"


def test_the_next_life_does_not_inherit_a_reply_that_did_not_wait(data: Path):
    second = [lived(data, "memory"), lived(data)][-1]
    assert lived(data) == second + SAME_BOOT_GAP + 1


def test_many_ids_are_left_out_after_the_log_has_failed(data: Path):
    """Pages that could not be written may be gone, although the system runs on."""
    assert [lived(data, None, None, True), lived(data)] == [1, GAP + 2]


def test_many_ids_are_left_out_in_a_copy(data: Path, tmp_path: Path):
    """The original may have given out more since."""
    lived(data)
    shutil.copytree(data, tmp_path / "copy")
    assert lived(tmp_path / "copy") == GAP + 2


def test_many_ids_are_left_out_if_an_earlier_release_was_the_last(data: Path):
    """It leaves the note of the boot alone, but counts its open."""
    lived(data)
    mark = (data / "mark").read_bytes()
    lived(data, None, "")
    (data / "mark").write_bytes((data / "mark").read_bytes()[: 2 * 4096] + mark[2 * 4096 :])
    assert lived(data) == 2 * GAP + 3


def test_a_directory_of_an_earlier_release_is_opened(data: Path):
    lived(data)
    (data / "mark").write_bytes((data / "mark").read_bytes()[: 2 * 4096])
    assert lived(data) == GAP + 2
    assert lived(data) == GAP + SAME_BOOT_GAP + 3, "and notes its boot from now on"


def test_a_damaged_note_is_none(data: Path):
    lived(data)
    mark = bytearray((data / "mark").read_bytes())
    mark[2 * 4096 + 20] ^= 1
    (data / "mark").write_bytes(mark)
    assert lived(data) == GAP + 2
