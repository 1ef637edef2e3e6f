"""The description of the API, OpenAPI 3.1, made from the tables of commands and routes and from the types themselves.

A route that is added to a table is described by that alone. Examples are true: a test sends them.
"""

from collections.abc import Container
from functools import cache
from typing import Any

import msgspec

from stoker import __version__
from stoker.server.http.answers import STATUS
from stoker.server.http.examples import EXAMPLES
from stoker.server.http.rest import kinds_of
from stoker.server.http.routes import ROUTES, Route
from stoker.wire import flashq
from stoker.wire.flashq.requests import FlowChild
from stoker.wire.table import ROWS, Row

Schema = dict[str, Any]

TAGS = (
    ("Queues and jobs", "REST: fields come from the path, the query and a JSON body. Answers are {ok, data, ...}."),
    ("Bulk and events", "Many jobs in one request, one a line, and what happens to jobs as it happens."),
    ("Calls", "Every command of the contract, field for field. Bytes are base64 in JSON, `bin` in MessagePack."),
    ("Server", "Health, numbers, workers."),
)
DESCRIPTION = (
    "A durable job queue. Say who you are with `Authorization: Bearer TOKEN`; on the server's own machine nothing is"
    " needed while no tokens are configured. Errors are {ok: false, error, code}, with a status for each code."
)
REQUESTS = "Request."
"""Before the names of types that only REST uses: some are called like commands."""


@cache
def describe() -> dict[str, Any]:
    schemas: Schema = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        _add(paths, route.path, route.method, _rest(route, schemas))
    for path, methods in _by_hand().items():
        for method, operation in methods.items():
            _add(paths, path, method, operation)
    for row in ROWS.values():
        _add(paths, f"/api/call/{row.name}", "POST", _call(row, schemas))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stoker", "version": __version__, "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in TAGS],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
            "responses": {"Problem": _problem()},
        },
    }


def _add(paths: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> None:
    paths.setdefault(path, {})[method.lower()] = operation


# --- types -------------------------------------------------------------------------------------------


def _struct(kind: Any, schemas: Schema, prefix: str = "", names: Container[str] | None = None) -> Schema:
    """The schema of a struct, field by field; the types inside its fields are added to `schemas`.

    msgspec describes types, but not defaults that are no JSON, such as an immutable map.
    """
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in msgspec.structs.fields(kind):
        if names is not None and field.name not in names:
            continue
        schema = _schema(field.type, schemas, prefix)
        if type(field.default) in (int, str, bool):
            schema = {**schema, "default": field.default}
        if field.encode_name == "ids":
            schema = {"description": "Ids; `[-1, start, stop, step]` is a range of them.", **schema}
        properties[field.encode_name] = schema
        if field.required:
            required.append(field.encode_name)
    return {"type": "object", "properties": properties, "required": required}


def _schema(kind: Any, schemas: Schema, prefix: str) -> Schema:
    if kind == list[FlowChild]:
        return {"type": "array", "items": {"type": "object"}}
    (schema,), more = msgspec.json.schema_components([kind], ref_template=f"#/components/schemas/{prefix}{{name}}")
    for name, inner in more.items():
        schemas.setdefault(f"{prefix}{name}", inner)
    return schema


# --- operations --------------------------------------------------------------------------------------


def _rest(route: Route, schemas: Schema) -> dict[str, Any]:
    row = flashq.BY_NAME[route.cmd]
    shape = _struct(row.request, schemas, REQUESTS, kinds_of(route.cmd))
    properties, required = shape["properties"], shape["required"]
    in_path = route.parameters
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": properties.pop(route.also.get(name, name))}
        for name in in_path
    ]
    for name in list(properties):
        if not route.has_body and properties[name]:
            schema = properties.pop(name)
            parameters.append({"name": name, "in": "query", "required": name in required, "schema": _in_query(schema)})
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "tags": [TAGS[0][0]],
        "summary": route.summary or row.summary,
        "parameters": parameters,
        "responses": _responses(_envelope(), EXAMPLES.get((route.method, route.path), {}).get("answer"), row.waits),
    }
    if route.has_body:
        needed = [name for name in required if name in properties]
        schema = {"type": "object", "properties": properties, "required": needed}
        content: dict[str, Any] = {"schema": schema}
        example = EXAMPLES.get((route.method, route.path), {}).get("body")
        if example is not None:
            content["example"] = example
        operation["requestBody"] = {"required": bool(needed), "content": {"application/json": content}}
    return operation


def _in_query(schema: Schema) -> Schema:
    """Lists are written with commas, and what may be absent is absent."""
    kinds = schema.get("anyOf")
    if kinds is not None:
        some = [kind for kind in kinds if kind != {"type": "null"}]
        schema = some[0] if len(some) == 1 else {"anyOf": some}
    if schema.get("type") == "array":
        return {"type": "string", "pattern": r"^\d+(,\d+)*$"}
    return schema


def _call(row: Row, schemas: Schema) -> dict[str, Any]:
    fields, reply = _struct(row.command, schemas), _struct(row.reply, schemas)
    example = EXAMPLES.get(("POST", f"/api/call/{row.name}"), {})
    content: dict[str, Any] = {"schema": fields}
    if "body" in example:
        content["example"] = example["body"]
    answer = {"type": "object", "properties": {"ok": {"const": True}, "body": reply}, "required": ["ok", "body"]}
    words = " ".join((row.command.__doc__ or row.name).split())
    return {
        "operationId": f"call_{row.name}",
        "tags": [TAGS[2][0]],
        "summary": words.split(". ")[0].rstrip("."),
        "description": f"{words} Needs the permission `{row.permission}`.",
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": _responses(answer, example.get("answer"), False),
    }


