"""flashQ's dialect over HTTP: one request per call, with the right status.

POST /api/command   any command of either dialect, as flashQ's Python SDK posts them
"""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, StokerError
from stoker.model.steps import carry_out_async
from stoker.server.auth.identity import Identity
from stoker.server.http import native_calls, responses
from stoker.server.http.request import HttpRequest
from stoker.server.session import Session
from stoker.wire import flashq, native
from stoker.wire.flashq import Answer, DialectRow, RequestContext
from stoker.wire.flashq import requests as q
from stoker.wire.frames import Codec


def context_for(http_request: HttpRequest, codec: Codec = "json") -> RequestContext:
    return RequestContext(codec=codec, limits=http_request.service.config.limits)


async def carry_out(
    http_request: HttpRequest,
    identity: Identity,
    row: DialectRow,
    request: Any,
    context: RequestContext,
    named: str | None,
) -> Answer:
    """Execute a request. Raises `StokerError`."""
    service = http_request.service
    if row.kind == "server":
        return _by_the_server(http_request, identity, request)
    if row.name == "KVTTL":
        context = msgspec.structs.replace(context, now=service.dispatcher.broker.now())
    if row.kind == "one" and row.permission is not None:
        assert row.build is not None and row.answer is not None
        command = row.build(request, context)
        tenant = service.admit(identity, row.permission, named, command)
        return row.answer(request, await http_request.carry_out(tenant, command), context)
    tenant = service.admit(identity, row.permission, named, None) if row.permission is not None else ""

    async def do(command: c.Command[Any]) -> Any:
        service.check_quota(identity, tenant, command)
        return await http_request.carry_out(tenant, command)

    return await carry_out_async(row.plan(request, context), do)


def _by_the_server(http_request: HttpRequest, identity: Identity, request: Any) -> Answer:
    """Requests that have no command of the contract. Nothing of them lasts: each HTTP request is a new client."""
    session = Session(http_request.service, loopback=http_request.is_loopback, identity=identity)
    if isinstance(request, q.Auth):
        session.authenticate(request.token)
        return flashq.done()
    if isinstance(request, q.Hello):
        return flashq.done(**session.hello(native.NativeHello(request.token, request.client)))
    raise InvalidRequest("invalid command over HTTP: events come from GET /events and from /ws")


def status_for(answer: Answer) -> int:
    """The status of an answer without an error."""
    if answer.get("code") == "not_found":
        return 404
    return 200


async def command(http_request: HttpRequest) -> None:
    """`POST /api/command`."""
    codec = native_calls.codec_of(http_request)
    request_id: Any = None
    try:
        http_request.check_origin()
        identity = http_request.identify()
        frame = await http_request.body()
        request_id, cmd = _head(frame, codec)
        row = flashq.BY_NAME.get(cmd)
        if row is None:
            await native_calls.execute_call(http_request, identity, frame, codec)
            return
        config = http_request.service.config
        unknown = flashq.UnknownField(config.server.unknown_fields == "refuse")
        request: Any = flashq.decode(frame, codec, cmd, config.limits, unknown)
        tenant = request.tenant if request.tenant is not None else http_request.tenant_asked
        answer = await carry_out(http_request, identity, row, request, context_for(http_request, codec), tenant)
        status, headers = status_for(answer), warned(answer, unknown.warnings)
    except StokerError as error:
        answer, status = flashq.failure(error), responses.status_of(error)
        headers = responses.extra_headers(error, status)
    if request_id is not None:
        answer["reqId"] = request_id
    await responses.send(
        http_request.send, status, native.FORMATS[codec].encode(answer), native_calls.KINDS[codec], headers
    )


def warned(answer: Answer, warnings: list[str]) -> responses.Headers:
    """Add warnings to an answer. Returns the header with them."""
    if not warnings:
        return []
    answer["warnings"] = warnings
    return [(b"stoker-warnings", ", ".join(warnings).encode("ascii", "replace"))]


class FlashqHead(msgspec.Struct):
    """The fields that tell the two dialects apart and are sent back."""

    cmd: str
    reqId: str | int | float | None = None


_HEADS: dict[Codec, Any] = {
    "json": msgspec.json.Decoder(FlashqHead).decode,
    "msgpack": msgspec.msgpack.Decoder(FlashqHead).decode,
}


def _head(frame: bytes, codec: Codec) -> tuple[Any, str]:
    try:
        head: FlashqHead = _HEADS[codec](frame)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid request: {native.decode_error_text(error)}") from None
    return head.reqId, head.cmd
