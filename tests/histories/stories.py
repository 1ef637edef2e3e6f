"""What a queue tells of its jobs in the end: each as it is, and everything that happened to it."""

from collections.abc import Iterable, Iterator

from stoker.client.sync import Client
from stoker.model import replies as r
from stoker.model.errors import StokerError
from stoker.model.events import Event
from stoker.model.ids import shard_of
from tests.histories.history import Seen, key_of

PAGE = 1_000


def all_jobs(client: Client) -> Iterator[r.JobView]:
    """A page may be short, and even empty, although more follow."""
    after: int | None = 0
    while after is not None:
        page = client.browse(after=after, limit=PAGE, ascending=True)
        yield from page.jobs
        after = page.next_after


def seen_in(client: Client) -> list[Seen]:
    return [Seen(job.id, key_of(job.payload), job.state, 0, job.lease_until, job.result) for job in all_jobs(client)]


def told_of(client: Client, job: int) -> str:
    """What the queue says about one job: its view, the listing from its id on, and its events."""
    try:
        view = repr(client.get_job(job))
    except StokerError as error:
        view = repr(error)
    after = [one.id for one in client.browse(after=job - 1, limit=3, ascending=True).jobs]
    return "\n    ".join([f"{job}: {view}", f"listed from there: {after}", *map(repr, stories_of(client, [job])[job])])


def stories_of(client: Client, jobs: Iterable[int], queue: str | None = None) -> dict[int, list[Event]]:
    """The events of each of these jobs, in order."""
    found: dict[int, list[Event]] = {job: [] for job in jobs}
    for shard in {shard_of(job) for job in found}:
        after = 0
        while True:
            page = client.read_events(shard, after, queue=queue)
            for event in page.events:
                if event.job in found:
                    found[event.job].append(event)
            if page.next_after == after:
                break
            after = page.next_after
    return found
