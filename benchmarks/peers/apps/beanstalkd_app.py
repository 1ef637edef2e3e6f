"""beanstalkd through greenstalk: one connection for each thread. It keeps everything in memory."""

import os
import threading

import greenstalk
from counting import PAYLOAD, count

HOST, _, PORT = os.environ["BEANSTALKD"].partition(":")
own = threading.local()


def client():
    if not hasattr(own, "client"):
        own.client = greenstalk.Client((HOST, int(PORT)))
    return own.client


def one(text):
    client().put(text)


def push(jobs):
    for _ in range(jobs):
        one(PAYLOAD)


if __name__ == "__main__":
    while True:
        job = client().reserve()
        count(job.body)
        client().delete(job)
