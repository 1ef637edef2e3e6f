"""The shards of this process, and the location of every shard."""

from collections.abc import Iterable
from typing import Any

from stoker.engine.shard import Shard
from stoker.model import errors
from stoker.model.ids import shard_for, shard_of


class Shards(list[Shard]):
    """Those of this process, in order; `total` counts the ones of other processes too."""

    def __init__(self, shards: Iterable[Shard], total: int | None = None) -> None:
        super().__init__(shards)
        self.total = len(self) if total is None else total
        self.is_part = self.total > len(self)
        """Whether other processes have some: then `process_router.py` carries out what concerns all shards."""
        self._places: list[Shard | None] = [None] * self.total
        for shard in self:
            self._places[shard.number] = shard

    def at(self, number: int) -> Shard:
        shard = self._places[number]
        if shard is None:
            raise errors.Unavailable(f"shard {number} lives in another process: ask that one")
        return shard

    def has(self, number: int) -> bool:
        return self._places[number] is not None

    def home(self, tenant: str, name: str) -> Shard:
        """Where a queue, a transaction or a claim lives."""
        return self.at(shard_for(tenant, name, self.total))

    def by_id(self, job_id: Any) -> Shard:
        """The shard where a job lives; for an invalid id, any shard, which then refuses it."""
        number = shard_of(job_id) if type(job_id) is int else self.total
        return self.at(number) if number < self.total else self[0]
