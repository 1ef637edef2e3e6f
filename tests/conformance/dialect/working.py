"""Pushing, pulling and settling jobs in flashQ's words. Where a route names one job, a batch is said job by job."""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.options import Options
from stoker.model.states import State
from tests.conformance.dialect.speaking import NotInDialect, Speaker
from tests.conformance.dialect.words import (
    SETTLING,
    STATES,
    each_token,
    failed_of,
    options_fields,
    runs_of,
    tokens_of,
    value_of,
)
from tests.reference_clients.calling import Answer, Refused
from tests.reference_clients.web import Rest


class Working(Speaker):
    """What producers and workers say."""

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
                    reason=command.reason,
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
