"""One address for several servers, as a load balancer gives it: each connection goes to one that is there."""

import asyncio
import random
import threading
from contextlib import suppress

CHUNK = 65_536


class Balancer:
    """Passes bytes on. A server that refuses a connection is passed over; one that dies takes its connections along."""

    def __init__(self, chance: random.Random) -> None:
        self.targets: list[int] = []
        """The ports of the servers. Tests change it."""
        self.port = 0
        self._chance = chance
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._ready.wait()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._passing: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        await asyncio.wait([task])

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            there = await self._reached()
            if there is not None:
                ends.append(there[1])
                await asyncio.gather(passed(reader, there[1]), passed(there[0], writer))
        finally:
            for end in ends:
                end.transport.abort()
            await asyncio.sleep(0)  # the transports close in the next turn

    async def _reached(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to a server that is there."""
        for port in self._chance.sample(self.targets, len(self.targets)):
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
