"""Requests of those who work: pulling, settling, extending, and what is said of a job meanwhile."""

import msgspec
from msgspec import Raw

from stoker.model.options import Codec
from stoker.wire.flashq.requests.shape import NOT_SAID, Request, Tokens


class Pull(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Take one job; wait for it up to `timeout`."""

    queue: str | list[str]
    timeout: int = 60_000
    worker: str = ""
    lease_ms: int | None = None
    claim: str | None = None


class PullBatch(Pull, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Take up to `count` jobs; wait for the first up to `timeout`."""

    count: int = 1


class Ack(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The job is done."""

    id: int
    result: Raw = NOT_SAID
    token: int | None = None
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


class AckBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The jobs are done; `results` has one entry an id."""

    ids: list[int]
    tokens: Tokens = None
    results: list[Raw] | None = None
    codec: Codec | None = None
    """How all of them are to be stored."""


class Fail(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The delivery failed: tried again after the backoff or `delay`; not if `unrecoverable`, or if `retry` is false.

    `reason` goes with `retry` false and says why: `explicit_fail`, `invalid_arguments` or `invalid_result`.
    """

    id: int
    error: str = ""
    error_class: str = ""
    stack: str | list[str] = ""
    """As one text, or line by line."""
    retry: bool = True
    unrecoverable: bool = False
    delay: int | None = None
    token: int | None = None
    reason: str = ""


class Release(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Hand jobs back without costing an attempt; with a delay: snooze."""

    id: int | None = None
    ids: list[int] = msgspec.field(default_factory=list)
    delay: int = 0
    tokens: Tokens = None
    token: int | None = None


class Heartbeat(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Renew the lease of one job, or of many."""

    id: int | None = None
    ids: list[int] = msgspec.field(default_factory=list)
    lease_ms: int | None = None
    tokens: Tokens = None
    token: int | None = None


class Progress(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Say how far a running job is, from 0 to 100."""

    id: int
    progress: int | float
    message: str = ""
    token: int | None = None


class Log(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Add a line to a job's log."""

    id: int
    message: str
    level: str = "info"
    token: int | None = None


class Partial(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Stream a chunk of a running job's result."""

    id: int
    data: Raw
    index: int | None = None
    token: int | None = None
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""
