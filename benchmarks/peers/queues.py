"""The other queues: how each is installed and run, with the settings with which it is fastest for short jobs."""

import msgspec


class OtherQueue(msgspec.Struct, frozen=True):
    """One of them. `APP` in a command is the folder of the apps, `BIN` the programs of its environment."""

    packages: tuple[str, ...]
    """For pip, or for npm where `is_node`."""
    jobs: int
    """For W1, W4 and W5."""
    worker: tuple[str, ...]
    copies: int = 1
    env: dict[str, str] = {}
    note: str = ""
    place: str = "redis"
    """What it keeps its jobs in: `places.py` starts it."""
    is_node: bool = False


PEERS = {
    "celery": OtherQueue(
        ("celery[redis]>=5.5",),
        5_000,
        tuple(
            "BIN/celery -A celery_app worker --pool prefork -c 2 -l error"
            " --without-gossip --without-mingle --without-heartbeat".split()
        ),
        note="prefork, 2 processes, prefetch 1,000",
    ),
    "rq": OtherQueue(
        ("rq>=2",),
        2_500,
        ("BIN/rq", "worker", "-w", "rq.worker.SimpleWorker", "-q"),
        copies=2,
        note="2 workers that do not fork; bulk push of 500",
    ),
    "dramatiq": OtherQueue(
        ("dramatiq[redis]>=2",),
        10_000,
        ("BIN/dramatiq", "dramatiq_app", "--processes", "2", "--threads", "2"),
        env={"dramatiq_queue_prefetch": "1000"},
        note="2 processes, 2 threads each, prefetch 1,000",
    ),
    "huey": OtherQueue(
        ("huey>=2.5", "redis[hiredis]>=5"),
        10_000,
        ("BIN/huey_consumer", "huey_app.huey", "-w", "1", "-k", "thread", "-q"),
        note="1 thread",
    ),
    "saq": OtherQueue(
        ("saq[redis,hiredis]>=0.24", "typing_extensions"),
        10_000,
        ("BIN/saq", "saq_app.settings", "--workers", "2", "--quiet"),
        note="2 processes, 50 at a time each",
    ),
    "arq": OtherQueue(
        ("arq>=0.26",), 5_000, ("BIN/arq", "arq_app.WorkerSettings"), note="100 at a time, polled every 10 ms"
    ),
    "taskiq": OtherQueue(
        ("taskiq-redis>=1.1",),
        10_000,
        tuple("BIN/taskiq worker taskiq_app:broker --workers 2 --max-async-tasks 100 --log-level ERROR".split()),
        note="stream, 2 processes, 100 at a time each",
    ),
    "procrastinate": OtherQueue(
        ("procrastinate>=3", "psycopg[binary,pool]>=3.2"),
        2_500,
        ("BIN/python", "APP/procrastinate_app.py"),
        note="PostgreSQL with flushing on; 1 worker, 10 at a time; bulk push of 1,000",
        place="postgres",
    ),
    "fastq": OtherQueue(("fastq-redis",), 10_000, ("BIN/python", "APP/fastq_app.py"), note="1 worker, 1 thread"),
    "beanstalkd": OtherQueue(
        ("greenstalk>=2",),
        10_000,
        ("BIN/python", "APP/beanstalkd_app.py"),
        note="in memory, through greenstalk; 1 worker, one job at a time",
        place="beanstalkd",
    ),
    "bullmq": OtherQueue(
        ("bullmq", "ioredis"),
        10_000,
        ("node", "app.mjs", "work"),
        note="Node; 1 worker, 100 at a time; bulk push of 1,000",
        is_node=True,
    ),
    "bunqueue": OtherQueue(
        ("bunqueue", "bun"),
        10_000,
        ("node_modules/.bin/bun", "app.mjs", "work"),
        env={"BUNQUEUE": "1"},
        note="Bun; its server on disk (SQLite); 1 worker, 100 at a time; bulk push of 1,000",
        place="bunqueue",
        is_node=True,
    ),
}


class OurQueue(msgspec.Struct, frozen=True):
    """Stoker, with handlers of one kind."""

    kind: str
    """Of the handler: a job of `stoker_app.py`."""
    jobs: int
    note: str
    has_server: bool = True
    """Whether its processes reach the queue through a server. Otherwise they share a directory, as by default."""


OURS = {
    "stoker, plain function": OurQueue("plain", 200_000, "server; 1 worker, 1 thread"),
    "stoker, batch handler": OurQueue("batch", 200_000, "server; 1 worker, batches of up to 1,000"),
    "stoker, async handler": OurQueue("async", 100_000, "server; 1 worker, 100 at a time"),
    "stoker, directory, plain": OurQueue("plain", 200_000, "no server; 1 worker, 1 thread", has_server=False),
    "stoker, directory, async": OurQueue("async", 100_000, "no server; 1 worker, 100 at a time", has_server=False),
}
