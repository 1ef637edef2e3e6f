"""The tables that `python -m benchmarks` can make."""

import msgspec

RUNS = 5


class Part(msgspec.Struct, frozen=True):
    """One table: what it shows, how it was measured, and the function that measures it once."""

    title: str
    function: str
    """`module:function` below this package."""
    how: str
    runs: int = RUNS
    """Fewer for parts that take minutes."""
    loud_max: int = 2
    """So many runs on a machine that is not quiet, and the part is over; 1 for what may take half an hour."""


MEMORY = "memory://, in one process, one caller"
DISK = "sqlite:///, level commit, in one process, one caller"
TCP = "tcp:// on loopback, level commit, client and server in two processes"
WORKER = f"{TCP}, the worker in a third"
SPARK = "local[2]; tcp:// on loopback, level commit, batches of 1,000"
PARTS = {
    "batches": Part("Uniform batches", "speed:batches", MEMORY),
    "singles": Part("One job at a time", "speed:singles", MEMORY),
    "features": Part("Cost of an option, beside the plain cycle", "speed:features", f"{MEMORY}, one job at a time", 3),
    "flows": Part("Workflows: the same jobs with a graph, beside those without", "flows:fans", f"{MEMORY}, or on disk"),
    "flow-stalls": Part("Workflows: the longest that others wait", "flows:stalls", f"{MEMORY}; CPU time"),
    "memory": Part("Memory", "scale:memory", MEMORY, 3),
    "depth": Part("Deep backlogs", "scale:depth", MEMORY, 3),
    "obstacles": Part("Pull of one ready job behind many that cannot run", "scale:obstacles", MEMORY, 3),
    "pushes": Part("On disk: pushes", "durable:pushes", DISK),
    "cycles": Part("On disk: full cycles", "durable:cycles", DISK),
    "latencies": Part("On disk: one push at a time", "durable:latencies", DISK),
    "flushed": Part("On disk: level fsync", "durable:flushed", "sqlite:///, level fsync, 64 callers, single pushes"),
    "levels": Part("Levels: memory, commit and fsync", "levels:tables", "tcp:// and sqlite:///, each level"),
    "restarts": Part("On disk: restarts", "durable:restarts", "sqlite:///, level commit, a new process", 3),
    "stalls": Part("On disk: the worst while everything happens", "durable:stalls", f"{DISK}, batches of 1,000", 3),
    "backlog": Part("On disk: more jobs than fit into memory", "durable:backlog", f"{DISK}, batches of 1,000", 1),
    "tcp-pushes": Part("Over TCP: pushes", "served:pushes", TCP, 3),
    "tcp-singles": Part("Over TCP: one job at a time, raw frames", "served:singles", TCP),
    "tcp-cycles": Part("Over TCP: pull and ack", "served:cycles", f"{TCP}, through the client"),
    "tcp-crowds": Part("Over TCP: many connections", "served:crowds", f"{TCP}, raw frames"),
    "processes": Part("Over TCP: pushes to one process and to two", "processes:pushes", f"{TCP}, raw frames", 3),
    "client-import": Part("The client: what loading it costs", "client:loading", "CPU time of a fresh interpreter"),
    "client-singles": Part("The client: single pushes", "client:singles", TCP),
    "idle": Part("From a push to its handler, idle", "idle:table", "level commit, one job every 5 ms, p50 and p99", 3),
    "workers": Part("Workers: no-op jobs, acknowledged", "workers:noop", f"{WORKER}; pulls of up to 1,000"),
    "worker-processes": Part("Workers: CPU work in child processes", "workers:processes", WORKER, 3),
    "worker-memory": Part("Workers: memory", "workers:memory", WORKER, 3),
    "worker-loading": Part("Workers: what loading costs", "workers:loading", "CPU time of a fresh interpreter"),
    "growth": Part("How cost grows", "growth:sizes", f"{TCP}; one caller, single jobs, through the client", 1, 1),
    "churn": Part("How cost grows with time", "growth:times", f"{TCP}; batches of 1,000 without a pause", 1, 1),
    "schedules": Part("Schedules", "schedules:all_of_it", f"{TCP}, idle; then memory://", 1),
    "transports": Part("HTTP and gRPC", "transports:tables", "on loopback, level commit, server in another process", 3),
    "dashboard": Part("The dashboard, beside /health", "dashboard:pages", "HTTP on loopback, in memory", 3),
    "redis": Part("The queue in Redis", "redis:all_of_it", "redis:// on loopback, nothing on disk unless told", 1),
    "inbox": Part("The inbox in PostgreSQL", "inbox:all_of_it", "on loopback, flushing on, single rows", 1),
    "postgres": Part("One seat of a cluster in PostgreSQL", "postgres:all_of_it", "on loopback, level fsync", 3),
    "cluster": Part("Two nodes of a cluster in PostgreSQL", "cluster:all_of_it", "on loopback, level fsync", 3),
    "spark": Part("Spark: into a queue, and through it", "spark:all_of_it", SPARK, 1),
    "lake": Part("The lake", "lake:filling", SPARK, 1),
    "lake-lag": Part("The lake: how far a stream is behind", "lake:lag", SPARK, 1),
    "lake-report": Part("The lake: its report", "lake_report:reporting", SPARK, 1),
    "lake-growth": Part("The lake: what grows", "lake_growth:rounds", SPARK, 1, 1),
    "lake-cold": Part("The lake: a small run from nothing", "lake:cold", "sqlite:///", 1),
    "lake-upkeep": Part("The lake: a day expires, and a run with nothing new", "lake:upkeep", "sqlite:///", 1),
}
