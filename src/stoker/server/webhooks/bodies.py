"""Builds the body of a post from an event. The same event always has the same id, so that receivers recognise
repetitions.

    {"id": "wh_..-0-2a-0-..", "event": "completed", "queue": "mail", "job_id": 7, "timestamp": 1700000000000, ...}

`data` is the payload of a pushed job, the result of a completed one, or the chunk of a partial result.
"""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.errors import Refused
from stoker.model.events import Event, EventKind
from stoker.model.options import Codec
from stoker.server.dispatcher import Dispatcher
from stoker.server.webhooks.hooks import Hook
from stoker.wire.flashq.payloads import shown

Fields = dict[str, Any]
_encode = msgspec.json.Encoder().encode

ALWAYS = ("id", "event", "queue", "job_id", "timestamp", "attempt")
"""The fields that remain if an event is too large even without its data."""


def delivery_id(hook: Hook, event: Event) -> str:
    """Includes the time: if a log loses its unflushed end, its positions are reused for other events."""
    return f"{hook.id}-{event.shard:x}-{event.sequence:x}-{event.index:x}-{event.at:x}"


def fields_of(hook: Hook, event: Event) -> Fields:
    """Everything except the data."""
    fields: Fields = {
        "id": delivery_id(hook, event),
        "event": str(event.kind),
        "queue": event.queue,
        "job_id": event.job,
        "timestamp": event.at,
        "attempt": event.attempt,
    }
    for name in (
        "error",
        "error_class",
        "reason",
        "message",
        "worker",
        "tags",
        "group_id",
        "trace",
        "parent_id",
        "name",
        "workflow",
        "schedule",
    ):
        value = getattr(event, name)
        if value:
            fields[name] = value
    for name in ("priority", "due", "pushed_at", "started_at", "finished_at", "slot", "result_bytes", "payload_bytes"):
        value = getattr(event, name)
        if value:
            fields[name] = value
    if event.kind == EventKind.PROGRESS:
        fields["progress"] = event.percent
    if event.kind == EventKind.PARTIAL:
        fields["chunk"] = event.chunk
    return fields


async def data_of(dispatcher: Dispatcher, event: Event, bytes_max: int) -> tuple[bytes, Codec] | str | None:
    """The event's data, or why it is left out, or None if there is none."""
    if event.kind == EventKind.PARTIAL:
        return (event.data, event.codec) if len(event.data) <= bytes_max else "too_large"
    size = {EventKind.COMPLETED: event.result_bytes, EventKind.PUSHED: event.payload_bytes}.get(event.kind, 0)
    if not size or size > bytes_max:
        return "too_large" if size else None
    try:
        job = await dispatcher.call(event.tenant, c.GetJob(event.job))
    except Refused:
        return "gone"
    if event.kind == EventKind.PUSHED:
        return job.payload, job.options.codec
    return "gone" if job.result is None else (job.result, job.result_codec)


async def body_of(dispatcher: Dispatcher, hook: Hook, event: Event, bytes_max: int) -> bytes:
    fields = fields_of(hook, event)
    data = await data_of(dispatcher, event, bytes_max)
    if isinstance(data, tuple):
        body: bytes = _encode({**fields, "data": shown(*data, "json")})
        if len(body) <= bytes_max:
            return body
        data = "too_large"
    if data is not None:
        fields["data_omitted"] = data
    body = _encode(fields)
    if len(body) <= bytes_max:
        return body
    return _encode({name: fields[name] for name in ALWAYS} | {"data_omitted": "too_large"})


def trial_body(hook: Hook, identity: str, now_ms: int) -> bytes:
    """The body that `test` posts: it belongs to no job."""
    return _encode(
        {"id": identity, "event": "test", "queue": hook.queue, "job_id": 0, "timestamp": now_ms, "attempt": 0}
    )
