"""Pages for operators: health, metrics, workers, documentation; and a route that turns other services' posts
into jobs.
"""

import time
from functools import cache
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import TABLE
from stoker.model.errors import Forbidden, InvalidRequest, Unauthenticated, Unsupported
from stoker.model.options import Options
from stoker.model.version import __version__
from stoker.server.auth.identity import DEFAULT_TENANT, Identity
from stoker.server.http import docs, flashq_calls, metrics, openapi, responses
from stoker.server.http.paths import Handler
from stoker.server.http.request import HttpRequest
from stoker.server.report import all_workers
from stoker.server.service import WORKER_CHARS_MAX, Service
from stoker.wire import flashq
from stoker.wire.native import decode_error_text

HTML = b"text/html; charset=utf-8"
CSS = b"text/css; charset=utf-8"
PAGE_GUARDS: responses.Headers = [
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]

_json = msgspec.json.Decoder(msgspec.Raw).decode


class WorkerHeartbeat(msgspec.Struct):
    """A worker's report; unknown fields are dropped."""

    queues: list[str] = []
    concurrency: int = 0


class Pages:
    """The handlers of one listener."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/health", self.health),
            ("GET", "/ready", self.ready),
            ("GET", "/metrics", self.metrics),
            ("GET", "/metrics/prometheus", self.prometheus),
            ("GET", "/metrics/history", self.history),
            ("GET", "/workers", self.workers),
            ("POST", "/workers/{id}/heartbeat", self.heartbeat),
            ("POST", "/webhooks/incoming/{queue}", self.incoming),
            ("GET", "/openapi.json", self.description),
            ("GET", "/docs", self.documentation),
            ("GET", "/docs/style.css", self.style),
        ]

    # --- health --------------------------------------------------------------------------------------

    async def health(self, http_request: HttpRequest) -> None:
        """Whether the process lives: needs no token, and so shows nothing else."""
        found = {
            "ok": True,
            "status": "healthy",
            "version": __version__,
            "uptime_seconds": round(time.time() - self._service.started_at),
        }
        await responses.send(http_request.send, 200, responses.encode_json(found))

    async def ready(self, http_request: HttpRequest) -> None:
        """Whether the server is ready for work; clients that it knows also read why not."""
        dispatcher, trouble = self._service.dispatcher, self._service.trouble
        broker, is_ready = dispatcher.broker, not trouble
        found: dict[str, Any] = {"ok": is_ready, "ready": is_ready, "stopping": dispatcher.is_stopping}
        if trouble and is_known(http_request):
            found["reason"] = trouble
        if broker.counters is not None:
            found["disk_full"] = broker.counters.is_full
        headers = None if is_ready else [(b"retry-after", b"5")]
        await responses.send(http_request.send, 200 if is_ready else 503, responses.encode_json(found), headers=headers)

    # --- numbers -------------------------------------------------------------------------------------

    def _operator(self, http_request: HttpRequest) -> tuple[Identity, str]:
        """Numbers over all tenants are only for the operator."""
        identity = http_request.identify()
        tenant = http_request.admit(identity, "read")
        if not identity.any_tenant and identity.tenant != DEFAULT_TENANT:
            raise Forbidden("these numbers are about all tenants: use an operator's token")
        return identity, tenant

    async def metrics(self, http_request: HttpRequest) -> None:
        """Prometheus' text, or JSON for clients that ask for it, like flashQ's TypeScript client."""
        accept = http_request.headers.get(b"accept", b"*/*")
        sends_json = http_request.headers.get(b"content-type", b"").startswith(responses.JSON)
        if responses.JSON in accept or (sends_json and b"text/plain" not in accept):
            identity = http_request.identify()
            row, context = flashq.ROWS["METRICS"], flashq_calls.context_for(http_request)
            request = flashq.decode(b"{}", "json", "METRICS")
            answer = await flashq_calls.carry_out(
                http_request, identity, row, request, context, http_request.tenant_asked
            )
            await responses.send_data(http_request.send, answer["metrics"])
        else:
            await self.prometheus(http_request)

    async def prometheus(self, http_request: HttpRequest) -> None:
        _, tenant = self._operator(http_request)
        accept = http_request.headers.get(b"accept", b"").decode("latin-1")
        body, kind = await metrics.exposition(self._service, tenant, accept)
        await responses.send(http_request.send, 200, body, kind.encode())

    async def history(self, http_request: HttpRequest) -> None:
        self._operator(http_request)
        broker = self._service.dispatcher.broker
        if broker.counters is None:
            raise Unsupported.by(broker.name, "the history of the numbers")
        await responses.send_data(http_request.send, list(self._service.meter.history))

    # --- workers -------------------------------------------------------------------------------------

    async def workers(self, http_request: HttpRequest) -> None:
        tenant = http_request.admit(http_request.identify(), "read")
        await responses.send_data(http_request.send, await all_workers(self._service, tenant))

    async def heartbeat(self, http_request: HttpRequest) -> None:
        http_request.check_origin()
        tenant = http_request.admit(http_request.identify(), "consume")
        name = http_request.parameters["id"]
        if len(name) > WORKER_CHARS_MAX:
            raise InvalidRequest(f"invalid worker: a name has at most {WORKER_CHARS_MAX} characters")
        body = await http_request.body()
        try:
            said = msgspec.json.decode(body, type=WorkerHeartbeat) if body.strip() else WorkerHeartbeat()
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"invalid heartbeat: {decode_error_text(error)}") from None
        queues = [queue[:256] for queue in said.queues]
        self._service.meter.seen(tenant, name, queues, said.concurrency, pulled=False)
        await responses.send_data(http_request.send, {"id": name})

    # --- other services ------------------------------------------------------------------------------

    async def incoming(self, http_request: HttpRequest) -> None:
        """Push the body as a job. A sender can repeat the request with the same `Idempotency-Key`."""
        http_request.check_origin()
        identity = http_request.identify()
        body = await http_request.body()
        key = http_request.headers.get(b"idempotency-key")
        command = c.PushBatch(
            http_request.parameters["queue"],
            [body],
            Options(codec="json" if is_json(body) else "bytes", trace=http_request.trace),
            atomic=True,
            request_key=key.decode("latin-1") if key else None,
        )
        tenant = http_request.admit(identity, TABLE[c.PushBatch].permission, command)
        reply: r.PushedBatch = await http_request.carry_out(tenant, command)
        await responses.send_data(http_request.send, {"id": reply.ids[0], "level": reply.level})

    # --- documentation -------------------------------------------------------------------------------

    async def description(self, http_request: HttpRequest) -> None:
        await responses.send(http_request.send, 200, description())

    async def documentation(self, http_request: HttpRequest) -> None:
        await responses.send(http_request.send, 200, documentation(), HTML, PAGE_GUARDS)

    async def style(self, http_request: HttpRequest) -> None:
        await responses.send(http_request.send, 200, docs.STYLE.encode(), CSS)


@cache
def description() -> bytes:
    """Made on the first request."""
    return bytes(responses.encode_json(openapi.describe()))


@cache
def documentation() -> bytes:
    return docs.page(openapi.describe()).encode()


def is_json(body: bytes) -> bool:
    """Whether it can be shown as JSON."""
    try:
        _json(body)
        str(body, "utf-8")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def is_known(http_request: HttpRequest) -> bool:
    """Whether the server would take a command from this client."""
    try:
        http_request.identify()
        return True
    except (Unauthenticated, Forbidden, InvalidRequest):
        return False
