"""All hooks of a server: registering, listing and removing them, and starting and stopping their work.

Everything here is asked for a tenant, which only ever sees its own. Posting happens in one process for a data
directory: the one that has the shard of the system's own tenant.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

from stoker.model.errors import Forbidden, LimitExceeded, NotFound, StokerError
from stoker.model.ids import KV_HOME, SYSTEM_TENANT, shard_for
from stoker.server.config.tree import WebhookSettings
from stoker.server.desk import Desk
from stoker.server.webhooks.addresses import NotAllowed, Resolve, checked, networks, resolve
from stoker.server.webhooks.bodies import trial_body
from stoker.server.webhooks.delivery import Delivery, Totals, signed_headers, status_of
from stoker.server.webhooks.hooks import MASK, Hook, HookView, Status, Wanted, new_id, registered, view
from stoker.server.webhooks.posting import Outcome, Poster
from stoker.server.webhooks.store import WHOLE, Progress, Store
from stoker.server.webhooks.tail import Tail
from stoker.server.webhooks.urls import parse

RELOAD_S: Final = 2.0
"""Where other processes may register hooks, too, their registrations are looked for so often."""

log = logging.getLogger("stoker.webhooks")


class Webhooks:
    """What the rest of the server knows of webhooks."""

    def __init__(
        self,
        desk: Desk,
        settings: WebhookSettings,
        *,
        processes: int = 1,
        resolver: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.time,
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self.totals = Totals()
        self._desk = desk
        self._settings = settings
        self._processes = processes
        self._resolver = resolver
        self._allow = networks(settings.allow)
        self._now = now
        self._tick = tick
        self._store = Store(desk.broker)
        self._poster = Poster(settings, self._allow, resolver, tls)
        self._hooks: dict[tuple[str, str], Hook] | None = None
        """By tenant and id, once they are loaded."""
        self._deliveries: dict[tuple[str, str], Delivery] = {}
        self._tails: dict[tuple[str, int], Tail] = {}
        self._lock = asyncio.Lock()
        """One change at a time."""
        self._is_running = False
        self._reloader: asyncio.Task[None] | None = None

    # --- start and stop ------------------------------------------------------------------------------

    @property
    def is_owner(self) -> bool:
        """Whether this is the process that posts."""
        shards = self._desk.broker.runtime.shards
        home = shard_for(SYSTEM_TENANT, KV_HOME, len(shards))
        return any(shard.number == home for shard in shards)

    async def start(self) -> None:
        """Load what is registered, and go on from where each hook was."""
        async with self._lock:
            if not self._settings.enabled or not self.is_owner or self._is_running:
                return
            self._is_running = True
            for hook in (await self._loaded()).values():
                await self._begin(hook)
            if self._processes > 1:
                self._reloader = asyncio.get_running_loop().create_task(self._keep_reloading())

    async def close(self) -> None:
        """Stop posting, and note how far each hook has come."""
        if self._reloader is not None:
            self._reloader.cancel()
            await asyncio.gather(self._reloader, return_exceptions=True)
        async with self._lock:
            self._is_running = False
            await asyncio.gather(*(delivery.stop() for delivery in self._deliveries.values()))
            self._deliveries.clear()
            await asyncio.gather(*(tail.close() for tail in self._tails.values()))
            self._tails.clear()

    def look_again(self) -> None:
        """For whoever moves the clock: what is due by now is done now."""
        for delivery in self._deliveries.values():
            delivery.wake()

    # --- for tenants ---------------------------------------------------------------------------------

    async def add(self, tenant: str, wanted: Wanted) -> HookView:
        """Register a hook, or change the one whose id is named. It posts what happens from now on."""
        if not self._settings.enabled:
            raise Forbidden("this server posts no webhooks: the operator has set webhooks.enabled = false")
        registered(wanted, tenant, 0, None)  # what is malformed is refused before any name is resolved
        await self._check_address(wanted.url)
        async with self._lock:
            hooks = await self._loaded()
            old = self._of(hooks, tenant, wanted.id) if wanted.id is not None else None
            if old is None and sum(owner == tenant for owner, _ in hooks) >= self._settings.hooks_per_tenant_max:
                most = self._settings.hooks_per_tenant_max
                raise LimitExceeded(f"{most} hooks are the most that a tenant may have: delete some")
            hook = registered(wanted, tenant, self._now_ms(), old)
            progress = Progress()
            if old is not None:
                await self._end(old)
                progress = await self._store.progress(old)
            if old is None or old.queue != hook.queue:  # of another queue it gets what happens from now on
                progress.positions = self._ends(hook)
            try:
                await self._store.put(hook, progress)
                hooks[tenant, hook.id] = hook
            finally:
                await self._begin(hooks.get((tenant, hook.id)))
        was_made = wanted.secret is None and old is None
        return view(hook, await self._status(hook), hook.secret if was_made else MASK)

    async def remove(self, tenant: str, hook_id: str) -> None:
        """Raises `NotFound`, also for the hooks of others."""
        async with self._lock:
            hooks = await self._loaded()
            hook = self._of(hooks, tenant, hook_id)
            await self._end(hook, forget=True)
            try:
                await self._store.remove(hook)
                del hooks[tenant, hook_id]
            finally:
                await self._begin(hooks.get((tenant, hook_id)))

    async def test(self, tenant: str, hook_id: str) -> Outcome:
        """Post a trial at once, and say how it went. It counts for nothing."""
        if not self._settings.enabled:
            raise Forbidden("this server posts no webhooks: the operator has set webhooks.enabled = false")
        hook = self._of(await self._loaded(), tenant, hook_id)
        identity = f"{hook.id}-test-{new_id()}"
        body = trial_body(hook, identity, self._now_ms())
        return await self._poster.post(
            parse(hook.url), signed_headers(hook, identity, "test", body, self._now(), 1), body
        )

    async def list(self, tenant: str) -> tuple[HookView, ...]:
        """The tenant's hooks with how they fare, oldest first. Without their secrets."""
        async with self._lock:
            hooks = await self._loaded()
            if self._processes > 1 and not self._is_running:
                await self._reload()
            mine = sorted((hook for hook in hooks.values() if hook.tenant == tenant), key=lambda one: one.created_at)
            return tuple([view(hook, await self._status(hook)) for hook in mine])

    # --- within --------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return round(self._now() * 1000)

    async def _check_address(self, url: str) -> None:
        """A private address is refused where it can be explained. A name that has none yet may get one."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await checked(parse(url), self._resolver, self._allow)
        except NotAllowed:
            raise
        except (OSError, ValueError, TimeoutError):
            pass

    async def _loaded(self) -> "dict[tuple[str, str], Hook]":
        if self._hooks is None:
            self._hooks = {(hook.tenant, hook.id): hook for hook in await self._store.hooks()}
        return self._hooks

    @staticmethod
    def _of(hooks: "dict[tuple[str, str], Hook]", tenant: str, hook_id: str) -> Hook:
        hook = hooks.get((tenant, hook_id))
        if hook is None:
            raise NotFound(f"no webhook {hook_id[:64]!r}: it never was, or was deleted")
        return hook

    async def _status(self, hook: Hook) -> Status:
        delivery = self._deliveries.get((hook.tenant, hook.id))
        if delivery is not None:
            return delivery.status()
        return status_of(await self._store.progress(hook))

    def _shards(self, hook: Hook) -> Sequence[int]:
        """Those that may hold events for a hook."""
        count = len(self._desk.broker.runtime.shards)
        return range(count) if hook.queue is None else (shard_for(hook.tenant, hook.queue, count),)

    def _ends(self, hook: Hook) -> dict[int, tuple[int, int]]:
        """Where a new hook begins: after everything that was."""
        journal = self._desk.broker.runtime.journal
        return {shard: (journal.last(shard), WHOLE) for shard in self._shards(hook)}

    async def _begin(self, hook: Hook | None) -> None:
        if hook is None or not hook.enabled or not self._is_running:
            return
        progress = await self._store.progress(hook)
        tails = {number: self._tail(hook.tenant, number) for number in self._shards(hook)}
        delivery = self._deliveries[hook.tenant, hook.id] = Delivery(
            hook,
            progress,
            tails,
            desk=self._desk,
            store=self._store,
            poster=self._poster,
            settings=self._settings,
            totals=self.totals,
            now=self._now,
            tick=self._tick,
        )
        delivery.start()

    async def _end(self, hook: Hook, *, forget: bool = False) -> None:
        """Stop a hook's work, if there is any. `forget`: nothing is noted any more."""
        delivery = self._deliveries.pop((hook.tenant, hook.id), None)
        if delivery is None:
            return
        await delivery.stop(note=not forget)
        for number, tail in delivery.tails.items():
            tail.users -= 1
            if not tail.users:
                del self._tails[hook.tenant, number]
                await tail.close()

    def _tail(self, tenant: str, shard: int) -> Tail:
        tail = self._tails.get((tenant, shard))
        if tail is None:
            tail = self._tails[tenant, shard] = Tail(self._desk, tenant, shard)
        tail.users += 1
        return tail

    # --- other processes -----------------------------------------------------------------------------

    async def _keep_reloading(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                async with self._lock:
                    await self._reload()
            except StokerError as error:
                log.warning("cannot look for webhooks: %s", error)

    async def _reload(self) -> None:
        """Take over what another process has registered, changed or removed."""
        before = await self._loaded()
        found = {(hook.tenant, hook.id): hook for hook in await self._store.hooks()}
        for key, hook in before.items():
            if found.get(key) != hook:
                await self._end(hook, forget=key not in found)
        self._hooks = found
        for key, hook in found.items():
            if before.get(key) != hook:
                await self._begin(hook)
