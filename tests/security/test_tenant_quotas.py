"""S20: the quotas of tenants, through a real server; a tenant within its quota is not affected by one that is not."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.model import commands as c
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from tests.security.examples import furnish, requests_of
from tests.security.support import Secured, Talker, secured, snapshot
from tests.served.on_loop import run, until

SECRET = "a-secret-of-the-operator-for-entitlements"


def quotas(**limits: int) -> AuthSettings:
    return AuthSettings(tenants={"small": Quotas(**limits)}, entitlement_secrets=(SECRET,))


async def both(server: Secured) -> tuple[Talker, Talker]:
    return await server.talker("small"), await server.talker("other")


PUSHES: list[tuple[str, dict[str, Any]]] = [
    ("PUSH", {"queue": "q", "data": "x" * 50}),
    ("PUSHB", {"queue": "q", "jobs": [{"data": "x" * 50}]}),
    ("FLOW", {"queue": "q", "data": "x" * 50, "children": []}),
    ("push", {"body": {"queue": "q", "payload": "eHh4" * 20}}),
    ("push_batch", {"body": {"queue": "q", "payloads": ["eHh4" * 20]}}),
    ("stage", {"body": {"transaction": "t", "stage": "s", "queue": "q", "payloads": ["eHh4" * 20]}}),
    ("push_workflow", {"body": {"steps": [{"queue": "q", "payloads": ["eHh4" * 20]}]}}),
    ("CRON", {"queue": "q", "name": "c", "repeat_every": 60_000, "data": "x" * 50}),
    (
        "put_schedule",
        {"body": {"queue": "q", "name": "s", "schedule": {"every_ms": 60_000, "payload": "eHh4" * 20}}},
    ),
]


@pytest.mark.parametrize("limits", [{"waiting_jobs": 2}, {"bytes": 110}, {"queues": 1}])
def test_every_way_to_push_is_within_the_quota(limits: dict[str, int], tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(**limits)) as server:
            small, other = await both(server)
            queue = "first" if "queues" in limits else "q"
            for _ in range(2):
                assert (await small("PUSH", queue=queue, data="x" * 50))["ok"]
            before = snapshot(server.place.broker, "small")
            for cmd, fields in PUSHES:
                answer = await small(cmd, **fields)
                assert (answer.get("code"), answer.get("retryable", False)) == ("quota_exceeded", False), cmd
                assert next(iter(limits)) in answer["error"]
                assert (await other(cmd, **fields))["ok"], cmd
            assert snapshot(server.place.broker, "small") == before
            assert (await small("get_stats", body={}))["ok"]

    run(main)


def test_room_comes_back_when_jobs_end(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=1, bytes=100)) as server:
            small, _ = await both(server)
            for _ in range(5):
                job = (await small("PUSH", queue="q", data="x" * 50))["id"]
                assert (await small("PUSH", queue="q", data="x" * 50))["code"] == "quota_exceeded"
                token = (await small("PULL", queue="q", timeout=0))["job"]["token"]
                assert (await small("ACK", id=job, token=token))["ok"]

    run(main)


def test_a_batch_is_within_the_quota_as_a_whole(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=10)) as server:
            small, _ = await both(server)
            assert (await small("PUSHB", queue="q", jobs=[{"data": 1}] * 11))["code"] == "quota_exceeded"
            assert (await small("PUSHB", queue="q", jobs=[{"data": 1}] * 10))["ok"]
            assert server.place.broker.execute("small", c.GetStats()).counts.waiting == 10

    run(main)


def test_filling_a_step_is_within_the_quota_as_a_whole_and_saying_it_again_costs_nothing(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=3)) as server:
            small, _ = await both(server)
            later = {"key": "later", "queue": "q", "after": [0], "open": True}
            made = await small("WORKFLOW", steps=[{"queue": "q", "jobs": [{"data": 1}]}, later])
            token = (await small("PULL", queue="q", timeout=0))["job"]["token"]
            job = made["steps"][0]["ids"][0]
            refused = await small("FILLSTEP", id=job, step="later", jobs=[{"data": 1}] * 4, token=token)
            assert (refused["code"], "waiting_jobs" in refused["error"]) == ("quota_exceeded", True)
            assert (await small("WORKFLOWGET", id=made["id"]))["workflow"]["total"] == 1
            for _ in range(2):
                assert (await small("FILLSTEP", id=job, step="later", jobs=[{"data": 1}] * 3, token=token))["ok"]
            assert (await small("WORKFLOWGET", id=made["id"]))["workflow"]["total"] == 4

    run(main)


def test_pipelined_pushes_do_not_slip_through_together(tmp_path: Path):
    """All of one turn, before any of them is answered."""

    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=10)) as server:
            small, _ = await both(server)
            for number in range(100, 200):
                small.peer.send(cmd="PUSH", reqId=number, queue="q", data=1)
            taken = [(await small.answer(number))["ok"] for number in range(100, 200)]
            assert sum(taken) == 10
            assert server.place.broker.execute("small", c.GetStats()).counts.waiting == 10

    run(main)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which rates are counted: it stands still until the test moves it."""
    now = [1_000.0]
    monkeypatch.setattr("stoker.server.service.time", SimpleNamespace(time=time.time, monotonic=lambda: now[0]))
    return now


