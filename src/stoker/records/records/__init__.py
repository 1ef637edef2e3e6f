"""One struct for each change that a shard can make.

Records are facts, not requests: they hold every decision (times, tokens, moves), and applying one needs only the state
before it. They name jobs in runs `(first id, count)`; a negative count runs downwards (lifo batches). On disk a record
is a tagged msgpack array. A field may be added at the end with a default; nothing else may change, and a golden file
checks that. The most frequent records hold tuples, because the garbage collector stops tracking tuples but visits every
list of the history again and again.

There is a file for each subject; this package exports them all.
"""

from stoker.records.records.bulk import *
from stoker.records.records.jobs import *
from stoker.records.records.keys import *
from stoker.records.records.queues import *
from stoker.records.records.schedules import *
from stoker.records.records.shape import *
from stoker.records.records.shards import *
from stoker.records.records.transactions import *
from stoker.records.records.workflows import *

VERSION = 2
"""Raised when the meaning of a record changes, for example by a new default of an option. Older versions stay readable.
"""

BY_TAG: dict[int, type[Record]] = {
    1: JobsPushed,
    2: RequestRemembered,
    3: KeyExtended,
    4: Started,
    5: Completed,
    6: Retrying,
    7: JobDied,
    8: JobsEnded,
    9: JobsReleased,
    10: LeasesExtended,
    11: CancelRequested,
    12: Progressed,
    13: Logged,
    14: PartialAdded,
    15: Unblocked,
    16: BecameDue,
    17: Delayed,
    18: Reprioritised,
    19: PayloadUpdated,
    20: QueueConfigured,
    21: QueueObliterated,
    22: Revived,
    23: RetryPostponed,
    24: DeadRemoved,
    25: Removed,
    26: AgedOut,
    27: KeysForgotten,
    28: PartStaged,
    29: TransactionEnded,
    30: StageExpired,
    31: TransactionForgotten,
    32: ClaimForgotten,
    33: Opened,
    34: MessageSent,
    35: MessageTaken,
    36: MessagesArrived,
    37: KeysStored,
    38: KvWritten,
    39: KvRemoved,
    40: KvTimed,
    41: Answered,
    42: ScheduleChanged,
    43: SchedulePaused,
    44: ScheduleDeleted,
    45: ScheduledPush,
    46: SlotPassed,
    47: WorkflowPushed,
    48: StepReleased,
    49: StepSkipped,
    50: StepFilled,
    51: StepHeard,
    52: WorkflowCancelled,
    53: WorkflowRetried,
    54: WorkflowForgotten,
    55: HeardEarly,
    56: Watched,
    57: PartPublished,
    58: BulkStarted,
    59: BulkStepped,
    60: PushesAnswered,
}
"""Every record, by the number that it begins with on disk. A number is never used again for another record."""

ALL = tuple(BY_TAG.values())
