"""Room for new data: what is refused while the disk or the memory is full, and what may still be written then."""

from collections.abc import Callable, Sequence
from typing import Any

from stoker.engine.gathered import GatheredPushes
from stoker.journal.contract import Journal
from stoker.model import command_table, errors
from stoker.model import commands as c
from stoker.model.command_table import GROWS_LOG, READS
from stoker.runtime import process_requests
from stoker.runtime.memory import Memory

BRINGS_DATA = command_table.BRINGS_DATA | {GatheredPushes}
"""Commands that bring data."""
ROOM_EACH = 64 * 1024
"""What a turn takes on disk besides payloads, generously."""
SETTLED_BYTES_MAX = 64 * 1024
"""Results of one ack that may still be written when the disk is full: the room that is kept has to last for many."""

NO_ROOM_FOR_NEW = (
    "the disk is full: nothing new is taken, jobs that are there can be worked off; make room, and pushes are taken"
    " again by themselves"
)
NO_ROOM_FOR_MUCH = (
    f"the disk is full: this brings more than {SETTLED_BYTES_MAX} bytes, and the rest of the room is kept for settling"
    " and removing jobs; make room, and try again"
)
NO_ROOM_AT_ALL = (
    "the disk is full, and the room that was kept for settling and removing jobs is used up: make room, and try again"
)


class Room:
    """Says whether a command may bring what it brings."""

    def __init__(self, journal: Journal, memory: Memory) -> None:
        self._journal = journal
        self._memory = memory
        self.claimed = 0
        """How much room on the disk the turn may need, as far as it is decided."""
        self.over_quota: Callable[[str, int], bool] | None = None
        """Says whether one more job of this size is too much for a tenant: for jobs that schedules push."""

    def check(self, command: Any) -> None:
        """Refuse a command that needs room which is not there."""
        if self._journal.is_tight:
            self._check_disk(command)
        if type(command) in BRINGS_DATA and self._memory.is_full:
            raise errors.MemoryFull(
                f"the memory limit of {self._memory.bytes_max} bytes is reached: work jobs off,"
                " or raise memory_bytes_max"
            )

    def _check_disk(self, command: Any) -> None:
        """Refuse what makes data before the room is touched that is kept for settling and removing jobs.

        That room is for small things only, and when it is used up, everything is refused that writes.
        """
        kind, journal = type(command), self._journal
        if kind in READS or (kind in process_requests.EXECUTE and not is_publishing(command)):
            return
        size = bytes_of(command)
        if kind in BRINGS_DATA or kind in GROWS_LOG or kind in process_requests.EXECUTE or size > SETTLED_BYTES_MAX:
            if journal.absent:
                raise errors.Unavailable(journal.absent)
            if journal.is_full or not self._claim(size):
                raise errors.DiskFull(NO_ROOM_FOR_NEW if size <= SETTLED_BYTES_MAX else NO_ROOM_FOR_MUCH)
        elif journal.is_out:
            raise errors.DiskFull(NO_ROOM_AT_ALL)

    def _claim(self, size: int) -> bool:
        """Whether there is room for this many bytes besides what was begun in this turn and is not written yet."""
        needed = self.claimed + size * 2 + ROOM_EACH
        if needed > self._journal.room:
            return False
        self.claimed = needed
        return True

    def refusal_of(self, tenant: str, size: int, size_max: int) -> str:
        """Why a schedule cannot push now: what is pushed by a caller is refused for the same reasons."""
        if self._journal.is_tight and (self._journal.is_full or not self._claim(size_max)):
            return errors.DiskFull.code
        if self._memory.is_full:
            return errors.MemoryFull.code
        return errors.QuotaExceeded.code if self.over_quota is not None and self.over_quota(tenant, size) else ""


def bytes_of(command: Any) -> int:
    """How many bytes a command brings."""
    try:
        return sum(map(len, brought_by(command)))
    except (TypeError, AttributeError):
        return 0  # malformed: the decider says what is wrong


def brought_by(command: Any) -> "Sequence[bytes | str]":
    """Payloads, results and texts. What is cut to a small size anyway does not count."""
    kind = type(command)
    if kind is c.Push or kind is c.UpdatePayload:
        return (command.payload,)
    if kind is c.Ack:
        return [result for result in command.results or () if result is not None]
    if kind is c.AckClaim:
        return list(command.results.values())
    if kind is c.AppendPartial:
        return (command.data,)
    if kind is c.Publish or kind is process_requests.Decide:
        return list(command.stages)
    if kind not in BRINGS_DATA or kind is c.AppendLog:
        return ()
    if kind is c.PushWorkflow:
        return [payload for step in command.steps for payload in step.payloads]
    if kind is c.KvSet:
        return (command.value,)
    if kind is c.KvSetMany:
        return [entry.value for entry in command.entries]
    if kind is c.PutSchedule:
        return (command.schedule.payload,)
    return () if kind is c.KvIncrement or kind is c.RunSchedule else command.payloads


def is_publishing(command: Any) -> bool:
    """Whether a part decides that staged jobs come in."""
    return type(command) is process_requests.Decide and command.stages is not None
