"""One process of a server: `python -m stoker.server.processes.child DESCRIPTOR`, started only by the supervisor.

It reads its orders from the descriptor, serves, and ends when it is told to, or when the supervisor ends.
"""

import asyncio
import logging
import signal
import socket
import sys

from stoker.brokers.local import LocalBroker, open_part
from stoker.model.errors import StokerError
from stoker.server import logs
from stoker.server.binding import Bound
from stoker.server.broker_stopped import check_stopped, end_with
from stoker.server.processes.control_channel import Channel, Orders, ProcessFailed, ProcessReady, Reload, Stop
from stoker.server.run import calm_collector, new_loop
from stoker.server.server import Server

log = logging.getLogger("stoker.processes")


def main(descriptor: int) -> int:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work(descriptor))


async def work(descriptor: int) -> int:
    channel = await Channel.over(socket.socket(fileno=descriptor))
    orders = await channel.hear()
    if not isinstance(orders, Orders):
        return 1  # the supervisor has ended
    logs.set_up(orders.config.log)
    broker: LocalBroker | None = None
    try:
        broker = open_part(orders.part, orders.config.local)
        calm_collector()
        await ChildServer(orders, channel, broker).run()
        return 0
    except StokerError as error:
        channel.say(ProcessFailed(error.code, error.message))
        return 1
    finally:
        if broker is not None:
            broker.close()
        await channel.close()


class ChildServer:
    """Serving, from beginning to end."""

    def __init__(self, orders: Orders, channel: Channel, broker: LocalBroker) -> None:
        descriptor = orders.unix_descriptor
        bound = Bound({"unix": [socket.socket(fileno=descriptor)]} if descriptor is not None else {})
        self._server = Server(orders.config, broker, orders.seat, bound)
        self._channel = channel
        self._stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        self._listening = loop.create_task(self._listen())
        self._broker = broker
        end_with(broker, self._stopped, self._server.hurry)

    async def run(self) -> None:
        stopped = asyncio.ensure_future(self._stopped.wait())
        starting = asyncio.ensure_future(self._server.start())
        await asyncio.wait({stopped, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # told to stop before all others were ready
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        self._channel.say(ProcessReady(await starting))
        await stopped
        await self._server.stop()
        self._listening.cancel()
        check_stopped(self._broker)

    def _stop(self) -> None:
        if self._stopped.is_set():
            self._server.hurry()
        self._stopped.set()

    async def _listen(self) -> None:
        """Listen until the supervisor ends. Then this process ends, too, so that the directory becomes free."""
        while (word := await self._channel.hear()) is not None:
            if isinstance(word, Reload):
                self._reload(word)
            elif isinstance(word, Stop):
                if word.at_once:
                    self._server.hurry()
                self._stopped.set()
        log.error("the supervisor is gone: this process ends")
        self._server.hurry()
        self._stopped.set()

    def _reload(self, word: Reload) -> None:
        try:
            self._server.reload(word.config)
            log.info("read tokens, keys, quotas and limits again")
        except StokerError as error:
            log.error("nothing was reloaded: %s", error)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
