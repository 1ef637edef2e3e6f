"""Decide pushes: what is refused, what is a duplicate, what is created.

A plain push or batch is one record. Items with keys or edges are first classified one after another without changing
anything, since an item may name a later one; then the records are emitted in order.
"""

from collections.abc import Sequence

from stoker.engine import checks, fast_path, senders
from stoker.engine.classify import ClassifiedItem, Classifier, refuse_behind, refuse_cycles
from stoker.engine.dependencies import end_dependent, first_failed, is_known, note_foreign, settle, watch
from stoker.engine.ending import cancel_jobs
from stoker.engine.jobs import BLOCKED, CANCELLED
from stoker.engine.old_keys import fields_of, old_reply
from stoker.engine.plain_options import is_plain
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP, make_id
from stoker.model.options import Options
from stoker.model.reasons import Reason
from stoker.records import records as rec
from stoker.records.stored import sizes_of


def push(shard: ShardState, tenant: str, command: c.Push, now: int) -> r.Pushed:
    sending = command.sending
    if sending is None:
        return push_one(shard, tenant, command, now)
    before = senders.answer_before(shard, tenant, sending)
    if before is not None:
        return senders.as_one(before, shard.level)
    reply = push_one(shard, tenant, command, now)
    senders.remember_one(shard, shard.queue(tenant, command.queue), sending, reply, now)
    return reply


def push_one(shard: ShardState, tenant: str, command: c.Push, now: int) -> r.Pushed:
    options, payload = command.options, command.payload
    if type(payload) is not bytes or len(payload) > shard.limits.payload_bytes_max:
        checks.payload(payload, shard.limits)
    simple = id(options) in shard.simple
    if not simple:
        checks.options(options, shard.limits)
        options = shard.intern(options)
        simple = id(options) in shard.simple
    queue = shard.queue_for_writing(tenant, command.queue)
    if simple and queue.known:
        return fast_path.push(shard, queue, payload, options, now)
    if is_plain(options):
        first = push_plain(shard, queue, (payload,), len(payload), options, now)
        return r.Pushed(first, True, None, shard.level)
    refused: dict[int, r.Refusal] = {}
    refuse_edges(shard, [options], refused)
    for refusal in refused.values():
        raise errors.BY_CODE[refusal.code](refusal.message)
    item = push_each(shard, queue, [payload], [options], refused, now)[0]
    return r.Pushed(item.id, item.duplicate_by is None, item.duplicate_by, shard.level)


def push_batch(shard: ShardState, tenant: str, command: c.PushBatch, now: int) -> r.PushedBatch:
    limits = shard.limits
    checks.batch(command.payloads, command.each, limits)
    checks.options(command.options, limits)
    checks.edges(len(command.payloads), command.each, command.options, limits)
    if command.request_key is not None:
        checks.key(command.request_key, "request_key", limits)
    if command.sending is not None:
        before = senders.answer_before(shard, tenant, command.sending)
        if before is not None:
            return before
    queue = shard.queue_for_writing(tenant, command.queue)
    if command.request_key is not None:
        answered = answer_to(shard, queue, command.request_key, now)
        if answered is not None:
            return answered
    reply = push_many(shard, queue, command.payloads, command.options, command.each, now, atomic=command.atomic)
    if command.request_key is not None:
        remember_request(shard, queue, command.request_key, reply, now)
    if command.sending is not None:
        senders.remember(shard, queue, command.sending, reply, now)
    return reply


def answer_to(shard: ShardState, queue: QueueState, request_key: str, now: int) -> r.PushedBatch | None:
    """The answer that was given to this request before, if any."""
    request = queue.requests.get(request_key)
    if request is not None:
        reply: r.PushedBatch = request.reply
        return reply
    found = old_reply(shard, queue, request_key, now)
    if found is not None:
        shard.drop_unknown(queue)  # this answer, which is no longer in memory, may be all that the queue had
    return found


def push_many(
    shard: ShardState,
    queue: QueueState,
    payloads: Sequence[bytes],
    options: Options,
    each: Sequence[Options] | None,
    now: int,
    *,
    atomic: bool = False,
) -> r.PushedBatch:
    """Push jobs to one queue, with or without the same options."""
    sizes = checks.sizes_if_fine(payloads, shard.limits) if each is None and is_plain(options) else None
    if sizes is not None:
        first = push_plain(shard, queue, tuple(payloads), sizes, options, now)
        return r.PushedBatch(range(first, first + len(payloads) * STEP, STEP))
    each = each or [options] * len(payloads)
    refused = refuse(shard, payloads, each)
    ids = [0] * len(payloads)
    items = push_each(shard, queue, payloads, each, refused, now, atomic=atomic)
    for item in items:
        ids[item.number] = item.id
    duplicates = {item.number: item.duplicate_by for item in items if item.duplicate_by}
    return r.PushedBatch(ids, refused, duplicates)


def push_plain(
    shard: ShardState,
    queue: QueueState,
    payloads: tuple[bytes, ...],
    sizes: int | list[int],
    options: Options,
    now: int,
) -> int:
    """Push jobs whose options need no other state. Returns the first id."""
    first = make_id(shard.sequence + 1, shard.number)
    due = due_of(shard, options, now)
    shard.emit(rec.JobsPushed(now, queue.tenant.name, queue.name, first, payloads, options, due, sizes))
    return first


def due_of(shard: ShardState, options: Options, now: int) -> int:
    due = now + options.delay_ms if options.run_at is None else options.run_at + shard.ahead_ms
    return due if due > now else 0


def remember_request(shard: ShardState, queue: QueueState, key: str, reply: r.PushedBatch, now: int) -> None:
    runs, refused, duplicates = fields_of(reply)
    expires_at = now + shard.settings.request_ttl_ms
    shard.emit(rec.RequestRemembered(now, queue.tenant.name, queue.name, key, runs, refused, duplicates, expires_at))


