"""Print the table: `python -m benchmarks`, or only some of it: `python -m benchmarks batches memory`."""

import platform
import sys

from benchmarks import client, durable, flows, lake, processes, redis, scale, schedules, served, spark, speed, workers
from benchmarks.measure import print_rows

PARTS = {
    "batches": ("Uniform batches", speed.batches),
    "singles": ("One job at a time", speed.singles),
    "features": ("Cost of an option, beside the plain cycle", speed.features),
    "flows": ("Workflows: the same jobs with a graph, beside those without", flows.fans),
    "flow-stalls": ("Workflows: the longest that others wait", flows.stalls),
    "memory": ("Memory", scale.memory),
    "depth": ("Deep backlogs", scale.depth),
    "obstacles": ("Pull of one ready job behind many that cannot run", scale.obstacles),
    "pushes": ("On disk, level commit: pushes", durable.pushes),
    "cycles": ("On disk, level commit: full cycles", durable.cycles),
    "latencies": ("On disk, level commit: one push at a time", durable.latencies),
    "flushed": ("On disk, level fsync", durable.flushed),
    "restarts": ("On disk: restarts", durable.restarts),
    "stalls": ("On disk: the worst while everything happens", durable.stalls),
    "backlog": ("On disk: more jobs than fit into memory", durable.backlog),
    "tcp-pushes": ("Over TCP, level commit: pushes", served.pushes),
    "tcp-singles": ("Over TCP, level commit: one job at a time", served.singles),
    "tcp-cycles": ("Over TCP, level commit: pull and ack", served.cycles),
    "tcp-crowds": ("Over TCP: many connections", served.crowds),
    "processes": ("Over TCP, level commit: pushes to one process and to two", processes.pushes),
    "client-import": ("The client: what loading it costs", client.loading),
    "client-gathering": ("The client: single pushes of many threads and tasks, alone and gathered", client.gathering),
    "workers": ("Workers: no-op jobs, acknowledged", workers.noop),
    "worker-latency": ("Workers: from a push to its handler, idle", workers.latency),
    "worker-processes": ("Workers: CPU work in child processes", workers.processes),
    "worker-memory": ("Workers: memory", workers.memory),
    "worker-loading": ("Workers: what loading costs", workers.loading),
    "schedules": ("Schedules", schedules.all_of_it),
    "spark": ("Spark, local[2]: into a queue, and through it", spark.all_of_it),
    "lake": ("The lake, local[2]", lake.filling),
    "lake-lag": ("The lake, local[2]: how far a stream is behind", lake.lag),
    "lake-cold": ("The lake: a small run from nothing", lake.cold),
    "redis": ("The queue in Redis, on loopback", redis.all_of_it),
    "web": ("Over HTTP and gRPC, level commit", served.web),
}


def main(names: list[str]) -> None:
    unknown = set(names) - PARTS.keys()
    if unknown:
        sys.exit(f"unknown benchmarks: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"Python {platform.python_version()}, payloads of 100 bytes, one process; memory:// where no disk is named")
    for name in names or PARTS:
        title, run = PARTS[name]
        print_rows(title, run())


if __name__ == "__main__":
    main(sys.argv[1:])
