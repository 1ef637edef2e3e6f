"""How much a push brings, held against the quotas of its tenant."""

from collections.abc import Sequence
from typing import Any

from stoker.model import commands as c
from stoker.server.auth.quotas import QuotaKeeper, Quotas, Usage


def check_brought(keeper: QuotaKeeper, tenant: str, quotas: Quotas, command: Any, usage: Usage) -> None:
    """Raises `QuotaExceeded` if the jobs of a push are too many or too large, or its queue is one too many."""
    payloads = payloads_of(command)
    size = sum(map(len, payloads))
    if type(command) is c.FillStep:  # its queue was named by the workflow, and looked at then
        keeper.check_push(tenant, quotas, None, len(payloads), size, usage)
        return
    steps = command.steps if type(command) is c.PushWorkflow else (command,)
    for queue in dict.fromkeys(step.queue for step in steps):
        keeper.check_push(tenant, quotas, queue, len(payloads), size, usage)
    for step in steps:
        own = payloads_of(step)
        usage.admitted(tenant, step.queue, len(own), sum(map(len, own)))


def payloads_of(command: Any) -> Sequence[bytes]:
    """What a push brings. A schedule is looked at when it is made or run by hand, as if it were one job."""
    if type(command) is c.Push:
        return (command.payload,)
    if type(command) is c.PutSchedule:
        return (command.schedule.payload,)
    if type(command) is c.RunSchedule:
        return (b"",)
    if type(command) is c.PushWorkflow:
        return [payload for step in command.steps for payload in step.payloads]
    payloads: Sequence[bytes] = command.payloads
    return payloads
