"""S9: no request of a tenant shows or changes anything of another tenant."""

import re
from pathlib import Path
from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.ids import KV_HOME, SYSTEM_TENANT
from tests.security.examples import Things, furnish, requests_of
from tests.security.support import CANARY, Talker, secured, snapshot
from tests.served.on_loop import run

POSITIONS = {"after", "next_after", "lowest", "last", "sequence", "at", "token", "lock_token", "reqId"}
"""Of a log that tenants share: a number tells that something happened, and nothing of what."""
MOMENTS = {"avg_latency_ms", "avg_wait_ms", "wait_ms_sum", "run_ms_sum", "completed_last_minute"}
"""How long one's own things took."""
PACES = {"state", "ended_at", "looked", "changed"}
"""How far a bulk operation is by now."""


def masked(answer: Any) -> Any:
    """Without the numbers of new jobs and moments, which no two runs have in common, and the order that they give."""
    if isinstance(answer, dict):
        if answer.keys() == {"counts", "sum_ms"}:  # a histogram of times: only how many there are can be compared
            return sum(answer["counts"])
        left_out = POSITIONS | MOMENTS | (PACES if "action" in answer else set())
        shown = {key: value for key, value in answer.items() if key not in left_out}
        return {masked(key): len(value) if key == "records" else masked(value) for key, value in shown.items()}
    if isinstance(answer, list):
        return sorted((masked(value) for value in answer), key=repr)
    if isinstance(answer, str):
        return re.sub(r"\d{2,}", "#", answer)
    return "#" if type(answer) in (int, float) and answer >= 64 else answer


async def ask_everything(talker: Talker, things: Things, **more: Any) -> dict[str, Any]:
    found = {cmd: masked(await talker(cmd, **fields, **more)) for cmd, fields in requests_of(things)}
    for answer in found.values():
        answer.pop("reqId", None)
    return found


@pytest.mark.parametrize("shards", [1, 4])
def test_every_command_answers_about_foreign_things_as_about_things_that_never_were(shards: int, tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, shards) as server:
            broker = server.place.broker
            things = furnish(broker, "a")
            before = snapshot(broker, "a")
            spy = await server.talker("b")
            answers = await ask_everything(spy, things)
            assert snapshot(broker, "a") == before
            assert [heard for heard in spy.heard if CANARY.encode() in heard] == []
            assert {event["event"].get("tenant", "b") for event in spy.unasked if "event" in event} <= {"b"}
        async with secured(tmp_path, shards) as empty:
            alone = await ask_everything(await empty.talker("b"), Things())
        assert [(cmd, answers[cmd], alone[cmd]) for cmd in answers if answers[cmd] != alone[cmd]] == []

    run(main)


def test_the_owner_itself_gets_other_answers(tmp_path: Path):
    """The control: the same requests of the tenant that has these things see them and change them."""

    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "a")
            before = snapshot(server.place.broker, "a")
            owner = await server.talker("a")
            answers = await ask_everything(owner, things)
            assert snapshot(server.place.broker, "a") != before
            assert len([heard for heard in owner.heard if CANARY.encode() in heard]) > 5
        async with secured(tmp_path) as empty:
            alone = await ask_everything(await empty.talker("a"), Things())
        assert len([cmd for cmd in answers if answers[cmd] != alone[cmd]]) > 35

    run(main)


def test_naming_another_tenant_is_forbidden_in_every_command(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "a")
            before = snapshot(server.place.broker, "a")
            spy, nobody = await server.talker("b"), {"PING", "HELLO"}
            for named in ("a", "never-was", SYSTEM_TENANT, "", "A", "а"):  # noqa: RUF001  a Cyrillic look-alike
                answers = await ask_everything(spy, things, tenant=named)
                codes = {cmd: answer.get("code") for cmd, answer in answers.items() if cmd not in nobody}
                assert codes == dict.fromkeys(codes, "forbidden"), named
                assert len({answer["error"] for cmd, answer in answers.items() if cmd not in nobody}) <= 2
            assert snapshot(server.place.broker, "a") == before
            assert (await spy("get_stats", tenant="b", body={}))["ok"]

    run(main)


def test_only_a_token_for_all_tenants_may_name_one_and_never_the_servers_own(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "a")
            operator = await server.talker("*")
            assert (await operator("get_job", tenant="a", body={"id": things.active}))["ok"]
            assert (await operator("get_job", body={"id": things.active}))["code"] == "not_found"
            for named in (SYSTEM_TENANT, "", "a/b", "a\0", "x" * 257, "ａ"):  # noqa: RUF001  a wide look-alike
                for cmd, fields in requests_of(things):
                    if cmd not in ("PING", "HELLO"):
                        assert (await operator(cmd, tenant=named, **fields))["code"] == "invalid", (cmd, named)

    run(main)


