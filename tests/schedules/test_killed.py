"""A real server is killed between two slots and comes back: slots go on where they were, and none comes twice."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import stoker
from stoker.model.replies import DeliveredJob

SECOND = 1_000


@contextmanager
def served(data: Path) -> Iterator[stoker.Client]:
    """A client of a server that dies without a word at the end."""
    listen = ["--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off"]
    command = [sys.executable, "-m", "stoker", "serve", "--data", str(data), *listen]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        port = child.stdout.readline().rstrip().rsplit(":", 1)[-1]
        with stoker.connect(f"tcp://127.0.0.1:{port}") as client:
            yield client
            child.kill()
    finally:
        child.kill()
        child.wait(60)
        child.stdout.close()


def taken(client: stoker.Client, count: int) -> list[DeliveredJob]:
    """The next jobs, one after another as they come."""
    jobs: list[DeliveredJob] = []
    while len(jobs) < count:
        found = list(client.pull("q", count, wait_ms=30_000))
        assert found, "no slot has come"
        client.ack_batch([job.id for job in found], found[0].token)
        jobs += found
    return jobs


def test_a_killed_server_pushes_no_slot_twice_and_goes_on_with_the_next(tmp_path: Path):
    with served(tmp_path / "data") as client:
        made = client.put_schedule("q", "s", every_ms=SECOND, misfire="all").created_at
        slots = [job.options.slot for job in taken(client, 2)]
    for _ in range(2):
        with served(tmp_path / "data") as client:
            slots += [job.options.slot for job in taken(client, 2)]
            assert client.get_schedule("q", "s").runs >= len(slots)
    assert slots == [made + n * SECOND for n in range(1, len(slots) + 1)], "each once, in order, none left out"
