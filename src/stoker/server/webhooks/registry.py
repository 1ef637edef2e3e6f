"""All hooks of a server: registers, lists and removes them, and starts and stops their work.

Every call is for a tenant, which only sees its own hooks. Only one process per data directory posts: the one with the
shard of the system's own tenant. Of several servers in front of one queue any registers hooks, and the one that has the
lease posts (`posting_lease.py`).
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from stoker.model.errors import Forbidden, LimitExceeded, NotFound, Unsupported
from stoker.model.ids import KV_HOME, SYSTEM_TENANT, shard_for
from stoker.server.config.tree import WebhookSettings
from stoker.server.dispatcher import Dispatcher
from stoker.server.reader import WHOLE
from stoker.server.webhooks.addresses import NotAllowed, Resolve, checked, may_get_an_address, networks, resolve
from stoker.server.webhooks.bodies import trial_body
from stoker.server.webhooks.delivery import HookDelivery, HookTotals, signed_headers, status_of
from stoker.server.webhooks.hooks import MASK, Hook, HookRequest, HookView, Status, new_id, registered, view
from stoker.server.webhooks.posting import Poster, PostOutcome
from stoker.server.webhooks.posting_lease import PostingLease
from stoker.server.webhooks.store import HookProgress, HookStore
from stoker.server.webhooks.urls import parse

log = logging.getLogger("stoker.webhooks")

READ_AGAIN_S = 30.0
"""The server that posts reads all hooks again after this time, in case one that changed them died before it said so."""

Elsewhere = Callable[[str, str, Any], Awaitable[Any]]
"""Takes a tenant, a command's name and its fields; returns its reply."""