# --- classifying -----------------------------------------------------------------------------------


def refuse(shard: ShardState, payloads: Sequence[bytes], options: Sequence[Options]) -> dict[int, r.Refusal]:
    """The items that cannot be pushed, whatever the keys are."""
    refused = refuse_malformed(shard, payloads, options)
    refuse_edges(shard, options, refused)
    return refused


def push_each(
    shard: ShardState,
    queue: QueueState,
    payloads: Sequence[bytes],
    options: Sequence[Options],
    refused: dict[int, r.Refusal],
    now: int,
    *,
    atomic: bool = False,
) -> list[ClassifiedItem]:
    """Push the items that are not refused, in order. Only items that name each other are classified together."""
    refuse_whole(refused, atomic)
    items = [ClassifiedItem(n, payload, options[n]) for n, payload in enumerate(payloads) if n not in refused]
    if any(edge.item is not None for item in items for edge in item.options.depends_on):
        while not Classifier(shard, queue, items, now).run(refused):
            refuse_whole(refused, atomic)
            items = [ClassifiedItem(n, payload, options[n]) for n, payload in enumerate(payloads) if n not in refused]
        push_items(shard, queue, items, now)
        return items
    at = 0
    while at < len(items):
        run = neighbours(items, at)
        if not shares_record(run[0].options):
            Classifier(shard, queue, run, now).run(refused)
        else:
            for place, item in enumerate(run, shard.sequence + 1):
                item.id = make_id(place, shard.number)
        push_items(shard, queue, run, now)
        at += len(run)
    return items


def refuse_whole(refused: dict[int, r.Refusal], atomic: bool) -> None:
    """Refuse an atomic batch because of one refused item, with the error of that item."""
    if atomic and refused:
        number, refusal = min(refused.items())
        raise errors.BY_CODE[refusal.code](f"item {number}: {refusal.message}; nothing was pushed")


def neighbours(items: list[ClassifiedItem], at: int) -> list[ClassifiedItem]:
    """The item and those right after it that can share its record."""
    first = items[at]
    stop = at + 1
    if shares_record(first.options):
        while stop < len(items) and items[stop].options == first.options:
            stop += 1
    return items[at:stop]


def refuse_malformed(shard: ShardState, payloads: Sequence[bytes], options: Sequence[Options]) -> dict[int, r.Refusal]:
    refused: dict[int, r.Refusal] = {}
    checked: object = refused  # nothing has been checked yet
    for number, payload in enumerate(payloads):
        try:
            checks.payload(payload, shard.limits)
            if options[number] is not checked:
                checks.options(options[number], shard.limits)
                checked = options[number]
        except errors.Refused as error:
            refused[number] = r.Refusal(error.code, error.message)
    return refused


def refuse_edges(shard: ShardState, options: Sequence[Options], refused: dict[int, r.Refusal]) -> None:
    """Refuse edges to jobs that never existed, edges to refused items, and cycles."""
    waiting_for: dict[int, list[int]] = {}
    for number, option in enumerate(options):
        if number in refused or not option.depends_on:
            continue
        for edge in option.depends_on:
            if edge.item is None and not is_known(shard, edge.id):
                told = f"dependency {edge.id}: no job has ever had this id"
                refused[number] = r.Refusal("unknown_dependency", told)
                break
            if edge.item is not None and (edge.item >= len(options) or edge.item == number):
                told = f"dependency on item {edge.item}: this push has no other item with that number"
                refused[number] = r.Refusal("unknown_dependency", told)
                break
        else:
            waiting_for[number] = [edge.item for edge in option.depends_on if edge.item is not None]
    refuse_behind(waiting_for, refused)
    refuse_cycles(waiting_for, refused)


# --- emitting --------------------------------------------------------------------------------------


def push_items(shard: ShardState, queue: QueueState, items: list[ClassifiedItem], now: int) -> None:
    """Emit the records of classified items. Neighbours with the same plain options become one record."""
    at = 0
    while at < len(items):
        item = items[at]
        if item.duplicate_by is not None:
            if item.extends:
                extend_key(shard, queue, item.options, now)
            at += 1
            continue
        run = neighbours(items, at)
        push_run(shard, queue, item, tuple(other.payload for other in run), now)
        at += len(run)
    if shard.watching:
        watch(shard, queue.tenant.name, now)


def shares_record(options: Options) -> bool:
    """Whether neighbours with these options can be one record, because no option is about one job alone."""
    keys = (options.unique_key, options.custom_id, options.debounce_id)
    return not options.depends_on and keys == (None, None, None)


def push_run(shard: ShardState, queue: QueueState, item: ClassifiedItem, payloads: tuple[bytes, ...], now: int) -> None:
    options = item.options
    if item.replaces:
        cancel_jobs(shard, queue, [shard.part(item.replaces)], CANCELLED, Reason.REPLACED, now)
    due = due_of(shard, options, now)
    shard.emit(rec.JobsPushed(now, queue.tenant.name, queue.name, item.id, payloads, options, due, sizes_of(payloads)))
    if not options.depends_on:
        return
    job = shard.index.get(item.id)
    if job is not None and job.state == BLOCKED:
        policy = first_failed(shard, job)
        if policy is not None:
            end_dependent(shard, job, policy, now)
            settle(shard, now)
        else:
            note_foreign(shard, job)


def extend_key(shard: ShardState, queue: QueueState, options: Options, now: int) -> None:
    key = options.unique_key
    if key is None or key not in queue.unique_keys:
        return
    expires_at = now + options.unique_ttl_ms if options.unique_ttl_ms else 0
    shard.emit(rec.KeyExtended(now, queue.tenant.name, queue.name, key, expires_at))
