"""Webhooks over the wire: Stoker's own dialect on TCP, REST and calls on HTTP, the same rights on all of them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.model.command_table import PERMISSIONS
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from stoker.server.config import ServerConfig
from stoker.server.session import WEBHOOK_COMMANDS
from stoker.server.webhooks import commands
from stoker.server.webhooks.hooks import MASK
from tests.webhooks.support import PATIENCE_S, SECRET, Receiver, config, listening, push, run

FREE = "127.0.0.1:0"
CHANGING = [("POST", "/webhooks"), ("DELETE", "/webhooks/x"), ("POST", "/webhooks/x/test")]


class Line:
    """A connection that speaks JSON lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, cmd: str, body: Any = None, **more: Any) -> Any:
        request = {"cmd": cmd, **({} if body is None else {"body": body}), **more}
        self._writer.write(json.dumps(request).encode() + b"\n")
        return json.loads(await asyncio.wait_for(self._reader.readline(), PATIENCE_S))


async def fetch(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """One request of HTTP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest)


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


class Guarded:
    """A server that wants tokens, one that may do everything but administer and one that may."""

    def __init__(self, directory: Path) -> None:
        file = directory / "tokens"
        rest = frozenset(PERMISSIONS) - {"admin"}
        self.writer = create_token(file, name="writer", permissions=rest, now=time.time()).text
        self.admin = create_token(file, name="admin", permissions=["admin"], now=time.time()).text
        chosen = config(tcp=FREE, http=FREE)
        self.config = msgspec.structs.replace(chosen, auth=AuthSettings(tokens_file=str(file)))


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def test_a_hook_lives_its_life_over_tcp():
    async def claim():
        async with (
            Receiver() as receiver,
            listening(config(tcp=FREE)) as (server, found),
            line_to(found["tcp"]) as line,
        ):
            body = {"url": receiver.url(), "events": ["pushed"], "queue": "mail", "secret": SECRET}
            made = await line.ask("set_webhook", body, reqId=7)
            assert (made["ok"], made["reqId"]) == (True, 7)
            assert made["body"]["secret"] == MASK
            await push(server)
            await receiver.count(1)
            listed = await line.ask("list_webhooks")
            assert [one["id"] for one in listed["body"]["webhooks"]] == [made["body"]["id"]]
            tried = await line.ask("test_webhook", {"id": made["body"]["id"]})
            assert tried["body"] == {"ok": True, "status": 200, "error": ""}
            assert (await line.ask("delete_webhook", {"id": made["body"]["id"]}))["body"] == {"count": 1}
            again = await line.ask("delete_webhook", {"id": made["body"]["id"]})
            assert (again["ok"], again["code"]) == (False, "not_found")

    run(claim())


def test_a_hook_lives_its_life_over_http():
    async def claim():
        async with Receiver() as receiver, listening(config(http=FREE)) as (server, found):
            port = found["http"]
            status, made = await fetch(port, "POST", "/webhooks", {"url": receiver.url(), "events": ["job.pushed"]})
            assert status == 201
            assert made["data"]["secret"].startswith("whsec_")
            await push(server)
            await receiver.count(1)
            status, listed = await fetch(port, "GET", "/webhooks")
            assert status == 200
            assert [(one["id"], one["secret"]) for one in listed["data"]] == [(made["data"]["id"], MASK)]
            path = f"/webhooks/{made['data']['id']}"
            assert (await fetch(port, "POST", f"{path}/test"))[1]["data"]["ok"]
            assert (await fetch(port, "DELETE", path))[0] == 200
            assert (await fetch(port, "DELETE", path))[0] == 404
            assert (await fetch(port, "GET", "/webhooks"))[1]["data"] == []

    run(claim())


def test_calls_over_http_carry_the_same_commands():
    async def claim():
        async with Receiver() as receiver, listening(config(http=FREE)) as (_, found):
            body = {"url": receiver.url(), "events": ["*"]}
            status, made = await fetch(found["http"], "POST", "/api/call", {"cmd": "set_webhook", "body": body})
            assert (status, made["ok"]) == (200, True)
            status, listed = await fetch(found["http"], "POST", "/api/call", {"cmd": "list_webhooks"})
            assert len(listed["body"]["webhooks"]) == 1
            status, refused = await fetch(found["http"], "POST", "/api/call", {"cmd": "delete_webhook"})
            assert (status, refused["code"]) == (400, "invalid")

    run(claim())


@pytest.mark.parametrize("cmd", WEBHOOK_COMMANDS)
def test_every_command_needs_admin(cmd: str, guarded: Guarded):
    async def claim():
        async with listening(guarded.config) as (_, found), line_to(found["tcp"]) as line:
            assert (await line.ask(cmd, {}))["code"] == "unauthenticated"
            await line.ask("hello", {"token": guarded.writer})
            assert (await line.ask(cmd, {}))["code"] == "forbidden"
            await line.ask("hello", {"token": guarded.admin})
            allowed = await line.ask(cmd, {})
            assert allowed["ok"] or allowed["code"] == "invalid"  # the positive control: it is looked at

    run(claim())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/webhooks"), ("POST", "/webhooks"), ("DELETE", "/webhooks/x"), ("POST", "/webhooks/x/test")],
)
def test_every_route_needs_admin(method: str, path: str, guarded: Guarded):
    async def claim():
        async with listening(guarded.config) as (_, found):
            port = found["http"]
            assert (await fetch(port, method, path, {}))[0] == 401
            assert (await fetch(port, method, path, {}, Authorization=f"Bearer {guarded.writer}"))[0] == 403
            allowed = await fetch(port, method, path, {}, Authorization=f"Bearer {guarded.admin}")
            assert allowed[0] in (200, 400, 404)

    run(claim())


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/webhooks"), ("DELETE", "/webhooks/x"), ("POST", "/webhooks/x/test")]
)
def test_another_site_can_change_nothing(method: str, path: str):
    async def claim():
        async with listening(config(http=FREE)) as (_, found):
            body = {"url": "http://93.184.216.34/", "events": ["*"]}
            assert (await fetch(found["http"], method, path, body, Origin="https://evil.example"))[0] == 403
            assert (await fetch(found["http"], "GET", "/webhooks"))[1]["data"] == []

    run(claim())


def test_the_names_of_the_session_are_those_of_the_commands():
    assert {*WEBHOOK_COMMANDS} == {*commands.WEBHOOK_COMMANDS}


def test_a_private_address_is_refused_with_a_code_and_a_status():
    async def claim():
        chosen = msgspec.structs.replace(config(tcp=FREE, http=FREE), webhooks=ServerConfig().webhooks)
        async with listening(chosen) as (_, found), line_to(found["tcp"]) as line:
            body = {"url": "http://169.254.169.254/latest/meta-data/", "events": ["*"]}
            assert (await line.ask("set_webhook", body))["code"] == "forbidden"
            assert (await fetch(found["http"], "POST", "/webhooks", body))[0] == 403

    run(claim())
