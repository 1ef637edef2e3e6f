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
from stoker.server.http import answers, plans
from stoker.server.http.routes import ROUTES, Route
from stoker.server.http.visit import Visit, convert
from stoker.wire import flashq
from stoker.wire.flashq.jobs import delivered
from stoker.wire.flashq.spelling import meant
from stoker.wire.native import told
from stoker.wire.unknown_fields import cut

Handler = Callable[[Visit], Awaitable[None]]
Fields = dict[str, Any]

OUTSIDE = frozenset(("ok", "success", "code", "error"))
"""What never is part of `data`."""
HIDDEN = frozenset(("cmd", "reqId", "tenant"))
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = answers.encode_json


def handlers() -> list[tuple[str, str, Handler]]:
    return [(route.method, route.path, _handler(route)) for route in ROUTES]


def _handler(route: Route) -> Handler:
    row = flashq.BY_NAME[route.cmd]
    if route.cmd == "PUSH":
        return push
    takes = route.cmd == "PULLB"

    async def handle(visit: Visit) -> None:
        if takes and route.method == "GET":
            if visit.method != "GET":
                raise answers.WrongMethod("GET, POST")
            visit.check_deliberate()
        elif route.method != "GET":
            visit.check_origin()
        identity = visit.identify()
        limits = visit.service.config.limits
        fields = await fields_of(visit, route)
        try:
            request: Any = flashq.decode(_encode(fields), "json", route.cmd, limits, flashq.Unknown(refuse=True))
            if takes and answers.NDJSON in visit.headers.get(b"accept", b""):
                await pull_lines(visit, identity, request)
                return
            answer = await plans.carry_out(visit, identity, row, request, plans.context_for(visit), visit.tenant_asked)
        except StokerError as error:
            await refuse(visit, error)
            return
        await reply(visit, answer, route.select, flat=route.method != "GET")

    return handle


async def push(visit: Visit) -> None:
    """`POST /queues/{queue}/jobs`: the busiest route, so the queue is put into the body without taking it apart."""
    try:
        visit.check_origin()
        identity = visit.identify()
        body = (await visit.body()).strip()
        if body[:1] != b"{" or body[-1:] != b"}":
            raise InvalidRequest('invalid body: expected a JSON object {"data": ..., and options}')
        inside = body[1:-1]
        comma = b"," if inside.strip() else b""
        frame = b'{%b%b"queue":%b}' % (inside, comma, _encode(visit.parameters["queue"]))
        request: Any = flashq.decode(frame, "json", "PUSH", visit.service.config.limits, flashq.Unknown(refuse=True))
        row = flashq.ROWS["PUSH"]
        answer = await plans.carry_out(visit, identity, row, request, plans.context_for(visit), visit.tenant_asked)
    except StokerError as error:
        await refuse(visit, error)
        return
    await reply(visit, answer, "", flat=True)


async def pull_lines(visit: Visit, identity: Any, request: Any) -> None:
    """Jobs one a line, for readers that take them one by one."""
    row, context = flashq.ROWS["PULLB"], plans.context_for(visit)
    assert row.build is not None and row.permission is not None
    command = row.build(request, context)
    tenant = visit.service.admit(identity, row.permission, visit.tenant_asked, command)
    delivery = await visit.carry_out(tenant, command)
    lines = delivered(delivery, context, request.lease_ms)
    body = b"\n".join(lines) + b"\n" if lines else b""
    await answers.send(visit.send, 200, body, answers.NDJSON)


# --- what was sent -----------------------------------------------------------------------------------


@cache
def kinds_of(cmd: str) -> dict[str, Any]:
    """The types of a request's fields."""
    fields = msgspec.structs.fields(flashq.BY_NAME[cmd].request)
    return {field.name: field.type for field in fields if field.name not in HIDDEN}


async def fields_of(visit: Visit, route: Route) -> Fields:
    kinds = kinds_of(route.cmd)
    fields: Fields = dict(route.defaults)
    if route.has_body:
        body = await visit.body()
        for name, value in (_body(body) if body.strip() else {}).items():
            fields[route.also.get(name, name)] = value
    fields.update(_query(visit, route.cmd))
    for name, text in visit.parameters.items():
        field = route.also.get(name, name)
        fields[field] = convert(text, kinds[field], name)
    return fields


def _body(body: bytes) -> dict[str, Raw]:
    try:
        return _object(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid body: {told(error)}; expected a JSON object") from None


def _query(visit: Visit, cmd: str) -> Fields:
    kinds, request = kinds_of(cmd), flashq.BY_NAME[cmd].request
    found: Fields = {}
    for name, text in visit.query().items():
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


async def reply(visit: Visit, answer: flashq.Answer, select: str, *, flat: bool) -> None:
    """`flat`: the fields stand beside `data`, too, where flashQ's clients look for some of them.

    That there is no such job is an answer of those commands that may say so, and the status says it, too.
    """
    status = plans.status_for(answer)
    if select:
        shown = {name: value for name, value in answer.items() if name != select}
        shown["data"] = answer[select]
    else:
        data = {name: value for name, value in answer.items() if name not in OUTSIDE}
        shown = answer if flat else {name: value for name, value in answer.items() if name in OUTSIDE}
        shown = {**shown, "data": data}
    await answers.send(visit.send, status, _encode(shown))


async def refuse(visit: Visit, error: StokerError) -> None:
    """With the words that flashQ's clients look for."""
    status = answers.status_of(error)
    await answers.send(visit.send, status, _encode(flashq.failure(error)), headers=answers.extra_headers(error, status))
