"""Events reach their receivers: which ones, in which order, with what in them, and how often."""

import asyncio

import msgspec
import pytest

from stoker import webhooks
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.server.webhooks import HookRequest
from tests.webhooks.support import (
    SECRET,
    Got,
    Receiver,
    answering,
    config,
    hook,
    push,
    run,
    serving,
    serving_with,
    status_when,
    work,
)


def test_an_event_is_posted_signed_and_complete():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            made = await hook(server, receiver.url("/in?x=1"), "completed")
            await push(server)
            job = await work(server, result=b'{"sent": true}')
            (got,) = await receiver.count(1)
            assert got.line == "POST /in?x=1 HTTP/1.1"
            assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
            assert got.headers["content-type"] == "application/json"
            assert got.headers["x-stoker-event"] == "completed"
            assert webhooks.verify(SECRET, got.headers["x-stoker-signature"], got.body)
            assert got.headers["x-flashq-signature"] == webhooks.sign_flashq(SECRET, got.body)
            body = got.json
            assert body["id"] == got.delivery
            assert body["id"].startswith(made.id)
            assert (body["event"], body["queue"], body["job_id"]) == ("completed", "mail", job)
            assert body["attempt"] == 1
            assert body["data"] == {"sent": True}
            assert body["timestamp"] == body["finished_at"] >= body["pushed_at"] > 0

    run(claim())


def test_the_payload_of_a_pushed_job_and_the_chunk_of_a_partial_result_are_data():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            await hook(server, receiver.url(), "pushed", "partial")
            job = await push(server, payload=b'{"to": "a"}')
            delivery = await server.dispatcher.call("default", c.Pull(["mail"], 1))
            await server.dispatcher.call("default", c.AppendPartial(job, b"\x00\xff", delivery.token))
            first, second = await receiver.count(2)
            assert first.json["data"] == {"to": "a"}
            assert second.json["data"] == {"$bytes": "AP8="}

    run(claim())


def test_a_failure_tells_its_error():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            await hook(server, receiver.url(), "failed")
            job = await push(server)
            delivery = await server.dispatcher.call("default", c.Pull(["mail"], 1))
            await server.dispatcher.call(
                "default", c.Fail([job], delivery.token, "boom\r\nX-Evil: 1", "Bad", retry=False)
            )
            (got,) = await receiver.count(1)
            assert got.json["error"] == "boom\r\nX-Evil: 1"
            assert got.json["error_class"] == "Bad"
            assert "x-evil" not in got.headers

    run(claim())


def test_only_the_wanted_queue_events_and_tenant_are_posted():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            await hook(server, receiver.url("/one"), "job.completed", queue="mail")
            await hook(server, receiver.url("/other"), "pushed", tenant="other")
            await push(server, "print")
            await work(server, "print")
            await push(server, "mail")
            await work(server, "mail")
            await push(server, "mail", tenant="other")
            got = await receiver.count(2)
            assert sorted((one.line.split()[1], one.json["event"], one.json["queue"]) for one in got) == [
                ("/one", "completed", "mail"),
                ("/other", "pushed", "mail"),
            ]
            status = await status_when(server, lambda status: status.delivered > 0)
            assert status.delivered == 1

    run(claim())


def test_a_new_hook_begins_with_what_happens_then():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            await push(server)
            await hook(server, receiver.url(), "pushed")
            later = await push(server)
            (got,) = await receiver.count(1)
            assert got.json["job_id"] == later

    run(claim())


def test_events_of_a_shard_come_in_order_and_whole_batches_come_whole():
    async def claim():
        async with Receiver() as receiver, serving() as server:
            await hook(server, receiver.url(), "pushed")
            pushed = await server.dispatcher.call("default", c.PushBatch("mail", [b"1"] * 300, Options(codec="json")))
            after = await push(server)
            got = await receiver.count(301)
            assert [one.json["job_id"] for one in got] == [*pushed.ids, after]
            assert len({one.delivery for one in got}) == 301

    run(claim())


def test_a_failed_attempt_is_repeated_with_the_same_id_and_a_new_number():
    async def claim():
        async with Receiver(answering(500, 404, 302)) as receiver, serving() as server:
            await hook(server, receiver.url(), "pushed")
            await push(server)
            got = await receiver.count(4)
            assert len({one.delivery for one in got}) == 1
            assert [one.headers["x-stoker-attempt"] for one in got] == ["1", "2", "3", "4"]
            assert len({one.body for one in got}) == 1
            await push(server)  # nothing is repeated once it was taken
            await receiver.count(5)
            status = await status_when(server, lambda status: status.delivered == 2)
            assert (status.failures, status.waiting, status.consecutive_failures) == (3, 0, 0)
            assert status.last_success_at >= status.last_failure_at > 0

    run(claim())


