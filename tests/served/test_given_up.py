"""A pull that waits in a broker with turns, and meets another call before its turn ends: no delivery is lost."""

import threading

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.engine.parking import Parked
from stoker.model import commands as c

PULL = c.Pull(("q",), 1, 60_000, lease_ms=600_000)


def waiting_pull(broker: LocalBroker) -> Parked:
    parked = broker.begin("default", PULL)
    assert isinstance(parked, Parked)
    return parked


def state_of(broker: LocalBroker, job: int) -> str:
    return broker.execute("default", c.GetJob(job)).state


def test_a_pull_given_up_after_it_was_served_and_before_the_turn_ended_gives_its_job_back():
    broker = LocalBroker(LocalSettings())
    slot = broker.hold(waiting_pull(broker), lambda: None)
    broker.end()
    job = broker.begin("default", c.Push("q", b"job")).id  # serves the pull: its reply leaves with the end of the turn
    broker.abandon(slot)
    broker.end()
    assert state_of(broker, job) == "waiting"
    assert broker.execute("default", c.Pull(("q",), 1)).ids == (job,)
    broker.close()


def test_a_job_that_goes_back_at_the_end_of_a_turn_reaches_the_next_pull_that_waits():
    broker, woken = LocalBroker(LocalSettings()), threading.Event()
    first = broker.hold(waiting_pull(broker), lambda: None)
    second = broker.hold(waiting_pull(broker), woken.set)
    broker.end()
    job = broker.begin("default", c.Push("q", b"job")).id
    broker.abandon(first)
    broker.end()
    assert woken.is_set()
    assert broker.take(second).ids == (job,)
    broker.close()


def test_a_pull_that_another_thread_answers_before_it_is_held_keeps_its_reply():
    broker, woken = LocalBroker(LocalSettings()), threading.Event()
    parked = waiting_pull(broker)
    pushing = threading.Thread(target=broker.execute, args=("default", c.Push("q", b"job")))
    pushing.start()
    pushing.join()
    slot = broker.hold(parked, woken.set)
    broker.end()
    assert woken.is_set()
    assert [job.payload for job in broker.take(slot)] == [b"job"]
    broker.close()
