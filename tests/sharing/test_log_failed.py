"""An owner whose log has failed lets the directory go: another process takes over, and it becomes that one's guest."""

import resource
from pathlib import Path

import pytest

import stoker
from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import Unknown
from stoker.worker.worker import EXIT_FAILED
from tests.crash.zygote import Child
from tests.sharing.conftest import Start
from tests.sharing.test_handover import owns, told

MIB = 1 << 20
SETTINGS = LocalSettings(journal=JournalSettings(disk_reserve_bytes=4096))


def break_writes(child: Child) -> None:
    """From now on no file of that process grows beyond a megabyte: the system refuses the write."""
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (MIB, MIB))


def push_until_it_fails(queue: stoker.Client) -> list[int]:
    done: list[int] = []

    def push() -> None:
        while len(done) < 40:
            done.append(queue.push("q", bytes(300_000)).id)

    with pytest.raises(Unknown):  # this one may be on disk, or not
        push()
    return done


def test_a_guest_takes_over(start: Start, path: Path):
    owner = start(SETTINGS)
    with stoker.connect(f"sqlite:///{path}") as guest:
        assert not owns(guest)
        break_writes(owner)
        done = push_until_it_fails(guest)
        done.append(guest.push("q", b"after").id)
        assert owns(guest)
        assert told(owner, "owns") is False
        job = told(owner, "execute", c.Push("q", b"from the one that had failed"))
        assert isinstance(job, stoker.model.replies.Pushed)
        done.append(job.id)
        assert [guest.get_job(job).id for job in done] == done


def test_a_process_whose_log_failed_does_not_open_it_again(start: Start, path: Path):
    """Not even when there is no other: it says so, and another process finds what was acknowledged."""
    owner = start(SETTINGS)
    first = told(owner, "execute", c.Push("q", b"first"))
    assert isinstance(first, stoker.model.replies.Pushed)
    break_writes(owner)
    assert told(owner, "break", 300_000) == ["unknown", "closed"]
    with stoker.connect(f"sqlite:///{path}") as other:
        assert owns(other)
        assert other.get_job(first.id).id == first.id


def test_the_one_that_failed_finds_a_later_owner(start: Start, path: Path):
    owner = start(SETTINGS)
    break_writes(owner)
    assert told(owner, "break", 300_000) == ["unknown", "closed"]
    with stoker.connect(f"sqlite:///{path}") as other:
        assert owns(other)
        late = told(owner, "execute", c.Push("q", b"late"))
        assert isinstance(late, stoker.model.replies.Pushed)
        assert other.get_job(late.id).payload == b"late"


def test_a_worker_whose_log_failed_ends(start: Start, path: Path):
    """Where no other process goes on: whoever looks after it starts it again."""
    worker = start(SETTINGS)
    break_writes(worker)
    assert told(worker, "work", 300_000) == EXIT_FAILED
    with stoker.connect(f"sqlite:///{path}") as other:
        assert owns(other)
