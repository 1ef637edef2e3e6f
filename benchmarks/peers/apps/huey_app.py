"""huey: one thread, which is its fastest for jobs this short; no results kept."""

import os
import sys

from counting import PAYLOAD, count
from huey import RedisHuey

huey = RedisHuey("peers", url=os.environ["REDIS_URL"], results=False)


@huey.task()
def noop(text):
    count()


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        noop(PAYLOAD)
