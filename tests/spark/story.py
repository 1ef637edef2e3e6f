"""A history with a bit of everything, and what the queue itself counts of it."""

import random

from stoker.client.sync import Client
from stoker.model.options import Backoff

NEVER = Backoff("fixed", 3_600_000, jitter="none")
"""Nothing becomes due by itself while somebody counts."""


def live(queue: Client, seed: int = 1, rounds: int = 40) -> None:
    """Jobs that complete, fail, are tried again, cancelled and released, in several queues."""
    chance = random.Random(seed)
    names = ["mail", "embed", "report"]
    for number in range(rounds):
        where = chance.choice(names)
        size = chance.choice([1, 3, 20])
        payloads = [bytes(chance.randrange(50)) for _ in range(size)]
        tries = chance.choice([1, 2])
        ids = queue.push_batch(where, payloads, name=f"kind-{number % 4}", max_attempts=tries, backoff=NEVER).ids
        if chance.random() < 0.1:
            queue.cancel(ids[0])
        work(queue, where, chance)


def work(queue: Client, where: str, chance: random.Random) -> None:
    delivery = queue.pull(where, chance.choice([1, 5, 30]), worker=f"worker-{chance.randrange(3)}")
    for job in delivery:
        fate = chance.random()
        if fate < 0.15:
            queue.fail(job.id, job.token, f"cannot reach host 10.0.0.{job.id % 7}", error_class="OSError")
        elif fate < 0.2:
            queue.release_batch([job.id], job.token)
        elif fate < 0.3:
            queue.ack(job.id, job.token, b"result")
        else:
            queue.ack(job.id, job.token)
