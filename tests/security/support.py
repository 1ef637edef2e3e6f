"""A server with tenants, peers that keep all that they are sent, and what a tenant has, in full."""

import itertools
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.model.command_table import PERMISSIONS, Permission
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from tests.served.on_loop import Peer, Place, serving

CANARY = "canary-of-a-that-b-must-never-see"


class Talker:
    """A peer that numbers its requests, and keeps what it is told unasked."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._numbers = itertools.count(1)
        self.unasked: list[Any] = []
        self._early: dict[Any, Any] = {}
        """Answers that overtook the one that was waited for."""
        self.heard: list[bytes] = []

    async def __call__(self, cmd: str, **fields: Any) -> Any:
        number = next(self._numbers)
        self.peer.send(cmd=cmd, reqId=number, **fields)
        return await self.answer(number)

    async def answer(self, number: int) -> Any:
        while number not in self._early:
            answer = await self.peer.line()
            self.heard.append(msgspec.json.encode(answer))
            if "event" in answer or "reqId" not in answer:
                self.unasked.append(answer)
            else:
                self._early[answer["reqId"]] = answer
        return self._early.pop(number)


class Secured:
    """A server that knows tokens, and the file that they are in."""

    def __init__(self, place: Place, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.place, self.path = place, path
        self._patch = patch

    def let_pass(self, seconds: float) -> None:
        """Set the clock on the wall forward: what is valid until some time of day ends, and nothing else."""
        real = time.time
        self._patch.setattr(time, "time", lambda: real() + seconds)

    def token(self, tenant: str, permissions: Iterable[Permission] = PERMISSIONS, **more: Any) -> str:
        made = create_token(
            self.path, name=f"of-{tenant}", tenant=tenant, permissions=permissions, now=time.time(), **more
        )
        self.place.server.gate.reload()
        return made.text

    async def talker(self, tenant: str, permissions: Iterable[Permission] = PERMISSIONS, **more: Any) -> Talker:
        talker = Talker(await self.place.peer())
        assert (await talker("AUTH", token=self.token(tenant, permissions, **more)))["ok"]
        return talker


@asynccontextmanager
async def secured(path: Path, shards: int = 1, **config: Any) -> AsyncIterator[Secured]:
    """Clients must say who they are."""
    tokens = path / f"tokens-{time.monotonic_ns()}"
    create_token(tokens, name="first", now=time.time())
    auth = config.pop("auth", AuthSettings())
    auth = msgspec.structs.replace(auth, tokens_file=str(tokens))
    config.setdefault("settings", LocalSettings(shards=shards))
    with pytest.MonkeyPatch.context() as patch:
        async with serving(auth=auth, **config) as place:
            yield Secured(place, tokens, patch)


def snapshot(broker: LocalBroker, tenant: str) -> dict[str, Any]:
    """All that a tenant has, and all that has happened to it."""

    def ask(command: c.Command[Any]) -> Any:
        return broker.execute(tenant, command)

    names = list(ask(c.ListQueues()).names)
    jobs = ask(c.Browse(limit=1_000)).jobs
    keys = list(ask(c.KvKeys()).keys)
    stats = ask(c.GetStats())
    found: dict[str, Any] = {
        "queues": {name: (ask(c.GetQueue(name)), ask(c.GetStats(name)).counts) for name in names},
        "counts": (stats.counts, stats.totals, stats.payload_bytes),
        "jobs": jobs,
        "dead": {name: ask(c.ListDead(name)) for name in names},
        "logs": {job.id: (ask(c.GetLogs(job.id)), ask(c.GetPartials(job.id))) for job in jobs},
        "values": dict(zip(keys, ask(c.KvGetMany(keys)).values, strict=True)) if keys else {},
        "events": [ask(c.ReadEvents(shard)).events for shard in range(len(broker.runtime.shards))],
    }
    return msgspec.to_builtins(found, str_keys=True, enc_hook=dict)  # type: ignore[no-any-return]
