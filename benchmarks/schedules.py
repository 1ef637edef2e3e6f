"""The cost of schedules: while they wait, when many are due at one moment, and in memory.

The idle servers are real ones, side by side for the same minute: one without schedules, one with ten thousand that are
not due. Their CPU time is read from the kernel.
"""

import time
from pathlib import Path

import stoker
from benchmarks.durable import place
from benchmarks.measure import Row, cpu_seconds, resident_bytes
from benchmarks.served import stoker_server
from benchmarks.sizes import sized
from stoker.engine.slot_pacing import PAUSE_MS
from stoker.journal.directory import holder_of
from stoker.model import commands as c
from stoker.model.schedules import Schedule
from stoker.testing import World

SCHEDULES = sized(10_000, 100)
IDLE_SECONDS = sized(60, 1)
SETTLING_S = sized(5, 1)
DAY = 86_400_000
ZONES = ("UTC", "Europe/Vienna", "America/New_York", "Asia/Tokyo")


def all_of_it() -> list[Row]:
    return [*idle(), *at_once(), memory()]


def expression(number: int) -> str:
    """A different one for each: nothing is shared."""
    return f"{number % 60} {number // 60 % 24} {number // 1_440 % 28 + 1} * *"


def fill(client: stoker.Client, count: int = SCHEDULES) -> None:
    """Due in another month: never during the measurement."""
    start = time.time_ns() // 1_000_000 + DAY
    for number in range(count):
        schedule = Schedule(cron=expression(number), zone=ZONES[number % len(ZONES)], start_at=start, payload=b"{}")
        client.execute(c.PutSchedule(f"q{number % 50}", f"s{number}", schedule))


def idle(seconds: float = IDLE_SECONDS) -> list[Row]:
    with place() as one, place() as two, stoker_server(one), stoker_server(two) as port:
        with stoker.connect(f"tcp://127.0.0.1:{port}") as client:
            started = time.perf_counter()
            fill(client)
            made = SCHEDULES / (time.perf_counter() - started)
        pids = [holder_of(Path(path) / "data").pid for path in (one, two)]
        time.sleep(SETTLING_S)  # let connections close and files be written
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        empty, full = ((cpu_seconds(pid) - at) * 1_000 for pid, at in zip(pids, before, strict=True))
    return [
        Row("made over TCP, each with a rule of its own", made, unit="a second"),
        Row(f"CPU of an idle server in {seconds:.0f} s, without schedules", empty, unit="ms"),
        Row(f"CPU of an idle server in {seconds:.0f} s, with {SCHEDULES:,}", full, unit="ms"),
    ]


def at_once() -> list[Row]:
    """All are due at the same moment: the CPU time of that, and of its longest turn."""
    rows = []
    for what, crons in (
        ("intervals", [""] * SCHEDULES),
        ("one expression", ["0 0 * * *"] * SCHEDULES),
        ("each its own", [f"0,{n % 59 + 1} 0,{n // 59 % 23 + 1} 1-{n // 1_357 + 1},15 * *" for n in range(SCHEDULES)]),
    ):
        with World() as world:
            midnight = world.now - world.now % DAY + DAY
            for number, cron in enumerate(crons):
                rule = Schedule(cron=cron) if cron else Schedule(every_ms=DAY, start_at=midnight)
                world.client.execute(c.PutSchedule("q", f"s{number}", rule))
            world.clock.advance(midnight - world.now)
            turns = [turn(world)]
            while world.broker.runtime.shards[0].backlog:
                world.clock.advance(PAUSE_MS)
                turns.append(turn(world))
            pushed = world.client.get_stats("q").totals.pushed
        taken = sum(turns)
        note = f"{taken * 1e3:.0f} ms of CPU in {len(turns)} turns"
        rows.append(Row(f"{pushed:,} jobs of one moment, {what}", pushed / taken, unit="jobs/s", note=note))
        rows.append(Row(f"  the longest turn, {what}", max(turns) * 1e3, unit="ms", note="at most 50"))
    return rows


def turn(world: World) -> float:
    """Seconds of CPU."""
    started = time.process_time()
    world.broker.advance()
    return time.process_time() - started


def memory() -> Row:
    with World() as world:
        fill(world.client, 100)
        before = resident_bytes()
        fill(world.client)
        return Row("memory of a schedule that has not run", (resident_bytes() - before) / SCHEDULES, unit="bytes")
