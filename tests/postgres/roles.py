"""What a process does with a seat until it is stopped or killed."""

from multiprocessing.connection import Connection
from typing import Any

from tests.postgres.seat import Seat, outcome


def serve(wire: "Connection[Any, Any]", url: str) -> None:
    """Open the seat; then carry out what is asked for: `push`, or `read`."""
    seat = Seat(url)
    wire.send((seat.epoch, seat.push(3)))
    while (asked := wire.recv()) is not None:
        found = outcome(seat.push if asked == "push" else seat.client.list_queues)
        wire.send(type(found).__name__ if isinstance(found, Exception) else found)
