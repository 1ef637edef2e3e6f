"""The local broker between threads, event loops and interrupts. Real time, bounded; signals instead of sleeps."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import stoker
from stoker.brokers.local import LocalBroker
from stoker.engine import pushing
from stoker.model import commands as c
from stoker.model.errors import Closed
from stoker.model.options import Options

LONG_MS = 30_000


def until_waiting(broker: LocalBroker, calls: int) -> None:
    """Return when so many calls sleep in the broker."""
    for _ in range(100_000):
        with broker._lock:
            if len(broker._waiters) == calls:
                return
        threading.Event().wait(0.0005)
    raise AssertionError(f"{len(broker._waiters)} calls wait, expected {calls}")


def waiting_pull(pool: ThreadPoolExecutor, broker: LocalBroker, queue: str) -> Future[Any]:
    before = len(broker._waiters)
    future = pool.submit(broker.execute, "default", c.Pull([queue], 1, LONG_MS))
    until_waiting(broker, before + 1)
    return future


def test_the_time_is_kept_when_the_timekeeper_and_the_next_one_leave_together():
    broker = LocalBroker()
    with ThreadPoolExecutor(3) as pool:
        first, second = waiting_pull(pool, broker, "q"), waiting_pull(pool, broker, "q")
        third = waiting_pull(pool, broker, "later")
        broker.execute("default", c.Push("later", b"", Options(delay_ms=100)))
        broker.execute("default", c.PushBatch("q", [b"", b""]))
        assert len(first.result(60)) == len(second.result(60)) == 1
        assert len(third.result(60)) == 1, "woken by the delay, long before its own end"
    broker.close()


def test_a_closed_event_loop_harms_nobody_else():
    """The delivery that it would have got goes to the next one."""
    broker = LocalBroker()
    loop = asyncio.new_event_loop()
    task = loop.create_task(broker.execute_async("default", c.Pull(["q"], 1, LONG_MS)))
    loop.run_until_complete(asyncio.sleep(0))
    until_waiting(broker, 1)
    task.cancel = lambda *_: True  # type: ignore[method-assign]  # as when a loop is closed without cancelling
    loop.close()
    job = broker.execute("default", c.Push("q", b"")).id
    assert list(broker.execute("default", c.Pull(["q"])).ids) == [job]
    assert broker.execute("default", c.GetJob(job)).attempts == 1
    broker.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_claim_that_somebody_gave_up_waiting_for_stays_as_it_is():
    async def main() -> tuple[Any, Any]:
        broker = LocalBroker()
        pull = c.Pull(["q"], 1, LONG_MS, claim="mine")
        one = asyncio.create_task(broker.execute_async("default", pull))
        other = asyncio.create_task(broker.execute_async("default", pull))
        await asyncio.sleep(0)
        broker.execute("default", c.Push("q", b""))
        one.cancel()
        held = await other
        return held.ids, broker.execute("default", c.GetJob(held.ids[0])).state

    ids, state = asyncio.run(main())
    assert len(ids) == 1
    assert state == stoker.State.ACTIVE


def test_closing_twice_closes_once():
    first, second = stoker.connect("memory://closed-once"), stoker.connect("memory://closed-once")
    with first:
        first.close()
    first.as_tenant("other").close()
    assert second.push("q", b"").created
    second.close()
    with pytest.raises(Closed):
        second.push("q", b"")


def test_a_turn_that_was_broken_off_stops_the_broker(monkeypatch: pytest.MonkeyPatch):
    """An interrupt in the middle of a change: nothing is built upon half a turn, and those who wait are told."""
    broker = LocalBroker()
    broker.execute("default", c.Push("q", b""))

    def interrupted(shard: Any, *_: Any, **__: Any) -> None:
        shard.emit(broken_record)
        raise KeyboardInterrupt

    broken_record = broker.runtime.journal.read(0, 0, 1)[0][1]
    with ThreadPoolExecutor(1) as pool:
        waiting = waiting_pull(pool, broker, "other")
        monkeypatch.setattr(pushing, "push_many", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broker.execute("default", c.PushBatch("q", [b""]))
        with pytest.raises(Closed, match="KeyboardInterrupt"):
            waiting.result(60)
    with pytest.raises(Closed, match="broken off"):
        broker.execute("default", c.ListQueues())


def test_an_error_before_anything_was_recorded_stops_nobody(monkeypatch: pytest.MonkeyPatch):
    broker = LocalBroker()

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(pushing, "push_many", broken)
        with pytest.raises(ZeroDivisionError):
            broker.execute("default", c.PushBatch("q", [b""]))
    assert broker.execute("default", c.Push("q", b"")).created
    broker.close()


def test_a_list_that_its_sender_changes_while_it_waits_is_not_looked_at_again():
    broker = LocalBroker()
    queues = ["q"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.execute, "default", c.Pull(queues, 1, LONG_MS))
        until_waiting(broker, 1)
        queues.clear()
        broker.execute("default", c.Push("q", b""))
        assert len(waiting.result(60)) == 1
    broker.close()


def test_other_settings_for_a_shared_broker_are_refused():
    with stoker.connect("memory://with-settings?shards=2"):
        stoker.connect("memory://with-settings").close()
        with pytest.raises(stoker.StokerError):
            stoker.connect("memory://with-settings?shards=4")


def test_a_timekeeper_whose_loop_is_busy_has_a_deputy():
    broker = LocalBroker()
    loop = asyncio.new_event_loop()
    task = loop.create_task(broker.execute_async("default", c.Pull(["q"], 1, LONG_MS)))
    loop.run_until_complete(asyncio.sleep(0))
    until_waiting(broker, 1)  # it keeps the time, and from here on its loop does nothing
    broker.execute("default", c.Push("later", b"", Options(delay_ms=50)))
    assert len(broker.execute("default", c.Pull(["later"], 1, LONG_MS))) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    broker.close()
