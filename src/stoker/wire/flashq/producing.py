"""PUSH, PUSHB and FLOW."""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, Refused
from stoker.model.options import DEFAULT_OPTIONS, Dependency, DependencyPolicy, Options
from stoker.model.workflows import Edge, Step
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Duplicate, Plan, done, ids_of, worded
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.decoding import Codec
from stoker.wire.flashq.option_mapping import PLAIN, REFUSED, options_of, options_of_all
from stoker.wire.flashq.payloads import stored_as

Batch = q.PushBatchFields | q.PlainPushBatch | q.MixedPushBatch


def push(request: q.PushFields | q.PlainPush, context: RequestContext) -> c.Command[Any]:
    codec = context.codec
    if type(request) is q.PlainPush:
        return c.Push(request.queue, bytes(request.data), PLAIN[codec])
    assert isinstance(request, q.PushFields)
    payload, options = payload_of(request, codec), options_of(request, codec)
    if request.request_key is None:
        return c.Push(request.queue, payload, options, q.level_of(request))
    return c.PushBatch(
        request.queue,
        [payload],
        options,
        atomic=True,
        request_key=request.request_key,
        durability=q.level_of(request),
    )


def payload_of(job: q.PushFields | q.JobItem | q.FlowFields | q.FlowChild, codec: Codec) -> bytes:
    """The payload as it is stored. Raises `InvalidRequest` if it is larger than the job itself allows."""
    payload = stored_as(job.data, codec, job.codec)
    if 0 < job.size_limit < len(payload):
        raise InvalidRequest(
            f"invalid data: {len(payload)} bytes are over this job's size_limit of {job.size_limit}: send less"
        )
    return payload


def pushed(request: q.PushFields | q.PlainPush, reply: r.Pushed | r.PushedBatch, context: RequestContext) -> Answer:
    if isinstance(reply, r.PushedBatch):
        reply = r.Pushed(reply.ids[0], not reply.duplicates, reply.duplicates.get(0), reply.level)
    if reply.created:
        return {"ok": True, "success": True, "id": reply.id, "level": reply.level}
    by = reply.duplicate_by
    if not context.hello and isinstance(request, q.PushFields) and request.on_conflict is None:
        if by == "unique_key":
            raise Duplicate(f"Duplicate job with key: {request.unique_key} (held by job {reply.id})")
        if by == "debounce_id":
            raise Duplicate(
                f"Debounced: job with id {request.debounce_id!r} was pushed recently (duplicate of job {reply.id})"
            )
    return done(id=reply.id, level=reply.level, created=False, duplicate_by=by)


def push_batch(request: Batch, context: RequestContext) -> Plan:
    """Items with the same options are pushed together; if they are refused for that, each of them gets the error."""
    if not request.jobs:
        return done(ids=[], failed=[], errors=[])
    wrong: dict[int, str] = dict(request.wrong) if isinstance(request, q.MixedPushBatch) else {}
    command = batch_command(request, context, wrong)
    try:
        reply: r.PushedBatch = yield command
    except Refused:
        if command.each is not None or command.atomic:
            raise
        each = [command.options] * len(command.payloads)
        reply = yield msgspec.structs.replace(command, options=DEFAULT_OPTIONS, each=each)
    answer: Answer = {"ok": True, "success": not reply.refused, "ids": ids_of(reply.ids, context), "level": reply.level}
    if reply.refused or not context.hello:
        answer["failed"] = answer["errors"] = [
            {"index": number, "code": refusal.code, "error": worded(refusal.code, wrong.get(number, refusal.message))}
            for number, refusal in reply.refused.items()
        ]
    if reply.duplicates:
        answer["duplicates"] = [{"index": number, "by": by} for number, by in reply.duplicates.items()]
    return answer


def batch_command(request: Batch, context: RequestContext, wrong: dict[int, str]) -> c.PushBatch:
    """One command for all items. Those that are `wrong` keep their place, as something that no queue takes."""
    codec = context.codec
    each: list[Options] | None = None
    if isinstance(request, q.PlainPushBatch):
        payloads, options = [bytes(item.data) for item in request.jobs], PLAIN[codec]
    else:
        items: list[q.JobItem] = request.jobs
        options, each = options_of_all(items, codec)
        payloads = [_payload(number, item, codec, wrong) for number, item in enumerate(items)]
        if wrong:
            if request.atomic:
                raise InvalidRequest(f"invalid item {min(wrong)}: {wrong[min(wrong)]}")
            each = each or [options] * len(items)
            for number in wrong:
                each[number] = REFUSED
    return c.PushBatch(request.queue, payloads, options, each, request.atomic, request.request_key, q.level_of(request))


