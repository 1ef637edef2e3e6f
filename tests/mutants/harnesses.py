"""The harnesses that have to notice: each is run as the suite runs it, only shorter.

A harness raises what its tests raise when something is wrong. Those that restart things put the bug into the processes
that they start, and keep their own truth (an oracle, a list of promises) in this one.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import stoker
from stoker.brokers.local import LocalSettings
from stoker.engine import shard_messages
from stoker.engine.shard import Shard
from stoker.engine.state_dump import dump
from stoker.journal.recovery import GAP
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.limits import DEFAULT_LIMITS
from stoker.model.options import Options
from stoker.model.states import State
from stoker.records import records as rec
from tests import test_invariants
from tests.client import test_connections, test_sending_window
from tests.client.serving import ServerThread
from tests.conformance import test_groups, test_keys
from tests.conformance.brokers import DEFAULT_SETTINGS, ContractWorld, Coverage, sqlite_restarted
from tests.crash import test_kill, test_power_loss
from tests.crash.restarted import fresh_directory
from tests.crash.roles import serve_broker
from tests.crash.zygote import ChildFailed, the_zygote
from tests.faults import support
from tests.faults.injecting import Fault
from tests.faults.test_nth_fault import PAST_SEED, STEPS, WORK_SEED, wrong_with
from tests.histories.scene import opened
from tests.journal import toy_roles
from tests.model import test_between_shards, test_workflows
from tests.model.test_against_reference import drive
from tests.mutants import power_loss
from tests.schedules import test_once_a_slot
from tests.security import test_lost_answers
from tests.served import test_gathered_numbers, test_given_up
from tests.sharing import test_owners_die
from tests.unit import test_replay, test_saving
from tests.waking import simulated, ways
from tests.waking.matrix import run_place
from tests.waking.places import served_by_two_parts
from tests.worker import test_served

Noticed = (AssertionError, pytest.fail.Exception, ChildFailed)
"""What a harness raises when something is wrong."""


class Harness(msgspec.Struct, frozen=True):
    """A part of the suite that notices bugs."""

    run: Callable[[], object]
    in_children: bool = False
    """Whether the bug belongs into the processes that it starts."""


def reference() -> None:
    """The engine beside the naive one, by `drive` of tests/model/test_against_reference.py."""
    for seed in (3, 5, 6):
        drive(seed, 260)


def slots() -> None:
    """Schedules whose records end at every place: tests/schedules/test_once_a_slot.py."""
    test_once_a_slot.test_every_slot_is_over_once_wherever_the_records_end(0)


def flows() -> None:
    """Random workflows beside the naive reference: tests/model/test_workflows.py."""
    for seed in (1, 19):  # in the first one steps fail, in the other some fail together and are retried
        driver = test_workflows.Driver(seed, 4, True)
        for _ in range(40):
            driver.step()
            driver.check()
        driver.check_shards()


def between_shards() -> None:
    """Shards that hear of each other late, twice, or after a restart: tests/model/test_between_shards.py."""
    for seed in (*range(12), 52):  # in the last one something is said before its time
        test_between_shards.test_what_shards_say_to_each_other_arrives_late_but_once(seed)


def saving() -> None:
    """A shard that was saved and loaded beside the one that was not: tests/unit/test_saving.py."""
    test_saving.test_a_loaded_shard_goes_on_as_if_nothing_had_been(1, batching=True)


def checkpoints() -> None:
    """A checkpoint with the records behind it: tests/unit/test_saving.py."""
    test_saving.test_a_checkpoint_and_the_records_after_it_are_the_live_shard(12)


def invariants() -> None:
    """Random work, and a checker that reads nothing but the events: tests/test_invariants.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_invariants, "STEPS", 400)
        histories = test_invariants.Run(0).histories.values()
    broken = [
        f"{name}: {message}" for history in histories for name, found in history.broken.items() for message in found
    ]
    assert not broken, broken


