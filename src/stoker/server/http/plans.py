"""flashQ's dialect over HTTP: one request per call, with the right status.

POST /api/command   any command of either dialect, as flashQ's Python SDK posts them
"""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, StokerError
from stoker.model.steps import carry_out_async
from stoker.server.auth.identity import Identity
from stoker.server.http import answers, calls
from stoker.server.http.visit import Visit
from stoker.server.session import Session
from stoker.wire import flashq, native
from stoker.wire.flashq import Answer, Context, Row
from stoker.wire.flashq import requests as q
from stoker.wire.frames import Codec


def context_for(visit: Visit, codec: Codec = "json") -> Context:
    return Context(codec=codec, limits=visit.service.config.limits)


async def carry_out(
    visit: Visit, identity: Identity, row: Row, request: Any, context: Context, named: str | None
) -> Answer:
    """Execute a request. Raises `StokerError`."""
    service = visit.service
    if row.kind == "server":
        return _by_the_server(visit, identity, request)
    if row.name == "KVTTL":
        context = msgspec.structs.replace(context, now=service.desk.broker.now())
    if row.kind == "one" and row.permission is not None:
        assert row.build is not None and row.answer is not None
        command = row.build(request, context)
        tenant = service.admit(identity, row.permission, named, command)
        return row.answer(request, await visit.carry_out(tenant, command), context)
    tenant = service.admit(identity, row.permission, named, None) if row.permission is not None else ""

    async def do(command: c.Command[Any]) -> Any:
        service.check_quota(identity, tenant, command)
        return await visit.carry_out(tenant, command)

    return await carry_out_async(row.plan(request, context), do)


def _by_the_server(visit: Visit, identity: Identity, request: Any) -> Answer:
    """Requests that have no command of the contract. Nothing of them lasts: each HTTP request is a new client."""
    session = Session(visit.service, loopback=visit.is_loopback, identity=identity)
    if isinstance(request, q.Auth):
        session.authenticate(request.token)
        return flashq.done()
    if isinstance(request, q.Hello):
        return flashq.done(**session.hello(native.Greeting(request.token, request.client)))
    raise InvalidRequest("invalid command over HTTP: events come from GET /events and from /ws")


def status_for(answer: Answer) -> int:
    """The status of an answer without an error."""
    if answer.get("code") == "not_found":
        return 404
    return 200


async def command(visit: Visit) -> None:
    """`POST /api/command`."""
    codec = calls.codec_of(visit)
    request_id: Any = None
    try:
        visit.check_origin()
        identity = visit.identify()
        frame = await visit.body()
        request_id, cmd = _head(frame, codec)
        row = flashq.BY_NAME.get(cmd)
        if row is None:
            await calls.answer(visit, identity, frame, codec)
            return
        config = visit.service.config
        unknown = flashq.Unknown(config.server.unknown_fields == "refuse")
        request: Any = flashq.decode(frame, codec, cmd, config.limits, unknown)
        tenant = request.tenant if request.tenant is not None else visit.tenant_asked
        answer = await carry_out(visit, identity, row, request, context_for(visit, codec), tenant)
        status, headers = status_for(answer), warned(answer, unknown.warnings)
    except StokerError as error:
        answer, status = flashq.failure(error), answers.status_of(error)
        headers = answers.extra_headers(error, status)
    if request_id is not None:
        answer["reqId"] = request_id
    await answers.send(visit.send, status, native.FORMATS[codec].encode(answer), calls.KINDS[codec], headers)


def warned(answer: Answer, warnings: list[str]) -> answers.Headers:
    """Add warnings to an answer. Returns the header with them."""
    if not warnings:
        return []
    answer["warnings"] = warnings
    return [(b"stoker-warnings", ", ".join(warnings).encode("ascii", "replace"))]


class Head(msgspec.Struct):
    """The fields that tell the two dialects apart and are sent back."""

    cmd: str
    reqId: str | int | float | None = None


_HEADS: dict[Codec, Any] = {
    "json": msgspec.json.Decoder(Head).decode,
    "msgpack": msgspec.msgpack.Decoder(Head).decode,
}


def _head(frame: bytes, codec: Codec) -> tuple[Any, str]:
    try:
        head: Head = _HEADS[codec](frame)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid request: {native.told(error)}") from None
    return head.reqId, head.cmd
