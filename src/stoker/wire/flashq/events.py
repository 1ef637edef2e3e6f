"""Events the way that flashQ writes them, with their position in the log besides."""

from typing import Any

from stoker.model.events import Event, EventKind
from stoker.wire.flashq.decoding import Codec
from stoker.wire.flashq.payloads import shown


def event_answer(event: Event, codec: Codec) -> dict[str, Any]:
    """`{event_type, queue, job_id, timestamp, data?, error?, progress?}` and where it stands."""
    answer: dict[str, Any] = {
        "event_type": str(event.kind),
        "queue": event.queue,
        "job_id": event.job,
        "timestamp": event.at,
        "shard": event.shard,
        "sequence": event.sequence,
        "index": event.index,
    }
    if event.attempt:
        answer["attempt"] = event.attempt
    if event.data:
        answer["data"] = shown(event.data, event.codec, codec)
    if event.error:
        answer["error"] = event.error
    if event.reason:
        answer["reason"] = event.reason
    if event.kind == EventKind.PROGRESS:
        answer["progress"] = event.percent
    if event.message:
        answer["message"] = event.message
    return answer
