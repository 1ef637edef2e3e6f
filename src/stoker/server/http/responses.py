"""Turns replies and errors into HTTP responses with the right status."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stoker.model.errors import StokerError
from stoker.wire import native

Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
MSGPACK = b"application/msgpack"
NDJSON = b"application/x-ndjson"

STATUS: dict[str, int] = {
    "error": 500,
    "refused": 422,
    "invalid": 400,
    "limit_exceeded": 422,  # a body that is too large is a 413, sent where it is read
    "not_found": 404,
    "wrong_state": 409,
    "lost_lease": 409,
    "unknown_dependency": 422,
    "dependency_cycle": 422,
    "unknown_stage": 404,
    "transaction_over": 409,
    "queue_active": 409,
    "duplicate": 409,
    "timeout": 408,
    "job_failed": 409,
    "unauthenticated": 401,
    "forbidden": 403,
    "quota_exceeded": 429,
    "busy": 429,
    "unsupported": 501,
    "unavailable": 503,
    "disk_full": 503,
    "memory_full": 503,
    "shutting_down": 503,
    "unreachable": 503,
    "closed": 503,
    "unknown": 500,
    "cannot_open": 503,
    "in_use": 503,
    "damaged": 503,
    "newer_format": 503,
}
"""The status for each error code."""

RETRY_AFTER_S = {429: b"1", 503: b"5"}
CHALLENGE = b'Bearer realm="stoker"'

GUARDS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]
"""Headers of every response: browsers must not guess a page or a script, and nothing may be cached."""

encode_json = native.FORMATS["json"].encode


class TooLarge(StokerError):
    """A body that is too large to read to its end."""

    code = "limit_exceeded"


class NotHere(StokerError):
    """No such path."""

    code = "not_found"


class WrongMethod(StokerError):
    """The path exists, but not with this method."""

    code = "invalid"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path does not take that method: it takes {allowed}")
        self.allowed = allowed


class TooSlow(StokerError):
    """The body did not come in time."""

    code = "timeout"


OWN_STATUS: dict[type[StokerError], int] = {TooLarge: 413, WrongMethod: 405}


def status_of(error: StokerError) -> int:
    return OWN_STATUS.get(type(error)) or STATUS.get(error.code, 500)


def extra_headers(error: StokerError, status: int) -> Headers:
    found: Headers = []
    if status in RETRY_AFTER_S:
        found.append((b"retry-after", RETRY_AFTER_S[status]))
    if status == 401:
        found.append((b"www-authenticate", CHALLENGE))
    if isinstance(error, WrongMethod):
        found.append((b"allow", error.allowed.encode()))
    if type(error) in (TooLarge, TooSlow):
        found.append((b"connection", b"close"))  # the rest of the body will not be read
    return found


async def send(to: Send, status: int, body: bytes, kind: bytes = JSON, headers: Headers | None = None) -> None:
    """Send a whole response."""
    fields = [(b"content-type", kind), *GUARDS, *(headers or ())]
    at_once = getattr(getattr(to, "__self__", None), "answer_whole", None)  # the sender of a visit can write it at once
    if at_once is not None and at_once(status, body, fields):
        return
    fields.append((b"content-length", b"%d" % len(body)))
    await to({"type": "http.response.start", "status": status, "headers": fields})
    await to({"type": "http.response.body", "body": body})


def problem(error: StokerError) -> native.WireError:
    return native.WireError(False, error.message, error.code, None, error.retryable)


async def refuse(to: Send, error: StokerError) -> None:
    status = status_of(error)
    await send(to, status, encode_json(problem(error)), JSON, extra_headers(error, status))


class Ok(msgspec.Struct):
    """A response in the envelope that flashQ's clients read."""

    ok: bool
    data: Any


async def send_data(to: Send, data: Any, status: int = 200) -> None:
    await send(to, status, encode_json(Ok(True, data)))
