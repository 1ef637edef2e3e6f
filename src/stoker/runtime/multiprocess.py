"""Commands that may concern several processes: which process is asked for what, and how the replies become one."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.engine import bulk, settling
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.bulk import BulkView
from stoker.model.command_table import at_home
from stoker.model.filters import COUNTED, filter_of, narrows_by
from stoker.runtime import process_requests, routing
from stoker.runtime.multiprocess_pull import pull
from stoker.runtime.multiprocess_transactions import abort, publish, stage
from stoker.runtime.multiprocess_workflows import change_workflow, get_inputs, get_workflow, push_workflow, send_letters
from stoker.runtime.peer_lost import PeerLost, check_all, lost

if TYPE_CHECKING:
    from stoker.runtime.process_router import ProcessRouter


async def query(router: "ProcessRouter", tenant: str, command: Any) -> Any:
    if getattr(command, "queue", None) is not None:
        return await router.ask(router.owner_of(tenant, command), tenant, command)
    replies = await router.ask_all(tenant, dict.fromkeys(router.processes, command))
    check_all(replies, changes=False)
    return routing.ALL_OF[type(command)](command, replies)


async def count_jobs(router: "ProcessRouter", tenant: str, command: c.CountJobs) -> r.Counted:
    """Exactly by the counters of all processes, or a step in the process that has the cursor's shard."""
    if command.queue is not None:
        return await router.ask(router.owner_of(tenant, command), tenant, command)  # type: ignore[no-any-return]
    if command.after is None and narrows_by(filter_of(command)) <= COUNTED:
        replies = await router.ask_all(tenant, dict.fromkeys(router.processes, command))
        check_all(replies, changes=False)
        return r.Counted(sum(one.count for one in replies))
    number = routing.counting_at(command, router.shards)
    found = await router.ask(router.at(number), tenant, routing.with_cursor(command))
    return found  # type: ignore[no-any-return]


async def start_bulk(router: "ProcessRouter", tenant: str, command: c.StartBulk) -> BulkView:
    """Each process starts its part. Started again after a lost answer, the parts that run go on."""
    bulk.check(router.checker, command)
    if command.filter.queue is not None:
        return await router.ask(router.home(tenant, command.filter.queue), tenant, command)  # type: ignore[no-any-return]
    replies = await router.ask_all(tenant, dict.fromkeys(router.processes, command))
    check_all(replies, changes=True)
    return bulk.joined(replies)


async def one_bulk(router: "ProcessRouter", tenant: str, command: Any) -> BulkView:
    """Look at a bulk operation, or stop it, in all processes that have a part of it."""
    replies = await router.ask_all(tenant, dict.fromkeys(router.processes, command))
    there = [reply for reply in replies if not isinstance(reply, errors.NotFound)]
    check_all(there, changes=type(command) is c.StopBulk)
    if not there:
        raise replies[0]
    return bulk.joined(there)


async def find_job(router: "ProcessRouter", tenant: str, command: c.FindJob) -> Any:
    if command.queue is not None:
        return await router.ask(router.owner_of(tenant, command), tenant, command)
    replies = await router.ask_all(tenant, dict.fromkeys(router.processes, command))
    found = [reply for reply in replies if isinstance(reply, r.JobView)]
    check_all([reply for reply in replies if not isinstance(reply, errors.NotFound)], changes=False)
    if not found:
        raise replies[0]
    return routing.first_job(found)


async def settle(router: "ProcessRouter", tenant: str, command: Any) -> Any:
    """Ids of processes that are not there are refused one by one: the others are settled."""
    one = router.concerns_one(tenant, command)
    if one is not None:
        return await router.ask(one, tenant, command)
    settling.check(router.checker, command)
    own = routing.split(command, router.by_id)
    replies = await router.ask_all(tenant, own)
    if all(isinstance(reply, BaseException) for reply in replies):
        check_all(replies, changes=True)
    refused: dict[int, str] = {}
    for part, reply in zip(own.values(), replies, strict=True):
        if isinstance(reply, BaseException):
            error = lost(reply.process, reply.sent) if isinstance(reply, PeerLost) else reply
            if not isinstance(error, errors.StokerError):
                raise error
            refused |= dict.fromkeys(part.ids, error.code)
    whole = routing.settled(command, [reply for reply in replies if not isinstance(reply, BaseException)])
    return msgspec.structs.replace(whole, refused={**whole.refused, **refused}) if refused else whole


async def claim(router: "ProcessRouter", tenant: str, command: Any) -> Any:
    """Ack, release or extend a claim in all shards where it holds jobs. May be repeated when it was broken off."""
    replies = await router.ask_all(tenant, dict.fromkeys(router.processes, command))
    there = [reply for reply in replies if not isinstance(reply, errors.NotFound)]
    check_all(there, changes=True)
    if not there:
        raise replies[0]
    return routing.merge(there)


SPECIAL: dict[type[Any], Callable[["ProcessRouter", str, Any], Coroutine[Any, Any, Any]]] = {
    **dict.fromkeys(at_home("jobs"), settle),
    **dict.fromkeys(at_home("claim"), claim),
    **dict.fromkeys(at_home("tenant"), query),
    c.Pull: pull,
    c.PushWorkflow: push_workflow,
    c.GetWorkflow: get_workflow,
    c.CancelWorkflow: change_workflow,
    c.RetryWorkflow: change_workflow,
    c.GetInputs: get_inputs,
    process_requests.SendLetters: send_letters,
    c.Stage: stage,
    c.Publish: publish,
    c.Abort: abort,
    c.CountJobs: count_jobs,
    c.StartBulk: start_bulk,
    c.GetBulk: one_bulk,
    c.StopBulk: one_bulk,
    c.FindJob: find_job,
}
"""Commands that may concern several processes."""
