"""The table of flashQ's commands: what each is called, what it is sent, what it needs, and how it is carried out.

A row of one engine command has `command` and `answer`; one of several has `steps`; what only a server can do (who is
there, what it may, what it is told of) has neither and is of kind `server`. All of them, and the plans made of them,
may raise a StokerError at any point: then that is the outcome, and `answers.failure` the answer.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.wire.flashq import consuming, control, keyvalue, looking, producing, schedules, workflows
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import NOTHING, Answer, Plan, done
from stoker.wire.flashq.context import Context
from stoker.wire.flashq.decoding import Codec, decode_as
from stoker.wire.flashq.requests import AnyRequest
from stoker.wire.flashq.spelling import Unknown

Permission = Literal["produce", "consume", "read", "admin"]
Again = Literal["always", "keyed", "never"]
Kind = Literal["one", "plan", "server"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the dialect."""

    name: str
    request: type[AnyRequest]
    permission: Permission | None
    """None: anybody who is connected."""
    again: Again
    """Whether sending it twice does no harm: always, only with a key of its own, or never."""
    aliases: tuple[str, ...] = ()
    waits: bool = False
    """Whether it may take long to be answered; others behind it should not wait for it."""
    command: Callable[[Any, Context], c.Command[Any]] | None = None
    answer: Callable[[Any, Any, Context], Answer] | None = None
    steps: Callable[[Any, Context], Plan] | None = None

    @property
    def kind(self) -> Kind:
        if self.command is not None:
            return "one"
        return "plan" if self.steps is not None else "server"

    @property
    def summary(self) -> str:
        return (self.request.__doc__ or "").strip()

    def plan(self, request: AnyRequest, context: Context) -> Plan:
        """How the request is carried out, whatever kind of row this is but `server`."""
        if self.steps is not None:
            return (yield from self.steps(request, context))
        if self.command is None or self.answer is None:
            raise InvalidRequest(f"invalid command {self.name}: it belongs to a connection, which is not there")
        reply = yield self.command(request, context)
        return self.answer(request, reply, context)


def _ping(request: AnyRequest, context: Context) -> Plan:
    yield from NOTHING
    return done(pong=True)


