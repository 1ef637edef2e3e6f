"""The yardstick itself, at the places where it is easiest to get wrong."""

import pytest

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import (
    DependencyCycle,
    LimitExceeded,
    LostLease,
    NotFound,
    QueueActive,
    TransactionOver,
    UnknownDependency,
    UnknownStage,
    WrongState,
)
from stoker.model.limits import Limits
from stoker.model.options import (
    Backoff,
    DeadLetterPolicy,
    Dependency,
    Options,
    RateLimit,
    Retention,
    Settings,
)
from stoker.model.states import State
from tests.model.reference import HANDLERS, Parked, Reference
from tests.model.test_against_reference import OF_WORKFLOWS

PLAIN = Backoff("fixed", 100, 10_000, "none")


class Desk:
    """A reference with a clock, for one tenant."""

    def __init__(self, settings: Settings | None = None, limits: Limits | None = None) -> None:
        self.reference = Reference(settings or Settings(), limits or Limits())
        self.now = 1_000

    def do(self, command, *, after=0, tenant="t"):
        self.now += after
        return self.reference.execute(tenant, command, self.now)

    def push(self, **options):
        return self.do(c.Push("q", b"x", Options(backoff=PLAIN, **options))).id

    def pull(self, count=1, **fields):
        return self.do(c.Pull(["q"], count, **fields))

    def state(self, job_id):
        return self.do(c.GetJob(job_id)).state


@pytest.fixture
def desk():
    return Desk()


def test_it_answers_every_command_but_those_of_the_log_and_of_workflows():
    """Workflows have a reference of their own: `reference_workflows.py`."""
    of_workflows = {name for name in c.ALL if name.__name__ in OF_WORKFLOWS}
    assert len(of_workflows) == len(OF_WORKFLOWS)
    assert set(HANDLERS) == set(c.ALL) - {c.ReadEvents, c.ReadRecords, c.GetStory} - of_workflows


def test_ids_have_no_gaps_and_duplicates_take_none(desk):
    first = desk.push(custom_id="a")
    assert first == 1 << 6
    assert desk.push(custom_id="a") == first
    assert desk.push() == 2 << 6


def test_priority_then_lifo_then_age_decides_the_order(desk):
    old, young, newest_lifo, urgent = desk.push(), desk.push(), desk.push(lifo=True), desk.push(priority=1)
    assert list(desk.pull(9).ids) == [urgent, newest_lifo, old, young]


def test_backoff_counts_from_the_end_of_the_lease_and_not_from_the_look(desk):
    job = desk.push(lease_ms=50)
    desk.pull()
    started = desk.now
    view = desk.do(c.GetJob(job), after=60)
    assert (view.state, view.due) == (State.DELAYED, started + 50 + 100)
    assert view.history[0].ended_at == started + 50


def test_a_late_ack_is_refused_and_changes_nothing(desk):
    job = desk.push(lease_ms=50)
    late = desk.pull().token
    desk.now += 200
    current = desk.pull().token
    assert desk.do(c.Ack([job], late)).refused == {job: LostLease.code}
    assert desk.do(c.Ack([job], current)).count == 1
    assert desk.do(c.Ack([job])).refused == {job: WrongState.code}


def test_a_group_holds_for_its_failed_head(desk):
    head, second = desk.push(group_id="g"), desk.push(group_id="g")
    assert list(desk.pull(2).ids) == [head]
    desk.do(c.Fail([head]))
    assert not len(desk.pull())
    assert desk.do(c.Why(second)).group_busy_with == head
    desk.now += 100
    assert list(desk.pull(2).ids) == [head]


def test_a_failed_dependency_reaches_every_descendant_by_its_policy(desk):
    root = desk.push()
    child = desk.push(depends_on=(Dependency(root, "cancel"),))
    grandchild = desk.push(depends_on=(Dependency(child, "fail"),))
    stubborn = desk.push(depends_on=(Dependency(child, "continue"),))
    desk.do(c.Cancel(root))
    states = [desk.state(job) for job in (child, grandchild, stubborn)]
    assert states == [State.CANCELLED, State.FAILED, State.WAITING]


def test_items_on_and_behind_a_cycle_are_refused_and_the_others_made(desk):
    def item(*numbers):
        return Options(depends_on=tuple(Dependency(item=number) for number in numbers))

    reply = desk.do(c.PushBatch("q", [b""] * 5, each=[item(1), item(0), item(1), item(4), item()]))
    assert {number: refusal.code for number, refusal in reply.refused.items()} == dict.fromkeys(
        (0, 1, 2), DependencyCycle.code
    )
    assert [desk.state(job) for job in reply.ids[3:]] == [State.BLOCKED, State.WAITING]


def test_an_atomic_batch_leaves_nothing_behind_when_one_item_is_refused(desk):
    items = [Options(unique_key="k"), Options(depends_on=(Dependency(999 << 6),))]
    with pytest.raises(UnknownDependency):
        desk.do(c.PushBatch("q", [b""] * 2, each=items, atomic=True))
    assert desk.push(unique_key="k") == 1 << 6


def test_keys_of_refused_items_do_not_count(desk):
    each = [Options(custom_id="a", depends_on=(Dependency(item=9),)), Options(custom_id="a")]
    reply = desk.do(c.PushBatch("q", [b""] * 2, each=each))
    assert (list(reply.ids), reply.duplicates) == ([0, 1 << 6], {})


