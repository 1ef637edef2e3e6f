"""What a process does with the toy store until it is killed, and what the tests of it share."""

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import stoker
from stoker.brokers.local import LocalBroker
from tests.crash.zygote import the_zygote
from tests.journal.toy_store import ToyJournal, ToyStore, open_toy

PATIENCE_S = 60


def until(come: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not come():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def journal_of(broker: LocalBroker) -> ToyJournal:
    assert isinstance(broker.store, ToyStore)
    return broker.store.journal


def live(wire: "Connection[Any, Any]", path: str) -> None:
    """Push with answers; then push and look while nothing is committed, until killed."""
    broker = open_toy(Path(path))
    client, journal = stoker.Client(broker), journal_of(broker)
    answered, early = [client.push("q", b"x").id for _ in range(5)], list[Any]()
    journal.may_commit.clear()
    asks: list[Callable[[], Any]] = [lambda: client.push("q", b"y").id] * 5 + [client.list_queues]
    for number, ask in enumerate(asks, 1):
        threading.Thread(target=lambda ask=ask: early.append(ask()), daemon=True).start()
        until(lambda asked=number: len(journal._tickets._waiting) + len(early) == asked)  # type: ignore[misc]
    wire.send((answered, early))
    wire.recv()


def check_death(path: Path) -> None:
    """A death between `append` and the commit costs only what was not answered."""
    with the_zygote().fork(live, str(path)) as child:
        answered, early = child.receive()
    assert not early, f"answered before the commit: {early}"
    with stoker.Client(open_toy(path)) as client:
        assert [job.id for job in client.pull("q", 100)] == answered
        assert client.push("q", b"z").id > max(answered), "no number is given twice"