def _responses(schema: Schema, example: Any, waits: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    found: dict[str, Any] = {"200": {"description": "Done.", "content": {"application/json": content}}}
    for status in sorted({*STATUS.values(), 405, 413, 431}):
        if waits or status != 408:
            found[str(status)] = {"$ref": "#/components/responses/Problem"}
    found["408"] = {"$ref": "#/components/responses/Problem"}
    return found


def _problem() -> dict[str, Any]:
    properties = {"ok": {"const": False}, "error": {"type": "string"}, "code": {"enum": sorted(STATUS)}}
    schema = {"type": "object", "properties": properties, "required": ["ok", "error", "code"]}
    example = {"ok": False, "error": "Job not found: 7 never was, or is forgotten", "code": "not_found"}
    return {"description": "It was refused, and changed nothing.", "content": {
        "application/json": {"schema": schema, "example": example}
    }}  # fmt: skip


def _envelope() -> Schema:
    return {"type": "object", "properties": {"ok": {"const": True}, "data": {}}, "required": ["ok", "data"]}


# --- what is in no table -----------------------------------------------------------------------------


def _by_hand() -> dict[str, dict[str, Any]]:
    queue = {"name": "queue", "in": "path", "required": True, "schema": {"type": "string"}}
    kinds = {"name": "events", "in": "query", "schema": {"type": "string"}, "description": "Only these: `failed,log`."}
    after = {
        "name": "after", "in": "query", "schema": {"type": "string"},
        "description": "The id of the last event that was read; `Last-Event-ID` says it, too.",
    }  # fmt: skip
    stream = {"200": {"description": "A stream of events.", "content": {"text/event-stream": {"schema": {}}}}}
    problems = {status: {"$ref": "#/components/responses/Problem"} for status in ("400", "401", "403", "429")}
    lines = {"application/x-ndjson": {"schema": {}, "example": '{"to": "a"}\n{"to": "b"}\n'}}

    def events(path: str) -> dict[str, Any]:
        own = [queue] if "{queue}" in path else []
        if "{id}" in path:
            own = [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}]
        return {"get": {
            "operationId": "get" + path.replace("/", "_").replace("{", "").replace("}", ""),
            "tags": [TAGS[1][0]], "summary": "Events as they happen, as server-sent events.",
            "parameters": [*own, kinds, after], "responses": {**stream, **problems},
        }}  # fmt: skip

    found: dict[str, dict[str, Any]] = {
        path: events(path) for path in ("/events", "/events/{queue}", "/events/job/{id}")
    }
    found["/queues/{queue}/jobs/bulk"] = {"post": {
        "operationId": "push_lines", "tags": [TAGS[1][0]], "summary": "Push many jobs, one a line.",
        "parameters": [queue, {
            "name": "lines", "in": "query", "schema": {"enum": ["data", "jobs"], "default": "data"},
            "description": "Whether a line is a payload, or {data, and options}.",
        }],
        "requestBody": {"required": True, "content": lines},
        "responses": _responses(_envelope(), None, True),
    }}  # fmt: skip
    found["/webhooks/incoming/{queue}"] = {"post": {
        "operationId": "incoming", "tags": [TAGS[1][0]], "summary": "Make a job of whatever another service posts.",
        "parameters": [queue], "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
        "responses": _responses(_envelope(), None, True),
    }}  # fmt: skip
    for path, summary in SERVER_PAGES.items():
        found[path] = {"get": {
            "operationId": "get" + path.replace("/", "_"), "tags": [TAGS[3][0]], "summary": summary,
            "responses": _responses({"type": "object"}, None, False),
        }}  # fmt: skip
    kind = "text/plain"
    found["/metrics/prometheus"] = {"get": {
        "operationId": "prometheus", "tags": [TAGS[3][0]], "summary": "Numbers for Prometheus; also at /metrics.",
        "responses": {"200": {"description": "Its text format.", "content": {kind: {"schema": {"type": "string"}}}},
                      **problems},
    }}  # fmt: skip
    envelope = {"type": "object", "properties": {"cmd": {"type": "string"}, "tenant": {"type": "string"}, "body": {}},
                "required": ["cmd"]}  # fmt: skip
    for path, summary in (
        ("/api/call", "Any command, in an envelope."),
        ("/api/command", "Any command, flashQ's too."),
    ):
        example = {"cmd": "get_stats", "body": {}} if path == "/api/call" else {"cmd": "STATS"}
        found[path] = {"post": {
            "operationId": path[1:].replace("/", "_"), "tags": [TAGS[2][0]], "summary": summary,
            "requestBody": {"required": True, "content": {
                "application/json": {"schema": envelope, "example": example},
            }},
            "responses": _responses({"type": "object"}, None, True),
        }}  # fmt: skip
    return found


SERVER_PAGES = {
    "/health": "Whether the process lives. Open to everybody.",
    "/ready": "Whether it is worth sending work here. Open to everybody.",
    "/metrics/history": "A point every five seconds, for the last hour and twenty minutes.",
    "/workers": "Workers that were heard of, and when.",
}
