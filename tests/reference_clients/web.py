"""The two clients over HTTP: one that posts every command to `/api/command`, and one that knows the REST routes."""

import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode

from tests.reference_clients.calling import PATIENCE_S, Answer, Pool, Refused, checked

ROUTES: dict[str, tuple[str, str, str]] = {
    "PUSH": ("POST", "/queues/{queue}/jobs", ""),
    "PUSHB": ("POST", "/queues/{queue}/jobs/batch", "ids"),
    "PULLB": ("POST", "/queues/{queue}/pull", "jobs"),
    "ACK": ("POST", "/jobs/{id}/ack", ""),
    "ACKB": ("POST", "/jobs/ack-batch", ""),
    "FAIL": ("POST", "/jobs/{id}/fail", ""),
    "RELEASE": ("POST", "/jobs/{id}/release", ""),
    "HEARTBEAT": ("POST", "/jobs/{id}/heartbeat", ""),
    "PROGRESS": ("POST", "/jobs/{id}/progress", ""),
    "LOG": ("POST", "/jobs/{id}/logs", ""),
    "PARTIAL": ("POST", "/jobs/{id}/partial", ""),
    "CANCEL": ("POST", "/jobs/{id}/cancel", ""),
    "PROMOTE": ("POST", "/jobs/{id}/promote", ""),
    "DISCARD": ("POST", "/jobs/{id}/discard", ""),
    "UPDATEJOB": ("POST", "/jobs/{id}/update", ""),
    "CHANGEPRIORITY": ("POST", "/jobs/{id}/priority", ""),
    "MOVETODELAYED": ("POST", "/jobs/{id}/move-to-delayed", ""),
    "GETJOB": ("GET", "/jobs/{id}", ""),
    "GETJOBBYCUSTOMID": ("GET", "/jobs/custom/{job_id}", ""),
    "GETJOBS": ("GET", "/jobs", ""),
    "GETJOBSBATCH": ("POST", "/jobs/get-batch", ""),
    "GETSTATE": ("GET", "/jobs/{id}/state", ""),
    "GETLOGS": ("GET", "/jobs/{id}/logs", "logs"),
    "GETPARTIALS": ("GET", "/jobs/{id}/partials", "partials"),
    "WAITJOB": ("GET", "/jobs/{id}/wait", "result"),
    "WHY": ("GET", "/jobs/{id}/why", ""),
    "STORY": ("GET", "/jobs/{id}/story", ""),
    "LISTQUEUES": ("GET", "/queues", "queues"),
    "QUEUE": ("GET", "/queues/{queue}", ""),
    "STATS": ("GET", "/stats", ""),
    "GETJOBCOUNTS": ("GET", "/queues/{queue}/counts", "counts"),
    "PAUSE": ("POST", "/queues/{queue}/pause", ""),
    "RESUME": ("POST", "/queues/{queue}/resume", ""),
    "RATELIMIT": ("POST", "/queues/{queue}/rate-limit", ""),
    "RATELIMITCLEAR": ("DELETE", "/queues/{queue}/rate-limit", ""),
    "SETCONCURRENCY": ("POST", "/queues/{queue}/concurrency", ""),
    "CLEARCONCURRENCY": ("DELETE", "/queues/{queue}/concurrency", ""),
    "SETPOLICY": ("POST", "/queues/{queue}/policy", ""),
    "DRAIN": ("POST", "/queues/{queue}/drain", ""),
    "CLEAN": ("POST", "/queues/{queue}/clean", ""),
    "OBLITERATE": ("DELETE", "/queues/{queue}/obliterate", ""),
    "CRON": ("POST", "/crons/{name}", ""),
    "CRONLIST": ("GET", "/crons", "crons"),
    "CRONGET": ("GET", "/crons/{name}", "cron"),
    "CRONPAUSE": ("POST", "/crons/{name}/pause", ""),
    "CRONRESUME": ("POST", "/crons/{name}/resume", ""),
    "CRONRUN": ("POST", "/crons/{name}/run", ""),
    "CRONDELETE": ("DELETE", "/crons/{name}", ""),
    "WORKFLOW": ("POST", "/workflows", ""),
    "WORKFLOWLIST": ("GET", "/workflows", "workflows"),
    "WORKFLOWGET": ("GET", "/workflows/{id}", "workflow"),
    "WORKFLOWCANCEL": ("POST", "/workflows/{id}/cancel", "workflow"),
    "WORKFLOWRETRY": ("POST", "/workflows/{id}/retry", "workflow"),
    "GETINPUTS": ("GET", "/jobs/{id}/inputs", "inputs"),
    "FILLSTEP": ("POST", "/jobs/{id}/fill", ""),
    "DLQ": ("GET", "/queues/{queue}/dlq", "jobs"),
    "DLQSTATS": ("GET", "/queues/{queue}/dlq/stats", ""),
    "PRIORITIES": ("GET", "/queues/{queue}/priorities", "waiting"),
    "HISTORY": ("GET", "/history", ""),
    "COUNTJOBS": ("GET", "/jobs/count", ""),
    "DLQGROUPS": ("GET", "/dlq/groups", ""),
    "BULKSTART": ("POST", "/bulk", "bulk"),
    "BULKGET": ("GET", "/bulk/{key}", "bulk"),
    "BULKSTOP": ("POST", "/bulk/{key}/stop", "bulk"),
    "BULKLIST": ("GET", "/bulk", "bulks"),
    "TIMINGS": ("GET", "/timings", ""),
    "RETRYDLQ": ("POST", "/queues/{queue}/dlq/retry", ""),
    "PURGEDLQ": ("DELETE", "/queues/{queue}/dlq", ""),
}
"""For each command the method, the path, and which of its fields is `data`: all of them where none is named."""


class Web:
    """Requests with bodies of JSON, over connections that are kept."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pool: Pool[http.client.HTTPConnection] = Pool()

    def ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        connection = self._pool.take() or http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            answer: Answer = json.loads(response.read())
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        assert answer["ok"] == (response.status < 300) or response.status == 404, (response.status, answer)
        return answer

    def close(self) -> None:
        self._pool.close()


class ApiCommand(Web):
    """Every command to one path, as flashQ's Python SDK posts them."""

    def call(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        return checked(self.ask("POST", "/api/command", {"cmd": cmd, "tenant": tenant, **fields}, {}))

    def read_events(self, tenant: str, **fields: Any) -> Answer:
        request = {"cmd": "read_events", "tenant": tenant, "body": fields}
        found: Answer = checked(self.ask("POST", "/api/command", request, {}))["body"]
        return found


class Rest(Web):
    """A path for each command: fields in it, after it or in the body, and the answer under `data`."""

    def call(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        method, path, selected = ROUTES[cmd]
        for name in list(fields):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(fields.pop(name)), safe=""))
        body = None
        if method == "POST":
            body = fields
        elif fields:
            path += "?" + urlencode({name: in_query(value) for name, value in fields.items() if value is not None})
        answer = checked(self.ask(method, path, body, {"Stoker-Tenant": tenant}))
        data = answer.pop("data")
        return {**answer, selected: data} if selected else {**answer, **(data or {})}

    def read_events(self, tenant: str, **fields: Any) -> Answer:
        answer = checked(self.ask("POST", "/api/call/read_events", fields, {"Stoker-Tenant": tenant}))
        found: Answer = answer["body"]
        return found


def in_query(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


__all__ = ["ROUTES", "ApiCommand", "Refused", "Rest", "Web"]
