"""What processes decide together, and what they say when one of them is not there."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import open_sqlite
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, NotFound, Unavailable, Unknown
from stoker.model.ids import process_of, shard_for
from stoker.model.options import Options
from stoker.model.states import State
from stoker.records import records as rec
from stoker.runtime import process_requests
from stoker.runtime.multiprocess_pull import take_under
from stoker.runtime.process_messages import PeerAnswer, PeerAsk, PeerDrop, UnreadableMessage, from_bytes, to_bytes
from tests.processes.test_death import QUEUES, SETTINGS, SHARDS
from tests.processes.world import Processes, SharedClock, end

HERE, THERE = QUEUES[0], QUEUES[1]
"""Queues of two processes."""


@pytest.fixture
def world() -> Iterator[Processes]:
    world = Processes(SETTINGS)
    yield world
    world.restart_dead()
    end(world)


def at(world: Processes, process: int, command: c.Command[Any]) -> Any:
    """A command that arrives at a certain process."""
    return world.call(world.at(process).execute_async("default", command))


def decided_by(process: int) -> str:
    return next(n for n in (f"t{i}" for i in range(99)) if process_of(shard_for("default", n, SHARDS), 2) == process)


# --- waiting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("winners", [(0, 1), (1, 2)])
def test_the_loser_of_a_waiting_pull_is_released_uncounted(winners: tuple[int, int]):
    """Two processes have something in the same moment: one delivery is kept, the other job was never pulled."""
    world = Processes(SETTINGS, 4)
    names = [QUEUES[process] for process in winners]

    async def main() -> r.Delivery:
        pulling = asyncio.ensure_future(world.at(0).execute_async("default", c.Pull(names, 5, 1_000)))
        await until_waiting(world, 2)
        await asyncio.gather(*(world.at(p).execute_async("default", c.Push(QUEUES[p], b"")) for p in winners))
        return await pulling

    delivery = world.call(main())
    assert len(delivery) == 1
    views = [at(world, 0, c.Browse(queue)).jobs[0] for queue in names]
    assert sorted(view.state for view in views) == [State.ACTIVE, State.WAITING]
    (loser,) = [view for view in views if view.state is State.WAITING]
    assert loser.attempts == 0
    assert [job.attempt for job in at(world, 0, c.Pull([loser.queue]))] == [1]
    end(world)


async def until_waiting(world: Processes, lines: int) -> None:
    """Until so many lines of queues have somebody in them; this much is done long before."""
    for _ in range(1_000):
        if sum(len(queue.waiters) for queue in all_queues(world)) == lines:
            return
        await asyncio.sleep(0)
    raise AssertionError("nobody waits")


def all_queues(world: Processes) -> list[Any]:
    shards = [shard for node in world.nodes if node.broker is not None for shard in node.broker.runtime.shards]
    return [queue for shard in shards for tenant in shard.tenants.values() for queue in tenant.queues.values()]


def test_whoever_is_cancelled_waits_nowhere_any_more(world: Processes):
    async def main() -> None:
        pulling = asyncio.ensure_future(world.at(0).execute_async("default", c.Pull([HERE, THERE], 5, 1_000)))
        single = asyncio.ensure_future(world.at(0).execute_async("default", c.Pull([THERE], 5, 1_000)))
        await until_waiting(world, 3)
        pulling.cancel()
        single.cancel()
        await asyncio.gather(pulling, single, return_exceptions=True)

    world.call(main())
    assert all(parked.done for queue in all_queues(world) for parked in queue.waiters)
    for queue in (HERE, THERE):
        at(world, 0, c.Push(queue, b""))
        assert at(world, 0, c.Browse(queue)).jobs[0].state is State.WAITING


@pytest.mark.parametrize("count", [1, 2])
def test_many_who_pull_at_once_get_each_job_once(world: Processes, count: int):
    """However their tokens get in each other's way, nobody goes away empty-handed while there are jobs."""
    for queue in QUEUES:
        at(world, 0, c.PushBatch(queue, [b""] * 20))

    async def main() -> list[r.Delivery]:
        pulls = [c.Pull(QUEUES[n % 2 :], count) for n in range(40)]
        asking = [world.at(n % 2).execute_async("default", pull) for n, pull in enumerate(pulls)]
        return await asyncio.gather(*asking)

    deliveries = world.call(main())
    pulled = [job.id for delivery in deliveries for job in delivery]
    assert all(deliveries)
    assert len(set(pulled)) == len(pulled)
    for delivery in deliveries:
        assert at(world, 0, c.Ack(delivery.ids, delivery.token)).count == len(delivery)


