"""Decides which seats a node takes and gives away. No leader decides for all: each node looks at the same table.

A node below its share of the seats, than which none has less, takes a free one at once; others wait for a lease. So a
free seat goes to the node that has the least, and to another one if that one cannot take it. A node with two more than
the least hands one over.
This module decides only; it knows no database.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec


class SeatView(msgspec.Struct, frozen=True):
    """A seat, as a node sees it in the table."""

    seat: int
    node: str
    """The node that holds it. Empty if it is free, or its lease has ended."""
    free_s: float = 0.0
    """For how long it has been seen free."""


def share(seats: int, nodes: int) -> int:
    """How many seats a node should have: rounded up, so that all are taken."""
    return -(-seats // max(1, nodes))


def seats_to_take(
    seats: Sequence[SeatView], node: str, living: Collection[str], mine: Collection[int], lease_s: float
) -> list[int]:
    """The free seats that a node takes now; `mine` are those that its processes have or are about to take.

    Each node begins with another seat, so that they rarely want the same one.
    """
    names = sorted({*living, node})
    others = Counter(view.node for view in seats)
    least = min((others[name] for name in names if name != node), default=len(seats))
    free = [view for view in seats if not view.node and view.seat not in mine]
    first = names.index(node) % len(free) if free else 0
    found: list[int] = []
    for view in free[first:] + free[:first]:
        have = len(mine) + len(found)
        if (have < share(len(seats), len(names)) and have <= least) or view.free_s > lease_s:
            found.append(view.seat)
    return found


def seats_of_a_neighbour(seats: Sequence[SeatView], node: str, living: Collection[str]) -> int:
    """How many seats this node may have to take at once: its share of those of another node, which ends."""
    others = [name for name in living if name != node]
    most = max(Counter(view.node for view in seats if view.node in others).values(), default=0)
    return share(most, len(others))


def is_settled(seats: Sequence[SeatView], living: Collection[str]) -> bool:
    """Whether every seat is held by a living node, and no node has two more than another: none is about to move."""
    held = Counter(dict.fromkeys(living, 0))
    held.update(view.node for view in seats)
    return held.keys() == set(living) and max(held.values(), default=0) - min(held.values(), default=0) < 2


def seat_to_hand_over(seats: Sequence[SeatView], node: str, living: Collection[str]) -> int | None:
    """The seat that a node gives away, so that another one can take it; None if it has no more than it should.

    Only one node at a time does so: the one with the most, and of several the first by name. None does while a seat is
    free: the last one that was handed over is not yet taken.
    """
    held = Counter(dict.fromkeys(living, 0))
    held.update(view.node for view in seats if view.node in held)
    if node not in held or not all(view.node for view in seats):
        return None
    giver = min(held, key=lambda name: (-held[name], name))
    if giver != node or held[node] < min(held.values()) + 2:
        return None
    return max(view.seat for view in seats if view.node == node)
