"""`stoker serve`: open the data directory, serve until a signal comes, stop in good order.

Signals: SIGTERM and SIGINT drain and stop, a second one hands running jobs back at once; SIGHUP reads tokens, keys,
quotas and limits again.
"""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

from stoker.brokers.local import LocalBroker, open_memory, open_sqlite
from stoker.brokers.shared import SERVER, notice
from stoker.model.errors import StokerError
from stoker.server import logs
from stoker.server.config import ServerConfig
from stoker.server.server import Server

log = logging.getLogger("stoker.server")


Reload = Callable[[], ServerConfig]
"""Reads the configuration again. Raises `StokerError` if it is no good."""


def run(config: ServerConfig, again: Reload | None = None) -> int:
    """Serve until told to stop: the exit code."""
    logs.set_up(config.log)
    if config.processes > 1:
        from stoker.server.processes.supervisor import supervise

        with asyncio.Runner() as runner:
            return runner.run(supervise(config, again))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(serve(config, again))


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one: it handles several times as many requests."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


YOUNG_OBJECTS = 50_000
"""New containers between two looks for garbage: Python's own 700 comes up every few requests, and finds nothing."""


def calm_collector() -> None:
    """Hardly anything here is part of a cycle, and jobs are not tracked at all: looking for garbage cost a sixth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


async def serve(config: ServerConfig, again: Reload | None = None) -> int:
    broker = open_queue(config)
    calm_collector()
    try:
        server = Server(config, broker)
        lines = await server.start()
        stopped = asyncio.Event()
        catch_signals(server, stopped, again)
        for line in lines:
            print(line, flush=True)  # noqa: T201  this is what `stoker serve` says to people and scripts
        await stopped.wait()
        await server.stop()
    finally:
        broker.close()
    return 0


def open_queue(config: ServerConfig) -> LocalBroker:
    if config.data is None:
        return open_memory("", {}, config.local)
    return open_sqlite(config.data, {}, config.local, notice=notice(SERVER, config.local))


def catch_signals(server: Server, stopped: asyncio.Event, again: Reload | None) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopped.is_set():
            server.hurry()
        stopped.set()

    def reload() -> None:
        try:
            server.reload(again() if again is not None else server.config)
            log.info("read tokens, keys, quotas and limits again")
        except StokerError as error:
            log.error("nothing was reloaded: %s", error)

    handlers: dict[int, Any] = {signal.SIGTERM: stop, signal.SIGINT: stop}
    if sys.platform != "win32":
        handlers[signal.SIGHUP] = reload
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
