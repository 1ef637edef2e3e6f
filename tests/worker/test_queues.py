"""Which queues are pulled from, in which order, and how much."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stoker.model import commands as c
from stoker.model.options import Options, RateLimit
from stoker.model.replies import Delivery, Run
from stoker.testing import World
from stoker.worker.errors import BadHandler
from stoker.worker.held_jobs import HeldJobs
from stoker.worker.lane import Lane, LaneFlow, ahead, room_for
from stoker.worker.pace import HandlerRateLimit, JobDuration
from stoker.worker.pulling import Puller
from stoker.worker.queues import QueueLine, QueueSettings, Roster
from stoker.worker.worker import Worker
from tests.worker.running import handler, push_many


class Room:
    """A lane that only has room."""

    def __init__(self, room: int) -> None:
        self.left = room

    def room(self, pace_s: float | None) -> int:
        return self.left


def roster(**queues: tuple[float, Room]) -> Roster:
    lines = []
    for name, (weight, lane) in queues.items():
        lanes: tuple[Lane, ...] = (lane,)  # type: ignore[assignment]
        lines.append(QueueLine(name, QueueSettings(weight=weight), lanes))
    return Roster(lines)


def served(queues: Roster, pulls: int, full: set[str]) -> Counter[str]:
    """What so many pulls bring where the `full` queues always have jobs."""
    got: Counter[str] = Counter()
    for _ in range(pulls):
        plan = queues.plan({}, 1_000, patient=False)
        assert plan is not None
        name = next(name for name in plan.queues if name in full)
        got[name] += plan.count
        queues.delivered(plan.queues, {name: plan.count})
    return got


def test_weights_are_shares_of_the_jobs():
    lane = Room(10)
    got = served(roster(high=(6, lane), low=(2, lane), least=(1, lane)), 900, {"high", "low", "least"})
    assert got == {"high": 6_000, "low": 2_000, "least": 1_000}


def test_no_queue_starves_beside_a_heavy_one():
    lane = Room(1)
    assert served(roster(high=(1_000, lane), low=(1, lane)), 2_002, {"high", "low"})["low"] >= 2


def test_a_queue_that_was_empty_has_not_saved_up():
    lane = Room(1)
    queues = roster(busy=(1, lane), late=(1, lane))
    served(queues, 1_000, {"busy"})
    got = served(queues, 100, {"busy", "late"})
    assert 45 <= got["late"] <= 55


def test_queues_without_room_are_not_named():
    queues = roster(free=(1, Room(5)), full=(1, Room(0)))
    plan = queues.plan({}, 1_000, patient=False)
    assert plan is not None
    assert plan.queues == ("free",)


def test_a_queue_with_hardly_any_room_does_not_slow_the_others_down():
    queues = roster(wide=(1, Room(100)), narrow=(1, Room(1)))
    hasty, patient = queues.plan({}, 1_000, patient=False), queues.plan({}, 1_000, patient=True)
    assert hasty is not None
    assert (hasty.queues, hasty.count, hasty.waits) == (("wide",), 100, False)
    assert patient is not None
    assert (set(patient.queues), patient.count, patient.waits) == ({"wide", "narrow"}, 1, True)


def test_an_empty_queue_with_little_room_does_not_make_the_pulls_of_a_full_one_small():
    got = served(roster(narrow=(1, Room(8)), wide=(1, Room(1_000))), 100, {"wide"})
    assert got["wide"] > 40_000


def test_without_any_room_there_is_no_pull():
    assert roster(full=(1, Room(0))).plan({}, 1_000, patient=True) is None


def test_short_jobs_are_fetched_ahead_and_long_ones_are_not():
    assert (ahead(1, None, None), ahead(1, 10.0, None), ahead(1, 0.001, None)) == (0, 0, 50)
    assert ahead(1, 0.000_001, None) == 5_000, "bounded, however short they are"
    assert ahead(1, 10.0, 7) == 7, "an explicit number is taken as it is"


def test_what_waits_is_bounded_by_what_a_lane_really_does():
    now = [0.0]
    flow = LaneFlow(lambda: now[0])
    assert flow.ahead(0) == 64
    now[0] = 0.05
    assert flow.ahead(1_000) == 2_000
    now[0] = 1.05
    assert flow.ahead(1_001) == 64, "it does next to nothing any more"


def test_while_slots_have_work_jobs_are_fetched_in_good_parts():
    assert room_for(10, 0, 1_000) == 1_010
    assert room_for(10, 900, 1_000) == 0
    assert room_for(10, 700, 1_000) == 310
    assert room_for(10, 9, 0) == 1


def test_a_pace_believes_slow_jobs_at_once():
    pace = JobDuration()
    pace.measured(100, 0.001)
    pace.measured(1, 1.0)
    assert pace.seconds is not None
    assert pace.seconds > 0.4


def test_a_bucket_refills_with_time():
    now = [0.0]
    bucket = HandlerRateLimit(RateLimit(10, 1_000, 5), lambda: now[0])
    assert bucket.tokens == 5
    bucket.take(5)
    assert (bucket.tokens, round(bucket.next_s, 3)) == (0, 0.1)
    now[0] = 0.25
    assert bucket.tokens == 2
    now[0] = 100.0
    assert bucket.tokens == 5


def test_tokens_that_were_taken_after_a_pause_are_not_there_again():
    """A worker looks before it pulls, and takes when the pull is answered: much later, perhaps."""
    now = [0.0]
    bucket = HandlerRateLimit(RateLimit(5, 1_000), lambda: now[0])
    assert bucket.tokens == 5
    now[0] = 20.0
    bucket.take(5)
    assert (bucket.tokens, round(bucket.next_s, 3)) == (0, 0.2)


@pytest.mark.parametrize("wrong", [{"weight": 0}, {"weight": -1}, {"concurrency": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]):
    with pytest.raises(BadHandler, match="expected"):
        QueueSettings(**wrong)


def test_only_the_named_queues_are_worked_on(world: World):
    for queue in ("a", "b"):
        push_many(world.client, "run", range(3), queue=queue)
    Worker(world.client, [handler(lambda number: None, name="run", queue="a")], queues=["b"]).run_until_idle()
    assert (world.client.get_counts("a").waiting, world.client.get_counts("b").completed) == (3, 3)


# --- pulls -------------------------------------------------------------------------------------------


class Pulls:
    """A queue that notes what is asked of it; each pull is answered as the test says."""

    def __init__(self, queues: Roster, answer: Callable[["Pulls", c.Pull], Awaitable[Delivery]]) -> None:
        self.asked: list[c.Pull] = []
        self.got: list[Delivery] = []
        self._answer = answer
        self.puller = Puller(self._execute, self._dispatch, queues, HeldJobs(), "w", 20_000)

    async def _execute(self, command: c.Command[Any]) -> Delivery:
        assert isinstance(command, c.Pull)
        self.asked.append(command)
        return await self._answer(self, command)

    def _dispatch(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        self.puller.stop()


def delivery(queue: str) -> Delivery:
    return Delivery(1, [Run(queue, [64], [b""], Options(), 1, 0, 0)])


def test_a_hasty_pull_is_not_broken_off_when_something_is_settled():
    """It leaves out a queue with little room on purpose; to break it off each time would be to pull nothing."""

    async def answer(pulls: Pulls, pull: c.Pull) -> Delivery:
        pulls.puller.freed()
        await asyncio.sleep(0)
        return delivery("wide")

    async def main() -> Pulls:
        pulls = Pulls(roster(wide=(1, Room(100)), narrow=(1, Room(1))), answer)
        await pulls.puller.run()
        return pulls

    pulls = asyncio.run(main())
    assert [pull.queues for pull in pulls.asked] == [("wide",)]
    assert len(pulls.got) == 1


def test_a_pull_that_waits_is_broken_off_for_a_queue_that_gets_room():
    full = Room(0)

    async def answer(pulls: Pulls, pull: c.Pull) -> Delivery:
        if len(pulls.asked) == 1:
            return Delivery()
        if len(pull.queues) == 1:
            full.left = 10
            pulls.puller.freed()
            await asyncio.Event().wait()
        return delivery("full")

    async def main() -> Pulls:
        pulls = Pulls(roster(free=(1, Room(10)), full=(1, full)), answer)
        await pulls.puller.run()
        return pulls

    pulls = asyncio.run(main())
    assert [set(pull.queues) for pull in pulls.asked] == [{"free"}, {"free"}, {"free", "full"}]


def test_a_pull_that_waits_for_many_is_broken_off_when_jobs_turn_out_to_be_slow():
    lane = Room(1_000)

    async def answer(pulls: Pulls, pull: c.Pull) -> Delivery:
        if len(pulls.asked) == 1:
            return Delivery()
        if pull.count == 1_000:
            lane.left = 1
            pulls.puller.reconsider()
            await asyncio.Event().wait()
        return delivery("one")

    async def main() -> Pulls:
        pulls = Pulls(roster(one=(1, lane)), answer)
        await pulls.puller.run()
        return pulls

    assert [pull.count for pull in asyncio.run(main()).asked] == [1_000, 1_000, 1]
