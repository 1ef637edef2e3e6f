"""From what scripts show of a job to the replies of the contract."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from stoker.brokers.redis.calls import decode
from stoker.model import replies as r
from stoker.model.options import CODECS, DEFAULT_OPTIONS, Options
from stoker.model.states import STATES, State

_options = msgspec.msgpack.Decoder(Options).decode
encode_options = msgspec.msgpack.Encoder().encode

FIELDS = (
    *("option", "state", "at", "size", "attempts", "crashes", "due", "token", "started", "lease", "till", "fires"),
    *("heard", "worker", "cancel", "ended", "reason", "revived", "retries", "expires", "again", "extra", "step"),
)
"""As `core.lua` has them."""


@lru_cache(maxsize=1024)
def options_of(raw: bytes) -> Options:
    """Many jobs share their options."""
    return DEFAULT_OPTIONS if raw == b"\x80" else _options(raw)


def text(value: bytes | None) -> str:
    return value.decode() if value else ""


def job_view(shown: Sequence[Any]) -> r.JobView:
    head, raw, payload, flat = shown
    job_id, queue, values, before = decode(head)
    job = dict(zip(FIELDS, values, strict=True))
    extra: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
    state = STATES[job["state"]]
    active = state is State.ACTIVE
    dead = None
    if state is State.FAILED:
        dead = r.DeadLetter(job["reason"], job["ended"], job["expires"], job["retries"], job["again"])
    result = extra.get(b"result")
    return r.JobView(
        id=job_id,
        queue=queue,
        state=state,
        payload=payload,
        options=options_of(raw),
        pushed_at=job["at"],
        attempts=job["attempts"],
        crashes=job["crashes"],
        due=job["due"] if state is State.DELAYED else 0,
        blocked_by=(*(edge[0] for edge in decode(extra.get(b"b", b"\x90"))), *before),
        started_at=job["started"],
        lease_until=job["till"] if active else 0,
        heartbeat_at=(job["heard"] or job["started"]) if active else 0,
        worker=job["worker"],
        cancel_requested=bool(job["cancel"]),
        finished_at=job["ended"],
        result=result,
        reason=job["reason"],
        error=text(extra.get(b"error")),
        stack=text(extra.get(b"stack")),
        progress=r.Progress(int(extra.get(b"percent", 0)), text(extra.get(b"message"))),
        history=tuple(r.Attempt(*attempt) for attempt in decode(extra[b"history"])) if b"history" in extra else (),
        dead=dead,
        result_codec="bytes" if result is None else text(extra[b"codec"]),  # type: ignore[arg-type]
        error_class=text(extra.get(b"error_class")),
    )


def logs_of(shown: Sequence[Any]) -> r.Logs:
    extra = dict(zip(shown[3][::2], shown[3][1::2], strict=True))
    return r.Logs([r.LogLine(*decode(extra[b"l:%d" % number])) for number in between(extra, b"l")])


def partials_of(shown: Sequence[Any]) -> r.Partials:
    extra = dict(zip(shown[3][::2], shown[3][1::2], strict=True))
    chunks = []
    for number in between(extra, b"p"):
        index, codec = decode(extra[b"i:%d" % number])
        chunks.append(r.Chunk(index, extra[b"p:%d" % number], CODECS[codec]))
    return r.Partials(chunks)


def between(extra: Mapping[bytes, bytes], kind: bytes) -> range:
    """The numbers of the lines, or chunks, that are kept."""
    return range(int(extra.get(kind + b"0", 1)), int(extra.get(kind + b"1", 0)) + 1)


def ended(job: r.JobView) -> r.Ended:
    return r.Ended(job.id, job.state, bool(job.finished_at), job.result, job.reason, job.error, job.result_codec)
