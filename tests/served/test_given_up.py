"""A pull that waits in a server and is given up, or meets another call before its turn ends: no delivery is lost."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stoker.brokers.contract import Waiter
from stoker.brokers.local import LocalBroker, LocalSettings, LocalWaiter
from stoker.model import commands as c
from stoker.server.dispatcher import Dispatcher

PULL = c.Pull(("q",), 1, 60_000, lease_ms=600_000)


def waiting_pull(broker: LocalBroker, wake: Callable[[Any], object] = lambda _: None) -> LocalWaiter:
    waiter = broker.begin("default", PULL, wake)
    assert isinstance(waiter, LocalWaiter)
    return waiter


def push(broker: LocalBroker) -> int:
    """In the turn that is begun: a waiting pull is served, and its reply leaves with the end of the turn."""
    job: int = broker.begin("default", c.Push("q", b"job"), lambda _: None).id
    return job


def assert_waiting(broker: LocalBroker, job: int) -> None:
    state = broker.execute("default", c.GetJob(job)).state
    assert state == "waiting", f"the job is {state}, and was to be waiting"


def test_a_pull_given_up_after_it_was_served_and_before_the_turn_ended_gives_its_job_back():
    broker = LocalBroker(LocalSettings())
    waiter = waiting_pull(broker)
    broker.end()
    job = push(broker)
    waiter.give_up()
    broker.end()
    assert_waiting(broker, job)
    assert broker.execute("default", c.Pull(("q",), 1)).ids == (job,)
    broker.close()


def test_a_job_that_goes_back_at_the_end_of_a_turn_reaches_the_next_pull_that_waits():
    broker, woken = LocalBroker(LocalSettings()), threading.Event()
    first = waiting_pull(broker)
    second = waiting_pull(broker, lambda _: woken.set())
    broker.end()
    job = push(broker)
    first.give_up()
    broker.end()
    assert woken.is_set()
    assert second.reply.ids == (job,)
    broker.close()


def test_a_pull_that_another_thread_answers_in_its_own_turn_keeps_its_reply():
    broker, woken = LocalBroker(LocalSettings()), threading.Event()
    waiter = waiting_pull(broker, lambda _: woken.set())
    pushing = threading.Thread(target=broker.execute, args=("default", c.Push("q", b"job")))
    pushing.start()
    pushing.join()
    broker.end()
    assert woken.is_set()
    assert [job.payload for job in waiter.reply] == [b"job"]
    broker.close()


# --- at the dispatcher of a server -------------------------------------------------------------------------


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  a dispatcher has no events for its tests
        await asyncio.sleep(0)


async def woken_pull(broker: LocalBroker, dispatcher: Dispatcher, replies: list[Any]) -> tuple[Waiter, int]:
    """A pull that waited, and whose reply is on its way: it leaves when the turn of the event loop ends."""
    waiter = dispatcher.submit("default", PULL, replies.append)
    assert waiter is not None
    await until(lambda: dispatcher.is_waiting and not dispatcher._is_open)
    job = broker.execute("default", c.Push("q", b"job")).id
    await until(lambda: not dispatcher.is_waiting)
    assert not replies
    return waiter, job


async def over(dispatcher: Dispatcher) -> None:
    """Until what was submitted is done with."""
    await dispatcher.call("default", c.ListQueues())


def test_a_reply_on_its_way_to_a_client_that_gives_up_goes_back():
    async def work() -> None:
        broker, replies = LocalBroker(LocalSettings()), list[Any]()
        dispatcher = Dispatcher(broker)
        waiter, job = await woken_pull(broker, dispatcher, replies)
        waiter.give_up()
        await over(dispatcher)
        await over(dispatcher)  # the release is a command of the turn after
        assert not replies
        assert_waiting(broker, job)
        await dispatcher.close()
        broker.close()

    asyncio.run(work())


def test_a_reply_that_is_there_when_its_caller_leaves_goes_back():
    """An HTTP client that closes its connection in the moment in which its job comes."""

    async def leave(reply: "asyncio.Future[Any]") -> Any:
        await reply
        raise ConnectionResetError

    async def work() -> None:
        broker = LocalBroker(LocalSettings())
        dispatcher = Dispatcher(broker)
        calling = asyncio.ensure_future(dispatcher.called(dispatcher.submit, "default", PULL, leave))
        await until(lambda: dispatcher.is_waiting)
        job = (await dispatcher.call("default", c.Push("q", b"job"))).id
        with pytest.raises(ConnectionResetError):
            await calling
        await over(dispatcher)
        assert_waiting(broker, job)
        await dispatcher.close()
        broker.close()

    asyncio.run(work())


CHECKS = (
    test_a_pull_given_up_after_it_was_served_and_before_the_turn_ended_gives_its_job_back,
    test_a_reply_on_its_way_to_a_client_that_gives_up_goes_back,
)
"""What planted bugs are found with: tests/mutants."""
