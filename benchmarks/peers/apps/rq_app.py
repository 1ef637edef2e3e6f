"""RQ: workers that do not fork for every job, pushed in bulk, no results kept."""

import os
import sys

from counting import PAYLOAD, count
from redis import Redis
from rq import Queue


def noop(text):
    count()


if __name__ == "__main__":
    queue = Queue(connection=Redis.from_url(os.environ["REDIS_URL"]))
    left = int(sys.argv[1])
    while left > 0:
        jobs = [Queue.prepare_data("rq_app.noop", (PAYLOAD,), result_ttl=0) for _ in range(min(left, 500))]
        queue.enqueue_many(jobs)
        left -= 500
