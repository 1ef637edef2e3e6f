"""Which processes a node of a cluster has, as it tells them: the metrics of the node are those of all of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from stoker.journal.postgres.seats import NodeRow, SeatRow
from stoker.model.errors import Unreachable
from stoker.server.processes.cluster_seating import ClusterSeating
from stoker.server.processes.control_channel import SeatPlace, SeatPlaces

SEAT, SPARE = 0, 77
ROWS = [SeatRow(SEAT, 5, "node", "127.0.0.1:1", 0, in_order=False, is_held=True)]
NODES = [NodeRow("node", "", 0, 0, is_alive=True)]


class ToldSupervisor:
    """Both of its processes serve. It notes what they are told."""

    is_stopping = False

    def __init__(self) -> None:
        self.lives = {
            number: SimpleNamespace(was_ready=True, is_released=False, process=SimpleNamespace(returncode=None))
            for number in (SEAT, SPARE)
        }
        self.places: SeatPlaces | None = None

    def say(self, word: Any) -> None:
        if isinstance(word, SeatPlaces):
            self.places = word

    def release(self, number: int) -> None:
        self.lives[number].is_released = True


def test_a_process_that_has_ended_is_not_waited_for_also_while_postgresql_is_away():
    """Otherwise the node tells no metrics until PostgreSQL is back."""

    async def main() -> None:
        loop, supervisor = asyncio.get_running_loop(), ToldSupervisor()
        seating: Any = object.__new__(ClusterSeating)
        seating.node, seating._spare, seating._spares = "node", SPARE, 1
        seating._tasks = {SEAT: loop.create_future(), SPARE: loop.create_future()}
        seating._places, seating._free_since = {}, {}
        seating._is_away, seating._look_s, seating._rests_until, seating._handed_over_at = False, 1.0, 0.0, 0.0

        async def found(work: Any) -> Any:
            return ROWS, NODES

        async def away(work: Any) -> Any:
            raise Unreachable("PostgreSQL does not answer")

        seating._in_database = found
        await seating._look(supervisor)
        assert supervisor.lives[SPARE].is_released, "the seat is served, so the process without shards may end"
        assert supervisor.places == SeatPlaces({SEAT: SeatPlace("127.0.0.1:1", 5)}, [SEAT])
        seating._in_database = away
        supervisor.lives[SEAT].process.returncode = -9
        await seating._look(supervisor)
        assert supervisor.places == SeatPlaces({SEAT: SeatPlace("127.0.0.1:1", 5)}, [])

    asyncio.run(main())
