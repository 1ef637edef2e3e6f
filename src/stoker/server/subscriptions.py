"""Sends events over a connection as they happen.

While the peer does not read, nothing is held for it: it falls behind in the log. A subscription ends with the
permissions of its client.
"""

import asyncio
from collections.abc import Callable, Mapping

from stoker.model.errors import StokerError
from stoker.model.events import Event
from stoker.server.auth.identity import Identity
from stoker.server.reader import TURN_EVENTS, EventReader, Filter, MissedEvents, Position, checked, shown
from stoker.server.service import Service

Send = Callable[[Event | MissedEvents | StokerError], None]
"""Takes an event, or an error after which nothing more comes."""
Told = Callable[[dict[int, int | Position] | StokerError], None]
"""Takes the position in each shard where a subscription starts, as `after` takes it."""


class Subscription:
    """One subscription of a connection. `send` is called only while `has_room`."""

    def __init__(
        self,
        service: Service,
        identity: Identity,
        tenant: str,
        wanted: Filter,
        after: Mapping[int, int | Position] | None,
        send: Send,
        has_room: Callable[[], bool],
    ) -> None:
        self.queue = wanted.queue
        self._tenant = tenant
        self._dispatcher = service.dispatcher
        self._send = send
        self._has_room = has_room
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._is_to_go_on = False
        """Whether it goes on by itself, in the next turn of the event loop."""
        self._starting: asyncio.Task[None] | None = None
        """While other processes are asked how far their logs reach."""
        start = {shard: checked(position) for shard, position in (after or {}).items()}
        self._reader = EventReader(
            self._dispatcher,
            tenant,
            wanted,
            self.go_on,
            start=start,
            ends=self._dispatcher.own_ends(tenant),
            identity=identity,
        )

    def start(self, told: Told) -> None:
        """Begin. `told` is called once everything that happens from then on will be sent, or with an error."""
        if self._reader.is_placed:
            self._begin(told)
        else:
            self._starting = self._loop.create_task(self._find_places(told))

    async def _find_places(self, told: Told) -> None:
        try:
            self._reader.place(await self._dispatcher.ends(self._tenant))
        except StokerError as error:
            self.end()
            told(error)
        else:
            self._begin(told)

    def _begin(self, told: Told) -> None:
        told({shard: shown(self._reader.positions[shard]) for shard in self._reader.shards})
        self.go_on()

    def end(self) -> None:
        self.is_over = True
        if self._starting is not None and self._starting is not asyncio.current_task():
            self._starting.cancel()
        self._reader.close()

    def go_on(self) -> None:
        """Send what is there, as far as there is room."""
        if not self._is_to_go_on and not self.is_over and self._reader.is_placed:
            self._go_on()

    def _go_on(self) -> None:
        self._is_to_go_on = False
        try:
            for _ in range(TURN_EVENTS):
                if self.is_over:
                    return
                if not self._has_room():
                    self._reader.let_go()
                    return
                item = self._reader.next()
                if item is None:
                    return
                self._send(item)
        except StokerError as error:
            self.end()
            self._send(error)
        else:
            self._is_to_go_on = True
            self._loop.call_soon(self._go_on)