def restarted() -> None:
    """Tests of tests/conformance over a broker that forgets whatever it has not written: tests/crash/restarted.py."""
    for test, case in (
        (test_groups.test_with_skip_the_group_goes_on, "lease"),
        (test_keys.test_every_end_frees_the_key, "dead"),
    ):
        world = ContractWorld(sqlite_restarted(DEFAULT_SETTINGS, DEFAULT_LIMITS, 1), Coverage())
        try:
            test(world, case)
        finally:
            world.close()


def replay() -> None:
    """The records alone: tests/unit/test_replay.py."""
    test_replay.test_a_replay_is_the_live_shard_after_every_step(test_replay.Live())


def found_again() -> None:
    """The script of tests/faults, killed at its end twice; new processes find what was promised, again and again."""
    with support.fresh_directory() as path:
        past = support.worked(path, seed=PAST_SEED, steps=STEPS)
        assert not past.report.bad, past.report.bad
        wrong = wrong_with(support.worked(path, seed=WORK_SEED, steps=2 * STEPS), path)
        assert not wrong, wrong


def nth_fault() -> None:
    """A few cases of the sweep of tests/faults/test_nth_fault.py: a turn cannot be written, a flush fails."""
    for fault in (Fault("log.append", "IOERR", 9), Fault("disk.fsync", "EIO", 12)):
        with support.fresh_directory() as path:
            wrong = wrong_with(support.worked(path, fault, WORK_SEED, STEPS), path)
            assert not wrong, wrong


