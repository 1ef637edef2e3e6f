"""What the tests of workers share: handlers made by hand, a queue in this process, and a worker beside the test."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import msgspec

import stoker
from stoker.client.sync import Client
from stoker.model.options import Codec
from stoker.worker.errors import BadArguments
from stoker.worker.handler import Arguments, Handler
from stoker.worker.worker import Worker

WAIT_S = 60.0
"""For things that happen in milliseconds: whoever waits longer waits for ever."""
LEASE_MS = 1_500
"""With every third of it the worker hears whether its job is still wanted; a busy machine has a second for that."""
LIVED_MS = 3_000
"""A lease that a test outlives. It leaves a busy machine two seconds for a renewal."""


def decode(payload: bytes, codec: Codec) -> Arguments:
    """A list is positional arguments, a map keyword arguments."""
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise BadArguments(f"$: {error}") from error
    return ((), value) if isinstance(value, dict) else (value, {})


def handler(function: Callable[..., Any], *, name: str | None = None, **settings: Any) -> Handler:
    """A handler with arguments and results in JSON."""
    kind = "async" if asyncio.iscoroutinefunction(function) else "thread"
    known: dict[str, Any] = {
        "name": name or function.__name__,
        "function": function,
        "kind": kind,
        "decode": decode,
        "encode": msgspec.json.encode,
        "result_codec": "json",
        **settings,
    }
    return Handler(**known)


def push(client: Client, name: str, *args: Any, queue: str = "default", **options: Any) -> int:
    return client.push(queue, msgspec.json.encode(args), name=name, codec="json", **options).id


def push_many(client: Client, name: str, each: Iterable[Any], *, queue: str = "default", **options: Any) -> list[int]:
    payloads = [msgspec.json.encode([value]) for value in each]
    return list(client.push_many(queue, payloads, name=name, codec="json", **options).ids)


def memory() -> Client:
    """A queue of its own under the real clock."""
    return stoker.connect("memory://")


class Beside:
    """A worker that serves in another thread, for as long as a `with` block lasts."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.is_finished: bool | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.is_finished = asyncio.run(self.worker.serve())
        except BaseException as error:
            self.error = error

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            if kind is None:
                self.worker.stop()
            else:
                self.worker.stop_now()
        self.join()

    def hears(self) -> None:
        """Until it has been told to stop: telling it does not wait."""
        until = time.monotonic() + WAIT_S
        while not self.worker.stopping:
            assert time.monotonic() < until, "it was not told"
            time.sleep(0.001)

    def join(self) -> None:
        """Until it has ended by itself."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the worker does not end"


def outlive_the_lease(client: Client, job: int) -> None:
    """Until the queue has seen the lease of a job that runs renewed so often that without that it would be over."""
    first = client.get_job(job).lease_until
    assert first
    while client.get_job(job).lease_until < first + LIVED_MS:
        time.sleep(0.005)


def happens(event: threading.Event) -> None:
    assert event.wait(WAIT_S), "it did not happen"
