"""Decide what happens to each item of a push whose items have keys or depend on each other.

Items are judged one after another, but an item may name a later one. So the outcomes are computed without changing the
shard, on a copy of the keys and edges after each item. When an item ends a job (by replacing it), everything that fails
with that job is followed too, because it frees keys for later items.
"""

import msgspec

from stoker.engine.dependencies import BAD, standing
from stoker.engine.jobs import ACTIVE, BLOCKED
from stoker.engine.old_keys import holder_of
from stoker.engine.shard_state import ShardState
from stoker.engine.state import KeyHolder, QueueState
from stoker.model import replies as r
from stoker.model.ids import make_id
from stoker.model.options import Dependency, Options


class ClassifiedItem(msgspec.Struct):
    """One item of a push, and what will happen to it."""

    number: int
    payload: bytes
    options: Options
    id: int = 0
    duplicate_by: r.DuplicateBy | None = None
    replaces: int = 0
    extends: bool = False


class Classifier:
    """Judges the items of one push."""

    def __init__(self, shard: ShardState, queue: QueueState, items: list[ClassifiedItem], now: int) -> None:
        self.shard, self.queue, self.items, self.now = shard, queue, items, now
        self.next = shard.sequence + 1
        self.by_number: dict[int, ClassifiedItem] = {}
        """Items that have been judged."""
        self.by_id: dict[int, ClassifiedItem] = {}
        """The judged items that will be created."""
        self.ended: set[int] = set()
        """Jobs and items that end during this push."""
        self.naming: dict[int, list[tuple[ClassifiedItem, str]]] = {}
        """By item number: the items that name this item, with the policy of the edge."""
        self.waiting: dict[int, list[tuple[ClassifiedItem, str]]] = {}
        """By job id: the items that will be created and wait for this job."""
        for item in items:
            for edge in item.options.depends_on:
                if edge.item is not None:
                    self.naming.setdefault(edge.item, []).append((item, edge.on_failure))
        self.custom_ids: dict[str, int] = {}
        self.debounces: dict[str, int] = {}
        self.unique_keys: dict[str, int] = {}
        """Keys as this push leaves them; 0 = free."""

    def run(self, refused: dict[int, r.Refusal]) -> bool:
        """Judge all items. False if that found a cycle through a duplicate; its items are refused then."""
        for item in self.items:
            if not self.find_duplicate(item):
                item.id = make_id(self.next, self.shard.number)
                self.next += 1
                self.by_id[item.id] = item
                self.take_keys(item)
            self.by_number[item.number] = item
            self.note_edges(item)
        if self.naming and not self.refuse_circles(refused):
            return False
        for item in self.items:
            if item.options.depends_on:
                item.options = self.resolved(item.options)
        return True

    def refuse_circles(self, refused: dict[int, r.Refusal]) -> bool:
        """Refuse cycles. An item that waits for a duplicate of itself, or of an item that waits for it, would wait for
        ever.
        """
        before = len(refused)
        waiting_for: dict[int, list[int]] = {}
        named: dict[int, list[int]] = {}
        for item in self.items:
            numbers = named[item.number] = [edge.item for edge in item.options.depends_on if edge.item is not None]
            if item.duplicate_by is None and item.options.depends_on:
                ids = [self.by_number[number].id for number in numbers]
                waiting_for[item.number] = [self.by_id[job_id].number for job_id in ids if job_id in self.by_id]
        refuse_cycles(waiting_for, refused)
        if len(refused) > before:
            refuse_behind(named, refused)
        return len(refused) == before

    # --- keys --------------------------------------------------------------------------------------

    def find_duplicate(self, item: ClassifiedItem) -> bool:
        options, queue = item.options, self.queue
        if options.custom_id is not None:
            taken = self.custom_ids.get(options.custom_id)
            found = holder_of(self.shard, queue, options.custom_id, self.now) if taken is None else taken
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
                self.end(found)
        return False

    @staticmethod
    def holder(key: str, fresh: dict[str, int], table: dict[str, KeyHolder]) -> int:
        if key in fresh:
            return fresh[key]
        return table[key].job if key in table else 0

    def is_active(self, job_id: int) -> bool:
        job = self.shard.index.get(job_id)
        return job is not None and job.state == ACTIVE

    def take_keys(self, item: ClassifiedItem) -> None:
        options = item.options
        if options.unique_key is not None:
            self.unique_keys[options.unique_key] = item.id
        if options.custom_id is not None:
            self.custom_ids[options.custom_id] = item.id
        if options.debounce_id is not None and options.debounce_ms:
            self.debounces[options.debounce_id] = item.id

    def free_keys(self, job_id: int) -> None:
        """Free the keys of a job that ends: its unique key, and its custom id if that is not remembered."""
        holder = self.by_id.get(job_id)
        if holder is None:
            job = self.shard.index.get(job_id)
            if job is None or job.queue is not self.queue:
                return
            options = job.options
        else:
            options = holder.options
        key = options.unique_key
        if key is not None and self.holder(key, self.unique_keys, self.queue.unique_keys) == job_id:
            self.unique_keys[key] = 0
        if options.custom_id is not None and not options.custom_id_ttl_ms:
            self.custom_ids[options.custom_id] = 0

    # --- edges -------------------------------------------------------------------------------------

    def note_edges(self, item: ClassifiedItem) -> None:
        """Add the edges of an item, and the edges of earlier items that name it. A failed edge ends the item that
        waits.
        """
        entered = list(self.naming.get(item.number, ()))
        edges = [(other, policy, item.id) for other, policy in entered if other.id in self.by_id and other is not item]
        if item.duplicate_by is None:
            for edge in item.options.depends_on:
                named = self.by_number.get(edge.item) if edge.item is not None else None
                target = edge.id if edge.item is None else named.id if named is not None else 0
                if target:
                    edges.append((item, edge.on_failure, target))
        for waiter, policy, target in edges:
            self.waiting.setdefault(target, []).append((waiter, policy))
            if policy != "continue" and self.stands_badly(target):
                self.end(waiter.id)

    def stands_badly(self, job_id: int) -> bool:
        if job_id in self.ended:
            return True
        return job_id not in self.by_id and standing(self.shard, self.queue.tenant, job_id) == BAD

    def end(self, job_id: int) -> None:
        """End a job or an item, but not as completed, and with it everything that fails because of it."""
        ending = [job_id]
        while ending:
            job_id = ending.pop()
            if job_id in self.ended:
                continue
            self.ended.add(job_id)
            self.free_keys(job_id)
            ending += [item.id for item, policy in self.waiting.get(job_id, ()) if policy != "continue"]
            ending += [other for other in self.shard.dependents.get(job_id, ()) if self.falls_with(other, job_id)]

    def falls_with(self, waiting_id: int, job_id: int) -> bool:
        """Whether an existing job ends together with the job that it waits for."""
        job = self.shard.index.get(waiting_id)
        if job is None or job.state != BLOCKED:
            return False
        return (job.details().blockers or {}).get(job_id, "continue") != "continue"

    def resolved(self, options: Options) -> Options:
        """The options with edges to items replaced by edges to ids."""
        edges = tuple(
            edge if edge.item is None else Dependency(self.by_number[edge.item].id, edge.on_failure)
            for edge in options.depends_on
        )
        return msgspec.structs.replace(options, depends_on=edges)


# --- cycles ------------------------------------------------------------------------------------------


def refuse_behind(waiting_for: dict[int, list[int]], refused: dict[int, r.Refusal]) -> None:
    """Refuse items that wait for a refused one."""
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


def refuse_cycles(waiting_for: dict[int, list[int]], refused: dict[int, r.Refusal]) -> None:
    """Refuse items on a cycle or behind one. They are what is left after repeatedly removing items that wait for no
    other.
    """
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
