"""Workflows, and one of them as a graph."""

from typing import get_args

from markupsafe import Markup

from stoker.app.graphs.boxes import boxes_of
from stoker.app.graphs.svg import as_svg
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.replies import StepView
from stoker.model.workflows import WorkflowState
from stoker.server.dashboard.facts import link_to
from stoker.server.dashboard.page import Answer, DashboardPage

PAGE_WORKFLOWS = 50
STATES = get_args(WorkflowState)


async def workflows(page: DashboardPage) -> Answer:
    state, name = page.query.get("state") or None, page.query.get("name") or None
    if state is not None and state not in STATES:
        raise InvalidRequest(f"invalid state {state[:40]!r}: expected one of {', '.join(STATES)}")
    found = await page.ask(c.ListWorkflows(state, name, page.integer("after"), PAGE_WORKFLOWS))  # type: ignore[arg-type]
    return page.html(
        "workflows.html",
        workflows=found.workflows,
        next_after=found.next_after,
        state=state,
        name=name,
        workflow_states=STATES,
    )


async def workflow(page: DashboardPage) -> Answer:
    number = page.job_id()
    view = await page.ask(c.GetWorkflow(number))

    def link(step: StepView) -> str:
        if step.count == 1:
            return f"/ui/jobs/{step.first}"
        return link_to("/ui/jobs", workflow=number, queue=step.queue)

    graph = as_svg(boxes_of(view, link), view.name or f"workflow {view.id}", styled=False)
    return page.html("workflow.html", view=view, graph=Markup(graph), link=link)
