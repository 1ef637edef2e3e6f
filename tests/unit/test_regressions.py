"""Mistakes that were found by reading: each would come back unnoticed without its test."""

import pytest

from stoker.engine.audit import audit
from stoker.engine.shard import Shard
from stoker.journal.memory import MemoryJournal
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.ids import shard_for
from stoker.model.limits import Limits
from stoker.model.options import Dependency, Options, RateLimit
from stoker.model.states import State
from stoker.records import records as rec
from stoker.testing import World


def test_a_replaced_job_takes_with_it_those_who_wait_for_it():
    """Their keys are free for later items of the same batch, and nobody ends twice."""
    shard = Shard()
    first = shard.execute("t", c.Push("q", b"", Options(unique_key="a")), 1).id
    edge = (Dependency(first, "fail"),)
    second = shard.execute("t", c.Push("q", b"", Options(unique_key="b", depends_on=edge)), 1).id
    replace = Options(unique_key="a", on_conflict="replace", depends_on=(Dependency(item=2),))
    also = Options(unique_key="b", on_conflict="replace")
    reply = shard.execute("t", c.PushBatch("q", [b""] * 3, each=[replace, also, Options()]), 2)
    audit(shard)
    assert reply.created == 3
    assert shard.execute("t", c.GetJob(first), 2).state == State.CANCELLED
    assert shard.execute("t", c.GetJob(second), 2).reason == "dependency_failed"


def test_two_pulls_that_wait_to_make_one_claim_get_the_same_jobs():
    shard = Shard()
    pull = c.Pull(["q"], 1, 1_000, claim="mine")
    parked = [shard.execute("t", pull, 1), shard.execute("t", pull, 1)]
    shard.execute("t", c.PushBatch("q", [b"a", b"b"]), 2)
    answers = dict(shard.take_effects())
    assert list(answers[parked[0]].ids) == list(answers[parked[1]].ids)
    assert shard.execute("t", c.GetStats("q"), 2).counts.active == 1


@pytest.mark.parametrize("shards", [1, 4])
def test_a_waiting_pull_wakes_when_the_rate_limit_refills(shards: int):
    with World(shards=shards) as world:
        world.client.execute(c.SetRateLimit("q", RateLimit(1, 100, 1)))
        world.client.push_batch("q", [b"a", b"b"])
        world.client.pull("q")
        before = world.now
        assert len(world.client.pull("q", wait_ms=5_000)) == 1
        assert world.now - before == 100


def test_ids_between_two_ids_are_nobody():
    with World() as world:
        ids = world.client.push_batch("q", [b""] * 4).ids
        delivery = world.client.pull("q", 4)
        reply = world.client.ack_batch([job + 1 for job in ids], delivery.token)
        assert reply.count == 0
        assert set(reply.refused.values()) == {"not_found"}


def test_those_who_gave_up_leave_nothing_behind():
    shard = Shard()
    job = shard.execute("t", c.Push("q", b""), 1).id
    for now in range(1, 6_000):
        shard.execute("t", c.WaitJob(job, 500_000), now).give_up()
        shard.execute("t", c.Pull([f"q{now}"], 1, 500_000, claim=f"c{now}"), now).give_up()
    shard.advance(1_000_000)
    assert not shard.job_waiters
    assert not shard.claim_waiters
    assert list(shard.tenants["t"].queues) == ["q"]


def test_edges_that_matter_no_more_are_forgotten():
    shard = Shard()
    live = shard.execute("t", c.Push("q", b""), 1).id
    failed = shard.execute("t", c.Push("q", b""), 1).id
    shard.execute("t", c.Discard(failed), 1)
    for _ in range(50):
        edges = (Dependency(live), Dependency(failed, "cancel"))
        shard.execute("t", c.Push("q", b"", Options(depends_on=edges)), 2)
        waiting = shard.execute("t", c.Push("q", b"", Options(depends_on=(Dependency(live),))), 2).id
        shard.execute("t", c.Cancel(waiting), 2)
    audit(shard)
    assert not shard.dependents


def test_the_history_weighs_results_too():
    journal = MemoryJournal(1, 1 << 20)
    for number in range(1, 101):
        run = rec.JobRun(number << 6, 1, 1)
        journal.append([(0, [rec.Completed(1, "t", "q", (run,), [bytes(1 << 18)])])])
    assert len(journal.read(0, 0, 1_000)) <= 6


