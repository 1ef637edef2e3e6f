"""Which shard a quick command concerns, found without a look at the rest of it."""

from typing import Any

from stoker.engine import checks
from stoker.engine.gathered import GatheredPushes
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.ids import STEP
from stoker.runtime.shards import Shards

HOMES_MAX = 100_000


class Homes:
    """Where queues live, for those asked for lately."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._homes: dict[tuple[str, str], Shard] = {}

    def of(self, tenant: str, command: Any) -> Shard | None:
        """The one shard that a quick command concerns, if it is one and the command is not malformed."""
        kind = type(command)
        if kind is c.Push or kind is GatheredPushes or kind is c.PushBatch:
            queue = command.queue
        elif kind is c.Pull:
            if type(command.queues) not in (list, tuple) or len(command.queues) != 1 or command.claim is not None:
                return None
            queue = command.queues[0]
        else:
            ids = command.ids
            if type(ids) is range:
                return self._shards.by_id(ids.start) if ids and ids.step % STEP == 0 else None
            if checks.is_list(ids) and len(ids) == 1 and type(ids[0]) is int:
                return self._shards.by_id(ids[0])
            return None
        if type(queue) is not str:
            return None
        home = self._homes.get((tenant, queue))
        if home is None:
            checks.name(queue)
            if len(self._homes) >= HOMES_MAX:
                self._homes.clear()
            home = self._homes[tenant, queue] = self._shards.home(tenant, queue)
        return home
