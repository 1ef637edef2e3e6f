"""A transaction over several shards is published everywhere or nowhere, also after a crash in between.

One shard decides, in one record with the messages to the others; they take them, and it learns that they have. Here
the logs are cut in every place between these: the decision is in, and any of what follows is not. Opening brings about
the rest.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from stoker.engine import shard_messages
from stoker.engine.audit import audit
from stoker.engine.shard import Shard, apply_again
from stoker.engine.state_dump import dump
from stoker.journal.contract import Turn
from stoker.journal.memory import MemoryJournal
from stoker.model import commands as c
from stoker.model.ids import shard_for
from stoker.model.options import Options
from stoker.model.workflows import Edge, Step
from stoker.records import records as rec
from stoker.runtime import outbox
from stoker.runtime.runtime import Runtime
from stoker.runtime.shards import Shards
from tests.crash.zygote import the_zygote
from tests.faults.roles import Found, publish_for_ever
from tests.faults.script import QUEUES, SHARDS, START_MS, TENANT
from tests.faults.support import SEED, SOAK, fresh_directory, opened

NOW = START_MS
STAGED = {f"s{place}": QUEUES[place] for place in range(len(QUEUES))}
"""A stage in each of eight queues, two in every shard."""

Logs = list[list[rec.Record]]
"""The records of each shard."""


class Recording(MemoryJournal):
    """Remembers every turn."""

    def __init__(self) -> None:
        super().__init__(SHARDS, 1 << 30)
        self.turns: list[dict[int, list[rec.Record]]] = []

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        self.turns.append({shard: list(records) for shard, records in turn})
        super().append(turn, defer=defer, waits=waits)


def runtime_of(shards: Sequence[Shard], journal: MemoryJournal | None = None) -> Runtime:
    return Runtime(journal or MemoryJournal(SHARDS, 1 << 20), lambda parked, reply: None, shards)


def name_decided_by(shard: int, number: int = 0) -> str:
    """A transaction about which this shard decides."""
    names = (f"t{place}" for place in itertools.count(number * 1_000))
    return next(name for name in names if shard_for(TENANT, name, SHARDS) == shard)


def stages(name: str) -> Iterator[c.Command[Any]]:
    for stage, queue in STAGED.items():
        yield c.Stage(name, stage, queue, [f"{name}/{stage}/{n}".encode() for n in range(2)], part=0)


def recorded(commands: Sequence[c.Command[Any]]) -> list[dict[int, list[rec.Record]]]:
    """What each shard has written, turn by turn."""
    journal = Recording()
    runtime = runtime_of([Shard(number) for number in range(SHARDS)], journal)
    for command in commands:
        runtime.execute(TENANT, command, NOW)
    return journal.turns


def replayed(logs: Logs) -> list[Shard]:
    shards = []
    for number, records in enumerate(logs):
        shard = Shard(number)
        apply_again(shard, records)
        shards.append(shard)
    return shards


def payloads(shards: Sequence[Shard]) -> list[bytes]:
    """Of all jobs that anybody can see."""
    runtime = runtime_of(shards)
    page = runtime.execute(TENANT, c.Browse(limit=1_000, ascending=True), NOW)
    return sorted(job.payload for job in page.jobs)


def everything_of(name: str) -> list[bytes]:
    return sorted(f"{name}/{stage}/{n}".encode() for stage in STAGED for n in range(2))


def cut(turns: list[dict[int, list[rec.Record]]], decider: int) -> Iterator[tuple[str, Logs]]:
    """The log of all turns but the last, and of that one: the decision, with every subset of what followed."""
    before: Logs = [[record for turn in turns[:-1] for record in turn.get(shard, [])] for shard in range(SHARDS)]
    last = turns[-1]
    arrivals = [record for record in last[decider] if isinstance(record, rec.MessagesArrived)]
    decision = [record for record in last[decider] if not isinstance(record, rec.MessagesArrived)]
    takers = [shard for shard in last if shard != decider]
    for count in range(len(takers) + 1):
        for taken in itertools.combinations(takers, count):
            known = [record for record in arrivals if record.to in taken]
            for arrived in range(len(known) + 1):
                logs: Logs = [list(records) for records in before]
                logs[decider] += [*decision, *known[:arrived]]
                for shard in taken:
                    logs[shard] += last[shard]
                yield f"taken by {taken}, {arrived} of it known", logs


@pytest.mark.parametrize("decider", range(SHARDS))
@pytest.mark.parametrize("ending", ["publish", "abort"])
def test_what_was_decided_happens_everywhere(decider: int, ending: str):
    name = name_decided_by(decider)
    end: c.Command[Any] = c.Publish(name, list(STAGED)) if ending == "publish" else c.Abort(name)
    turns = recorded([*stages(name), end])
    expected = everything_of(name) if ending == "publish" else []
    whole = replayed([[record for turn in turns for record in turn.get(shard, [])] for shard in range(SHARDS)])
    assert payloads(whole) == expected
    tried = 0
    for how, logs in cut(turns, decider):
        shards = replayed(logs)
        journal = Recording()
        runtime = runtime_of(shards, journal)
        runtime.open(NOW)
        assert payloads(shards) == expected, how
        assert [dump(shard) for shard in shards] == [dump(shard) for shard in whole], how
        for shard in shards:
            audit(shard)
            assert not shard.outbox, how
        again = replayed([[*logs[n], *(r for turn in journal.turns for r in turn.get(n, []))] for n in range(SHARDS)])
        assert [dump(shard) for shard in again] == [dump(shard) for shard in shards], f"{how}, and once more"
        tried += 1
    assert tried > 8


@pytest.mark.parametrize("decider", range(SHARDS))
def test_what_was_not_decided_never_happens(decider: int):
    """The takers' records can only be in when the decision is; without it nobody sees anything."""
    name = name_decided_by(decider)
    turns = recorded([*stages(name), c.Publish(name, list(STAGED))])
    logs: Logs = [[record for turn in turns[:-1] for record in turn.get(shard, [])] for shard in range(SHARDS)]
    shards = replayed(logs)
    runtime = runtime_of(shards)
    runtime.open(NOW)
    assert payloads(shards) == []
    assert runtime.execute(TENANT, c.Publish(name, list(STAGED)), NOW).created == len(everything_of(name))
    assert payloads(shards) == everything_of(name)


