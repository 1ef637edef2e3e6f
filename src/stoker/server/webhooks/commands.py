"""The webhook commands of Stoker's own dialect: their fields and replies.

    set_webhook     {url, events, queue?, secret?, enabled?, id?}   the hook; a generated secret is shown once
    list_webhooks   {}                                              {webhooks: [...]}
    delete_webhook  {id}                                            {count: 1}
    test_webhook    {id}                                            {ok, status, error}

They belong to the server, not to the broker contract: an embedded queue posts nothing. All of them need `admin`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from stoker.model.errors import InvalidRequest, StokerError, Unknown
from stoker.server.webhooks.hooks import HookRequest
from stoker.server.webhooks.registry import Webhooks
from stoker.wire import native
from stoker.wire.frames import Codec

log = logging.getLogger("stoker.webhooks")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No fields."""


class Named(msgspec.Struct, forbid_unknown_fields=True):
    """One hook."""

    id: str


async def set_webhook(webhooks: Webhooks, tenant: str, request: HookRequest) -> Any:
    return await webhooks.add(tenant, request)


async def list_webhooks(webhooks: Webhooks, tenant: str, request: Nothing) -> Any:
    return {"webhooks": await webhooks.list(tenant)}


async def delete_webhook(webhooks: Webhooks, tenant: str, request: Named) -> Any:
    await webhooks.remove(tenant, request.id)
    return {"count": 1}


async def test_webhook(webhooks: Webhooks, tenant: str, request: Named) -> Any:
    return await webhooks.test(tenant, request.id)


Act = Callable[[Webhooks, str, Any], Awaitable[Any]]
WEBHOOK_COMMANDS: Final[dict[str, tuple[type, Act]]] = {
    "set_webhook": (HookRequest, set_webhook),
    "list_webhooks": (Nothing, list_webhooks),
    "delete_webhook": (Named, delete_webhook),
    "test_webhook": (Named, test_webhook),
}


def decode(name: str, body: bytes | msgspec.Raw, codec: Codec) -> Any:
    """The fields of a command. Raises `InvalidRequest`, which repeats no value: one of them is a secret."""
    module: Any = msgspec.json if codec == "json" else msgspec.msgpack
    try:
        return module.decode(body or native.EMPTY[codec], type=WEBHOOK_COMMANDS[name][0])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid {name}: {native.decode_error_text(error)}") from None


async def carry_out(webhooks: Webhooks | None, tenant: str, name: str, request: Any) -> Any:
    """Execute a command. Raises `StokerError`."""
    if webhooks is None:
        raise InvalidRequest("invalid command: only a server posts webhooks, and this queue has none")
    webhooks.check_supported(name)
    if webhooks.elsewhere is not None:
        return await webhooks.elsewhere(tenant, name, request)
    return await WEBHOOK_COMMANDS[name][1](webhooks, tenant, request)


def submit(webhooks: Webhooks | None, tenant: str, name: str, request: Any, done: Callable[[Any], None]) -> None:
    """The same for callers that cannot wait: `done` is called with the reply, or with a `StokerError`."""

    async def go() -> None:
        try:
            reply = await carry_out(webhooks, tenant, name, request)
        except StokerError as error:
            reply = error
        except Exception as error:
            log.exception("%s failed with an unexpected error", name)
            reply = Unknown(f"it is not known whether this happened: an unexpected {type(error).__name__}; see the log")
        done(reply)

    task = asyncio.get_running_loop().create_task(go())
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)


_under_way: set[asyncio.Task[None]] = set()
"""Keeps a reference to each task, as asyncio requires."""
