"""Schedules in flashQ's words."""

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.schedules import SchedulePage, ScheduleView
from tests.conformance.dialect.speaking import Speaker
from tests.conformance.dialect.words import options_fields, schedule_of, value_of
from tests.reference_clients.calling import Refused

RULES = "at zone start_at end_at overlap skip_if_no_worker misfire misfires_max grace_ms jitter_ms template".split()


class Schedules(Speaker):
    """What those say who want something done again and again."""

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
