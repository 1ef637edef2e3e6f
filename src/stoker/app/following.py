"""Follows the events of one job: which page to ask for next, and which events in it belong to the job.

The job's story has the events so far, the events of its shard those after that. Nothing here does I/O.
"""

from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.event_table import ENDS_JOB, REMOVES_JOB
from stoker.model.events import Event, EventKind
from stoker.model.ids import shard_of
from stoker.model.states import ENDED

WAIT_MS = 30_000
ENDS = ENDS_JOB | REMOVES_JOB


class Following:
    """A position in the events of one job."""

    def __init__(self, job: int) -> None:
        self._job = job
        self._question: c.Command[Any] = c.GetStory(job)
        self.is_over = False

    def question(self) -> c.Command[Any]:
        """The next command to send; `heard` takes its reply."""
        return self._question

    def heard(self, reply: Any) -> list[Event]:
        """The events of the job in a reply."""
        if isinstance(reply, r.JobView):  # the job has outlived its story
            self._read_on(reply.queue, 0)
            self.is_over = reply.state in ENDED
            return []
        own = [event for event in reply.events if event.job == self._job]
        if isinstance(reply, r.Events):
            self._read_on(self._question.queue, reply.next_after)  # type: ignore[attr-defined]
            self.is_over = any(event.kind is EventKind.QUEUE_OBLITERATED for event in reply.events)
        elif own:
            self._read_on(own[-1].queue, own[-1].sequence)
        else:
            self._question = c.GetJob(self._job)
        steps = [event.kind for event in own if event.kind in ENDS or event.kind is EventKind.REVIVED]
        if steps and steps[-1] in ENDS:
            self.is_over = True
        return own

    def _read_on(self, queue: str | None, after: int) -> None:
        self._question = c.ReadEvents(shard_of(self._job), after, queue=queue, wait_ms=WAIT_MS)
