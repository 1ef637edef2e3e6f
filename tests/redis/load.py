"""A producer and a worker for tests that kill them: `python -m tests.redis.load produce|work URL FILE`.

Each writes down what it was told, one line at a time: `pushed ID`, and `acked ID TOKEN`. What it could not write down
before it was killed is not claimed.
"""

import os
import sys

import stoker
from stoker.model.errors import StokerError

OPTIONS = stoker.Options(
    max_attempts=1_000, max_crashes=1_000, lease_ms=1_500, backoff=stoker.Backoff("fixed", 1, 1, "none")
)
QUEUE = "load"


def produce(url: str, notes: int) -> None:
    with stoker.connect(url) as queue:
        while True:
            try:
                pushed = queue.push_batch(QUEUE, [b"x" * 50] * 3, OPTIONS)
            except StokerError:
                continue
            os.write(notes, b"".join(b"pushed %d\n" % job for job in pushed.ids))


def work(url: str, notes: int) -> None:
    with stoker.connect(url) as queue:
        while True:
            try:
                delivery = queue.pull(QUEUE, 10, wait_ms=1_000)
                ids = list(delivery.ids)
                refused = queue.ack_batch(ids, delivery.token).refused if ids else {}
            except StokerError:
                continue
            os.write(notes, b"".join(b"acked %d %d\n" % (job, delivery.token) for job in ids if job not in refused))


if __name__ == "__main__":
    _, kind, address, path = sys.argv
    {"produce": produce, "work": work}[kind](address, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