def test_a_pull_that_comes_late_does_not_take_a_token_of_another_pull(world: Processes):
    """Between the queues of one process lies one of another, so that process is asked twice. The first time it has
    given out a higher token; the second time, in another shard, the token itself, to another pull.
    """
    first, between, last = QUEUES[0], QUEUES[1], QUEUES[2]
    for queue in (first, between, last):
        at(world, 0, c.PushBatch(queue, [b""] * 4))
    token = at(world, 0, c.Pull([last])).token
    while at(world, 0, c.Pull([first])).token < token:
        pass
    pull, turns = c.Pull([first, between, last], 9), [(0, [first]), (1, [between]), (0, [last])]
    delivery, is_late = world.call(take_under(token, world.at(0), "default", pull, turns))
    assert is_late
    assert delivery is None or {run.queue for run in delivery.runs} == {between}


def test_a_process_gives_a_token_to_one_pull_only(world: Processes):
    """Nodes without shards may choose the same token for different pulls."""
    for queue in (QUEUES[0], QUEUES[2]):
        at(world, 0, c.Push(queue, b""))
    token = at(world, 0, c.Pull([QUEUES[0]])).token + 1_000
    at(world, 0, c.Push(QUEUES[0], b""))
    takes = [process_requests.Take(c.Pull([queue]), token) for queue in (QUEUES[0], QUEUES[2])]
    first, second = [world.call(world.at(0).ask(0, "default", take)) for take in takes]
    assert (len(first.delivery), first.late) == (1, False)
    assert (len(second.delivery), second.late) == (0, True)


def test_those_who_want_one_claim_get_the_same_jobs(world: Processes):
    ids = {at(world, 0, c.Push(queue, b"")).id for queue in QUEUES}

    async def main() -> list[r.Delivery]:
        pull = c.Pull(QUEUES, 3, claim="c")
        return await asyncio.gather(*(world.at(p).execute_async("default", pull) for p in (0, 1, 0, 1)))

    first, *others = world.call(main())
    assert len(first) == 3
    assert set(first.ids) < ids
    for other in others:
        assert (other.token, set(other.ids)) == (first.token, set(first.ids))


def test_those_who_wait_for_one_claim_get_the_same_jobs(world: Processes):
    async def main() -> list[r.Delivery]:
        pulls = [c.Pull([HERE], 5, 1_000, claim="c"), c.Pull([THERE], 5, 1_000, claim="c")]
        waiting = [asyncio.ensure_future(world.at(p).execute_async("default", pulls[p])) for p in (0, 1)]
        await until_waiting(world, 2)
        await world.at(0).execute_async("default", c.Push(THERE, b"only"))
        return await asyncio.gather(*waiting)

    one, other = world.call(main())
    assert list(one.payloads) == list(other.payloads) == [b"only"]
    assert one.token == other.token
    assert at(world, 0, c.AckClaim("c")).count == 1


def test_payloads_that_lie_on_disk_are_delivered(world: Processes):
    """After a restart those of batches are not in memory."""
    for queue in QUEUES:
        at(world, 0, c.PushBatch(queue, [f"{queue}/{n}".encode() for n in range(4)]))
    world.die(0)
    world.die(1)
    world.restart_dead()
    expected = {f"{queue}/{n}".encode() for queue in QUEUES for n in range(2)}
    pulled = [at(world, 0, c.Pull([*QUEUES[n:], *QUEUES[:n]], 2, claim=f"c{n}")) for n in range(4)]
    again = [at(world, 1, c.Pull(QUEUES, 2, claim=f"c{n}")) for n in range(4)]
    assert {payload for delivery in pulled for payload in delivery.payloads} == expected
    assert [sorted(one.payloads) for one in again] == [sorted(one.payloads) for one in pulled]
    assert len(at(world, 0, c.Pull(QUEUES, 100)).payloads) == 8


