"""The routes of outgoing webhooks: register, list, test and delete them. All of them need `admin`.

GET    /webhooks             those of the tenant, with their status
POST   /webhooks             {url, events, queue?, secret?, enabled?, id?}
DELETE /webhooks/{id}
POST   /webhooks/{id}/test   posts a test event at once, and reports the outcome
"""

from typing import Any

from stoker.server.http import answers
from stoker.server.http.paths import Handler
from stoker.server.http.visit import Visit
from stoker.server.webhooks import commands


def handlers() -> list[tuple[str, str, Handler]]:
    return [
        ("GET", "/webhooks", show),
        ("POST", "/webhooks", add),
        ("DELETE", "/webhooks/{id}", remove),
        ("POST", "/webhooks/{id}/test", try_out),
    ]


async def show(visit: Visit) -> None:
    found = await _carry_out(visit, "list_webhooks", commands.Nothing())
    await answers.told(visit.send, found["webhooks"])


async def add(visit: Visit) -> None:
    visit.check_origin()
    tenant = visit.admit(visit.identify(), "admin")
    wanted = commands.decode("set_webhook", await visit.body(), "json")
    hook = await commands.carry_out(visit.service.webhooks, tenant, "set_webhook", wanted)
    await answers.told(visit.send, hook, 200 if wanted.id is not None else 201)


async def remove(visit: Visit) -> None:
    visit.check_origin()
    await answers.told(visit.send, await _carry_out(visit, "delete_webhook", commands.Named(visit.parameters["id"])))


async def try_out(visit: Visit) -> None:
    visit.check_origin()
    await answers.told(visit.send, await _carry_out(visit, "test_webhook", commands.Named(visit.parameters["id"])))


async def _carry_out(visit: Visit, name: str, request: Any) -> Any:
    tenant = visit.admit(visit.identify(), "admin")
    return await commands.carry_out(visit.service.webhooks, tenant, name, request)
