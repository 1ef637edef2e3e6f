"""The numbers of a client's pushes: few names, no number settled too early, and one job for each push.

The last test plays a network that loses requests and answers, between the windows and a true engine of several shards.
"""

import sys
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from stoker.brokers.resending import Plan, ResendAnswer, resend_steps
from stoker.brokers.sending_window import WINDOW, SendingWindow, SendingWindows
from stoker.model import commands as c
from stoker.model.errors import LimitExceeded
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.testing import World


def taken(windows: SendingWindows, count: int) -> list[c.Sending]:
    return [windows.take() for _ in range(count)]


def names(sendings: list[c.Sending]) -> set[str]:
    return {sending.sender for sending in sendings}


def test_a_window_is_half_of_what_a_shard_remembers_of_a_sender():
    assert DEFAULT_LIMITS.sendings_max >= 2 * WINDOW


def test_a_caller_that_waits_for_its_answers_has_one_name_and_settles_each_number():
    windows, seen = SendingWindows(size=3), []
    for _ in range(20):
        seen.append(windows.take())
        windows.settle(seen[-1])
    assert len(names(seen)) == 1
    assert [(sending.number, sending.settled) for sending in seen] == [(number, number) for number in range(1, 21)]


def test_settled_is_the_lowest_open_number():
    window = SendingWindow(10)
    for _ in range(5):
        window.take()
    for number, settled in ((3, 1), (2, 1), (5, 1), (1, 4), (4, 6)):
        window.settle(number)
        sending = window.take()
        assert sending is not None
        assert sending.settled == settled


def test_a_full_window_moves_with_its_lowest_number_only():
    window = SendingWindow(3)
    assert [window.take() is not None for _ in range(4)] == [True, True, True, False]
    window.settle(2)
    window.settle(3)
    assert window.begin_turn() is None
    window.settle(1)
    assert window.begin_turn() == c.Sending(window.name, 4, 4)


def test_one_slow_push_holds_up_no_other():
    windows = SendingWindows(size=3)
    slow, seen = windows.take(), []
    for _ in range(100):
        seen.append(windows.take())
        windows.settle(seen[-1])
    assert len(names(seen)) == 2
    windows.settle(slow)
    later = taken(windows, 6)
    assert names(later) == names(seen), "its name is used again"