def test_a_foreign_dependency_is_one_that_was_forgotten_long_ago(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "a")
            spy = await server.talker("b")
            edges = [[{"id": job}] for job in (things.waiting, things.active, things.dead, things.ended)]
            for edge in edges:
                pushed = await spy("push", body={"queue": "q", "payload": "", "options": {"depends_on": edge}})
                assert pushed["ok"]
            assert (await spy("get_stats", body={}))["body"]["counts"]["waiting"] == len(edges)
            edge = [{"id": 6_400_000}]
            never = await spy("push", body={"queue": "q", "payload": "", "options": {"depends_on": edge}})
            assert never["code"] == "unknown_dependency"

    run(main)


def test_events_and_counts_are_of_ones_own(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path, shards=4) as server:
            spy, owner = await server.talker("b"), await server.talker("a")
            assert (await spy("subscribe", body={"after": {str(shard): 0 for shard in range(4)}}))["ok"]
            assert (await spy("SUBSCRIBE", events=["*"]))["ok"]
            assert (await owner("subscribe", body={}))["ok"]
            furnish(server.place.broker, "a")
            await owner("push", body={"queue": "work", "payload": ""})
            for _ in range(3):
                await spy("PING")
            assert spy.unasked == []
            assert (await spy("get_stats", body={}))["body"]["totals"]["pushed"] == 0
            assert (await spy("STATS"))["queues"] == {}
            assert (await spy("push", body={"queue": "work", "payload": ""}))["ok"]
            while len(spy.unasked) < 2:
                await spy("PING")
            assert {told["event"]["queue"] for told in spy.unasked} == {"work"}
            assert len(spy.unasked) == 2
            while not owner.unasked:
                await owner("PING")
            assert {told["event"]["tenant"] for told in owner.unasked} == {"a"}

    run(main)


INTERNAL = ["a:b", "..", ".", "a:..:b", SYSTEM_TENANT, KV_HOME, "$webhooks", "default", "a", "work:dead", "-", "0"]
LOOKALIKES = ["wоrk", "work\u200b", "ｗork", "work ", " work", "work\n", "wor\u212a", "work\0", "work/x", "", "é"]  # noqa: RUF001


def test_names_that_look_like_something_internal_are_names_or_refused(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            talker, other = await server.talker("a"), await server.talker("a:b")
            await talker("push", body={"queue": "work", "payload": ""})
            taken = []
            for name in [*INTERNAL, *LOOKALIKES]:
                answer = await talker("push", body={"queue": name, "payload": ""})
                assert answer["ok"] or answer["code"] == "invalid", name
                flashq = await talker("PUSH", queue=name, data=1)
                assert flashq["ok"] == answer["ok"]
                taken += [name] if answer["ok"] else []
            assert set(taken) == {"a:b", "..", ".", "a:..:b", "default", "a", "work:dead", "-", "0"}
            for name in taken:
                counts = (await talker("get_stats", body={"queue": name}))["body"]["counts"]
                assert counts["waiting"] == 2, name
            assert (await talker("get_stats", body={"queue": "work"}))["body"]["counts"]["waiting"] == 1
            assert (await other("list_queues", body={}))["body"]["names"] == []

    run(main)


def test_tenants_and_queues_with_separators_in_their_names_stay_apart(tmp_path: Path):
    """`a` + `b:c` and `a:b` + `c` would be one and the same if names were joined."""

    async def main() -> None:
        async with secured(tmp_path) as server:
            first, second = await server.talker("a"), await server.talker("a:b")
            await first("push", body={"queue": "b:c", "payload": ""})
            await first("KVSET", key="b:c", value=1)
            assert (await second("pull", body={"queues": ["c", "b:c"]}))["body"]["runs"] == []
            assert (await second("KVGET", key="c"))["exists"] is False
            assert (await first("pull", body={"queues": ["b:c"]}))["body"]["runs"]

    run(main)


def test_the_servers_own_tenant_takes_no_requests(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            before = [stats.counts for stats in server.place.broker.shard_stats()]
            for command in (c.Push("q", b""), c.KvSet("k", b""), c.ListQueues(), c.ReadEvents()):
                with pytest.raises(InvalidRequest):
                    server.place.broker.execute(SYSTEM_TENANT, command)
            assert [stats.counts for stats in server.place.broker.shard_stats()] == before

    run(main)


def test_a_pass_over_several_tenants_needs_a_token_for_each(tmp_path: Path):
    """Also on a connection whose right to read was checked before."""

    async def main() -> None:
        async with secured(tmp_path) as server:
            furnish(server.place.broker, "a")
            spy, operator = await server.talker("b"), await server.talker("*")
            assert (await spy("read_records", body={}))["ok"]
            assert (await spy("read_records", body={"tenants": ["b"]}))["ok"]
            for tenants in (["a"], ["b", "a"]):
                for counted in (False, True):
                    refused = await spy("read_records", body={"tenants": tenants, "counted": counted})
                    assert (refused["ok"], refused["code"]) == (False, "forbidden")
            assert (await operator("read_records", body={"tenants": ["a", "b"]}))["body"]["records"]
            assert not (await operator("read_records", body={"tenants": [SYSTEM_TENANT]}))["ok"]

    run(main)