# --- somebody is not there ---------------------------------------------------------------------------


def test_what_cannot_have_happened_is_unavailable(world: Processes):
    job = at(world, 0, c.Push(THERE, b"")).id
    world.die(1)
    for command in (c.Push(THERE, b""), c.GetJob(job), c.Browse(), c.ListQueues(), c.Cancel(job), c.FindJob("x")):
        with pytest.raises(Unavailable):
            at(world, 0, command)
    with pytest.raises(Unavailable):
        at(world, 0, c.Stage("t", "s", HERE, [b""]))
    at(world, 0, c.Push(HERE, b""))
    world.restart_dead()
    assert at(world, 0, c.GetJob(job)).state is State.WAITING
    assert at(world, 0, c.GetStats()).counts.waiting == 2


@pytest.mark.parametrize(("command", "error"), [(c.Push(THERE, b""), Unknown), (c.GetQueue(THERE), Unavailable)])
def test_what_may_have_happened_is_unknown(world: Processes, command: c.Command[Any], error: type[Exception]):
    """The other process dies just before it can answer."""
    world.die_at = (world.messages + 2, 1)
    with pytest.raises(error) as caught:
        at(world, 0, command)
    assert type(caught.value) is error


def test_a_pull_brings_what_those_have_who_are_there(world: Processes):
    for queue in (HERE, THERE):
        at(world, 0, c.Push(queue, queue.encode()))
    world.die(1)
    assert at(world, 0, c.Pull([THERE, HERE], 5)).payloads == [HERE.encode()]
    assert at(world, 0, c.Pull([THERE, HERE], 5, 100)).runs == ()
    world.restart_dead()
    assert at(world, 0, c.Pull([THERE, HERE], 5)).payloads == [THERE.encode()]


def test_jobs_of_a_process_that_is_not_there_are_refused_by_name(world: Processes):
    here, there = (at(world, 0, c.Push(queue, b"")).id for queue in (HERE, THERE))
    token = at(world, 0, c.Pull([HERE, THERE], 2)).token
    world.die(1)
    reply = at(world, 0, c.Ack([here, there], token))
    assert (reply.count, dict(reply.refused)) == (1, {there: "unavailable"})
    world.restart_dead()
    assert at(world, 1, c.Ack([there], token)).count == 1
    assert at(world, 0, c.GetStats()).counts.completed == 2


def test_a_decision_is_carried_out_when_its_participant_is_back(world: Processes):
    """Nobody has to ask for it again."""
    transaction = decided_by(0)
    for queue in QUEUES:
        at(world, 0, c.Stage(transaction, "s", queue, [b"job"]))
    world.die_at = (world.messages + 3, 1)  # it was asked what it has and has answered; now it hears of the decision
    with pytest.raises(Unknown, match="decided"):
        at(world, 0, c.Publish(transaction, ["s"]))
    assert [at(world, 0, c.GetStats(queue)).counts.waiting for queue in QUEUES[::2]] == [1, 1]
    world.restart_dead()
    assert at(world, 0, c.GetStats()).counts.waiting == SHARDS
    assert at(world, 1, c.Publish(transaction, ["s"])).created == SHARDS


def test_what_was_decided_does_not_expire_while_its_participant_is_away(world: Processes):
    """However long that takes: it hears of the decision before its time passes."""
    transaction = decided_by(0)
    for queue in QUEUES:
        at(world, 0, c.Stage(transaction, "s", queue, [b"job"]))
    world.die_at = (world.messages + 3, 1)
    with pytest.raises(Unknown):
        at(world, 0, c.Publish(transaction, ["s"]))
    world.clock.advance(10 * SETTINGS.engine.stage_ttl_ms)
    world.restart_dead()
    assert at(world, 0, c.GetStats()).counts.waiting == SHARDS


