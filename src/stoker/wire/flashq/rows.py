"""The table of flashQ's commands: which command of the contract each word stands for, and what it calls its fields.

A word that is a command under other names is a row of data: its request, its checks and its way to the command derive
from the command (`mapping.py`). Other words have a request type of their own, a function that builds the command, or
steps of several commands. What only a server can do (greet, check permissions, send events) is of kind
`server`. Permissions, what to do after a lost answer and whether a word may wait derive from the table of commands. All
functions here may raise a StokerError: then that is the outcome, and `answers.failure` the answer.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Raw

from stoker.model import commands as c
from stoker.model.command_table import TABLE, CommandType, Permission, Resend
from stoker.model.errors import InvalidRequest
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Codec as Stored
from stoker.wire.flashq import consuming, control, keyvalue, looking, mapping, producing, schedules, workflows
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import NOTHING, Answer, Picks, Plan, accepted, done, touched
from stoker.wire.flashq.consuming import to_wait
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.decoding import Codec, decode_as
from stoker.wire.flashq.jobs import state_of
from stoker.wire.flashq.mapping import Field, Fixed, Said, also
from stoker.wire.flashq.requests import NOT_SAID, AnyRequest
from stoker.wire.flashq.spelling import UnknownField

Kind = Literal["one", "plan", "server"]
Answering = Callable[[Any, Any, RequestContext], Answer]
Steps = Callable[[Any, RequestContext], Plan]


SAME: Said = {}
"""The fields are called as the command calls them."""


class DialectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the dialect."""

    name: str
    summary: str
    request: type[AnyRequest]
    command: CommandType | None = None
    """What it stands for; of several commands, the one whose permission it needs."""
    fields: dict[str, Field] = {}
    """Of a request that derives from the command."""
    own_permission: Permission | None = None
    """For a word that has no command, or that needs another permission than its command."""
    aliases: tuple[str, ...] = ()
    build: mapping.Build | None = None
    answer: Answering | None = None
    steps: Steps | None = None

    @property
    def kind(self) -> Kind:
        if self.steps is not None:
            return "plan"
        return "one" if self.build is not None else "server"

    @property
    def permission(self) -> Permission | None:
        """None: every client that is connected."""
        return self.own_permission or (TABLE[self.command].permission if self.command is not None else None)

    @property
    def again(self) -> Resend:
        """Whether sending it twice does no harm: always, only with a key of its own, or never."""
        return TABLE[self.command].resend if self.command is not None else "always"

    @property
    def waits(self) -> bool:
        """Whether it may take long to be answered; others behind it should not wait for it."""
        return self.command is not None and "wait_ms" in self.command.__struct_fields__

    def plan(self, request: AnyRequest, context: RequestContext) -> Plan:
        """How the request is carried out, for every kind of row except `server`."""
        if self.steps is not None:
            return (yield from self.steps(request, context))
        if self.build is None or self.answer is None:
            raise InvalidRequest(f"invalid command {self.name}: it belongs to a connection, which is not there")
        reply = yield self.build(request, context)
        return self.answer(request, reply, context)


def word(
    name: str,
    command: CommandType | None,
    answer: Answering | None = None,
    *aliases: str,
    fields: Said = SAME,
    request: type[AnyRequest] | None = None,
    summary: str = "",
    permission: Permission | None = None,
    build: mapping.Build | None = None,
    steps: Steps | None = None,
) -> DialectRow:
    """One word. Without a `request` of its own it takes the fields of the command; `fields` are those that differ."""
    whole = {} if request is not None else mapping.fields_of(command, fields)
    if request is None and build is None and steps is None:
        build = mapping.builder(command, whole, fields)
    return DialectRow(
        name=name,
        summary=summary or mapping.summary_of(request or command, whole),
        request=request or mapping.request_type(name, whole),
        command=command,
        fields=whole,
        own_permission=permission,
        aliases=aliases,
        build=build,
        answer=answer,
        steps=steps,
    )


def of_schedule(name: str, command: CommandType, answer: Answering, *aliases: str) -> DialectRow:
    """About one schedule; its queue has to be said only where several have one of that name."""
    steps = schedules.of_one(command, answer)
    return word(name, command, answer, *aliases, steps=steps, fields={"queue": Field(type=str | None, default=None)})


def _ping(request: AnyRequest, context: RequestContext) -> Plan:
    yield from NOTHING
    return done(pong=True)


