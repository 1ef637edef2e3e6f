"""Bugs that are planted into links and balance, each noticed by the test that it is the business of."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import test_balance
from tests.mutants.planting import Edit, planted_here
from tests.processes import test_links

LINKS, BALANCE = "server.processes.links", "server.processes.balance"

BUGS: dict[str, tuple[Edit, Callable[[Path], object]]] = {
    "old link accepted": (
        Edit(f"{LINKS}:ProcessLinks.check_epoch", "if link.epoch < newest:", "if False:"),
        test_links.test_a_link_of_an_older_epoch_is_refused_and_one_that_is_there_is_cut,
    ),
    "old link not cut": (
        Edit(f"{LINKS}:ProcessLinks.know", "if link is not None and link.epoch < epoch:", "if False:"),
        test_links.test_a_link_of_an_older_epoch_is_refused_and_one_that_is_there_is_cut,
    ),
    "proof not compared": (
        Edit(f"{LINKS}:Greeting.check", "if not hmac.compare_digest(self.proof(side), proof):", "if False:"),
        test_links.test_a_process_that_does_not_know_the_secret_is_refused,
    ),
    "challenge not proven": (
        Edit(f"{LINKS}:Greeting.challenged", "self._said += [epoch, nonce]", "self._said += [epoch]"),
        test_links.test_a_greeting_that_was_recorded_is_of_no_use_later,
    ),
    "link for another process taken": (
        Edit(f"{LINKS}:ProcessLink._asked", "if hello.to != seat.number:", "if False:"),
        test_links.test_a_process_that_reaches_another_one_than_it_looked_for_is_refused,
    ),
    "seat taken back after it was handed over": (
        Edit(f"{BALANCE}:seats_to_take", "and have <= least", ""),
        lambda _: test_balance.test_a_seat_that_was_handed_over_goes_to_the_node_with_the_least(),
    ),
    "all nodes hand over at once": (
        Edit(f"{BALANCE}:seat_to_hand_over", "giver != node or", ""),
        lambda _: test_balance.test_one_node_at_a_time_hands_over_and_none_while_a_seat_is_free(),
    ),
}


@pytest.mark.filterwarnings("ignore")  # a test that fails halfway leaves its sockets open
@pytest.mark.parametrize("name", BUGS)
def test_it_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(test_links, "BOUND_S", 3.0)  # less than a greeting may take, so no connection is cut by its end
    edit, notices = BUGS[name]
    with planted_here([edit]), pytest.raises((AssertionError, TimeoutError)):
        notices(tmp_path)
    gc.collect()
