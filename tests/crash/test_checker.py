"""The checker itself: a true history passes, and whatever is false about a history is found."""

from collections.abc import Callable

import msgspec
import pytest

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import make_id
from stoker.model.options import Options
from stoker.model.states import State
from tests.crash.checker import Checker
from tests.crash.history import Entry, Intent, Recovered, Reply, Seen

LEASE = Options(lease_ms=100)
ONE, TWO, THREE = (make_id(number, 0) for number in (1, 2, 3))


def run(job: int, payload: bytes, until: int) -> r.Run:
    return r.Run("q", [job], [payload], LEASE, 1, 0, until)


def seen(job: int, key: bytes, state: State = State.WAITING, token: int = 0, until: int = 0) -> Seen:
    return Seen(job, key, state, token, until)


def history() -> list[Entry]:
    """Three jobs: one is done, one is held over a crash, one was pushed and never answered."""
    return [
        Intent(0, c.Push("q", b"a;", LEASE)),
        Reply(r.Pushed(ONE)),
        Intent(0, c.Push("q", b"b;", LEASE)),
        Reply(r.Pushed(TWO)),
        Intent(1, c.Pull(["q"])),
        Reply(r.Delivery(1, [run(ONE, b"a;", 101)])),
        Intent(2, c.Ack([ONE], [1])),
        Reply(r.Settled(1)),
        Intent(3, c.Pull(["q"])),
        Reply(r.Delivery(2, [run(TWO, b"b;", 103)])),
        Intent(4, c.PushBatch("q", [b"c;", b"d;"], LEASE)),
        Recovered(5, [seen(ONE, b"a", State.COMPLETED), seen(TWO, b"b", State.ACTIVE, 2, 103)], []),
        Intent(6, c.Ack([TWO], [2])),
        Reply(r.Settled(1)),
        Intent(7, c.Push("q", b"e;", LEASE)),
        Reply(r.Pushed(THREE)),
        Intent(8, c.Pull(["q"])),
        Reply(r.Delivery(3, [run(THREE, b"e;", 108)])),
    ]


def found_in(entries: list[Entry]) -> set[str]:
    checker = Checker()
    for entry in entries:
        checker.read(entry)
    return set(checker.found)


def test_a_true_history_passes():
    assert found_in(history()) == set()


def instead(place: int, entry: Entry) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: [*entries[:place], entry, *entries[place + 1 :]]


def with_jobs(*jobs: Seen) -> Callable[[list[Entry]], list[Entry]]:
    return instead(11, Recovered(5, list(jobs), []))


DONE, HELD = seen(ONE, b"a", State.COMPLETED), seen(TWO, b"b", State.ACTIVE, 2, 103)

FALSE_HISTORIES: dict[str, tuple[str, Callable[[list[Entry]], list[Entry]]]] = {
    "a job is gone": ("lost", with_jobs(DONE)),
    "a job that nobody asked for": ("invented", with_jobs(DONE, HELD, seen(THREE, b"x"))),
    "half a batch": ("torn", with_jobs(DONE, HELD, seen(THREE, b"c"))),
    "a job is there twice": ("doubled", with_jobs(DONE, HELD, seen(THREE, b"b"))),
    "done, and waiting again": ("revived", with_jobs(seen(ONE, b"a"), HELD)),
    "a lease that the crash has ended": ("unleased", with_jobs(DONE, seen(TWO, b"b"))),
    "completed by nobody": (
        "invented",
        lambda entries: [*entries, Recovered(500, [seen(THREE, b"e", State.COMPLETED)], [])],
    ),
    "the holder is refused": ("unleased", instead(13, Reply(r.Settled(0, {TWO: "lost_lease"})))),
    "an old token is taken": ("unfenced", instead(12, Intent(6, c.Ack([TWO], [1])))),
    "a lease that is over is taken": ("unfenced", instead(12, Intent(300, c.Ack([TWO], [2])))),
    "an id is given twice": ("reused", instead(15, Reply(r.Pushed(TWO)))),
    "a token is given twice": ("reused", instead(17, Reply(r.Delivery(2, [run(THREE, b"e;", 108)])))),
    "done, and delivered again": ("revived", instead(17, Reply(r.Delivery(3, [run(ONE, b"a;", 108)])))),
    "delivered to a second worker": (
        "doubled",
        instead(9, Reply(r.Delivery(2, [run(TWO, b"b;", 103), run(TWO, b"b;", 103)]))),
    ),
    "it had not survived, and comes": ("invented", instead(17, Reply(r.Delivery(3, [run(THREE + 64, b"c;", 108)])))),
}


@pytest.mark.parametrize("name", FALSE_HISTORIES)
def test_a_false_history_is_found_out(name: str):
    rule, tamper = FALSE_HISTORIES[name]
    assert rule in found_in(tamper(history()))


def test_what_was_never_answered_may_have_happened():
    """All of it or nothing; and from then on it counts as promised."""
    both = [seen(THREE, b"c"), seen(THREE + 64, b"d")]
    entries = history()[:11]
    there = Recovered(5, [DONE, HELD, *both], [])
    assert found_in([*entries, there]) == set()
    assert found_in([*entries, there, msgspec.structs.replace(there, jobs=[DONE, HELD])]) == {"lost"}
    gone = Recovered(5, [DONE, HELD], [])
    assert found_in([*entries, gone, there]) == {"invented"}


def test_in_the_end_everything_has_ended():
    checker = Checker()
    for entry in history():
        checker.read(entry)
    checker.check_drained([DONE, seen(TWO, b"b", State.COMPLETED), seen(THREE, b"e", State.ACTIVE, 3, 108)], 4)
    assert len(checker.found["lost"]) == 2