def test_later_events_do_not_wait_for_one_that_is_refused():
    async def refuse_the_first(got: Got, writer: asyncio.StreamWriter) -> None:
        status = 422 if got.json["data"] == "poison" else 200
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())

    async def claim():
        async with Receiver(refuse_the_first) as receiver, serving(backoff_s=3600, backoff_s_max=3600) as server:
            await hook(server, receiver.url(), "pushed")
            await push(server, payload=b'"poison"')
            fine = [await push(server, payload=b"1") for _ in range(5)]
            got = await receiver.count(6)
            assert [one.json["job_id"] for one in got[1:]] == fine
            status = await status_when(server, lambda status: status.delivered == 5)
            assert status.waiting == 1
            assert status.last_error == "the receiver answered 422"

    run(claim())


def test_an_event_that_is_refused_too_often_is_given_up_and_counted(caplog: pytest.LogCaptureFixture):
    async def claim():
        async with Receiver(answering(*[500] * 3)) as receiver, serving(attempts_max=3) as server:
            await hook(server, receiver.url(), "pushed")
            await push(server)
            await receiver.count(3)
            last = await push(server)
            got = await receiver.count(4)
            assert got[3].json["job_id"] == last
            status = await status_when(server, lambda status: status.delivered == 1)
            assert status.given_up == 1
            assert server.webhooks.totals.given_up == 1

    run(claim())
    assert "gave up event" in caplog.text
    assert "after 3 attempts" in caplog.text


def test_a_slow_receiver_holds_up_no_other():
    async def never(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def claim():
        async with Receiver(never) as slow, Receiver() as quick, serving() as server:
            await hook(server, slow.url(), "pushed")
            await hook(server, quick.url(), "pushed")
            for _ in range(20):
                await push(server)
            await slow.count(1)
            await quick.count(20)
            assert len(slow.got) == 1

    run(claim())


def test_no_more_attempts_are_under_way_than_configured():
    under_way: list[int] = []
    now = 0
    gate = asyncio.Event()

    async def held(got: Got, writer: asyncio.StreamWriter) -> None:
        nonlocal now
        now += 1
        under_way.append(now)
        if len(under_way) >= 2:
            gate.set()
        await gate.wait()
        now -= 1
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def claim():
        async with Receiver(held) as receiver, serving(concurrency=2) as server:
            for _ in range(6):
                await hook(server, receiver.url(), "pushed")
            await push(server)
            await receiver.count(6)

    run(claim())
    assert max(under_way) == 2


def test_data_that_is_too_large_is_left_out_and_said_so():
    async def claim():
        async with Receiver() as receiver, serving(body_bytes_max=600) as server:
            await hook(server, receiver.url(), "pushed", "failed")
            await push(server, payload=b'"' + b"x" * 590 + b'"')
            job = await push(server, payload=b'"small"')
            delivery = await server.dispatcher.call("default", c.Pull(["mail"], 2))
            await server.dispatcher.call("default", c.Fail([job], delivery.token, "e" * 1_000, retry=False))
            large, small, failed = await receiver.count(3)
            assert "data" not in large.json
            assert large.json["data_omitted"] == "too_large"
            assert small.json["data"] == "small"
            assert "error" not in failed.json
            assert failed.json["data_omitted"] == "too_large"
            assert all(len(one.body) <= 600 for one in (large, small, failed))

    run(claim())


def test_a_result_that_is_no_longer_kept_is_left_out_and_said_so():
    async def claim():
        async with Receiver(answering(500)) as receiver, serving() as server:
            held = asyncio.Event()

            async def forget_first(got: Got, writer: asyncio.StreamWriter) -> None:
                if not held.is_set():
                    await server.dispatcher.call("default", c.Obliterate("mail"))
                    held.set()
                    writer.write(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
                else:
                    writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")

            receiver.respond = forget_first
            await hook(server, receiver.url(), "completed")
            await push(server)
            await work(server, result=b"1")
            first, second = await receiver.count(2)
            assert first.json["data"] == 1
            assert "data" not in second.json
            assert second.json["data_omitted"] == "gone"
            assert first.delivery == second.delivery

    run(claim())


def test_events_that_the_log_dropped_are_counted_and_the_rest_is_posted(caplog: pytest.LogCaptureFixture):
    async def claim():
        chosen = msgspec.structs.replace(config(), events_bytes_max=4_096)
        async with Receiver() as receiver, serving_with(chosen) as server:
            made = await hook(server, receiver.url(), "pushed", queue="mail")
            wanted = HookRequest(url=receiver.url(), events=("pushed",), queue="mail", id=made.id)
            await server.webhooks.add("default", msgspec.structs.replace(wanted, enabled=False))
            for _ in range(200):
                await push(server, payload=b'"' + b"x" * 100 + b'"')
            await server.webhooks.add("default", wanted)
            last = await push(server)
            await receiver.until(lambda self: any(one.json["job_id"] == last for one in self.got))
            (seen,) = await server.webhooks.list("default")
            assert 0 < seen.status.missed == 201 - len(receiver.got) < 200

    run(claim())
    assert "no longer kept" in caplog.text
