"""Records of schedules and of the outcomes of their slots."""

from stoker.model.options import Options
from stoker.model.schedules import Schedule, SlotOutcome
from stoker.records.records.shape import Record


class ScheduleChanged(Record, frozen=True, gc=False, tag=42):
    """A schedule was created or changed. `next_slot` is 0 if it is over. Intervals without a start count from the
    `anchor`.
    """

    at: int
    tenant: str
    queue: str
    name: str
    schedule: Schedule
    anchor: int
    runs: int
    next_slot: int


class SchedulePaused(Record, frozen=True, gc=False, tag=43):
    """A schedule was paused or, with `paused` false, resumed."""

    at: int
    tenant: str
    queue: str
    name: str
    paused: bool
    next_slot: int


class ScheduleDeleted(Record, frozen=True, gc=False, tag=44):
    at: int
    tenant: str
    queue: str
    name: str


class ScheduledPush(Record, frozen=True, gc=False, tag=45):
    """A schedule pushed a job, and its slot is over. The fields are those of `Pushed`, with one payload.

    Slots up to `made_up_to` are pushed however late they are. With `manual` a client asked for the job, and no slot is
    over.
    """

    at: int
    tenant: str
    queue: str
    first: int
    payloads: tuple[bytes]
    options: Options
    due: int
    sizes: int
    name: str
    slot: int
    next_slot: int
    made_up_to: int = 0
    manual: bool = False


class SlotPassed(Record, frozen=True, gc=False, tag=46):
    """A slot, or all slots up to `until`, passed without a job."""

    at: int
    tenant: str
    queue: str
    name: str
    slot: int
    outcome: SlotOutcome
    next_slot: int
    job: int = 0
    """The job because of which none was pushed."""
    reason: str = ""
    until: int = 0
    made_up_to: int = 0
    manual: bool = False
