"""Short words for the stories that these tests tell."""

from typing import Any

from stoker.client.sync import Client
from stoker.model.options import Backoff
from stoker.model.replies import DeliveredJob

STEADY = Backoff("exponential", 1_000, 3_600_000, "none")


def push(client: Client, queue: str = "q", **options: Any) -> int:
    return client.push(queue, b"job", **options).id


def start(client: Client, queue: str = "q", **how: Any) -> DeliveredJob:
    (job,) = client.pull(queue, **how)
    return job


def pulled(client: Client, queue: str | list[str] = "q", count: int = 100, **how: Any) -> list[int]:
    return [job.id for job in client.pull(queue, count, **how)]
