"""Handles on pushed jobs: read their state and result, and stop them.

A handle is an id with the type of its result. It holds nothing else of the job, so every question goes to the queue.
Each method exists twice: for coroutines, and with `_sync` for plain code. Nothing here runs jobs.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stoker.app.errors import JobFailed, ResultTimeout
from stoker.app.following import Following
from stoker.app.hints import OF_JOBS, missing
from stoker.app.results import ANYTHING, Results
from stoker.app.sync_or_async import Plan, carry_out, carry_out_async
from stoker.app.waiting import why_it_waits
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, NotFound, StokerError
from stoker.model.events import Event, EventKind
from stoker.model.states import State
from stoker.model.units import Duration, duration_ms

if TYPE_CHECKING:
    from stoker.app.app import App
    from stoker.app.jobtype import JobType

R_co = TypeVar("R_co", covariant=True)

log = logging.getLogger("stoker.app")

FIRST_WAIT_MS = 5_000
"""The first part of a wait without a timeout; after it the log says if no worker is there."""
WAIT_MS = 60_000
"""The longest single wait; a longer wait asks again, so that no proxy takes the connection for dead."""


class Job(Generic[R_co]):
    """A pushed job. `R` is what its function returns."""

    __slots__ = ("_app", "_type", "created", "duplicate_by", "id", "level")

    def __init__(
        self, app: "App", job_type: "JobType[..., Any] | None", job: int, pushed: r.Pushed | None = None
    ) -> None:
        self._app = app
        self._type = job_type
        self.id = job
        self.created = True if pushed is None else pushed.created
        """False if the push found an existing job, which is this one."""
        self.duplicate_by: r.DuplicateBy | None = None if pushed is None else pushed.duplicate_by
        """The key that matched an existing job, or None."""
        self.level: r.Level | None = None if pushed is None else pushed.level
        """How durable the push was when it was answered."""

    def __repr__(self) -> str:
        name = self.name
        return f"<Job {self.id}>" if name is None else f"<Job {self.id} {name}>"

    if not TYPE_CHECKING:  # type checkers should still report missing attributes

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_JOBS, "job")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self._app, self.id) == (other._app, other.id)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def name(self) -> str | None:
        """The kind of job, if the handle was made by a push."""
        return None if self._type is None else self._type.name

    # --- outcome ---------------------------------------------------------------------------------

    async def view(self) -> r.JobView:
        """Everything that the queue knows about it."""
        return await self._app.aclient.get_job(self.id)

    def view_sync(self) -> r.JobView:
        return self._app.client.get_job(self.id)

    async def status(self) -> State:
        """Its current state."""
        return (await self.view()).state

    def status_sync(self) -> State:
        return self.view_sync().state

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job and return its result.

        Raises `JobFailed` if the job failed for good, was cancelled or expired, and `ResultTimeout` if it has not ended
        within `timeout`.
        """
        return await carry_out_async(self._app.aclient, self._result(timeout))

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        result: R_co = carry_out(self._app.client, self._result(timeout))
        return result

    async def wait(self, timeout: Duration | None = None) -> State:
        """Wait for the job's end and return its final state. Raises `ResultTimeout`."""
        return (await carry_out_async(self._app.aclient, self._ended(timeout))).state

    def wait_sync(self, timeout: Duration | None = None) -> State:
        return carry_out(self._app.client, self._ended(timeout)).state

    async def progress(self) -> r.Progress:
        """Percent and message, as the handler last reported them."""
        return (await self.view()).progress

    def progress_sync(self) -> r.Progress:
        return self.view_sync().progress

    async def logs(self) -> Sequence[r.LogLine]:
        """The lines that the handler wrote with `ctx.log`."""
        return await self._app.aclient.get_logs(self.id)

    def logs_sync(self) -> Sequence[r.LogLine]:
        return self._app.client.get_logs(self.id)

    async def why(self) -> r.Waiting:
        """Why the job is not running."""
        return await self._app.aclient.why(self.id)

    def why_sync(self) -> r.Waiting:
        return self._app.client.why(self.id)

    async def events(self) -> AsyncIterator[Event]:
        """All events of the job, past and future, until it has ended."""
        following = Following(self.id)
        while not following.is_over:
            for event in following.heard(await self._app.aclient.execute(following.question())):
                yield event

    def events_sync(self) -> Iterator[Event]:
        following = Following(self.id)
        while not following.is_over:
            yield from following.heard(self._app.client.execute(following.question()))

    async def stream(self) -> AsyncIterator[Any]:
        """The partial results that the handler emits, from the first on, as they come.

        Raises `JobFailed` at the end if the job has failed.
        """
        async for event in self.events():
            if event.kind is EventKind.PARTIAL:
                yield ANYTHING.decode(event.data, event.codec)
        await carry_out_async(self._app.aclient, self._not_failed())

    def stream_sync(self) -> Iterator[Any]:
        for event in self.events_sync():
            if event.kind is EventKind.PARTIAL:
                yield ANYTHING.decode(event.data, event.codec)
        carry_out(self._app.client, self._not_failed())

    # --- changing it -----------------------------------------------------------------------------

    async def cancel(self) -> State:
        """Stop it: at once if it has not started; if it runs, its worker is told. Refused when it has ended."""
        return (await self._app.aclient.cancel(self.id)).state

    def cancel_sync(self) -> State:
        return self._app.client.cancel(self.id).state

    async def retry(self) -> None:
        """Retry a job that failed for good, with a fresh count of attempts."""
        await carry_out_async(self._app.aclient, self._retry())

    def retry_sync(self) -> None:
        carry_out(self._app.client, self._retry())

    async def promote(self) -> None:
        """Run it now instead of after its delay."""
        await self._app.aclient.promote(self.id)

    def promote_sync(self) -> None:
        self._app.client.promote(self.id)

    # --- plans -----------------------------------------------------------------------------------

    def _ended(self, timeout: Duration | None) -> Plan[r.Ended]:
        left_ms = None if timeout is None else duration_ms(timeout)
        most_ms = FIRST_WAIT_MS
        while True:
            wait_ms = most_ms if left_ms is None else min(left_ms, most_ms)
            ended: r.Ended = yield c.WaitJob(self.id, wait_ms)
            if ended.finished:
                return ended
            if left_ms is not None:
                left_ms -= wait_ms
                if left_ms <= 0:
                    why = yield from self._why_waiting(ended.state)
                    raise ResultTimeout(f"job {self.id} is still {ended.state} after {timeout!r}; {why or 'ask again'}")
            elif most_ms == FIRST_WAIT_MS:
                why = yield from self._why_waiting(ended.state)
                if why:
                    log.warning(
                        "job %s is still %s, and this program waits for its result: %s", self.id, ended.state, why
                    )
            most_ms = WAIT_MS

    def _why_waiting(self, state: State) -> Plan[str]:
        if state is not State.WAITING:
            return ""
        try:
            view: r.JobView = yield c.GetJob(self.id)
        except StokerError:
            return ""
        return (yield from why_it_waits((view.queue,)))

    def _result(self, timeout: Duration | None) -> Plan[Any]:
        ended = yield from self._ended(timeout)
        if ended.state is not State.COMPLETED:
            raise (yield from self._failure(ended.state, ended.reason, ended.error))
        results = yield from self._results()
        return results.decode(ended.result, ended.result_codec)

    def _ended_result(self) -> Plan[Any]:
        """The result of a completed job."""
        view: r.JobView = yield c.GetJob(self.id)
        results = yield from self._results()
        return results.decode(view.result, view.result_codec)

    def _results(self) -> Plan[Results]:
        """How its results are encoded: known from the push, or found by the job's name."""
        if self._type is None:
            try:
                view: r.JobView = yield c.GetJob(self.id)
            except NotFound:  # the job is gone since it ended
                return ANYTHING
            self._type = self._app.find_job(view.options.name)
        return ANYTHING if self._type is None else self._type.results

    def _not_failed(self) -> Plan[None]:
        try:
            view: r.JobView = yield c.GetJob(self.id)
        except NotFound:
            return
        if view.state in (State.FAILED, State.CANCELLED, State.EXPIRED):
            raise (yield from self._failure(view.state, view.reason, view.error))

    def _failure(self, state: State, reason: str, error: str) -> Plan[JobFailed]:
        """The error, with everything that can still be learned about it."""
        told: dict[str, Any] = {"name": self.name, "error": error}
        try:
            view: r.JobView = yield c.GetJob(self.id)
            told |= {"attempts": view.attempts, "stack": view.stack, "name": view.options.name}
            told["error_class"] = view.error_class or (yield from self._error_class(error))
        except StokerError:
            pass
        return JobFailed(self.id, state, reason, **told)

    def _error_class(self, error: str) -> Plan[str]:
        """Read it from the log: a server of an older release has it nowhere else."""
        if not error:
            return ""
        story: r.Story = yield c.GetStory(self.id)
        return next((event.error_class for event in reversed(story.events) if event.error_class), "")

    def _retry(self) -> Plan[None]:
        view: r.JobView = yield c.GetJob(self.id)
        retried: r.Retried = yield c.RetryDead(view.queue, (self.id,))
        for code in retried.refused.values():
            raise BY_CODE[code](
                f"job {self.id} is {view.state}: only a failed job can be retried, and only if no other job has"
                " its keys"
            )


