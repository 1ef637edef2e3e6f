"""The checker itself: a true history passes, and whatever is false about a history is found."""

from collections.abc import Callable

import msgspec
import pytest

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.events import Event, EventKind
from stoker.model.ids import make_id
from stoker.model.options import Options
from stoker.model.states import State
from tests.histories.checker import CLOCK_MS, Checker
from tests.histories.history import Began, Ended, Entry, Intent, Recovered, Refused, Reply, Seen, Unsure

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


def test_a_job_that_is_known_by_its_id_alone_may_be_cancelled_and_has_its_key_later():
    """Its push was never answered; another one with the same unique key was, with its id."""
    unique = Options(unique_key="u")
    entries: list[Entry] = [
        Intent(0, c.Push("q", b"a;", unique)),
        Unsure("unknown", ""),
        Intent(1, c.Push("q", b"b;", unique)),
        Reply(r.Pushed(ONE, duplicate_by="unique_key")),
        Intent(2, c.Cancel(ONE)),
        Unsure("unknown", ""),
        Recovered(3, [seen(ONE, b"a", State.CANCELLED)], []),
    ]
    assert found_in(entries) == set()
    assert found_in([*entries[:-1], Recovered(3, [seen(ONE, b"b", State.CANCELLED)], [])]) == {"invented"}


def test_what_a_client_never_heard_of_may_be_told_to_it_later():
    """Its release was carried out and not answered. It sends the same again, long after the lease."""
    release = c.Release([THREE], [3])
    unsure: list[Entry] = [Intent(50, release), Unsure("unknown", ""), Intent(900, release), Reply(r.Settled(1))]
    assert found_in([*history(), *unsure]) == set()
    assert found_in([*history(), *unsure[2:]]) == {"unfenced"}
    assert found_in([*history(), *unsure[:2], Intent(900, c.Ack([THREE], [3])), Reply(r.Settled(1))]) == {"unfenced"}


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


# --- several clients at once --------------------------------------------------------------------------


def asked(at: int, client: str, command: c.Command[object]) -> Intent:
    return Intent(at, command, client)


def heard(at: int, client: str, reply: object) -> Reply:
    return Reply(reply, client, at)


def delivery(token: int, until: int, attempt: int = 1) -> r.Delivery:
    return r.Delivery(token, [r.Run("q", [ONE], [b"a;"], LEASE, attempt, 0, until)])


PUSHED: list[Entry] = [asked(0, "A", c.Push("q", b"a;", LEASE)), heard(1, "A", r.Pushed(ONE))]
FIRST: list[Entry] = [*PUSHED, asked(2, "A", c.Pull(["q"])), heard(3, "A", delivery(1, 102))]
"""The client A holds the job until 102."""
SECOND: list[Entry] = [*FIRST, asked(110, "B", c.Pull(["q"])), heard(111, "B", delivery(2, 210, 2))]
"""A's lease has ended, and B holds it."""
ACK_A, ACK_B = c.Ack([ONE], [1], [b"A"]), c.Ack([ONE], [2], [b"B"])
DONE_BY_B: list[Entry] = [*SECOND, asked(120, "B", ACK_B), heard(121, "B", r.Settled(1))]
LOST_LEASE = r.Settled(0, {ONE: "lost_lease"})

TRUE_HISTORIES: dict[str, list[Entry]] = {
    "the job changes hands": [*DONE_BY_B, asked(130, "A", ACK_A), heard(131, "A", LOST_LEASE)],
    "an answer that comes late": [
        *PUSHED,
        asked(2, "A", c.Pull(["q"])),
        asked(110, "B", c.Pull(["q"])),
        heard(111, "B", delivery(2, 210, 2)),
        heard(300, "A", delivery(1, 102)),
    ],
    "released, and pulled before the answer": [
        *FIRST,
        asked(10, "A", c.Release([ONE], [1])),
        asked(11, "B", c.Pull(["q"])),
        heard(13, "B", delivery(2, 112)),
        heard(14, "A", r.Settled(1)),
    ],
    "an ack that may have happened": [
        *FIRST,
        asked(10, "A", ACK_A),
        Unsure("unknown", "", "A", 20),
        asked(30, "A", ACK_A),
        heard(31, "A", LOST_LEASE),
    ],
    "extended while another one looks": [
        *FIRST,
        asked(90, "A", c.Extend([ONE], [1])),
        heard(95, "A", r.Extended(1, 192)),
        asked(110, "B", c.Pull(["q"])),
        heard(111, "B", r.Delivery(0, [])),
        asked(150, "A", ACK_A),
        heard(151, "A", r.Settled(1)),
    ],
}

