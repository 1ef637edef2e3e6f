"""The plan of a transaction over shards of several processes, and of the messages that it leaves.

One process runs all steps of a transaction. Stages are on disk before the decision to publish, the decision is on disk
before any other process learns of it, and the effects of a message are on disk before the message is forgotten. So a
transaction happens everywhere exactly once, even if a process dies or the power fails.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.engine import checks, transactions
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import shard_for
from stoker.runtime import process_requests, routing
from stoker.runtime.peer_lost import PeerLost, check_all

if TYPE_CHECKING:
    from stoker.runtime.process_router import ProcessRouter

ANY_TENANT = "default"
"""The tenant of parts that concern all tenants."""


def decided_here(
    steps: Callable[["ProcessRouter", str, Any], Coroutine[Any, Any, Any]],
) -> Callable[["ProcessRouter", str, Any], Coroutine[Any, Any, Any]]:
    """All steps of a transaction are taken by the process that decides about it, one after the other."""

    async def decided(router: "ProcessRouter", tenant: str, command: Any) -> Any:
        checks.key(command.transaction, "transaction", router.checker.limits)
        home = router.home(tenant, command.transaction)
        if home != router.me:
            return await router.ask(home, tenant, command, whole=True)
        async with router.one_at_a_time("transaction", tenant, command.transaction):
            return await steps(router, tenant, command)

    return decided


async def found_in_all(
    router: "ProcessRouter", tenant: str, question: process_requests.FindTransaction
) -> list[process_requests.TransactionPart]:
    replies: list[Any] = await router.ask_all(tenant, dict.fromkeys(router.processes, question))
    check_all(replies, changes=False)
    return sorted((one for reply in replies for one in reply), key=lambda one: one.shard)


def known_outcome(
    router: "ProcessRouter", tenant: str, transaction: str, found: Sequence[process_requests.TransactionPart]
) -> r.Transaction | None:
    """How it was decided, if it was."""
    decider = shard_for(tenant, transaction, router.shards)
    return next((one.outcome for one in found if one.shard == decider), None)


@decided_here
async def stage(router: "ProcessRouter", tenant: str, command: c.Stage) -> r.Staged:
    """Each queue's part lies in its own shard; numbers of parts and jobs count over all of them."""
    checks.name(command.queue)
    question = process_requests.FindTransaction(command.transaction, command.stage, command.part)
    found = await found_in_all(router, tenant, question)
    over = known_outcome(router, tenant, command.transaction, found)
    if over is not None:
        raise transactions.over(command.transaction, over)
    home = shard_for(tenant, command.queue, router.shards)
    others = [one for one in found if one.shard != home]
    jobs = sum(one.stages.get(command.stage, 0) for one in others)
    if command.part is not None and any(one.has_part for one in others):
        here = sum(one.stages.get(command.stage, 0) for one in found if one.shard == home)
        return r.Staged(jobs + here, found[0].level)
    reply: r.Staged = await router.ask(router.home(tenant, command.queue), tenant, command)
    return msgspec.structs.replace(reply, jobs=reply.jobs + jobs)


@decided_here
async def publish(router: "ProcessRouter", tenant: str, command: c.Publish) -> r.Transaction:
    """Decided by one shard, in one record with the messages to the others, which follow as soon as they are there."""
    question = process_requests.FindTransaction(command.transaction, publish=tuple(command.stages), durability="fsync")
    found = await found_in_all(router, tenant, question)
    over = known_outcome(router, tenant, command.transaction, found)
    if over is not None and over.outcome == "aborted":
        raise transactions.over(command.transaction, over)
    if over is not None:
        return await outcome(router, tenant, command.transaction)
    for name in command.stages:
        checks.key(name, "stage", router.checker.limits)
        if not any(name in one.stages for one in found):
            raise transactions.unknown_stage(name, command.transaction)
    return await end(router, tenant, command.transaction, list(command.stages), found, command.durability)


@decided_here
async def abort(router: "ProcessRouter", tenant: str, command: c.Abort) -> r.Transaction:
    found = await found_in_all(router, tenant, process_requests.FindTransaction(command.transaction))
    if known_outcome(router, tenant, command.transaction, found) is None:
        return await end(router, tenant, command.transaction, None, found, None)
    return await outcome(router, tenant, command.transaction)


async def end(
    router: "ProcessRouter",
    tenant: str,
    transaction: str,
    stages: list[str] | None,
    found: Sequence[process_requests.TransactionPart],
    durability: r.Level | None,
) -> r.Transaction:
    """Decide, and see to it that all hear of it; if this is broken off, they hear of it later."""
    staged = {one.shard: list(one.stages) for one in found if one.stages}
    try:
        done = await decide(router, tenant, transaction, stages, staged, durability)
        return msgspec.structs.replace(await outcome(router, tenant, transaction), level=done.level)
    except BaseException:
        for process in router.processes:
            if process != router.me:
                router.run(deliver(router, process))
        raise


async def decide(
    router: "ProcessRouter",
    tenant: str,
    transaction: str,
    stages: list[str] | None,
    staged: Mapping[int, list[str]],
    durability: r.Level | None,
) -> r.Done:
    """On disk before any other process hears of it."""
    if any(router.at(shard) != router.me for shard in staged):
        durability = "fsync"
    return await router.local.execute_async(tenant, process_requests.Decide(transaction, stages, staged, durability))


async def outcome(router: "ProcessRouter", tenant: str, transaction: str) -> r.Transaction:
    """How a transaction ended, over all shards that took part, once they know it."""
    try:
        for process in router.processes:
            if process != router.me:
                await deliver(router, process)
        found = await found_in_all(router, tenant, process_requests.FindTransaction(transaction))
    except (PeerLost, errors.StokerError) as error:
        raise errors.Unknown(
            f"transaction {transaction!r} is decided, but not all processes have heard of it ({error}): they will, by"
            " themselves; send it again to hear the outcome"
        ) from error
    reply: r.Transaction = routing.merge([one.outcome for one in found if one.outcome is not None])
    return reply


async def deliver(router: "ProcessRouter", process: int, greet: bool = False) -> None:
    """What lies here for the shards of a process is taken there, then forgotten here."""
    shards = [shard for shard in range(router.shards) if router.at(shard) == process]
    async with router.one_at_a_time("letters", process):
        letters = await router.local.execute_async(ANY_TENANT, process_requests.Letters(shards))
        if letters or greet:
            await router.ask(process, ANY_TENANT, process_requests.TakeLetters(letters))
        if letters:
            await router.local.execute_async(ANY_TENANT, process_requests.Arrived(letters))
