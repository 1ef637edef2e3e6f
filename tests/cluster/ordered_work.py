"""A queue with groups, a limit of concurrency and a webhook, at work while a cluster is disturbed.

Each group has one client that pushes its jobs one after another. In the end the queue's own story, what the workers
have heard, and what the webhook's receiver was told must agree: nothing lost, order in groups, slots given once.
"""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import stoker
from stoker.model import replies as r
from stoker.model.errors import Unavailable, Unknown
from stoker.model.events import Event
from stoker.model.options import Options
from tests.cluster.hook_receiver import HookReceiver
from tests.cluster.nodes import until
from tests.cluster.ordered_checker import POSTED, SLOTS, Held, OrderedChecker
from tests.histories.checker import CLOCK_MS
from tests.histories.recorder import now_ms
from tests.histories.stories import stories_of

TENANT, QUEUE = "ordered", "line"
GROUPS = ("a", "b", "c", "d", "e")
WORKERS = 4
LEASE_MS = 3_000
PUSHES_EVERY_S = 0.25
"""For each group: webhooks are posted one after another, and must keep up on a slow machine."""
PAUSE_S = 0.1
PATIENCE_S = 180.0
SETTINGS = (
    *("--set", 'webhooks.allow=["127.0.0.0/8"]', "--set", "webhooks.backoff_s=0.1"),
    *("--set", "webhooks.backoff_s_max=0.5", "--set", "webhooks.attempts_max=1000"),
    *("--set", "webhooks.circuit_failures=1000"),
)
"""Of a node whose webhooks reach the receiver and are tried again soon."""
WITH_HTTP = ("--http", "127.0.0.1:0", "--grpc", "off")


class OrderedWork:
    """Clients that push and workers that work off, until they are stopped."""

    def __init__(self, url: str, receiver: HookReceiver) -> None:
        self._client = stoker.connect(url, tenant=TENANT)
        self.receiver = receiver
        self.held: list[Held] = []
        self.pushed: dict[int, tuple[str, int]] = {}
        """Group and number of each job whose push was answered."""
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._pushers = [threading.Thread(target=self._guarded, args=(self._push_all, group)) for group in GROUPS]
        self._workers = [threading.Thread(target=self._guarded, args=(self._work, str(n))) for n in range(WORKERS)]
        self._no_more = threading.Event()

    def start(self, http: str) -> None:
        until(lambda: self._is_limited(), "the limit", PATIENCE_S)
        until(lambda: self._is_registered(http), "the webhook", PATIENCE_S)
        for thread in (*self._pushers, *self._workers):
            thread.start()

    def _is_limited(self) -> bool:
        try:
            self._client.set_concurrency(QUEUE, SLOTS)
        except (Unavailable, Unknown):
            return False
        return True

    def _is_registered(self, http: str) -> bool:
        """Look before each attempt: two registrations would be two webhooks."""
        wanted = json.dumps({"url": self.receiver.url, "events": POSTED, "queue": QUEUE}).encode()
        try:
            is_there = self.receiver.url in self._webhooks(http)
            return is_there or self.receiver.url in self._webhooks(http, wanted)
        except urllib.error.HTTPError:
            return False

    def _webhooks(self, http: str, body: bytes | None = None) -> str:
        request = urllib.request.Request(f"{http}/webhooks", body, {"stoker-tenant": TENANT})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return str(answer.read(), "utf-8")

    def finish(self) -> None:
        """Push no more, work off what is there."""
        self._stop.set()
        self._join(self._pushers)
        until(self._is_done, "the end of the ordered jobs", PATIENCE_S)
        self._no_more.set()
        self._join(self._workers)

    def close(self) -> None:
        self._stop.set()
        self._no_more.set()
        for thread in (*self._pushers, *self._workers):
            if thread.ident is not None:
                thread.join(PATIENCE_S)
        self._client.close()

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a client hangs"

    def _is_done(self) -> bool:
        try:
            counts = self._client.get_counts(QUEUE)
        except (Unavailable, Unknown):
            return False
        return not counts.waiting + counts.delayed + counts.active

    # --- clients ---------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[str], None], name: str) -> None:
        try:
            work(name)
        except Exception as error:
            self.wrong.append(f"a client of {name} ended with {error!r}")

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """The answer; the same is asked again while the outcome is unknown, or the seat is away."""
        while True:
            try:
                return ask()
            except (Unavailable, Unknown):
                time.sleep(PAUSE_S)

    def _push_all(self, group: str) -> None:
        number = 0
        while not self._stop.wait(PUSHES_EVERY_S):
            name = f"{group}/{number}"
            options = Options(group_id=group, custom_id=name, max_crashes=1_000, max_attempts=1_000)
            pushed: r.Pushed = self._asked(lambda: self._client.push(QUEUE, name.encode(), options))  # noqa: B023
            self.pushed[pushed.id] = group, number
            number += 1

    def _work(self, name: str) -> None:
        while not self._no_more.is_set():
            try:
                delivery = self._client.pull(QUEUE, 2, wait_ms=200, worker=name, lease_ms=LEASE_MS)
            except (Unavailable, Unknown):
                time.sleep(PAUSE_S)
                continue
            heard_at = now_ms()
            time.sleep(PAUSE_S / 10)  # it works
            asked_at = now_ms()
            for job in delivery:
                group, _, number = job.payload.decode().partition("/")
                until = min(job.lease_until - CLOCK_MS, asked_at)
                self.held.append(Held(job.id, delivery.token, group, int(number), heard_at, until))
            if delivery.runs:
                self._asked(lambda: self._client.ack_batch(delivery.ids, delivery.token))  # noqa: B023

    # --- judging ---------------------------------------------------------------------------------

    def check(self) -> dict[str, list[str]]:
        """What is wrong, by rule."""
        checker = OrderedChecker(self._story(), self.pushed, self.held, self.receiver)
        self._until_posted(checker)
        found = checker.check() | {"errors": self.wrong, "counts": list(self._miscounted())}
        return {rule: wrong for rule, wrong in found.items() if wrong}

    def _until_posted(self, checker: OrderedChecker) -> None:
        """As long as webhooks arrive, more may come: they are posted one after another."""
        while unposted := checker.unposted():
            before = self.receiver.posts
            try:
                until(lambda: self.receiver.posts > before, "a webhook", PATIENCE_S)  # noqa: B023
            except AssertionError:
                raise AssertionError(f"{len(unposted)} webhooks never came, as {min(unposted)}") from None

    def _story(self) -> list[Event]:
        """All events of the queue, in order: it lives in one shard."""
        return sorted(
            (event for events in stories_of(self._client, self.pushed, QUEUE).values() for event in events),
            key=lambda event: (event.sequence, event.index),
        )

    def _miscounted(self) -> Iterator[str]:
        total = self._client.get_stats(QUEUE).totals
        if (total.pushed, total.completed) != (len(self.pushed), len(self.pushed)):
            yield f"{total.pushed} pushed and {total.completed} completed, of {len(self.pushed)}"


@contextmanager
def ordered_work(url: str, http: str) -> Iterator[OrderedWork]:
    receiver = HookReceiver()
    work = OrderedWork(url, receiver)
    try:
        work.start(http)
        yield work
    finally:
        work.close()
        receiver.close()
