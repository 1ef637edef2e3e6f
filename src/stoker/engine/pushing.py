"""Deciding about pushes: what is refused, what is a duplicate, what is created.

A plain push or batch is one record. Items with keys or edges are first classified one after another without
changing anything, since later items may be named by earlier ones; then the records are emitted in order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from stoker.engine import checks, quick
from stoker.engine.apply_push import is_plain
from stoker.engine.edges import BAD, end_dependent, first_failed, is_known, settle, standing
from stoker.engine.ends import cancel_jobs
from stoker.engine.state import ACTIVE, BLOCKED, CANCELLED, Key, Queue
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP, make_id
from stoker.model.options import Dependency, Options
from stoker.model.states import Reason
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard


class Item(msgspec.Struct):
    """What will become of one item of a batch."""

    number: int
    payload: bytes
    options: Options
    id: int = 0
    duplicate_by: r.DuplicateBy | None = None
    replaces: int = 0
    extends: bool = False
    doomed: bool = False
    """It will end as soon as it is pushed, because a dependency has failed."""


def push(shard: "Shard", tenant: str, command: c.Push, now: int) -> r.Pushed:
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
        return quick.push(shard, queue, payload, options, now)
    if is_plain(options):
        return r.Pushed(push_plain(shard, queue, [payload], options, now))
    refused: dict[int, r.Refusal] = {}
    refuse_edges(shard, [options], refused)
    for refusal in refused.values():
        raise errors.BY_CODE[refusal.code](refusal.message)
    item = push_each(shard, queue, [payload], [options], refused, now)[0]
    return r.Pushed(item.id, item.duplicate_by is None, item.duplicate_by)


def push_batch(shard: "Shard", tenant: str, command: c.PushBatch, now: int) -> r.PushedBatch:
    limits = shard.limits
    checks.batch(command.payloads, command.each, limits)
    if command.each is None:
        checks.options(command.options, limits)
    if command.request_key is not None:
        checks.key(command.request_key, "request_key", limits)
    queue = shard.queue_for_writing(tenant, command.queue)
    if command.request_key is not None and command.request_key in queue.requests:
        reply: r.PushedBatch = queue.requests[command.request_key].reply
        return reply
    reply = push_many(shard, queue, command.payloads, command.options, command.each, now, atomic=command.atomic)
    if command.request_key is not None:
        remember_request(shard, queue, command.request_key, reply, now)
    return reply


def push_many(
    shard: "Shard",
    queue: Queue,
    payloads: Sequence[bytes],
    options: Options,
    each: Sequence[Options] | None,
    now: int,
    *,
    atomic: bool = False,
) -> r.PushedBatch:
    """Jobs for one queue, uniform or not."""
    if each is None and is_plain(options) and checks.payloads_are_fine(payloads, shard.limits):
        first = push_plain(shard, queue, list(payloads), options, now)
        return r.PushedBatch(range(first, first + len(payloads) * STEP, STEP))
    each = each or [options] * len(payloads)
    refused = refuse(shard, payloads, each)
    ids = [0] * len(payloads)
    items = push_each(shard, queue, payloads, each, refused, now, atomic=atomic)
    for item in items:
        ids[item.number] = item.id
    duplicates = {item.number: item.duplicate_by for item in items if item.duplicate_by}
    return r.PushedBatch(ids, refused, duplicates)


def push_plain(shard: "Shard", queue: Queue, payloads: list[bytes], options: Options, now: int) -> int:
    """Jobs that need no look at anything else. Returns the first id."""
    first = make_id(shard.sequence + 1, shard.number)
    shard.emit(rec.Pushed(now, queue.tenant.name, queue.name, first, payloads, options, due_of(options, now)))
    return first


def due_of(options: Options, now: int) -> int:
    due = now + options.delay_ms if options.run_at is None else options.run_at
    return due if due > now else 0


def remember_request(shard: "Shard", queue: Queue, key: str, reply: r.PushedBatch, now: int) -> None:
    refused = [(item, refusal.code, refusal.message) for item, refusal in sorted(reply.refused.items())]
    duplicates = [(item, str(by)) for item, by in sorted(reply.duplicates.items())]
    expires_at = now + shard.settings.request_ttl_ms
    shard.emit(
        rec.RequestRemembered(now, queue.tenant.name, queue.name, key, list(reply.ids), refused, duplicates, expires_at)
    )


# --- classifying -----------------------------------------------------------------------------------


def refuse(shard: "Shard", payloads: Sequence[bytes], options: Sequence[Options]) -> dict[int, r.Refusal]:
    """The items that cannot be pushed whatever the state of keys is."""
    refused = refuse_malformed(shard, payloads, options)
    refuse_edges(shard, options, refused)
    return refused


def push_each(
    shard: "Shard",
    queue: Queue,
    payloads: Sequence[bytes],
    options: Sequence[Options],
    refused: dict[int, r.Refusal],
    now: int,
    *,
    atomic: bool = False,
) -> list[Item]:
    """Push what is not refused, one after another; only items that name each other are classified together."""
    refuse_whole(refused, atomic)
    items = [Item(n, payload, options[n]) for n, payload in enumerate(payloads) if n not in refused]
    if any(edge.item is not None for item in items for edge in item.options.depends_on):
        while not _Classifier(shard, queue, items).run(refused):
            refuse_whole(refused, atomic)
            items = [Item(n, payload, options[n]) for n, payload in enumerate(payloads) if n not in refused]
        push_items(shard, queue, items, now)
        return items
    at = 0
    while at < len(items):
        run = neighbours(items, at)
        if not shares_record(run[0].options):
            _Classifier(shard, queue, run).run(refused)
        else:
            for place, item in enumerate(run, shard.sequence + 1):
                item.id = make_id(place, shard.number)
        push_items(shard, queue, run, now)
        at += len(run)
    return items


def refuse_whole(refused: dict[int, r.Refusal], atomic: bool) -> None:
    """One refused item refuses an atomic batch, with its own error."""
    if atomic and refused:
        number, refusal = min(refused.items())
        raise errors.BY_CODE[refusal.code](f"item {number}: {refusal.message}; nothing was pushed")


def neighbours(items: list[Item], at: int) -> list[Item]:
    """The item and those right behind it that can share its record."""
    first = items[at]
    stop = at + 1
    if shares_record(first.options):
        while stop < len(items) and items[stop].options == first.options:
            stop += 1
    return items[at:stop]


def refuse_malformed(shard: "Shard", payloads: Sequence[bytes], options: Sequence[Options]) -> dict[int, r.Refusal]:
    refused: dict[int, r.Refusal] = {}
    checked: Options | None = None
    for number, payload in enumerate(payloads):
        try:
            checks.payload(payload, shard.limits)
            if options[number] is not checked:
                checks.options(options[number], shard.limits)
                checked = options[number]
        except errors.Refused as error:
            refused[number] = r.Refusal(error.code, error.message)
    return refused


def refuse_edges(shard: "Shard", options: Sequence[Options], refused: dict[int, r.Refusal]) -> None:
    """Edges to jobs that never were, to refused items, and in circles."""
    waiting_for: dict[int, list[int]] = {}
    for number, option in enumerate(options):
        if number in refused or not option.depends_on:
            continue
        for edge in option.depends_on:
            if edge.item is None and not is_known(shard, edge.id):
                refused[number] = r.Refusal("unknown_dependency", f"dependency {edge.id}: no job has ever had this id")
                break
            if edge.item is not None and (edge.item >= len(options) or edge.item == number):
                told = f"dependency on item {edge.item}: this push has no other item of that number"
                refused[number] = r.Refusal("unknown_dependency", told)
                break
        else:
            waiting_for[number] = [edge.item for edge in option.depends_on if edge.item is not None]
    _refuse_behind(waiting_for, refused)
    _refuse_cycles(waiting_for, refused)


def _refuse_behind(waiting_for: dict[int, list[int]], refused: dict[int, r.Refusal]) -> None:
    """Items that wait for a refused one are refused too."""
    behind: dict[int, list[int]] = {}
    for number, others in waiting_for.items():
        for other in others:
            behind.setdefault(other, []).append(number)
    reached = list(refused)
    while reached:
        other = reached.pop()
        for number in behind.get(other, ()):
            if number not in refused:
                refused[number] = r.Refusal("unknown_dependency", f"dependency on item {other}: that item is refused")
                reached.append(number)


def _refuse_cycles(waiting_for: dict[int, list[int]], refused: dict[int, r.Refusal]) -> None:
    """What is left after taking away, again and again, items that wait for nobody, is on a cycle or behind one."""
    left = {
        n: {other for other in others if other in waiting_for} for n, others in waiting_for.items() if n not in refused
    }
    behind: dict[int, list[int]] = {}
    for number, others in left.items():
        for other in others:
            behind.setdefault(other, []).append(number)
    free = [number for number, others in left.items() if not others]
    while free:
        done = free.pop()
        del left[done]
        for number in behind.get(done, ()):
            left[number].discard(done)
            if not left[number]:
                free.append(number)
    for number in left:
        refused[number] = r.Refusal("dependency_cycle", f"item {number} waits for itself through other items")


class _Classifier:
    """Goes through the items of one push with a copy of what the keys would be after each."""

    def __init__(self, shard: "Shard", queue: Queue, items: list[Item]) -> None:
        self.shard, self.queue, self.items = shard, queue, items
        self.ended: set[int] = set()
        """Jobs that items of this push replace."""
        self.by_number: dict[int, Item] = {}
        self.by_id: dict[int, Item] = {}
        self.behind: dict[int, list[Item]] = {}
        """Who waits for an item, by its number."""
        for item in items:
            for edge in item.options.depends_on:
                if edge.item is not None:
                    self.behind.setdefault(edge.item, []).append(item)
        self.custom_ids: dict[str, int] = {}
        self.debounces: dict[str, int] = {}
        self.unique_keys: dict[str, int] = {}
        """0 = freed by an item of this push."""
        self.next = shard.sequence + 1

    def run(self, refused: dict[int, r.Refusal]) -> bool:
        """Classify all; false if that showed a circle through a duplicate, whose items are refused then."""
        for item in self.items:
            if not self.find_duplicate(item):
                item.id = make_id(self.next, self.shard.number)
                self.next += 1
                self.by_id[item.id] = item
                self.take_keys(item)
            self.by_number[item.number] = item
            if item.duplicate_by is None and self.is_doomed(item):
                self.doom(item)
        if self.behind and not self.refuse_circles(refused):
            return False
        for item in self.items:
            if item.options.depends_on:
                item.options = self.resolved(item.options)
        return True

    def refuse_circles(self, refused: dict[int, r.Refusal]) -> bool:
        """An item that waits for a duplicate of itself, or of one that waits for it, would wait for ever."""
        before = len(refused)
        waiting_for: dict[int, list[int]] = {}
        named: dict[int, list[int]] = {}
        for item in self.items:
            numbers = named[item.number] = [edge.item for edge in item.options.depends_on if edge.item is not None]
            if item.duplicate_by is None and item.options.depends_on:
                ids = [self.by_number[number].id for number in numbers]
                waiting_for[item.number] = [self.by_id[job_id].number for job_id in ids if job_id in self.by_id]
        _refuse_cycles(waiting_for, refused)
        if len(refused) > before:
            _refuse_behind(named, refused)
        return len(refused) == before

    def find_duplicate(self, item: Item) -> bool:
        options, queue = item.options, self.queue
        if options.custom_id is not None:
            found = self.holder(options.custom_id, self.custom_ids, queue.custom_ids)
            if found:
                item.id, item.duplicate_by = found, "custom_id"
                return True
        if options.debounce_id is not None:
            found = self.holder(options.debounce_id, self.debounces, queue.debounces)
            if found:
                item.id, item.duplicate_by = found, "debounce_id"
                return True
        if options.unique_key is not None:
            found = self.holder(options.unique_key, self.unique_keys, queue.unique_keys)
            if found and (options.on_conflict != "replace" or self.is_active(found)):
                item.id, item.duplicate_by = found, "unique_key"
                item.extends = options.on_conflict == "extend"
                return True
            item.replaces = found
            if found:
                self.ended.add(found)
                self.free_keys_of_item(found)
        return False

    @staticmethod
    def holder(key: str, fresh: dict[str, int], table: dict[str, Key]) -> int:
        if key in fresh:
            return fresh[key]
        return table[key].job if key in table else 0

    def is_active(self, job_id: int) -> bool:
        job = self.shard.index.get(job_id)
        return job is not None and job.state == ACTIVE

    def take_keys(self, item: Item) -> None:
        options = item.options
        if options.unique_key is not None:
            self.unique_keys[options.unique_key] = item.id
        if options.custom_id is not None:
            self.custom_ids[options.custom_id] = item.id
        if options.debounce_id is not None and options.debounce_ms:
            self.debounces[options.debounce_id] = item.id

    def is_doomed(self, item: Item) -> bool:
        for edge in item.options.depends_on:
            if edge.on_failure == "continue":
                continue
            if edge.item is None:
                if self.stands_badly(edge.id):
                    return True
                continue
            other = self.by_number.get(edge.item)
            if other is None:
                continue
            if self.stands_badly(other.id):
                return True
        return False

    def stands_badly(self, job_id: int) -> bool:
        if job_id in self.ended:
            return True
        if job_id in self.by_id:
            return self.by_id[job_id].doomed
        return standing(self.shard, self.queue.tenant, job_id) == BAD

    def doom(self, item: Item) -> None:
        """It ends at once; its keys are free for the items after it, and those who wait for it end too."""
        doomed = [item]
        while doomed:
            item = doomed.pop()
            if item.doomed:
                continue
            item.doomed = True
            self.free_keys_of_item(item.id)
            doomed += [
                other
                for other in self.behind.get(item.number, ())
                if other.number in self.by_number and other.duplicate_by is None and self.is_doomed(other)
            ]

    def free_keys_of_item(self, job_id: int) -> None:
        """The job ends during this push: its unique key is free, and its custom id if it is not kept."""
        holder = self.by_id.get(job_id) or self.shard.index.get(job_id)
        if holder is None:
            return
        options, tables = holder.options, (self.unique_keys, self.queue.unique_keys)
        if options.unique_key is not None and self.holder(options.unique_key, *tables) == job_id:
            self.unique_keys[options.unique_key] = 0
        if options.custom_id is not None and not options.custom_id_ttl_ms:
            self.custom_ids[options.custom_id] = 0

    def resolved(self, options: Options) -> Options:
        """Edges to items become edges to ids."""
        edges = tuple(
            edge if edge.item is None else Dependency(self.by_number[edge.item].id, edge.on_failure)
            for edge in options.depends_on
        )
        return msgspec.structs.replace(options, depends_on=edges)


# --- emitting --------------------------------------------------------------------------------------


def push_items(shard: "Shard", queue: Queue, items: list[Item], now: int) -> None:
    """Emit what was classified; neighbours with the same plain options become one record."""
    at = 0
    while at < len(items):
        item = items[at]
        if item.duplicate_by is not None:
            if item.extends:
                extend_key(shard, queue, item.options, now)
            at += 1
            continue
        run = neighbours(items, at)
        push_run(shard, queue, item, [other.payload for other in run], now)
        at += len(run)


def shares_record(options: Options) -> bool:
    """Whether neighbours with these options can be one record: nothing in them is about one job alone."""
    return (options.group_id is not None and is_plain(msgspec.structs.replace(options, group_id=None))) or is_plain(
        options
    )


def push_run(shard: "Shard", queue: Queue, item: Item, payloads: list[bytes], now: int) -> None:
    options = item.options
    if item.replaces:
        cancel_jobs(shard, queue, [shard.part(item.replaces)], CANCELLED, Reason.REPLACED, now)
    due = due_of(options, now)
    shard.emit(rec.Pushed(now, queue.tenant.name, queue.name, item.id, payloads, options, due))
    if not options.depends_on:
        return
    job = shard.index.get(item.id)
    if job is not None and job.state == BLOCKED:
        policy = first_failed(shard, job)
        if policy is not None:
            end_dependent(shard, job, policy, now)
            settle(shard, now)


def extend_key(shard: "Shard", queue: Queue, options: Options, now: int) -> None:
    key = options.unique_key
    if key is None or key not in queue.unique_keys:
        return
    expires_at = now + options.unique_ttl_ms if options.unique_ttl_ms else 0
    shard.emit(rec.KeyExtended(now, queue.tenant.name, queue.name, key, expires_at))
