"""Lets pages of other sites use the API from a browser: none, unless the configuration names their origins.

A browser asks first (a preflight, `OPTIONS`), and shows a response to a page only if the response names the page's
origin.
"""

from typing import Any

from stoker.server.http.responses import Send

MAX_AGE_S = 600
METHODS = b"GET, POST, PUT, PATCH, DELETE"
HEADERS = b"authorization, content-type, accept, last-event-id, idempotency-key, stoker-tenant, stoker-entitlement"


def origin_of(scope: Any, allowed: tuple[str, ...]) -> bytes | None:
    """The origin of a request, if it is allowed."""
    if not allowed:
        return None
    for name, value in scope["headers"]:
        if name == b"origin":
            return value if value.decode("latin-1") in allowed else None
    return None


def named(send: Send, origin: bytes) -> Send:
    """The same sender, with the origin named in every response."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
            message = {**message, "headers": [*message["headers"], *own]}
        await send(message)

    return sending


async def allow(send: Send) -> None:
    """Answer a preflight."""
    headers = [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", HEADERS),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
