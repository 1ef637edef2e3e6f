"""Dramatiq: two processes with two threads each, many messages fetched ahead."""

import os
import sys

import dramatiq
from counting import PAYLOAD, count
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["REDIS_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(text):
    count()


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        noop.send(PAYLOAD)
