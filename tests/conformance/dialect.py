"""The suite over clients that know nothing but the published protocol (`tests/reference_clients`).

A broker here takes the contract's commands and says them in flashQ's words, through a client written from the
documentation. Payloads that are no JSON travel as the documentation says, and so come back; everything that the test
sees is read from answers. What cannot be said in this dialect is named in `dialect_gaps.py`.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, NotFound, StokerError
from stoker.model.events import Event
from stoker.model.limits import Limits
from stoker.model.options import DEFAULT_OPTIONS, Codec, Options, Settings
from stoker.model.schedules import Schedule, SchedulePage, ScheduleRun, ScheduleView
from stoker.model.states import Reason, State
from tests.reference_clients.calling import Answer, Refused
from tests.reference_clients.sockets import Frames, Lines, OverSockets
from tests.reference_clients.web import ApiCommand, Rest
from tests.served.process import ServerProcess, the_process

R = TypeVar("R")
Client = OverSockets | ApiCommand | Rest

FIELDS: dict[str, str] = {
    "delay_ms": "delay",
    "ttl_ms": "ttl",
    "timeout_ms": "timeout",
    "lease_ms": "stall_timeout",
    "custom_id": "job_id",
    "debounce_ms": "debounce_ttl",
}
"""Our names of options, where flashQ has others."""
MEANS_DEFAULT = ("lease_ms", "keep_completed_count")
"""Options of which flashQ's 0 means what is there if nothing is said."""
STATES: dict[str, State] = {**{state.value: state for state in State}, "waiting-children": State.BLOCKED}


class NotInDialect(Exception):
    """The command cannot be said: a test that needs it belongs into the table of gaps."""


