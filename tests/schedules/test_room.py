"""A schedule pushes nothing where nothing new is taken, says so, and goes on with the next slot."""

import pytest

from stoker.brokers.local import LocalBroker
from stoker.client.sync import Client
from stoker.engine.shard import Shard
from stoker.journal.room_watch import RoomWatch
from stoker.model import commands as c
from stoker.model.errors import DiskFull
from stoker.model.schedules import Schedule
from stoker.testing import World

MINUTE = 60_000


@pytest.mark.parametrize("code", ["disk_full", "memory_full"])
def test_a_slot_without_room_is_refused_and_the_next_one_is_not(code: str):
    shard, why = Shard(), [code]
    shard.no_room = lambda tenant, size: why[0]
    shard.execute("t", c.PutSchedule("q", "s", Schedule(every_ms=MINUTE, runs_max=1)), 0)
    shard.advance(MINUTE)
    why[0] = ""
    shard.advance(2 * MINUTE)
    view = shard.execute("t", c.GetSchedule("q", "s"), 2 * MINUTE)
    assert [(run.outcome, run.reason) for run in view.last_runs] == [("refused", code), ("pushed", "")]
    assert (view.runs, view.state) == (1, "over")


def test_the_broker_says_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch):
    with World() as world:
        client: Client = world.client
        broker: LocalBroker = world.broker
        client.put_schedule("q", "s", every_ms=MINUTE)
        monkeypatch.setattr(broker.runtime.journal, "is_full", True)
        world.advance(MINUTE)
        (run,) = client.get_schedule("q", "s").last_runs
        assert (run.outcome, run.reason) == ("refused", "disk_full")
        for command in (c.RunSchedule("q", "s"), c.PutSchedule("q", "t", Schedule(every_ms=MINUTE))):
            with pytest.raises(DiskFull):
                client.execute(command)
        monkeypatch.setattr(broker.runtime.journal, "is_full", False)
        world.advance(MINUTE)
        assert [one.outcome for one in client.get_schedule("q", "s").last_runs] == ["refused", "pushed"]


def test_slots_of_one_moment_share_the_room(monkeypatch: pytest.MonkeyPatch):
    """Each of their jobs may have a large payload: those that find no room beside the others are refused."""
    with World() as world:
        for number in range(20):
            world.client.put_schedule("q", f"s{number}", every_ms=1_000, payload=bytes(60_000))
        journal = world.broker.runtime.journal
        assert isinstance(journal, RoomWatch)
        monkeypatch.setattr(journal, "room", 1_000_000)
        journal.look_if_tight()
        world.advance(1_000)
        runs = [world.client.get_schedule("q", f"s{number}").last_runs[-1] for number in range(20)]
        assert {(run.outcome, run.reason) for run in runs} == {("pushed", ""), ("refused", "disk_full")}
