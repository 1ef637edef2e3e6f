"""The OpenAPI 3.1 description, made from the tables of commands and routes and from the types themselves.

A route in a table is described automatically. Examples are real: a test sends them.
"""

from collections.abc import Container
from functools import cache
from typing import Any

import msgspec

from stoker.model.version import __version__
from stoker.server.http.examples import EXAMPLES
from stoker.server.http.other_routes import CALLS, OTHERS, REST, TAGS, OtherRoute
from stoker.server.http.responses import STATUS
from stoker.server.http.rest import kinds_of
from stoker.server.http.routes import ROUTES, Route
from stoker.wire import flashq
from stoker.wire.flashq.requests import FlowChild
from stoker.wire.native_commands import ROWS, CommandName

Schema = dict[str, Any]

DESCRIPTION = (
    "A durable job queue. Authenticate with `Authorization: Bearer TOKEN`; on the server's own machine nothing is"
    " needed while no tokens are configured. Errors are {ok: false, error, code}, with a status for each code."
)
PLAIN = str.maketrans({"/": "_", ".": "_", "{": None, "}": None})
PATH_KINDS = {("/events/job/{id}", "id"): "integer"}
REQUESTS = "Request."
"""Prefix for types that only REST uses: some are named like commands."""


@cache
def describe() -> dict[str, Any]:
    schemas: Schema = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        _add(paths, route.path, route.method, _rest(route, schemas))
    for other in OTHERS:
        _add(paths, other.path, other.method, _other(other))
    for row in ROWS.values():
        _add(paths, f"/api/call/{row.name}", "POST", _call(row, schemas))
    description = {
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
    _simplify(description)
    return description


def _simplify(node: Any) -> None:
    """Describe a tuple of equal types as a list with a fixed length, which more readers understand."""
    if isinstance(node, dict):
        places = node.get("prefixItems")
        if places and all(place == places[0] for place in places):
            del node["prefixItems"]
            node["items"] = places[0]
        for value in node.values():
            _simplify(value)
    elif isinstance(node, list):
        for value in node:
            _simplify(value)


def _add(paths: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> None:
    paths.setdefault(path, {})[method.lower()] = operation


# --- types -------------------------------------------------------------------------------------------


def _struct(kind: Any, schemas: Schema, prefix: str = "", names: Container[str] | None = None) -> Schema:
    """The schema of a struct, field by field; the types inside its fields are added to `schemas`.

    msgspec describes types, but not defaults that are not JSON, such as an immutable map.
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


MAY_FIND_NOTHING = ("GETJOB", "GETSTATE", "GETJOBBYCUSTOMID")
"""Commands that reply when there is no such job, as flashQ's clients expect: with a 404, but without an error."""


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
        "operationId": f"{route.method.lower()}{route.path.translate(PLAIN)}",
        "tags": [REST],
        "summary": route.summary or row.summary,
        "parameters": parameters,
        "responses": _responses(_envelope(), EXAMPLES.get((route.method, route.path), {}).get("answer"), row.waits),
    }
    if route.cmd in MAY_FIND_NOTHING:
        problem = _problem()["content"]["application/json"]["schema"]
        operation["responses"]["404"] = {
            "description": "There is no such job.",
            "content": {"application/json": {"schema": {"anyOf": [_envelope(), problem]}}},
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
    """Lists are written with commas, and optional parameters are left out."""
    kinds = schema.get("anyOf")
    if kinds is not None:
        some = [kind for kind in kinds if kind != {"type": "null"}]
        schema = some[0] if len(some) == 1 else {"anyOf": some}
    if schema.get("type") == "array":
        return {"type": "string", "pattern": r"^\d+(,\d+)*$"}
    return schema


def _call(row: CommandName, schemas: Schema) -> dict[str, Any]:
    fields, reply = _struct(row.command, schemas), _struct(row.reply, schemas)
    example = EXAMPLES.get(("POST", f"/api/call/{row.name}"), {})
    content: dict[str, Any] = {"schema": fields}
    if "body" in example:
        content["example"] = example["body"]
    answer = {"type": "object", "properties": {"ok": {"const": True}, "body": reply}, "required": ["ok", "body"]}
    words = " ".join((row.command.__doc__ or row.name).split())
    return {
        "operationId": f"call_{row.name}",
        "tags": [CALLS],
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
    example = {"ok": False, "error": "Job not found: 7 never existed, or is forgotten", "code": "not_found"}
    return {"description": "It was refused, and nothing has changed.", "content": {
        "application/json": {"schema": schema, "example": example}
    }}  # fmt: skip


def _envelope() -> Schema:
    return {"type": "object", "properties": {"ok": {"const": True}, "data": {}}, "required": ["ok", "data"]}


# --- paths without a command -------------------------------------------------------------------------


def _other(one: OtherRoute) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": PATH_KINDS.get((one.path, name), "string")}}
        for name in one.parameters
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema, "description": words}
        for name, (schema, words) in one.query.items()
    ]
    problems = {status: {"$ref": "#/components/responses/Problem"} for status in ("400", "401", "403", "429", "503")}
    answered: dict[str, Any] = {
        str(one.status): {"description": "Done.", "content": {one.answers: {"schema": one.answer}}}
    }
    operation: dict[str, Any] = {
        "operationId": f"{one.method.lower()}{one.path.translate(PLAIN)}",
        "tags": [one.tag],
        "summary": one.summary,
        "parameters": parameters,
        "responses": {**_responses(one.answer, None, True), **answered} if one.is_json else {**answered, **problems},
    }
    if one.takes:
        content: dict[str, Any] = {"schema": one.body}
        if one.example is not None:
            content["example"] = one.example
        operation["requestBody"] = {"required": True, "content": {one.takes: content}}
    return operation
