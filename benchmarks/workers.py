"""The speed of workers: no-op jobs, CPU work in processes, memory. `idle.py` has the time from a push to its handler.

Server, worker and producer are three processes on this machine, over TCP, level `commit`, payloads of 100 bytes. Floors
are from the same run: the bare client that only pulls 1,000 and acknowledges 1,000, a bare echo, the time of the cores.
"""

import json
import os
import subprocess
import sys
from typing import Any

import msgspec

import stoker
from benchmarks.client import cpu_ms
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row, check, cpu_seconds
from benchmarks.served import server_pid, stoker_server
from benchmarks.sizes import sized
from stoker.cli.measuring import rate, settle
from stoker.client.sync import Client

JOBS = sized(300_000, 1_000, "STOKER_BENCH_JOBS")
QUEUES = {"plain": "plain", "batch": "batch", "coroutine": "async"}
PARAMETERS = {"plain": "text", "batch": "texts", "coroutine": "text"}
ASKED = {"plain": 280_000, "batch": 280_000, "coroutine": 100_000}
TITLES = {"plain": "plain function", "batch": "batch handler, up to 1,000 a call", "coroutine": "async handler"}
CPU_JOBS = sized(10_000, 200)
CPU_PROCESSES = 2
CPU_MS = 1.0
SLOW_JOBS = sized(10_000, 50)
ROLE = (sys.executable, "-m", "benchmarks.worker_app")


def role(url: str, *arguments: str) -> Any:
    """The output of a role."""
    done = subprocess.run(
        [*ROLE, *arguments], env={**os.environ, "STOKER_URL": url}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def push_all(client: Client, name: str, jobs: int) -> None:
    payload = msgspec.msgpack.encode({PARAMETERS[name]: "x" * 90})
    client.push_many(QUEUES[name], [payload] * jobs, name=name, codec="msgpack", batch_jobs=10_000)


def bare_rate(client: Client, jobs: int) -> float:
    """The client alone: pull and acknowledge, nothing decoded, no handler."""
    before = client.get_stats("floor").totals.completed
    client.push_many("floor", [PAYLOAD] * jobs, batch_jobs=10_000)
    found = rate(lambda: settle(client, "floor", 1_000))
    check(client, jobs, "floor", before)
    return found


# --- no-op jobs ------------------------------------------------------------------------------------------------------


def noop() -> list[Row]:
    rows = []
    with place() as path, stoker_server(path) as port:
        url = f"tcp://127.0.0.1:{port}"
        with stoker.connect(url) as client:
            for name in QUEUES:
                jobs_per_s, floor, cpu_us = measured(client, url, name)
                note = f"asked {ASKED[name]:,}; {cpu_us:.1f} us of CPU a job in the worker; floor: bare pull and ack"
                rows.append(Row(f"over TCP, {TITLES[name]}", jobs_per_s, floor, note=note))
    return rows + embedded()


def measured(client: Client, url: str, name: str) -> tuple[float, float, float]:
    """Jobs a second, the floor of the same moment, and the CPU time that a job costs the worker."""
    push_all(client, name, JOBS)
    floor = bare_rate(client, JOBS)
    said = role(url, "noop", name, str(JOBS))
    check(client, JOBS, QUEUES[name])
    return said["rate"], floor, said["cpu_us"]


def embedded() -> list[Row]:
    """The queue in the worker's own process: the jobs are in the directory before it starts."""
    rows = []
    for name in ("plain", "batch"):
        with place() as path:
            url = f"sqlite:///{path}/queue"
            with stoker.connect(url) as client:
                push_all(client, name, JOBS)
                floor = bare_rate(client, JOBS)
            said = role(url, "noop", name, str(JOBS))
            with stoker.connect(url) as client:
                check(client, JOBS, QUEUES[name])
        note = "asked as over TCP; queue and worker share one process; floor: bare pull and ack"
        rows.append(Row(f"embedded, {TITLES[name]}", said["rate"], floor, note=note))
    return rows


# --- processes, memory, loading --------------------------------------------------------------------------------------


def processes() -> list[Row]:
    """The floor is all the time of the cores. Other programs on the machine count against us."""
    with place() as path, stoker_server(path) as port:
        url, server = f"tcp://127.0.0.1:{port}", server_pid(port)
        with stoker.connect(url) as client:
            cpu_before = cpu_seconds(server)
            payload = msgspec.msgpack.encode({"ms": CPU_MS})
            client.push_many("cpu", [payload] * CPU_JOBS, name="cpu", codec="msgpack")
            said = role(url, "processes", str(CPU_PROCESSES), "0", str(CPU_JOBS))
            check(client, CPU_JOBS, "cpu")
            used = said["own_cpu"] + said["children_cpu"] + cpu_seconds(server) - cpu_before
            share = CPU_JOBS * CPU_MS / 1_000 / used
    floor = CPU_PROCESSES * 1_000 / CPU_MS
    note = (
        f"asked 0.90 of {CPU_PROCESSES} cores, which server and worker share; handlers took {share:.2f} of the"
        " CPU time of server, worker and children, their start included"
    )
    return [Row(f"{CPU_MS:g} ms of CPU a job, {CPU_PROCESSES} processes", said["rate"], floor, note=note)]


def memory() -> list[Row]:
    with place() as path, stoker_server(path) as port:
        url = f"tcp://127.0.0.1:{port}"
        with stoker.connect(url) as client:
            client.push_many("slow", [msgspec.msgpack.encode({})] * SLOW_JOBS, name="slow", codec="msgpack")
            said = role(url, "waiting", str(SLOW_JOBS))
            assert client.get_counts("slow").waiting == SLOW_JOBS, "they were not handed back"
    note = f"asked < 200; {said['before'] / 1e6:.0f} MB of it before the first job"
    return [
        Row(
            f"memory of a worker with {SLOW_JOBS:,} slow async jobs in flight",
            said["bytes"] / 1e6,
            unit="MB",
            note=note,
        )
    ]


def loading() -> list[Row]:
    """CPU time in a fresh interpreter, the best of several runs."""
    return [
        Row("import stoker", cpu_ms("import stoker"), unit="ms", note="asked < 50"),
        Row("import stoker, and an App with a job", cpu_ms(AN_APP), unit="ms"),
        Row("stoker --help", cpu_ms(HELP), unit="ms", note="asked < 200"),
    ]


AN_APP = "import stoker\napp = stoker.App('memory://')\napp.job(lambda: None)"
HELP = """
import contextlib, io, sys
from stoker.cli.main import main
sys.argv = ["stoker", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""
