"""Whatever stands in a field of a command: the answer is one of ours, and nothing has changed."""

from typing import Any

import msgspec
import pytest

from stoker.engine.audit import audit
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.options import Options
from stoker.model.schedules import Schedule
from stoker.model.workflows import Edge, Step
from stoker.testing import World


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


NASTY: list[Any] = [
    None,
    1.5,
    float("nan"),
    "x",
    "",
    "\ud800",
    b"x",
    bytearray(b"x"),
    10**5000,
    -1,
    2**70,
    True,
    [],
    [None],
    [[]],
    {},
    {0: 1},
    {1},
    object(),
    nested(50_000),
    ["q"],
    [64],
    [10**5000],
    (1,),
    range(64, 129, 64),
    range(10**30),
    Options(priority="high"),  # type: ignore[arg-type]
    [Options(tags=7)],  # type: ignore[arg-type]
    [c.KvEntry(7, b"x")],  # type: ignore[arg-type]
    [c.KvEntry("k", None, "soon", [])],  # type: ignore[arg-type]
]

GIVEN: dict[str, Any] = {
    "queue": "q",
    "payload": b"x",
    "payloads": [b"x", b"y"],
    "transaction": "t",
    "stage": "s",
    "stages": ["s"],
    "queues": ["q"],
    "ids": [64],
    "id": 64,
    "claim": "c",
    "percent": 5,
    "message": "m",
    "data": b"d",
    "custom_id": "mine",
    "limit": None,
    "priority": 1,
    "delay_ms": 5,
    "state": "completed",
    "key": "k",
    "keys": ["k", "other"],
    "value": b"1",
    "entries": [c.KvEntry("k", b"1")],
    "ttl_ms": 5,
    "steps": [Step("q", [b"x"]), Step("r", [b"y"], after=[Edge(0)])],
    "step": "1",
    "name": "nightly",
    "schedule": Schedule(every_ms=60_000),
}


def furnished(shards: int) -> World:
    """A world with something of everything in it."""
    world = World(shards=shards)
    client = world.client
    client.push_batch("q", [b"a", b"b", b"c"])
    client.push("q", b"", custom_id="mine")
    client.pull("q", 2, claim="c")
    client.push("dead", b"")
    for job in client.pull("dead"):
        client.fail(job.id, job.token, retry=False)
    client.stage("t", "s", "q", [b"x"])
    client.kv_set("k", b"1")
    client.put_schedule("q", "nightly", every_ms=3_600_000)
    return world


def commands(kind: type[c.Command[Any]], field: str) -> list[c.Command[Any]]:
    required = {f.name: GIVEN.get(f.name) for f in msgspec.structs.fields(kind) if f.required}
    if kind is c.StartBulk:
        required["action"] = "retry"
    if kind is c.SetConcurrency:
        required["limit"] = 1
    return [kind(**{**required, field: value}) for value in NASTY]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("kind", c.ALL, ids=lambda kind: kind.__name__)
def test_nothing_but_our_own_errors_comes_out(kind: type[c.Command[Any]], shards: int):
    for field in kind.__struct_fields__:
        with furnished(shards) as world:
            for command in commands(kind, field):
                try:
                    world.client.execute(command)
                except StokerError as error:
                    str(error).encode()
            assert not world.broker.runtime.is_torn
            assert world.client.push("q", b"still alive").created


@pytest.mark.parametrize("tenant", [None, 5, "", "a b", "\ud800", [], b"x"])
def test_a_tenant_that_cannot_be_is_refused(tenant: Any):
    with World() as world, pytest.raises(StokerError):
        world.broker.execute(tenant, c.ListQueues())


def test_what_is_no_command_is_refused():
    with World() as world, pytest.raises(StokerError):
        world.broker.execute("default", "push")  # type: ignore[arg-type]


@pytest.mark.parametrize("field", Schedule.__struct_fields__)
def test_no_field_of_a_schedule_brings_out_anything_else(field: str):
    with furnished(1) as world:
        for rule in ({"every_ms": 60_000}, {"cron": "* * * * *"}, {"at": world.now + 60_000}):
            for value in NASTY:
                try:
                    world.client.put_schedule("q", "new", Schedule(**{**rule, field: value}))
                except StokerError:
                    continue
                world.client.delete_schedule("q", "new")
        world.advance(60_000)
        audit(world.broker.runtime.shards[0])
