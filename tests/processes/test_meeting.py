"""The moment at which all processes of a server stop for a snapshot."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.model.errors import Unavailable
from stoker.server.processes.snapshot_barrier import BarrierLeader, BarrierMember
from tests.processes.serving import until

GUESTS = 3


class Diary:
    """What happened, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        with self._lock:
            self.lines.append(line)


def attend(
    meeting: BarrierLeader | BarrierMember, diary: Diary, before_stopping: Callable[[], object] = lambda: None
) -> None:
    try:
        meeting.ready()
        before_stopping()
        diary.note("stopped")
        meeting.paused()
        diary.note("goes on")
    finally:
        if isinstance(meeting, BarrierMember):
            meeting.close()


@pytest.mark.parametrize("late", range(GUESTS))
def test_no_process_goes_on_before_all_have_stopped(late: int, tmp_path: Path):
    """Also when one of them is still in a turn while the others wait for it."""
    host, diary, turn_over = BarrierLeader(tmp_path, GUESTS), Diary(), threading.Event()
    with ThreadPoolExecutor(GUESTS + 1) as pool:
        busy: dict[int, Callable[[], object]] = {late: lambda: turn_over.wait(30)}
        guests = [
            pool.submit(attend, BarrierMember(tmp_path), diary, busy.get(number, lambda: None))
            for number in range(GUESTS)
        ]
        hosted = pool.submit(attend, host, diary)
        until(lambda: diary.lines.count("stopped") == GUESTS - 1, "that all others have stopped")
        assert "goes on" not in diary.lines
        turn_over.set()
        for each in (hosted, *guests):
            each.result(30)
    host.close()
    assert diary.lines == ["stopped"] * (GUESTS + 1) + ["goes on"] * (GUESTS + 1)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_does_not_come_ends_the_meeting_for_all(tmp_path: Path):
    host = BarrierLeader(tmp_path, 2, ready_s=0.1)
    with ThreadPoolExecutor(2) as pool:
        guest = pool.submit(attend, BarrierMember(tmp_path), Diary())
        with pytest.raises(Unavailable, match="did not stop at the same moment"):
            attend(host, Diary())
        host.close()
        with pytest.raises(Unavailable):
            guest.result(30)


def test_a_process_that_dies_ends_the_meeting_for_all(tmp_path: Path):
    host = BarrierLeader(tmp_path, 2)
    with ThreadPoolExecutor(2) as pool:
        guest: Future[None] = pool.submit(attend, BarrierMember(tmp_path), Diary())
        dying = BarrierMember(tmp_path)

        def die() -> None:
            raise RuntimeError("killed")

        died = pool.submit(attend, dying, Diary(), die)
        with pytest.raises(Unavailable):
            attend(host, Diary())
        host.close()
        with pytest.raises(Unavailable):
            guest.result(30)
        with pytest.raises(RuntimeError, match="killed"):
            died.result(30)


def test_who_leads_can_end_it_from_another_thread(tmp_path: Path):
    host = BarrierLeader(tmp_path, 2)
    with ThreadPoolExecutor(2) as pool:
        guest = pool.submit(attend, BarrierMember(tmp_path), Diary())
        hosted = pool.submit(attend, host, Diary())
        host.end()
        with pytest.raises(Unavailable):
            hosted.result(30)
        host.close()
        with pytest.raises(Unavailable):
            guest.result(30)


def test_a_stranger_who_connects_is_no_process(tmp_path: Path):
    host = BarrierLeader(tmp_path, 1)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "meeting"))
        stranger.sendall(b"?")
        with pytest.raises(Unavailable):
            attend(host, Diary())
    host.close()