GONE = Fixed()
"""flashQ's word has no such field; the command's default holds."""
ONE: Said = {"id": Field("ids", int), "token": Field("tokens", int | None, None)}
ONE_OR_MANY: Said = {
    "id": also(int | None, None),
    "ids": Field(type=list[int], default=[]),
    "token": also(int | None, None),
}
PULL: Said = {"queue": Field("queues", str | list[str]), "timeout": Field("wait_ms", default=60_000)}
OF_QUEUE: Said = {"queue": Field(type=str)}
OF_ALL: Said = {"queue": GONE}
KEY_OR_KEYS: Said = {"key": also(str | None, None), "keys": Field(type=list[str], default=[])}
TTL: Said = {"ttl": "ttl_ms"}
PAGE = Field(convert=looking.to_page)

WORDS: tuple[DialectRow, ...] = (
    # --- producing
    word("PUSH", c.Push, producing.pushed, request=q.PushFields, build=producing.push),
    word("PUSHB", c.PushBatch, None, "PUSHBATCH", request=q.PushBatchFields, steps=producing.push_batch),
    word("FLOW", c.PushWorkflow, request=q.FlowFields, steps=producing.flow),
    word("WORKFLOW", c.PushWorkflow, request=q.WorkflowFields, steps=workflows.push),
    # --- consuming
    word(
        "PULL",
        c.Pull,
        consuming.pulled,
        fields=PULL | {"count": GONE},
        build=consuming.pull,
        summary="Take one job; wait for it up to `timeout`.",
    ),
    word("PULLB", c.Pull, consuming.pulled_batch, "PULLBATCH", fields=PULL, build=consuming.pull_batch),
    word(
        "ACK",
        c.Ack,
        consuming.settled,
        fields=ONE | {"result": Field("results", Raw, NOT_SAID)},
        build=consuming.ack,
        summary="The job is done.",
    ),
    word(
        "ACKB",
        c.Ack,
        None,
        "ACKBATCH",
        fields={
            "results": Field(type=list[Raw] | None, default=None),
            "codec": Field(meaning="How all of them are to be stored."),
        },
        steps=consuming.ack_batch,
    ),
    word(
        "FAIL",
        c.Fail,
        consuming.failed,
        fields={
            **ONE,
            "stack": Field(type=str | list[str], default="", meaning="As one text, or line by line."),
            "delay": "delay_ms",
            "unrecoverable": also(bool, False, "The same as `retry` false."),
        },
        build=consuming.fail,
    ),
    word(
        "RELEASE",
        c.Release,
        consuming.counted_or_refused,
        fields=ONE_OR_MANY | {"delay": "delay_ms", "note": GONE},
        build=consuming.release,
    ),
    word(
        "HEARTBEAT",
        c.Extend,
        consuming.extended,
        "EXTEND",
        fields=ONE_OR_MANY | {"renew": GONE},
        build=consuming.heartbeat,
    ),
    word(
        "PROGRESS",
        c.SetProgress,
        accepted,
        fields={"progress": Field("percent", int | float, convert=consuming.percent)},
    ),
    word("LOG", c.AppendLog, accepted, "ADDLOG"),
    word("PARTIAL", c.AppendPartial, accepted),
    word(
        "FILLSTEP",
        c.FillStep,
        touched,
        fields={"jobs": Field("payloads", list[q.PlainItem]), "codec": also(Stored | None, None, mapping.STORED)},
        build=workflows.fill,
    ),
    word("GETINPUTS", c.GetInputs, workflows.inputs, fields={"limit": Field(convert=workflows.to_batch)}),
    # --- looking
    word("GETJOB", c.GetJob, steps=looking.get_job),
    word("GETSTATE", c.GetJob, steps=looking.get_state, summary="The state of a job."),
    word("GETRESULT", c.GetJob, looking.result, summary="What a job has returned."),
    word("GETPROGRESS", c.GetJob, looking.progress, summary="How far a job is."),
    word("GETJOBBYCUSTOMID", c.FindJob, fields={"job_id": "custom_id"}, steps=looking.find_job),
    word(
        "GETJOBSBATCH",
        c.GetJob,
        fields={"id": GONE, "ids": also(list[int])},
        steps=looking.get_jobs_batch,
        summary="Look at some jobs.",
    ),
    word(
        "GETJOBS",
        c.Browse,
        fields={
            "state": Field(type=str | None, default=None),
            "after": Field(meaning="The last id of the page before: cheaper than an offset."),
            "offset": also(int, 0),
            "ascending": GONE,
        },
        steps=looking.get_jobs,
        summary="Look at jobs, newest first.",
    ),
    word("COUNTJOBS", c.CountJobs, fields={"state": Field(type=str | None, default=None)}, steps=looking.count_jobs),
    word("WAITJOB", c.WaitJob, looking.waited, "FINISHED", fields={"timeout": Field("wait_ms", convert=to_wait)}),
    word("GETLOGS", c.GetLogs, looking.logs),
    word("GETPARTIALS", c.GetPartials, looking.partials),
    word(
        "GETCHILDREN",
        c.GetInputs,
        fields={"parent_id": "id", "after": GONE, "limit": GONE},
        permission="read",
        steps=looking.get_children,
        summary="The children of a flow's parent, and how many have completed.",
    ),
    word("WHY", c.Why, looking.why),
    word("STORY", c.GetStory, looking.story),
    word(
        "GETJOBCOUNTS",
        c.GetStats,
        looking.job_counts,
        fields=OF_QUEUE,
        summary="How many jobs of a queue are in which state.",
    ),
    word(
        "COUNT",
        c.GetStats,
        looking.count,
        fields=OF_QUEUE,
        summary="How many jobs of a queue wait, for a worker or for their time.",
    ),
    word("ISPAUSED", c.GetQueue, steps=looking.is_paused, summary="Whether a queue is paused."),
    word("LISTQUEUES", c.ListQueues, steps=looking.list_queues, summary="All queues of the tenant, with their counts."),
    word("QUEUE", c.GetQueue, steps=looking.queue, summary="The policy of a queue, its counts and its totals."),
    word("PRIORITIES", c.GetPriorities, Picks("waiting")),
    word("HISTORY", c.GetHistory, Picks("step_ms", "points")),
    word("TIMINGS", c.GetTimings, Picks("oldest_waiting_at", "wait", "run")),
    word("STATS", c.GetStats, fields=OF_ALL, steps=looking.stats, summary="Counts of all queues of the tenant."),
    word(
        "METRICS",
        c.GetStats,
        fields=OF_ALL | {"history": also(bool, False, "Of no effect; `GET /metrics/history` has the last minutes.")},
        steps=looking.metrics,
        summary="Totals, rates and queues.",
    ),
    word(
        "DLQ",
        c.ListDead,
        looking.dead_letters,
        "GETDLQ",
        fields={
            "count": Field("limit", convert=looking.to_dead_page),
            "entered_from": GONE,
            "entered_before": GONE,
        },
    ),
    word("DLQGROUPS", c.GetDeadGroups, Picks("groups", "ungrouped", "others")),
    word("DLQSTATS", c.GetDeadStats, Picks("total", "by_reason", "oldest_at")),
    # --- bulk operations
    word("BULKSTART", c.StartBulk, looking.bulk),
    word("BULKGET", c.GetBulk, looking.bulk),
    word("BULKSTOP", c.StopBulk, looking.bulk),
    word("BULKLIST", c.ListBulks, Picks("bulks")),
    # --- control
    word("CANCEL", c.Cancel, control.cancelled),
    word("PROMOTE", c.Promote, accepted),
    word("DISCARD", c.Discard, accepted),
    word(
        "UPDATEJOB",
        c.UpdatePayload,
        accepted,
        "UPDATE",
        fields={"data": "payload"},
        summary="Give a live job or a dead letter another payload; a running delivery keeps what it got.",
    ),
    word("CHANGEPRIORITY", c.ChangePriority, accepted),
    word("MOVETODELAYED", c.MoveToDelayed, accepted, fields={"delay": "delay_ms"}),
    word("PAUSE", c.Pause, accepted),
    word("RESUME", c.Resume, accepted),
    word(
        "RATELIMIT",
        c.SetRateLimit,
        accepted,
        "SETRATELIMIT",
        fields={"limit": Field(type=int), "per_ms": also(int, 1_000), "burst": also(int, 0)},
        build=control.set_rate_limit,
        summary="Set how many jobs of a queue may start in a second, or in `per_ms`; 0 lifts the limit.",
    ),
    word(
        "RATELIMITCLEAR",
        c.SetRateLimit,
        accepted,
        "CLEARRATELIMIT",
        fields={"limit": Fixed(None)},
        summary="Lift the rate limit of a queue.",
    ),
    word("SETCONCURRENCY", c.SetConcurrency, accepted, "CONCURRENCY"),
    word(
        "CLEARCONCURRENCY",
        c.SetConcurrency,
        accepted,
        "CONCURRENCYCLEAR",
        fields={"limit": Fixed(0)},
        summary="Let any number of jobs of a queue run at once.",
    ),
    word(
        "SETPOLICY",
        c.SetQueuePolicy,
        fields={
            "dead_letters": Field(type=control.DeadLetterPolicy | None, default=None),
            "rate_limit": also(control.RateLimit | None, None),
            "concurrency": also(int | None, None),
        },
        steps=control.set_policy,
        summary="Change the policy of a queue; what is left out stays.",
    ),
    word("DRAIN", c.Drain, touched),
    word(
        "OBLITERATE",
        c.Obliterate,
        touched,
        fields={"force": Field(default=True)},
        summary="Remove a queue with everything in it; `force` false refuses while jobs are running.",
    ),
    word(
        "CLEAN",
        c.Clean,
        control.cleaned,
        fields={
            "grace": "age_ms",
            "state": Field(type=str, default="completed", convert=lambda name, context: state_of(name)),
            "limit": Field(default=0, convert=control.to_clean),
        },
        summary="Remove jobs in one state older than `grace` milliseconds; `limit` 0 = as many as one call may.",
    ),
    word(
        "RETRYDLQ",
        c.RetryDead,
        control.retried,
        fields={"id": also(int | None, None)},
        build=control.retry_dead,
    ),
    word("PURGEDLQ", c.PurgeDead, touched),
    # --- schedules and workflows
    word("CRON", c.PutSchedule, None, "ADDCRON", request=q.Cron, steps=schedules.put),
    of_schedule("CRONGET", c.GetSchedule, schedules.looked_at, "GETCRON"),
    of_schedule("CRONDELETE", c.DeleteSchedule, schedules.deleted, "DELETECRON"),
    of_schedule("CRONRUN", c.RunSchedule, Picks("id", "created", "level"), "RUNCRON"),
    of_schedule("CRONPAUSE", c.PauseSchedule, schedules.changed, "PAUSECRON"),
    of_schedule("CRONRESUME", c.ResumeSchedule, schedules.changed, "RESUMECRON"),
    word(
        "CRONLIST",
        c.ListSchedules,
        schedules.listed,
        "LISTCRONS",
        fields={"limit": Field(default=1_000, convert=looking.to_page)},
    ),
    word("WORKFLOWLIST", c.ListWorkflows, Picks("workflows", "next_after"), "LISTWORKFLOWS", fields={"limit": PAGE}),
    word("WORKFLOWGET", c.GetWorkflow, workflows.looked_at, "GETWORKFLOW"),
    word("WORKFLOWCANCEL", c.CancelWorkflow, workflows.looked_at, "CANCELWORKFLOW"),
    word("WORKFLOWRETRY", c.RetryWorkflow, workflows.looked_at, "RETRYWORKFLOW"),
    # --- keys and values
    word("KVSET", c.KvSet, accepted, fields=TTL),
    word("KVMSET", c.KvSetMany, fields={"entries": Field(type=list[keyvalue.Entry])}, steps=keyvalue.set_many),
    word("KVGET", c.KvGet, keyvalue.got),
    word("KVMGET", c.KvGetMany, steps=keyvalue.get_many),
    word("KVDEL", c.KvDelete, keyvalue.deleted, fields=KEY_OR_KEYS, build=keyvalue.delete),
    word("KVEXISTS", c.KvExists, keyvalue.found, fields=KEY_OR_KEYS, build=keyvalue.exists),
    word("KVEXPIRE", c.KvExpire, Picks("exists", "level"), fields=TTL),
    word("KVTTL", c.KvTtl, keyvalue.left, summary="How long an entry stays: -1 = for good, -2 = it is not there."),
    word("KVKEYS", c.KvKeys, Picks("keys", "next_after")),
    word("KVINCR", c.KvIncrement, Picks("value", "level")),
    # --- the connection
    word("PING", None, steps=_ping, summary="Whether the server is there."),
    word("AUTH", None, request=q.Auth),
    word("HELLO", None, request=q.Hello),
    word("SUBSCRIBE", None, request=q.Subscribe, permission="read"),
    word("UNSUBSCRIBE", None, request=q.Unsubscribe, permission="read"),
)


ROWS: dict[str, DialectRow] = {row.name: row for row in WORDS}
"""By their names."""
BY_NAME: dict[str, DialectRow] = {name: row for row in ROWS.values() for name in (row.name, *row.aliases)}
"""By their names and aliases."""


def row_of(cmd: str) -> DialectRow:
    row = BY_NAME.get(cmd)
    if row is None:
        raise InvalidRequest(f"invalid command {cmd[:40]!a}: there is no such command")
    return row


def decode(
    frame: bytes, codec: Codec, cmd: str, limits: Limits = DEFAULT_LIMITS, unknown: UnknownField | None = None
) -> AnyRequest:
    """The request of command `cmd` that the frame holds. Raises InvalidRequest or LimitExceeded, and nothing else."""
    return decode_as(row_of(cmd).request, frame, codec, limits, unknown)
