"""huey: one thread, which is its fastest for jobs this short; no results kept."""

import os

from counting import PAYLOAD, count
from huey import RedisHuey

huey = RedisHuey("peers", url=os.environ["REDIS_URL"], results=False)


@huey.task()
def noop(text):
    count(text)


def one(text):
    noop(text)


def push(jobs):
    for _ in range(jobs):
        noop(PAYLOAD)
