"""S8: a connection loses its rights when its token expires or is withdrawn, also for what waits at that moment."""

import time
from pathlib import Path
from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.options import Options
from stoker.server.auth.tokens import revoke_token
from tests.security.support import Secured, Talker, secured
from tests.served.on_loop import run, until

VALID_S = 3600


async def ending(server: Secured, how: str, permissions: Any = ("produce", "consume", "read", "admin")) -> Talker:
    """A peer whose token does not last, and a way to wait for its end."""
    if how == "expires":
        return await server.talker("acme", permissions, expires_at=time.time() + VALID_S)
    return await server.talker("acme", permissions)


def end(server: Secured, how: str) -> None:
    if how == "expires":
        server.let_pass(2 * VALID_S)
        return
    for line in server.path.read_text().splitlines():
        if '"of-acme"' in line:
            revoke_token(server.path, line.split('"id":"')[1].split('"')[0])
    server.place.server.gate.reload()


WAYS = pytest.mark.parametrize("how", ["expires", "is withdrawn"])


@WAYS
def test_a_connection_may_nothing_more_when_its_token_ends(how: str, tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await ending(server, how)
            assert (await talker("PUSH", queue="q", data=1))["ok"]
            end(server, how)
            for cmd, fields in (
                ("PUSH", {"queue": "q", "data": 1}),
                ("push", {"body": {"queue": "q", "payload": ""}}),
                ("subscribe", {}),
                ("UNSUBSCRIBE", {}),
                ("get_stats", {"body": {}}),
            ):
                assert (await talker(cmd, **fields))["code"] == "unauthenticated"
            assert server.place.broker.execute("acme", c.GetStats()).totals.pushed == 1
            assert (await talker("AUTH", token=server.token("acme")))["ok"]
            assert (await talker("PUSH", queue="q", data=1))["ok"]

    run(main)


@WAYS
@pytest.mark.parametrize("claim", [None, "claim"])
def test_a_job_goes_back_when_the_token_of_a_waiting_pull_has_ended(how: str, claim: str | None, tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            talker, other = await ending(server, how), await server.talker("acme2")
            talker.peer.send(cmd="pull", reqId=90, body={"queues": ["q"], "wait_ms": 60_000, "claim": claim})
            talker.peer.send(cmd="PULL", reqId=91, queue="p", timeout=60_000, claim=claim and claim + "2")
            await until(lambda: len(server.place.server.dispatcher._waiting) == 2)
            end(server, how)
            broker = server.place.broker
            for queue, number in (("q", 90), ("p", 91)):
                job = broker.execute("acme", c.Push(queue, b"secret")).id
                answer = await talker.answer(number)
                assert answer["code"] == "unauthenticated"
                assert "secret" not in str(answer)
                await until(lambda job=job: broker.execute("acme", c.GetJob(job)).state == "waiting")  # type: ignore[misc]
                view = broker.execute("acme", c.GetJob(job))
                assert (view.attempts, view.crashes) == (0, 0)
            assert (await other("PING"))["ok"]

    run(main)


def test_a_job_is_delivered_to_a_pull_whose_token_lasts(tmp_path: Path):
    """The control."""

    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await server.talker("acme", expires_at=time.time() + 3600)
            talker.peer.send(cmd="pull", reqId=90, body={"queues": ["q"], "wait_ms": 60_000})
            await until(lambda: server.place.server.dispatcher.is_waiting)
            server.token("somebody-else")
            job = server.place.broker.execute("acme", c.Push("q", b"")).id
            assert (await talker.answer(90))["body"]["runs"][0]["ids"] == [job]

    run(main)


@WAYS
def test_a_result_is_not_told_to_a_waiting_token_that_has_ended(how: str, tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            broker = server.place.broker
            jobs = [broker.execute("acme", c.Push("q", b"")).id for _ in range(2)]
            token = broker.execute("acme", c.Pull(["q"], 2)).token
            talker = await ending(server, how)
            talker.peer.send(cmd="wait_job", reqId=90, body={"id": jobs[0], "wait_ms": 60_000})
            talker.peer.send(cmd="WAITJOB", reqId=91, id=jobs[1], timeout=60_000)
            await until(lambda: len(server.place.server.dispatcher._waiting) == 2)
            end(server, how)
            broker.execute("acme", c.Ack(jobs, token, [b"secret", b"secret"]))
            for number in (90, 91):
                answer = await talker.answer(number)
                assert answer["code"] == "unauthenticated"
                assert "secret" not in str(answer)

    run(main)


@WAYS
def test_a_subscription_ends_with_its_token(how: str, tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await ending(server, how)
            assert (await talker("subscribe", body={}))["ok"]
            server.place.broker.execute("acme", c.Push("before", b""))
            assert (await talker.peer.line())["event"]["queue"] == "before"
            end(server, how)
            server.place.broker.execute("acme", c.Push("after", b""))
            told = await talker.peer.line()
            assert (told["ok"], told["code"]) == (False, "unauthenticated")
            server.place.broker.execute("acme", c.Push("later", b""))
            answer = await talker("AUTH", token=server.token("acme"))
            assert (answer["ok"], talker.unasked) == (True, [])

    run(main)


def test_a_wrong_token_leaves_nothing_of_the_rights_before(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await server.talker("acme")
            assert (await talker("AUTH", token="wrong"))["code"] == "unauthenticated"
            assert (await talker("get_stats", body={}))["code"] == "unauthenticated"

    run(main)


def test_what_waits_belongs_to_whoever_asked_for_it(tmp_path: Path):
    """A peer that becomes another tenant meanwhile gets the job of its first question, and no right to it."""

    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await server.talker("a")
            talker.peer.send(cmd="PULL", reqId=90, queue="q", timeout=60_000)
            await until(lambda: server.place.server.dispatcher.is_waiting)
            assert (await talker("AUTH", token=server.token("b")))["ok"]
            mine = server.place.broker.execute("a", c.Push("q", b"1", Options(codec="json"))).id
            job = (await talker.answer(90))["job"]
            assert job["id"] == mine
            assert (await talker("ACK", id=mine, token=job["token"]))["code"] == "not_found"

    run(main)
