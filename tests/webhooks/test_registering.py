"""Registering webhooks: what is allowed, by whom, and the effects of changing and deleting them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stoker import webhooks
from stoker.model import commands as c
from stoker.model.errors import Forbidden, InvalidRequest, LimitExceeded, NotFound
from stoker.server.webhooks import HookRequest
from stoker.server.webhooks.hooks import MASK
from tests.webhooks.support import (
    SECRET,
    Receiver,
    answering,
    hook,
    push,
    run,
    serving,
)


def test_a_made_up_secret_is_shown_once_and_signs():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            made = await hook(server, receiver.url(), "pushed", secret=None)
            assert made.secret.startswith("whsec_")
            assert len(made.secret) > 40
            await push(server)
            (got,) = await receiver.count(1)
            assert webhooks.verify(made.secret, got.headers["x-stoker-signature"], got.body)
            (seen,) = await server.webhooks.list("default")
            assert seen.secret == MASK

    run(claim())


def test_a_changed_hook_keeps_its_secret_and_goes_on_from_where_it_was():
    async def claim():
        async with Receiver() as old, Receiver() as new, serving() as server:
            made = await hook(server, old.url(), "pushed")
            first = await push(server)
            await old.count(1)
            off = HookRequest(url=old.url(), events=("pushed",), enabled=False, id=made.id)
            changed = await server.webhooks.add("default", off)
            assert not changed.enabled
            assert changed.secret == MASK
            assert changed.created_at == made.created_at
            second = await push(server)
            await server.webhooks.add("default", HookRequest(url=new.url(), events=("pushed",), id=made.id))
            (got,) = await new.count(1)
            assert (old.got[0].json["job_id"], got.json["job_id"]) == (first, second)
            assert webhooks.verify(SECRET, got.headers["x-stoker-signature"], got.body)

    run(claim())


def test_a_hook_that_is_led_to_another_queue_gets_nothing_from_before():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            made = await hook(server, receiver.url(), "pushed", queue="mail")
            for queue in ("a", "b", "c", "d"):
                await push(server, queue)
            await server.webhooks.add("default", HookRequest(url=receiver.url(), events=("pushed",), id=made.id))
            last = [await push(server, queue) for queue in ("a", "b", "c", "d")]
            got = await receiver.count(4)
            assert not {one.json["job_id"] for one in got} - {*last}

    run(claim())


def test_a_deleted_hook_is_called_no_more():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            gone, stays = [await hook(server, receiver.url(path), "pushed") for path in ("/gone", "/stays")]
            await server.webhooks.remove("default", gone.id)
            await push(server)
            await receiver.count(1)
            await push(server)
            got = await receiver.count(2)
            assert {one.line.split()[1] for one in got} == {"/stays"}
            assert [one.id for one in await server.webhooks.list("default")] == [stays.id]
            with pytest.raises(NotFound):
                await server.webhooks.remove("default", gone.id)

    run(claim())


def test_other_tenants_see_change_test_and_delete_nothing():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            made = await hook(server, receiver.url(), "pushed")
            assert await server.webhooks.list("other") == ()
            with pytest.raises(NotFound):
                await server.webhooks.remove("other", made.id)
            with pytest.raises(NotFound):
                await server.webhooks.test("other", made.id)
            with pytest.raises(NotFound):
                await server.webhooks.add("other", HookRequest(url=receiver.url(), events=("*",), id=made.id))
            (seen,) = await server.webhooks.list("default")
            assert seen.id == made.id

    run(claim())


def test_a_trial_is_posted_at_once_and_counts_for_nothing():
    async def claim():
        async with Receiver(answering(200, 503)) as receiver, serving() as server:
            made = await hook(server, receiver.url(), "failed")
            assert (await server.webhooks.test("default", made.id)).ok
            outcome = await server.webhooks.test("default", made.id)
            assert (outcome.ok, outcome.status) == (False, 503)
            first, second = receiver.got
            assert first.json["event"] == "test"
            assert first.delivery != second.delivery
            assert webhooks.verify(SECRET, first.headers["x-stoker-signature"], first.body)
            (seen,) = await server.webhooks.list("default")
            assert seen.status.delivered == seen.status.failures == 0

    run(claim())


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"events": ()}, InvalidRequest),
        ({"events": ("finished",)}, InvalidRequest),
        ({"events": ("failed",) * 100}, LimitExceeded),
        ({"queue": "../etc"}, InvalidRequest),
        ({"queue": ""}, InvalidRequest),
        ({"secret": "short"}, InvalidRequest),
        ({"secret": "with a\nline break in it"}, InvalidRequest),
        ({"secret": "x" * 257}, InvalidRequest),
        ({"url": "http://example.com/" + "x" * 2_048}, LimitExceeded),
        ({"url": "ftp://example.com/"}, InvalidRequest),
        ({"id": "wh_nobody"}, NotFound),
    ],
)
def test_a_malformed_registration_is_refused_and_changes_nothing(wrong: dict[str, Any], error: type[Exception]):
    async def claim():
        async with serving() as server:
            fields = {"url": "http://127.0.0.1:9/", "events": ("failed",), **wrong}
            with pytest.raises(error):
                await server.webhooks.add("default", HookRequest(**fields))
            assert await server.webhooks.list("default") == ()

    run(claim())


def test_a_tenant_has_a_bounded_number_of_hooks():
    async def claim():
        async with serving(hooks_per_tenant_max=2) as server:
            url = "http://127.0.0.1:9/"
            made = await asyncio.gather(*(hook(server, url) for _ in range(5)), return_exceptions=True)
            assert sum(isinstance(one, LimitExceeded) for one in made) == 3
            await hook(server, url, tenant="other")
            first = (await server.webhooks.list("default"))[0]
            await server.webhooks.add("default", HookRequest(url=url, events=("*",), id=first.id))
            await server.webhooks.remove("default", first.id)
            await hook(server, url)

    run(claim())


def test_a_server_without_webhooks_refuses_them():
    async def claim():
        async with serving(enabled=False) as server:
            with pytest.raises(Forbidden):
                await hook(server, "http://127.0.0.1:9/")
            assert await server.webhooks.list("default") == ()

    run(claim())


def test_hooks_are_no_entries_that_a_tenant_could_read(tmp_path: Path):
    async def claim():
        async with Receiver() as receiver, serving(tmp_path / "data") as server:
            await hook(server, receiver.url())
            assert (await server.dispatcher.call("default", c.KvKeys())).keys == []
            with pytest.raises(InvalidRequest):
                await server.dispatcher.call("$system", c.KvKeys())

    run(claim())
