"""The native dialect over HTTP: a request of the wire is the body, its reply is the answer.

    POST /api/call          the envelope: {"cmd": "push", "tenant"?: "t", "body": {...}}
    POST /api/call/{name}   the command's fields alone

MessagePack with `Content-Type: application/msgpack`, JSON otherwise; the answer is written as the request was.
"""

import asyncio
from typing import Any

import msgspec

from stoker.model.errors import NotFound, StokerError
from stoker.server.auth.identity import Identity
from stoker.server.http import responses
from stoker.server.http.request import HttpRequest
from stoker.server.session import Session
from stoker.wire import native
from stoker.wire.frames import Codec
from stoker.wire.native_commands import ROWS

KINDS: dict[Codec, bytes] = {"json": responses.JSON, "msgpack": responses.MSGPACK}
BINARY = (b"application/msgpack", b"application/x-msgpack", b"application/vnd.msgpack")


def codec_of(http_request: HttpRequest) -> Codec:
    kind = http_request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return "msgpack" if kind in BINARY else "json"


async def call(http_request: HttpRequest) -> None:
    """`POST /api/call`."""
    codec = codec_of(http_request)
    try:
        http_request.check_origin()
        identity = http_request.identify()
        frame = await http_request.body()
    except StokerError as error:
        await refuse(http_request, error, None, codec)
        return
    await execute_call(http_request, identity, frame, codec)


async def execute_call(http_request: HttpRequest, identity: Identity, frame: bytes, codec: Codec) -> None:
    """Carry out the request in a frame."""
    request_id: str | int | None = None
    try:
        envelope = native.open_envelope(frame, codec)
        request_id = envelope.reqId
        if envelope.tenant is None:
            envelope.tenant = http_request.tenant_asked
        row = ROWS.get(envelope.cmd)
        if row is None:
            await _other(http_request, identity, envelope, frame, codec)
            return
        command = native.command_of(envelope, codec)
        tenant = http_request.service.admit(identity, row.permission, envelope.tenant, command)
        reply = await http_request.carry_out(tenant, command)
    except StokerError as error:
        await refuse(http_request, error, request_id, codec)
        return
    await responses.send(http_request.send, 200, native.answered(reply, request_id, codec), KINDS[codec])


async def call_named(http_request: HttpRequest) -> None:
    """`POST /api/call/{name}`."""
    codec = codec_of(http_request)
    try:
        http_request.check_origin()
        identity = http_request.identify()
        row = ROWS.get(http_request.parameters["name"])
        if row is None:
            raise NotFound(
                f"no command {http_request.parameters['name'][:64]!r}: /openapi.json lists those that there are"
            )
        body = await http_request.body()
        envelope = native.Envelope(row.name, body=msgspec.Raw(body) if body else native.NOT_SAID)
        command = native.command_of(envelope, codec)
        tenant = http_request.admit(identity, row.permission, command)
        reply = await http_request.carry_out(tenant, command)
    except StokerError as error:
        await refuse(http_request, error, None, codec)
        return
    await responses.send(http_request.send, 200, native.answered(reply, None, codec), KINDS[codec])


async def _other(
    http_request: HttpRequest, identity: Identity, envelope: native.Envelope, frame: bytes, codec: Codec
) -> None:
    """A greeting, a command of the server itself, or an unknown command."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    session = Session(http_request.service, loopback=http_request.is_loopback, identity=identity)
    session.request(envelope, frame, codec, answered.set_result)
    body = await answered
    head: Any = native.open_head(body, codec)
    status = 200 if head.ok else responses.STATUS.get(head.code, 500)
    await responses.send(http_request.send, status, body, KINDS[codec])


async def refuse(http_request: HttpRequest, error: StokerError, request_id: str | int | None, codec: Codec) -> None:
    status = responses.status_of(error)
    body = native.refused(error, request_id, codec)
    await responses.send(http_request.send, status, body, KINDS[codec], responses.extra_headers(error, status))
