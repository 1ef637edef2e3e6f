"""Looking at jobs, queues and events in flashQ's words.

What it cannot be asked for is picked out here, as a client would.
"""

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.events import Event
from stoker.model.filters import FIELDS
from stoker.model.states import State
from tests.conformance.dialect.speaking import Speaker
from tests.conformance.dialect.words import bytes_of, found_job, from_wire, result_of, view_of
from tests.reference_clients.calling import Refused


class Looking(Speaker):
    """What those say who only look."""

    def say_get_job(self, tenant: str, command: c.GetJob) -> r.JobView:
        return found_job(self._call("GETJOB", tenant, id=command.id))

    def say_find_job(self, tenant: str, command: c.FindJob) -> r.JobView:
        return found_job(self._call("GETJOBBYCUSTOMID", tenant, job_id=command.custom_id, queue=command.queue))

    def say_get_logs(self, tenant: str, command: c.GetLogs) -> r.Logs:
        lines = self._call("GETLOGS", tenant, id=command.id)["logs"]
        return r.Logs([r.LogLine(one["timestamp"], one["level"], one["message"]) for one in lines])

    def say_get_partials(self, tenant: str, command: c.GetPartials) -> r.Partials:
        chunks = self._call("GETPARTIALS", tenant, id=command.id)["partials"]
        return r.Partials([r.Chunk(one["index"], *bytes_of(one["data"])) for one in chunks])

    def say_wait_job(self, tenant: str, command: c.WaitJob) -> r.Ended:
        try:
            answer = self._call("WAITJOB", tenant, id=command.id, timeout=command.wait_ms)
        except Refused as refusal:
            if refusal.code not in ("timeout", "job_failed"):
                raise
            job = self.say_get_job(tenant, c.GetJob(command.id))
            return r.Ended(job.id, job.state, refusal.code == "job_failed", None, job.reason, job.error)
        return r.Ended(command.id, State.COMPLETED, True, *result_of(answer["result"]))

    def say_browse(self, tenant: str, command: c.Browse) -> r.Page:
        """Newest first is how it is asked for; another order is the client's own work."""
        if not command.ascending:
            return self._page(tenant, command, command.after, command.limit)
        found: list[r.JobView] = []
        after = None
        while True:
            page = self._page(tenant, command, after, 1_000)
            found += page.jobs
            after = page.next_after
            if after is None:
                break
        found = [job for job in reversed(found) if command.after is None or job.id > command.after]
        return r.Page(found[: command.limit], found[command.limit - 1].id if len(found) > command.limit else None)

    def _page(self, tenant: str, command: c.Browse, after: int | None, limit: int) -> r.Page:
        asked = {name: getattr(command, name) for name in FIELDS}
        answer = self._call("GETJOBS", tenant, **asked, after=after, limit=limit)
        return r.Page([view_of(one) for one in answer["jobs"]], answer["next_after"], answer["looked"])

    def say_count_jobs(self, tenant: str, command: c.CountJobs) -> r.Counted:
        asked = {name: getattr(command, name) for name in command.__struct_fields__}
        return msgspec.convert({**self._call("COUNTJOBS", tenant, **asked)}, r.Counted)

    def say_why(self, tenant: str, command: c.Why) -> r.Waiting:
        answer = self._call("WHY", tenant, id=command.id)
        state = self.say_get_job(tenant, c.GetJob(command.id)).state
        return msgspec.convert({**answer, "state": state}, r.Waiting)

    def say_list_queues(self, tenant: str, command: c.ListQueues) -> r.Queues:
        return r.Queues([one["name"] for one in self._call("LISTQUEUES", tenant)["queues"]])

    def say_get_queue(self, tenant: str, command: c.GetQueue) -> r.QueueView:
        return msgspec.convert(self._call("QUEUE", tenant, queue=command.queue)["policy"], r.QueueView)

    def say_get_stats(self, tenant: str, command: c.GetStats) -> r.Stats:
        if command.queue is None:
            answer = self._call("STATS", tenant)
        else:
            answer = self._call("GETJOBCOUNTS", tenant, queue=command.queue)
        return msgspec.convert(answer["stats"], r.Stats)

    def say_get_story(self, tenant: str, command: c.GetStory) -> r.Story:
        return msgspec.convert(self._call("STORY", tenant, id=command.id), r.Story, strict=False)

    def say_read_events(self, tenant: str, command: c.ReadEvents) -> r.Events:
        fields = {name: getattr(command, name) for name in command.__struct_fields__}
        found = self._client.read_events(tenant, **fields)
        events = [from_wire(one, Event) for one in found["events"]]
        return r.Events(events, found["next_after"], found["lowest"])
