"""A node of a cluster: `stoker serve --cluster postgresql://...`. It has one process for each seat that it holds.

PostgreSQL decides which node has a seat (`journal/postgres/seats.py`). Every second the node says that it lives, reads
the table, takes and hands over seats (`balance.py`), and tells its processes where the others are. It looks more often
while a seat is about to move. A node without a seat has one process without shards, with a number behind the seats: it
serves requests, and the seats carry them out.
While PostgreSQL is away the node changes nothing; its processes look after their own leases.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

import msgspec

from stoker.journal.postgres.cluster import Leader, secret_of
from stoker.journal.postgres.database import Database
from stoker.journal.postgres.schema import Cluster, check
from stoker.journal.postgres.seats import LEASE_S, NodeRow, SeatRow, Seats
from stoker.model.errors import InUse, StokerError, Unreachable
from stoker.server.binding import bound_socket, cannot_listen, close_all
from stoker.server.config import ListenAddress, ServerConfig, tls_context
from stoker.server.processes.balance import (
    SeatView,
    is_settled,
    seat_to_hand_over,
    seats_of_a_neighbour,
    seats_to_take,
)
from stoker.server.processes.control_channel import ClusterSeat, NoShards, Orders, SeatPlace, SeatPlaces, Trouble
from stoker.server.processes.links import ProcessSeat
from stoker.server.processes.ports import Ports
from stoker.server.processes.supervisor import Life, Supervisor
from stoker.server.run import check_files

LOOK_S: Final = 1.0
MOVING_S: Final = 0.1
"""The same while a seat is free, or about to be: clients wait for it."""
PATIENCE_S: Final = 10.0
"""How long a node that starts waits for PostgreSQL."""
HAND_OVER_S: Final = 3.0
"""Between two seats that a node hands over: the next one waits until the last one is served again."""
REST_S: Final = 60.0
"""A node takes no seat for so long after one of its processes could not serve a seat."""
FAILURES_MAX: Final = 5
"""How often in a row a process may die with a seat before the node leaves the seat to others."""
NUMBERS: Final = 1 << 30
"""Of processes without shards: chosen at random, so that no two nodes have the same."""

T = TypeVar("T")

log = logging.getLogger("stoker.processes")


async def supervise(
    config: ServerConfig, again: Callable[[], ServerConfig] | None = None, notes: Sequence[str] = ()
) -> int:
    """Serve until told to stop. Returns the exit code."""
    check_files(config)
    tls_context(config.cluster.tls)
    database = Database(config.cluster.url)
    cluster = await found(database, config.shards)
    # as many share the limits; more than one share the ports, because one process takes the place of another
    config = msgspec.structs.replace(config, processes=max(2, cluster.seats))
    ports = Ports(config)
    try:
        return await Supervisor(ClusterSeating(ports.config, database, cluster), ports, again, notes).run()
    finally:
        ports.close()


async def found(database: Database, shards: int | None) -> Cluster:
    """What the database holds. A PostgreSQL that is just being restarted is waited for."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await asyncio.to_thread(check, database, shards)
        except Unreachable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(LOOK_S)


def name_of(config: ServerConfig) -> str:
    """The name of a node that was given none: its machine and a port, which no other node there has."""
    port = next((address.port for address in config.listeners.values()), 0)
    return config.cluster.node or f"{socket.gethostname()}:{port}"


def sockets_for(listen: ListenAddress, seats: int) -> list[socket.socket]:
    """A socket for each seat: at the next port, or at any."""
    found: list[socket.socket] = []
    for seat in range(seats):
        address = listen._replace(port=listen.port + seat if listen.port else 0)
        try:
            family, *_, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            found.append(bound_socket(family, where, is_shared=False))
        except (OSError, OverflowError) as error:
            close_all(found)
            raise cannot_listen("cluster", address, OSError(str(error))) from None
    return found


