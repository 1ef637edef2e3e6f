"""Celery: processes, many jobs fetched ahead, no results kept."""

import os

from celery import Celery
from counting import PAYLOAD, count

app = Celery("celery_app", broker=os.environ["REDIS_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1000, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(text):
    count(text)


def one(text):
    noop.delay(text)


def push(jobs):
    for _ in range(jobs):
        noop.delay(PAYLOAD)
