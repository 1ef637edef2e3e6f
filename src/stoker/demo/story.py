"""The script of the demo: what it does with a queue, step by step, and the checks at the end.

It pushes jobs, watches the workers, and asks for one of them to be killed. It draws nothing and starts no process: the
caller does.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

import stoker
from stoker.client.sync import Client
from stoker.demo import jobs
from stoker.model.reasons import Reason
from stoker.model.replies import JobView
from stoker.model.states import LIVE, State
from stoker.model.workflows import WorkflowState

THUMBNAILS, DOCUMENTS, MAILS, URGENT = 2_000, 1_000, 600, 20
TRICKLE, TRICKLES = 100, 30
"""Further thumbnails, pushed while everything else happens."""
ONCE, TWICE, CLOSED = 40, 20, 5
"""Payments that fail once, twice, and always."""
ACCOUNTS, ENTRIES = 4, 15
REMINDERS, REPORTS, FILMS = 40, 6, 3
ORDERS, PARCELS = 10, 3
"""Each order is a workflow: its parcels are packed and its invoice is written, then it is shipped."""


EXPECTED = {
    "thumbnails": THUMBNAILS + TRICKLE * TRICKLES,
    "search": DOCUMENTS,
    "mail": MAILS + URGENT,
    "payments": ONCE + TWICE + CLOSED,
    "ledger": ACCOUNTS * ENTRIES,
    "reminders": REMINDERS,
    "reports": REPORTS,
    "video": FILMS,
    "packing": ORDERS * PARCELS,
    "office": ORDERS,
    "shipping": ORDERS,
    "pulse": jobs.PULSES,
}
"""How many jobs of each queue the story pushes."""

TICK_S = 0.25
PATIENCE_S = 60.0
"""Longer than everything should take on a slow machine."""

Say = Callable[[str], object]


@dataclass(frozen=True)
class DemoCheck:
    """One claim about what happened, and whether it holds."""

    holds: bool
    text: str


class Demo:
    """The demo on one queue."""

    def __init__(self, client: Client, directory: Path, say: Say, kill: Callable[[str], bool]) -> None:
        self._client = client
        self._directory = directory
        self._say = say
        self._kill = kill
        """Kills the worker with this name. Returns whether there was one."""
        self._began = time.monotonic()
        self._orders: list[int] = []
        """Workflows."""
        self.hands = 0
        """Jobs that the killed worker had in hand."""

    def steps(self) -> Iterator[None]:
        """The whole demo; each `yield` is a pause for the display."""
        self.push_most()
        while not self._client.list_workers() and self.has_time():
            yield
        self._began = time.monotonic()
        self.push_rest()
        yield
        for number in range(TRICKLES):
            jobs.make_thumbnail.push_batch_sync(range(10_000 + number * TRICKLE, 10_000 + (number + 1) * TRICKLE))
            if not self.hands:
                self.kill_somebody()
            yield
        while self.is_under_way():
            if not self.hands:
                self.kill_somebody()
            yield

    def is_under_way(self) -> bool:
        counts = self._client.get_counts()
        live = sum(getattr(counts, state.value) for state in LIVE)
        pulses = self._client.get_stats("pulse").totals.pushed
        return (live > 0 or pulses < jobs.PULSES) and self.has_time()

    def has_time(self) -> bool:
        return time.monotonic() - self._began < PATIENCE_S

    def push_most(self) -> None:
        jobs.make_thumbnail.push_batch_sync(range(THUMBNAILS))
        jobs.index_documents.push_batch_sync(range(DOCUMENTS))
        self._say(f"pushed {THUMBNAILS:,} thumbnails and {DOCUMENTS:,} documents, in batches")
        jobs.send_mail.push_batch_sync(range(MAILS))
        jobs.send_mail.options(priority=10, tags=["urgent"]).push_batch_sync(range(MAILS, MAILS + URGENT))
        self._say(f"pushed {MAILS} mails, and then {URGENT} urgent ones that go before them")

    def push_rest(self) -> None:
        for order in range(ONCE + TWICE):
            jobs.charge_card.push_sync(order, 1 if order < ONCE else 2)
        jobs.charge_closed_account.push_batch_sync(range(CLOSED))
        self._say(f"pushed {ONCE + TWICE} payments that fail at first, and {CLOSED} that never work")
        for number in range(ENTRIES):
            for account in range(ACCOUNTS):
                jobs.book_entry.push_sync(account, number)
        self._say(f"pushed {ENTRIES} bookings for each of {ACCOUNTS} accounts: a group runs one at a time, in order")
        for customer in range(REMINDERS):
            jobs.remind.options(delay=f"{1_000 + customer * 120}ms").push_sync(customer)
        self._say(f"pushed {REMINDERS} reminders for the next {(1_000 + REMINDERS * 120) / 1_000:.0f} seconds")
        for film in range(FILMS):
            jobs.transcode.push_sync(film, str(self._directory / f"film-{film}"))
        jobs.print_report.push_batch_sync(range(REPORTS))
        self._say(f"pushed {FILMS} films whose process will crash, and {REPORTS} slow reports")
        self._orders = [workflow_of(order).push_sync().id for order in range(ORDERS)]
        self._say(f"pushed {ORDERS} orders as workflows: {PARCELS} parcels and an invoice each, and then it is shipped")

    def kill_somebody(self) -> None:
        """Kill a worker while it prints a report."""
        running = [job for job in self._active() if job.queue == "reports" and job.worker]
        if running and self._kill(running[0].worker):
            held = [job for job in self._active() if job.worker == running[0].worker]
            self.hands = max(1, len(held))
            self._say(f"kill -9 of {running[0].worker}, which had {self.hands} jobs in hand")

    def _active(self) -> list[JobView]:
        return list(self._client.browse(state=State.ACTIVE, limit=1_000).jobs)

    # --- checks ----------------------------------------------------------------------------------

    def checks(self) -> list[DemoCheck]:
        return [
            self.nothing_lost(),
            self.urgent_first(),
            self.tried_again(),
            self.dead_letters(),
            self.batches(),
            self.in_order(),
            self.workflows(),
            self.by_the_clock(),
            self.survived(),
            self.crashed(),
        ]

    def nothing_lost(self) -> DemoCheck:
        stats = {queue: self._client.get_stats(queue) for queue in EXPECTED}
        pushed = sum(one.totals.pushed for one in stats.values())
        completed = sum(one.totals.completed for one in stats.values())
        dead = sum(one.counts.failed for one in stats.values())
        each = all(
            one.totals.pushed == EXPECTED[queue] == one.totals.completed + one.counts.failed
            for queue, one in stats.items()
        )
        text = f"every job has ended, once: {pushed:,} pushed = {completed:,} completed + {dead} dead letters"
        return DemoCheck(each and pushed == completed + dead, text)

    def urgent_first(self) -> DemoCheck:
        waits: dict[bool, list[int]] = {True: [], False: []}
        for job in self._jobs("mail"):
            waits["urgent" in job.options.tags].append(job.started_at - job.pushed_at)
        urgent, others = (sum(waits[kind]) / max(1, len(waits[kind])) for kind in (True, False))
        text = f"urgent mail waited {urgent:,.0f} ms on average, ordinary mail, pushed before it, {others:,.0f} ms"
        return DemoCheck(len(waits[True]) == URGENT and len(waits[False]) == MAILS, text)

    def tried_again(self) -> DemoCheck:
        late = [job for job in self._jobs("payments") if job.state == State.COMPLETED]
        attempts = sorted(job.attempts for job in late)
        text = f"{len(late)} payments failed at first, and were tried again until they went through"
        return DemoCheck(len(late) == ONCE + TWICE and attempts[0] >= 2, text)

    def dead_letters(self) -> DemoCheck:
        found = self._client.list_dead("payments").jobs
        names = {job.options.name for job in found}
        typical = [job for job in found if job.reason == Reason.MAX_ATTEMPTS] or found  # the rest died with a worker
        told = f"{typical[0].reason}: {typical[0].error}" if typical else ""
        return DemoCheck(
            len(found) == CLOSED and names == {jobs.charge_closed_account.name},
            f"{len(found)} that never work are dead letters ({told})",
        )

    def batches(self) -> DemoCheck:
        calls = 0.0
        results = [job.result for job in self._jobs("search") if job.result is not None]
        for result in results:
            calls += 1 / int(msgspec.msgpack.decode(result).rpartition(" ")[2])
        text = f"a batch handler took {len(results):,} documents in {round(calls)} calls"
        return DemoCheck(len(results) == DOCUMENTS and 0 < round(calls) < DOCUMENTS, text)

    def in_order(self) -> DemoCheck:
        holds = True
        for account in range(ACCOUNTS):
            entries = sorted(self._jobs("ledger", f"account {account}"), key=lambda job: job.id)
            numbers = [msgspec.msgpack.decode(job.payload)["number"] for job in entries]
            times = [(job.started_at, job.finished_at) for job in entries]
            ordered = all(one[1] <= other[0] for one, other in pairwise(times))
            holds = holds and ordered and numbers == list(range(ENTRIES))
        return DemoCheck(holds, f"{ACCOUNTS} accounts: {ENTRIES} bookings each, in order and one at a time")

    def workflows(self) -> DemoCheck:
        done = [self._client.get_workflow(order) for order in self._orders]
        shipped = {number_of(job): job.started_at for job in self._jobs("shipping")}
        before = [*self._jobs("packing"), *self._jobs("office")]
        in_time = all(job.finished_at <= shipped.get(number_of(job), 0) for job in before)
        holds = len(done) == ORDERS and all(one.state == WorkflowState.COMPLETED for one in done)
        return DemoCheck(
            holds and in_time, f"{len(done)} orders were packed and invoiced, and only then shipped: workflows"
        )

    def by_the_clock(self) -> DemoCheck:
        times = sorted(job.pushed_at for job in self._jobs("pulse"))
        text = f"a schedule pushed {len(times)} jobs, a second apart, and was over"
        return DemoCheck(len(times) == jobs.PULSES, text)

    def survived(self) -> DemoCheck:
        stalled = self._client.get_stats().totals.stalled
        reports = [job.attempts for job in self._jobs("reports")]
        text = f"a worker was killed with jobs in hand: {stalled} of them ran again elsewhere, none was lost"
        return DemoCheck(self.hands > 0 and stalled > 0 and len(reports) == REPORTS, text)

    def crashed(self) -> DemoCheck:
        films = [job.attempts for job in self._jobs("video") if job.state == State.COMPLETED]
        text = f"{len(films)} processes crashed under their jobs, which were tried again: no worker noticed"
        return DemoCheck(len(films) == FILMS and min(films) >= 2, text)

    def _jobs(self, queue: str, group: str | None = None) -> Iterator[JobView]:
        after: int | None = None
        while True:
            page = self._client.browse(queue, group_id=group, after=after, limit=1_000)
            yield from page.jobs
            after = page.next_after
            if after is None:
                return


def workflow_of(order: int) -> stoker.Workflow:
    parcels = [jobs.pack_parcel.s(order, parcel) for parcel in range(PARCELS)]
    return stoker.workflow(
        stoker.group(*parcels, jobs.write_invoice.s(order)) >> jobs.ship_order.s(order), name="order"
    )


def number_of(job: JobView) -> int:
    """The order that a job belongs to."""
    number: int = msgspec.msgpack.decode(job.payload)["order"]
    return number
