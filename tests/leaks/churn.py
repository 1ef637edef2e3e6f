"""Jobs that come and go, and how much memory and disk their queue needs meanwhile.

Every kind of end is among them: completed with a result, failed for good, cancelled, released and done by the next
worker. Nothing of that may stay but what retention keeps, so memory and disk reach a plateau.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import stoker
from stoker.brokers.local import LocalSettings
from stoker.client.sync import Client
from stoker.journal.sqlite import JournalSettings
from stoker.model.options import Backoff, Options, Retention, Settings

KIB, MIB = 1024, 1024 * 1024
BATCH = 200
TIDY_S = 60.0
"""For what takes a second. Only a directory that has grown is waited for so long."""
SLACK = 8 * MIB
"""More than chance does to a plateau; less than 4 KiB a job in the suite, and 25 bytes a job in the soak."""
QUEUES = ("mail", "orders", "bulk")
PAYLOAD, RESULT = bytes(4 * KIB), bytes(4 * KIB)
KEPT = 200
"""Ended jobs that stay readable in each queue."""
SHARDS = 4

SETTINGS: dict[str, int] = {
    "engine.retention.completed_count": KEPT,
    "journal.wal_bytes_max": MIB,
    "journal.checkpoint_bytes": 4 * MIB,
    "journal.checkpoint_records": 2_000,
    "journal.events_bytes_max": 2 * MIB,
    "journal.disk_reserve_bytes": 4 * KIB,
}
"""So small that a plateau is reached within thousands of jobs, and a thousand jobs fill all of it."""


def settings() -> LocalSettings:
    """The same for a queue in this process."""
    named = {name.removeprefix("journal."): value for name, value in SETTINGS.items() if name.startswith("journal.")}
    journal = JournalSettings(**named, checkpoint_process=False)  # type: ignore[arg-type]
    retention = Retention(completed_count=SETTINGS["engine.retention.completed_count"])
    return LocalSettings(engine=Settings(retention=retention), shards=SHARDS, journal=journal)


OPTIONS = Options(
    max_attempts=2, backoff=Backoff("fixed", 0, 0, "none"), remove_on_fail=True, tags=("churn",), name="churn"
)


def churn(client: Client, jobs: int, kept: int | None = None) -> Iterator[int]:
    """Work through so many jobs, and yield how many are done, from time to time. `kept` overrides the retention."""
    done = 0
    while done < jobs:
        for number, queue in enumerate(QUEUES):
            _one_batch(client, queue, f"{done}.{number}", kept)
            done += BATCH
        yield done


def _one_batch(client: Client, queue: str, name: str, kept: int | None) -> None:
    each = [_options(name, place, kept) for place in range(BATCH)]
    pushed = client.push_batch(queue, [PAYLOAD] * BATCH, each=each)
    for job in pushed.ids[:2]:
        client.cancel(job)
    client.kv_set(f"{queue}.last", name.encode())
    while delivery := client.pull(queue, BATCH):
        ids = list(delivery.ids)
        client.fail_batch(ids[:2], delivery.token, "it does not work", retry=False)
        if ids[2:4]:
            client.release_batch(ids[2:4], delivery.token)
        if ids[4:]:
            client.extend_batch(ids[4:6], delivery.token)
            client.ack_batch(ids[4:], delivery.token, [RESULT] * len(ids[4:]))


def _options(name: str, place: int, kept: int | None) -> Options:
    """Keys and groups that are new each time: a table that forgets none of them grows."""
    changes: dict[str, Any] = {"keep_completed_count": kept} if kept is not None else {}
    if place % 4 == 0:
        changes["unique_key"] = f"key-{name}-{place}"
    elif place % 4 == 1:
        changes["group_id"] = f"group-{name}-{place}"
    return OPTIONS if not changes else stoker.Options(**{**_PLAIN, **changes})


_PLAIN = {field: getattr(OPTIONS, field) for field in OPTIONS.__struct_fields__}


Look = Callable[[], tuple[int, int]]
"""How much memory and disk are taken now."""


# --- how much it takes ------------------------------------------------------------------------------


def rss_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB
    raise AssertionError(f"process {pid} has no memory")


def disk_of(path: Path) -> int:
    """What all files below take. They come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def plateaus(samples: list[int]) -> tuple[int, int]:
    """The highest of the second third, when all tables have been filled once, and of the last."""
    third = len(samples) // 3
    assert third >= 3, "too few samples to tell a plateau from a moment"
    return max(samples[third : 2 * third]), max(samples[2 * third :])


def grows(samples: list[int], slack: int = SLACK) -> bool:
    """Whether the last plateau is higher than the one before, by more than chance."""
    before, after = plateaus(samples)
    return after > before + slack


def measure(client: Client, jobs: int, look: Look, kept: int | None = None) -> tuple[list[int], int, int]:
    """Memory and disk after each bit of work, and in the end the disk that is needed when all is tidied up.

    Files are removed in the background, so on a busy machine a directory may be large for a while.
    """
    found = [look() for _ in churn(client, jobs, kept)]
    memory, disk = [memory for memory, _ in found], [disk for _, disk in found]
    before, give_up = plateaus(disk)[0], time.monotonic() + (TIDY_S if kept is None else 0)
    while (left := look()[1]) > before + SLACK and time.monotonic() < give_up:
        time.sleep(0.05)
    return memory, before, left


# --- in a process of its own --------------------------------------------------------------------------


def churn_here(wire: "Connection[Any, Any]", path: str, jobs: int, kept: int | None) -> None:
    """A role for the zygote: the queue is in this process, and so is all of its memory."""

    def look() -> tuple[int, int]:
        gc.collect()
        return rss_of(os.getpid()), disk_of(Path(path))

    with stoker.connect(f"sqlite:///{path}", settings=settings()) as client:
        wire.send(measure(client, jobs, look, kept))
