"""Memory and disk stay flat while jobs come and go: on a data directory, and on a server through the real client.

The suite works through some ten thousand jobs, which shows a payload, a result or a key that is kept. The soak works
through a million, which shows a few bytes for each job.
"""

from pathlib import Path
from typing import Any

import pytest

import stoker
from tests.crash.zygote import the_zygote
from tests.leaks.churn import SETTINGS, SHARDS, SLACK, churn_here, disk_of, grows, measure, plateaus, rss_of
from tests.processes.serving import serving
from tests.soaking import SOAKS

JOBS = 1_000_000 if SOAKS else 9_000


def check_flat(memory: list[int], disk_before: int, disk: int) -> None:
    assert not grows(memory), f"{plateaus(memory)} of {memory}"
    assert disk <= disk_before + SLACK


def churned_here(path: Path, jobs: int, kept: int | None = None) -> Any:
    with the_zygote().fork(churn_here, str(path), jobs, kept) as child:
        assert child.has_spoken(7_200), "it takes hours"
        return child.receive()


def test_a_data_directory_stays_flat(tmp_path: Path):
    check_flat(*churned_here(tmp_path / "data", JOBS))


def test_a_server_stays_flat(tmp_path: Path):
    options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    with serving(tmp_path, *options, "--set", f"shards={SHARDS}", processes=1) as server:
        pid = server.process.pid
        with stoker.connect(server.url) as client:
            measured = measure(client, JOBS, lambda: (rss_of(pid), disk_of(tmp_path / "data")))
            counts = client.get_counts()
            assert counts.waiting + counts.delayed + counts.active + counts.failed == 0
    check_flat(*measured)


def test_jobs_that_are_kept_are_noticed(tmp_path: Path):
    """The control: with a retention that forgets nothing neither memory nor disk is flat."""
    memory, disk_before, disk = churned_here(tmp_path / "data", 36_000, kept=1_000_000)
    assert grows(memory), memory
    assert disk > disk_before + SLACK


@pytest.mark.parametrize(
    ("samples", "is_leak"),
    [
        ([5, 9, 10, 9, 10, 8, 10, 9, 10], False),
        ([1, 2, 3, 10, 4, 9, 10, 5, 9], False),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], True),
        ([1, 9, 9, 9, 9, 9, 9, 9, 12], True),
    ],
)
def test_a_plateau_is_told_from_a_slope(samples: list[int], is_leak: bool):
    assert grows(samples, 2) is is_leak
