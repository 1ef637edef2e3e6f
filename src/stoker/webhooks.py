"""For receivers of Stoker's webhooks: check that a request comes from a server that knows the secret, and is new.

    from stoker import webhooks

    if not webhooks.verify(secret, request.headers["X-Stoker-Signature"], request.body):
        return 401

It needs only the standard library. An event may arrive more than once; `X-Stoker-Delivery` is the same each time.
"""

import hashlib
import hmac
import re
import time
from typing import Final

SIGNATURE: Final = "X-Stoker-Signature"
DELIVERY: Final = "X-Stoker-Delivery"
EVENT: Final = "X-Stoker-Event"
ATTEMPT: Final = "X-Stoker-Attempt"
FLASHQ_SIGNATURE: Final = "X-FlashQ-Signature"

TOLERANCE_S: Final = 300.0
"""Clocks differ, and requests may be delayed on their way; but a recorded request must not stay valid forever."""
HEADER_CHARS_MAX: Final = 4_096
TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")


def sign(secret: str, body: bytes, timestamp: int) -> str:
    """The signature header: `t=<unix time>,v1=<hex HMAC-SHA256 of "t.body">`."""
    return f"t={timestamp},v1={_digest(secret, str(timestamp), body)}"


def sign_flashq(secret: str, body: bytes) -> str:
    """flashQ's signature, over the body alone. A recorded request can be replayed; prefer `verify`."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verify(
    secret: str, header: str | None, body: bytes, tolerance_s: float = TOLERANCE_S, now: float | None = None
) -> bool:
    """Whether the header signs exactly this body with this secret, at most `tolerance_s` ago (or ahead)."""
    if not secret or not header or len(header) > HEADER_CHARS_MAX:
        return False
    timestamp, signatures = _parts(header)
    if timestamp is None or not signatures:
        return False
    wanted = _digest(secret, timestamp, body).encode()
    matches = [hmac.compare_digest(wanted, given.encode(errors="replace")) for given in signatures]
    age = (time.time() if now is None else now) - int(timestamp)
    return any(matches) and abs(age) <= tolerance_s


def _digest(secret: str, timestamp: str, body: bytes) -> str:
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _parts(header: str) -> tuple[str | None, list[str]]:
    """The timestamp as written, and the signatures; there are several while a secret is being changed."""
    timestamps: list[str] = []
    signatures: list[str] = []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            timestamps.append(value)
        elif name == "v1":
            signatures.append(value)
    if len(timestamps) != 1 or not TIMESTAMP.fullmatch(timestamps[0]):
        return None, []
    return timestamps[0], signatures
