"""Dead letters grouped by reason and fingerprint.

Grouping an error costs microseconds, and a queue may have a million dead letters that no client looks at. So a letter
is only noted when it arrives, and grouped when groups are asked for, a bounded number at a time.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import nlargest

from stoker.engine.jobs import SingleJob
from stoker.model.fingerprints import GROUPS_MAX, fingerprint_of
from stoker.model.replies import DeadGroup

EXAMPLES_MAX = 3
GROUPED_MAX = 200
"""Letters grouped in one step: about two milliseconds."""

Key = tuple[str, str]


class LetterGroup:
    """The letters of a queue with one reason and one fingerprint, in the order in which they died."""

    __slots__ = ("ids", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.ids: dict[int, int] = {}
        """When each became a dead letter."""


class DeadGroupIndex:
    """The groups of one queue."""

    __slots__ = ("_coming", "_group_of", "_groups", "others")

    def __init__(self) -> None:
        self._coming: OrderedDict[int, SingleJob] = OrderedDict()
        """Letters that are not grouped yet."""
        self._group_of: dict[int, LetterGroup | None] = {}
        """The group of each letter that was looked at; None for those beyond the last group."""
        self._groups: dict[Key, LetterGroup] = {}
        self.others = 0
        """Letters of errors beyond the last group."""

    def add(self, job: SingleJob) -> None:
        """A job became a dead letter."""
        self._coming[job.id] = job

    def remove(self, job_id: int) -> None:
        """A job is no dead letter any more."""
        if self._coming.pop(job_id, None) is not None:
            return
        group = self._group_of.pop(job_id)
        if group is None:
            self.others -= 1
            return
        del group.ids[job_id]
        if not group.ids:
            del self._groups[group.key]

    def step(self, most: int) -> int:
        """Group up to `most` letters; how many were looked at."""
        looked = 0
        while self._coming and looked < most:
            _, job = self._coming.popitem(last=False)
            looked += 1
            self._put(job)
        return looked

    def _put(self, job: SingleJob) -> None:
        detail = job.details()
        key = (str(detail.reason), fingerprint_of(detail.error_class, detail.error))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._group_of[job.id] = None
                self.others += 1
                return
            group = self._groups[key] = LetterGroup(key)
        group.ids[job.id] = detail.ended_at
        self._group_of[job.id] = group

    @property
    def letters(self) -> set[int]:
        """All letters, grouped or not."""
        return {*self._coming, *self._group_of}

    @property
    def ungrouped(self) -> int:
        return len(self._coming)

    def groups(self) -> Iterator[LetterGroup]:
        return iter(self._groups.values())


def largest(found: list[tuple[str, LetterGroup]], limit: int) -> list[DeadGroup]:
    """The largest groups, each with the name of its queue."""
    chosen = nlargest(limit, found, key=lambda one: (len(one[1].ids), one[0], one[1].key))
    return [described(queue, group) for queue, group in chosen]


def described(queue: str, group: LetterGroup) -> DeadGroup:
    newest = reversed(group.ids)
    examples = tuple(job_id for job_id, _ in zip(newest, range(EXAMPLES_MAX), strict=False))
    first, last = next(iter(group.ids.values())), next(reversed(group.ids.values()))
    return DeadGroup(queue, *group.key, len(group.ids), first, last, examples)
