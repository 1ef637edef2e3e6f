"""Options, payloads and jobs in flashQ's words, and back. Nothing here does I/O."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound
from stoker.model.options import DEFAULT_OPTIONS, Codec, Options
from stoker.model.reasons import Reason
from stoker.model.schedules import Schedule, ScheduleRun, ScheduleView
from stoker.model.states import State
from tests.conformance.dialect.speaking import NotInDialect
from tests.reference_clients.calling import Answer

FIELDS: dict[str, str] = {
    "delay_ms": "delay",
    "ttl_ms": "ttl",
    "timeout_ms": "timeout",
    "lease_ms": "stall_timeout",
    "custom_id": "job_id",
    "debounce_ms": "debounce_ttl",
    "log_lines_max": "keep_logs",
    "stack_lines_max": "stack_trace_limit",
}
"""Our names of options, where flashQ has others."""
MEANS_DEFAULT = ("lease_ms", "keep_completed_count")
"""Options of which flashQ's 0 means what is there if nothing is said."""
STATES: dict[str, State] = {**{state.value: state for state in State}, "waiting-children": State.BLOCKED}
SETTLING = ("not_found", "lost_lease", "wrong_state")
"""What a job of many may be refused with."""

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
        heartbeat_at=job.get("last_heartbeat", 0),
        worker=job.get("worker") or "",
        claim=job.get("claim"),
        cancel_requested=job.get("cancel_requested", False),
        finished_at=job.get("completed_at", 0),
        result=result_of(job.get("result"))[0],
        reason=reason,
        error="" if error == reason else error,
        stack=job.get("stack") or "",
        error_class=job.get("error_class") or "",
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


def has_entered_between(job: r.JobView, command: c.ListDead) -> bool:
    assert job.dead is not None
    after = command.entered_from is None or job.dead.entered_at >= command.entered_from
    return after and (command.entered_before is None or job.dead.entered_at < command.entered_before)