def test_a_tenant_over_its_rate_is_told_to_come_back_and_others_are_served(tmp_path: Path, seconds: list[float]):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(requests_per_second=20)) as server:
            things = furnish(server.place.broker, "small")
            small, other = await both(server)
            codes = []
            for number in range(1_000, 1_200):
                small.peer.send(cmd="get_stats", reqId=number, body={})
            for number in range(1_000, 1_200):
                codes.append((await small.answer(number)).get("code"))
                if number % 10 == 0:
                    assert (await other("PUSH", queue="q", data=1))["ok"]
            assert codes == [None] * 20 + ["busy"] * 180
            for cmd, fields in requests_of(things):
                if cmd not in ("PING", "HELLO"):
                    assert (await small(cmd, **fields)).get("code") == "busy", cmd
            seconds[0] += 0.05
            codes = [(await small("get_stats", body={})).get("code") for _ in range(2)]
            assert codes == [None, "busy"]

    run(main)


def test_several_connections_of_a_tenant_share_its_rate(tmp_path: Path, seconds: list[float]):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(requests_per_second=30)) as server:
            talkers = [await server.talker("small") for _ in range(5)]
            codes = [(await talker("get_stats", body={})).get("code") for _ in range(30) for talker in talkers]
            assert codes == [None] * 30 + ["busy"] * 120

    run(main)


def test_an_entitlement_widens_what_its_tenant_may_and_nobody_else(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=1)) as server:
            small, other = await both(server)
            wide = Entitlement(tenant="small", quotas=Quotas(waiting_jobs=3), expires_at=int(time.time()) + 3600)
            signed = sign(wide, SECRET)
            assert (await other("hello", body={"entitlement": signed}))["code"] == "forbidden"
            forged = sign(wide, SECRET[::-1])
            assert (await small("hello", body={"entitlement": forged}))["code"] == "forbidden"
            assert (await small("hello", body={"entitlement": signed}))["ok"]
            answers = [await small("PUSH", queue="q", data=1) for _ in range(4)]
            assert [answer.get("code") for answer in answers] == [None, None, None, "quota_exceeded"]

    run(main)


# --- ways to jobs and bytes that are not pushes --------------------------------------------------------


async def staged(talker: Talker, name: str, jobs: int, payload: str = "eHh4", **more: Any) -> dict[str, Any]:
    body = {"transaction": name, "stage": "s", "queue": "q", "payloads": [payload] * jobs, **more}
    answer: dict[str, Any] = await talker("stage", body=body)
    return answer


def counts(server: Secured) -> Any:
    return server.place.broker.execute("small", c.GetStats()).counts


def test_a_stage_reserves_the_jobs_that_it_will_publish(tmp_path: Path):
    """Twenty stages of three jobs each and one publish after another left sixty jobs where three were allowed."""

    async def main() -> None:
        async with secured(tmp_path, shards=4, auth=quotas(waiting_jobs=3)) as server:
            small, _ = await both(server)
            assert (await staged(small, "first", 3))["ok"]
            for number in range(20):
                assert (await staged(small, f"t{number}", 3))["code"] == "quota_exceeded"
            assert (await small("PUSH", queue="q", data="x"))["code"] == "quota_exceeded"
            assert (await small("publish", body={"transaction": "first", "stages": ["s"]}))["ok"]
            assert counts(server).waiting == 3
            assert (await staged(small, "second", 1))["code"] == "quota_exceeded"

    run(main)


def test_what_was_staged_and_is_dropped_is_free_again(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=3, bytes=30)) as server:
            small, _ = await both(server)
            for number in range(5):
                assert (await staged(small, f"t{number}", 3))["ok"]
                assert (await staged(small, "late", 1))["code"] == "quota_exceeded"
                assert (await small("abort", body={"transaction": f"t{number}"}))["ok"]

    run(main)


