"""One fixed example of each record, and of options with everything and with nothing set.

Nothing here is drawn, computed or shortened: what these values become as bytes is what lies on disks.
"""

from typing import Any

from stoker.model import commands as c
from stoker.model.filters import JobFilter
from stoker.model.limits import Limits
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options, RateLimit, Settings
from stoker.model.schedules import Schedule
from stoker.model.states import State
from stoker.records import records as rec

NOTHING_SET = Options()

EVERYTHING_SET = Options(
    priority=-7,
    delay_ms=1_500,
    run_at=1_700_000_500_000,
    ttl_ms=60_000,
    timeout_ms=5_000,
    lease_ms=20_000,
    max_attempts=5,
    max_crashes=2,
    backoff=Backoff("linear", 250, 9_000, "full"),
    unique_key="order-7",
    unique_ttl_ms=3_000,
    on_conflict="replace",
    custom_id="mine",
    custom_id_ttl_ms=4_000,
    debounce_id="burst",
    debounce_ms=700,
    depends_on=(Dependency(64), Dependency(128, "cancel"), Dependency(0, "continue", 3)),
    group_id="customer-3",
    lifo=True,
    tags=("red", "grün"),
    remove_on_complete=True,
    remove_on_fail=True,
    keep_completed_age_ms=11,
    keep_completed_count=12,
    trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    parent_id=192,
    codec="msgpack",
    name="welcome",
    workflow=256,
    schedule="nightly",
    slot=1_700_000_000_000,
    log_lines_max=13,
    stack_lines_max=14,
)

POLICY = DeadLetterPolicy(
    entries_max=9,
    age_ms_max=1_000,
    auto_retry=True,
    auto_retry_interval_ms=50,
    auto_retries_max=1,
    take_expired=True,
    take_cancelled=True,
)

SETTINGS = Settings(seed=3, batching=False, stage_ttl_ms=5)
LIMITS = Limits(tags_max=4)

SCHEDULE = Schedule(
    cron="0 8 * * MON",
    every_ms=1_000,
    at=1_700_000_000_000,
    zone="Europe/Vienna",
    start_at=1,
    end_at=1_900_000_000_000,
    runs_max=7,
    overlap="queue",
    skip_if_no_worker=True,
    misfire="all",
    misfires_max=8,
    grace_ms=9_000,
    jitter_ms=10,
    payload=b"\x00{slot}",
    options=EVERYTHING_SET,
    template=True,
)
"""No schedule has all of that, but every field has its place in a record."""

AT = 1_700_000_000_000
T, Q = "acme", "mail"

LABELS = rec.Labels(5, ("red",), "customer-3", "00-trace", 192, "welcome", 256, "nightly", AT - 1_000)
ONE = rec.JobRun(64, 1, AT - 900, 2, AT - 400, "worker-1", 17, LABELS)
UP = rec.JobRun(128, 3, AT - 900, 1, AT - 300, "worker-2", [1, 2, 300])
DOWN = rec.JobRun(512, -2, AT - 900, 0, 0, "", 4)

MADE = rec.WorkflowMade(
    256,
    "nightly",
    [
        rec.StepMade("extract", Q, 0, [], 320, 1, NOTHING_SET),
        rec.StepMade("", "thumbs", 3, [(0, 2)], 0, 0, EVERYTHING_SET, True),
    ],
)

