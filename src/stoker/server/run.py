"""`stoker serve`: opens the data directory or reaches Redis, serves until a signal comes, and stops in order.

Signals: SIGTERM and SIGINT drain and stop, a second one hands running jobs back at once; SIGHUP reads tokens, keys,
quotas and limits again.
"""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stoker.brokers.local import open_memory, open_sqlite
from stoker.brokers.shared_directory import SERVER, notice
from stoker.model.errors import StokerError
from stoker.server import logs
from stoker.server.auth.gate import Gate
from stoker.server.binding import Bound
from stoker.server.broker_stopped import check_stopped, end_with
from stoker.server.client_broker import ClientBroker
from stoker.server.config import ServerConfig, tls_context
from stoker.server.descriptors import raise_limit
from stoker.server.served_broker import ServedBroker
from stoker.server.server import Server

log = logging.getLogger("stoker.server")


Reload = Callable[[], ServerConfig]
"""Reads the configuration again. Raises `StokerError` if it is no good."""


def run(config: ServerConfig, again: Reload | None = None, notes: Sequence[str] = ()) -> int:
    """Serve until told to stop: the exit code. `notes` are printed behind the lines that say where it listens."""
    logs.set_up(config.log)
    raise_limit(2 * config.server.connections_max)
    if config.cluster.url:
        from stoker.server.processes.cluster_seating import supervise as supervise_node

        with asyncio.Runner() as runner:
            return runner.run(supervise_node(config, again, notes))
    if config.processes > 1:
        from stoker.server.processes.directory_seating import supervise

        with asyncio.Runner() as runner:
            return runner.run(supervise(config, again, notes))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(serve(config, again, notes))


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


async def serve(config: ServerConfig, again: Reload | None = None, notes: Sequence[str] = ()) -> int:
    check_files(config)
    bound = Bound()
    await bound.bind(config)  # before the queue is opened: a server that cannot listen leaves no directory behind
    try:
        broker, about = await open_queue(config)
    except BaseException:
        bound.close()
        raise
    calm_collector()
    return await _serve_over(config, broker, bound, again, [*about, *notes])


def run_over(config: ServerConfig, broker: ClientBroker) -> int:
    """Serve a broker that a client has opened, until told to stop: the exit code."""

    async def serve() -> int:
        bound = Bound()
        try:
            await bound.bind(config)
        except BaseException:
            broker.close()
            raise
        return await _serve_over(config, broker, bound)

    logs.set_up(config.log)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(serve())


async def _serve_over(
    config: ServerConfig,
    broker: ServedBroker,
    bound: Bound,
    again: Reload | None = None,
    notes: Sequence[str] = (),
) -> int:
    try:
        server = Server(config, broker, bound=bound)
        if isinstance(broker, ClientBroker):
            server.gate.open_identity = broker.identity
            server.webhooks.elsewhere = broker.of_webhooks
        lines = first_words(config, [*await server.start(), *notes])
        stopped = asyncio.Event()
        catch_signals(server, stopped, again)
        end_with(broker, stopped, server.hurry)
        for line in lines:
            print(line, flush=True)  # noqa: T201  this is what `stoker serve` says to people and scripts
        await stopped.wait()
        await server.stop()
        check_stopped(broker)
    finally:
        broker.close()
    return 0


def first_words(config: ServerConfig, lines: Sequence[str]) -> list[str]:
    """The lines that say where a server listens, where its pages are, and what its replies wait for."""
    at = next((line.split()[1] for line in lines if line.startswith("http ") and "://" in line), None)
    pages = [f"ui     {at}/ui/"] if at is not None and config.dashboard.enabled else []
    kept = [f"data   {config.data}, durability: {config.durability}"] if config.data is not None else []
    return [*lines, *pages, *kept]


def check_files(config: ServerConfig) -> None:
    """Raise if a file that the configuration names cannot be used: tokens, keys, certificates."""
    Gate(config.auth)
    for listener in (config.tcp, config.http, config.grpc):
        tls_context(listener.tls)


async def open_queue(config: ServerConfig) -> tuple[ServedBroker, list[str]]:
    """The queue, and the lines that say what it is where that is not plain from the flags."""
    if config.broker is not None:
        from stoker.brokers.redis.served import open_served

        broker, facts = await open_served(config.broker, config.engine, config.limits)
        return broker, [f"broker {broker.seed} (version {facts.version}), durability: {facts.level}"]
    if config.data is None:
        return open_memory("", {}, config.local), []
    return open_sqlite(config.data, {}, config.local, notice=notice(SERVER, config.local)), []


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
