"""F6: the disk is full. New jobs are refused, old ones can be worked off, and with room everything goes on by itself.

On a file system of a few megabytes; and, where none may be mounted, under a quota that refuses writes as one would. The
quota is always tried, so that nothing goes untested there.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.schedules import Schedule
from stoker.model.workflows import Step
from tests.crash.zygote import Child, the_zygote
from tests.faults.injecting import Fault
from tests.faults.roles import BUSY, Found, serve
from tests.faults.script import QUEUES
from tests.faults.support import SEED, fresh_directory, opened, sampled, seen, worked

MIB = 1024 * 1024
PAGE = 4096
SIZE = 6 * MIB
RESERVE = MIB // 2

SMALL = msgspec.structs.replace(BUSY, wal_bytes_max=400_000, checkpoint_records=400, disk_reserve_bytes=RESERVE)
"""Files are finished and checkpoints made all the time."""
ONE_FILE = msgspec.structs.replace(BUSY, wal_bytes_max=1 << 30, disk_reserve_bytes=RESERVE)
"""Nothing makes room but whoever removes something."""


class Place(msgspec.Struct, frozen=True):
    """Where there is only so much room."""

    path: Path
    room: int
    """The quota; 0 on a disk that is small itself."""
    filler: Path

    def fill(self, size: int) -> None:
        """Take so much of it away."""
        with self.filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def set_free(self, size: int) -> None:
        """Leave so much."""
        self.filler.unlink(missing_ok=True)
        found = os.statvfs(self.filler.parent)
        if found.f_bavail * found.f_frsize > size:
            self.fill(found.f_bavail * found.f_frsize - size)


@contextmanager
def mounted(size: int) -> Iterator[Place]:
    home = Path(tempfile.mkdtemp(prefix="stoker-disk-"))
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(home)], check=True, capture_output=True
        )
    except BaseException:
        home.rmdir()
        raise
    try:
        yield Place(home / "data", 0, home / "filler")
    finally:
        subprocess.run(["umount", str(home)], check=True)
        home.rmdir()


@contextmanager
def limited(size: int) -> Iterator[Place]:
    with fresh_directory() as path:
        yield Place(path, size, path / "filler")


Small = Callable[[int], Any]


def may_mount() -> bool:
    try:
        with mounted(1 << 20):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


KINDS: dict[str, Small] = {"file system": mounted, "quota": limited} if may_mount() else {"quota": limited}
"""Not everybody may mount a file system that is really small; a quota says no in the same places."""

each_kind = pytest.mark.parametrize("small", KINDS.values(), ids=KINDS)


@contextmanager
def served(place: Place, settings: JournalSettings = SMALL) -> Iterator[Child]:
    with the_zygote().fork(serve, str(place.path), settings, place.room) as child:
        assert child.receive() == "open"
        yield child


def ask(child: Child, *request: object) -> Any:
    child.send(request)
    while True:
        answer = child.receive()
        match answer:
            case "last", _:  # it tells when it stops
                continue
        return answer


@each_kind
def test_jobs_can_be_worked_off_when_the_disk_is_full(small: Small):
    with small(SIZE) as place, fresh_directory() as aside:
        with served(place, ONE_FILE) as child:
            pushed, code = ask(child, "push until refused")
            assert code == "disk_full"
            assert len(pushed) > 100
            done = ask(child, "work off", 30)
            assert set(done) == {"Pull", "Ack", "Fail", "Extend", "Cancel", "Release"}, done
            assert ask(child, "push") == "disk_full", "there is still no room for new ones"
            state = ask(child, "state")
            child.kill()
        shutil.copytree(place.path, aside)
        found = opened(aside)
        assert found.state == state
        assert {job for job, *_ in found.jobs} >= set(pushed)


MUCH = bytes(100_000)
"""A fifth of the reserve."""


def brought(active: int, waiting: int) -> list[c.Command[Any]]:
    """One command of each kind that makes data."""
    return [
        c.UpdatePayload(waiting, MUCH),
        c.AppendPartial(active, MUCH),
        c.AppendLog(active, "x" * 8_000),
        c.SetProgress(active, 50, "x" * 1_000),
        c.Ack([active], None, [MUCH]),
        c.Push("q", MUCH),
        c.PushBatch("q", [MUCH]),
        c.PushWorkflow([Step("q", [MUCH])]),
        c.Stage("t", "s", "q", [MUCH]),
        c.Publish("t", ["staged"]),
        c.KvSet("k", MUCH),
        c.KvSetMany([c.KvEntry("k", MUCH)]),
        c.PutSchedule("q", "s", Schedule(every_ms=1_000, payload=bytes(60_000))),
    ]


@each_kind
def test_whatever_makes_data_is_refused_before_the_reserve_is_touched(small: Small):
    """Ten times the reserve of each: none of it is taken, and the broker goes on."""
    with small(SIZE) as place, served(place, ONE_FILE) as child:
        ask(child, "execute", c.Stage("t", "staged", "q", [b""]))
        pushed, _ = ask(child, "push until refused")
        delivery = ask(child, "execute", c.Pull(QUEUES))
        (active,) = delivery.ids
        waiting = pushed[-1]
        for command in brought(active, waiting):
            assert ask(child, "repeat", command, 50) == {"disk_full"}, type(command).__name__
        assert (place.path / "reserve").exists()
        assert ask(child, "repeat", c.Ack([active], delivery.token, [bytes(1_000)]), 1) == {"ok"}
        assert ask(child, "repeat", c.Discard(waiting), 1) == {"ok"}
        assert ask(child, "execute", c.GetJob(active)).result == bytes(1_000)


@each_kind
def test_a_large_result_waits_until_there_is_room(small: Small):
    with small(SIZE) as place, served(place, ONE_FILE) as child:
        place.fill(3 * MIB)
        ask(child, "push until refused")
        delivery = ask(child, "execute", c.Pull(QUEUES))
        ack = c.Ack(delivery.ids, delivery.token, [MUCH])
        assert ask(child, "execute", ack) == "disk_full"
        assert ask(child, "execute", c.GetJob(delivery.ids[0])).state == "active", "the worker has it still"
        place.filler.unlink()
        ask(child, "keep")
        assert ask(child, "execute", ack).count == 1


@each_kind
def test_when_the_reserve_is_used_up_everything_is_refused_and_nothing_breaks(small: Small):
    with small(SIZE) as place, fresh_directory() as aside:
        with served(place, ONE_FILE) as child:
            place.fill(3 * MIB)
            ask(child, "push until refused")
            (active,) = ask(child, "execute", c.Pull(QUEUES)).ids
            assert ask(child, "repeat", c.Extend([active]), 2_000) == {"ok", "disk_full"}
            assert ask(child, "execute", c.Ack([active])) == "disk_full"
            assert ask(child, "execute", c.GetJob(active)).state == "active", "looking is free"
            place.filler.unlink()
            ask(child, "keep")
            assert ask(child, "execute", c.Ack([active])).count == 1
            assert ask(child, "push") == "ok"
            state = ask(child, "state")
            child.kill()
        shutil.copytree(place.path, aside)
        assert opened(aside).state == state


@each_kind
def test_pushes_of_one_turn_share_the_room(small: Small):
    """Each of them would have found room: together they would have used the reserve, and more."""
    with small(SIZE) as place, served(place, ONE_FILE) as child:
        codes = ask(child, "turn", [c.Push(QUEUES[0], MUCH) for _ in range(100)])
        assert set(codes) == {"ok", "disk_full"}
        assert codes == sorted(codes, reverse=True), "the first come first"
        assert (place.path / "reserve").exists()
        assert set(ask(child, "work off", 10)) >= {"Pull", "Ack"}


@each_kind
def test_with_room_again_jobs_are_taken_again(small: Small):
    with small(SIZE) as place, fresh_directory() as aside:
        with served(place, ONE_FILE) as child:
            place.fill(3 * MIB)
            before, code = ask(child, "push until refused")
            assert code == "disk_full"
            place.filler.unlink()
            ask(child, "keep")
            assert ask(child, "push") == "ok"
            pushed, code = ask(child, "push until refused")
            assert code == "disk_full"
            assert len(pushed) > len(before) + 100
            state = ask(child, "state")
            child.kill()
        shutil.copytree(place.path, aside)
        assert opened(aside).state == state, "elsewhere, where there is room"


@each_kind
def test_what_nothing_needs_goes_when_the_disk_has_little_room(small: Small):
    """No checkpoint is due by the settings. Three times the disk passes through it all the same."""
    rare = msgspec.structs.replace(SMALL, checkpoint_records=1 << 40, checkpoint_files=1 << 20, events_bytes_max=0)
    with small(SIZE) as place, served(place, rare) as child:
        for _ in range(3 * SIZE // len(MUCH)):
            if ask(child, "execute", c.PushBatch("q", [MUCH])) == "disk_full":
                ask(child, "keep")
                assert ask(child, "execute", c.PushBatch("q", [MUCH])) != "disk_full"
            ask(child, "execute", c.Obliterate("q"))
        assert list(place.path.glob("checkpoint-*"))


@each_kind
def test_it_is_closed_and_opened_on_a_full_disk(small: Small):
    """The reserve has room for a file of the log: a restart needs no more."""
    with small(SIZE) as place:
        with served(place) as child:
            ask(child, "push until refused")
            ask(child, "work off", 10)
            state = ask(child, "state")
            assert ask(child, "close") == "closed"
        for _ in range(2):
            with served(place) as child:
                assert ask(child, "state") == state
                assert set(ask(child, "work off", 10)) >= {"Pull", "Ack"}
                state = ask(child, "state")
                child.kill()


@each_kind
def test_a_restart_that_finds_no_room_says_so_and_harms_nothing(small: Small):
    with small(SIZE) as place, fresh_directory() as aside:
        with served(place, ONE_FILE) as child:
            ask(child, "push until refused")
            ask(child, "work off", 25)
            state = ask(child, "state")
            child.kill()
        for _ in range(2):
            done = worked(place.path, Fault(error="ENOSPC"), steps=0, room=place.room, settings=ONE_FILE)
            assert not done.report.bad
            assert done.refused is None or done.refused[0] == "disk_full"
            assert done.refused is not None or done.outcomes[0].state == state
        shutil.copytree(place.path, aside)
        assert opened(aside).state == state


@each_kind
def test_a_new_directory_on_a_full_disk_is_refused(small: Small):
    with small(MIB) as place:
        if place.room:
            place = msgspec.structs.replace(place, room=PAGE)
        else:
            place.set_free(0)
        done = worked(place.path, Fault(error="ENOSPC"), steps=0, room=place.room)
        assert done.refused is not None
        assert done.refused[0] == "disk_full", done.refused
        assert not done.report.bad
        place.filler.unlink(missing_ok=True)
        if not place.room:
            assert opened(place.path).jobs == []


def test_every_kind_of_write_meets_the_end_of_the_disk():
    """So many pages are left when the work begins, and one more, and one more: opening, appending, sealing, the next
    file, the manifest, checkpoints, all of them are the one that finds no room."""
    settings = msgspec.structs.replace(BUSY, disk_reserve_bytes=4 * PAGE)
    rooms = sampled(list(range(0, 700 * PAGE, PAGE)), 16, SEED)
    refused: list[str] = []
    with mounted(16 * MIB) as place:
        past = worked(place.path, seed=5, steps=30)
        assert not past.report.bad
        before = opened(place.path).state
        with fresh_directory() as aside:
            shutil.copytree(place.path, aside)
            for room in rooms:
                shutil.rmtree(place.path)
                shutil.copytree(aside, place.path)
                place.set_free(room)
                refused += wrong_at(place, settings, room, before)
    assert not refused, "\n".join(refused)


def wrong_at(place: Place, settings: JournalSettings, room: int, before: str) -> list[str]:
    done = worked(place.path, Fault(error="ENOSPC"), 6, 40, closing=room % (2 * PAGE) == 0, settings=settings)
    wrong = list(done.report.bad)
    if done.refused is not None and done.refused[0] != "disk_full":
        wrong.append(f"it could not be opened: {done.refused}")
    possible = done.possible or {before}
    found = seen(place.path)  # the disk is still full
    if isinstance(found, Found):
        if found.state not in possible:
            wrong.append("on the full disk something else is found")
    elif found.code != "disk_full":
        wrong.append(f"on the full disk it cannot be opened: {found}")
    place.filler.unlink(missing_ok=True)
    found = seen(place.path)
    if not isinstance(found, Found):
        wrong.append(f"with room it cannot be opened: {found}")
    elif found.state not in possible:
        wrong.append("with room something else is found")
    return [f"{room // PAGE} pages: {what}" for what in wrong]
