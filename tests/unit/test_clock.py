"""Time that never runs backwards, and a clock that tests move."""

import asyncio
import threading
import time

import pytest

from stoker.runtime.clock import SystemClock
from stoker.testing import FakeClock


def set_machine(monkeypatch: pytest.MonkeyPatch, wall_ns: int, monotonic_ns: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns)
    monkeypatch.setattr("stoker.runtime.clock.monotonic_ns", lambda: monotonic_ns)


def test_the_system_clock_starts_with_wall_time(monkeypatch: pytest.MonkeyPatch):
    set_machine(monkeypatch, 1_700_000_000_123_000_000, 5_000_000_000)
    assert SystemClock().now_ms() == 1_700_000_000_123


def test_the_system_clock_counts_on_when_the_machines_clock_is_set(monkeypatch: pytest.MonkeyPatch):
    """Setting the clock neither ends nor prolongs a lease."""
    set_machine(monkeypatch, 1_700_000_000_000_000_000, 5_000_000_000)
    clock = SystemClock()
    set_machine(monkeypatch, 1_600_000_000_000_000_000, 5_250_000_000)
    assert clock.now_ms() == 1_700_000_000_250
    set_machine(monkeypatch, 1_900_000_000_000_000_000, 5_251_000_000)
    assert clock.now_ms() == 1_700_000_000_251


def test_the_system_clock_never_runs_backwards():
    clock = SystemClock()
    times = [clock.now_ms() for _ in range(10_000)]
    assert times == sorted(times)


def test_waiting_ends_at_once_when_the_signal_is_set_or_the_time_has_come():
    clock, signal = SystemClock(), threading.Event()
    clock.wait(signal, clock.now_ms() - 1_000)
    signal.set()
    clock.wait(signal, clock.now_ms() + 3_600_000)


def test_waiting_in_an_event_loop_ends_the_same_way():
    async def wait() -> None:
        clock, signal = SystemClock(), asyncio.Event()
        await clock.wait_async(signal, clock.now_ms() - 1_000)
        asyncio.get_running_loop().call_soon(signal.set)
        await clock.wait_async(signal, clock.now_ms() + 3_600_000)

    asyncio.run(wait())


def test_a_fake_clock_moves_only_when_told_to():
    clock = FakeClock(1_000)
    assert (clock.now_ms(), clock.now_ms()) == (1_000, 1_000)
    assert clock.advance(25) == 1_025
    assert clock.now_ms() == 1_025


def test_a_fake_clock_refuses_to_run_backwards():
    with pytest.raises(ValueError, match="backwards"):
        FakeClock().advance(-1)


def test_whoever_waits_moves_a_fake_clock_to_the_end_of_the_wait():
    clock = FakeClock(1_000)
    clock.wait(threading.Event(), 1_500)
    assert clock.now_ms() == 1_500
    clock.wait(threading.Event(), 1_200)
    assert clock.now_ms() == 1_500, "and never back"


def test_a_signal_keeps_a_fake_clock_where_it_is():
    clock, signal = FakeClock(1_000), threading.Event()
    signal.set()
    clock.wait(signal, 1_500)
    assert clock.now_ms() == 1_000


def test_a_fake_clock_lets_other_tasks_act_before_it_moves():
    async def wait() -> int:
        clock, signal = FakeClock(1_000), asyncio.Event()
        asyncio.get_running_loop().call_soon(signal.set)
        await clock.wait_async(signal, 1_500)
        return clock.now_ms()

    assert asyncio.run(wait()) == 1_000
