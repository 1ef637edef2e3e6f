"""Bulk operations: one action on every job that a filter finds, in the background."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from stoker.model.filters import JobFilter
from stoker.model.states import ENDED, LIVE, State

BulkAction = Literal["retry", "cancel", "delete", "promote", "priority"]
ACTIONS: tuple[BulkAction, ...] = ("retry", "cancel", "delete", "promote", "priority")
"""`retry` dead letters, `cancel` live jobs, `delete` jobs that have ended (dead letters too), `promote` delayed jobs,
give live jobs another `priority`.
"""
MAY_BE: dict[BulkAction, tuple[State, ...]] = {
    "retry": (State.FAILED,),
    "cancel": LIVE,
    "delete": ENDED,
    "promote": (State.DELAYED,),
    "priority": LIVE,
}
"""The states of the jobs that an action is about."""
BulkState = Literal["running", "done", "stopped"]


class BulkView(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk operation, and how far it is, over all shards."""

    key: str
    action: BulkAction
    filter: JobFilter
    priority: int | None = None
    rate: float | None = None
    state: BulkState = "running"
    started_at: int = 0
    ended_at: int = 0
    """When the last shard was done or stopped; 0 while it runs."""
    looked: int = 0
    """Jobs that it has looked at."""
    changed: int = 0
    """Jobs that it has acted on."""
    refused: int = 0
    """Jobs that matched and could not be changed, such as a dead letter whose unique key another job has taken."""


class Bulks(msgspec.Struct, frozen=True, gc=False):
    """The running operations of a tenant and the last ones that ended, newest first."""

    bulks: Sequence[BulkView]
