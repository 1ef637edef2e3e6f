"""REST: a route's path, query and body become one request of flashQ's dialect, and its answer one envelope of JSON.

{"ok": true, "data": ..., ...}    {"ok": false, "error": "...", "code": "..."}
"""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw

from stoker.model.errors import InvalidRequest, StokerError
from stoker.model.hints import did_you_mean
from stoker.server.http import flashq_calls, responses
from stoker.server.http.request import HttpRequest, convert
from stoker.server.http.routes import ROUTES, Route
from stoker.wire import flashq
from stoker.wire.flashq.jobs import delivered
from stoker.wire.flashq.spelling import meant
from stoker.wire.native import decode_error_text
from stoker.wire.unknown_fields import cut

Handler = Callable[[HttpRequest], Awaitable[None]]
Fields = dict[str, Any]

OUTSIDE = frozenset(("ok", "success", "code", "error"))
"""What never is part of `data`."""
HIDDEN = frozenset(("cmd", "reqId", "tenant"))
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = responses.encode_json


def handlers() -> list[tuple[str, str, Handler]]:
    return [(route.method, route.path, _handler(route)) for route in ROUTES]


def _handler(route: Route) -> Handler:
    row = flashq.BY_NAME[route.cmd]
    if route.cmd == "PUSH":
        return push
    takes = route.cmd == "PULLB"

    async def handle(http_request: HttpRequest) -> None:
        if takes and route.method == "GET":
            if http_request.method != "GET":
                raise responses.WrongMethod("GET, POST")
            http_request.check_deliberate()
        elif route.method != "GET":
            http_request.check_origin()
        identity = http_request.identify()
        limits = http_request.service.config.limits
        fields = await fields_of(http_request, route)
        try:
            request: Any = flashq.decode(_encode(fields), "json", route.cmd, limits, flashq.UnknownField(refuse=True))
            if takes and responses.NDJSON in http_request.headers.get(b"accept", b""):
                await pull_lines(http_request, identity, request)
                return
            answer = await flashq_calls.carry_out(
                http_request, identity, row, request, flashq_calls.context_for(http_request), http_request.tenant_asked
            )
        except StokerError as error:
            await refuse(http_request, error)
            return
        await reply(http_request, answer, route.select, flat=route.method != "GET")

    return handle


async def push(http_request: HttpRequest) -> None:
    """`POST /queues/{queue}/jobs`: the busiest route, so the queue is put into the body without taking it apart."""
    try:
        http_request.check_origin()
        identity = http_request.identify()
        body = (await http_request.body()).strip()
        if body[:1] != b"{" or body[-1:] != b"}":
            raise InvalidRequest('invalid body: expected a JSON object {"data": ..., and options}')
        inside = body[1:-1]
        comma = b"," if inside.strip() else b""
        frame = b'{%b%b"queue":%b}' % (inside, comma, _encode(http_request.parameters["queue"]))
        request: Any = flashq.decode(
            frame, "json", "PUSH", http_request.service.config.limits, flashq.UnknownField(refuse=True)
        )
        row = flashq.ROWS["PUSH"]
        answer = await flashq_calls.carry_out(
            http_request, identity, row, request, flashq_calls.context_for(http_request), http_request.tenant_asked
        )
    except StokerError as error:
        await refuse(http_request, error)
        return
    await reply(http_request, answer, "", flat=True)


async def pull_lines(http_request: HttpRequest, identity: Any, request: Any) -> None:
    """Jobs one a line, for readers that take them one by one."""
    row, context = flashq.ROWS["PULLB"], flashq_calls.context_for(http_request)
    assert row.build is not None and row.permission is not None
    command = row.build(request, context)
    tenant = http_request.service.admit(identity, row.permission, http_request.tenant_asked, command)
    delivery = await http_request.carry_out(tenant, command)
    lines = delivered(delivery, context, request.lease_ms)
    body = b"\n".join(lines) + b"\n" if lines else b""
    await responses.send(http_request.send, 200, body, responses.NDJSON)


# --- what was sent -----------------------------------------------------------------------------------


@cache
def kinds_of(cmd: str) -> dict[str, Any]:
    """The types of a request's fields."""
    fields = msgspec.structs.fields(flashq.BY_NAME[cmd].request)
    return {field.name: field.type for field in fields if field.name not in HIDDEN}


async def fields_of(http_request: HttpRequest, route: Route) -> Fields:
    kinds = kinds_of(route.cmd)
    fields: Fields = dict(route.defaults)
    if route.has_body:
        body = await http_request.body()
        for name, value in (_body(body) if body.strip() else {}).items():
            fields[route.also.get(name, name)] = value
    fields.update(_query(http_request, route.cmd))
    for name, text in http_request.parameters.items():
        field = route.also.get(name, name)
        fields[field] = convert(text, kinds[field], name)
    return fields


def _body(body: bytes) -> dict[str, Raw]:
    try:
        return _object(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid body: {decode_error_text(error)}; expected a JSON object") from None


def _query(http_request: HttpRequest, cmd: str) -> Fields:
    kinds, request = kinds_of(cmd), flashq.BY_NAME[cmd].request
    found: Fields = {}
    for name, text in http_request.query().items():
        meaning = meant(name, request)
        if meaning is None or meaning[0] not in kinds or kinds[meaning[0]] is Raw:
            raise InvalidRequest(f"unknown parameter {cut(name)!r}{did_you_mean(name, kinds)}")
        kind = kinds[meaning[0]]
        if "list[" in str(kind) and "str |" not in str(kind):
            found[meaning[0]] = convert_list(text, kind, name)
        else:
            found[meaning[0]] = convert(text, kind, name)
    return found


def convert_list(text: str, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert([piece for piece in text.split(",") if piece], kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid parameter {name}: {error}") from None


# --- what is answered --------------------------------------------------------------------------------


async def reply(http_request: HttpRequest, answer: flashq.Answer, select: str, *, flat: bool) -> None:
    """`flat`: the fields stand beside `data`, too, where flashQ's clients look for some of them.

    That there is no such job is an answer of those commands that may say so, and the status says it, too.
    """
    status = flashq_calls.status_for(answer)
    if select:
        shown = {name: value for name, value in answer.items() if name != select}
        shown["data"] = answer[select]
    else:
        data = {name: value for name, value in answer.items() if name not in OUTSIDE}
        shown = answer if flat else {name: value for name, value in answer.items() if name in OUTSIDE}
        shown = {**shown, "data": data}
    await responses.send(http_request.send, status, _encode(shown))


async def refuse(http_request: HttpRequest, error: StokerError) -> None:
    """With the words that flashQ's clients look for."""
    status = responses.status_of(error)
    await responses.send(
        http_request.send, status, _encode(flashq.failure(error)), headers=responses.extra_headers(error, status)
    )