def killed(cycles: int = 8) -> None:
    """Rounds of tests/crash/test_kill.py: a checker that knows what clients were told, and an oracle in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_kill, "CYCLES", cycles)
        found = test_kill.Round(1).checker.found
    assert not found, dict(found)


def power_cuts() -> None:
    """A story of tests/crash/test_power_loss.py, and power cuts at any of its moments."""
    story, chance = test_power_loss.Story(0), random.Random(0)
    for number in range(12):
        cut = chance.randint(0, len(story.calls))
        wrong = test_power_loss.check_cut(story, cut, random.Random(f"0.{number}"))
        assert not wrong, wrong


def weak_moments() -> None:
    """The same images (tests/crash/images.py) of a shorter life, cut where most hangs in the air: power_loss.py."""
    wrong = power_loss.wrong()
    assert not wrong, "\n".join(wrong)


def committed_later() -> None:
    """A journal that commits after `append` has returned, killed in between: tests/journal/toy_roles.py."""
    toy_roles.check_death(fresh_directory() / "rows")


def set_back() -> None:
    """The clock on the wall is set back by an hour while nobody runs: tests/crash/roles.py serves both times."""
    settings = LocalSettings(shards=1, journal=JournalSettings(disk_reserve_bytes=4096))
    path, now = str(fresh_directory()), 1_700_000_000_000
    with the_zygote().fork(serve_broker, path, settings, now, GAP) as child:
        job = asked(child, "execute", "t", c.Push("q", b"", Options(lease_ms=1_000))).id
        asked(child, "execute", "t", c.Pull(["q"]), first=False)
    with the_zygote().fork(serve_broker, path, settings, now - 3_600_000, GAP) as child:
        assert child.receive() == "open"
        asked(child, "advance", 1_000, first=False)
        view = asked(child, "execute", "t", c.GetJob(job), first=False)
    assert view.state is not State.ACTIVE, "the restart has prolonged a lease by what the clock was set back"


def asked(child: Any, verb: str, *arguments: object, first: bool = True) -> Any:
    if first:
        assert child.receive() == "open"
    child.send((verb, *arguments))
    answer, *_ = child.receive()
    return answer


def redelivered() -> None:
    """A message is sent again by a shard that died before it noted the arrival, as runtime/outbox.py may do."""
    shard = Shard(1)
    shard.execute("t", c.Stage("tx", "s", "q", [b"1", b"2"]), 1)
    message = rec.PublishStages("tx", ["s"])
    shard_messages.take(shard, 0, 1, "t", message, 2)
    assert shard.take_records()
    before = dump(shard)
    shard_messages.take(shard, 0, 1, "t", message, 3)
    assert shard.take_records() == [], "a message that had been taken left a trace"
    assert dump(shard) == before


def shared() -> None:
    """Processes on one directory whose owner is killed again and again: tests/sharing/test_owners_die.py."""
    played = test_owners_die.Round()
    for test in (
        test_owners_die.test_nobody_who_lives_on_is_told_of_an_error,
        test_owners_die.test_nothing_is_lost_or_doubled,
        test_owners_die.test_there_was_one_owner_at_a_time,
    ):
        test(played)


def histories() -> None:
    """Clients of one directory, some of them stopped beyond their leases: tests/histories."""
    with tempfile.TemporaryDirectory() as folder, opened("shared directory", 5, Path(folder)) as scene:
        scene.play("stop a client", "stop a client")
        found = dict(scene.check().found)
    assert not found, found


def lost_answers() -> None:
    """A client whose answers are lost on the way: tests/security/test_lost_answers.py."""
    test_lost_answers.test_pushes_whose_answers_are_lost_are_there_once(False)


def lossy_network() -> None:
    """Numbers of pushes over a network that loses requests and answers: tests/client/test_sending_window.py."""
    run_state_machine_as_test(test_sending_window.LossyNetwork, settings=settings(phases=(Phase.generate,)))


def forked() -> None:
    """A client in a forked process beside its parent: tests/client/test_connections.py."""
    with ServerThread() as server:
        test_connections.test_a_forked_child_pushes_under_a_name_of_its_own(server)


def wakes() -> None:
    """Every way in which a wait ends, under a clock that only timekeepers move: tests/waking/simulated.py."""
    simulated.check_all()


def wakes_elsewhere() -> None:
    """A wait in one process that ends because of something in another: tests/waking/matrix.py."""
    outcomes = run_place(served_by_two_parts, [ways.dependency_ended_elsewhere], [])
    assert not any(outcomes.values()), outcomes


def given_up() -> None:
    """Pulls that are given up before their turn ends: tests/served/test_given_up.py."""
    for check in test_given_up.CHECKS:
        check()


def gathered() -> None:
    """Numbered pushes that a server carries out together: tests/served/test_gathered_numbers.py."""
    test_gathered_numbers.check_gathered()


def rate_of_a_worker() -> None:
    """A worker with two queues, one of them limited: tests/worker/test_served.py."""
    with stoker.connect("memory://") as client:
        test_served.check_rate(client, client, test_served.RATE_MS / 1_000, bound_ms=5_000)


HARNESSES: dict[str, Harness] = {
    "wakes": Harness(wakes),
    "wakes elsewhere": Harness(wakes_elsewhere, in_children=True),
    "given up": Harness(given_up),
    "gathered": Harness(gathered),
    "rate of a worker": Harness(rate_of_a_worker),
    "lost answers": Harness(lost_answers),
    "lossy network": Harness(lossy_network),
    "forked": Harness(forked),
    "reference": Harness(reference),
    "saving": Harness(saving),
    "slots": Harness(slots),
    "flows": Harness(flows),
    "between shards": Harness(between_shards),
    "checkpoints": Harness(checkpoints),
    "replay": Harness(replay),
    "invariants": Harness(invariants),
    "redelivered": Harness(redelivered),
    "restarted": Harness(restarted, in_children=True),
    "found again": Harness(found_again, in_children=True),
    "nth fault": Harness(nth_fault, in_children=True),
    "killed": Harness(killed, in_children=True),
    "power cuts": Harness(power_cuts, in_children=True),
    "weak moments": Harness(weak_moments, in_children=True),
    "committed later": Harness(committed_later, in_children=True),
    "set back": Harness(set_back, in_children=True),
    "shared": Harness(shared, in_children=True),
    "histories": Harness(histories, in_children=True),
}