class Dialect:
    """A broker whose every word goes over one of the reference clients."""

    def __init__(self, client: Client, world: "Backing") -> None:
        self._client = client
        self._world = world
        self._is_closed = False

    # --- the contract of a broker ----------------------------------------------------------------

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        say = getattr(self, verb(command), None)
        if say is None:
            raise NotInDialect(type(command).__name__)
        try:
            return say(tenant, command)  # type: ignore[no-any-return]
        except Refused as refusal:
            raise as_error(refusal) from None

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        return await asyncio.to_thread(self.execute, tenant, command)

    def close(self) -> None:
        self._client.close()

    def _call(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        """Fields that are None are left out, as anybody would."""
        return self._client.call(cmd, tenant, **{name: value for name, value in fields.items() if value is not None})

    # --- producing -------------------------------------------------------------------------------

    def say_push(self, tenant: str, command: c.Push) -> r.Pushed:
        if command.sending is not None:
            raise NotInDialect("Push.sending")
        fields = options_fields(command.options)
        answer = self._call(
            "PUSH",
            tenant,
            queue=command.queue,
            data=value_of(command.payload, command.options.codec),
            durability=command.durability,
            **fields,
        )
        return r.Pushed(answer["id"], answer.get("created", True), answer.get("duplicate_by"), answer["level"])

    def say_push_batch(self, tenant: str, command: c.PushBatch) -> r.PushedBatch:
        if command.sending is not None:
            raise NotInDialect("PushBatch.sending")
        each = command.each if command.each is not None else [command.options] * len(command.payloads)
        if len(each) != len(command.payloads):
            raise NotInDialect("more or fewer options than payloads")
        jobs = [
            {"data": value_of(payload, options.codec), **options_fields(options)}
            for payload, options in zip(command.payloads, each, strict=True)
        ]
        answer = self._call(
            "PUSHB",
            tenant,
            queue=command.queue,
            jobs=jobs,
            atomic=command.atomic,
            request_key=command.request_key,
            durability=command.durability,
        )
        refused = {one["index"]: r.Refusal(one["code"], one["error"]) for one in answer.get("failed", ())}
        duplicates = {one["index"]: one["by"] for one in answer.get("duplicates", ())}
        return r.PushedBatch(answer["ids"], refused, duplicates, answer["level"])

    # --- consuming -------------------------------------------------------------------------------

    def say_pull(self, tenant: str, command: c.Pull) -> r.Delivery:
        queues = list(command.queues)
        if len(queues) != 1 and isinstance(self._client, Rest):
            raise NotInDialect("Pull of several queues")
        answer = self._call(
            "PULLB",
            tenant,
            queue=queues[0] if len(queues) == 1 else queues,
            count=command.count,
            timeout=command.wait_ms,
            worker=command.worker,
            lease_ms=command.lease_ms,
            claim=command.claim,
        )
        jobs = answer["jobs"]
        return r.Delivery(answer.get("token", 0), runs_of(jobs, self._options(tenant, jobs)), answer.get("next_at"))

    def _options(self, tenant: str, jobs: list[Answer]) -> dict[int, Options]:
        """A delivery tells what a worker needs; whoever wants to know all options asks for the jobs."""
        found: dict[int, Options] = {}
        for first in range(0, len(jobs), 1_000):
            ids = [job["id"] for job in jobs[first : first + 1_000]]
            for job in self._call("GETJOBSBATCH", tenant, ids=ids)["jobs"]:
                found[job["id"]] = msgspec.convert(job["options"], Options)
        return found

    def say_ack(self, tenant: str, command: c.Ack) -> r.Settled:
        results = None
        if command.results is not None:
            results = [None if one is None else value_of(one, command.codec) for one in command.results]
        answer = self._call(
            "ACKB",
            tenant,
            ids=list(command.ids),
            tokens=tokens_of(command),
            results=results,
            codec=command.codec if results is not None else None,
        )
        return r.Settled(answer["count"], failed_of(answer), answer["level"])

    def say_fail(self, tenant: str, command: c.Fail) -> r.Failed:
        jobs: list[r.FailedJob] = []
        refused: dict[int, str] = {}
        level: r.Level = "memory"
        for job, token in each_token(command):
            try:
                answer = self._call(
                    "FAIL",
                    tenant,
                    id=job,
                    token=token,
                    error=command.error,
                    error_class=command.error_class,
                    stack=command.stack,
                    retry=command.retry,
                    delay=command.delay_ms,
                )
            except Refused as refusal:
                if refusal.code not in SETTLING:
                    raise
                refused[job] = refusal.code
                continue
            level = answer["level"]
            state = STATES.get(answer["state"], State.CANCELLED)
            jobs.append(r.FailedJob(job, state, answer["run_at"]))
        return r.Failed(jobs, refused, level)

    def say_release(self, tenant: str, command: c.Release) -> r.Settled:
        if isinstance(self._client, Rest):
            done, refused = self._one_by_one("RELEASE", tenant, command, delay=command.delay_ms)
            return r.Settled(len(done), refused, done[-1]["level"] if done else "memory")
        answer = self._call("RELEASE", tenant, ids=list(command.ids), tokens=tokens_of(command), delay=command.delay_ms)
        return r.Settled(answer["count"], failed_of(answer), answer["level"])

    def say_extend(self, tenant: str, command: c.Extend) -> r.Extended:
        if isinstance(self._client, Rest):
            done, refused = self._one_by_one("HEARTBEAT", tenant, command, lease_ms=command.lease_ms)
            until = max((one["lease_until"] for one in done), default=0)
            return r.Extended(len(done), until, refused, [job for one in done for job in one["cancelled"]])
        answer = self._call(
            "HEARTBEAT", tenant, ids=list(command.ids), tokens=tokens_of(command), lease_ms=command.lease_ms
        )
        return r.Extended(answer["count"], answer["lease_until"], failed_of(answer), answer["cancelled"])

    def _one_by_one(
        self, cmd: str, tenant: str, command: c.Release | c.Extend, **fields: Any
    ) -> tuple[list[Answer], dict[int, str]]:
        """For a route that names one job."""
        done: list[Answer] = []
        refused: dict[int, str] = {}
        for job, token in each_token(command):
            try:
                done.append(self._call(cmd, tenant, id=job, token=token, **fields))
            except Refused as refusal:
                if refusal.code not in SETTLING:
                    raise
                refused[job] = refusal.code
        return done, refused

    def say_set_progress(self, tenant: str, command: c.SetProgress) -> r.Done:
        return self._done(
            "PROGRESS",
            tenant,
            id=command.id,
            progress=command.percent,
            message=command.message,
            token=command.token,
        )

    def say_append_log(self, tenant: str, command: c.AppendLog) -> r.Done:
        return self._done(
            "LOG", tenant, id=command.id, message=command.message, level=command.level, token=command.token
        )

    def say_append_partial(self, tenant: str, command: c.AppendPartial) -> r.Done:
        data = value_of(command.data, command.codec)
        return self._done(
            "PARTIAL",
            tenant,
            id=command.id,
            data=data,
            index=command.index,
            token=command.token,
            codec=command.codec,
        )

    def _done(self, cmd: str, tenant: str, **fields: Any) -> r.Done:
        answer = self._call(cmd, tenant, **fields)
        return r.Done(answer.get("count", 1), answer["level"])

    # --- looking ---------------------------------------------------------------------------------

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
        """Newest first is how it is asked for; other orders and times are the client's own work."""
        plain = not command.ascending and command.pushed_from is None and command.pushed_before is None
        if plain:
            return self._page(tenant, command, command.after, command.limit)
        found: list[r.JobView] = []
        after = command.after if not command.ascending else None
        while True:
            page = self._page(tenant, command, after, 1_000)
            found += [job for job in page.jobs if is_pushed_between(job, command)]
            after = page.next_after
            if after is None:
                break
        if command.ascending:
            found = [job for job in reversed(found) if command.after is None or job.id > command.after]
        return r.Page(found[: command.limit], found[command.limit - 1].id if len(found) > command.limit else None)

    def _page(self, tenant: str, command: c.Browse, after: int | None, limit: int) -> r.Page:
        answer = self._call(
            "GETJOBS",
            tenant,
            queue=command.queue,
            state=None if command.state is None else str(command.state),
            tag=command.tag,
            group_id=command.group_id,
            name=command.name,
            after=after,
            limit=limit,
        )
        return r.Page([view_of(one) for one in answer["jobs"]], answer["next_after"])

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

    # --- control ---------------------------------------------------------------------------------

    def say_pause(self, tenant: str, command: c.Pause) -> r.Done:
        return self._done("PAUSE", tenant, queue=command.queue)

    def say_resume(self, tenant: str, command: c.Resume) -> r.Done:
        return self._done("RESUME", tenant, queue=command.queue)

    def say_set_rate_limit(self, tenant: str, command: c.SetRateLimit) -> r.Done:
        limit = command.limit
        if limit is None:
            return self._done("RATELIMITCLEAR", tenant, queue=command.queue)
        return self._done(
            "RATELIMIT", tenant, queue=command.queue, limit=limit.count, per_ms=limit.per_ms, burst=limit.burst
        )

    def say_set_concurrency(self, tenant: str, command: c.SetConcurrency) -> r.Done:
        if command.limit == 0:
            return self._done("CLEARCONCURRENCY", tenant, queue=command.queue)
        return self._done("SETCONCURRENCY", tenant, queue=command.queue, limit=command.limit)

    def say_set_queue_policy(self, tenant: str, command: c.SetQueuePolicy) -> r.Done:
        letters = command.dead_letters
        return self._done(
            "SETPOLICY",
            tenant,
            queue=command.queue,
            group_on_retry=command.group_on_retry,
            dead_letters=None if letters is None else msgspec.structs.asdict(letters),
            durability=command.durability,
        )

    def say_cancel(self, tenant: str, command: c.Cancel) -> r.JobView:
        before = self._call("GETJOB", tenant, id=command.id)
        self._call("CANCEL", tenant, id=command.id)
        after = self._call("GETJOB", tenant, id=command.id)
        if after["job"] is None:  # forgotten at once
            return msgspec.structs.replace(found_job(before), state=State.CANCELLED)
        return found_job(after)

    def say_promote(self, tenant: str, command: c.Promote) -> r.Done:
        return self._done("PROMOTE", tenant, id=command.id)

    def say_change_priority(self, tenant: str, command: c.ChangePriority) -> r.Done:
        return self._done("CHANGEPRIORITY", tenant, id=command.id, priority=command.priority)

    def say_move_to_delayed(self, tenant: str, command: c.MoveToDelayed) -> r.Done:
        return self._done("MOVETODELAYED", tenant, id=command.id, delay=command.delay_ms, token=command.token)

    def say_update_payload(self, tenant: str, command: c.UpdatePayload) -> r.Done:
        codec = command.codec or found_job(self._call("GETJOB", tenant, id=command.id)).options.codec
        return self._done("UPDATEJOB", tenant, id=command.id, data=value_of(command.payload, codec), codec=codec)

    def say_discard(self, tenant: str, command: c.Discard) -> r.Done:
        return self._done("DISCARD", tenant, id=command.id)

    def say_drain(self, tenant: str, command: c.Drain) -> r.Done:
        return self._done("DRAIN", tenant, queue=command.queue, delayed=command.delayed)

    def say_clean(self, tenant: str, command: c.Clean) -> r.Ids:
        if command.limit == 0:
            raise NotInDialect("Clean.limit 0, which means no limit here")
        answer = self._call(
            "CLEAN", tenant, queue=command.queue, state=str(command.state), grace=command.age_ms, limit=command.limit
        )
        return r.Ids(answer["removed"])

    def say_obliterate(self, tenant: str, command: c.Obliterate) -> r.Done:
        return self._done("OBLITERATE", tenant, queue=command.queue, force=command.force)

    # --- dead letters ----------------------------------------------------------------------------

    def say_list_dead(self, tenant: str, command: c.ListDead) -> r.Page:
        if command.limit == 0:
            raise NotInDialect("ListDead.limit 0, which means the default here")
        found: list[r.JobView] = []
        after = command.after
        timed = command.entered_from is not None or command.entered_before is not None
        while True:
            limit = 1_000 if timed else command.limit
            answer = self._call(
                "DLQ",
                tenant,
                queue=command.queue,
                reason=command.reason,
                tag=command.tag,
                after=after,
                count=limit,
            )
            page = [view_of(one) for one in answer["jobs"]]
            after = answer["next_after"]
            if not timed:
                return r.Page(page, after)
            found += [job for job in page if has_entered_between(job, command)]
            if after is None:
                return r.Page(
                    found[: command.limit], found[command.limit - 1].id if len(found) > command.limit else None
                )

    def say_get_dead_stats(self, tenant: str, command: c.GetDeadStats) -> r.DeadStats:
        answer = self._call("DLQSTATS", tenant, queue=command.queue)
        return r.DeadStats(answer["total"], answer["by_reason"], answer["oldest_at"])

    def say_retry_dead(self, tenant: str, command: c.RetryDead) -> r.Retried:
        ids = None if command.ids is None else list(command.ids)
        answer = self._call(
            "RETRYDLQ", tenant, queue=command.queue, ids=ids, reason=command.reason, limit=command.limit
        )
        return r.Retried(answer["retried"], failed_of(answer))

    def say_purge_dead(self, tenant: str, command: c.PurgeDead) -> r.Done:
        ids = None if command.ids is None else list(command.ids)
        return self._done("PURGEDLQ", tenant, queue=command.queue, ids=ids, reason=command.reason)

    # --- keys and values -------------------------------------------------------------------------

    def _keys(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        if isinstance(self._client, Rest):
            raise NotInDialect("keys and values")
        return self._call(cmd, tenant, **fields)

    def say_kv_set(self, tenant: str, command: c.KvSet) -> r.Done:
        value = value_of(command.value, command.codec)
        answer = self._keys("KVSET", tenant, key=command.key, value=value, ttl=command.ttl_ms, codec=command.codec)
        return r.Done(1, answer["level"])

    def say_kv_set_many(self, tenant: str, command: c.KvSetMany) -> r.Done:
        entries = [
            {"key": one.key, "value": value_of(one.value, one.codec), "ttl": one.ttl_ms, "codec": one.codec}
            for one in command.entries
        ]
        answer = self._keys("KVMSET", tenant, entries=entries)
        return r.Done(answer["count"], answer["level"])

    def say_kv_get(self, tenant: str, command: c.KvGet) -> r.KvValue:
        answer = self._keys("KVGET", tenant, key=command.key)
        if not answer["exists"]:
            return r.KvValue(False)
        expires_at = self._expiry(tenant, command.key).expires_at
        return r.KvValue(True, *bytes_of(answer["value"]), expires_at)

    def say_kv_get_many(self, tenant: str, command: c.KvGetMany) -> r.KvValues:
        values = self._keys("KVMGET", tenant, keys=list(command.keys))["values"]
        found = self._keys("KVEXISTS", tenant, keys=list(command.keys))["found"]
        return r.KvValues(
            [
                r.KvValue(True, *bytes_of(value), self._expiry(tenant, key).expires_at) if exists else r.KvValue(False)
                for key, value, exists in zip(command.keys, values, found, strict=True)
            ]
        )

    def say_kv_exists(self, tenant: str, command: c.KvExists) -> r.KvFound:
        return r.KvFound(self._keys("KVEXISTS", tenant, keys=list(command.keys))["found"])

    def say_kv_delete(self, tenant: str, command: c.KvDelete) -> r.Done:
        answer = self._keys("KVDEL", tenant, keys=list(command.keys))
        return r.Done(answer["count"], answer["level"])

    def say_kv_expire(self, tenant: str, command: c.KvExpire) -> r.KvExpiry:
        answer = self._keys("KVEXPIRE", tenant, key=command.key, ttl=command.ttl_ms)
        expires_at = self._expiry(tenant, command.key).expires_at if answer["exists"] else 0
        return r.KvExpiry(answer["exists"], expires_at, answer["level"])

    def say_kv_ttl(self, tenant: str, command: c.KvTtl) -> r.KvExpiry:
        return self._expiry(tenant, command.key)

    def _expiry(self, tenant: str, key: str) -> r.KvExpiry:
        ttl = self._keys("KVTTL", tenant, key=key)["ttl"]
        return r.KvExpiry(ttl != -2, self._world.now + ttl if ttl >= 0 else 0)

    def say_kv_keys(self, tenant: str, command: c.KvKeys) -> r.KvKeyPage:
        answer = self._keys("KVKEYS", tenant, pattern=command.pattern, after=command.after, limit=command.limit)
        return r.KvKeyPage(answer["keys"], answer["next_after"])

    def say_kv_increment(self, tenant: str, command: c.KvIncrement) -> r.KvNumber:
        answer = self._keys("KVINCR", tenant, key=command.key, by=command.by)
        return r.KvNumber(answer["value"], answer["level"])

    # --- schedules -------------------------------------------------------------------------------

    def say_put_schedule(self, tenant: str, command: c.PutSchedule) -> ScheduleView:
        wanted = command.schedule
        answer = self._call(
            "CRON",
            tenant,
            name=command.name,
            queue=command.queue,
            schedule=wanted.cron,
            repeat_every=wanted.every_ms or None,
            limit=wanted.runs_max or None,
            data=value_of(wanted.payload, wanted.options.codec),
            options=options_fields(wanted.options),
            **{name: getattr(wanted, name) for name in RULES},
        )
        return schedule_of(answer["cron"], answer["level"])

    def say_get_schedule(self, tenant: str, command: c.GetSchedule) -> ScheduleView:
        return schedule_of(self._call("CRONGET", tenant, name=command.name, queue=command.queue)["cron"])

    def say_list_schedules(self, tenant: str, command: c.ListSchedules) -> SchedulePage:
        answer = self._call(
            "CRONLIST", tenant, queue=command.queue, name=command.name, after=command.after, limit=command.limit
        )
        return SchedulePage([schedule_of(one) for one in answer["crons"]], answer["next_after"])

    def say_pause_schedule(self, tenant: str, command: c.PauseSchedule) -> ScheduleView:
        answer = self._call("CRONPAUSE", tenant, name=command.name, queue=command.queue)
        return schedule_of(answer["cron"], answer["level"])

    def say_resume_schedule(self, tenant: str, command: c.ResumeSchedule) -> ScheduleView:
        answer = self._call("CRONRESUME", tenant, name=command.name, queue=command.queue)
        return schedule_of(answer["cron"], answer["level"])

    def say_run_schedule(self, tenant: str, command: c.RunSchedule) -> r.Pushed:
        answer = self._call("CRONRUN", tenant, name=command.name, queue=command.queue)
        return r.Pushed(answer["id"], answer["created"], level=answer["level"])

    def say_delete_schedule(self, tenant: str, command: c.DeleteSchedule) -> r.Done:
        try:
            answer = self._call("CRONDELETE", tenant, name=command.name, queue=command.queue)
        except Refused as refusal:
            if refusal.code != "not_found":
                raise
            return r.Done(0)
        return r.Done(1, answer["level"])


RULES = "at zone start_at end_at overlap misfire misfires_max grace_ms jitter_ms template".split()
SETTLING = ("not_found", "lost_lease", "wrong_state")
"""What a job of many may be refused with."""


def verb(command: c.Command[Any]) -> str:
    name = type(command).__name__
    return "say" + "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def as_error(refusal: Refused) -> StokerError:
    kind = BY_CODE.get(refusal.code)
    if kind is None:
        raise refusal
    return kind(str(refusal))


# --- what is sent ------------------------------------------------------------------------------------


def value_of(payload: bytes, codec: Codec) -> Any:
    """A payload as a value: what is no value in the codec that it claims cannot be sent as one."""
    try:
        if codec == "json":
            return json.loads(payload)
        if codec == "msgpack":
            return msgspec.msgpack.decode(payload)
        return {"$bytes": b64encode(payload).decode()}
    except (ValueError, TypeError, msgspec.DecodeError) as error:
        raise NotInDialect(f"a payload that is no {codec}") from error


def options_fields(options: Options) -> dict[str, Any]:
    """Everything that is not as it is where nothing is said; and always what a push does that meets its key."""
    if not isinstance(options, Options):
        raise NotInDialect("options that are none")
    fields: dict[str, Any] = {"codec": options.codec, "on_conflict": options.on_conflict}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if value == getattr(DEFAULT_OPTIONS, name):
            continue
        if value is None:
            raise NotInDialect("null, which means left out")
        if isinstance(value, bytes):
            raise NotInDialect("bytes where a text should be")
        if value == 0 and name in MEANS_DEFAULT:
            raise NotInDialect(f"0 in {name}, which means the default")
        fields[FIELDS.get(name, name)] = msgspec.to_builtins(value)
    if "backoff" in fields:
        fields["backoff"] = msgspec.structs.asdict(options.backoff)
    return fields


def tokens_of(command: c.Ack | c.Release | c.Extend) -> Any:
    tokens = command.tokens
    return tokens if tokens is None or isinstance(tokens, int) else list(tokens)


def each_token(command: c.Fail | c.Release | c.Extend) -> Sequence[tuple[int, int | None]]:
    tokens = command.tokens
    if tokens is None or isinstance(tokens, int):
        return [(job, tokens) for job in command.ids]
    return list(zip(command.ids, tokens, strict=True))


# --- what is read ------------------------------------------------------------------------------------


def bytes_of(value: Any, codec: Codec = "json") -> tuple[bytes, Codec]:
    """A value as the bytes that it was pushed with, where its codec is told."""
    if isinstance(value, dict) and value.keys() == {"$bytes"}:
        return b64decode(value["$bytes"]), "bytes"
    if codec == "msgpack":
        return msgspec.msgpack.encode(value), codec
    return msgspec.json.encode(value), "json"


def result_of(value: Any) -> tuple[bytes | None]:
    return (None if value is None else bytes_of(value)[0],)


def failed_of(answer: Answer) -> Mapping[int, str]:
    return {one["id"]: one["code"] for one in answer.get("failed", ())}


def found_job(answer: Answer) -> r.JobView:
    if answer.get("job") is None:
        assert answer["state"] == "unknown"
        raise NotFound("job not found")
    return view_of(answer["job"])


def view_of(job: Answer) -> r.JobView:
    reason = job.get("reason") or ""
    state = STATES.get(job["state"], State.CANCELLED)
    if state is State.FAILED and reason == Reason.TTL_EXPIRED and job.get("dead") is None:
        state = State.EXPIRED
    options = msgspec.convert(job["options"], Options)
    error = job.get("error") or ""
    return r.JobView(
        id=job["id"],
        queue=job["queue"],
        state=state,
        payload=bytes_of(job["data"], options.codec)[0],
        options=options,
        pushed_at=job["created_at"],
        attempts=job["attempts"],
        crashes=job.get("stall_count", 0),
        due=job["run_at"] if state is State.DELAYED else 0,
        blocked_by=tuple(job.get("blocked_by", ())),
        started_at=job.get("started_at", 0),
        lease_until=job.get("lease_until", 0),
        worker=job.get("worker") or "",
        claim=job.get("claim"),
        cancel_requested=job.get("cancel_requested", False),
        finished_at=job.get("completed_at", 0),
        result=result_of(job.get("result"))[0],
        reason=reason,
        error="" if error == reason else error,
        stack=job.get("stack") or "",
        progress=r.Progress(job.get("progress", 0), job.get("progress_message") or ""),
        history=tuple(msgspec.convert(one, r.Attempt) for one in job.get("history", ())),
        dead=None if job.get("dead") is None else msgspec.convert(job["dead"], r.DeadLetter),
    )


def schedule_of(cron: Answer, level: r.Level = "memory") -> ScheduleView:
    rule = from_wire(cron["rule"], Schedule)
    return ScheduleView(
        name=cron["name"],
        queue=cron["queue"],
        schedule=rule,
        state=cron["state"],
        created_at=cron["created_at"],
        changed_at=cron["changed_at"],
        runs=cron["executions"],
        next_runs=cron.get("next_runs") or ([cron["next_run"]] if cron["next_run"] is not None else []),
        last_runs=[from_wire(one, ScheduleRun) for one in cron.get("last_runs", ())],
        level=level,
    )


def runs_of(jobs: list[Answer], options: dict[int, Options]) -> list[r.Run]:
    """Neighbours that have all but the id and the payload in common are one run."""
    runs: list[r.Run] = []
    for job in jobs:
        payload = bytes_of(job["data"], options[job["id"]].codec)[0]
        one = r.Run(
            job["queue"],
            [job["id"]],
            [payload],
            options[job["id"]],
            job["attempts"],
            job["created_at"],
            job["lease_until"],
        )
        if runs and shared(runs[-1]) == shared(one):
            last = runs[-1]
            runs[-1] = msgspec.structs.replace(last, ids=[*last.ids, *one.ids], payloads=[*last.payloads, payload])
        else:
            runs.append(one)
    return runs


def shared(run: r.Run) -> tuple[Any, ...]:
    return run.queue, run.options, run.attempt, run.pushed_at, run.lease_until


def from_wire(value: Answer, kind: type[Any]) -> Any:
    """A value of Stoker's own dialect; over JSON its bytes are base64."""
    return msgspec.convert(value, kind, strict=True)


def is_pushed_between(job: r.JobView, command: c.Browse) -> bool:
    after = command.pushed_from is None or job.pushed_at >= command.pushed_from
    return after and (command.pushed_before is None or job.pushed_at < command.pushed_before)


def has_entered_between(job: r.JobView, command: c.ListDead) -> bool:
    assert job.dead is not None
    after = command.entered_from is None or job.dead.entered_at >= command.entered_from
    return after and (command.entered_before is None or job.dead.entered_at < command.entered_before)


# --- the brokers -------------------------------------------------------------------------------------


class Backing:
    """A server in another process, and a stranger's client of it."""

    has_transactions = False

    def __init__(self, transport: str, make: Any, settings: Settings, limits: Limits, shards: int) -> None:
        self._process: ServerProcess = the_process()
        self._world, where = self._process.call("open", transport, settings, limits, shards, False)
        self._client: Client = make(where)
        self.broker = Dialect(self._client, self)

    @property
    def now(self) -> int:
        return int(self._process.call("now", self._world))

    def advance(self, ms: int) -> None:
        self._process.call("advance", self._world, ms)

    def picture(self, tenant: str) -> Any:
        return self._process.call("picture", self._world, tenant)

    def close(self) -> None:
        self._client.close()
        self._process.call("close", self._world)


def lines(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("tcp", lambda where: OverSockets(Lines, where), settings, limits, shards)


def frames(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("tcp", lambda where: OverSockets(Frames, where), settings, limits, shards)


def rest(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("http", Rest, settings, limits, shards)


def api_command(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("http", ApiCommand, settings, limits, shards)
