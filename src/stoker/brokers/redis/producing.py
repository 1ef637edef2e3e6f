"""Pushes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stoker.brokers.redis.calls import Plan, PlanContext, Rejected, ScriptCall, decode
from stoker.brokers.redis.views import encode_options
from stoker.engine import checks, pushing
from stoker.engine.classify import refuse_behind, refuse_cycles
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.options import Options


def is_own(options: Options) -> bool:
    """Whether the options are hardly those of another job: then they are kept for this job alone."""
    return (
        options.unique_key is not None
        or options.custom_id is not None
        or options.debounce_id is not None
        or options.trace is not None
        or len(options.depends_on) > 0
    )


def push(context: PlanContext, command: c.Push) -> Plan[r.Pushed]:
    checks.payload(command.payload, context.limits)
    checks.options(command.options, context.limits)
    checks.name(command.queue)
    refuse_transactional(command)
    if command.options.depends_on:
        refuse_edges_of_one(command.options, frozenset())
    batch = c.PushBatch(command.queue, (command.payload,), command.options, sending=command.sending)
    try:
        done = yield call_of(batch, batch.payloads, {})
    except Rejected as rejected:
        if rejected.code == "unknown_edges":
            refuse_edges_of_one(command.options, frozenset(decode(rejected.message)))
        raise refusal(context, batch, rejected) from None
    reply = reply_of(decode(done.values[0]), context.level)
    by = reply.duplicates.get(0)
    return r.Pushed(reply.ids[0], by is None, by, context.level)


def push_batch(context: PlanContext, command: c.PushBatch) -> Plan[r.PushedBatch]:
    limits = context.limits
    checks.batch(command.payloads, command.each, limits)
    checks.options(command.options, limits)
    checks.edges(len(command.payloads), command.each, command.options, limits)
    if command.request_key is not None:
        checks.key(command.request_key, "request_key", limits)
    checks.name(command.queue)
    refuse_transactional(command)
    each = command.each or [command.options] * len(command.payloads)
    refused: dict[int, r.Refusal] = {}
    if command.each is not None or not checks.payloads_are_fine(command.payloads, limits):
        refused = pushing.refuse_malformed(context.checker, command.payloads, each)
    if command.each is not None or command.options.depends_on:
        refuse_edges(each, refused, frozenset())
    return (yield from sent(context, command, refused, each))


def refuse_transactional(command: c.Push | c.PushBatch) -> None:
    if command.durability is not None and command.durability not in r.LEVELS:
        raise errors.InvalidRequest(
            f"invalid durability {checks.short(command.durability)}: expected one of {', '.join(r.LEVELS)}"
        )
    if command.sending is not None:
        checks.sending(command.sending)


def refuse_edges_of_one(options: Options, unknown: frozenset[int]) -> None:
    refused: dict[int, r.Refusal] = {}
    refuse_edges([options], refused, unknown)
    for one in refused.values():
        raise errors.BY_CODE[one.code](one.message)


def refuse_all(refused: Mapping[int, r.Refusal]) -> None:
    """An atomic batch is refused for its first item that is."""
    for number, one in sorted(refused.items()):
        raise errors.BY_CODE[one.code](f"item {number}: {one.message}; nothing was pushed")


def sent(
    context: PlanContext, command: c.PushBatch, refused: dict[int, r.Refusal], each: Sequence[Options]
) -> Plan[r.PushedBatch]:
    """Push what is not refused. Where an edge names a job that never was, that is refused, too, and the rest sent."""
    unknown: frozenset[int] = frozenset()
    while True:
        if command.atomic:
            refuse_all(refused)
        if len(refused) == len(each) and command.sending is None and command.request_key is None:
            return r.PushedBatch([0] * len(each), refused)
        try:
            done = yield call_of(command, each, refused)
        except Rejected as rejected:
            if rejected.code == "circles":
                refuse_circles(decode(rejected.message), refused)
                continue
            if rejected.code != "unknown_edges":
                raise refusal(context, command, rejected) from None
            unknown |= frozenset(decode(rejected.message))
            refuse_edges(each, refused, unknown)
            continue
        return reply_of(decode(done.values[0]), context.level)


def refusal(context: PlanContext, command: c.PushBatch, rejected: Rejected) -> errors.StokerError:
    said = rejected.message.decode()
    sending = command.sending
    if said == "queues":
        most = context.limits.queues_per_tenant_max
        return errors.LimitExceeded(f"{most} queues are there already: obliterate some, or use fewer names")
    if rejected.code == "memory_full":
        return errors.MemoryFull(said)
    assert sending is not None
    if rejected.code == "invalid":
        return errors.InvalidRequest(
            f"invalid sending: number {sending.number} is below {sending.settled}, which settles it"
        )
    return errors.LimitExceeded(
        f"sender {sending.sender!r} has {said} pushes that it has not settled: "
        "say with `settled` which answers have come"
    )


def call_of(command: c.PushBatch, each: Sequence[Any], refused: Mapping[int, r.Refusal]) -> ScriptCall:
    numbers: Sequence[int] = range(len(each))
    if refused:
        numbers = [number for number in numbers if number not in refused]
    kinds: Iterable[Options] = (command.options,) if numbers else ()
    params: dict[str, Any] = {"queue": command.queue}
    if command.each is not None:
        by_options: dict[Options, int] = {}
        places = [by_options.setdefault(each[number], len(by_options) + 1) for number in numbers]
        kinds = by_options
        if len(by_options) > 1:
            params["each"] = places
    params["own"] = [int(is_own(one)) for one in kinds]
    if any(edge.item is not None for one in kinds for edge in one.depends_on):
        params["items_named"] = True
    if refused:
        params["numbers"] = numbers
        params["refused"] = [(number, said.code, said.message) for number, said in sorted(refused.items())]
    if command.sending is not None:
        params["sending"] = (command.sending.sender, command.sending.number, command.sending.settled)
    if command.request_key is not None:
        params["request"] = command.request_key
    payloads = command.payloads if not refused else [command.payloads[number] for number in numbers]
    return ScriptCall("push", params, (*map(encode_options, kinds), *payloads))


def reply_of(answer: Sequence[Any], level: r.Level) -> r.PushedBatch:
    given, is_run, duplicates, numbers, refused = answer
    if is_run and not refused:
        first, count = given
        return r.PushedBatch(range(first, first + count * STEP, STEP), level=level)
    if is_run and given:
        first, count = given
        given = range(first, first + count * STEP, STEP)
    numbers = numbers if numbers is not None else range(len(given))
    ids = [0] * (len(given) + len(refused or ()))
    for number, job_id in zip(numbers, given, strict=True):
        ids[number] = job_id
    return r.PushedBatch(
        ids,
        {number: r.Refusal(code, message) for number, code, message in refused or ()},
        {numbers[item - 1]: by for item, by in duplicates},
        level,
    )


def refuse_circles(found: Sequence[Any], refused: dict[int, r.Refusal]) -> None:
    """Items that wait for a duplicate of themselves, or of an item that waits for them: found with the keys."""
    waiting_for, named = found
    refuse_cycles(dict(waiting_for), refused)
    refuse_behind(dict(named), refused)


def refuse_edges(each: Sequence[Options], refused: dict[int, r.Refusal], unknown: frozenset[int]) -> None:
    """Edges to jobs that never were, to refused items, and in circles."""
    waiting_for: dict[int, list[int]] = {}
    for number, options in enumerate(each):
        if number in refused or not options.depends_on:
            continue
        for edge in options.depends_on:
            if edge.item is None and (edge.id in unknown or edge.id <= 0):
                told = f"dependency {edge.id}: no job has ever had this id"
                refused[number] = r.Refusal("unknown_dependency", told)
                break
            if edge.item is not None and (edge.item >= len(each) or edge.item == number):
                told = f"dependency on item {edge.item}: this push has no other item of that number"
                refused[number] = r.Refusal("unknown_dependency", told)
                break
        else:
            waiting_for[number] = [edge.item for edge in options.depends_on if edge.item is not None]
    if waiting_for:
        refuse_behind(waiting_for, refused)
        refuse_cycles(waiting_for, refused)
