"""One process of a server: `python -m stoker.server.processes.child DESCRIPTOR`, started only by the supervisor.

It reads its orders from the descriptor, serves, and ends when it is told to, or when the supervisor ends.
"""

import asyncio
import logging
import signal
import socket
import sys
from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, open_part, open_without_shards
from stoker.model.errors import StokerError
from stoker.server import logs
from stoker.server.binding import Bound
from stoker.server.broker_stopped import check_stopped, end_with
from stoker.server.config import ServerConfig
from stoker.server.processes.control_channel import (
    Channel,
    ClusterSeat,
    DirectoryPart,
    LookAgain,
    NoShards,
    Orders,
    Prepare,
    ProcessFailed,
    ProcessPrepared,
    ProcessReady,
    Reload,
    SeatPlaces,
    SeatTaken,
    Stop,
    Trouble,
)
from stoker.server.processes.links import ProcessSeat
from stoker.server.processes.ways import TcpWays
from stoker.server.run import calm_collector, new_loop
from stoker.server.server import Server, wanted

log = logging.getLogger("stoker.processes")


def main(descriptor: int) -> int:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work(descriptor))


async def work(descriptor: int) -> int:
    channel = await Channel.over(socket.socket(fileno=descriptor))
    orders = await channel.hear()
    if isinstance(orders, Prepare):
        load_for(orders.config)
        channel.say(ProcessPrepared())
        orders = await channel.hear()
    if not isinstance(orders, Orders):
        return 1  # the supervisor has ended
    logs.set_up(orders.config.log)
    broker: LocalBroker | None = None
    try:
        broker = opened(orders)
        seat = orders.seat
        if isinstance(orders.shards, ClusterSeat):
            seat = msgspec.structs.replace(seat, epoch=epoch_of(broker))
            channel.say(SeatTaken(seat.epoch))
            log.info("seat %d was taken, with epoch %d", seat.number, seat.epoch)
        calm_collector()
        await ChildServer(orders, seat, channel, broker).run()
        return 0
    except StokerError as error:
        channel.say(ProcessFailed(error.code, error.message, lost_seat=has_lost_seat(broker)))
        return 1
    finally:
        if broker is not None:
            broker.close()
        await channel.close()


def load_for(config: ServerConfig) -> None:
    """Load what a server with this configuration needs: it takes longer than most seats take to open."""
    import stoker.server.processes.member

    wanted(config)
    if config.cluster.url:
        import stoker.journal.postgres.store  # noqa: F401
    calm_collector()  # then it has less to look through when the seat is open


def opened(orders: Orders) -> LocalBroker:
    """The broker over the shards of this process."""
    shards, settings = orders.shards, orders.config.local
    if isinstance(shards, DirectoryPart):
        return open_part(shards.path, settings)
    if isinstance(shards, NoShards):
        return open_without_shards(shards.total, settings)
    from stoker.brokers.local import open_seat  # psycopg is needed only here

    return open_seat(
        shards.url, orders.seat.number, shards.node, shards.address, settings, instead_of=shards.instead_of
    )


def epoch_of(broker: LocalBroker) -> int:
    """With which it has taken its seat."""
    store: Any = broker.store
    return int(store.lease.taken.epoch)


def has_lost_seat(broker: LocalBroker | None) -> bool:
    """Whether another process has taken the seat. A part of a directory is never taken."""
    store: Any = broker.store if broker is not None else None
    return bool(getattr(store, "has_lost_seat", False))


def ways_of(orders: Orders) -> TcpWays | None:
    """How a process of a cluster reaches the others. None for the processes of one server."""
    if not orders.seat.can_move:
        return None
    descriptor = orders.link_descriptor
    listening = socket.socket(fileno=descriptor) if descriptor is not None else None
    return TcpWays(listening, orders.config.cluster.tls)


class ChildServer:
    """Serving, from beginning to end."""

    def __init__(self, orders: Orders, seat: ProcessSeat, channel: Channel, broker: LocalBroker) -> None:
        descriptor = orders.unix_descriptor
        bound = Bound({"unix": [socket.socket(fileno=descriptor)]} if descriptor is not None else {})
        self._ways = ways_of(orders)
        self._server = Server(orders.config, broker, seat, bound, self._ways)
        self._channel = channel
        assert self._server.team is not None
        self._team = self._server.team
        if seat.can_move:
            self._team.links.when_lost = lambda: channel.say(LookAgain())
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
        if self._team.seat.can_move:
            log.info("process %d serves", self._team.seat.number)
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
            elif isinstance(word, SeatPlaces):
                self._find(word)
            elif isinstance(word, Trouble):
                self._team.trouble = word.why
            elif isinstance(word, Stop):
                if word.at_once:
                    self._server.hurry()
                self._stopped.set()
        log.error("the supervisor is gone: this process ends")
        self._server.hurry()
        self._stopped.set()

    def _find(self, word: SeatPlaces) -> None:
        assert self._ways is not None
        self._ways.addresses = {seat: place.address for seat, place in word.places.items()}
        self._team.siblings = word.siblings
        for seat, place in word.places.items():
            if seat != self._team.seat.number:
                self._team.links.know(seat, place.epoch)

    def _reload(self, word: Reload) -> None:
        try:
            self._server.reload(word.config)
            log.info("read tokens, keys, quotas and limits again")
        except StokerError as error:
            log.error("nothing was reloaded: %s", error)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
