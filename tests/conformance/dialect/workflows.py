"""Workflows in flashQ's words."""

from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.workflows import Edge, Step
from tests.conformance.dialect.speaking import NotInDialect, Speaker
from tests.conformance.dialect.words import STATES, bytes_of, from_wire, options_fields, value_of


class Workflows(Speaker):
    """What those say who want jobs after jobs."""

    def say_push_workflow(self, tenant: str, command: c.PushWorkflow) -> r.PushedWorkflow:
        answer = self._call(
            "WORKFLOW",
            tenant,
            steps=[step_fields(step) for step in said(command.steps, list)],
            name=command.name,
            request_key=command.request_key,
            durability=command.durability,
        )
        steps = [(one["ids"][0], len(one["ids"])) if one["ids"] else (0, 0) for one in answer["steps"]]
        assert all(one["ids"] == list(range(*extent(*step))) for one, step in zip(answer["steps"], steps, strict=True))
        return r.PushedWorkflow(answer["id"], steps, answer["created"], answer["level"])

    def say_fill_step(self, tenant: str, command: c.FillStep) -> r.Done:
        jobs = [{"data": value_of(said(payload, bytes), "bytes")} for payload in said(command.payloads, list)]
        return self._done(
            "FILLSTEP", tenant, id=command.id, step=command.step, jobs=jobs, token=command.token, codec="bytes"
        )

    def say_get_inputs(self, tenant: str, command: c.GetInputs) -> r.Inputs:
        answer = self._call("GETINPUTS", tenant, id=command.id, after=command.after, limit=command.limit)
        return r.Inputs([input_of(one) for one in answer["inputs"]], answer["next_after"], answer["total"])

    def say_get_workflow(self, tenant: str, command: c.GetWorkflow) -> r.WorkflowView:
        return workflow_of(self._call("WORKFLOWGET", tenant, id=command.id))

    def say_list_workflows(self, tenant: str, command: c.ListWorkflows) -> r.WorkflowPage:
        answer = self._call(
            "WORKFLOWLIST",
            tenant,
            state=command.state,
            name=command.name,
            after=command.after,
            limit=command.limit,
        )
        return r.WorkflowPage([from_wire(one, r.WorkflowInfo) for one in answer["workflows"]], answer["next_after"])

    def say_cancel_workflow(self, tenant: str, command: c.CancelWorkflow) -> r.WorkflowView:
        return workflow_of(self._call("WORKFLOWCANCEL", tenant, id=command.id))

    def say_retry_workflow(self, tenant: str, command: c.RetryWorkflow) -> r.WorkflowView:
        return workflow_of(self._call("WORKFLOWRETRY", tenant, id=command.id))


def said(value: Any, kind: type) -> Any:
    if not isinstance(value, (list, tuple) if kind is list else kind):
        raise NotInDialect(f"{value!r} where a {kind.__name__} should be")
    return value


def step_fields(step: Step) -> dict[str, Any]:
    options = options_fields(said(step, Step).options)
    fields = {
        **options,
        "queue": step.queue,
        "jobs": [{"data": value_of(said(payload, bytes), step.options.codec)} for payload in said(step.payloads, list)],
        "after": [{"step": said(edge, Edge).step, "on_failure": edge.on_failure} for edge in said(step.after, list)],
        "key": step.key,
        "open": step.open,
    }
    return fields if step.parent is None else {**fields, "parent": step.parent}


def extent(first: int, count: int) -> tuple[int, int, int]:
    return first, first + count * STEP, STEP


def input_of(one: dict[str, Any]) -> r.Input:
    state = None if one["state"] == "unknown" else STATES[one["state"]]
    result, codec = (None, "bytes") if one["result"] is None else bytes_of(one["result"])
    return r.Input(one["id"], one["step"], state, result, codec, one["error"] or "")  # type: ignore[arg-type]


def workflow_of(answer: dict[str, Any]) -> r.WorkflowView:
    view: r.WorkflowView = from_wire(answer["workflow"], r.WorkflowView)
    return view
