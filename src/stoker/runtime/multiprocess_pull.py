"""The plan of a pull over queues of several processes.

The pull takes ready jobs in the order of the queues, under one token. If there are none, it waits in each process, and
the first one that has a job wins. All callers of the same claim are served by one process.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stoker.engine import checks, pulling
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.unreceived import release_of
from stoker.runtime import process_requests, routing
from stoker.runtime.peer_lost import PeerLost, check_all

if TYPE_CHECKING:
    from stoker.runtime.process_router import ProcessRouter

HEADROOM = 1024
"""So many tokens may be given out elsewhere while a pull goes from process to process."""

TRIES = 3
"""So often a pull looks for a token that is good everywhere."""


async def pull(router: "ProcessRouter", tenant: str, command: c.Pull) -> r.Delivery:
    one = router.concerns_one(tenant, command)
    if one is not None:
        return await router.ask(one, tenant, command)  # type: ignore[no-any-return]
    pulling.check_pull(router.checker, command)
    for name in command.queues:
        checks.name(name)
    if command.claim is None:
        delivery, next_at = await take(router, tenant, command)
        if delivery is None and command.wait_ms:
            return await wait(router, tenant, command)
        return delivery or r.Delivery(next_at=next_at)
    home = router.home(tenant, command.claim)
    if home != router.me:  # all callers of a claim meet in one process
        return await router.ask(home, tenant, command, whole=True)  # type: ignore[no-any-return]
    return await pull_claim(router, tenant, command)


async def pull_claim(router: "ProcessRouter", tenant: str, command: c.Pull) -> r.Delivery:
    async with router.one_at_a_time("claim", tenant, command.claim):
        delivery, next_at = await take(router, tenant, command)
    if delivery is None and command.wait_ms:
        delivery = await wait(router, tenant, command)
        if delivery.runs:
            async with router.one_at_a_time("claim", tenant, command.claim):
                return await one_claim(router, tenant, command, delivery)
    return delivery or r.Delivery(next_at=next_at)


def by_home(router: "ProcessRouter", tenant: str, command: c.Pull) -> dict[int, list[str]]:
    """The queues of each process; a claim concerns all processes."""
    homes: dict[int, list[str]] = {} if command.claim is None else {process: [] for process in router.processes}
    for name in command.queues:
        homes.setdefault(router.home(tenant, name), []).append(name)
    return homes


async def take(router: "ProcessRouter", tenant: str, command: c.Pull) -> tuple[r.Delivery | None, int | None]:
    """What there is now, in the order of the queues and under one token, and else the next chance.

    Processes that are not there have nothing to give; what one gives that dies on the way comes back with its leases.
    """
    homes = by_home(router, tenant, command)
    looks = {process: process_requests.Look(names, command.claim) for process, names in homes.items()}
    turns: list[tuple[int, list[str]]] = []
    for _ in range(TRIES):
        looked: list[Any] = await router.ask_all(tenant, looks)
        there: list[process_requests.Looked] = [one for one in looked if isinstance(one, process_requests.Looked)]
        if not there or command.claim is not None:  # a claim may be held by the one that is not there
            check_all(looked, changes=False)
        claimed = [one.claimed for one in there if one.claimed is not None]
        if claimed:
            return joined(claimed), None
        ready = {name for one in there for name in one.ready}
        turns = in_turn(router, tenant, [name for name in command.queues if name in ready])
        token = router.new_token(max(one.token for one in there) + HEADROOM)
        delivery, late = await take_under(token, router, tenant, command, turns)
        if delivery is not None:
            return delivery, None
        if not late:
            return None, min((one.next_at for one in there if one.next_at is not None), default=None)
    return await take_from_one(router, tenant, command, turns), None


async def take_under(
    token: int, router: "ProcessRouter", tenant: str, command: c.Pull, turns: Sequence[tuple[int, list[str]]]
) -> tuple[r.Delivery | None, bool]:
    """Go from process to process until there is enough; and whether one has given out a higher token meanwhile."""
    runs: list[r.Run] = []
    left, late = command.count, False
    given: set[int] = set()
    """The processes that have used the token for this pull. One that was late has not, but another pull may have."""
    try:
        for process, names in turns:
            own = msgspec.structs.replace(command, queues=names, count=left, wait_ms=0)
            with suppress(PeerLost, errors.Unavailable, errors.Unknown):
                taken: process_requests.TakenJobs = await router.ask(
                    process, tenant, process_requests.Take(own, token, process in given)
                )
                runs += taken.delivery.runs
                left -= len(taken.delivery)
                if taken.late:
                    late = True
                else:
                    given.add(process)
            if not left:
                break
    except BaseException:  # the caller has left
        back = release_of(command, r.Delivery(token, runs))
        if back is not None:
            router.run(router.execute_async(tenant, back))
        raise
    return r.Delivery(token, runs) if runs else None, late


async def take_from_one(
    router: "ProcessRouter", tenant: str, command: c.Pull, turns: Sequence[tuple[int, list[str]]]
) -> r.Delivery | None:
    """Where many pull at once, one token for all may always come late: what one process has will do."""
    for process, names in turns:
        with suppress(PeerLost, errors.Unavailable, errors.Unknown):
            own = msgspec.structs.replace(command, queues=names, wait_ms=0)
            delivery: r.Delivery = await router.ask(process, tenant, own)
            if delivery.runs:
                return delivery
    return None


def in_turn(router: "ProcessRouter", tenant: str, names: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Neighbouring queues of one process together."""
    turns: list[tuple[int, list[str]]] = []
    for name in names:
        process = router.home(tenant, name)
        if not turns or turns[-1][0] != process:
            turns.append((process, []))
        turns[-1][1].append(name)
    return turns