class JobBatch(Sequence[Job[R_co]]):
    """The jobs of one `push_batch`, in its order. Handles are made when asked for."""

    __slots__ = ("_app", "_reply", "_type")

    def __init__(self, app: "App", job_type: "JobType[..., Any]", reply: r.PushedBatch) -> None:
        self._app = app
        self._type = job_type
        self._reply = reply

    def __repr__(self) -> str:
        return f"<JobBatch of {len(self)} {self._type.name}>"

    def __len__(self) -> int:
        return len(self._reply.ids)

    @overload
    def __getitem__(self, place: int) -> Job[R_co]: ...

    @overload
    def __getitem__(self, place: slice) -> list[Job[R_co]]: ...

    def __getitem__(self, place: int | slice) -> Job[R_co] | list[Job[R_co]]:
        """Raises the reason if the job was refused."""
        if isinstance(place, slice):
            return [self._job(each) for each in range(*place.indices(len(self)))]
        return self._job(range(len(self))[place])

    def _job(self, place: int) -> Job[R_co]:
        reply = self._reply
        refusal = reply.refused.get(place)
        if refusal is not None:
            raise BY_CODE[refusal.code](f"item {place}: {refusal.message}")
        by = reply.duplicates.get(place)
        return Job(self._app, self._type, reply.ids[place], r.Pushed(reply.ids[place], by is None, by, reply.level))

    @property
    def ids(self) -> Sequence[int]:
        """One for each job; 0 for a refused one."""
        return self._reply.ids

    @property
    def refused(self) -> Mapping[int, r.Refusal]:
        """The refused jobs, by position in the batch."""
        return self._reply.refused

    @property
    def duplicates(self) -> Mapping[int, r.DuplicateBy]:
        """Jobs that matched an existing one, by position in the batch."""
        return self._reply.duplicates

    @property
    def created(self) -> int:
        """How many jobs are new."""
        return self._reply.created

    @property
    def level(self) -> r.Level:
        """How durable the push was when it was answered."""
        return self._reply.level

    async def results(self, timeout: Duration | None = None) -> list[R_co]:
        """The results of all jobs, in order. Raises for the first that failed; `timeout` applies to each."""
        return [await job.result(timeout) for job in self]

    def results_sync(self, timeout: Duration | None = None) -> list[R_co]:
        return [job.result_sync(timeout) for job in self]