RECORDS: tuple[rec.Record, ...] = (
    rec.JobsPushed(AT, T, Q, 64, (b"one", b"", b"\x00\xff"), EVERYTHING_SET, AT + 1_500, [3, 0, 2]),
    rec.RequestRemembered(
        AT, T, Q, "send-1", [(64, 1), (0, 1), (128, 1)], [(1, "invalid", "bad")], [(2, "custom_id")], AT + 9
    ),
    rec.KeyExtended(AT, T, Q, "order-7", AT + 3_000),
    rec.Started(AT, T, Q, 41, "worker-1", 20_000, "claim-1", (ONE, DOWN)),
    rec.Completed(AT, T, Q, (ONE, UP, DOWN), [b"done", None, b"", None, b"x", None], 1),
    rec.Retrying(AT, T, Q, ONE, "failed", AT + 2_000, "broken", "OSError", "line 1"),
    rec.JobDied(AT, T, Q, ONE, "max_attempts_exceeded", "broken", "OSError", "line 1", "failed"),
    rec.JobsEnded(AT, T, Q, 6, "drained", [UP, DOWN]),
    rec.JobsReleased(AT, T, Q, [ONE, UP], AT + 600, "not now"),
    rec.LeasesExtended(AT, T, Q, [(64, 2), (512, -2)], 20_000),
    rec.CancelRequested(AT, T, Q, 64),
    rec.Progressed(AT, T, Q, 64, 42, "half way"),
    rec.Logged(AT, T, Q, 64, "warning", "slow"),
    rec.PartialAdded(AT, T, Q, 64, 3, b"chunk", 2),
    rec.Unblocked(AT, T, Q, 128, 64, True, AT + 5),
    rec.BecameDue(AT, T, Q, [(64, 3)], True),
    rec.Delayed(AT, T, Q, 64, AT + 700),
    rec.Reprioritised(AT, T, Q, 64, -3),
    rec.PayloadUpdated(AT, T, Q, 64, b"new", 1),
    rec.QueueConfigured(AT, T, Q, True, RateLimit(5, 250, 7), 3, "skip", POLICY, True, "fsync"),
    rec.QueueObliterated(AT, T, Q),
    rec.Revived(AT, T, Q, 64, True, True, AT - 5_000, 3, LABELS),
    rec.RetryPostponed(AT, T, Q, 64, AT + 50),
    rec.DeadRemoved(AT, T, Q, [64, 128], "evicted"),
    rec.Removed(AT, T, Q, [(64, 1), (512, -2)]),
    rec.AgedOut(AT, T, Q, 3_600_000, 5_000),
    rec.KeysForgotten(AT, T, Q, [("unique_keys", "order-7"), ("debounces", "burst")]),
    rec.PartStaged(
        AT, T, "tx-1", "stage-1", Q, [b"one", b"two"], NOTHING_SET, [NOTHING_SET, EVERYTHING_SET], 4, AT + 8, 3
    ),
    rec.PartPublished(AT, T, Q, 64, "tx-1", "stage-1", 2, 7, 2, [3, 4], EVERYTHING_SET, AT + 5),
    rec.TransactionEnded(AT, T, "tx-1", True, 3, [(64, 2), (512, 1)], AT + 8),
    rec.StageExpired(AT, T, "tx-1", "stage-1"),
    rec.TransactionForgotten(AT, T, "tx-1"),
    rec.ClaimForgotten(AT, T, "claim-1"),
    rec.Opened(AT, "", 7, 1 << 24, 1 << 25, SETTINGS, LIMITS),
    rec.MessageSent(AT, T, 3, 9, rec.PublishStages("tx-1", ["stage-1", "stage-2"])),
    rec.MessageTaken(AT, T, 2, 9),
    rec.MessagesArrived(AT, T, 3, 9),
    rec.KeysStored(AT, T, Q, [("custom_ids", "mine"), ("requests", "send-1")]),
    rec.KvWritten(AT, T, [("cursor", b"7", 1, 0), ("grün", b"\x00\xff", 2, AT + 60_000)]),
    rec.KvRemoved(AT, T, ["cursor", "grün"], True),
    rec.KvTimed(AT, T, "cursor", AT + 60_000),
    rec.BulkStarted(AT, T, "again", "priority", JobFilter(queue=Q, state=State.FAILED, text="x"), 640, 7, 2.5),
    rec.BulkStepped(AT, T, "again", 384, 9, 4, 1, "running", AT + 5),
    rec.Answered(AT, T, Q, "web-1", 7, 5, [(64, 1), (0, 1)], [(1, "invalid", "bad")], [(0, "unique_key")]),
    rec.PushesAnswered(AT, T, Q, [("web-1", 7, 2, 5, 64), ("web-2", 1, 1, 0, 192)]),
    rec.WorkflowPushed(AT, T, MADE),
    rec.StepReleased(AT, T, Q, 256, 1, [(384, 2), (640, -2)], AT + 5),
    rec.StepSkipped(AT, T, 256, 1),
    rec.StepFilled(AT, T, 256, 1, 384, 3),
    rec.StepHeard(AT, T, 256, 1, 2, True, 1, 384, 3),
    rec.WorkflowCancelled(AT, T, 256),
    rec.WorkflowRetried(AT, T, 256, 2),
    rec.WorkflowForgotten(AT, T, 256),
    rec.HeardEarly(AT, T, 256, rec.FillStepHere(256, 1, [b"one", b"two"])),
    rec.Watched(AT, T, [(64, 131), (128, 131)]),
    rec.ScheduleChanged(AT, T, Q, "nightly", SCHEDULE, AT - 1_000, 3, AT + 60_000),
    rec.SchedulePaused(AT, T, Q, "nightly", True, AT + 60_000),
    rec.ScheduleDeleted(AT, T, Q, "nightly"),
    rec.ScheduledPush(AT, T, Q, 64, (b"one",), EVERYTHING_SET, AT + 5, 3, "nightly", AT - 9, AT + 60_000, AT - 3, True),
    rec.SlotPassed(AT, T, Q, "nightly", AT - 9, "missed", AT + 60_000, 64, "overlap", AT - 5, AT - 3, True),
)