def test_a_part_that_is_staged_again_is_answered_though_the_quota_is_used(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=3)) as server:
            small, _ = await both(server)
            for _ in range(2):
                assert (await staged(small, "t", 3, part=1))["ok"]
            assert (await staged(small, "t", 3, part=2))["code"] == "quota_exceeded"

    run(main)


def test_new_payloads_are_within_the_quota(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(bytes=100)) as server:
            small, other = await both(server)
            ids = [(await one("PUSH", queue="q", data="x"))["id"] for one in (small, small, other)]
            larger = {"id": ids[2], "payload": "eHh4" * 40}
            assert (await other("update_payload", body=larger))["ok"]
            for cmd in ("update_payload", "UPDATE"):
                fields = {"body": {**larger, "id": ids[0]}} if cmd.islower() else {"id": ids[0], "data": "x" * 120}
                answer = await small(cmd, **fields)
                assert (answer["code"], "quota bytes" in answer["error"]) == ("quota_exceeded", True)
            for payload in ("eHh4" * 20, "eHh4" * 30, "eHh4"):
                assert (await small("update_payload", body={"id": ids[0], "payload": payload}))["ok"], len(payload)
            assert (await small("update_payload", body={"id": ids[0], "payload": "eHh4" * 30}))["ok"]
            assert (await small("update_payload", body={"id": ids[0], "payload": "eHh5" * 30}))["ok"], "no larger"

    run(main)


def test_entries_are_within_the_quota(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, shards=4, auth=quotas(bytes=100)) as server:
            small, other = await both(server)
            many = {"entries": [{"key": f"k{n}", "value": "eHh4" * 10} for n in range(4)]}
            writes: list[tuple[str, dict[str, Any]]] = [
                ("kv_set", {"body": {"key": "big", "value": "eHh4" * 40}}),
                ("kv_set_many", {"body": many}),
                ("KVSET", {"key": "big", "value": "x" * 120}),
                ("kv_increment", {"body": {"key": "k" * 90, "by": 1}}),
            ]
            for cmd, fields in writes:
                answer = await small(cmd, **fields)
                assert (answer["code"], "quota bytes" in answer["error"]) == ("quota_exceeded", True), cmd
                assert (await other(cmd, **fields))["ok"], cmd
            assert (await small("kv_set", body={"key": "k", "value": "eHh4" * 20}))["ok"]
            assert (await small("kv_set", body={"key": "k", "value": "eHh5" * 30}))["ok"], "in place of the old one"
            assert (await small("PUSH", queue="q", data="x" * 50))["code"] == "quota_exceeded"
            assert (await small("kv_delete", body={"keys": ["k"]}))["ok"]
            assert (await small("PUSH", queue="q", data="x" * 50))["ok"]

    run(main)


def test_dead_letters_come_back_within_the_quota(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=3)) as server:
            small, _ = await both(server)
            ids = []
            for _ in range(6):
                ids.append((await small("PUSH", queue="q", data="x"))["id"])
                token = (await small("PULL", queue="q", timeout=0))["job"]["token"]
                assert (await small("fail", body={"ids": [ids[-1]], "tokens": token, "retry": False}))["ok"]
            assert (await small("retry_dead", body={"queue": "q"}))["code"] == "quota_exceeded"
            assert (await small("retry_dead", body={"queue": "q", "ids": ids[:4]}))["code"] == "quota_exceeded"
            assert counts(server).waiting == 0
            assert (await small("retry_dead", body={"queue": "q", "limit": 2}))["ok"]
            assert (await small("retry_dead", body={"queue": "q", "ids": ids[4:]}))["code"] == "quota_exceeded"
            assert (await small("retry_dead", body={"queue": "q", "ids": ids[5:]}))["ok"]
            assert counts(server).waiting == 3

    run(main)


def test_a_slot_of_a_schedule_is_refused_when_the_quota_is_used(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, auth=quotas(waiting_jobs=1)) as server:
            small, _ = await both(server)
            schedule = {"every_ms": 1_000, "payload": "eHh4", "overlap": "allow"}
            assert (await small("put_schedule", body={"queue": "q", "name": "s", "schedule": schedule}))["ok"]

            def outcomes() -> list[tuple[str, str]]:
                view = server.place.broker.execute("small", c.GetSchedule("q", "s"))
                return [(run.outcome, run.reason) for run in view.last_runs]

            await small("PUSH", queue="q", data="x")
            await until(lambda: ("refused", "quota_exceeded") in outcomes())
            assert counts(server).waiting == 1
            assert (await small("delete_schedule", body={"queue": "q", "name": "s"}))["ok"]

    run(main)
