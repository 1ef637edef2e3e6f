"""Check a workflow on its own. Checks raise the errors of `model/errors.py` and name the step or the edge."""

from collections.abc import Sequence

from stoker.engine import checks
from stoker.model import commands as c
from stoker.model import errors
from stoker.model.limits import Limits
from stoker.model.options import DEFAULT_OPTIONS, DependencyPolicy
from stoker.model.workflows import Edge, Step

NOT_FOR_STEPS = ("unique_key", "custom_id", "debounce_id", "depends_on", "workflow")
"""Options that could turn a push into a duplicate, or that the step itself defines."""


def workflow(command: c.PushWorkflow, limits: Limits) -> None:
    """Check everything about a workflow that does not depend on the state."""
    steps = command.steps
    if not checks.is_list(steps) or not steps or any(type(step) is not Step for step in steps):
        raise errors.InvalidRequest("invalid steps: expected a list of at least one Step")
    checks.text(command.name, "name", limits.tag_chars_max)
    if command.request_key is not None:
        checks.key(command.request_key, "request_key", limits)
    _sizes(steps, limits)
    keys: dict[str, int] = {}
    for number, step in enumerate(steps):
        try:
            _step(step, limits)
            _edges(step, number, steps)
        except errors.Refused as error:
            raise type(error)(f"step {named(step, number)}: {error.message}") from None
        if step.key and keys.setdefault(step.key, number) != number:
            raise errors.InvalidRequest(f"steps {keys[step.key]} and {number} have the same key {step.key!r}")
    _circles(steps)


def named(step: Step, number: int) -> str:
    """How a message names a step."""
    return f"{number} ({step.key})" if type(step.key) is str and step.key else str(number)


def _sizes(steps: Sequence[Step], limits: Limits) -> None:
    if len(steps) > limits.workflow_steps_max:
        raise errors.LimitExceeded(
            f"{len(steps)} steps are over the limit of {limits.workflow_steps_max}: put jobs that are alike into one"
            " step, or split the workflow"
        )
    for number, step in enumerate(steps):
        if not checks.is_list(step.payloads) or not checks.is_list(step.after):
            raise errors.InvalidRequest(f"step {number}: invalid payloads or after: expected lists")
    jobs = sum(len(step.payloads) for step in steps)
    if jobs > limits.workflow_jobs_max:
        raise errors.LimitExceeded(
            f"{jobs} jobs are over the limit of {limits.workflow_jobs_max} for one workflow: split it, or let its jobs"
            " fill open steps"
        )
    edges = sum(len(step.after) for step in steps)
    if edges > limits.workflow_edges_max:
        raise errors.LimitExceeded(
            f"{edges} edges are over the limit of {limits.workflow_edges_max}: put jobs that are alike into one step"
        )


def _step(step: Step, limits: Limits) -> None:
    checks.name(step.queue)
    checks.options(step.options, limits)
    for field in NOT_FOR_STEPS:
        if getattr(step.options, field) != getattr(DEFAULT_OPTIONS, field):
            raise errors.InvalidRequest(
                f"invalid {field}: jobs of a workflow cannot have it; use `after` for the order of steps, and"
                " `request_key` against pushing twice"
            )
    checks.flag(step.open, "open")
    checks.text(step.key, "key", limits.tag_chars_max)
    if step.key.isdigit():
        raise errors.InvalidRequest(f"invalid key {step.key!r}: a number names a step without a key; use a word")
    if step.open and (step.payloads or not step.after):
        raise errors.InvalidRequest("invalid open step: it has no payloads, and comes after a step whose job fills it")
    if not step.open and not step.payloads:
        raise errors.InvalidRequest("no payloads: send one for each job, or make it an open step")
    payloads(step.payloads, limits)


def payloads(values: Sequence[bytes], limits: Limits) -> None:
    if values and not checks.payloads_are_fine(values, limits):
        for place, payload in enumerate(values):
            try:
                checks.payload(payload, limits)
            except errors.Refused as error:
                raise type(error)(f"job {place}: {error.message}") from None


def _edges(step: Step, number: int, steps: Sequence[Step]) -> None:
    seen: set[int] = set()
    for edge in step.after:
        if type(edge) is not Edge:
            raise errors.InvalidRequest(f"invalid edge {checks.short(edge)}: expected Edge(step)")
        checks.choice(edge.on_failure, "on_failure", DependencyPolicy)
        if type(edge.step) is not int or not 0 <= edge.step < len(steps):
            raise errors.UnknownDependency(
                f"edge to step {checks.short(edge.step)}: expected a step from 0 to {len(steps) - 1}"
            )
        if edge.step == number:
            raise errors.DependencyCycle("it comes after itself: remove that edge")
        if edge.step in seen:
            raise errors.InvalidRequest(f"edge to step {edge.step} appears twice: keep one")
        seen.add(edge.step)
    if step.parent is not None and (type(step.parent) is not int or not 0 <= step.parent < len(steps)):
        raise errors.UnknownDependency(
            f"parent {checks.short(step.parent)}: expected a step from 0 to {len(steps) - 1}"
        )


def _circles(steps: Sequence[Step]) -> None:
    """Refuse cycles. Steps that wait for no other are removed repeatedly; what is left is on a cycle or behind one."""
    waiting = [len(step.after) for step in steps]
    behind: list[list[int]] = [[] for _ in steps]
    for number, step in enumerate(steps):
        for edge in step.after:
            behind[edge.step].append(number)
    free = [number for number, count in enumerate(waiting) if not count]
    for done in free:  # grows while it is iterated
        for number in behind[done]:
            waiting[number] -= 1
            if not waiting[number]:
                free.append(number)
    if len(free) == len(steps):
        return
    at = next(number for number, count in enumerate(waiting) if count)
    walked: list[int] = []
    while at not in walked:  # backwards along the edges that are left, until a step comes again
        walked.append(at)
        at = next(edge.step for edge in steps[at].after if waiting[edge.step])
    circle = [*walked[walked.index(at) :], at][::-1]
    told = " -> ".join(named(steps[number], number) for number in circle)
    raise errors.DependencyCycle(f"steps wait for each other: {told}; nothing was pushed")