def _payload(number: int, item: q.JobItem, codec: Codec, wrong: dict[int, str]) -> bytes:
    try:
        return payload_of(item, codec)
    except InvalidRequest as error:
        wrong[number] = error.message
        return b""


def flow(request: q.FlowFields, context: RequestContext) -> Plan:
    """The parent and all below it as one workflow: pushed as a whole or not at all, also across queues."""
    tree = Tree(context.codec)
    tree.add(request, request.queue, None)
    if tree.has_keys:
        return (yield from flow_of_one_queue(request, context))
    reply: r.PushedWorkflow = yield c.PushWorkflow(
        tree.made(), request_key=request.request_key, durability=q.level_of(request)
    )
    ids = [job for number in tree.steps_of(0) for job in reply.ids(number)] if reply.steps else []
    parent = reply.ids(0)[0] if reply.steps else 0
    return done(id=parent, parent_id=parent, children_ids=ids, workflow=reply.id, level=reply.level)


class Tree:
    """The steps of a flow: the parent first, then what it waits for. Neighbours that are alike are one step."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._steps: list[tuple[str, list[bytes], Options, int | None]] = []
        self._after: list[list[Edge]] = []
        self.has_keys = False
        """Whether a job asks for what is not for jobs of a workflow."""

    def add(self, job: q.FlowFields | q.FlowChild, queue: str, parent: int | None, depth: int = 0) -> int:
        """The number of the step of a job; the steps of its children follow."""
        if depth > DEPTH_MAX:
            raise InvalidRequest(f"invalid flow: children are nested more than {DEPTH_MAX} deep")
        number = len(self._steps)
        options = options_of(job, self._codec)
        keys = (options.unique_key, options.custom_id, options.debounce_id)
        self.has_keys = self.has_keys or keys != (None, None, None) or bool(options.depends_on)
        self._steps.append((queue, [payload_of(job, self._codec)], options, parent))
        self._after.append([])
        before: tuple[q.FlowChild, str] | None = None
        for child in job.children:
            own = child.queue or queue
            if before is not None and self._alike(before, (child, own)):
                self._steps[-1][1].append(payload_of(child, self._codec))
            else:
                policy: DependencyPolicy = "continue" if child.on_failure == "ignore" else child.on_failure
                self._after[number].append(Edge(self.add(child, own, number, depth + 1), policy))
            before = (child, own)
        return number

    def _alike(self, before: tuple[q.FlowChild, str], now: tuple[q.FlowChild, str]) -> bool:
        """Whether two neighbours can be jobs of one step."""
        (one, one_queue), (other, other_queue) = before, now
        is_leaf = not one.children and not other.children
        same = (one_queue, one.on_failure) == (other_queue, other.on_failure)
        return is_leaf and same and options_of(other, self._codec) == self._steps[-1][2]

    def steps_of(self, number: int) -> list[int]:
        """The steps of a job's children."""
        return [edge.step for edge in self._after[number]]

    def made(self) -> list[Step]:
        return [
            Step(queue, payloads, options, after, parent=parent)
            for (queue, payloads, options, parent), after in zip(self._steps, self._after, strict=True)
        ]


DEPTH_MAX = 64
"""Levels of children: what people draw has five."""


def flow_of_one_queue(request: q.FlowFields, context: RequestContext) -> Plan:
    """Jobs with keys or edges of their own, as a batch: they must be in one queue."""
    queues = {child.queue or request.queue for child in request.children} | {request.queue}
    if len(queues) > 1 or any(child.children for child in request.children):
        raise InvalidRequest(
            "invalid flow: jobs with job_id, unique_key, debounce_id or depends_on must be a parent and its children in"
            " one queue; use request_key for a flow that must not be pushed twice"
        )
    codec = context.codec
    jobs: list[q.FlowChild | q.FlowFields] = [*request.children, request]
    each = [options_of(job, codec) for job in jobs]
    edges = tuple(
        Dependency(0, "continue" if child.on_failure == "ignore" else child.on_failure, number)
        for number, child in enumerate(request.children)
    )
    each[-1] = msgspec.structs.replace(each[-1], depends_on=each[-1].depends_on + edges)
    payloads = [payload_of(job, codec) for job in jobs]
    reply: r.PushedBatch = yield c.PushBatch(
        request.queue,
        payloads,
        each=each,
        atomic=True,
        request_key=request.request_key,
        durability=q.level_of(request),
    )
    *children, parent = reply.ids
    return done(id=parent, parent_id=parent, children_ids=children, workflow=None, level=reply.level)
