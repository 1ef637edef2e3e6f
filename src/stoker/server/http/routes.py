"""The REST routes: which method and path stand for which command of flashQ's dialect, and what `data` is in the answer.

Only a table. The handler is `rest.py`, the description `openapi.py`; both read nothing but this.
"""

from typing import Any

import msgspec


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A path, and the command that it stands for. Fields come from the path, the query and the body, in this order."""

    method: str
    path: str
    cmd: str
    select: str = ""
    """The field of the answer that is its `data`; empty = all of it."""
    defaults: dict[str, Any] = {}
    """Where the route means something else than the command by what is left out."""
    also: dict[str, str] = {}
    """Other names for fields, in the path and the body."""
    summary: str = ""

    @property
    def parameters(self) -> list[str]:
        return [segment[1:-1] for segment in self.path.split("/") if segment.startswith("{")]

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH")


def _table() -> list[Route]:
    found: list[Route] = []

    def add(methods: str, paths: str, cmd: str, select: str = "", **more: Any) -> None:
        found.extend(
            Route(method=method, path=path, cmd=cmd, select=select, **more)
            for path in paths.split()
            for method in methods.split()
        )

    now = {"timeout": 0}
    add("POST", "/queues/{queue}/jobs", "PUSH")
    add("POST", "/queues/{queue}/jobs/batch", "PUSHB", "ids")
    add("GET", "/queues/{queue}/jobs", "PULLB", "jobs", defaults=now, summary="Take jobs (use POST /pull instead).")
    add("POST", "/queues/{queue}/pull", "PULLB", "jobs", defaults=now)
    add("POST", "/queues/{queue}/flow /flows", "FLOW", also={"parent_data": "data", "parentData": "data"})
    add("GET", "/queues", "LISTQUEUES", "queues")
    add("GET", "/queues/{queue}", "QUEUE")
    add("POST", "/queues/{queue}/pause", "PAUSE")
    add("POST", "/queues/{queue}/resume", "RESUME")
    add("GET", "/queues/{queue}/paused", "ISPAUSED")
    add("POST", "/queues/{queue}/drain", "DRAIN")
    add("POST", "/queues/{queue}/clean", "CLEAN")
    add("DELETE", "/queues/{queue}/obliterate", "OBLITERATE")
    add("GET", "/queues/{queue}/counts", "GETJOBCOUNTS", "counts")
    add("GET", "/queues/{queue}/count", "COUNT", "count")
    add("GET", "/queues/{queue}/priorities", "PRIORITIES", "waiting")
    add("GET", "/history /queues/{queue}/history", "HISTORY")
    add("GET", "/timings /queues/{queue}/timings", "TIMINGS")
    add("POST", "/queues/{queue}/rate-limit /queues/{queue}/ratelimit", "RATELIMIT")
    add("DELETE", "/queues/{queue}/rate-limit /queues/{queue}/ratelimit", "RATELIMITCLEAR")
    add("POST", "/queues/{queue}/concurrency", "SETCONCURRENCY")
    add("DELETE", "/queues/{queue}/concurrency", "CLEARCONCURRENCY")
    add("POST", "/queues/{queue}/policy", "SETPOLICY")
    add("GET", "/queues/{queue}/dlq", "DLQ", "jobs")
    add("DELETE", "/queues/{queue}/dlq", "PURGEDLQ")
    add("GET", "/queues/{queue}/dlq/stats", "DLQSTATS")
    add("GET", "/dlq/groups /queues/{queue}/dlq/groups", "DLQGROUPS")
    add("POST", "/queues/{queue}/dlq/retry", "RETRYDLQ")
    add("POST", "/queues/{queue}/dlq/{id}/retry", "RETRYDLQ")
    add("GET", "/jobs", "GETJOBS")
    add("POST", "/jobs/ack-batch /jobs/ack/batch", "ACKB")
    add("POST", "/jobs/get-batch", "GETJOBSBATCH")
    add("GET", "/jobs/count", "COUNTJOBS")
    add("GET", "/jobs/custom/{job_id}", "GETJOBBYCUSTOMID")
    add("GET", "/jobs/{id}", "GETJOB")
    add("PATCH", "/jobs/{id}", "UPDATEJOB")
    add("POST", "/jobs/{id}/update", "UPDATEJOB")
    add("GET", "/jobs/{id}/state", "GETSTATE")
    add("GET", "/jobs/{id}/result", "GETRESULT", "result")
    add("GET", "/jobs/{id}/progress", "GETPROGRESS", "progress")
    add("POST", "/jobs/{id}/progress", "PROGRESS")
    add("GET", "/jobs/{id}/logs", "GETLOGS", "logs")
    add("POST", "/jobs/{id}/logs", "LOG")
    add("GET", "/jobs/{id}/wait", "WAITJOB", "result")
    add("GET", "/jobs/{id}/children", "GETCHILDREN", "children", also={"id": "parent_id"})
    add("GET", "/jobs/{id}/partials", "GETPARTIALS", "partials")
    add("GET", "/jobs/{id}/why", "WHY")
    add("GET", "/jobs/{id}/story", "STORY")
    add("GET", "/jobs/{id}/inputs", "GETINPUTS", "inputs")
    add("POST", "/jobs/{id}/fill", "FILLSTEP")
    add("POST", "/jobs/{id}/ack", "ACK")
    add("POST", "/jobs/{id}/fail", "FAIL")
    add("POST", "/jobs/{id}/release", "RELEASE")
    add("POST", "/jobs/{id}/heartbeat", "HEARTBEAT")
    add("POST", "/jobs/{id}/partial", "PARTIAL")
    add("POST", "/jobs/{id}/cancel", "CANCEL")
    add("POST", "/jobs/{id}/promote", "PROMOTE")
    add("POST", "/jobs/{id}/discard", "DISCARD")
    add("POST", "/jobs/{id}/priority", "CHANGEPRIORITY")
    add("POST", "/jobs/{id}/move-to-delayed /jobs/{id}/delay", "MOVETODELAYED")
    add("POST", "/bulk", "BULKSTART", "bulk")
    add("GET", "/bulk", "BULKLIST", "bulks")
    add("GET", "/bulk/{key}", "BULKGET", "bulk")
    add("POST", "/bulk/{key}/stop", "BULKSTOP", "bulk")
    add("GET", "/crons", "CRONLIST", "crons")
    add("POST PUT", "/crons/{name}", "CRON")
    add("GET", "/crons/{name}", "CRONGET", "cron")
    add("DELETE", "/crons/{name}", "CRONDELETE")
    add("POST", "/crons/{name}/pause", "CRONPAUSE")
    add("POST", "/crons/{name}/resume", "CRONRESUME")
    add("POST", "/crons/{name}/run", "CRONRUN")
    add("POST", "/workflows", "WORKFLOW")
    add("GET", "/workflows", "WORKFLOWLIST", "workflows")
    add("GET", "/workflows/{id}", "WORKFLOWGET", "workflow")
    add("POST", "/workflows/{id}/cancel", "WORKFLOWCANCEL", "workflow")
    add("POST", "/workflows/{id}/retry", "WORKFLOWRETRY", "workflow")
    add("GET", "/stats", "STATS")
    return found


ROUTES: tuple[Route, ...] = tuple(_table())
