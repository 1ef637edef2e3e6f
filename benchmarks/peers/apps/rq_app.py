"""RQ: workers that do not fork for every job, pushed in bulk, no results kept."""

import os

from counting import PAYLOAD, count
from redis import Redis
from rq import Queue


def noop(text):
    count(text)


queue = Queue(connection=Redis.from_url(os.environ["REDIS_URL"]))


def one(text):
    queue.enqueue("rq_app.noop", text, result_ttl=0)


def push(jobs):
    left = jobs
    while left > 0:
        batch = [Queue.prepare_data("rq_app.noop", (PAYLOAD,), result_ttl=0) for _ in range(min(left, 500))]
        queue.enqueue_many(batch)
        left -= 500
