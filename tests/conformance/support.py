"""Short words for what the tests say often."""

from collections.abc import Sequence
from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LimitExceeded, StokerError
from stoker.model.events import Event
from stoker.model.ids import sequence_of
from stoker.model.options import Backoff
from tests.conformance.brokers import ContractWorld, Recorder
from tests.conformance.pictures import Picture

STEADY = Backoff("exponential", 1_000, 3_600_000, "none")
"""Backoff that a test can compute: 1 s, 2 s, 4 s, ..."""

NEVER = 999_999 << 6
"""An id that was never given."""

OUT_OF_BOUNDS = (InvalidRequest, LimitExceeded)


def push(client: Client, queue: str = "q", payload: bytes = b"job", **options: Any) -> int:
    return client.push(queue, payload, **options).id


def push_many(client: Client, count: int, queue: str = "q", **options: Any) -> list[int]:
    """A uniform batch with payloads b"0", b"1", ..."""
    return list(client.push_batch(queue, [b"%d" % n for n in range(count)], **options).ids)


def start(client: Client, queue: str | Sequence[str] = "q", **how: Any) -> r.DeliveredJob:
    """Pull the one job that is to come next."""
    (job,) = client.pull(queue, 1, **how)
    return job


def pulled(client: Client, queue: str | Sequence[str] = "q", count: int = 100, **how: Any) -> list[int]:
    return [job.id for job in client.pull(queue, count, **how)]


def finish(client: Client, queue: str = "q", result: bytes | None = None, **options: Any) -> int:
    """A job that has completed."""
    job = push(client, queue, **options)
    assert pulled(client, queue, 1) == [job]
    client.ack(job, result=result)
    return job


def kill(client: Client, queue: str = "q", error: str = "broken", **options: Any) -> int:
    """A job that has failed for good."""
    job = push(client, queue, **options)
    assert pulled(client, queue, 1) == [job]
    client.fail(job, error=error, retry=False)
    return job


def all_events(client: Client, after: int = 0, **filters: Any) -> list[Event]:
    found: list[Event] = []
    while True:
        page = client.read_events(0, after, **filters)
        if not page.events:
            return found
        found.extend(page.events)
        after = page.next_after


def story(client: Client, job: int) -> list[str]:
    """The kinds of a job's events, in order."""
    return [str(event.kind) for event in all_events(client) if event.job == job]


def all_jobs(client: Client, queue: str | None = None) -> list[r.JobView]:
    found: list[r.JobView] = []
    after = None
    while True:
        page = client.browse(queue, after=after, limit=100, ascending=True)
        found.extend(page.jobs)
        if page.next_after is None:
            return found
        after = page.next_after


def picture(client: Client) -> Picture:
    """Everything that a tenant can see."""
    return recorder(client).picture(client.tenant)


def picture_before(client: Client) -> Picture:
    """The same, for a command that must change nothing: one picture does for several of them in a row."""
    return recorder(client).picture_before(client.tenant)


def recorder(client: Client) -> Recorder:
    broker = client.broker
    assert isinstance(broker, Recorder)
    return broker


def check_refused(
    world: ContractWorld,
    error: type[StokerError] | tuple[type[StokerError], ...],
    command: c.Command[Any],
    tenant: str = "default",
) -> StokerError:
    """The command is refused with this error and has changed nothing that anybody can see."""
    before = picture_before(world.client)
    with pytest.raises(error) as caught:
        world.client_for(tenant).execute(command)
    assert picture(world.client) == before
    assert caught.value.message, "an error says what was wrong"
    return caught.value


def check_not_settled(world: ContractWorld, code: str, command: Any) -> None:
    """The command names jobs that are all refused with this code, and has changed nothing."""
    before = picture(world.client)
    reply = world.client.execute(command)
    assert dict(reply.refused) == dict.fromkeys(command.ids, code)
    assert picture(world.client) == before


def sequences(ids: Sequence[int]) -> list[int]:
    return [sequence_of(job) for job in ids]
