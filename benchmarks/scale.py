"""The memory of a job, and the cost of a pull when many jobs are in the way."""

import gc
import time
from collections.abc import Callable

import stoker
from benchmarks.measure import Row, resident_bytes
from benchmarks.sizes import sized
from stoker.brokers.local import LocalSettings
from stoker.cli.measuring import push, quantiles

TEN, FIVE = sized(10, 1), sized(5, 1)
"""How many batches of 10,000 jobs stand in front."""


def memory() -> list[Row]:
    """Growth of this process for each waiting job, without its 100 bytes of payload; 1 MiB of history is kept."""
    return [
        Row(
            "a waiting job in batches of 1,000",
            bytes_a_job(sized(1_000_000, 10_000), 1_000),
            0,
            "bytes",
            "beyond its payload",
        ),
        Row("a waiting job pushed alone", bytes_a_job(sized(500_000, 1_000), 1), 0, "bytes", "beyond its payload"),
    ]


def bytes_a_job(jobs: int, size: int) -> float:
    settings = LocalSettings(events_bytes_max=1 << 20)  # history is not part of a job
    client = stoker.connect("memory://", settings=settings)
    client.push("q", b"")
    gc.collect()
    before = resident_bytes()
    for start in range(0, jobs, size):
        push(client, "q", [b"%0100d" % number for number in range(start, start + size)])
    gc.collect()
    grown = resident_bytes() - before
    assert client.get_counts("q").waiting == jobs + 1
    client.close()
    return grown / jobs - 100


def depth() -> list[Row]:
    """Pulling batches of 1,000 and acknowledging them with 10 thousand and with 10 million jobs waiting."""
    few, many = 10_000, sized(10_000_000, 20_000)
    shallow, deep = pull_us(few), pull_us(many)
    return [
        Row(f"pull of 1,000 with {few:,} waiting", shallow, 0, "us"),
        Row(f"pull of 1,000 with {many:,} waiting", deep, 0, "us", f"{deep / shallow:.2f} times as much"),
    ]


def pull_us(waiting: int) -> float:
    client = stoker.connect("memory://", settings=LocalSettings(memory_bytes_max=0))
    payloads = [b"x" * 100] * 1_000
    for _ in range(waiting // 1_000):
        client.push_batch("q", payloads)
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(sized(400, 5)):
        started = time.perf_counter()
        delivery = client.pull("q", 1_000)
        times.append(time.perf_counter() - started)
        assert len(delivery) == 1_000
        client.ack_batch(delivery.ids, delivery.token)
        client.push_batch("q", payloads)
    gc.unfreeze()
    client.close()
    return quantiles(times).p50 * 1e6


def obstacles() -> list[Row]:
    """One ready job behind many that cannot run: its pull must not look at them."""
    plain = pull_behind(lambda client: None)
    rows = [Row("nothing in front", plain, 0, "us")]
    for name, prepare in OBSTACLES.items():
        found = pull_behind(prepare)
        rows.append(Row(name, found, 0, "us", f"{found / plain:.2f} times as much"))
    return rows


def pull_behind(prepare: Callable[[stoker.Client], None]) -> float:
    with stoker.connect("memory://") as client:
        prepare(client)
        mine = client.push("q", b"mine", priority=-1).id
        started = time.perf_counter()
        delivery = client.pull("q")
        taken = time.perf_counter() - started
        assert list(delivery.ids) == [mine]
    return taken * 1e6


def busy_group(client: stoker.Client) -> None:
    for _ in range(TEN):
        client.push_batch("q", [b""] * 10_000, group_id="busy")
    assert len(client.pull("q")) == 1


def delayed(client: stoker.Client) -> None:
    for _ in range(FIVE):
        client.push_batch("q", [b""] * 10_000, priority=9, delay_ms=3_600_000)


def cancelled(client: stoker.Client) -> None:
    for _ in range(TEN):
        for job in client.push_batch("q", [b""] * 10_000, priority=9).ids:
            client.cancel(job)


OBSTACLES: dict[str, Callable[[stoker.Client], None]] = {
    f"{TEN}0,000 jobs of a busy group": busy_group,
    f"{FIVE}0,000 delayed jobs of higher priority": delayed,
    f"{TEN}0,000 cancelled jobs of higher priority": cancelled,
}