def joined(claimed: Sequence[r.Delivery]) -> r.Delivery:
    """What a claim holds in several processes; where it was let go it holds nothing."""
    return routing.joined([one for one in claimed if one.runs] or claimed[:1])


async def wait(router: "ProcessRouter", tenant: str, command: c.Pull) -> r.Delivery:
    """Wait in every process; the first that has something wins, and what others give meanwhile goes back uncounted.

    A process that dies and comes back before the time is over is asked again.
    """
    homes = by_home(router, tenant, command)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + command.wait_ms / 1_000
    asked: dict[asyncio.Future[Any], int] = {}
    away: dict[asyncio.Future[Any], int] = {}
    """Processes that are not there, by what is done when they are back."""
    replies: dict[int, Any] = {}
    """What each has said last, errors included."""
    won: r.Delivery | None = None

    def ask(process: int, pull: c.Pull) -> None:
        asked[
            asyncio.ensure_future(wait_there(router, process, tenant, process_requests.Await(pull, homes[process])))
        ] = process

    for process in homes:
        ask(process, command)
    try:
        while asked and won is None:
            done, _ = await asyncio.wait({*asked, *away}, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done & asked.keys(), key=asked.__getitem__):
                process = asked.pop(task)
                reply = replies[process] = task.exception() or task.result()
                if isinstance(reply, Away):
                    away[asyncio.ensure_future(reply.returned.wait())] = process
                    replies[process] = reply.gone
                elif isinstance(reply, r.Delivery) and reply.runs:
                    if won is None:
                        won = reply
                    else:
                        router.give_back(process, tenant, command, reply)
            for task in done & away.keys():
                left_ms = max(1, round((ends_at - loop.time()) * 1_000))
                ask(away.pop(task), msgspec.structs.replace(command, wait_ms=left_ms))
    finally:
        for task in (*asked, *away):
            task.cancel()
        ended = await asyncio.shield(asyncio.gather(*asked, return_exceptions=True)) if asked else []
    for process, reply in zip(asked.values(), ended, strict=True):
        router.give_back(process, tenant, command, reply)
    if won is not None:
        return won
    empty = [reply for reply in replies.values() if isinstance(reply, r.Delivery)]
    if not empty:
        check_all(list(replies.values()), changes=True)
    return r.Delivery(next_at=min((one.next_at for one in empty if one.next_at is not None), default=None))


class Away(NamedTuple):
    """A process that cannot be asked, and what is set when it can."""

    gone: PeerLost
    returned: asyncio.Event


async def wait_there(
    router: "ProcessRouter", process: int, tenant: str, part: process_requests.Await
) -> r.Delivery | Away:
    while True:
        try:
            return await router.ask(process, tenant, part)  # type: ignore[no-any-return]
        except PeerLost as gone:
            if not gone.sent:  # it has died, and is not back yet
                return Away(gone, router.return_of(process))


async def one_claim(router: "ProcessRouter", tenant: str, command: c.Pull, delivery: r.Delivery) -> r.Delivery:
    """A claim was made while its callers waited, perhaps in two processes at once: the first keeps it for all."""
    questions = dict.fromkeys(router.processes, process_requests.Look([], command.claim))
    looked: list[Any] = await router.ask_all(tenant, questions)
    held = {
        process: one.claimed
        for process, one in zip(questions, looked, strict=True)
        if isinstance(one, process_requests.Looked) and one.claimed is not None and one.claimed.runs
    }
    if not held:
        return delivery
    token = next(iter(held.values())).token
    for process, other in held.items():
        back = release_of(command, other, claimed=True)
        if other.token != token and back is not None:
            with suppress(PeerLost, errors.StokerError):
                await router.ask(process, tenant, back)
    return joined([one for one in held.values() if one.token == token])