def test_nobody_hears_of_a_decision_that_a_power_cut_could_take_back(world: Processes, monkeypatch: pytest.MonkeyPatch):
    """Staged, decided, taken: each is on disk before the next one happens. (Nothing is flushed here by time.)"""
    seen: list[str] = []
    carry = world.carry

    def watched(sender: int, life: int, to: int, data: bytes) -> bool:
        message = from_bytes(data)
        if (
            isinstance(message, PeerAsk)
            and isinstance(message.command, process_requests.TakeLetters)
            and message.command.letters
        ):
            assert all(is_on_disk(world, process) for process in (0, 1))
            seen.append("sent")
        if isinstance(message, PeerAnswer) and message.kind == "TakeLetters":
            assert is_on_disk(world, sender)
            seen.append("taken")
        return carry(sender, life, to, data)

    monkeypatch.setattr(world, "carry", watched)
    transaction = decided_by(0)
    for queue in QUEUES:
        at(world, 0, c.Stage(transaction, "s", queue, [b"job"]))
    assert not is_on_disk(world, 1)
    at(world, 1, c.Publish(transaction, ["s"]))
    assert seen == ["sent", "taken"]


def is_on_disk(world: Processes, process: int) -> bool:
    broker = world.nodes[process].broker
    assert broker is not None
    journal = broker.runtime.journal
    return journal.reached(journal.ticket())


def test_a_process_is_ready_when_all_others_have_greeted_it(world: Processes):
    assert world.at(0).is_ready.is_set()
    assert world.at(1).is_ready.is_set()
    world.die(1)

    async def start() -> bool:
        world.start(world.nodes[1])
        return world.at(1).is_ready.is_set()

    assert not world.call(start())

    async def connect() -> None:
        world.connect(world.nodes[1])
        await world.at(1).is_ready.wait()

    world.call(connect())


def test_a_message_before_its_turn_is_not_taken(world: Processes):
    """Taking the second one first would be the end of the first."""
    message = process_requests.Letter(0, 1, 2, "default", msgspec.convert([2, "t"], rec.AbortTransaction))
    with pytest.raises(Unavailable, match="before 1"):
        world.call(world.at(0).ask(1, "default", process_requests.TakeLetters([message])))
    first = msgspec.structs.replace(message, number=1)
    assert world.call(world.at(0).ask(1, "default", process_requests.TakeLetters([first, message]))).count == 2


# --- where commands go -------------------------------------------------------------------------------


def test_an_id_or_shard_that_is_not_there_is_refused_by_somebody(world: Processes):
    for process in (0, 1):
        with pytest.raises(NotFound):
            at(world, process, c.GetJob(64 + 63))
        with pytest.raises(InvalidRequest):
            at(world, process, c.ReadEvents(SHARDS))
        with pytest.raises(InvalidRequest):
            at(world, process, c.Push("no such name!", b""))


def test_entries_of_a_tenant_live_in_one_process(world: Processes):
    """And what the server keeps for itself, which nobody else can name, does too."""
    for tenant in ("acme", "globex", "initech"):
        for process in (0, 1):
            world.call(world.at(process).execute_async(tenant, c.KvSet(f"k{process}", tenant.encode())))
        for process in (0, 1):
            reply = world.call(world.at(process).execute_async(tenant, c.KvGetMany(["k0", "k1"])))
            assert [value.value for value in reply.values] == [tenant.encode()] * 2
    world.call(world.at(0).execute_as_system_async(c.KvSet("k", b"ours")))
    assert world.call(world.at(1).execute_as_system_async(c.KvGet("k"))).value == b"ours"
    with pytest.raises(InvalidRequest):
        world.call(world.at(1).execute_async("$system", c.KvGet("k")))


def test_what_is_malformed_does_not_leave_its_process(world: Processes):
    before = world.messages
    bad: list[Any] = [c.Push(THERE, "text"), c.GetJob("7"), c.Pull("q"), c.Ack([THERE]), c.Stage(1, "s", THERE, [])]  # type: ignore[arg-type, list-item]
    for command in bad:
        with pytest.raises(InvalidRequest):
            at(world, 0, command)
    with pytest.raises(InvalidRequest):
        world.call(world.at(0).execute_async("no tenant!", c.Push(THERE, b"")))
    assert world.messages == before


