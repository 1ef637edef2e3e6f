"""A queue at work in one process: priorities, a delay, retries, a dead letter, a group, a chain and a rate limit.

Run it with `python examples/plain_queue.py`. Nothing else has to run, and no App is needed: this is the embedded broker
over a data directory, which is opened again at the end to see what is left in it.
"""

import tempfile
import threading
from collections import Counter

import stoker
from stoker.model.replies import DeliveredJob

QUEUES = ("mail", "thumbnails", "reports")
JOBS = 3_000


def push_work(queue: stoker.Client) -> int:
    """Some thousand jobs of several kinds. Returns how many."""
    queue.push_batch("thumbnails", [b"image %d" % number for number in range(JOBS)])
    urgent = queue.push("mail", b"the one with the highest priority", priority=10)
    queue.push("mail", b"later", delay_ms=300)
    queue.push("mail", b"fails twice, then works", max_attempts=3, backoff=stoker.Backoff(base_ms=20))
    queue.push("mail", b"always fails", max_attempts=2, backoff=stoker.Backoff(base_ms=20))
    for number in range(5):
        queue.push("mail", b"in order %d" % number, group_id="account 7")
    queue.push("reports", b"after the urgent mail", depends_on=(stoker.Dependency(urgent.id),))
    again = queue.push("reports", b"nightly", unique_key="nightly")
    twin = queue.push("reports", b"nightly", unique_key="nightly")
    print(f"pushed twice under one unique key: the same job? {twin.id == again.id}")
    queue.set_rate_limit("reports", count=50)
    return queue.get_stats().totals.pushed


def handle(job: DeliveredJob) -> bytes:
    """What a worker does with a job; an exception fails it."""
    if job.payload == b"always fails" or (job.payload.startswith(b"fails twice") and job.attempt < 3):
        raise RuntimeError("that did not work")
    return b"done: " + job.payload


def work(queue: stoker.Client, name: str, done: Counter[str]) -> None:
    """Pull, handle, settle, until nothing has come for a second."""
    while delivery := queue.pull(QUEUES, 100, wait_ms=1_000, worker=name):
        for job in delivery:
            try:
                result = handle(job)
            except RuntimeError as error:
                queue.fail(job.id, job.token, str(error), error_class=type(error).__name__)
            else:
                queue.ack(job.id, job.token, result)
                done[job.queue] += 1


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/jobs.db?shards=1"  # one shard: jobs of different queues may depend on each other
        run(url)
        with stoker.connect(url) as again:
            left = [job.payload.decode() for job in again.list_dead("mail").jobs]
            print(f"opened again, the data directory still has the dead letter: {left}")


def run(url: str) -> None:
    with stoker.connect(url) as queue:
        pushed = push_work(queue)
        done: Counter[str] = Counter()
        workers = [threading.Thread(target=work, args=(queue, f"worker {n}", done)) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        totals = queue.get_stats().totals
        print(f"{pushed:,} jobs pushed, {totals.started:,} deliveries, {totals.completed:,} completed:")
        for name in QUEUES:
            print(f"  {name:<12} {done[name]:>6,}")
        print(f"{totals.retried} deliveries were tried again; dead letters:")
        for job in queue.list_dead("mail").jobs:
            print(f"  {job.payload.decode()!r}: {job.reason} after {job.attempts} attempts ({job.error})")
        assert totals.completed + totals.failed == pushed, "a job was lost"


if __name__ == "__main__":
    main()
