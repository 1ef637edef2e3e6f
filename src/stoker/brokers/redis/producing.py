"""Pushes."""

from collections.abc import Mapping, Sequence
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

OWN = ("unique_key", "custom_id", "debounce_id", "trace")
"""Options that are seldom those of another job: they are kept beside the job."""


def push(context: PlanContext, command: c.Push) -> Plan[r.Pushed]:
    checks.payload(command.payload, context.limits)
    checks.options(command.options, context.limits)
    checks.name(command.queue)
    refuse_transactional(command)
    refused: dict[int, r.Refusal] = {}
    refuse_edges([command.options], refused, frozenset())
    raise_first(refused, atomic=False)
    batch = c.PushBatch(command.queue, (command.payload,), command.options, sending=command.sending)
    reply = yield from sent(context, batch, refused, atomic=True, single=True)
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
    refuse_edges(each, refused, frozenset())
    return (yield from sent(context, command, refused, atomic=command.atomic))


def refuse_transactional(command: c.Push | c.PushBatch) -> None:
    if command.durability is not None and command.durability not in r.LEVELS:
        raise errors.InvalidRequest(
            f"invalid durability {checks.short(command.durability)}: expected one of {', '.join(r.LEVELS)}"
        )
    if command.sending is not None:
        checks.sending(command.sending)


def raise_first(refused: Mapping[int, r.Refusal], *, atomic: bool) -> None:
    for number, refusal in sorted(refused.items()):
        said = f"item {number}: {refusal.message}; nothing was pushed" if atomic else refusal.message
        raise errors.BY_CODE[refusal.code](said)


def sent(
    context: PlanContext, command: c.PushBatch, refused: dict[int, r.Refusal], *, atomic: bool, single: bool = False
) -> Plan[r.PushedBatch]:
    """Push what is not refused. Where an edge names a job that never was, that is refused, too, and the rest sent."""
    unknown: frozenset[int] = frozenset()
    each = command.each or [command.options] * len(command.payloads)
    while True:
        if atomic and not single:
            raise_first(refused, atomic=True)
        elif single:
            raise_first(refused, atomic=False)
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
        return reply_of(decode(done.values[0]), len(each), context.level)


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


def call_of(command: c.PushBatch, each: Sequence[Options], refused: Mapping[int, r.Refusal]) -> ScriptCall:
    kinds: dict[Options, int] = {}
    numbers = [number for number in range(len(each)) if number not in refused]
    if command.each is None:
        kinds[command.options] = 1
        places = None
    else:
        places = [kinds.setdefault(each[number], len(kinds) + 1) for number in numbers]
    params: dict[str, Any] = {
        "queue": command.queue,
        "kinds": len(kinds),
        "own": [int(any(getattr(one, name) is not None for name in OWN) or bool(one.depends_on)) for one in kinds],
        "items_named": any(edge.item is not None for one in kinds for edge in one.depends_on),
    }
    if places is not None and len(kinds) > 1:
        params["each"] = places
    if refused:
        params["numbers"] = numbers
        params["refused"] = [(number, said.code, said.message) for number, said in sorted(refused.items())]
    if command.sending is not None:
        params["sending"] = (command.sending.sender, command.sending.number, command.sending.settled)
    if command.request_key is not None:
        params["request"] = command.request_key
    payloads = command.payloads if not refused else [command.payloads[number] for number in numbers]
    return ScriptCall("push", params, (*map(encode_options, kinds), *payloads))


def reply_of(answer: Sequence[Any], items: int, level: r.Level) -> r.PushedBatch:
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