def test_a_message_that_comes_twice_is_taken_once():
    name = name_decided_by(1)
    turns = recorded([*stages(name), c.Publish(name, list(STAGED))])
    _, logs = next(cut(turns, 1))
    shards = replayed(logs)
    sent = [(to, number, *content) for to, box in shards[1].outbox.items() for number, content in box.items()]
    assert len(sent) == SHARDS - 1
    for to, number, tenant, message in sent * 3:
        shard_messages.take(shards[to], 1, number, tenant, message, NOW)
    outbox.deliver(Shards(shards), NOW)
    assert payloads(shards) == everything_of(name)
    assert all(len([one for one in shard.records if isinstance(one, rec.MessageTaken)]) <= 1 for shard in shards)


def test_messages_are_taken_in_the_order_in_which_they_were_sent():
    """Two transactions of one decider, neither of which anybody has taken."""
    first, second = name_decided_by(2), name_decided_by(2, 1)
    turns = recorded([*stages(first), *stages(second), c.Publish(first, list(STAGED)), c.Publish(second, list(STAGED))])
    logs: Logs = [[record for turn in turns[:-2] for record in turn.get(shard, [])] for shard in range(SHARDS)]
    for turn in turns[-2:]:
        logs[2] += [record for record in turn[2] if not isinstance(record, rec.MessagesArrived)]
    shards = replayed(logs)
    runtime = runtime_of(shards)
    runtime.open(NOW)
    for queue in QUEUES:
        pulled = runtime.execute(TENANT, c.Pull([queue], 10), NOW)
        names = [payload.split(b"/")[0].decode() for payload in pulled.payloads]
        assert names == [first, first, second, second], queue


# --- real processes ----------------------------------------------------------------------------------


def torn(found: Found, told: set[str]) -> list[str]:
    """Transactions of which something is there and something is not; and those that were promised and are not there."""
    jobs: dict[str, int] = {}
    for _, _, _, payload in found.jobs:
        name = payload.split(b"/")[0].decode()
        jobs[name] = jobs.get(name, 0) + 1
    wrong = [f"{name} has {count} jobs" for name, count in jobs.items() if count != len(QUEUES)]
    return wrong + [f"{name} is gone" for name in told - set(jobs)]


def test_a_transaction_over_eight_queues_survives_kill_9_whole():
    chance = random.Random(SEED)
    told: set[str] = set()
    with fresh_directory() as path:
        for life in range(200 if SOAK else 12):
            with the_zygote().fork(publish_for_ever, str(path), life) as child:
                for _ in range(chance.randrange(1, 30)):
                    message = child.receive()
                    if message[0] == "published":
                        told.add(message[1])
                child.strike()
                while True:
                    try:
                        message = child.receive()
                    except EOFError:
                        break
                    if message[0] == "published":
                        told.add(message[1])
            found = opened(path)
            assert not torn(found, told), f"seed {SEED}, life {life}"
    assert len(told) > 10


# --- workflows -----------------------------------------------------------------------------------------

CHAIN = [
    Step(queue, [queue.encode()] * 2, Options(lease_ms=1_000), [Edge(number - 1)] if number else ())
    for number, queue in enumerate(QUEUES)
]
"""A step in each of eight queues, so that each but the first waits for a step of another shard."""


def work_off(runtime: Runtime, now: int) -> int:
    """Pull and ack until nothing comes any more; leases of before run out meanwhile."""
    for _ in range(40):
        now += 1_000
        delivery = runtime.execute(TENANT, c.Pull(QUEUES, 100), now)
        if delivery.runs:
            runtime.execute(TENANT, c.Ack(list(delivery.ids), delivery.token), now)
    return now


def test_a_workflow_over_shards_goes_on_wherever_the_log_ends():
    """The turns of one process are written whole, so the logs of all shards end together; at any of these ends."""
    journal = Recording()
    runtime = runtime_of([Shard(number) for number in range(SHARDS)], journal)
    workflow = runtime.execute(TENANT, c.PushWorkflow(CHAIN), NOW).id
    work_off(runtime, NOW)
    assert len(journal.turns) > 2 * len(QUEUES)
    for end in range(1, len(journal.turns) + 1):
        shards = [Shard(number) for number in range(SHARDS)]
        for turn in journal.turns[:end]:
            for number, records in turn.items():
                apply_again(shards[number], records)
        again = runtime_of(shards)
        again.open(NOW + 60_000)
        now = work_off(again, NOW + 60_000)
        view = again.execute(TENANT, c.GetWorkflow(workflow), now)
        assert (view.state, view.remaining, view.failed) == ("completed", 0, 0), f"cut after turn {end}"
        for shard in shards:
            audit(shard)
