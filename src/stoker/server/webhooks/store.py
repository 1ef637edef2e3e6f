"""Stores hooks: two key-value entries each in the system's own tenant, journaled like everything else.

One entry is the registration, the other the hook's progress. Nothing here interprets them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from stoker.model import commands as c
from stoker.server.dispatcher import Dispatcher
from stoker.server.webhooks.hooks import Hook

HOOKS: Final = "webhooks/hook/"
PROGRESS: Final = "webhooks/progress/"
REVISION: Final = "webhooks/revision"
"""Counts the changes of hooks, for other servers that post them."""
BATCH: Final = 100


class HookRetry(msgspec.Struct):
    """A failed event that is tried again later."""

    shard: int
    sequence: int
    index: int
    attempts: int
    due: float
    """Unix time."""


class HookProgress(msgspec.Struct, kw_only=True):
    """The progress of a hook. Everything up to its positions is delivered, given up, or in `waiting`."""

    positions: dict[int, tuple[int, int]] = {}
    """By shard: the sequence and the index of the last event that was tried."""
    waiting: list[HookRetry] = []
    delivered: int = 0
    failures: int = 0
    consecutive_failures: int = 0
    given_up: int = 0
    missed: int = 0
    last_success_at: int = 0
    last_failure_at: int = 0
    last_error: str = ""


def key_of(kind: str, tenant: str, hook_id: str) -> str:
    return f"{kind}{tenant}/{hook_id}"


_encode = msgspec.msgpack.Encoder().encode
_hook = msgspec.msgpack.Decoder(Hook).decode
_progress = msgspec.msgpack.Decoder(HookProgress).decode


class HookStore:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._batch = min(BATCH, dispatcher.broker.limits.kv_batch_max)

    async def hooks(self) -> list[Hook]:
        """All hooks, of all tenants."""
        found: list[Hook] = []
        after: str | None = None
        while True:
            page = await self._dispatcher.call_as_system(c.KvKeys(f"{HOOKS}*", after, self._batch))
            found += [_hook(value) for value in await self._values(page.keys)]
            after = page.next_after
            if after is None:
                return found

    async def progress(self, hook: Hook) -> HookProgress:
        values = await self._values([key_of(PROGRESS, hook.tenant, hook.id)])
        return _progress(values[0]) if values else HookProgress()

    async def put(self, hook: Hook, progress: HookProgress) -> None:
        """Store both entries or none."""
        entries = [self._entry(HOOKS, hook, hook), self._entry(PROGRESS, hook, progress)]
        await self._dispatcher.call_as_system(c.KvSetMany(entries))

    async def note(self, hook: Hook, progress: HookProgress) -> None:
        await self._dispatcher.call_as_system(c.KvSetMany([self._entry(PROGRESS, hook, progress)]))

    async def revision(self) -> int:
        """Whether this differs from before says whether hooks have changed."""
        values = await self._values([REVISION])
        return int(values[0]) if values else 0

    async def tell_change(self) -> None:
        await self._dispatcher.call_as_system(c.KvIncrement(REVISION))

    async def remove(self, hook: Hook) -> None:
        keys = [key_of(kind, hook.tenant, hook.id) for kind in (HOOKS, PROGRESS)]
        await self._dispatcher.call_as_system(c.KvDelete(keys))

    @staticmethod
    def _entry(kind: str, hook: Hook, value: Hook | HookProgress) -> c.KvEntry:
        return c.KvEntry(key_of(kind, hook.tenant, hook.id), _encode(value), 0, "msgpack")

    async def _values(self, keys: Sequence[str]) -> list[bytes]:
        if not keys:
            return []
        reply = await self._dispatcher.call_as_system(c.KvGetMany(keys))
        return [one.value for one in reply.values if one.exists]
