"""Workflows."""

from typing import Any

from stoker.brokers.redis.calls import Plan, PlanContext, Rejected, ScriptCall, decode
from stoker.brokers.redis.looking import given
from stoker.brokers.redis.views import encode_options
from stoker.engine import checks, settling, workflow_checks, workflow_views
from stoker.engine.workflow_state import POLICIES
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.states import STATES
from stoker.model.workflows import Edge, WorkflowState

JOBS_MAX = 10_000
"""Of one workflow: all of its jobs are pushed by one script."""


def push(context: PlanContext, command: c.PushWorkflow) -> Plan[r.PushedWorkflow]:
    limits = context.limits
    workflow_checks.workflow(command, limits)
    jobs = sum(len(step.payloads) for step in command.steps)
    if jobs > JOBS_MAX:
        raise errors.LimitExceeded(f"{jobs} jobs are over the limit of {JOBS_MAX} for one workflow in Redis: split it")
    steps = [
        (
            step.key,
            step.queue,
            [(edge.step, POLICIES.index(edge.on_failure)) for edge in step.after],
            len(step.payloads),
            step.parent,
            step.open,
            int(step.options.trace is not None),
        )
        for step in command.steps
    ]
    params: dict[str, Any] = {"what": "push", "name": command.name, "steps": steps}
    params["most"] = limits.workflows_per_tenant_max
    if command.request_key is not None:
        params["request"] = command.request_key
    options = (encode_options(step.options) for step in command.steps)
    payloads = (payload for step in command.steps for payload in step.payloads)
    try:
        done = yield ScriptCall("workflow", params, (*options, *payloads))
    except Rejected as rejected:
        if rejected.code != "limit_exceeded":
            raise
        if rejected.message == b"queues":
            most = limits.queues_per_tenant_max
            told = f"{most} queues are there already: obliterate some, or use fewer names"
        else:
            running, most = rejected.message.decode(), limits.workflows_per_tenant_max
            told = f"{running} workflows have not ended, the limit is {most}: let some end"
        raise errors.LimitExceeded(told) from None
    workflow, firsts, created = decode(done.values[0])
    return r.PushedWorkflow(workflow, [(first, count) for first, count in firsts], bool(created), context.level)


def fill(context: PlanContext, command: c.FillStep) -> Plan[r.Done]:
    if not checks.is_list(command.payloads) or isinstance(command.payloads, checks.NOT_PAYLOADS):
        raise errors.InvalidRequest(f"invalid payloads {checks.short(command.payloads)}: expected a list of bytes")
    most = min(context.limits.workflow_jobs_max, JOBS_MAX)
    if len(command.payloads) > most:
        raise errors.LimitExceeded(f"{len(command.payloads)} jobs are over the limit of {most} for one step")
    workflow_checks.payloads(command.payloads, context.limits)
    settling.check_settling(context.checker, (command.id,), command.token)
    params: dict[str, Any] = {"what": "fill", "id": command.id, "step": command.step}
    if command.token is not None:
        params["token"] = command.token
    try:
        done = yield ScriptCall("workflow", params, tuple(command.payloads))
    except Rejected as rejected:
        if rejected.message == b"held":
            told = f"job {checks.short(command.id)}: {settling.REFUSED[rejected.code]}"
        elif rejected.message == b"none":
            told = f"job {command.id} is not part of a workflow: it has no step to fill"
        elif rejected.code == "not_found":
            workflow, own = decode(rejected.message)
            told = (
                f"workflow {workflow} has no open step {checks.short(command.step)} right after step {own}:"
                " name the step by its key"
            )
        else:
            raise
        raise errors.BY_CODE[rejected.code](told) from None
    return r.Done(done.values[0], context.level)


# --- looking ---------------------------------------------------------------------------------------


def called(workflow: Any, what: str) -> Plan[Any]:
    if type(workflow) is not int or not 0 < workflow < 2**53:
        raise checks.not_found("workflow", workflow)
    try:
        return (yield ScriptCall("workflow", {"what": what, "id": workflow}))
    except Rejected as rejected:
        if rejected.code != "not_found":
            raise
        raise checks.not_found("workflow", workflow) from None


