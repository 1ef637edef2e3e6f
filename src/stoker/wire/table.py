"""The one table of commands: what each is called, what it needs, and what a client may do when an answer is lost.

Transports, OpenAPI, gRPC, the reference pages and the tests of permissions and tenants are made from it. A command of
the contract without a row fails the tests.
"""

from typing import Any, Literal

import msgspec

from stoker.model import commands as c
from stoker.wire.native import COMMANDS, name_of, reply_of

Permission = Literal["produce", "consume", "read", "admin"]
PERMISSIONS: tuple[Permission, ...] = ("produce", "consume", "read", "admin")


class Row(msgspec.Struct, frozen=True):
    """One command of the native dialect."""

    name: str
    command: type[c.Command[Any]]
    reply: Any
    permission: Permission
    again: Literal["always", "keyed", "never"]
    """Whether sending it twice does no harm: always, only with a key of its own, or never."""


def _row(kind: type[c.Command[Any]], permission: Permission, again: Literal["always", "keyed", "never"]) -> Row:
    return Row(name_of(kind), kind, reply_of(kind), permission, again)


_PRODUCE: dict[type[c.Command[Any]], Literal["always", "keyed", "never"]] = {
    c.Push: "never",
    c.PushBatch: "keyed",  # by request_key
    c.PushWorkflow: "keyed",  # by request_key
    c.Stage: "keyed",  # by part
    c.Publish: "always",  # its outcome is remembered
    c.Abort: "always",
    c.KvSet: "always",
    c.KvSetMany: "always",
    c.KvDelete: "always",
    c.KvExpire: "always",
    c.KvIncrement: "never",
    c.PutSchedule: "always",
    c.DeleteSchedule: "always",
    c.RunSchedule: "never",
}
_CONSUME: dict[type[c.Command[Any]], Literal["always", "keyed", "never"]] = {
    c.Pull: "keyed",  # by claim
    c.Ack: "never",  # the second would be told lost_lease
    c.Fail: "never",
    c.Release: "never",
    c.Extend: "always",
    c.AckClaim: "always",
    c.ReleaseClaim: "always",
    c.ExtendClaim: "always",
    c.SetProgress: "always",
    c.AppendLog: "never",
    c.AppendPartial: "never",
    c.FillStep: "always",  # the first one counts
    c.GetInputs: "always",
}
_ADMIN: dict[type[c.Command[Any]], Literal["always", "keyed", "never"]] = {
    c.Pause: "always",
    c.Resume: "always",
    c.SetRateLimit: "always",
    c.SetConcurrency: "always",
    c.SetQueuePolicy: "always",
    c.Cancel: "always",
    c.CancelWorkflow: "always",
    c.RetryWorkflow: "never",
    c.Promote: "never",
    c.ChangePriority: "always",
    c.MoveToDelayed: "never",
    c.UpdatePayload: "always",
    c.Discard: "never",
    c.Drain: "always",
    c.Clean: "never",
    c.Obliterate: "always",
    c.RetryDead: "never",
    c.PurgeDead: "always",
    c.PauseSchedule: "always",
    c.ResumeSchedule: "always",
}

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        *(_row(kind, "produce", again) for kind, again in _PRODUCE.items()),
        *(_row(kind, "consume", again) for kind, again in _CONSUME.items()),
        *(_row(kind, "read", "always") for kind in c.LOOKING if kind not in _CONSUME),
        *(_row(kind, "admin", again) for kind, again in _ADMIN.items()),
    )
}
BY_COMMAND: dict[type, Row] = {row.command: row for row in ROWS.values()}

MISSING = sorted(COMMANDS.keys() - ROWS.keys())
"""Commands of the contract that nobody may use before they stand above."""
