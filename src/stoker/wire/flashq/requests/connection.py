"""Requests about the connection itself: who speaks, in which form, and what it wants to be told."""

import msgspec

from stoker.wire.flashq.requests.shape import Request


class Auth(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Say who you are."""

    token: str


class Hello(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Learn the server's version and limits, and say what this client understands."""

    version: int | str | None = None
    client: str = ""
    token: str | None = None
    entitlement: str | None = None
    """Quotas that the operator has signed."""
    tokens: bool = True
    """Whether each delivery must be named by its token; false for a client that may act on the current one."""
    ranges: bool = False
    """Whether ids may come as `[[first, count, step], ...]`."""


class Subscribe(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Receive events on this connection as they happen: of one queue or of all, of some kinds or of all."""

    queue: str | None = None
    events: list[str] = msgspec.field(default_factory=list)
    after: dict[int, int | tuple[int, int]] | None = None
    """The positions to go on from, by shard, instead of now: a sequence number of which every event was seen, or
    `[sequence, index]` of the last event that was seen."""


class Unsubscribe(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Receive no more events of a queue, or of any."""

    queue: str | None = None
    events: list[str] = msgspec.field(default_factory=list)


class Metrics(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Totals, rates and queues; with `history`, how they were in the last minutes."""

    history: bool = False