def view_of(raw: bytes) -> r.WorkflowView:
    workflow, name, state, at, finished_at, retries, found = decode(raw)
    steps: list[r.StepView] = []
    standings: list[workflow_views.Standing] = []
    for number, one in enumerate(found):
        key, queue, kind, after, is_open, first, count, counts, standing, failing, released = one
        steps.append(
            r.StepView(
                key=key or str(number),
                queue=queue,
                name=kind,
                first=first,
                count=count,
                after=tuple(Edge(step, POLICIES[policy]) for step, policy in after),
                open=is_open,
                state="blocked",
            )
        )
        standings.append(workflow_views.Standing(number, first, count, counts, standing, failing, released))
    known = r.WorkflowView(
        id=workflow,
        name=name,
        state=WorkflowState(state),
        pushed_at=at,
        finished_at=finished_at,
        retries=retries,
        steps=steps,
    )
    return workflow_views.with_standings(known, standings)


def get(context: PlanContext, command: c.GetWorkflow) -> Plan[r.WorkflowView]:
    done = yield from called(command.id, "get")
    return view_of(done.values[0])


def list_all(context: PlanContext, command: c.ListWorkflows) -> Plan[r.WorkflowPage]:
    checks.count(command.limit, "limit", context.limits.browse_jobs_max)
    if command.state is not None and command.state not in list(WorkflowState):
        raise errors.InvalidRequest(f"unknown state {checks.short(command.state)}: expected running, completed, ...")
    done = yield ScriptCall("workflow", {"what": "list"} | given(command, "state", "name", "after", "limit"))
    has_more, packed = done.values
    found = [
        r.WorkflowInfo(
            id=one[0],
            name=one[1],
            state=WorkflowState(one[2]),
            pushed_at=one[3],
            finished_at=one[4],
            steps=one[5],
            ended=one[6],
            failed=one[7],
        )
        for one in decode(packed)
    ]
    return r.WorkflowPage(found, found[-1].id if has_more else None)


def cancel(context: PlanContext, command: c.CancelWorkflow) -> Plan[r.WorkflowView]:
    try:
        done = yield from called(command.id, "cancel")
    except Rejected as rejected:
        state = rejected.message.decode()
        raise errors.WrongState(f"workflow {command.id} is {state}: it can no longer be cancelled") from None
    return view_of(done.values[0])


def retry(context: PlanContext, command: c.RetryWorkflow) -> Plan[r.WorkflowView]:
    try:
        done = yield from called(command.id, "retry")
    except Rejected as rejected:
        state = rejected.message.decode()
        if state == "cancelled":
            raise errors.WrongState(f"workflow {command.id} was cancelled: push it anew") from None
        raise errors.WrongState(
            f"workflow {command.id} is {state[:-1]}, and nothing of it has failed: nothing to retry"
        ) from None
    return view_of(done.values[0])


def get_inputs(context: PlanContext, command: c.GetInputs) -> Plan[r.Inputs]:
    checks.count(command.limit, "limit", context.limits.batch_jobs_max)
    checks.number(command.after, "after", 0, 2**53 - 1)
    if type(command.id) is not int or not 0 < command.id < 2**53:
        raise checks.not_found("job", command.id)
    params = {"what": "inputs", "bytes": context.limits.reply_bytes_max} | given(command, "id", "after", "limit")
    try:
        done = yield ScriptCall("workflow", params)
    except Rejected:
        raise checks.not_found("job", command.id) from None
    total, found = done.values
    inputs = [input_of(*one) for one in found]
    stop = command.after + len(inputs)
    return r.Inputs(inputs, stop if inputs and stop < total else None, total)


def input_of(packed: bytes, has_result: int, result: bytes) -> r.Input:
    step, job, state, codec, error = decode(packed)
    return r.Input(job, step, None if state is None else STATES[state], result if has_result else None, codec, error)
