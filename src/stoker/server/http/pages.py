"""Pages for operators: health, metrics, workers, documentation; and a route that turns other services' posts
into jobs.
"""

import time
from functools import cache

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import TABLE
from stoker.model.errors import Forbidden, InvalidRequest, Unsupported
from stoker.model.options import Options
from stoker.model.version import __version__
from stoker.server.auth.identity import DEFAULT_TENANT, Identity
from stoker.server.http import answers, docs, metrics, openapi, plans
from stoker.server.http.paths import Handler
from stoker.server.http.visit import Visit
from stoker.server.report import all_workers
from stoker.server.service import WORKER_CHARS_MAX, Service
from stoker.wire import flashq
from stoker.wire.native import told

HTML = b"text/html; charset=utf-8"
CSS = b"text/css; charset=utf-8"
PAGE_GUARDS: answers.Headers = [
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]

_json = msgspec.json.Decoder(msgspec.Raw).decode


class Heartbeat(msgspec.Struct):
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

    async def health(self, visit: Visit) -> None:
        """Whether the process lives: needs no token, and so shows nothing else."""
        found = {
            "ok": True,
            "status": "healthy",
            "version": __version__,
            "uptime_seconds": round(time.time() - self._service.started_at),
        }
        await answers.send(visit.send, 200, answers.encode_json(found))

    async def ready(self, visit: Visit) -> None:
        """Whether the server is ready for work."""
        desk = self._service.desk
        broker = desk.broker
        is_ready = not desk.is_stopping and broker.is_ready
        found = {"ok": is_ready, "ready": is_ready, "stopping": desk.is_stopping}
        if broker.counters is not None:
            found["disk_full"] = broker.counters.is_full
        headers = None if is_ready else [(b"retry-after", b"5")]
        await answers.send(visit.send, 200 if is_ready else 503, answers.encode_json(found), headers=headers)

    # --- numbers -------------------------------------------------------------------------------------

    def _operator(self, visit: Visit) -> tuple[Identity, str]:
        """Numbers over all tenants are only for the operator."""
        identity = visit.identify()
        tenant = visit.admit(identity, "read")
        if not identity.any_tenant and identity.tenant != DEFAULT_TENANT:
            raise Forbidden("these numbers are about all tenants: use an operator's token")
        return identity, tenant

    async def metrics(self, visit: Visit) -> None:
        """Prometheus' text, or JSON for clients that ask for it, like flashQ's TypeScript client."""
        accept = visit.headers.get(b"accept", b"*/*")
        sends_json = visit.headers.get(b"content-type", b"").startswith(answers.JSON)
        if answers.JSON in accept or (sends_json and b"text/plain" not in accept):
            identity = visit.identify()
            row, context = flashq.ROWS["METRICS"], plans.context_for(visit)
            request = flashq.decode(b"{}", "json", "METRICS")
            answer = await plans.carry_out(visit, identity, row, request, context, visit.tenant_asked)
            await answers.told(visit.send, answer["metrics"])
        else:
            await self.prometheus(visit)

    async def prometheus(self, visit: Visit) -> None:
        _, tenant = self._operator(visit)
        accept = visit.headers.get(b"accept", b"").decode("latin-1")
        body, kind = await metrics.exposition(self._service, tenant, accept)
        await answers.send(visit.send, 200, body, kind.encode())

    async def history(self, visit: Visit) -> None:
        self._operator(visit)
        broker = self._service.desk.broker
        if broker.counters is None:
            raise Unsupported.by(broker.name, "the history of the numbers")
        await answers.told(visit.send, list(self._service.meter.history))

    # --- workers -------------------------------------------------------------------------------------

    async def workers(self, visit: Visit) -> None:
        tenant = visit.admit(visit.identify(), "read")
        await answers.told(visit.send, await all_workers(self._service, tenant))

    async def heartbeat(self, visit: Visit) -> None:
        visit.check_origin()
        tenant = visit.admit(visit.identify(), "consume")
        name = visit.parameters["id"]
        if len(name) > WORKER_CHARS_MAX:
            raise InvalidRequest(f"invalid worker: a name has at most {WORKER_CHARS_MAX} characters")
        body = await visit.body()
        try:
            said = msgspec.json.decode(body, type=Heartbeat) if body.strip() else Heartbeat()
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"invalid heartbeat: {told(error)}") from None
        queues = [queue[:256] for queue in said.queues]
        self._service.meter.seen(tenant, name, queues, said.concurrency, pulled=False)
        await answers.told(visit.send, {"id": name})

    # --- other services ------------------------------------------------------------------------------

    async def incoming(self, visit: Visit) -> None:
        """Push the body as a job. A sender can repeat the request with the same `Idempotency-Key`."""
        visit.check_origin()
        identity = visit.identify()
        body = await visit.body()
        key = visit.headers.get(b"idempotency-key")
        command = c.PushBatch(
            visit.parameters["queue"],
            [body],
            Options(codec="json" if is_json(body) else "bytes", trace=visit.trace),
            atomic=True,
            request_key=key.decode("latin-1") if key else None,
        )
        tenant = visit.admit(identity, TABLE[c.PushBatch].permission, command)
        reply: r.PushedBatch = await visit.carry_out(tenant, command)
        await answers.told(visit.send, {"id": reply.ids[0], "level": reply.level})

    # --- documentation -------------------------------------------------------------------------------

    async def description(self, visit: Visit) -> None:
        await answers.send(visit.send, 200, description())

    async def documentation(self, visit: Visit) -> None:
        await answers.send(visit.send, 200, documentation(), HTML, PAGE_GUARDS)

    async def style(self, visit: Visit) -> None:
        await answers.send(visit.send, 200, docs.STYLE.encode(), CSS)


@cache
def description() -> bytes:
    """Made on the first request."""
    return bytes(answers.encode_json(openapi.describe()))


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