def test_a_token_bucket_never_gives_more_than_its_rate(desk):
    desk.do(c.SetRateLimit("q", RateLimit(count=3, per_ms=10, burst=2)))
    for _ in range(9):
        desk.push()
    assert len(desk.pull(9)) == 2
    empty = desk.pull(9)
    assert (len(empty), empty.next_at) == (0, desk.now + 4)
    desk.now += 3
    assert len(desk.pull(9)) == 0
    desk.now += 1
    assert len(desk.pull(9)) == 1


def test_a_waiting_pull_is_served_before_one_that_came_later(desk):
    first, second = desk.pull(wait_ms=100), desk.pull(wait_ms=100)
    assert isinstance(first, Parked)
    job = desk.push()
    [(who, delivery)] = desk.reference.answers
    assert (who, list(delivery.ids)) == (first, [job])
    desk.reference.advance(desk.now + 100)
    who, delivery = desk.reference.answers[-1]
    assert (who, len(delivery)) == (second, 0)


def test_waiting_for_a_job_ends_with_the_job_even_if_nobody_can_read_it_afterwards(desk):
    job = desk.push(remove_on_complete=True)
    waiting = desk.do(c.WaitJob(job))
    desk.pull()
    desk.do(c.Ack([job], results=[b"r"]))
    assert desk.reference.answers == [(waiting, r.Ended(job, State.COMPLETED, True, b"r"))]
    with pytest.raises(NotFound):
        desk.do(c.GetJob(job))


def test_a_claim_brings_the_same_jobs_and_nothing_new():
    desk = Desk(Settings(claim_ttl_ms=10))
    first, second, third = desk.push(), desk.push(), desk.push()
    token = desk.pull(2, claim="c").token
    desk.do(c.Ack([first]))
    again = desk.pull(9, claim="c")
    assert (again.token, list(again.ids)) == (token, [second])
    desk.do(c.AckClaim("c"))
    desk.now += 9
    assert not len(desk.pull(claim="c"))
    desk.now += 1
    assert list(desk.pull(claim="c").ids) == [third]


def test_retention_forgets_by_age_and_by_count():
    desk = Desk(Settings(retention=Retention(completed_age_ms=50, completed_count=2)))
    jobs = [desk.push() for _ in range(3)]
    desk.pull(3)
    for job in jobs:
        desk.do(c.Ack([job]))
    assert desk.do(c.GetStats("q")).counts.completed == 2
    desk.now += 50
    stats = desk.do(c.GetStats("q"))
    assert (stats.counts.completed, stats.totals.completed) == (0, 3)


def test_dead_letters_are_evicted_retried_and_expire(desk):
    policy = DeadLetterPolicy(
        entries_max=2, age_ms_max=100, auto_retry=True, auto_retry_interval_ms=40, auto_retries_max=1
    )
    desk.do(c.SetQueuePolicy("q", dead_letters=policy))
    jobs = [desk.push() for _ in range(3)]
    for job in jobs:
        desk.do(c.Discard(job))
    assert [job.id for job in desk.do(c.ListDead("q")).jobs] == jobs[1:]
    desk.now += 40
    assert desk.state(jobs[1]) is State.WAITING
    desk.do(c.Discard(jobs[1]))
    assert desk.do(c.GetJob(jobs[1])).dead == r.DeadLetter("explicit_fail", desk.now, desk.now + 100, 1, 0)
    desk.now += 100
    with pytest.raises(NotFound):
        desk.do(c.GetJob(jobs[1]))


def test_a_failed_job_is_remembered_after_it_was_forgotten(desk):
    job = desk.push(remove_on_fail=True)
    desk.do(c.Discard(job))
    assert desk.state(desk.push(depends_on=(Dependency(job),))) is State.FAILED
    assert desk.state(desk.push(depends_on=(Dependency(job, "continue"),))) is State.WAITING


def test_another_tenant_sees_nothing(desk):
    job = desk.push()
    for command in (c.GetJob(job), c.Cancel(job), c.Why(job), c.WaitJob(job)):
        with pytest.raises(NotFound):
            desk.do(command, tenant="other")
    assert desk.do(c.Ack([job]), tenant="other").refused == {job: NotFound.code}
    assert desk.do(c.ListQueues(), tenant="other").names == []


def test_a_transaction_publishes_what_it_names_once(desk):
    for stage in ("a", "b", "b"):
        desk.do(c.Stage("tx", stage, "q", [b"1", b"2"], part=0))
    with pytest.raises(UnknownStage):
        desk.do(c.Publish("tx", ["a", "c"]))
    published = desk.do(c.Publish("tx", ["b"]))
    assert (published.created, published.runs) == (2, ((1 << 6, 2),))
    assert desk.do(c.Publish("tx", ["a"])) == desk.do(c.Abort("tx")) == published
    with pytest.raises(TransactionOver):
        desk.do(c.Stage("tx", "a", "q", [b"1"]))


def test_obliterate_takes_running_jobs_only_by_force(desk):
    job = desk.push()
    desk.pull()
    with pytest.raises(QueueActive):
        desk.do(c.Obliterate("q"))
    desk.do(c.Obliterate("q", force=True))
    with pytest.raises(NotFound):
        desk.do(c.GetJob(job))
    assert desk.state(desk.push(depends_on=(Dependency(job, "cancel"),))) is State.CANCELLED


def test_limits_are_limits():
    desk = Desk(limits=Limits(payload_bytes_max=1, queues_per_tenant_max=1))
    desk.push()
    with pytest.raises(LimitExceeded):
        desk.do(c.Push("q", b"22"))
    with pytest.raises(LimitExceeded):
        desk.do(c.Push("another", b"2"))