def _table() -> list[Row]:
    accepted, settled, touched = consuming.accepted, consuming.settled, consuming.touched

    def one(
        name: str,
        request: Any,
        permission: Permission,
        again: Again,
        command: Any,
        answer: Any,
        *aliases: str,
        waits: bool = False,
    ) -> Row:
        return Row(
            name=name,
            request=request,
            permission=permission,
            again=again,
            command=command,
            answer=answer,
            aliases=aliases,
            waits=waits,
        )

    def plan(
        name: str,
        request: Any,
        permission: Permission | None,
        again: Again,
        steps: Any,
        *aliases: str,
        waits: bool = False,
    ) -> Row:
        return Row(
            name=name, request=request, permission=permission, again=again, steps=steps, aliases=aliases, waits=waits
        )

    def server(name: str, request: Any, permission: Permission | None, *aliases: str) -> Row:
        return Row(name=name, request=request, permission=permission, again="always", aliases=aliases)

    return [
        one("PUSH", q.Push, "produce", "keyed", producing.push, producing.pushed),
        plan("PUSHB", q.PushBatch, "produce", "keyed", producing.push_batch, "PUSHBATCH"),
        plan("FLOW", q.Flow, "produce", "keyed", producing.flow),
        plan("WORKFLOW", q.Workflow, "produce", "keyed", workflows.push),
        one("PULL", q.Pull, "consume", "keyed", consuming.pull, consuming.pulled, waits=True),
        one("PULLB", q.PullBatch, "consume", "keyed", consuming.pull, consuming.pulled_batch, "PULLBATCH", waits=True),
        one("ACK", q.Ack, "consume", "never", consuming.ack, settled),
        plan("ACKB", q.AckBatch, "consume", "never", consuming.ack_batch, "ACKBATCH"),
        one("FAIL", q.Fail, "consume", "never", consuming.fail, consuming.failed),
        plan("RELEASE", q.Release, "consume", "never", consuming.release),
        plan("HEARTBEAT", q.Heartbeat, "consume", "always", consuming.heartbeat, "EXTEND"),
        one("PROGRESS", q.Progress, "consume", "always", consuming.progress, accepted),
        one("LOG", q.Log, "consume", "never", consuming.log, accepted, "ADDLOG"),
        one("PARTIAL", q.Partial, "consume", "never", consuming.partial, accepted),
        plan("FILLSTEP", q.FillStep, "consume", "always", workflows.fill),
        plan("GETINPUTS", q.GetInputs, "consume", "always", workflows.get_inputs),
        plan("GETJOB", q.ById, "read", "always", looking.get_job),
        plan("GETSTATE", q.ById, "read", "always", looking.get_state),
        plan("GETRESULT", q.ById, "read", "always", looking.get_result),
        plan("GETJOBBYCUSTOMID", q.ByCustomId, "read", "always", looking.find_job),
        plan("GETJOBSBATCH", q.ByIds, "read", "always", looking.get_jobs_batch),
        plan("GETJOBS", q.GetJobs, "read", "always", looking.get_jobs),
        plan("GETJOBCOUNTS", q.ByQueue, "read", "always", looking.get_job_counts),
        plan("COUNT", q.ByQueue, "read", "always", looking.count),
        plan("ISPAUSED", q.ByQueue, "read", "always", looking.is_paused),
        plan("WAITJOB", q.Wait, "read", "always", looking.wait_job, "FINISHED", waits=True),
        plan("GETPROGRESS", q.ById, "read", "always", looking.get_progress),
        plan("GETLOGS", q.ById, "read", "always", looking.get_logs),
        plan("GETPARTIALS", q.ById, "read", "always", looking.get_partials),
        plan("GETCHILDREN", q.GetChildren, "read", "always", looking.get_children),
        plan("WHY", q.ById, "read", "always", looking.why),
        plan("STORY", q.ById, "read", "always", looking.story),
        plan("LISTQUEUES", q.Everything, "read", "always", looking.list_queues),
        plan("QUEUE", q.ByQueue, "read", "always", looking.queue),
        plan("PRIORITIES", q.ByQueue, "read", "always", looking.priorities),
        plan("STATS", q.Everything, "read", "always", looking.stats),
        plan("METRICS", q.Metrics, "read", "always", looking.metrics),
        plan("DLQ", q.DeadLetters, "read", "always", looking.dead_letters, "GETDLQ"),
        plan("DLQSTATS", q.ByQueue, "read", "always", looking.dead_stats),
        plan("CRONLIST", q.CronList, "read", "always", schedules.list_all, "LISTCRONS"),
        plan("CRONGET", q.CronGet, "read", "always", schedules.get, "GETCRON"),
        plan("WORKFLOWLIST", q.WorkflowList, "read", "always", workflows.list_all, "LISTWORKFLOWS"),
        plan("WORKFLOWGET", q.WorkflowGet, "read", "always", workflows.get, "GETWORKFLOW"),
        one("CANCEL", q.ById, "admin", "always", control.cancel, control.cancelled),
        plan("WORKFLOWCANCEL", q.WorkflowCancel, "admin", "always", workflows.cancel, "CANCELWORKFLOW"),
        plan("WORKFLOWRETRY", q.WorkflowRetry, "admin", "never", workflows.retry, "RETRYWORKFLOW"),
        one("PROMOTE", q.ById, "admin", "never", control.promote, accepted),
        one("DISCARD", q.ById, "admin", "never", control.discard, accepted),
        one("UPDATEJOB", q.Update, "admin", "always", control.update, accepted, "UPDATE"),
        one("CHANGEPRIORITY", q.ChangePriority, "admin", "always", control.change_priority, accepted),
        one("MOVETODELAYED", q.MoveToDelayed, "admin", "never", control.move_to_delayed, accepted),
        one("PAUSE", q.ByQueue, "admin", "always", control.pause, accepted),
        one("RESUME", q.ByQueue, "admin", "always", control.resume, accepted),
        one("RATELIMIT", q.SetRateLimit, "admin", "always", control.set_rate_limit, accepted, "SETRATELIMIT"),
        one("RATELIMITCLEAR", q.ByQueue, "admin", "always", control.clear_rate_limit, accepted, "CLEARRATELIMIT"),
        one("SETCONCURRENCY", q.Limit, "admin", "always", control.set_concurrency, accepted, "CONCURRENCY"),
        one("CLEARCONCURRENCY", q.ByQueue, "admin", "always", control.clear_concurrency, accepted, "CONCURRENCYCLEAR"),
        plan("SETPOLICY", q.SetPolicy, "admin", "always", control.set_policy),
        one("DRAIN", q.Drain, "admin", "always", control.drain, touched),
        one("OBLITERATE", q.Obliterate, "admin", "always", control.obliterate, touched),
        plan("CLEAN", q.Clean, "admin", "never", control.clean),
        plan("RETRYDLQ", q.RetryDead, "admin", "never", control.retry_dead),
        one("PURGEDLQ", q.PurgeDead, "admin", "always", control.purge_dead, touched),
        plan("CRON", q.Cron, "produce", "always", schedules.put, "ADDCRON"),
        plan("CRONDELETE", q.CronDelete, "produce", "always", schedules.delete, "DELETECRON"),
        plan("CRONRUN", q.CronRun, "produce", "never", schedules.run, "RUNCRON"),
        plan("CRONPAUSE", q.CronPause, "admin", "always", schedules.pause, "PAUSECRON"),
        plan("CRONRESUME", q.CronResume, "admin", "always", schedules.resume, "RESUMECRON"),
        one("KVSET", q.KvSet, "produce", "always", keyvalue.set_, accepted),
        plan("KVMSET", q.KvSetMany, "produce", "always", keyvalue.set_many),
        one("KVGET", q.ByKey, "read", "always", keyvalue.get, keyvalue.got),
        plan("KVMGET", q.ByKeys, "read", "always", keyvalue.get_many),
        plan("KVDEL", q.KeyOrKeys, "produce", "always", keyvalue.delete),
        plan("KVEXISTS", q.KeyOrKeys, "read", "always", keyvalue.exists),
        one("KVEXPIRE", q.KvExpire, "produce", "always", keyvalue.expire, keyvalue.expires),
        one("KVTTL", q.ByKey, "read", "always", keyvalue.ttl, keyvalue.left),
        plan("KVKEYS", q.KvKeys, "read", "always", keyvalue.keys),
        one("KVINCR", q.KvIncrement, "produce", "never", keyvalue.increment, keyvalue.incremented),
        plan("PING", q.Everything, None, "always", _ping),
        server("AUTH", q.Auth, None),
        server("HELLO", q.Hello, None),
        server("SUBSCRIBE", q.Subscribe, "read"),
        server("UNSUBSCRIBE", q.Unsubscribe, "read"),
    ]


ROWS: dict[str, Row] = {row.name: row for row in _table()}
"""By their names."""
BY_NAME: dict[str, Row] = {name: row for row in ROWS.values() for name in (row.name, *row.aliases)}
"""By their names and aliases."""


def row_of(cmd: str) -> Row:
    row = BY_NAME.get(cmd)
    if row is None:
        raise InvalidRequest(f"invalid command {cmd[:40]!a}: there is no such command")
    return row


def decode(
    frame: bytes, codec: Codec, cmd: str, limits: Limits = DEFAULT_LIMITS, unknown: Unknown | None = None
) -> AnyRequest:
    """The request of command `cmd` that the frame holds. Raises InvalidRequest or LimitExceeded, and nothing else."""
    return decode_as(row_of(cmd).request, frame, codec, limits, unknown)
