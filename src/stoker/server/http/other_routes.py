"""The paths without a command of flashQ's dialect, for the description. Only a table."""

from typing import Any

import msgspec

REST = "Queues and jobs"
BULK = "Bulk and events"
CALLS = "Calls"
SERVER = "Server"
TAGS = (
    (REST, "REST: fields come from the path, the query and a JSON body. Answers are {ok, data, ...}."),
    (BULK, "Many jobs in one request, one per line, and events as they happen."),
    (CALLS, "Every command of the contract, field for field. Bytes are base64 in JSON, `bin` in MessagePack."),
    (SERVER, "Health, numbers, workers, webhooks."),
)

JSON = "application/json"
Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
ENVELOPE: Schema = {
    "type": "object",
    "properties": {"ok": {"const": True}, "data": {}},
    "required": ["ok", "data"],
}
OBJECT: Schema = {"type": "object"}
COMMAND: Schema = {
    "type": "object",
    "properties": {"cmd": TEXT, "tenant": TEXT, "body": {}},
    "required": ["cmd"],
}
HOOK: Schema = {
    "type": "object",
    "properties": {
        "url": TEXT,
        "events": {"type": "array", "items": TEXT},
        "queue": TEXT,
        "secret": TEXT,
        "enabled": {"type": "boolean"},
        "id": TEXT,
    },
    "required": ["url"],
}
WORKER: Schema = {
    "type": "object",
    "properties": {"queues": {"type": "array", "items": TEXT}, "concurrency": {"type": "integer"}},
}
READING: dict[str, tuple[Schema, str]] = {
    "events": (TEXT, "Only these kinds: `completed,failed`."),
    "after": (TEXT, "The id of the last event that was read; the header `Last-Event-ID` works, too."),
    "from": ({"enum": ["beginning", "now"]}, "Whether to begin with all events that are kept."),
}
LINES: dict[str, tuple[Schema, str]] = {
    "lines": ({"enum": ["data", "jobs"], "default": "data"}, "Whether a line is a payload, or {data, and options}."),
    "request_key": (TEXT, "Sent again with the same key, the same lines make no second job."),
}


class OtherRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A path, its parameters and its response."""

    method: str
    path: str
    tag: str
    summary: str
    query: dict[str, tuple[Schema, str]] = {}
    takes: str = ""
    """The type of the body; empty = none."""
    body: Schema = {}
    example: Any = None
    answers: str = JSON
    answer: Schema = msgspec.field(default_factory=lambda: ENVELOPE)
    status: int = 200

    @property
    def parameters(self) -> list[str]:
        return [segment[1:-1] for segment in self.path.split("/") if segment.startswith("{")]

    @property
    def is_json(self) -> bool:
        return self.answers == JSON


def _events(path: str, summary: str) -> OtherRoute:
    return OtherRoute(
        method="GET", path=path, tag=BULK, summary=summary, query=READING, answers="text/event-stream", answer={}
    )


def _page(path: str, summary: str, **more: Any) -> OtherRoute:
    return OtherRoute(method="GET", path=path, tag=SERVER, summary=summary, **more)


OTHERS: tuple[OtherRoute, ...] = (
    OtherRoute(
        method="POST",
        path="/queues/{queue}/jobs/bulk",
        tag=BULK,
        summary="Push many jobs, one per line.",
        query=LINES,
        takes="application/x-ndjson",
        example='{"to": "ada"}\n{"to": "grace"}\n',
    ),
    _events("/events", "Events as they happen, as server-sent events; over WebSocket at /ws."),
    _events("/events/{queue}", "Events of one queue; over WebSocket at /ws/{queue}."),
    _events("/events/job/{id}", "Events of one job."),
    OtherRoute(
        method="POST",
        path="/webhooks/incoming/{queue}",
        tag=BULK,
        summary="Make a job of the body that another service posts.",
        takes=JSON,
        example={"event": "paid"},
    ),
    OtherRoute(
        method="POST",
        path="/api/call",
        tag=CALLS,
        summary="Any command, in an envelope.",
        takes=JSON,
        body=COMMAND,
        example={"cmd": "get_stats", "body": {}},
        answer=OBJECT,
    ),
    OtherRoute(
        method="POST",
        path="/api/command",
        tag=CALLS,
        summary="Any command, those of flashQ's dialect included.",
        takes=JSON,
        body=COMMAND,
        example={"cmd": "STATS"},
        answer=OBJECT,
    ),
    _page("/health", "Whether the process lives. No token needed.", answer=OBJECT),
    _page("/ready", "Whether the server is ready for work. No token needed.", answer=OBJECT),
    _page("/metrics", "Numbers for Prometheus.", answers="text/plain", answer=TEXT),
    _page("/metrics/prometheus", "The same, always as text for Prometheus.", answers="text/plain", answer=TEXT),
    _page("/metrics/history", "A point every five seconds, for the last hour and twenty minutes."),
    _page("/workers", "Workers that reported, and when."),
    OtherRoute(
        method="POST",
        path="/workers/{id}/heartbeat",
        tag=SERVER,
        summary="Report that a worker is there.",
        takes=JSON,
        body=WORKER,
        example={"queues": ["mail"], "concurrency": 4},
    ),
    _page("/webhooks", "The tenant's webhooks, with their status."),
    OtherRoute(
        method="POST",
        path="/webhooks",
        tag=SERVER,
        summary="Have events posted to a URL.",
        takes=JSON,
        body=HOOK,
        status=201,
    ),
    OtherRoute(method="DELETE", path="/webhooks/{id}", tag=SERVER, summary="Delete a webhook."),
    OtherRoute(
        method="POST",
        path="/webhooks/{id}/test",
        tag=SERVER,
        summary="Post a test event at once, and report the outcome.",
    ),
)
