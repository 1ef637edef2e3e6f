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
from stoker.server.http import answers
from stoker.server.http.visit import Visit
from stoker.server.session import Session
from stoker.wire import native
from stoker.wire.frames import Codec
from stoker.wire.table import ROWS

KINDS: dict[Codec, bytes] = {"json": answers.JSON, "msgpack": answers.MSGPACK}
BINARY = (b"application/msgpack", b"application/x-msgpack", b"application/vnd.msgpack")


def codec_of(visit: Visit) -> Codec:
    kind = visit.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return "msgpack" if kind in BINARY else "json"


async def call(visit: Visit) -> None:
    """`POST /api/call`."""
    codec = codec_of(visit)
    try:
        visit.check_origin()
        identity = visit.identify()
        frame = await visit.body()
    except StokerError as error:
        await refuse(visit, error, None, codec)
        return
    await answer(visit, identity, frame, codec)


async def answer(visit: Visit, identity: Identity, frame: bytes, codec: Codec) -> None:
    """Carry out the request in a frame."""
    request_id: str | int | None = None
    try:
        envelope = native.open_envelope(frame, codec)
        request_id = envelope.reqId
        if envelope.tenant is None:
            envelope.tenant = visit.tenant_asked
        row = ROWS.get(envelope.cmd)
        if row is None:
            await _other(visit, identity, envelope, frame, codec)
            return
        command = native.command_of(envelope, codec)
        tenant = visit.service.admit(identity, row.permission, envelope.tenant, command)
        reply = await visit.carry_out(tenant, command)
    except StokerError as error:
        await refuse(visit, error, request_id, codec)
        return
    await answers.send(visit.send, 200, native.answered(reply, request_id, codec), KINDS[codec])


async def call_named(visit: Visit) -> None:
    """`POST /api/call/{name}`."""
    codec = codec_of(visit)
    try:
        visit.check_origin()
        identity = visit.identify()
        row = ROWS.get(visit.parameters["name"])
        if row is None:
            raise NotFound(f"no command {visit.parameters['name'][:64]!r}: /openapi.json lists those that there are")
        body = await visit.body()
        envelope = native.Envelope(row.name, body=msgspec.Raw(body) if body else native.NOT_SAID)
        command = native.command_of(envelope, codec)
        tenant = visit.admit(identity, row.permission, command)
        reply = await visit.carry_out(tenant, command)
    except StokerError as error:
        await refuse(visit, error, None, codec)
        return
    await answers.send(visit.send, 200, native.answered(reply, None, codec), KINDS[codec])


async def _other(visit: Visit, identity: Identity, envelope: native.Envelope, frame: bytes, codec: Codec) -> None:
    """A greeting, a command of the server itself, or an unknown command."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    session = Session(visit.service, loopback=visit.is_loopback, identity=identity)
    session.request(envelope, frame, codec, answered.set_result)
    body = await answered
    head: Any = native.open_head(body, codec)
    status = 200 if head.ok else answers.STATUS.get(head.code, 500)
    await answers.send(visit.send, status, body, KINDS[codec])


async def refuse(visit: Visit, error: StokerError, request_id: str | int | None, codec: Codec) -> None:
    status = answers.status_of(error)
    body = native.refused(error, request_id, codec)
    await answers.send(visit.send, status, body, KINDS[codec], answers.extra_headers(error, status))
