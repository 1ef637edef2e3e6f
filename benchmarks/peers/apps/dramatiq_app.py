"""Dramatiq: two processes with two threads each, many messages fetched ahead."""

import os

import dramatiq
from counting import PAYLOAD, count
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["REDIS_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(text):
    count(text)


def one(text):
    noop.send(text)


def push(jobs):
    for _ in range(jobs):
        noop.send(PAYLOAD)
