"""Ends a server whose broker has stopped by itself."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from stoker.model.errors import StokerError
from stoker.server.served_broker import ServedBroker


class LogFailed(StokerError):
    """The broker has stopped, most likely because its log could not be written or flushed. The process ends."""

    code = "log_failed"


def end_with(broker: ServedBroker, stopped: asyncio.Event, hurry: Callable[[], None]) -> None:
    """Let the server stop as soon as the broker stops by itself: there is no job to wait for."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        stopped.set()
        hurry()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed: the process ends already
            loop.call_soon_threadsafe(end)

    if broker.turns is not None:
        broker.turns.when_stopped(tell)


def check_stopped(broker: ServedBroker) -> None:
    """Raise what the process ends with, if the broker has stopped by itself."""
    if broker.turns is not None and broker.turns.failure:
        raise LogFailed(f"the server ends, and can be started again: {broker.turns.failure}")
