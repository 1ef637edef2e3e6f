"""Watches how far a stream is behind, and tells it: to a file in the lake, and to Prometheus."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stoker.model.lag import Lag
    from stoker.spark.options import ReadOptions

EVERY_S = 5.0
log = logging.getLogger(__name__)

GAUGES = {
    "stoker_pipeline_lag_events": "Events of a shard that the lake does not have yet.",
    "stoker_pipeline_lag_seconds": "How long ago the oldest of them happened.",
    "stoker_pipeline_position": "The last record of a shard that the lake has.",
}
"""By shard."""
MEASURED = "stoker_pipeline_lag_measured_timestamp_seconds"


class Address(click.ParamType[Any]):
    """`HOST:PORT`, or a port of this machine alone."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            self.fail(f"{value!r}: expected HOST:PORT, such as 127.0.0.1:9108", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


class LagWatch(AbstractContextManager["LagWatch"]):
    """A thread that measures the lag of a query every few seconds, for as long as it runs."""

    def __init__(self, options: "ReadOptions", progress: Callable[[], Any], tell: "Callable[[Lag], None]") -> None:
        self._options, self._progress, self._tell = options, progress, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stoker-lag", daemon=True)
        self._failed = False

    def __enter__(self) -> "LagWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """It may be waiting for a queue that is away, which is no reason to wait."""
        self._over.set()
        self._thread.join(LEAVE_S)

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                self._look()
                self._failed = False
            except Exception as error:  # a queue, or a lake, that is away for a moment does not end the stream
                if not self._failed and not self._over.is_set():
                    log.warning("the lag cannot be measured: %s", error)
                self._failed = True

    def _look(self) -> None:
        from stoker.spark.lag import measure, positions_of

        positions = positions_of(self._progress())
        if positions:
            self._tell(measure(self._options, positions))


LEAVE_S = 2.0


class LagFile:
    """The file of a lake with its lag. It is written when something has changed, and else now and then."""

    def __init__(self, write: Callable[[str, dict[str, Any]], None]) -> None:
        self._write = write
        self._last: Lag | None = None

    def tell(self, lag: "Lag") -> None:
        from stoker.model.lag import AGAIN_MS, FILE

        if self._last is None or lag.shards != self._last.shards or lag.at - self._last.at >= AGAIN_MS:
            self._write(FILE, lag.as_json())
            self._last = lag


class LagMetrics:
    """The lag for Prometheus, served under `/metrics`."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Gauge

        self.registry: CollectorRegistry = CollectorRegistry()
        self._gauges = {name: Gauge(name, says, ["shard"], registry=self.registry) for name, says in GAUGES.items()}
        self.port = 0
        """Where they are served."""
        self._measured = Gauge(MEASURED, "When the lag was measured.", registry=self.registry)

    def tell(self, lag: "Lag") -> None:
        for each in lag.shards:
            for gauge, value in zip(self._gauges.values(), (each.events, each.seconds, each.position), strict=True):
                gauge.labels(str(each.shard)).set(value)
        self._measured.set(lag.at / 1000)

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Serve them from a thread. Returns what ends it."""
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as error:
            raise click.UsageError(f"--metrics {host}:{port}: {error.strerror or error}") from None

        self.port = server.server_port

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end
