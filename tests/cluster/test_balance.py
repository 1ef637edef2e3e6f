"""Which seats a node takes and gives away, without a node."""

import pytest

from stoker.server.processes.balance import SeatView, is_settled, seat_to_hand_over, seats_of_a_neighbour, seats_to_take

LEASE_S = 4.0


def views(*nodes: str, free_s: float = 0.0) -> list[SeatView]:
    return [SeatView(seat, node, 0.0 if node else free_s) for seat, node in enumerate(nodes)]


def test_a_node_alone_takes_everything():
    assert seats_to_take(views("", "", "", ""), "a", ["a"], [], LEASE_S) == [0, 1, 2, 3]


def test_a_node_below_its_share_takes_a_free_seat_at_once():
    assert seats_to_take(views("b", "b", "", ""), "a", ["a", "b"], [], LEASE_S) == [2, 3]
    assert seats_to_take(views("b", "b", "a", ""), "a", ["a", "b"], [2], LEASE_S) == [3]


def test_a_seat_that_was_handed_over_goes_to_the_node_with_the_least():
    assert seats_to_take(views("a", "b", "b", ""), "a", ["a", "b", "c"], [0], LEASE_S) == []
    assert seats_to_take(views("a", "b", "b", ""), "c", ["a", "b", "c"], [], LEASE_S) == [3]


def test_nodes_that_start_together_want_different_seats():
    wanted = [seats_to_take(views("", "", "", ""), name, ["a", "b", "c"], [], LEASE_S) for name in ("a", "b", "c")]
    assert wanted == [[0], [1], [2]]


def test_a_node_that_has_its_share_takes_a_free_seat_a_lease_later():
    assert seats_to_take(views("a", "a", "b", "", free_s=1.0), "a", ["a", "b"], [0, 1], LEASE_S) == []
    assert seats_to_take(views("a", "a", "b", "", free_s=4.5), "a", ["a", "b"], [0, 1], LEASE_S) == [3]


def test_a_node_with_two_more_than_the_least_hands_one_over():
    assert seat_to_hand_over(views("a", "a", "a", "b"), "a", ["a", "b"]) == 2
    assert seat_to_hand_over(views("a", "a", "b", "b"), "a", ["a", "b"]) is None
    assert seat_to_hand_over(views("a", "a", "a", "b"), "b", ["a", "b"]) is None


def test_one_node_at_a_time_hands_over_and_none_while_a_seat_is_free():
    assert seat_to_hand_over(views("a", "a", "b", "b"), "a", ["a", "b", "c"]) == 1
    assert seat_to_hand_over(views("a", "a", "b", "b"), "b", ["a", "b", "c"]) is None
    assert seat_to_hand_over(views("a", "a", "a", ""), "a", ["a", "b"]) is None


def test_nodes_look_more_often_while_a_seat_is_about_to_move():
    assert is_settled(views("a", "a", "b", "b"), ["a", "b"])
    assert is_settled(views("a", "b"), ["a", "b", "c"])
    assert not is_settled(views("a", "a", "b", ""), ["a", "b"]), "one is free"
    assert not is_settled(views("a", "a", "b", "b"), ["a", "b", "c"]), "c gets one"
    assert not is_settled(views("a", "a", "b", "b"), ["a"]), "b has signed off, or is dead"


def test_a_node_has_as_many_spare_processes_as_it_may_need_at_once():
    assert seats_of_a_neighbour(views("a", "a", "b", "b"), "a", ["a", "b"]) == 2
    assert seats_of_a_neighbour(views("a", "b", "c", "c"), "a", ["a", "b", "c"]) == 1
    assert seats_of_a_neighbour(views("a", "a", "a", "a"), "a", ["a"]) == 0


@pytest.mark.parametrize(("seats", "nodes"), [(4, 1), (4, 2), (4, 3), (4, 5), (8, 3), (16, 7)])
def test_any_beginning_ends_in_a_balance(seats: int, nodes: int):
    """Each round every node looks at the same table, as they do every second."""
    names = [f"n{number}" for number in range(nodes)]
    held = ["n0"] * seats
    for _ in range(10 * seats):
        table = views(*held)
        given = [(name, seat_to_hand_over(table, name, names)) for name in names]
        for _, seat in given:
            if seat is not None:
                held[seat] = ""
        table = views(*held)
        for name in names:
            mine = [seat for seat, holder in enumerate(held) if holder == name]
            for seat in seats_to_take(table, name, names, mine, LEASE_S):
                held[seat] = held[seat] or name
    counts = [held.count(name) for name in names]
    assert max(counts) - min(counts) < 2
    assert "" not in held