@given(st.integers(1, 8), st.integers(1, 60))
def test_there_are_as_many_names_as_the_pushes_under_way_need(size: int, count: int):
    windows = SendingWindows(size)
    for _ in range(3):
        sendings = taken(windows, count)
        assert len(names(sendings)) == -(-count // size)
        for sending in sendings:
            windows.settle(sending)
    assert len(names([windows.take() for _ in range(count)])) == -(-count // size), "and no new ones later"


def test_names_take_turns_and_so_tell_what_is_settled():
    windows = SendingWindows(size=5)
    burst = taken(windows, 20)
    for sending in burst:
        windows.settle(sending)
    later = []
    for _ in range(20):
        later.append(windows.take())
        windows.settle(later[-1])
    assert names(later) == names(burst)


def test_two_clients_have_different_names():
    assert SendingWindows().take().sender != SendingWindows().take().sender


def test_threads_never_get_the_same_number():
    windows, seen = SendingWindows(size=7), [list[c.Sending]() for _ in range(6)]

    def push(mine: list[c.Sending]) -> None:
        for number in range(500):
            mine.append(windows.take())
            if number % 3:
                windows.settle(mine[-1])

    threads = [threading.Thread(target=push, args=(mine,)) for mine in seen]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    all_of_them = [(sending.sender, sending.number) for mine in seen for sending in mine]
    assert len(set(all_of_them)) == len(all_of_them) == 3_000


# --- servers that allow fewer open numbers ---------------------------------------------------------


def push_all(world: World, windows: SendingWindows, count: int) -> None:
    """Pushes that are all under way at once."""
    plans = [resend_steps(c.Push("q", b"%d" % number), windows) for number in range(count)]
    for plan, step in [(plan, next(plan)) for plan in plans]:
        finish(world, plan, step)


def finish(world: World, plan: Plan[Any], step: c.Command[Any]) -> None:
    while True:
        try:
            reply = world.client.execute(step)
        except LimitExceeded as error:
            step = plan.throw(error)
            continue
        with pytest.raises(StopIteration):
            plan.send(ResendAnswer(reply, again=False))
        return


@pytest.mark.parametrize("allowed", [1, 2, 7])
def test_a_server_that_allows_fewer_open_numbers_gets_smaller_windows(allowed: int):
    with World(limits=Limits(sendings_max=allowed)) as world:
        windows = SendingWindows()
        push_all(world, windows, 40)
        assert world.client.get_counts().waiting == 40
        assert len(names(taken(windows, 40))) >= 40 / allowed


def test_a_server_that_allows_none_refuses():
    with World(limits=Limits(sendings_max=0)) as world, pytest.raises(LimitExceeded, match="has not settled"):
        push_all(world, SendingWindows(), 40)


def test_other_limits_do_not_touch_the_windows():
    with World(limits=Limits(payload_bytes_max=1)) as world:
        windows = SendingWindows()
        first = taken(windows, 10)
        plan = resend_steps(c.Push("q", b"too long"), windows)
        with pytest.raises(LimitExceeded):
            finish(world, plan, next(plan))
        assert len(names([*first, *taken(windows, 300)])) == 1


# --- a network that loses requests and answers -----------------------------------------------------


class Sent(msgspec.Struct):
    """A push on its way."""

    push: c.Push
    job: int | None = None
    """What the server made of it, once it has got it."""


class LossyNetwork(RuleBasedStateMachine):
    """One client, several shards. Connections keep their order, so an old copy of an answered push never arrives."""

    SIZE = 3

    def __init__(self) -> None:
        super().__init__()
        self.world = World(limits=Limits(sendings_max=2 * self.SIZE), shards=4)
        self.windows = SendingWindows(self.SIZE)
        self.open: list[Sent] = []
        self.late: list[Sent] = []
        """Given up by the client, and still on the way."""
        self.jobs: dict[bytes, int] = {}
        """The answers that the client has got."""
        self.pushed = 0

    def teardown(self) -> None:
        self.world.close()

    @rule(queue=st.sampled_from(["a", "b", "c", "d"]))
    def push(self, queue: str) -> None:
        sending = self.windows.take()
        own = [sent.push.sending.number for sent in self.open if sent.push.sending.sender == sending.sender]  # type: ignore[union-attr]
        assert sending.settled <= min([*own, sending.number]), "settled passes a number that is open"
        assert sending.number - sending.settled < self.SIZE
        self.open.append(Sent(c.Push(queue, b"%d" % self.pushed, sending=sending)))
        self.pushed += 1

    def arrive(self, sent: Sent) -> None:
        job = self.world.client.execute(sent.push).id
        assert sent.job in (None, job), "a push that was sent again made a second job"
        sent.job = job

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def lose_the_answer(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from(self.open)))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.open))
        self.arrive(sent)
        self.end(sent)
        assert sent.job is not None
        self.jobs[sent.push.payload] = sent.job

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.open))
        self.end(sent)
        if sent.job is None:
            self.late.append(sent)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.late))
        self.late.remove(sent)
        try:
            self.arrive(sent)
        except LimitExceeded:
            pass  # the client has given it up

    def end(self, sent: Sent) -> None:
        self.open.remove(sent)
        assert sent.push.sending is not None
        self.windows.settle(sent.push.sending)

    @invariant()
    def each_push_is_one_job(self) -> None:
        found = self.world.client.browse(limit=1_000).jobs
        ids = {job.payload: job.id for job in found}
        assert len(ids) == len(found)
        assert ids.items() >= self.jobs.items()

    @invariant()
    def no_shard_remembers_more_than_it_may(self) -> None:
        for shard in self.world.broker.runtime.shards:
            for answers in shard.senders.values():
                assert len(list(answers.items())) <= 2 * self.SIZE


def test_each_push_is_one_job_whatever_the_network_loses():
    run_state_machine_as_test(LossyNetwork)