class Webhooks:
    """The interface of webhooks for the rest of the server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        settings: WebhookSettings,
        *,
        resolver: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.time,
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self.totals = HookTotals()
        self._dispatcher = dispatcher
        self._settings = settings
        self._resolver = resolver
        self._allow = networks(settings.allow)
        self._now = now
        self._tick = tick
        self._store = HookStore(dispatcher)
        self._poster = Poster(settings, self._allow, resolver, tls)
        self._hooks: dict[tuple[str, str], Hook] | None = None
        """By tenant and id, once they are loaded. Other servers may change them: then they are read for each call."""
        self._deliveries: dict[tuple[str, str], HookDelivery] = {}
        self._lock = asyncio.Lock()
        """One change at a time."""
        self._is_running = False
        remote = dispatcher.broker.remote
        self._lease = PostingLease(remote, self._take_turn) if remote is not None else None
        """For a queue that other servers may be in front of, too."""
        self._revision = -1
        """Of the hooks that this server posts."""
        self._read_at = 0.0
        """When they were read."""
        self.elsewhere: Elsewhere | None = None
        """Asks the process that has the hooks, if it is not this one."""

    # --- start and stop ------------------------------------------------------------------------------

    @property
    def is_owner(self) -> bool:
        """Whether this is the process that posts. A broker without events has nothing to post."""
        if self._dispatcher.broker.logs is None:
            return False
        return self._dispatcher.has(shard_for(SYSTEM_TENANT, KV_HOME, self._dispatcher.shards))

    async def start(self) -> None:
        """Load the registered hooks, and continue from their positions."""
        async with self._lock:
            if not self._settings.enabled or not self.is_owner or self._is_running:
                return
            if self._lease is not None:
                self._lease.start()
                return
            try:
                hooks = await self._loaded()
            except Unsupported as error:  # a broker without a key-value store has no hooks
                log.info("this server posts no webhooks: %s", error)
                return
            self._is_running = True
            for hook in hooks.values():
                await self._begin(hook)

    async def close(self) -> None:
        """Stop posting, and note the progress of each hook."""
        if self._lease is not None:
            await self._lease.close()
        async with self._lock:
            await self._stop_all(note=self._may_post())
        if self._lease is not None:
            await self._lease.let_go()

    async def _stop_all(self, *, note: bool) -> None:
        self._is_running = False
        await asyncio.gather(*(delivery.stop(note=note) for delivery in self._deliveries.values()))
        self._deliveries.clear()

    async def _take_turn(self, is_held: bool) -> None:
        """Post while this server has the lease, and follow what other servers have changed."""
        async with self._lock:
            if not is_held:
                if self._is_running:
                    log.warning("another server posts the webhooks now")
                    await self._stop_all(note=False)
                return
            revision = await self._store.revision()
            is_recent = self._tick() - self._read_at < READ_AGAIN_S
            if self._is_running and revision == self._revision and is_recent:
                return
            self._read_at = self._tick()
            hooks = await self._loaded()
            for key, delivery in list(self._deliveries.items()):
                if hooks.get(key) != delivery.hook:
                    is_same = key in hooks and hooks[key].queue == delivery.hook.queue
                    await self._end(delivery.hook, forget=not is_same)  # for another queue it begins anew
                    if key not in hooks:
                        await self._store.remove(delivery.hook)  # what was noted after another server removed it
            self._is_running = True
            for key, hook in hooks.items():
                if key not in self._deliveries:
                    await self._begin(hook)
            self._revision = revision

    def _may_post(self) -> bool:
        return self._lease is None or self._lease.is_held

    async def _changed(self) -> None:
        """Tell other servers that hooks have changed."""
        if self._lease is not None:
            await self._store.tell_change()

    def look_again(self) -> None:
        """For tests that move the clock: do what is due now."""
        for delivery in self._deliveries.values():
            delivery.wake()

    def check_supported(self, command: str) -> None:
        """Raise `Unsupported` if the broker has no events to post."""
        if self._dispatcher.broker.logs is None:
            raise Unsupported.by(self._dispatcher.broker.name, command)

    # --- for tenants ---------------------------------------------------------------------------------

    async def add(self, tenant: str, wanted: HookRequest) -> HookView:
        """Register a hook, or change the one with this id. It posts events from now on."""
        if not self._settings.enabled:
            raise Forbidden("this server posts no webhooks: the operator has set webhooks.enabled = false")
        registered(wanted, tenant, 0, None)  # a malformed request is refused before any name is resolved
        await self._check_address(wanted.url)
        async with self._lock:
            hooks = await self._loaded()
            old = self._of(hooks, tenant, wanted.id) if wanted.id is not None else None
            if old is None and sum(owner == tenant for owner, _ in hooks) >= self._settings.hooks_per_tenant_max:
                most = self._settings.hooks_per_tenant_max
                raise LimitExceeded(f"this tenant has {most} webhooks, which is the limit: delete some")
            hook = registered(wanted, tenant, self._now_ms(), old)
            progress = HookProgress()
            if old is not None:
                await self._end(old)
                progress = await self._store.progress(old)
            if old is None or old.queue != hook.queue:  # for another queue, it posts events from now on
                progress.positions = await self._ends(hook)
            try:
                await self._store.put(hook, progress)
                hooks[tenant, hook.id] = hook
                await self._changed()
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
                await self._changed()
            finally:
                await self._begin(hooks.get((tenant, hook_id)))

    async def test(self, tenant: str, hook_id: str) -> PostOutcome:
        """Post a test event at once, and return the outcome. It counts for nothing."""
        if not self._settings.enabled:
            raise Forbidden("this server posts no webhooks: the operator has set webhooks.enabled = false")
        hook = self._of(await self._loaded(), tenant, hook_id)
        identity = f"{hook.id}-test-{new_id()}"
        body = trial_body(hook, identity, self._now_ms())
        return await self._poster.post(
            parse(hook.url), signed_headers(hook, identity, "test", body, self._now(), 1), body
        )

    async def list(self, tenant: str) -> tuple[HookView, ...]:
        """The tenant's hooks with their status, oldest first. Without their secrets."""
        async with self._lock:
            hooks = await self._loaded()
            mine = sorted((hook for hook in hooks.values() if hook.tenant == tenant), key=lambda one: one.created_at)
            return tuple([view(hook, await self._status(hook)) for hook in mine])

    # --- within --------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return round(self._now() * 1000)

    async def _check_address(self, url: str) -> None:
        """Refuse a private address where it can be explained. A public name without an address may still get one."""
        target = parse(url)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await checked(target, self._resolver, self._allow)
        except NotAllowed:
            raise
        except (OSError, ValueError, TimeoutError):
            if not may_get_an_address(target.host, self._allow):
                raise NotAllowed from None

    async def _loaded(self) -> "dict[tuple[str, str], Hook]":
        if self._hooks is None or self._lease is not None:
            self._hooks = {(hook.tenant, hook.id): hook for hook in await self._store.hooks()}
        return self._hooks

    @staticmethod
    def _of(hooks: "dict[tuple[str, str], Hook]", tenant: str, hook_id: str) -> Hook:
        hook = hooks.get((tenant, hook_id))
        if hook is None:
            raise NotFound(f"no webhook {hook_id[:64]!r}: it never existed, or was deleted")
        return hook

    async def _status(self, hook: Hook) -> Status:
        delivery = self._deliveries.get((hook.tenant, hook.id))
        if delivery is not None:
            return delivery.status()
        return status_of(await self._store.progress(hook))

    async def _ends(self, hook: Hook) -> dict[int, tuple[int, int]]:
        """Where a new hook begins: after everything that has happened."""
        ends = await self._dispatcher.ends(hook.tenant)
        return {shard: (ends[shard].last, WHOLE) for shard in hook.filter.shards(hook.tenant, self._dispatcher.shards)}

    async def _begin(self, hook: Hook | None) -> None:
        if hook is None or not hook.enabled or not self._is_running:
            return
        progress, ends = await self._store.progress(hook), await self._dispatcher.ends(hook.tenant)
        delivery = self._deliveries[hook.tenant, hook.id] = HookDelivery(
            hook,
            progress,
            ends,
            dispatcher=self._dispatcher,
            store=self._store,
            poster=self._poster,
            settings=self._settings,
            totals=self.totals,
            now=self._now,
            tick=self._tick,
            may_post=self._may_post,
        )
        delivery.start()

    async def _end(self, hook: Hook, *, forget: bool = False) -> None:
        """Stop a hook's work, if there is any. With `forget`, nothing is noted any more."""
        delivery = self._deliveries.pop((hook.tenant, hook.id), None)
        if delivery is None:
            return
        await delivery.stop(note=not forget)
