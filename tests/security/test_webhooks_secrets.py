"""S18: the secret of a hook, and what its URL may hold, are in no log, list, error or text of an object."""

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.model.errors import StokerError
from stoker.server.server import Server
from stoker.server.webhooks import HookRequest, commands
from stoker.server.webhooks.hooks import MASK, Hook
from stoker.server.webhooks.store import HookStore
from tests.webhooks.support import Receiver, answering, hook, push, run, serving, status_when

SECRET = "canary-secret-that-nobody-may-see"
IN_URL = "canary-token-in-a-url"


def test_a_whole_life_of_a_hook_leaves_no_secret_anywhere(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []

    async def claim():
        async with Receiver(answering(*[500] * 4)) as receiver:
            url = receiver.url(f"/x?token={IN_URL}")
            async with serving(tmp_path, attempts_max=2, circuit_failures=3, circuit_open_s=0.01) as server:
                made = await hook(server, url, "pushed", secret=SECRET)
                seen.append(made)
                for _ in range(3):
                    await push(server)
                await status_when(server, lambda status: status.delivered > 0 and status.given_up > 0)
                seen.append(await server.webhooks.test("default", made.id))
                seen.append(await server.webhooks.list("default"))
            async with serving(tmp_path, allow=()) as server:
                await push(server)
                await status_when(server, lambda status: "private" in status.last_error)
                seen.append(await server.webhooks.list("default"))

    run(claim())
    shown = [msgspec.json.encode(one).decode() for one in seen]
    assert not [text for text in shown if SECRET in text]
    assert sum(MASK in text for text in shown) == 3
    assert "gave up" in caplog.text  # there were logs to look into
    assert SECRET not in caplog.text
    assert IN_URL not in caplog.text


def test_objects_do_not_show_it_when_they_are_printed():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            made = await hook(server, receiver.url(f"/{IN_URL}"), secret=None)
            (stored,) = await HookStore(server.dispatcher).hooks()
            assert isinstance(stored, Hook)
            assert stored.secret == made.secret
            wanted = HookRequest(url=f"http://example.com/{IN_URL}", events=("*",), secret=SECRET)
            for text in map(repr, (made, stored, wanted, [stored])):
                assert made.secret not in text
                assert SECRET not in text
                assert IN_URL not in text

    run(claim())


async def asked(server: Server, body: dict[str, Any]) -> None:
    wanted = commands.decode("set_webhook", json.dumps(body).encode(), "json")
    await server.webhooks.add("default", wanted)


@pytest.mark.parametrize(
    "body",
    [
        {"url": 7, "events": ["*"], "secret": SECRET},
        {"url": "http://example.com/", "events": "all", "secret": SECRET},
        {"url": "http://example.com/", "events": ["*"], "secret": [SECRET]},
        {"url": "http://example.com/", "events": ["*"], "secret": {SECRET: 1}},
        {"url": "http://example.com/", "events": ["*"], "sekret": SECRET},
        {"url": f"http://user:{SECRET}@example.com/", "events": ["*"]},
        {"url": "http://example.com/", "events": ["*"], "secret": SECRET + "\n"},
        {"url": "http://example.com/", "events": ["nothing"], "secret": SECRET},
    ],
)
def test_an_error_does_not_repeat_it(body: dict[str, Any]):
    async def claim():
        async with serving() as server:
            with pytest.raises(StokerError) as refused:
                await asked(server, body)
            assert SECRET not in str(refused.value)
            assert SECRET not in repr(refused.value)

    run(claim())