MESSAGES: tuple[rec.Message, ...] = (
    rec.PublishStages("tx-1", ["stage-1"]),
    rec.AbortTransaction("tx-1"),
    rec.StartWorkflow(AT, MADE, {1: [b"one"]}),
    rec.TellStep(256, 1, 2, True, 1, 384, 3),
    rec.CancelWorkflowHere(256),
    rec.RetryWorkflowHere(256, 2),
    rec.ForgetWorkflow(256),
    rec.FillStepHere(256, 1, [b"one", b"two"]),
    rec.Watch([(64, 131)]),
    rec.TellEnd(64, False, [131, 195]),
)
"""One of each thing that shards say to each other."""

OPTIONS: dict[str, Options] = {"everything set": EVERYTHING_SET, "nothing set": NOTHING_SET}

HISTORY: tuple[tuple[int, c.Command[Any]], ...] = (
    (1_000, c.Push("mail", b"alone")),
    (1_000, c.PushBatch("mail", [b"1", b"22", b"333", b"4444", b"55555", b"666666"])),
    (1_000, c.PushBatch("mail", [b"first", b"last"], Options(lifo=True, ttl_ms=5_000))),
    (1_001, c.Push("mail", b"delayed", Options(delay_ms=9_000, unique_key="k", custom_id="mine"))),
    (1_002, c.Push("thumbs", b"blocked", Options(depends_on=(Dependency(64),), group_id="g"))),
    (1_003, c.Pull(["mail"], 5, worker="w")),
    (1_004, c.AppendPartial(64, b"chunk")),
    (1_004, c.AppendPartial(64, b"more", 7)),
    (1_005, c.Ack([128, 192], None, [b"done", None])),
    (1_006, c.Push("thumbs", b"dead", Options(max_attempts=1))),
    (1_007, c.Discard(768)),
    (1_008, c.Pull(["mail"], 1, claim="claim")),
    (1_009, c.Fail([256], error="broken")),
    (1_010, c.Stage("tx", "a", "thumbs", [b"staged"])),
)
"""What had happened to the shard of `acme` that was saved in the first format of checkpoints (`checkpoint-1.json`)."""
