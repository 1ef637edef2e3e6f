"""How hooks read the log: each finds its own events, and events that no hook wants cost nothing."""

import asyncio

import msgspec

from stoker.model import commands as c
from stoker.model.ids import shard_for
from stoker.model.limits import Limits
from tests.webhooks.support import Got, Receiver, config, hook, push, run, serving, serving_with, status_when, work


def test_a_hook_that_wants_something_else_begins_beside_one_that_waits():
    """The tail is watched for what the first one wants; the second must not wait for that to happen."""

    async def claim():
        async with Receiver() as receiver, serving() as server:
            await hook(server, receiver.url("/failed"), "failed")
            await push(server)
            await work(server)
            await hook(server, receiver.url("/completed"), "completed")
            await push(server)
            job = await work(server)
            (got,) = await receiver.count(1)
            assert (got.line.split()[1], got.json["job_id"]) == ("/completed", job)

    run(claim())


def test_hooks_of_one_tenant_get_each_what_it_wants():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            kinds = ("pushed", "started", "completed", "*")
            for kind in kinds:
                await hook(server, receiver.url(f"/{kind}"), kind)
            for _ in range(20):
                await push(server)
                await work(server)
            got = await receiver.count(20 * 6)
            for kind in kinds:
                own = [one.json for one in got if one.line.split()[1] == f"/{kind}"]
                assert len(own) == (60 if kind == "*" else 20), kind
                assert kind == "*" or {one["event"] for one in own} == {kind}
                assert [one["job_id"] for one in own] == sorted(one["job_id"] for one in own)

    run(claim())


def test_a_hook_that_is_gone_is_no_reason_to_read():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            stays = await hook(server, receiver.url(), "failed")
            goes = await hook(server, receiver.url(), "*")
            await server.webhooks.remove("default", goes.id)
            await push(server)
            await hook(server, receiver.url("/late"), "pushed")
            job = await push(server)
            (got,) = await receiver.count(1)
            assert (got.line.split()[1], got.json["job_id"]) == ("/late", job)
            await server.webhooks.remove("default", stays.id)

    run(claim())


def test_narrow_limits_of_the_queue_only_make_pages_short():
    async def claim():
        limits = Limits(events_max=3, wait_ms_max=50, kv_batch_max=1, kv_keys_max=1)
        chosen = msgspec.structs.replace(config(), limits=limits)
        async with Receiver() as receiver, serving_with(chosen) as server:
            for path in ("/a", "/b"):
                await hook(server, receiver.url(path), "pushed")
            for _ in range(10):
                await push(server)
            await receiver.count(20)
            await server.webhooks.close()
            await server.webhooks.start()
            assert len(await server.webhooks.list("default")) == 2

    run(claim())


def test_what_was_read_before_the_log_dropped_it_is_not_missed():
    """Nothing for the hook was in it, and it was looked at when it happened."""

    async def claim():
        chosen = msgspec.structs.replace(config(), events_bytes_max=4_096)
        async with Receiver() as receiver, serving_with(chosen) as server:
            await hook(server, receiver.url(), "failed")
            job = await push(server)
            for _ in range(200):
                await push(server, payload=b'"' + b"x" * 100 + b'"')
            delivery = await server.dispatcher.call("default", c.Pull(["mail"], 1))
            await server.dispatcher.call("default", c.Fail([job], delivery.token, retry=False))
            (got,) = await receiver.count(1)
            assert got.json["job_id"] == job
            status = await status_when(server, lambda status: status.delivered == 1)
            assert status.missed == 0

    run(claim())


def test_a_busy_shard_does_not_keep_the_others_waiting():
    first, *others = (f"q{number}" for number in range(16))
    other = next(name for name in others if shard_for("default", name, 4) != shard_for("default", first, 4))

    async def claim():
        pushed = asyncio.Event()

        async def when_all_is_there(got: Got, writer: asyncio.StreamWriter) -> None:
            await pushed.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        async with Receiver(when_all_is_there) as receiver, serving() as server:
            await hook(server, receiver.url(), "pushed")
            for _ in range(600):
                await push(server, first)
            last = await push(server, other)
            pushed.set()
            got = await receiver.count(601)
            assert [one.json["job_id"] for one in got].index(last) < 400
            await status_when(server, lambda status: status.delivered == 601)

    run(claim())
