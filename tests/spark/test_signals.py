"""Ctrl-C and SIGTERM end a command at once: one line, no process left behind, a lake that the next run goes on with."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stoker.cli import exit_codes
from stoker.client.sync import Client
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake

PATIENCE_S = 600
SOAK = os.environ.get("STOKER_SOAK") == "1"
"""A whole Spark for one more signal: `make soak` has it."""


RUN = ("run", "--most", "1")
STREAM = ("stream", "--every", "100ms")


def started(url: str, lake: Path, command: tuple[str, ...] = RUN, **more: str) -> "subprocess.Popen[str]":
    """A command of the pipeline in a session of its own, by which all that it starts can be found."""
    words = ["pipeline", *command, "--url", url, "--lake", str(lake), "--master", "local[2]"]
    return subprocess.Popen(
        [sys.executable, "-m", "stoker", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | more,
        start_new_session=True,
    )


def until(there: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not there():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.02)


def left_of(process: "subprocess.Popen[str]") -> list[str]:
    """Processes of its session that still run."""
    listed = subprocess.run(["ps", "-o", "stat=,args=", "-s", str(process.pid)], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if not line.startswith("Z")]


@pytest.mark.parametrize("tell", [os.killpg, os.kill] if SOAK else [os.killpg])
def test_sigterm_ends_a_stream_with_the_batch_that_is_under_way(
    tell: Callable[[int, int], None], url: str, queue: Client, tmp_path: Path
):
    """As a service manager sends it, to one process or to all of the group: the JVM must not end before the batch."""
    queue.push("mail", b"x")
    lake = tmp_path / "lake"
    process = started(url, lake, STREAM)
    until(lambda: list(lake.glob("bronze/**/*.parquet")), process)  # a batch is under way: other layers are missing
    tell(process.pid, signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "")
    assert left_of(process) == []
    assert list(lake.glob("minutes/**/*.parquet"))


if SOAK:

    def test_ctrl_c_in_the_midst_of_a_batch_loses_nothing(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
        """As a terminal sends it: to all processes of the group."""
        for number in range(100):  # each is a batch of its own, so it cannot be over before the signal comes
            queue.push("mail", b"%d" % number)
        lake = tmp_path / "lake"
        process = started(url, lake)
        until(lambda: list(lake.glob("bronze/**/*.parquet")), process)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, said) == (
            exit_codes.INTERRUPTED,
            "ended by SIGINT: the next run continues from there\n",
        )
        assert left_of(process) == []
        running.run(spark, str(lake), {"url": url})
        bronze = Lake(spark, str(lake)).read("bronze")
        assert bronze is not None
        assert bronze.count() == bronze.select("shard", "sequence", "index").distinct().count() == 100


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, exit_codes.TERMINATED)]
)
def test_a_java_that_has_only_begun_to_start_is_not_left_behind(
    number: signal.Signals, code: int, url: str, queue: Client, tmp_path: Path
):
    """Spark's own function that waits for it would leave it running, and waiting for somebody to call."""
    script = tmp_path / "home" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/starting\nexec sleep 600\n")
    script.chmod(0o755)
    queue.push("mail", b"x")
    process = started(url, tmp_path / "lake", SPARK_HOME=str(tmp_path / "home"))
    until((tmp_path / "starting").exists, process)
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (
        code,
        f"ended by {number.name}: the next run continues from there\n",
    )
    assert left_of(process) == []
    assert not (tmp_path / "lake").exists()


def test_a_java_that_python_is_just_starting_is_not_left_behind():
    """The signal comes before `Popen` has returned: no frame and no variable has the process yet."""
    program = (
        "import signal, subprocess\n"
        "from stoker.cli.spark_session import CommandEnded, end_java\n"
        "java = subprocess.Popen(['sleep', '600'])\n"
        "end_java(CommandEnded(signal.SIGTERM))\n"
        "print(java.wait(60))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout == f"{-signal.SIGKILL}\n", ended.stderr
