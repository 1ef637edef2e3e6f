"""The routes of outgoing webhooks: register, list, test and delete them. All of them need `admin`.

GET    /webhooks             those of the tenant, with their status
POST   /webhooks             {url, events, queue?, secret?, enabled?, id?}
DELETE /webhooks/{id}
POST   /webhooks/{id}/test   posts a test event at once, and reports the outcome
"""

from typing import Any

from stoker.server.http import responses
from stoker.server.http.paths import Handler
from stoker.server.http.request import HttpRequest
from stoker.server.webhooks import commands


def handlers() -> list[tuple[str, str, Handler]]:
    return [
        ("GET", "/webhooks", show),
        ("POST", "/webhooks", add),
        ("DELETE", "/webhooks/{id}", remove),
        ("POST", "/webhooks/{id}/test", try_out),
    ]


async def show(http_request: HttpRequest) -> None:
    found = await _carry_out(http_request, "list_webhooks", commands.Nothing())
    await responses.send_data(http_request.send, found["webhooks"])


async def add(http_request: HttpRequest) -> None:
    http_request.check_origin()
    tenant = http_request.admit(http_request.identify(), "admin")
    wanted = commands.decode("set_webhook", await http_request.body(), "json")
    hook = await commands.carry_out(http_request.service.webhooks, tenant, "set_webhook", wanted)
    await responses.send_data(http_request.send, hook, 200 if wanted.id is not None else 201)


async def remove(http_request: HttpRequest) -> None:
    http_request.check_origin()
    await responses.send_data(
        http_request.send,
        await _carry_out(http_request, "delete_webhook", commands.Named(http_request.parameters["id"])),
    )


async def try_out(http_request: HttpRequest) -> None:
    http_request.check_origin()
    await responses.send_data(
        http_request.send, await _carry_out(http_request, "test_webhook", commands.Named(http_request.parameters["id"]))
    )


async def _carry_out(http_request: HttpRequest, name: str, request: Any) -> Any:
    tenant = http_request.admit(http_request.identify(), "admin")
    return await commands.carry_out(http_request.service.webhooks, tenant, name, request)
