"""Says what is wrong with the history of a queue that has groups, a limit of concurrency and a webhook.

It compares the queue's own story, what the workers have heard, and what the receiver of the webhook was told. All of
them concern the same jobs, and each is a witness of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stoker.model.events import Event, EventKind
from tests.cluster.hook_receiver import Happening, HookReceiver
from tests.histories.checker import OUT_OF_ACTIVE

SLOTS = 3
"""Fewer than there are groups and workers."""
POSTED = ("pushed", "started", "completed")


class Held(msgspec.Struct):
    """A delivery, as a worker knows it."""

    job: int
    token: int
    group: str
    number: int
    heard_at: int
    until: int
    """The worker holds it at least from `heard_at` until then: its lease runs, and it has not settled it yet."""


class OrderedChecker:
    """`pushed` has group and number of each job whose push was answered; `events` are all of the queue, in order."""

    def __init__(
        self,
        events: Sequence[Event],
        pushed: Mapping[int, tuple[str, int]],
        held: Sequence[Held],
        receiver: HookReceiver,
    ) -> None:
        self._events, self._pushed, self._held, self._receiver = events, pushed, held, receiver
        self._happened: set[Happening] = {
            (event.kind.value, event.job, event.attempt, event.at) for event in events if event.kind in POSTED
        }

    def unposted(self) -> set[Happening]:
        """Events that the receiver has not confirmed yet."""
        return self._happened - self._receiver.confirmed

    def check(self) -> dict[str, list[str]]:
        return {
            "lost": list(self._lost()),
            "order and slots, as told": list(self._disorder()),
            "order, as heard": list(self._heard_out_of_order()),
            "slots, as heard": list(self._held_at_once()),
            "webhooks": list(self._webhooks_gone_wrong()),
        }

    def _lost(self) -> Iterator[str]:
        """Each push made one job, and each job completed once."""
        completed = Counter(event.job for event in self._events if event.kind is EventKind.COMPLETED)
        for job, (group, number) in self._pushed.items():
            if completed[job] != 1:
                yield f"{group}/{number} completed {completed[job]} times"
        for (group, number), jobs in Counter(self._pushed.values()).items():
            if jobs > 1:
                yield f"{group}/{number} is {jobs} jobs"

    def _disorder(self) -> Iterator[str]:
        """Never more are active than there are slots, and a group goes on only when its head has completed."""
        active: set[int] = set()
        completed: dict[str, int] = defaultdict(lambda: -1)
        """The last number of each group."""
        for event in self._events:
            group, number = self._pushed[event.job]
            if event.kind is EventKind.STARTED:
                active.add(event.job)
                if len(active) > SLOTS:
                    yield f"{sorted(active)} are active at {event.sequence}"
                if number != completed[group] + 1:
                    yield f"{group}/{number} started when {group}/{completed[group]} was the last that had completed"
            elif event.kind in OUT_OF_ACTIVE:
                active.discard(event.job)
            if event.kind is EventKind.COMPLETED:
                completed[group] = number

    def _heard_out_of_order(self) -> Iterator[str]:
        """Tokens of a shard grow, so they tell the order of deliveries."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for held in sorted(self._held, key=lambda held: held.token):
            numbers[held.group].append(held.number)
        for group, delivered in numbers.items():
            if delivered != sorted(delivered):
                yield f"{group} was delivered as {delivered}"

    def _held_at_once(self) -> Iterator[str]:
        steps: list[tuple[int, int, Held]] = []
        for held in self._held:
            if held.until > held.heard_at:
                steps += [(held.heard_at, 1, held), (held.until, -1, held)]
        steps.sort(key=lambda step: step[:2])
        count = 0
        for at, change, held in steps:
            count += change
            if count > SLOTS:
                yield f"{count} deliveries are held at {at}, the last is {held}"

    def _webhooks_gone_wrong(self) -> Iterator[str]:
        """Each event arrives at least once, always with the same id, and no other event does."""
        for happening in sorted(self.unposted()):
            yield f"{happening} was not posted"
        for happening, ids in self._receiver.told.items():
            if happening not in self._happened:
                yield f"{happening} was posted and never happened"
            if len(ids) > 1:
                yield f"{happening} was posted as {sorted(ids)}"
        for id, happenings in self._receiver.happenings.items():
            if len(happenings) > 1:
                yield f"{id} was posted for {sorted(happenings)}"