FALSE_BESIDE: dict[str, tuple[str, list[Entry]]] = {
    "two hold it at once": (
        "doubled",
        [*FIRST, asked(50, "B", c.Pull(["q"])), heard(51, "B", delivery(2, 150))],
    ),
    "two hold it at once, and the first is told late": (
        "doubled",
        [
            *PUSHED,
            asked(2, "A", c.Pull(["q"])),
            asked(4, "B", c.Pull(["q"])),
            heard(5, "B", delivery(2, 105)),
            heard(300, "A", delivery(1, 102)),
        ],
    ),
    "an old token is taken beside a newer one": (
        "unfenced",
        [*SECOND, asked(120, "A", ACK_A), heard(121, "A", r.Settled(1))],
    ),
    "an old token is taken after the end": (
        "unfenced",
        [*DONE_BY_B, asked(130, "A", ACK_A), heard(131, "A", r.Settled(1))],
    ),
    "two acks under way are both taken": (
        "revived",
        [
            *FIRST,
            asked(100, "A", ACK_A),
            asked(110, "B", c.Pull(["q"])),
            heard(111, "B", delivery(2, 210, 2)),
            asked(120, "B", ACK_B),
            heard(121, "B", r.Settled(1)),
            heard(122, "A", r.Settled(1)),
        ],
    ),
    "a lease that was extended has ended": (
        "doubled",
        [
            *FIRST,
            asked(90, "A", c.Extend([ONE], [1])),
            heard(95, "A", r.Extended(1, 192)),
            asked(110, "B", c.Pull(["q"])),
            heard(111, "B", delivery(2, 210, 2)),
        ],
    ),
    "cancelled, and delivered": (
        "revived",
        [
            *PUSHED,
            asked(2, "A", c.Cancel(ONE)),
            heard(3, "A", r.JobView(id=ONE, queue="q", state=State.CANCELLED, payload=b"", options=LEASE, pushed_at=0)),
            asked(4, "B", c.Pull(["q"])),
            heard(5, "B", delivery(1, 105)),
        ],
    ),
    "refused, and there": (
        "invented",
        [
            asked(0, "A", c.Push("q", b"a;", LEASE)),
            Refused("disk_full", "", "A", 1),
            asked(2, "B", c.Pull(["q"])),
            heard(3, "B", delivery(1, 103)),
        ],
    ),
    "refused without a reason": ("lost", [asked(0, "A", c.Push("q", b"a;", LEASE)), Refused("busy", "", "A", 1)]),
}


def check_of(entries: list[Entry]) -> Checker:
    checker = Checker(excused=frozenset({"disk_full"}))
    for entry in entries:
        checker.read(entry)
    return checker


@pytest.mark.parametrize("name", TRUE_HISTORIES)
def test_what_may_happen_beside_another_client_passes(name: str):
    assert dict(check_of(TRUE_HISTORIES[name]).found) == {}


@pytest.mark.parametrize("name", FALSE_BESIDE)
def test_what_may_not_happen_beside_another_client_is_found(name: str):
    rule, entries = FALSE_BESIDE[name]
    assert rule in check_of(entries).found


@pytest.mark.parametrize(
    ("state", "result", "rule"),
    [
        (State.COMPLETED, b"B", None),
        (State.COMPLETED, b"A", "revived"),
        (State.FAILED, None, "revived"),
        (State.WAITING, None, "lost"),
    ],
)
def test_in_the_end_a_job_is_as_its_client_was_told(state: State, result: bytes | None, rule: str | None):
    checker = check_of(DONE_BY_B)
    checker.check_drained([Seen(ONE, b"a", state, 0, 0, result)], 1)
    assert set(checker.found) >= ({rule} if rule else set())
    assert rule is not None or not checker.found


def test_a_job_that_is_gone_in_the_end_is_lost():
    checker = check_of(FIRST)
    checker.check_drained([], 1)
    assert "lost" in checker.found


@pytest.mark.parametrize("all_kept", [True, False])
def test_an_ended_job_is_missed_where_all_of_them_are_kept(all_kept: bool):
    checker = check_of(DONE_BY_B)
    checker.check_drained([], 1, all_kept=all_kept)
    assert checker.missing == [ONE] * all_kept
    assert ("lost" in checker.found) is all_kept


# --- the queue's own story ----------------------------------------------------------------------------


def event(kind: EventKind, at: int, attempt: int = 1) -> Event:
    return Event(shard=0, sequence=at, index=0, at=at, kind=kind, tenant="default", queue="q", job=ONE, attempt=attempt)


STARTED, RETRYING, COMPLETED = EventKind.STARTED, EventKind.RETRYING, EventKind.COMPLETED
STORY = [event(STARTED, 1_000), event(RETRYING, 2_000), event(STARTED, 3_000, 2), event(COMPLETED, 4_000, 2)]
NOTES: list[Entry] = [Began(1_001, ONE, 1, 1), Began(3_001, ONE, 2, 2), Ended(3_999, ONE, 2, 2)]


def told(events: list[Event], notes: list[Entry]) -> set[str]:
    checker = check_of(notes)
    checker.check_told({ONE: events})
    return set(checker.found)


def test_a_job_that_was_lost_once_and_then_completed_is_told_right():
    assert told(STORY, NOTES) == set()


@pytest.mark.parametrize(
    ("events", "notes", "rule"),
    [
        (STORY[:3], NOTES, "untold"),
        ([*STORY, event(STARTED, 5_000, 3), event(COMPLETED, 5_001, 3)], [*NOTES, Ended(5_000, ONE, 3, 3)], "untold"),
        (STORY, [*NOTES, Began(3_002, ONE, 2, 2)], "doubled"),
        (STORY, [*NOTES, Began(2_000 + CLOCK_MS + 1, ONE, 9, 1)], "untold"),
        (STORY, [*NOTES, Began(3_001, ONE, 9, 7)], "untold"),
        (STORY, [*NOTES, Began(1_000, TWO, 1, 1)], "invented"),
        (STORY, NOTES[:2], "untold"),
    ],
)
def test_a_story_that_does_not_fit_is_found(events: list[Event], notes: list[Entry], rule: str):
    assert rule in told(events, notes)
