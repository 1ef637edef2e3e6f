"""A registered hook: what a tenant may ask for, what is stored, and what is shown: everything except its secret."""

import base64
import secrets
from typing import Any, Final

import msgspec

from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.events import EventKind
from stoker.model.limits import NAME_PATTERN
from stoker.server.reader import Filter
from stoker.server.webhooks.circuit import CircuitState
from stoker.server.webhooks.urls import parse

ALL: Final = "*"
KINDS: Final = frozenset(str(kind) for kind in EventKind)
SECRET_BYTES: Final = 32
SECRET_CHARS_MIN, SECRET_CHARS_MAX = 16, 256
"""Shorter ones can be guessed from one signed body."""
MASK: Final = "********"


class HookRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant's request. With the `id` of an existing hook, that hook is changed and continues from its position."""

    url: str
    events: tuple[str, ...]
    """Kinds of events, or `*`; `job.completed` means `completed`."""
    queue: str | None = None
    """None = every queue of the tenant."""
    secret: str | None = None
    """None = a new hook gets a generated one, an existing one keeps its own."""
    enabled: bool = True
    """False keeps the hook without posting; enabled again, it continues from its position."""
    id: str | None = None

    def __repr__(self) -> str:
        return f"Wanted(url=..., events={self.events!r}, queue={self.queue!r})"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """The stored hook."""

    id: str
    tenant: str
    url: str
    events: tuple[str, ...]
    queue: str | None
    secret: str
    enabled: bool
    created_at: int

    @property
    def filter(self) -> Filter:
        """Which events it wants."""
        return Filter(self.queue, () if ALL in self.events else self.events)

    def __repr__(self) -> str:
        return f"Hook(id={self.id!r}, tenant={self.tenant!r})"  # the URL may contain a secret, too


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a hook. Times are in milliseconds; 0 = never."""

    circuit: CircuitState = "closed"
    delivered: int = 0
    failures: int = 0
    """Failed attempts in total."""
    consecutive_failures: int = 0
    given_up: int = 0
    """Events that failed too often."""
    missed: int = 0
    """Positions of the log that were dropped before this hook had read them."""
    last_success_at: int = 0
    last_failure_at: int = 0
    last_error: str = ""
    waiting: int = 0
    """Events that failed and will be tried again."""
    pending: int = 0
    """About how many events it is behind, counted in log records, which may have several or none."""


class HookView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown."""

    id: str
    url: str
    events: tuple[str, ...]
    queue: str | None
    enabled: bool
    created_at: int
    secret: str = MASK
    """Shown once, in the reply to the request that made it."""
    status: Status = Status()

    def __repr__(self) -> str:
        return f"HookView(id={self.id!r})"


def view(hook: Hook, status: Status, secret: str = MASK) -> HookView:
    return HookView(
        id=hook.id,
        url=hook.url,
        events=hook.events,
        queue=hook.queue,
        enabled=hook.enabled,
        created_at=hook.created_at,
        secret=secret,
        status=status,
    )


def registered(wanted: HookRequest, tenant: str, now_ms: int, old: Hook | None) -> Hook:
    """The requested hook. Raises `InvalidRequest` or `LimitExceeded`."""
    parse(wanted.url)
    if wanted.queue is not None and not NAME_PATTERN.fullmatch(wanted.queue):
        raise InvalidRequest("invalid queue: a name has 1 to 256 letters, digits and _ . : -")
    secret = wanted.secret if wanted.secret is not None else old.secret if old is not None else new_secret()
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX or not secret.isprintable():
        raise InvalidRequest(f"invalid secret: expected {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} printable characters")
    return Hook(
        id=old.id if old is not None else new_id(),
        tenant=tenant,
        url=wanted.url,
        events=kinds(wanted.events),
        queue=wanted.queue,
        secret=secret,
        enabled=wanted.enabled,
        created_at=old.created_at if old is not None else now_ms,
    )


def kinds(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Each kind once, by its own name."""
    if len(asked) > len(KINDS) * 2:
        raise LimitExceeded(f"{len(asked)} events: there are only {len(KINDS)} kinds, and * for all of them")
    found: dict[str, Any] = dict.fromkeys(kind.removeprefix("job.") for kind in asked)
    if not found:
        raise InvalidRequest("no events: name at least one kind, or * for all of them")
    unknown = sorted(found.keys() - KINDS - {ALL})
    if unknown:
        raise InvalidRequest(f"unknown event {unknown[0][:64]!r}: expected *, or some of {', '.join(sorted(KINDS))}")
    return (ALL,) if ALL in found else tuple(found)


def new_id() -> str:
    return f"wh_{secrets.token_hex(12)}"


def new_secret() -> str:
    return f"whsec_{base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip('=')}"
