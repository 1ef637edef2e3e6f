"""Pulls, and what workers say of their deliveries."""

from collections.abc import Sequence
from typing import Any

from stoker.brokers.redis.calls import ListWait, Plan, PlanContext, Rejected, ScriptCall, decode
from stoker.brokers.redis.views import options_of
from stoker.brokers.redis.waiting import wake_key
from stoker.engine import checks, pulling, settling
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.options import CODECS
from stoker.model.reasons import Reason
from stoker.model.states import STATES

# --- pulls -----------------------------------------------------------------------------------------


def pull(context: PlanContext, command: c.Pull) -> Plan[r.Delivery]:
    pulling.check_pull(context.checker, command)
    for name in command.queues:
        checks.name(name)
    params: dict[str, Any] = {
        "queues": list(command.queues),
        "count": command.count,
        "worker": command.worker,
        "bytes": context.limits.reply_bytes_max,
        "waits": command.wait_ms > 0,
    }
    if command.lease_ms is not None:
        params["lease"] = command.lease_ms
    done = yield ScriptCall("pull", params | {"wait": command.wait_ms})
    ends_at = done.now + command.wait_ms
    while True:
        delivery = delivery_of(done.values)
        if delivery.runs or done.now >= ends_at or not command.wait_ms:
            return delivery
        looks = [at for at in (ends_at, done.next_at, delivery.next_at) if at is not None and at >= 0]
        yield ListWait([wake_key(name) for name in command.queues], min(looks), ends_at)
        done = yield ScriptCall("pull", params | {"ends": ends_at})


def delivery_of(values: Sequence[Any]) -> r.Delivery:
    token, chance = int(values[0]), values[1]
    if not token:
        return r.Delivery(next_at=None if chance < 0 else chance)
    _, _, packed, flat, payloads = values
    options = dict(zip(flat[::2], map(options_of, flat[1::2]), strict=True))
    runs, place = [], 0
    for queue, number, attempt, at, till, pairs in decode(packed):
        ids = ids_of(pairs)
        own = payloads[place : place + len(ids)]
        place += len(ids)
        runs.append(r.Run(queue, ids, own, options[number], attempt, at, till))
    return r.Delivery(token, runs)


def ids_of(pairs: Sequence[int]) -> Sequence[int]:
    """Ids from neighbours: the first of them, and how many they are."""
    if len(pairs) == 2:
        return range(pairs[0], pairs[0] + pairs[1] * STEP, STEP)
    return tuple(
        first + place * STEP for first, count in zip(pairs[::2], pairs[1::2], strict=True) for place in range(count)
    )


# --- settling --------------------------------------------------------------------------------------


def settle_params(what: str, command: Any, **more: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"what": what, "ids": list(command.ids), **more}
    if isinstance(command.tokens, int):
        params["token"] = command.tokens
    elif command.tokens is not None:
        params["tokens"] = list(command.tokens)
    return params


def codes_of(refused: Sequence[tuple[int, str]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for job_id, code in refused:
        found.setdefault(job_id, code)
    return found


def ack(context: PlanContext, command: c.Ack) -> Plan[r.Settled]:
    settling.check(context.checker, command)
    params = settle_params("ack", command, codec=command.codec)
    args: tuple[bytes, ...] = ()
    if command.results is not None:
        params["results"] = "".join("0" if result is None else "1" for result in command.results)
        args = tuple(result or b"" for result in command.results)
    done = yield ScriptCall("settle", params, args)
    count, refused = decode(done.values[0])
    return r.Settled(count, codes_of(refused), context.level)


def fail(context: PlanContext, command: c.Fail) -> Plan[r.Failed]:
    settling.check(context.checker, command)
    limits = context.limits
    params = settle_params(
        "fail",
        command,
        error=settling.clip(command.error, limits.error_chars_max),
        error_class=settling.clip(command.error_class, limits.key_chars_max),
        stack=settling.clip(command.stack, limits.stack_chars_max),
    )
    if not command.retry:
        params["final"] = str(Reason(command.reason or Reason.EXPLICIT_FAIL))
    if command.delay_ms is not None:
        params["delay"] = command.delay_ms
    done = yield ScriptCall("settle", params)
    outcomes, refused = decode(done.values[0])
    jobs = [r.FailedJob(job_id, STATES[state], due) for job_id, state, due in outcomes]
    return r.Failed(jobs, codes_of(refused), context.level)


def release(context: PlanContext, command: c.Release) -> Plan[r.Settled]:
    settling.check(context.checker, command)
    note = settling.clip(command.note, context.limits.error_chars_max)
    done = yield ScriptCall("settle", settle_params("release", command, delay=command.delay_ms, note=note))
    count, refused = decode(done.values[0])
    return r.Settled(count, codes_of(refused), context.level)


def extend(context: PlanContext, command: c.Extend) -> Plan[r.Extended]:
    settling.check(context.checker, command)
    params = settle_params("extend", command, renew=command.renew)
    if command.lease_ms is not None:
        params["lease"] = command.lease_ms
    done = yield ScriptCall("settle", params)
    (count, till, cancelled), refused = decode(done.values[0])
    return r.Extended(count, till, codes_of(refused), cancelled)


# --- progress, logs, partial results -----------------------------------------------------------------


def reported(context: PlanContext, job_id: int, token: int | None, call: ScriptCall, verb: str) -> Plan[r.Done]:
    try:
        yield call
    except Rejected as rejected:
        code = rejected.code
        if rejected.message == b"held":
            told = f"job {checks.short(job_id)}: {settling.REFUSED[code]}"
            raise errors.BY_CODE[code](told) from None
        if rejected.code != "wrong_state":
            raise
        state = STATES[int(rejected.message)]
        raise errors.WrongState(f"job {job_id} is {state}: it can no longer {verb}") from None
    return r.Done(level=context.level)


def report(what: str, command: Any, **more: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"what": what, "id": command.id, **more}
    if command.token is not None:
        params["token"] = command.token
    return params


def set_progress(context: PlanContext, command: c.SetProgress) -> Plan[r.Done]:
    checks.number(command.percent, "percent", 0, 100)
    checks.text(command.message, "message", context.limits.message_chars_max)
    settling.check_settling(context.checker, (command.id,), command.token)
    params = report("progress", command, percent=command.percent, message=command.message)
    return (yield from reported(context, command.id, command.token, ScriptCall("report", params), ""))


def append_log(context: PlanContext, command: c.AppendLog) -> Plan[r.Done]:
    checks.text(command.message, "message", 2**31)
    checks.text(command.level, "level", 32, 1)
    if command.token is not None:
        settling.check_settling(context.checker, (command.id,), command.token)
    message = settling.clip(command.message, context.limits.log_line_chars_max)
    params = report("log", command, level=command.level, message=message)
    return (yield from reported(context, command.id, command.token, ScriptCall("report", params), "be logged to"))


def append_partial(context: PlanContext, command: c.AppendPartial) -> Plan[r.Done]:
    checks.payload(command.data, context.limits, "data", context.limits.result_bytes_max)
    if command.index is not None:
        checks.number(command.index, "index", 0, 2**53 - 1)
    checks.codec(command.codec)
    settling.check_settling(context.checker, (command.id,), command.token)
    params = report("partial", command, codec=CODECS.index(command.codec))
    if command.index is not None:
        params["index"] = command.index
    call = ScriptCall("report", params, (command.data,))
    return (yield from reported(context, command.id, command.token, call, ""))
