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


class Dispatcher:
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
def dispatcher():
    return Dispatcher()


def test_it_answers_every_command_but_those_of_the_log_and_of_workflows():
    """Workflows have a reference of their own: `reference_workflows.py`."""
    of_workflows = {name for name in c.ALL if name.__name__ in OF_WORKFLOWS}
    assert len(of_workflows) == len(OF_WORKFLOWS)
    of_workflows |= {c.StartBulk, c.GetBulk, c.ListBulks, c.StopBulk}  # tests/unit/test_bulk.py
    assert (
        set(HANDLERS)
        == set(c.ALL) - {c.ReadEvents, c.ReadRecords, c.GetStory, c.GetHistory, c.GetTrends} - of_workflows
    )


def test_ids_have_no_gaps_and_duplicates_take_none(dispatcher):
    first = dispatcher.push(custom_id="a")
    assert first == 1 << 6
    assert dispatcher.push(custom_id="a") == first
    assert dispatcher.push() == 2 << 6


def test_priority_then_lifo_then_age_decides_the_order(dispatcher):
    old, young, newest_lifo, urgent = (
        dispatcher.push(),
        dispatcher.push(),
        dispatcher.push(lifo=True),
        dispatcher.push(priority=1),
    )
    assert list(dispatcher.pull(9).ids) == [urgent, newest_lifo, old, young]


def test_backoff_counts_from_the_end_of_the_lease_and_not_from_the_look(dispatcher):
    job = dispatcher.push(lease_ms=50)
    dispatcher.pull()
    started = dispatcher.now
    view = dispatcher.do(c.GetJob(job), after=60)
    assert (view.state, view.due) == (State.DELAYED, started + 50 + 100)
    assert view.history[0].ended_at == started + 50


def test_a_late_ack_is_refused_and_changes_nothing(dispatcher):
    job = dispatcher.push(lease_ms=50)
    late = dispatcher.pull().token
    dispatcher.now += 200
    current = dispatcher.pull().token
    assert dispatcher.do(c.Ack([job], late)).refused == {job: LostLease.code}
    assert dispatcher.do(c.Ack([job], current)).count == 1
    assert dispatcher.do(c.Ack([job])).refused == {job: WrongState.code}


def test_a_group_holds_for_its_failed_head(dispatcher):
    head, second = dispatcher.push(group_id="g"), dispatcher.push(group_id="g")
    assert list(dispatcher.pull(2).ids) == [head]
    dispatcher.do(c.Fail([head]))
    assert not len(dispatcher.pull())
    assert dispatcher.do(c.Why(second)).group_busy_with == head
    dispatcher.now += 100
    assert list(dispatcher.pull(2).ids) == [head]


def test_a_failed_dependency_reaches_every_descendant_by_its_policy(dispatcher):
    root = dispatcher.push()
    child = dispatcher.push(depends_on=(Dependency(root, "cancel"),))
    grandchild = dispatcher.push(depends_on=(Dependency(child, "fail"),))
    stubborn = dispatcher.push(depends_on=(Dependency(child, "continue"),))
    dispatcher.do(c.Cancel(root))
    states = [dispatcher.state(job) for job in (child, grandchild, stubborn)]
    assert states == [State.CANCELLED, State.FAILED, State.WAITING]


def test_items_on_and_behind_a_cycle_are_refused_and_the_others_made(dispatcher):
    def item(*numbers):
        return Options(depends_on=tuple(Dependency(item=number) for number in numbers))

    reply = dispatcher.do(c.PushBatch("q", [b""] * 5, each=[item(1), item(0), item(1), item(4), item()]))
    assert {number: refusal.code for number, refusal in reply.refused.items()} == dict.fromkeys(
        (0, 1, 2), DependencyCycle.code
    )
    assert [dispatcher.state(job) for job in reply.ids[3:]] == [State.BLOCKED, State.WAITING]


def test_an_atomic_batch_leaves_nothing_behind_when_one_item_is_refused(dispatcher):
    items = [Options(unique_key="k"), Options(depends_on=(Dependency(999 << 6),))]
    with pytest.raises(UnknownDependency):
        dispatcher.do(c.PushBatch("q", [b""] * 2, each=items, atomic=True))
    assert dispatcher.push(unique_key="k") == 1 << 6


def test_keys_of_refused_items_do_not_count(dispatcher):
    each = [Options(custom_id="a", depends_on=(Dependency(item=9),)), Options(custom_id="a")]
    reply = dispatcher.do(c.PushBatch("q", [b""] * 2, each=each))
    assert (list(reply.ids), reply.duplicates) == ([0, 1 << 6], {})


def test_a_token_bucket_never_gives_more_than_its_rate(dispatcher):
    dispatcher.do(c.SetRateLimit("q", RateLimit(count=3, per_ms=10, burst=2)))
    for _ in range(9):
        dispatcher.push()
    assert len(dispatcher.pull(9)) == 2
    empty = dispatcher.pull(9)
    assert (len(empty), empty.next_at) == (0, dispatcher.now + 4)
    dispatcher.now += 3
    assert len(dispatcher.pull(9)) == 0
    dispatcher.now += 1
    assert len(dispatcher.pull(9)) == 1


def test_a_waiting_pull_is_served_before_one_that_came_later(dispatcher):
    first, second = dispatcher.pull(wait_ms=100), dispatcher.pull(wait_ms=100)
    assert isinstance(first, Parked)
    job = dispatcher.push()
    [(who, delivery)] = dispatcher.reference.answers
    assert (who, list(delivery.ids)) == (first, [job])
    dispatcher.reference.advance(dispatcher.now + 100)
    who, delivery = dispatcher.reference.answers[-1]
    assert (who, len(delivery)) == (second, 0)


