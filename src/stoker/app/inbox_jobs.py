"""A handle on a job that was pushed in the user's own transaction.

The job exists once the transaction has committed and a reader of the inbox has pushed it. Until then only its custom id
is known. Every question first finds the job by that id.
"""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stoker.app.errors import ResultTimeout
from stoker.app.handles import Job
from stoker.app.sync_or_async import Nap, Plan, carry_out, carry_out_async
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound
from stoker.model.states import State
from stoker.model.units import Duration, duration_ms

if TYPE_CHECKING:
    from stoker.app.app import App
    from stoker.app.jobtype import JobType

R_co = TypeVar("R_co", covariant=True)

FIRST_NAP_MS, NAP_MS_MAX = 20, 500


class InboxJob(Generic[R_co]):
    """A job in the inbox. `R` is what its function returns."""

    __slots__ = ("_app", "_type", "custom_id", "queue")

    def __init__(self, app: "App", job_type: "JobType[..., Any]", queue: str, custom_id: str) -> None:
        self._app = app
        self._type = job_type
        self.queue = queue
        self.custom_id = custom_id
        """The job's custom id, by which any program finds it."""

    def __repr__(self) -> str:
        return f"<InboxJob {self.custom_id} {self._type.name}>"

    async def find(self) -> Job[R_co] | None:
        """The job, or None while it has not been pushed."""
        return await carry_out_async(self._app.aclient, self._find())

    def find_sync(self) -> Job[R_co] | None:
        return carry_out(self._app.client, self._find())

    async def job(self, timeout: Duration | None = None) -> Job[R_co]:
        """Wait until the job has been pushed. Raises `ResultTimeout`. Call it after the commit."""
        return (await carry_out_async(self._app.aclient, self._pushed(timeout)))[0]

    def job_sync(self, timeout: Duration | None = None) -> Job[R_co]:
        return carry_out(self._app.client, self._pushed(timeout))[0]

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job and return its result: see `Job.result`."""
        job, left_ms = await carry_out_async(self._app.aclient, self._pushed(timeout))
        return await job.result(rest_of(left_ms))

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        job, left_ms = carry_out(self._app.client, self._pushed(timeout))
        return job.result_sync(rest_of(left_ms))

    async def wait(self, timeout: Duration | None = None) -> State:
        """Wait for the job's end and return its final state. Raises `ResultTimeout`."""
        job, left_ms = await carry_out_async(self._app.aclient, self._pushed(timeout))
        return await job.wait(rest_of(left_ms))

    def wait_sync(self, timeout: Duration | None = None) -> State:
        job, left_ms = carry_out(self._app.client, self._pushed(timeout))
        return job.wait_sync(rest_of(left_ms))

    def _find(self) -> Plan[Job[R_co] | None]:
        try:
            view: r.JobView = yield c.FindJob(self.custom_id, self.queue)
        except NotFound:
            return None
        return Job(self._app, self._type, view.id)

    def _pushed(self, timeout: Duration | None) -> Plan[tuple[Job[R_co], int | None]]:
        """The job, and what is left of the timeout."""
        left_ms = None if timeout is None else duration_ms(timeout)
        nap_ms = FIRST_NAP_MS
        while True:
            job = yield from self._find()
            if job is not None:
                return job, left_ms
            if left_ms is not None:
                if left_ms <= 0:
                    raise ResultTimeout(
                        f"the job {self.custom_id} has not been pushed after {timeout!r}: has the transaction"
                        " committed, and does a reader run (stoker inbox run)? Ask again, or look with"
                        " stoker doctor --inbox postgresql://..."
                    )
                nap_ms = min(nap_ms, left_ms)
                left_ms -= nap_ms
            yield Nap(nap_ms)
            nap_ms = min(2 * nap_ms, NAP_MS_MAX)


def rest_of(left_ms: int | None) -> float | None:
    """A duration as methods of a handle take it: in seconds."""
    return None if left_ms is None else left_ms / 1_000
