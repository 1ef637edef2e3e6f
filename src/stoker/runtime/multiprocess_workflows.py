"""The plans of workflows over several processes, and of pushes that wait for jobs of other processes.

The process in which a workflow begins decides about it and informs the others by messages. Their replies about its
steps are merged here, by the functions that merge the replies of the shards of one process.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.engine import workflow_checks, workflow_views
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import make_id, shard_for
from stoker.model.options import Dependency, Options
from stoker.runtime import process_requests
from stoker.runtime.multiprocess_transactions import deliver
from stoker.runtime.peer_lost import PeerLost, check_all

if TYPE_CHECKING:
    from stoker.runtime.process_router import ProcessRouter


async def push_workflow(router: "ProcessRouter", tenant: str, command: c.PushWorkflow) -> r.PushedWorkflow:
    """Decided where the first step lives; the others must have room for theirs, and are told of them."""
    workflow_checks.workflow(command, router.checker.limits)
    home = router.home(tenant, command.steps[0].queue)
    if home != router.me:
        pushed: r.PushedWorkflow = await router.ask(home, tenant, command, whole=True)
        return pushed
    queues: dict[int, list[str]] = {}
    for step in command.steps:
        queues.setdefault(router.home(tenant, step.queue), []).append(step.queue)
    others = {process: process_requests.FindRoom(names) for process, names in queues.items() if process != router.me}
    check_all(await router.ask_all(tenant, others), changes=False)
    reply: r.PushedWorkflow = await router.local.execute_async(tenant, command)
    if not others:
        return reply
    await tell(router, reply.id, others)
    found = {one.step: (one.first, one.count) for one in await standings(router, tenant, reply.id)}
    steps = [found.get(number, step) for number, step in enumerate(reply.steps)]
    return msgspec.structs.replace(reply, steps=steps)


async def tell(router: "ProcessRouter", workflow: int, processes: Iterable[int]) -> None:
    """See to it that all hear of what was decided; if this is broken off, they hear of it later."""
    try:
        for process in processes:
            if process != router.me:
                await deliver(router, process)
    except (PeerLost, errors.StokerError) as error:
        raise errors.Unknown(
            f"workflow {workflow} is decided about, but not all processes have heard of it ({error}): they will, by"
            " themselves; ask for it to see how it stands"
        ) from error


async def standings(router: "ProcessRouter", tenant: str, workflow: int) -> list[workflow_views.Standing]:
    """How all steps of a workflow stand."""
    replies = await router.ask_all(tenant, dict.fromkeys(router.processes, process_requests.FindSteps(workflow)))
    check_all(replies, changes=False)
    return [one for reply in replies for one in reply]


async def get_workflow(router: "ProcessRouter", tenant: str, command: c.GetWorkflow) -> r.WorkflowView:
    view: r.WorkflowView = await router.ask(router.by_id(command.id), tenant, command)
    return workflow_views.with_standings(view, await standings(router, tenant, command.id))


async def change_workflow(router: "ProcessRouter", tenant: str, command: Any) -> r.WorkflowView:
    """Cancel or retry one."""
    home = router.by_id(command.id)
    if home != router.me:
        asked: r.WorkflowView = await router.ask(home, tenant, command, whole=True)
        return asked
    await router.local.execute_async(tenant, command)
    await tell(router, command.id, router.processes)
    for process in router.processes:  # what came of it elsewhere is told to the workflow's home
        if process != router.me:
            await router.ask(process, tenant, process_requests.SendLetters(), whole=True)
    return await get_workflow(router, tenant, c.GetWorkflow(command.id))


async def send_letters(router: "ProcessRouter", tenant: str, command: process_requests.SendLetters) -> r.Done:
    for process in router.processes:
        if process != router.me:
            await deliver(router, process)
    return r.Done()


async def get_inputs(router: "ProcessRouter", tenant: str, command: c.GetInputs) -> r.Inputs:
    found = await router.ask(router.by_id(command.id), tenant, process_requests.FindInputs(command))
    asked = workflow_views.page_of(command, found)
    own: dict[int, list[int]] = {}
    for job_id in asked.ids:
        own.setdefault(router.by_id(job_id), []).append(job_id)
    questions = {one: process_requests.FindResults(ids, asked.workflow) for one, ids in own.items()}
    replies: list[Any] = await router.ask_all(tenant, questions)
    check_all(replies, changes=False)
    results = {result.id: result for reply in replies for result in reply}
    there = [results[job_id] for job_id in takewhile(results.__contains__, asked.ids)]
    return workflow_views.answered(command, asked, there, router.checker.limits)


# --- pushes that wait for others ---------------------------------------------------------------------


def names_others(router: "ProcessRouter", tenant: str, command: Any) -> bool:
    """Whether a push has edges to jobs of other processes than the one that it goes to."""
    each = command.each if type(command) is c.PushBatch else None
    if type(command.options) is not Options or (not command.options.depends_on and not each):
        return False
    owner = router.home(tenant, command.queue) if type(command.queue) is str else 0
    return any(router.by_id(job_id) != owner for job_id in named(command))


def named(command: Any) -> Iterable[int]:
    """The jobs that a push names by their ids."""
    each: Sequence[Any] = (command.each or ()) if type(command) is c.PushBatch else ()
    for options in (command.options, *each):
        edges = options.depends_on if type(options) is Options else ()
        for edge in edges if type(edges) is tuple else ():
            if type(edge) is Dependency and edge.item is None and type(edge.id) is int:
                yield edge.id


async def push(router: "ProcessRouter", tenant: str, command: Any) -> Any:
    """Ask the shards of the jobs which of them ever existed. Others are refused like unknown jobs of the queue."""
    own: dict[int, set[int]] = {}
    owner = router.home(tenant, command.queue)
    for job_id in named(command):
        if router.by_id(job_id) != owner:
            own.setdefault(router.by_id(job_id), set()).add(job_id)
    replies = await router.ask_all(tenant, {one: process_requests.FindUnknown(sorted(ids)) for one, ids in own.items()})
    check_all(replies, changes=False)
    unknown = {job_id for reply in replies for job_id in reply}
    if not unknown:
        return await router.ask(owner, tenant, command)
    never = make_id(NEVER_GIVEN, shard_for(tenant, command.queue, router.shards))
    try:
        reply = await router.ask(owner, tenant, _renamed(command, dict.fromkeys(unknown, never)))
    except errors.UnknownDependency as error:
        raise errors.UnknownDependency(error.message.replace(str(never), str(min(unknown)))) from None
    if not getattr(reply, "refused", None):
        return reply
    refused = {
        number: r.Refusal(refusal.code, refusal.message.replace(str(never), str(_first(command, number, unknown))))
        for number, refusal in reply.refused.items()
    }
    return msgspec.structs.replace(reply, refused=refused)


NEVER_GIVEN = 1 << 46
"""A sequence number that no shard has reached."""


def _renamed(command: Any, names: dict[int, int]) -> Any:
    def changed(options: Any) -> Any:
        if type(options) is not Options or type(options.depends_on) is not tuple:
            return options
        edges = tuple(
            msgspec.structs.replace(edge, id=names.get(edge.id, edge.id)) if type(edge) is Dependency else edge
            for edge in options.depends_on
        )
        return msgspec.structs.replace(options, depends_on=edges)

    changes: dict[str, Any] = {"options": changed(command.options)}
    if type(command) is c.PushBatch and command.each is not None:
        changes["each"] = [changed(options) for options in command.each]
    return msgspec.structs.replace(command, **changes)


def _first(command: c.PushBatch, number: int, unknown: set[int]) -> int:
    options = command.options if command.each is None else command.each[number]
    return next((edge.id for edge in options.depends_on if edge.id in unknown), 0)
