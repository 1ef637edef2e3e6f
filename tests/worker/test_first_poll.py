"""The first pulls of a worker: they are answered at once, and nothing that they bring is lost."""

import asyncio
from typing import Any

import pytest

import stoker
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.model.replies import Delivery, Run
from stoker.worker.handler import Handler
from stoker.worker.held_jobs import HeldJobs
from stoker.worker.injection import WorkerScope
from stoker.worker.pulling import Puller
from stoker.worker.queues import QueueLine, QueueSettings, Roster
from stoker.worker.thread_lane import ThreadLane
from stoker.worker.worker import Worker


def test_a_worker_is_ready_before_the_first_job_comes():
    """A probe should not have to wait for a poll of twenty seconds to end."""

    async def test() -> None:
        with stoker.connect("memory://") as queue:
            worker = Worker(queue, [Handler(name="any", function=print)])
            working = asyncio.create_task(worker.serve())
            async with asyncio.timeout(60):
                while not worker.report().is_ready:  # noqa: ASYNC110 - it has no way to tell
                    await asyncio.sleep(0)
            worker.stop()
            await working

    asyncio.run(test())


def test_jobs_that_come_when_a_pull_is_given_up_are_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.worker.pulling.IMPATIENT_S", 0.001)
    brought = Delivery(1, (Run("q", (64,), (b"",), Options(), 1, 0, 0),))
    taken: list[Delivery] = []

    async def test() -> None:
        async def answer_at_the_last_moment(command: c.Command[Any]) -> Delivery:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            return brought

        def take(delivery: Delivery) -> None:
            taken.append(delivery)
            puller.stop()

        lane = ThreadLane(1, WorkerScope())
        roster = Roster([QueueLine("q", QueueSettings(), (lane,))])
        puller = Puller(answer_at_the_last_moment, take, roster, HeldJobs(), "worker", 20_000)
        async with asyncio.timeout(60):
            await puller.run()

    asyncio.run(test())
    assert taken == [brought]
