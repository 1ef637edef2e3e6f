"""What every layer must know about a command: one row each, and the sets that follow from the rows.

Permissions, routing, quotas, checks for room, tracing and what a client does when an answer is lost derive from this
table. A command without a row fails the tests, and so does a module that keeps a set of commands of its own.
"""

from typing import Any, Literal

import msgspec

from stoker.model import commands as c

Permission = Literal["produce", "consume", "read", "admin"]
PERMISSIONS: tuple[Permission, ...] = ("produce", "consume", "read", "admin")

Kind = Literal["reads", "makes", "takes", "settles", "marks", "controls"]
"""What a command does: reads, brings new data, takes jobs, ends deliveries, notes something about running jobs, or
changes what is there.
"""

Home = Literal["queue", "queues", "job", "jobs", "claim", "transaction", "workflow", "entries", "tenant", "shard"]
"""What decides which shard runs a command. `queue`, `queues`, `job` and `jobs` are named in its fields. `tenant`: all
queues of the tenant, unless the command names one. `entries`: the shard that holds all key-value entries of the tenant.
"""

Resend = Literal["always", "keyed", "never"]
"""Whether a client may send the command twice: always, only with one of the row's keys, or never."""

Room = Literal["", "log", "data"]
"""What a command needs room for: nothing to speak of, a longer log, or new data."""

CommandType = type[c.Command[Any]]


class CommandRow(msgspec.Struct, frozen=True):
    """What the layers must know about one command."""

    permission: Permission
    kind: Kind
    home: Home
    resend: Resend = "always"
    keys: tuple[str, ...] = ()
    """Fields that identify the command. If one of them is set, the queue recognises a second sending."""
    room: Room = ""
    """What it needs room for. A command that `makes` something always brings data, so its row leaves this empty."""
    takes_level: bool = False
    """Whether the command has a `durability` field of its own."""
    is_hot: bool = False
    """Whether its decider checks every field itself. A check against the annotations would then cost as much as the
    work.
    """


TABLE: dict[CommandType, CommandRow] = {
    c.Push: CommandRow("produce", "makes", "queue", "keyed", ("sending",), takes_level=True, is_hot=True),
    c.PushBatch: CommandRow(
        "produce", "makes", "queue", "keyed", ("request_key", "sending"), takes_level=True, is_hot=True
    ),
    c.PushWorkflow: CommandRow("produce", "makes", "queues", "keyed", ("request_key",), takes_level=True),
    c.Stage: CommandRow("produce", "makes", "transaction", "keyed", ("part",)),
    c.Publish: CommandRow(
        "produce", "controls", "transaction", room="log", takes_level=True
    ),  # the outcome is remembered
    c.Abort: CommandRow("produce", "controls", "transaction"),
    c.KvSet: CommandRow("produce", "makes", "entries"),
    c.KvSetMany: CommandRow("produce", "makes", "entries"),
    c.KvDelete: CommandRow("produce", "controls", "entries"),
    c.KvExpire: CommandRow("produce", "controls", "entries"),
    c.KvIncrement: CommandRow("produce", "makes", "entries", "never"),
    c.PutSchedule: CommandRow("produce", "makes", "queue"),
    c.DeleteSchedule: CommandRow("produce", "controls", "queue"),
    c.RunSchedule: CommandRow("produce", "makes", "queue", "never"),
    c.Pull: CommandRow("consume", "takes", "queues", "keyed", ("claim",), is_hot=True),
    c.Ack: CommandRow("consume", "settles", "jobs", "never", is_hot=True),  # a second ack gets lost_lease
    c.Fail: CommandRow("consume", "settles", "jobs", "never", is_hot=True),
    c.Release: CommandRow("consume", "settles", "jobs", "never", is_hot=True),
    c.Extend: CommandRow("consume", "marks", "jobs", is_hot=True),
    c.AckClaim: CommandRow("consume", "settles", "claim"),
    c.ReleaseClaim: CommandRow("consume", "settles", "claim"),
    c.ExtendClaim: CommandRow("consume", "marks", "claim"),
    c.SetProgress: CommandRow("consume", "marks", "job", room="log"),
    c.AppendLog: CommandRow("consume", "marks", "job", "never", room="data"),
    c.AppendPartial: CommandRow("consume", "marks", "job", "never", room="data"),
    c.FillStep: CommandRow("consume", "makes", "job"),  # only the first filling counts
    c.GetInputs: CommandRow("consume", "reads", "workflow"),
    c.GetJob: CommandRow("read", "reads", "job"),
    c.FindJob: CommandRow("read", "reads", "tenant"),
    c.GetLogs: CommandRow("read", "reads", "job"),
    c.GetPartials: CommandRow("read", "reads", "job"),
    c.WaitJob: CommandRow("read", "reads", "job"),
    c.Browse: CommandRow("read", "reads", "tenant"),
    c.CountJobs: CommandRow("read", "reads", "tenant"),
    c.GetWorkflow: CommandRow("read", "reads", "workflow"),
    c.ListWorkflows: CommandRow("read", "reads", "tenant"),
    c.Why: CommandRow("read", "reads", "job"),
    c.ListQueues: CommandRow("read", "reads", "tenant"),
    c.GetQueue: CommandRow("read", "reads", "queue"),
    c.GetQueues: CommandRow("read", "reads", "tenant"),
    c.GetStats: CommandRow("read", "reads", "tenant"),
    c.GetPriorities: CommandRow("read", "reads", "queue"),
    c.GetTimings: CommandRow("read", "reads", "tenant"),
    c.GetHistory: CommandRow("read", "reads", "tenant"),
    c.GetTrends: CommandRow("read", "reads", "tenant"),
    c.GetStory: CommandRow("read", "reads", "job"),
    c.ReadEvents: CommandRow("read", "reads", "shard"),
    c.ReadRecords: CommandRow("read", "reads", "shard"),
    c.ListDead: CommandRow("read", "reads", "queue"),
    c.GetDeadStats: CommandRow("read", "reads", "queue"),
    c.GetDeadGroups: CommandRow("read", "reads", "tenant"),
    c.KvGet: CommandRow("read", "reads", "entries"),
    c.KvGetMany: CommandRow("read", "reads", "entries"),
    c.KvExists: CommandRow("read", "reads", "entries"),
    c.KvTtl: CommandRow("read", "reads", "entries"),
    c.KvKeys: CommandRow("read", "reads", "entries"),
    c.GetSchedule: CommandRow("read", "reads", "queue"),
    c.ListSchedules: CommandRow("read", "reads", "tenant"),
    c.Pause: CommandRow("admin", "controls", "queue"),
    c.Resume: CommandRow("admin", "controls", "queue"),
    c.SetRateLimit: CommandRow("admin", "controls", "queue"),
    c.SetConcurrency: CommandRow("admin", "controls", "queue"),
    c.SetQueuePolicy: CommandRow("admin", "controls", "queue"),
    c.Cancel: CommandRow("admin", "controls", "job"),
    c.CancelWorkflow: CommandRow("admin", "controls", "workflow"),
    c.RetryWorkflow: CommandRow("admin", "controls", "workflow", "never"),
    c.Promote: CommandRow("admin", "controls", "job", "never"),
    c.ChangePriority: CommandRow("admin", "controls", "job"),
    c.MoveToDelayed: CommandRow("admin", "controls", "job", "never"),
    c.UpdatePayload: CommandRow("admin", "controls", "job", room="log"),
    c.Discard: CommandRow("admin", "controls", "job", "never"),
    c.DeleteJob: CommandRow("admin", "controls", "job", "never"),
    c.Drain: CommandRow("admin", "controls", "queue"),
    c.Clean: CommandRow("admin", "controls", "queue", "never"),
    c.Obliterate: CommandRow("admin", "controls", "queue"),
    c.RetryDead: CommandRow("admin", "controls", "queue", "never"),
    c.PurgeDead: CommandRow("admin", "controls", "queue"),
    c.StartBulk: CommandRow("admin", "controls", "tenant", room="log"),
    c.StopBulk: CommandRow("admin", "controls", "tenant"),
    c.GetBulk: CommandRow("read", "reads", "tenant"),
    c.ListBulks: CommandRow("read", "reads", "tenant"),
    c.PauseSchedule: CommandRow("admin", "controls", "queue"),
    c.ResumeSchedule: CommandRow("admin", "controls", "queue"),
}