def test_a_stage_makes_no_queue_and_respects_their_number():
    shard = Shard(limits=Limits(queues_per_tenant_max=2))
    for name in ("a", "b", "c"):
        shard.execute("t", c.Stage("tx", "s", name, [b""]), 1)
    assert not shard.tenants["t"].queues
    with pytest.raises(StokerError, match="queues"):
        shard.execute("t", c.Publish("tx", ["s"]), 2)
    assert shard.execute("t", c.GetStats(), 2).totals.pushed == 0


def test_what_is_extended_in_part_stays_in_part():
    with World() as world:
        world.client.push_batch("q", [b""] * 10, lease_ms=100)
        delivery = world.client.pull("q", 10)
        chosen = [*delivery.ids[0:4], *delivery.ids[5:7]]
        assert world.client.extend_batch(chosen, delivery.token, 500).count == 6
        world.advance(100)
        assert world.client.get_counts("q").active == 6


def test_extending_all_that_is_left_keeps_a_slice_whole():
    shard = Shard()
    shard.execute("t", c.PushBatch("q", [b""] * 10), 1)
    delivery = shard.execute("t", c.Pull(["q"], 10), 1)
    shard.execute("t", c.Ack([delivery.ids[4]], delivery.token), 1)
    rest = [job for job in delivery.ids if job != delivery.ids[4]]
    assert shard.execute("t", c.Extend(rest, delivery.token), 2).count == 9
    assert [piece.span.left for batch in shard.index.batches() for piece in batch.slices] == [9]


def test_a_remembered_answer_cannot_be_changed():
    with World() as world:
        first = world.client.push_batch("q", [b"a", b"b"], request_key="once")
        again = world.client.push_batch("q", [b"a", b"b"], request_key="once")
        assert list(again.ids) == list(first.ids)
        assert not hasattr(again.ids, "clear")
        assert not hasattr(again.refused, "clear")


def test_a_tenant_that_only_sent_nonsense_is_forgotten():
    shard = Shard()
    with pytest.raises(StokerError):
        shard.execute("stranger", c.Push("q", b"", Options(depends_on=(Dependency(1 << 40),))), 1)
    assert "stranger" not in shard.tenants


def test_browsing_several_shards_misses_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.engine.searching.WORK_MIN", 3)
    monkeypatch.setattr("stoker.engine.searching.WORK_MAX", 3)
    with World(shards=4) as world:
        ids = {world.client.push(f"q{number}", b"").id for number in range(40)}
        for ascending in (True, False):
            seen: list[int] = []
            after = None
            while True:
                page = world.client.browse(after=after, limit=7, ascending=ascending)
                seen += [job.id for job in page.jobs]
                after = page.next_after
                if after is None:
                    break
            assert seen == sorted(ids, reverse=not ascending)


def test_a_cleaned_lane_keeps_no_jobs():
    with World() as world:
        keep = world.client.push("q", b"").id
        world.client.cancel(keep)
        for job in world.client.push_batch("q", [b""] * 500).ids:
            world.client.pull("q")
            world.client.ack(job)
        assert len(world.client.clean("q", State.COMPLETED)) == 500
        shard = world.broker.runtime.shards[0]
        lanes = shard.queue("default", "q").retained.lanes.values()
        assert sum(map(len, lanes)) < 300


def test_a_token_is_never_given_twice_though_a_pull_names_an_empty_queue_last():
    with World(shards=4) as world:
        names = [f"q{number}" for number in range(40)]
        first = names[0]
        same = next(name for name in names[1:] if shard_for("default", name, 4) == shard_for("default", first, 4))
        world.client.push_batch(first, [b"", b""])
        tokens = [world.client.pull([first, same]).token, world.client.pull([first]).token]
        assert len(set(tokens)) == 2


def test_dead_letters_of_two_queues_expire_in_id_order():
    shard = Shard()
    once = Options(max_attempts=1)
    ids = [shard.execute("t", c.Push(queue, b"", once), 1).id for queue in ("a", "b", "a")]
    delivery = shard.execute("t", c.Pull(("a", "b"), 3), 2)
    shard.execute("t", c.Fail(ids, delivery.token), 3)
    shard.take_records()
    shard.advance(10**12)
    expired = [job for record in shard.take_records() if type(record) is rec.DeadRemoved for job in record.jobs]
    assert expired == ids
