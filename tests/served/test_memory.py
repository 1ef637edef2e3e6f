"""A server keeps to its memory limit, whatever workers bring: measured from outside, as the system counts it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker.client.sync import Client
from tests.soaking import SOAKS

LIMIT_BYTES = 20_000_000
RESULT_BYTES = 1_000_000
JOBS = 500 if SOAKS else 150
GROWTH_BYTES_MAX = 90_000_000
"""The limit, and what serving takes besides: buffers, caches of the log, memory that the allocator holds back."""
WAIT_S = 120.0


class Server:
    """`stoker serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        listen = ("--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off")
        command = [sys.executable, "-m", "stoker", "serve", "--data", str(folder / "data"), *listen]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        environment["STOKER_MEMORY_BYTES_MAX"] = str(LIMIT_BYTES)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
        assert self.process.stdout is not None
        self.url = f"tcp://{self.process.stdout.readline().split()[1]}"

    @property
    def resident(self) -> int:
        """What it has in memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def close(self) -> None:
        self.process.kill()  # it would wait for the job that is under way
        self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def bring_results(client: Client) -> dict[int, bytes]:
    delivery = client.pull("q", JOBS, lease_ms=600_000)
    first: dict[int, bytes] = {}
    for job in delivery:
        result = os.urandom(RESULT_BYTES)
        client.ack(job.id, job.token, result)
        if len(first) < 5:
            first[job.id] = result
    return first


def bring_partials(client: Client) -> dict[int, bytes]:
    (job,) = client.pull("q", lease_ms=600_000)
    for _ in range(JOBS):
        client.append_partial(job.id, os.urandom(RESULT_BYTES), token=job.token)
    return {}


def bring_payloads(client: Client) -> dict[int, bytes]:
    for job in client.browse("q", limit=JOBS).jobs:
        client.update_payload(job.id, os.urandom(RESULT_BYTES))
    return {}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("bring", [bring_results, bring_partials, bring_payloads])
def test_what_workers_bring_stays_within_the_limit(server: Server, bring: object):
    with stoker.connect(server.url) as client:
        client.push_batch("q", [b""] * JOBS)
        before = server.resident
        first = bring(client)  # type: ignore[operator]
        assert server.resident - before < GROWTH_BYTES_MAX
        assert {job: client.get_job(job).result for job in first} == first