Commands = frozenset[CommandType]


def of_kind(*kinds: Kind) -> Commands:
    return frozenset(command for command, row in TABLE.items() if row.kind in kinds)


def at_home(home: Home) -> Commands:
    """The commands that this kind of home routes."""
    return frozenset(command for command, row in TABLE.items() if row.home == home)


def with_field(name: str) -> Commands:
    return frozenset(command for command in TABLE if name in command.__struct_fields__)


READS = of_kind("reads")
"""They change nothing. When a reply is lost, only the reply is lost."""
MAKES = of_kind("makes")
"""They create jobs or entries."""
BRINGS_DATA = MAKES | frozenset(command for command, row in TABLE.items() if row.room == "data")
"""They bring data, and are refused when memory or the disk is full."""
GROWS_LOG = frozenset(command for command, row in TABLE.items() if row.room == "log")
"""They only make the log longer, and are refused when the disk is full."""
MAKES_JOBS = MAKES - at_home("entries")
"""They create jobs, now or later. Quotas count them."""
TAKES = of_kind("takes")
"""They give out jobs. Jobs that no client receives have to go back."""
SETTLES = of_kind("settles") & at_home("jobs")
"""They end deliveries that are named by ids and tokens."""
SEARCHES = with_field("fingerprint")
"""They look at many jobs, and into their payloads."""
NUMBERED = with_field("sending")
"""Pushes that a client numbers, so that the queue recognises a second sending."""
WITH_OPTIONS = with_field("options")
"""They carry options of jobs: one for all, or one `each`."""
WITH_PAYLOADS = MAKES & with_field("payloads")
"""They carry several payloads."""
KEYED_PUSHES = frozenset(command for command, row in TABLE.items() if row.kind == "makes" and row.resend == "keyed")
"""Pushes that a client can send again safely, because they carry a key or a number."""
FENCED = with_field("token") | with_field("tokens")
"""They carry the token of the delivery that they mean."""
TAKES_LEVEL = frozenset(command for command, row in TABLE.items() if row.takes_level)
HOT = frozenset(command for command, row in TABLE.items() if row.is_hot)