def test_waiting_for_a_job_ends_with_the_job_even_if_nobody_can_read_it_afterwards(dispatcher):
    job = dispatcher.push(remove_on_complete=True)
    waiting = dispatcher.do(c.WaitJob(job))
    dispatcher.pull()
    dispatcher.do(c.Ack([job], results=[b"r"]))
    assert dispatcher.reference.answers == [(waiting, r.Ended(job, State.COMPLETED, True, b"r"))]
    with pytest.raises(NotFound):
        dispatcher.do(c.GetJob(job))


def test_a_claim_brings_the_same_jobs_and_nothing_new():
    dispatcher = Dispatcher(Settings(claim_ttl_ms=10))
    first, second, third = dispatcher.push(), dispatcher.push(), dispatcher.push()
    token = dispatcher.pull(2, claim="c").token
    dispatcher.do(c.Ack([first]))
    again = dispatcher.pull(9, claim="c")
    assert (again.token, list(again.ids)) == (token, [second])
    dispatcher.do(c.AckClaim("c"))
    dispatcher.now += 9
    assert not len(dispatcher.pull(claim="c"))
    dispatcher.now += 1
    assert list(dispatcher.pull(claim="c").ids) == [third]


def test_retention_forgets_by_age_and_by_count():
    dispatcher = Dispatcher(Settings(retention=Retention(completed_age_ms=50, completed_count=2)))
    jobs = [dispatcher.push() for _ in range(3)]
    dispatcher.pull(3)
    for job in jobs:
        dispatcher.do(c.Ack([job]))
    assert dispatcher.do(c.GetStats("q")).counts.completed == 2
    dispatcher.now += 50
    stats = dispatcher.do(c.GetStats("q"))
    assert (stats.counts.completed, stats.totals.completed) == (0, 3)


def test_dead_letters_are_evicted_retried_and_expire(dispatcher):
    policy = DeadLetterPolicy(
        entries_max=2, age_ms_max=100, auto_retry=True, auto_retry_interval_ms=40, auto_retries_max=1
    )
    dispatcher.do(c.SetQueuePolicy("q", dead_letters=policy))
    jobs = [dispatcher.push() for _ in range(3)]
    for job in jobs:
        dispatcher.do(c.Discard(job))
    assert [job.id for job in dispatcher.do(c.ListDead("q")).jobs] == jobs[1:]
    dispatcher.now += 40
    assert dispatcher.state(jobs[1]) is State.WAITING
    dispatcher.do(c.Discard(jobs[1]))
    assert dispatcher.do(c.GetJob(jobs[1])).dead == r.DeadLetter(
        "explicit_fail", dispatcher.now, dispatcher.now + 100, 1, 0
    )
    dispatcher.now += 100
    with pytest.raises(NotFound):
        dispatcher.do(c.GetJob(jobs[1]))


def test_a_failed_job_is_remembered_after_it_was_forgotten(dispatcher):
    job = dispatcher.push(remove_on_fail=True)
    dispatcher.do(c.Discard(job))
    assert dispatcher.state(dispatcher.push(depends_on=(Dependency(job),))) is State.FAILED
    assert dispatcher.state(dispatcher.push(depends_on=(Dependency(job, "continue"),))) is State.WAITING


def test_another_tenant_sees_nothing(dispatcher):
    job = dispatcher.push()
    for command in (c.GetJob(job), c.Cancel(job), c.Why(job), c.WaitJob(job)):
        with pytest.raises(NotFound):
            dispatcher.do(command, tenant="other")
    assert dispatcher.do(c.Ack([job]), tenant="other").refused == {job: NotFound.code}
    assert dispatcher.do(c.ListQueues(), tenant="other").names == []


def test_a_transaction_publishes_what_it_names_once(dispatcher):
    for stage in ("a", "b", "b"):
        dispatcher.do(c.Stage("tx", stage, "q", [b"1", b"2"], part=0))
    with pytest.raises(UnknownStage):
        dispatcher.do(c.Publish("tx", ["a", "c"]))
    published = dispatcher.do(c.Publish("tx", ["b"]))
    assert (published.created, published.runs) == (2, ((1 << 6, 2),))
    assert dispatcher.do(c.Publish("tx", ["a"])) == dispatcher.do(c.Abort("tx")) == published
    with pytest.raises(TransactionOver):
        dispatcher.do(c.Stage("tx", "a", "q", [b"1"]))


def test_obliterate_takes_running_jobs_only_by_force(dispatcher):
    job = dispatcher.push()
    dispatcher.pull()
    with pytest.raises(QueueActive):
        dispatcher.do(c.Obliterate("q"))
    dispatcher.do(c.Obliterate("q", force=True))
    with pytest.raises(NotFound):
        dispatcher.do(c.GetJob(job))
    assert dispatcher.state(dispatcher.push(depends_on=(Dependency(job, "cancel"),))) is State.CANCELLED


def test_limits_are_limits():
    dispatcher = Dispatcher(limits=Limits(payload_bytes_max=1, queues_per_tenant_max=1))
    dispatcher.push()
    with pytest.raises(LimitExceeded):
        dispatcher.do(c.Push("q", b"22"))
    with pytest.raises(LimitExceeded):
        dispatcher.do(c.Push("another", b"2"))
