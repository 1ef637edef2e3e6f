"""Commands that may concern several processes: which process is asked for what, and how the replies become one."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.engine import finishing
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.command_table import at_home
from stoker.runtime import parts, routing
from stoker.runtime.gone import Gone, check_all, lost
from stoker.runtime.plans_pull import pull
from stoker.runtime.plans_transactions import abort, publish, stage
from stoker.runtime.plans_workflows import change_workflow, get_inputs, get_workflow, push_workflow, send_letters

if TYPE_CHECKING:
    from stoker.runtime.spread import Spread


async def look(spread: "Spread", tenant: str, command: Any) -> Any:
    if getattr(command, "queue", None) is not None:
        return await spread.ask(spread.owner_of(tenant, command), tenant, command)
    replies = await spread.ask_all(tenant, dict.fromkeys(spread.processes, command))
    check_all(replies, changes=False)
    return routing.ALL_OF[type(command)](command, replies)


async def find_job(spread: "Spread", tenant: str, command: c.FindJob) -> Any:
    if command.queue is not None:
        return await spread.ask(spread.owner_of(tenant, command), tenant, command)
    replies = await spread.ask_all(tenant, dict.fromkeys(spread.processes, command))
    found = [reply for reply in replies if isinstance(reply, r.JobView)]
    check_all([reply for reply in replies if not isinstance(reply, errors.NotFound)], changes=False)
    if not found:
        raise replies[0]
    return routing.first_job(found)


async def settle(spread: "Spread", tenant: str, command: Any) -> Any:
    """Ids of processes that are not there are refused one by one: the others are settled."""
    one = spread.concerns_one(tenant, command)
    if one is not None:
        return await spread.ask(one, tenant, command)
    finishing.check(spread.checker, command)
    own = routing.split(command, spread.by_id)
    replies = await spread.ask_all(tenant, own)
    if all(isinstance(reply, BaseException) for reply in replies):
        check_all(replies, changes=True)
    refused: dict[int, str] = {}
    for part, reply in zip(own.values(), replies, strict=True):
        if isinstance(reply, BaseException):
            error = lost(reply.process, reply.sent) if isinstance(reply, Gone) else reply
            if not isinstance(error, errors.StokerError):
                raise error
            refused |= dict.fromkeys(part.ids, error.code)
    whole = routing.settled(command, [reply for reply in replies if not isinstance(reply, BaseException)])
    return msgspec.structs.replace(whole, refused={**whole.refused, **refused}) if refused else whole


async def claim(spread: "Spread", tenant: str, command: Any) -> Any:
    """Ack, release or extend a claim in all shards where it holds jobs. May be repeated when it was broken off."""
    replies = await spread.ask_all(tenant, dict.fromkeys(spread.processes, command))
    there = [reply for reply in replies if not isinstance(reply, errors.NotFound)]
    check_all(there, changes=True)
    if not there:
        raise replies[0]
    return routing.merge(there)


SPECIAL: dict[type[Any], Callable[["Spread", str, Any], Coroutine[Any, Any, Any]]] = {
    **dict.fromkeys(at_home("jobs"), settle),
    **dict.fromkeys(at_home("claim"), claim),
    **dict.fromkeys(at_home("tenant"), look),
    c.Pull: pull,
    c.PushWorkflow: push_workflow,
    c.GetWorkflow: get_workflow,
    c.CancelWorkflow: change_workflow,
    c.RetryWorkflow: change_workflow,
    c.GetInputs: get_inputs,
    parts.SendLetters: send_letters,
    c.Stage: stage,
    c.Publish: publish,
    c.Abort: abort,
    c.FindJob: find_job,
}
"""Commands that may concern several processes."""
