"""Requests about jobs that are named: look at them, wait for them, change them."""

from msgspec import Raw

from stoker.model.options import Codec
from stoker.wire.flashq.requests.shape import Request


class ById(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one job."""

    id: int


class ByIds(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About some jobs."""

    ids: list[int]


class ByCustomId(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About the job with this id of yours; in any queue when none is named."""

    job_id: str
    queue: str | None = None


class Wait(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Wait until a job has ended."""

    id: int
    timeout: int = 30_000


class Update(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Give a job another payload."""

    id: int
    data: Raw
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


class ChangePriority(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Change the priority of a job."""

    id: int
    priority: int


class MoveToDelayed(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Let a job wait for `delay` milliseconds."""

    id: int
    delay: int
    token: int | None = None


class GetChildren(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The children of a flow's parent, and how many have completed."""

    parent_id: int
