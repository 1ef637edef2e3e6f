"""FastQ: one worker, one thread."""

import os
from urllib.parse import urlsplit

import fastq
from counting import PAYLOAD, count

url = urlsplit(os.environ["REDIS_URL"])
queue = fastq.Queue("noop", url.hostname, url.port)


def one(text):
    queue.push(text)


def push(jobs):
    for _ in range(jobs):
        queue.push(PAYLOAD)


def noop(job):
    count(job["payload"])


if __name__ == "__main__":
    fastq.Worker(queue, noop, threads=1).start()
