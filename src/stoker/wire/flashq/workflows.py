"""Workflows in flashQ's words: WORKFLOW and its family, and what jobs of one ask for.

flashQ has only trees of a parent and its children (`FLOW`); these are graphs of steps. Steps are named by their keys or
their numbers. What a graph may be is the engine's business.
"""

from collections.abc import Mapping
from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import UnknownDependency
from stoker.model.workflows import Edge, Step
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Plan, done, ids_of
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.decoding import Codec
from stoker.wire.flashq.jobs import state_name
from stoker.wire.flashq.option_mapping import options_of
from stoker.wire.flashq.payloads import NULL, shown, stored_as


def push(request: q.WorkflowFields, context: RequestContext) -> Plan:
    numbers = {step.key or str(number): number for number, step in enumerate(request.steps)}
    steps = [_step(number, step, numbers, context.codec) for number, step in enumerate(request.steps)]
    reply: r.PushedWorkflow = yield c.PushWorkflow(steps, request.name, request.request_key, request.durability)
    made = [
        {"key": step.key or str(number), "queue": step.queue, "ids": ids_of(reply.ids(number), context)}
        for number, step in enumerate(request.steps if reply.steps else ())
    ]
    return done(id=reply.id, steps=made, created=reply.created, level=reply.level)


def _step(number: int, step: q.WorkflowStep, numbers: Mapping[str, int], codec: Codec) -> Step:
    where = f"step {step.key or number}"
    return Step(
        queue=step.queue,
        payloads=[stored_as(job.data, codec, step.codec) for job in step.jobs],
        options=options_of(step, codec),
        after=[_edge(edge, numbers, where) for edge in step.after],
        key=step.key,
        parent=None if step.parent is None else _number(step.parent, numbers, where),
        open=step.open,
    )


def _edge(edge: int | str | q.WorkflowEdge, numbers: Mapping[str, int], where: str) -> Edge:
    if isinstance(edge, q.WorkflowEdge):
        return Edge(_number(edge.step, numbers, where), edge.on_failure)
    return Edge(_number(edge, numbers, where))


def _number(step: int | str, numbers: Mapping[str, int], where: str) -> int:
    if isinstance(step, int):
        return step
    number = numbers.get(step)
    if number is None:
        raise UnknownDependency(f"{where} names step {step[:80]!r}, which is not there: expected a key or a number")
    return number


def looked_at(request: Any, view: r.WorkflowView, context: RequestContext) -> Answer:
    return done(workflow=view)


# --- what jobs of one ask for --------------------------------------------------------------------------


def fill(request: Any, context: RequestContext) -> c.Command[Any]:
    payloads = [stored_as(job.data, context.codec, request.codec) for job in request.jobs]
    return c.FillStep(request.id, request.step, payloads, request.token)


def to_batch(limit: int, context: RequestContext) -> int:
    return min(limit, context.limits.batch_jobs_max)


def inputs(request: Any, page: r.Inputs, context: RequestContext) -> Answer:
    return done(
        inputs=[_input(one, context) for one in page.inputs],
        next_after=page.next_after,
        total=page.total,
    )


def _input(one: r.Input, context: RequestContext) -> Answer:
    result = NULL[context.codec] if one.result is None else shown(one.result, one.codec, context.codec)
    state = "unknown" if one.state is None else state_name(one.state, context)
    return {"id": one.id, "step": one.step, "state": state, "result": result, "error": one.error or None}