class ClusterSeating:
    """The seats that this node holds, and those that it wants."""

    def __init__(self, config: ServerConfig, database: Database, cluster: Cluster) -> None:
        self._url = config.cluster.url
        self._cluster = cluster
        self._secret = secret_of(database)
        self._listen = config.cluster.address
        self.node = name_of(config)
        where = next(iter(config.listeners.values()), None)
        self._seats = Seats(database, self.node, str(where or ""))
        self._leader = Leader(database, self.node)
        self._listening = sockets_for(self._listen, cluster.seats)
        """Where other nodes reach each seat. They stay bound, so that no other program takes the ports."""
        self._spare = cluster.seats + secrets.randbelow(NUMBERS)
        """The number of the process without shards."""
        self._spares = 2
        """So many processes wait for a number. At the start, one for a seat and one without shards."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._epochs: dict[int, int] = {}
        """Of processes of this node that have died with their seat."""
        self._free_since: dict[int, float] = {}
        self._rests_until = 0.0
        self._handed_over_at = 0.0
        self._is_away = False
        self._places: dict[int, SeatPlace] = {}
        """Where the seats were when PostgreSQL was asked last."""
        self._beats_at = 0.0
        """When this node says the next time that it lives."""
        self._look_s = LOOK_S
        self._look_now = asyncio.Event()

    # --- what a supervisor asks --------------------------------------------------------------------

    @property
    def descriptors(self) -> Sequence[int]:
        return [listening.fileno() for listening in self._listening]

    async def run(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.keep_spares(self._spares)
            await supervisor.spares_prepared()  # others hand seats over as soon as this node says that it lives
            await self._in_database(self._seats.beat)  # raises if a living node has this name
            try:
                await self._look_until_stopped(supervisor)
            finally:
                await self._in_database(self._sign_off)  # now, so that others take the seats as soon as they are free
            await asyncio.gather(*self._tasks.values())
        finally:
            await self._in_database(self._close)

    async def _look_until_stopped(self, supervisor: Supervisor) -> None:
        stopping = asyncio.ensure_future(supervisor.stopped())
        while not supervisor.is_stopping:
            self._look_now.clear()
            await self._look(supervisor)
            if not self._is_opening(supervisor):  # a process that loads its modules would slow it down
                await supervisor.keep_spares(self._spares)
            looking = asyncio.ensure_future(self._look_now.wait())
            await asyncio.wait({looking, stopping}, timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED)
            looking.cancel()

    def _is_opening(self, supervisor: Supervisor) -> bool:
        """Whether a process of this node is about to serve."""
        lives = [supervisor.lives.get(number) for number in self._tasks]
        return any(life is None or (not life.was_ready and life.process.returncode is None) for life in lives)

    def orders(self, number: int, config: ServerConfig, unix: int | None) -> Orders:
        seat = ProcessSeat(number=number, seats=self._cluster.seats, secret=self._secret)
        own = self.share_of(config)
        if number == self._spare:
            return Orders(seat, own, NoShards(self._cluster.shards), unix)
        listening = self._listening[number]
        address = str(config.cluster.reached_at(number, listening.getsockname()[1]))
        taking = ClusterSeat(self._url, self.node, address, self._epochs.pop(number, 0))
        return Orders(seat, own, taking, unix, listening.fileno())

    def share_of(self, config: ServerConfig) -> ServerConfig:
        return msgspec.structs.replace(
            config,
            shards=self._cluster.shards,
            memory_bytes_max=config.memory_bytes_max // self._cluster.seats,
            events_bytes_max=config.events_bytes_max // self._cluster.seats,
        )

    def is_complete(self, ready: Collection[int]) -> bool:
        return bool(ready)

    def wants_again(self, number: int, life: Life, failures: int) -> bool:
        self._epochs[number] = life.epoch
        failure = life.failure
        if failure is None or (life.was_ready and not life.is_hopeless):
            if failures <= FAILURES_MAX:
                return True
        elif failure.code == InUse.code:
            log.info("%s", failure.message)
            return False
        log.error("this node takes no seat for %g s: %s", REST_S, failure.message if failure else life.how_it_ended)
        self._rests_until = time.monotonic() + REST_S
        return number == self._spare

    def look_again(self) -> None:
        self._look_now.set()

    # --- every second ------------------------------------------------------------------------------

    async def _look(self, supervisor: Supervisor) -> None:
        try:
            rows, nodes = await self._in_database(self._read)
        except InUse:
            raise
        except StokerError as error:
            if not self._is_away:
                log.warning("%s; this node takes and hands over no seat until it does", error)
            self._is_away, self._look_s = True, LOOK_S
            supervisor.say(Trouble(str(error)))
            self._tell(supervisor)
            return
        if self._is_away:
            self._is_away = False
            log.info("PostgreSQL answers again")
            supervisor.say(Trouble(""))
        for number, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[number]
                task.result()
        self._places = {row.seat: SeatPlace(row.address, row.epoch) for row in rows if row.node and row.address}
        if not supervisor.is_stopping:
            self._balance(supervisor, rows, [row.node for row in nodes if row.is_alive])
        self._tell(supervisor)

    async def _in_database(self, work: Callable[[], T]) -> T:
        """Do something in a thread. A PostgreSQL that takes what it is sent and does not answer holds nothing up."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        while not working.done():
            await asyncio.wait({working}, timeout=LOOK_S)
            self._seats.watch()
            self._leader.watch()
        return working.result()

    def _read(self) -> tuple[list[SeatRow], list[NodeRow]]:
        is_due = time.monotonic() >= self._beats_at
        if is_due:
            self._beats_at = time.monotonic() + LOOK_S
            self._seats.beat()
        rows, nodes = self._seats.read(), self._seats.nodes()
        if is_due:
            self._leader.look(self._seats)
        return rows, nodes

    def _tell(self, supervisor: Supervisor) -> None:
        """Where the seats are, and which processes this node has: these come and go also while PostgreSQL is away."""
        here = [number for number in self._tasks if self._is_ready(supervisor, number)]
        supervisor.say(SeatPlaces(self._places, here))

    def _balance(self, supervisor: Supervisor, rows: list[SeatRow], living: list[str]) -> None:
        now = time.monotonic()
        views = [self._view(row, now) for row in rows]
        self._look_s = LOOK_S if is_settled(views, living) else MOVING_S
        self._spares = max(1, seats_of_a_neighbour(views, self.node, living))
        mine = [number for number in self._tasks if number != self._spare]
        if now >= self._rests_until:
            for seat in seats_to_take(views, self.node, living, mine, LEASE_S):
                self._begin(supervisor, seat)
        ready = [number for number in mine if self._is_ready(supervisor, number)]
        given = seat_to_hand_over(views, self.node, living)
        if (
            given is not None
            and given in ready
            and len(ready) == len(mine)
            and now - self._handed_over_at > HAND_OVER_S
        ):
            self._handed_over_at = now
            log.info("seat %d is handed over to another node", given)
            supervisor.release(given)
        self._keep_spare(supervisor, bool(mine), bool(ready))

    def _view(self, row: SeatRow, now: float) -> SeatView:
        if row.node and row.is_held:
            self._free_since.pop(row.seat, None)
            return SeatView(row.seat, row.node)
        return SeatView(row.seat, "", now - self._free_since.setdefault(row.seat, now))

    def _is_ready(self, supervisor: Supervisor, number: int) -> bool:
        life = supervisor.lives.get(number)
        return life is not None and life.was_ready and not life.is_released and life.process.returncode is None

    def _keep_spare(self, supervisor: Supervisor, has_seats: bool, serves_seats: bool) -> None:
        """A node without a seat that it could serve has a process without shards."""
        if not has_seats and self._spare not in self._tasks:
            self._begin(supervisor, self._spare)
        elif serves_seats and self._spare in self._tasks and self._spare in supervisor.lives:
            supervisor.release(self._spare)

    def _begin(self, supervisor: Supervisor, number: int) -> None:
        self._tasks[number] = asyncio.get_running_loop().create_task(supervisor.look_after(number))

    # --- its own -----------------------------------------------------------------------------------

    def _sign_off(self) -> None:
        try:
            self._seats.leave()
        except StokerError as error:
            log.warning("this node could not sign off: %s", error)

    def _close(self) -> None:
        self._leader.close()
        self._seats.close()
        for listening in self._listening:
            listening.close()
