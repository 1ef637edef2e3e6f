"""The checker of the ordered work notices each thing that it is for."""

from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest

from stoker.model.events import Event, EventKind
from tests.cluster.hook_receiver import HookReceiver
from tests.cluster.ordered_checker import POSTED, Held, OrderedChecker


class History:
    """Two jobs of each of two groups, pushed, delivered and completed one after another."""

    def __init__(self, receiver: HookReceiver) -> None:
        self.receiver = receiver
        self.pushed = {1: ("a", 0), 2: ("a", 1), 3: ("b", 0), 4: ("b", 1)}
        self.events: list[Event] = []
        self.held: list[Held] = []
        for job, (group, number) in self.pushed.items():
            for kind in (EventKind.PUSHED, EventKind.STARTED, EventKind.COMPLETED):
                self.add(kind, job)
            self.held.append(Held(job, job, group, number, job * 10, job * 10 + 5))
        self.post_all()

    def add(self, kind: EventKind, job: int, place: int | None = None) -> None:
        place = len(self.events) if place is None else place
        event = Event(shard=0, sequence=place, index=0, at=1, kind=kind, tenant="t", queue="q", job=job, attempt=1)
        self.events.insert(place, event)

    def post_all(self) -> None:
        for event in self.events:
            if event.kind in POSTED:
                body = {"event": event.kind.value, "job_id": event.job, "attempt": 1, "timestamp": 1}
                self.post(f"{event.kind}-{event.job}", body)

    def post(self, id: str, body: Mapping[str, object]) -> None:
        while self.receiver.note(id, {"id": id, **body}) != 200:
            pass

    def found(self) -> list[str]:
        checker = OrderedChecker(self.events, self.pushed, self.held, self.receiver)
        return [rule for rule, wrong in checker.check().items() if wrong]


@pytest.fixture
def history() -> Iterator[History]:
    receiver = HookReceiver()
    yield History(receiver)
    receiver.close()


def test_a_good_history_is_good(history: History):
    assert history.found() == []


def completed_twice(history: History) -> None:
    history.add(EventKind.COMPLETED, 2)


def never_completed(history: History) -> None:
    history.events = [event for event in history.events if (event.kind, event.job) != (EventKind.COMPLETED, 4)]
    history.receiver.told.pop(("completed", 4, 1, 1))


def number_twice(history: History) -> None:
    history.pushed[4] = ("b", 0)
    history.held[3] = msgspec.structs.replace(history.held[3], number=0)


def overtaken(history: History) -> None:
    """The second of a group starts while the first is under way."""
    history.events.insert(2, history.events.pop(4))


def too_many_active(history: History) -> None:
    history.pushed |= {job: (f"g{job}", 0) for job in range(5, 9)}
    for job in range(5, 9):
        history.add(EventKind.STARTED, job)
    for job in range(5, 9):
        history.add(EventKind.COMPLETED, job)
    history.post_all()


def heard_out_of_order(history: History) -> None:
    history.held[0].token = 9


def held_at_once(history: History) -> None:
    history.held = [Held(job, job, f"g{job}", 0, 10, 20) for job in range(4)]


def unposted(history: History) -> None:
    history.receiver.confirmed.pop()


def another_id(history: History) -> None:
    history.post("other", {"event": "pushed", "job_id": 1, "attempt": 1, "timestamp": 1})


def never_happened(history: History) -> None:
    history.post("new", {"event": "pushed", "job_id": 99, "attempt": 1, "timestamp": 1})


def id_used_again(history: History) -> None:
    for job in (98, 99):
        history.post("same", {"event": "pushed", "job_id": job, "attempt": 1, "timestamp": 1})


TOLD, HEARD_ORDER, HEARD_SLOTS = "order and slots, as told", "order, as heard", "slots, as heard"
WRONGS: list[tuple[Callable[[History], None], list[str]]] = [
    (completed_twice, ["lost"]),
    (never_completed, ["lost"]),
    (number_twice, ["lost", TOLD]),
    (overtaken, [TOLD]),
    (too_many_active, [TOLD]),
    (heard_out_of_order, [HEARD_ORDER]),
    (held_at_once, [HEARD_SLOTS]),
    (unposted, ["webhooks"]),
    (another_id, ["webhooks"]),
    (never_happened, ["webhooks"]),
    (id_used_again, ["webhooks"]),
]


@pytest.mark.parametrize(("make", "rules"), WRONGS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_wrong_is_noticed(make: Callable[[History], None], rules: list[str], history: History):
    make(history)
    assert history.found() == rules
