"""Serves `/health` and `/ready` over HTTP, for probes: is the worker in touch with its queue?

A running process proves nothing. A worker is healthy while its pulls are answered, or while all its slots are taken and
it has no reason to pull. This module knows only the report that it is given.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Literal

import msgspec

log = logging.getLogger("stoker.worker")

UNHEALTHY_AFTER_MS = 60_000
"""How long pulls may go unanswered. A pull that waits for a job is answered, empty, long before."""
HEAD_BYTES_MAX = 8_192
HEAD_S = 5.0
"""How long a caller may take to send its request."""
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Pulse:
    """When pulls were sent and answered; one for each loop that pulls. Times are monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered_at: float | None = None
        self._trying_since: float | None = None
        self.polled_at = 0
        """Wall-clock milliseconds of the last answer, for people; 0 means none yet."""
        self.error = ""
        """Why the last pull failed; empty after one has succeeded."""

    def began(self) -> None:
        """A pull was sent. The first one since the last answer starts the clock."""
        if self._trying_since is None:
            self._trying_since = self._clock()

    def answered(self) -> None:
        """A pull was answered, with or without jobs."""
        self._answered_at, self._trying_since, self.error = self._clock(), None, ""
        self.polled_at = time.time_ns() // 1_000_000

    def failed(self, error: object) -> None:
        self.error = str(error) or type(error).__name__

    @property
    def trying_ms(self) -> int:
        """How long pulls have been unanswered; 0 while none is under way because all slots are taken."""
        return 0 if self._trying_since is None else round((self._clock() - self._trying_since) * 1000)

    @property
    def answered_ms_ago(self) -> int | None:
        return None if self._answered_at is None else round((self._clock() - self._answered_at) * 1000)


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes show."""

    status: Literal["ok", "starting", "stopping", "unhealthy"]
    last_poll_ms_ago: int | None
    """None means never."""
    running: int
    slots: int
    done: int = 0
    worker: str = ""
    error: str = ""

    @property
    def is_healthy(self) -> bool:
        return self.status != "unhealthy"

    @property
    def is_ready(self) -> bool:
        return self.status == "ok"


def report_of(
    pulses: list[Pulse],
    *,
    running: int,
    slots: int,
    done: int = 0,
    worker: str = "",
    stopping: bool = False,
    unhealthy_after_ms: int = UNHEALTHY_AFTER_MS,
) -> HealthReport:
    """The state of a worker from its pulses; the worst one counts."""
    ages = [pulse.answered_ms_ago for pulse in pulses]
    known = [age for age in ages if age is not None]
    status: Literal["ok", "starting", "stopping", "unhealthy"] = "ok"
    if any(pulse.trying_ms > unhealthy_after_ms for pulse in pulses) and not stopping:
        status = "unhealthy"
    elif stopping:
        status = "stopping"
    elif not known:
        status = "starting"
    return HealthReport(
        status=status,
        last_poll_ms_ago=min(known) if known else None,
        running=running,
        slots=slots,
        done=done,
        worker=worker,
        error=next((pulse.error for pulse in pulses if pulse.error), ""),
    )


class HealthServer:
    """The two pages on their own port. `/health` is 503 when the worker should be replaced, `/ready` also while it
    starts or stops.
    """

    def __init__(self, report: Callable[[], HealthReport], host: str = "127.0.0.1", port: int = 0) -> None:
        self._report = report
        self._address = (host, port)
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen. Returns the port; the system chooses it if 0 was asked for."""
        self._server = await asyncio.start_server(self._serve, *self._address, limit=HEAD_BYTES_MAX)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening. Requests under way are still answered."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answer(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass  # a malformed request gets no answer
        finally:
            writer.close()

    def answer(self, head: bytes) -> bytes:
        """The whole response to one request; the connection is closed after it."""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3:
            return page(400, b'{"error":"expected GET /health or GET /ready"}')
        method, path = words[0], words[1].partition(b"?")[0]
        if path not in (b"/health", b"/ready"):
            return page(404, b'{"error":"there are /health and /ready"}')
        if method not in (b"GET", b"HEAD"):
            return page(405, b'{"error":"use GET"}')
        report = self._report()
        good = report.is_healthy if path == b"/health" else report.is_ready
        return page(200 if good else 503, msgspec.json.encode(report), has_body=method == b"GET")


def page(status: int, body: bytes, *, has_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")