def test_it_is_known_in_advance_who_can_carry_a_command_out(world: Processes):
    one = world.at(0).concerns_one
    assert one("default", c.Push(HERE, b"")) == 0
    assert one("default", c.Push(THERE, b"")) == 1
    assert one("default", c.Pull([THERE, QUEUES[3]])) == 1
    assert one("default", c.Ack([64 + 1, 128 + 3])) == 1
    for command in (c.Pull([HERE, THERE]), c.Pull([HERE], claim="c"), c.Ack([64, 65]), c.Browse(), c.Abort("t")):
        assert one("default", command) is None


# --- as bytes ----------------------------------------------------------------------------------------


def test_messages_survive_as_bytes():
    ack = PeerAsk(7, "acme", c.Ack(range(64, 320, 64), 3, [b"r", None, b"", None]), whole=True)
    assert from_bytes(to_bytes(ack)) == ack
    letters = PeerAsk(
        8, "acme", process_requests.TakeLetters([process_requests.Letter(0, 1, 2, "t", rec.PublishStages("t", ["s"]))])
    )
    assert from_bytes(to_bytes(letters)) == letters
    reply = PeerAnswer(7, "Ack", r.Settled(3, {64: "lost_lease"}, "commit"))
    assert from_bytes(to_bytes(reply)) == reply
    refusal = from_bytes(to_bytes(PeerAnswer(7, "Ack", NotFound("no such job"))))
    assert isinstance(refusal, PeerAnswer)
    assert isinstance(refusal.reply, NotFound)
    assert refusal.reply.message == "no such job"
    assert from_bytes(to_bytes(PeerDrop(9))) == PeerDrop(9)


def test_bytes_of_another_command_are_not_read():
    data = to_bytes(PeerAsk(7, "acme", c.Push("q", b"")))
    with pytest.raises(UnreadableMessage):
        from_bytes(data.replace(b"Push", b"Pull"))
    with pytest.raises(UnreadableMessage):
        from_bytes(data.replace(b"Push", b"Posh"))
    with pytest.raises(InvalidRequest):
        to_bytes(PeerAsk(7, "acme", c.Push("q", object())))  # type: ignore[arg-type]


# --- another number of processes ---------------------------------------------------------------------


def test_everything_stays_when_the_number_of_processes_changes():
    """From 2 to 4, 2, 4 and 1: jobs, keys, leases, transactions, events and the numbers of ids go on."""
    clock = SharedClock()
    world = Processes(SETTINGS, 2, clock=clock)
    path = world.path
    ids = [at(world, 0, c.Push(queue, queue.encode(), Options(custom_id=queue))).id for queue in QUEUES]
    delivery = at(world, 1, c.Pull(QUEUES[:2], 2, lease_ms=3_600_000))
    batch = at(world, 0, c.PushBatch(THERE, [b"a", b"b"], request_key="k"))
    for queue in QUEUES:
        at(world, 1, c.Stage("t", "s", queue, [b"staged"]))
    events = [at(world, 0, c.ReadEvents(shard)).events for shard in range(SHARDS)]
    for processes in (4, 2, 4):
        end(world, keep=True)
        world = Processes(SETTINGS, processes, path, clock)
        assert [at(world, 0, c.FindJob(queue)).id for queue in QUEUES] == ids
        assert at(world, 1, c.Push(HERE, b"", Options(custom_id=HERE))).created is False
        assert list(at(world, 1, c.PushBatch(THERE, [b"a", b"b"], request_key="k")).ids) == list(batch.ids)
        assert at(world, 1, c.GetStats()).counts.active == 2
        assert [at(world, 1, c.ReadEvents(shard)).events for shard in range(SHARDS)] == events
    assert at(world, 3, c.Publish("t", ["s"])).created == SHARDS
    assert at(world, 2, c.Ack(list(delivery.ids), delivery.token)).count == 2
    end(world, keep=True)
    broker = open_sqlite(str(path), {}, SETTINGS, clock)
    assert broker.execute("default", c.GetStats()).counts.completed == 2
    assert broker.execute("default", c.GetStats()).counts.waiting == 2 + 2 + SHARDS
    assert broker.execute("default", c.Push(HERE, b"")).id == ids[0] + 2 * 64
    broker.close()
    shutil.rmtree(path)
