"""Control of queues and jobs, and dead letters, in flashQ's words."""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.bulk import Bulks, BulkView
from stoker.model.history import History, Timings
from stoker.model.states import State
from tests.conformance.dialect.speaking import NotInDialect, Speaker
from tests.conformance.dialect.words import failed_of, found_job, has_entered_between, value_of, view_of


class Control(Speaker):
    """What operators say."""

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

    def say_get_priorities(self, tenant: str, command: c.GetPriorities) -> r.Priorities:
        answer = self._call("PRIORITIES", tenant, queue=command.queue)
        return r.Priorities({int(priority): count for priority, count in answer["waiting"].items()})

    def say_get_timings(self, tenant: str, command: c.GetTimings) -> Timings:
        return msgspec.convert(self._call("TIMINGS", tenant, queue=command.queue), Timings)

    def say_get_history(self, tenant: str, command: c.GetHistory) -> History:
        asked = {name: getattr(command, name) for name in command.__struct_fields__}
        return msgspec.convert(self._call("HISTORY", tenant, **asked), History)

    def say_get_dead_groups(self, tenant: str, command: c.GetDeadGroups) -> r.DeadGroups:
        answer = self._call("DLQGROUPS", tenant, queue=command.queue, limit=command.limit)
        return msgspec.convert({**answer}, r.DeadGroups)

    def say_start_bulk(self, tenant: str, command: c.StartBulk) -> BulkView:
        asked = {name: getattr(command, name) for name in ("key", "action", "priority", "rate")}
        asked["filter"] = msgspec.to_builtins(command.filter)
        return self._bulk("BULKSTART", tenant, **asked)

    def say_get_bulk(self, tenant: str, command: c.GetBulk) -> BulkView:
        return self._bulk("BULKGET", tenant, key=command.key)

    def say_stop_bulk(self, tenant: str, command: c.StopBulk) -> BulkView:
        return self._bulk("BULKSTOP", tenant, key=command.key)

    def say_list_bulks(self, tenant: str, command: c.ListBulks) -> Bulks:
        return Bulks(msgspec.convert(self._call("BULKLIST", tenant)["bulks"], list[BulkView]))

    def _bulk(self, word: str, tenant: str, **asked: Any) -> BulkView:
        return msgspec.convert(self._call(word, tenant, **asked)["bulk"], BulkView)

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
