"""The story of one job: all of its own steps, in order, and nothing of other jobs."""

from collections.abc import Callable
from random import Random

import pytest

from stoker.journal.memory import MemoryJournal
from stoker.journal.story import PAGE, story
from stoker.model.errors import Refused
from stoker.model.events import Event, EventKind
from stoker.model.ids import STEP, shard_of
from stoker.model.options import Backoff, Dependency, Options, Settings
from stoker.model.replies import Story
from stoker.model.states import State
from stoker.records import records as rec
from stoker.records.events import events_of
from stoker.records.record_table import NOTED
from stoker.testing import World
from tests.golden.examples import RECORDS

STEADY = Backoff("fixed", 1_000, 1_000, "none")


def told(world: World, job: int, tenant: str = "default", finished_at: int = 0) -> Story:
    journal, shard = world.broker.runtime.journal, shard_of(job)
    return story(journal.read, shard, job, tenant, lowest=journal.lowest(shard), finished_at=finished_at)


def told_by(journal: MemoryJournal, job: int) -> Story:
    return story(journal.read, 0, job, "acme", lowest=journal.lowest(0))


def kinds(found: Story) -> list[str]:
    return [str(event.kind) for event in found.events]


def all_of(world: World, job: int) -> list[Event]:
    """The same the long way: every event of every record, and then those of the job."""
    records = world.broker.runtime.journal.read(shard_of(job), 0, 1_000_000)
    return [event for at, record in records for event in events_of(shard_of(job), at, record) if event.job == job]


# --- what is told --------------------------------------------------------------------------------


def test_a_life_is_told_from_push_to_completion():
    with World() as world:
        client = world.client
        job = client.push("q", b"x", backoff=STEADY, max_attempts=5).id
        client.pull("q", 1, worker="anna")
        client.fail(job, error="broken", error_class="OSError")
        world.advance(1_000)
        client.pull("q", 1, worker="bert")
        client.release(job)
        client.pull("q", 1, worker="carl")
        client.set_progress(job, 40)
        client.append_log(job, "half way")
        client.extend(job)
        client.ack(job, result=b"done")
        found = told(world, job)
    assert kinds(found) == (
        "pushed started retrying ready started released started progress log extended completed".split()
    )
    assert [event.worker for event in found.events if event.kind == "started"] == ["anna", "bert", "carl"]
    assert [event.error for event in found.events if event.kind == "retrying"] == ["broken"]
    assert found.complete
    assert not found.notes


def test_steps_come_with_their_positions():
    with World() as world:
        ids = world.client.push_batch("q", [b"a", b"b", b"c"]).ids
        world.client.pull("q", 3)
        found = told(world, ids[2])
    assert [(event.kind, event.index, event.job) for event in found.events] == [
        (EventKind.PUSHED, 2, ids[2]),
        (EventKind.STARTED, 2, ids[2]),
    ]


@pytest.mark.parametrize("lifo", [False, True])
def test_members_of_a_batch_hear_their_own_steps_only(lifo: bool):
    with World() as world:
        client = world.client
        ids = client.push_batch("q", [b"%d" % n for n in range(50)], lifo=lifo, backoff=STEADY).ids
        first = client.pull("q", 20)
        client.ack_batch(first.ids[5:15], first.token)
        client.fail(first.ids[2], first.token, error="broken")
        client.release_batch(first.ids[15:], first.token)
        client.cancel(ids[25])
        for job in ids:
            found = told(world, job)
            assert found.events == all_of(world, job)
            assert {event.job for event in found.events} == {job}
            assert found.complete
        assert kinds(told(world, first.ids[7])) == ["pushed", "started", "completed"]
        assert kinds(told(world, first.ids[2])) == ["pushed", "started", "retrying"]
        assert kinds(told(world, first.ids[19])) == ["pushed", "started", "released"]
        assert kinds(told(world, ids[25])) == ["pushed", "cancelled"]


def test_other_tenants_hear_nothing():
    with World() as world:
        job = world.client.push("q", b"x").id
        world.client.pull("q", 1)
        never = told(world, job + 1_000 * STEP, "other")
        assert told(world, job, "other") == never
        assert not never.events
        assert kinds(told(world, job)) == ["pushed", "started"]


def test_a_job_is_not_looked_for_in_a_shard_where_it_cannot_be():
    with World(shards=4) as world:
        job = world.client.push("q", b"x").id
        elsewhere = (shard_of(job) + 1) % 4
        assert not story(world.broker.runtime.journal.read, elsewhere, job, "default", lowest=1).events
        assert kinds(told(world, job)) == ["pushed"]


def test_a_dead_letter_is_followed_until_it_is_purged():
    with World() as world:
        client = world.client
        job = client.push("q", b"x").id
        for _ in range(2):
            client.pull("q", 1)
            client.fail(job, retry=False)
            if _ == 0:
                client.retry_dead("q", [job])
        client.purge_dead("q", [job])
        client.push("q", b"later")
        assert kinds(told(world, job)) == "pushed started failed revived started failed removed".split()


def test_reading_stops_where_the_job_is_gone():
    """Nothing can be said of a job that was removed, so a million later records are not looked at."""
    with World() as world:
        client = world.client
        job = client.push("q", b"x").id
        client.pull("q", 1)
        client.fail(job, retry=False)
        client.purge_dead("q", [job])
        for _ in range(PAGE * 3):
            client.push("q", b"")
        asked: list[int] = []

        def read(shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
            asked.append(after)
            return world.broker.runtime.journal.read(shard, after, limit)

        assert kinds(story(read, 0, job, "default", lowest=1))[-1] == "removed"
        assert asked[-1] < PAGE


# --- what concerns a job without being a step of it ------------------------------------------------


def notes(found: Story) -> list[str]:
    return [note.kind for note in found.notes]


def test_settled_edges_are_noted_until_the_last_one_unblocks():
    with World() as world:
        client = world.client
        first, second = client.push("q", b"1").id, client.push("q", b"2").id
        waiting = client.push("q", b"3", depends_on=(Dependency(first), Dependency(second))).id
        client.pull("q", 2)
        client.ack(first)
        client.ack(second)
        found = told(world, waiting)
        assert kinds(found) == ["pushed", "unblocked"]
        assert notes(found) == ["edge_settled"]
        assert str(first) in found.notes[0].text
        assert not told(world, first).notes


def test_keys_are_noted_while_the_job_holds_them():
    with World() as world:
        client = world.client
        job = client.push("q", b"1", unique_key="k", unique_ttl_ms=60_000, debounce_id="d", debounce_ms=500).id
        other = client.push("p", b"1", unique_key="k", unique_ttl_ms=90_000).id
        assert client.push("q", b"2", unique_key="k", unique_ttl_ms=80_000, on_conflict="extend").id == job
        world.advance(1_000)
        client.pull("q", 1)
        client.ack(job)
        heir = client.push("q", b"3", unique_key="k", unique_ttl_ms=80_000).id
        client.push("q", b"4", unique_key="k", unique_ttl_ms=90_000, on_conflict="extend")
        assert notes(told(world, job)) == ["key_extended", "key_forgotten"], "extended once, and its debounce forgotten"
        assert notes(told(world, heir)) == ["key_extended"]
        assert notes(told(world, other)) == []


def test_a_key_is_noted_by_the_job_that_holds_it_and_not_by_the_one_before():
    with World() as world:
        client = world.client
        first = client.push("q", b"1", debounce_id="d", debounce_ms=500).id
        world.advance(1_000)
        second = client.push("q", b"2", debounce_id="d", debounce_ms=500).id
        world.advance(1_000)
        assert second != first
        assert notes(told(world, first)) == notes(told(world, second)) == ["key_forgotten"]


def test_a_revived_job_holds_its_key_again():
    with World() as world:
        client = world.client
        job = client.push("q", b"1", unique_key="k", unique_ttl_ms=60_000).id
        client.pull("q", 1)
        client.fail(job, retry=False)
        client.retry_dead("q", [job])
        client.push("q", b"2", unique_key="k", unique_ttl_ms=80_000, on_conflict="extend")
        assert notes(told(world, job)) == ["key_extended"]


def test_jobs_of_other_shards_in_a_transaction_are_others():
    """Ids of all shards lie between each other; only those of the own shard are in a run of it."""
    journal = MemoryJournal(1, 1 << 20)
    journal.append([(0, [rec.JobsPushed(1, "acme", "q", 2 * STEP, (b"",))])])
    journal.append([(0, [rec.TransactionEnded(1, "acme", "t", True, 3, [(STEP + 1, 3)], 9)])])
    assert not told_by(journal, 2 * STEP).notes
    journal.append([(0, [rec.TransactionEnded(1, "acme", "t", True, 3, [(STEP, 3)], 9)])])
    assert notes(told_by(journal, 2 * STEP)) == ["published"]


def test_a_request_and_a_transaction_are_noted_by_their_jobs():
    with World() as world:
        client = world.client
        ids = client.push_batch("q", [b"1", b"2"], request_key="r").ids
        client.stage("t", "s", "q", [b"3"])
        client.publish("t", ["s"])
        alone = client.push("q", b"4").id
        assert [notes(told(world, job)) for job in ids] == [["request_remembered"]] * 2
        assert notes(told(world, ids[-1] + STEP)) == ["published"]
        assert notes(told(world, alone)) == []


def test_refused_items_of_a_request_are_nobody():
    """A run of refused items begins with 0: it is not the ids from 0 on."""
    journal = MemoryJournal(1, 1 << 20)
    journal.append([(0, [rec.JobsPushed(1, "acme", "q", STEP, (b"",))])])
    journal.append([(0, [rec.RequestRemembered(1, "acme", "q", "r", [(0, 50)], [], [], 9)])])
    assert not told_by(journal, STEP).notes


def test_an_obliterated_queue_takes_what_is_left_of_its_jobs():
    with World() as world:
        client = world.client
        done, waiting = client.push("q", b"1").id, client.push("q", b"2", custom_id="c").id
        elsewhere = client.push("p", b"2").id
        client.pull("q", 1)
        client.ack(done)
        client.obliterate("q")
        client.push("q", b"new", unique_key="k", unique_ttl_ms=9_000)
        client.push("q", b"new", unique_key="k", unique_ttl_ms=90_000, on_conflict="extend")
        assert notes(told(world, done)) == ["queue_obliterated"]
        assert kinds(told(world, waiting)) == ["pushed", "cancelled"]
        assert not told(world, elsewhere).notes


# --- as far back as the log reaches ----------------------------------------------------------------


def filled(jobs: int, bytes_max: int) -> MemoryJournal:
    """Every job is pushed, started and completed in turn."""
    journal = MemoryJournal(1, bytes_max)
    for number in range(1, jobs + 1):
        run = rec.JobRun(number * STEP, 1, number)
        journal.append([(0, [rec.JobsPushed(number, "acme", "q", number * STEP, (b"",))])])
        journal.append([(0, [rec.Started(number, "acme", "q", 1, "w", None, None, (run,))])])
        journal.append([(0, [rec.Completed(number, "acme", "q", (run,))])])
    return journal


def test_a_story_whose_beginning_was_dropped_says_so():
    journal = filled(20_000, 1 << 20)
    lowest = journal.lowest(0)
    assert lowest > PAGE
    cut = next(record.runs[0].first for _, record in journal.read(0, 0, 9) if type(record) is rec.Completed)
    whole = told_by(journal, 20_000 * STEP)
    assert (kinds(whole), whole.complete) == (["pushed", "started", "completed"], True)
    rest = told_by(journal, cut)
    assert rest.complete == (kinds(rest)[0] == "pushed")
    gone = told_by(journal, STEP)
    assert (gone.events, gone.complete) == ([], False)


def test_steps_that_are_left_are_told_without_the_push():
    journal = filled(10, 1 << 20)
    kept = journal.read(0, 10, 100)

    def read(shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
        return [item for item in kept if item[0] > after][:limit]

    for job, steps in [(3, []), (4, ["started", "completed"]), (5, ["pushed", "started", "completed"])]:
        found = story(read, 0, job * STEP, "acme", lowest=11)
        assert (kinds(found), found.complete) == (steps, job == 5)


def test_a_push_that_was_kept_alone_does_not_make_a_story_complete():
    """Old files keep the pushes of live jobs for their payloads; what happened to the jobs since is gone from them."""
    journal = filled(10, 1 << 20)
    kept = [item for item in journal.read(0, 0, 100) if item[0] > 10 or type(item[1]) is rec.JobsPushed]

    def read(shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
        return [item for item in kept if item[0] > after][:limit]

    for job, steps in [(3, ["pushed"]), (4, ["pushed", "started", "completed"])]:
        found = story(read, 0, job * STEP, "acme", lowest=11)
        assert (kinds(found), found.complete) == (steps, False)


def test_an_empty_log_that_has_lost_nothing_knows_of_no_job():
    journal = MemoryJournal(1, 1 << 20)
    found = told_by(journal, STEP)
    assert (found.events, found.notes, found.complete) == ([], [], True)


@pytest.mark.parametrize("known", [True, False])
def test_reading_stops_at_an_end_that_is_known_to_be_the_last(known: bool):
    with World() as world:
        client = world.client
        job = client.push("q", b"x").id
        client.pull("q", 1)
        client.ack(job)
        finished_at = client.get_job(job).finished_at if known else 0
        for _ in range(PAGE * 3):
            client.push("q", b"")
        asked: list[int] = []

        def read(shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
            asked.append(after)
            return world.broker.runtime.journal.read(shard, after, limit)

        found = story(read, 0, job, "default", lowest=1, finished_at=finished_at)
        assert kinds(found) == ["pushed", "started", "completed"]
        assert (asked[-1] < PAGE) == known


def test_a_last_end_is_told_from_an_earlier_one():
    with World() as world:
        client = world.client
        job = client.push("q", b"x").id
        for _ in range(2):
            client.pull("q", 1)
            client.fail(job, retry=False)
            client.retry_dead("q", [job])
        client.pull("q", 1)
        client.fail(job, retry=False)
        found = told(world, job, finished_at=client.get_job(job).finished_at)
        assert kinds(found) == ["pushed", *["started", "failed", "revived"] * 2, "started", "failed"]


def test_a_push_is_found_by_halving():
    """Of two hundred thousand records only those around the push and behind it are read."""
    journal = filled(70_000, 1 << 40)
    read_records = 0

    def read(shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
        nonlocal read_records
        page = journal.read(shard, after, limit)
        read_records += len(page)
        return page

    for job in (69_900, 69_000):
        read_records = 0
        assert kinds(story(read, 0, job * STEP, "acme", lowest=1)) == ["pushed", "started", "completed"]
        assert read_records < 25 * PAGE


def test_every_job_of_a_long_log_is_found():
    journal = filled(3 * PAGE, 1 << 40)
    for job in [1, 2, PAGE // 3, PAGE // 3 + 1, PAGE, 2 * PAGE + 1, 3 * PAGE]:
        assert kinds(told_by(journal, job * STEP)) == ["pushed", "started", "completed"]


def test_pushes_that_are_far_apart_are_found():
    """Long stretches without a push: jobs that only start and complete."""
    journal = MemoryJournal(1, 1 << 40)
    jobs = 5 * PAGE
    journal.append([(0, [rec.JobsPushed(1, "acme", "q", STEP, (b"",) * jobs)])])
    for number in range(1, jobs + 1):
        journal.append([(0, [rec.Started(2, "acme", "q", 1, "w", None, None, (rec.JobRun(number * STEP, 1, 1),))])])
    journal.append([(0, [rec.JobsPushed(3, "acme", "q", (jobs + 1) * STEP, (b"",))])])
    for job in (1, 2, PAGE, jobs):
        assert kinds(told_by(journal, job * STEP)) == ["pushed", "started"]
    assert kinds(told_by(journal, (jobs + 1) * STEP)) == ["pushed"]


# --- nothing is forgotten --------------------------------------------------------------------------


KEYED = rec.JobsPushed(1, "acme", "q", STEP, (b"",), Options(unique_key="k"))
NOTES: dict[str, rec.Record] = {
    "request_remembered": rec.RequestRemembered(2, "acme", "q", "r", [(STEP, 1)], [], [], 9),
    "key_extended": rec.KeyExtended(2, "acme", "q", "k", 9),
    "key_stored": rec.KeysStored(2, "acme", "q", [("unique_keys", "k")]),
    "key_forgotten": rec.KeysForgotten(2, "acme", "q", [("unique_keys", "k")]),
    "retry_postponed": rec.RetryPostponed(2, "acme", "q", STEP, 9),
    "queue_obliterated": rec.QueueObliterated(2, "acme", "q"),
    "published": rec.TransactionEnded(2, "acme", "t", True, 1, [(STEP, 1)], 9),
}


def test_every_record_that_may_concern_a_job_has_a_note():
    assert {type(record) for record in NOTES.values()} == NOTED


@pytest.mark.parametrize("kind", NOTES)
def test_a_note_is_told_to_the_job_that_it_concerns(kind: str):
    journal = MemoryJournal(1, 1 << 40)
    journal.append([(0, [KEYED, rec.JobsPushed(1, "acme", "q", 2 * STEP, (b"",)), NOTES[kind]])])
    assert notes(told_by(journal, STEP)) == [kind]
    assert notes(told_by(journal, 2 * STEP)) == ([kind] if kind == "queue_obliterated" else [])


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_asked_rightly_whom_it_speaks_of(record: rec.Record):
    """Each id that has an event finds it, and neighbours do not."""
    told_ids = {event.job for event in events_of(0, 1, record)} - {0}

    def read(shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
        return [(1, record)] if after < 1 else []

    for job in range(STEP, 12 * STEP, STEP):
        assert bool(story(read, 0, job, "acme", lowest=1).events) == (job in told_ids)
        assert not story(read, 0, job, "other", lowest=1).events


def random_step(world: World, random: Random, jobs: list[int]) -> None:
    client = world.client
    job = random.choice(jobs) if jobs else 0

    def push() -> None:
        options = Options(lifo=random.random() < 0.3, delay_ms=random.choice([0, 0, 50]), backoff=STEADY)
        jobs.extend(client.push_batch("q", [b"x"] * random.randint(1, 6), options).ids)

    def pull() -> None:
        delivery = client.pull("q", random.randint(1, 8))
        if delivery.ids:
            cut = random.randint(0, len(delivery.ids))
            client.ack_batch(delivery.ids[:cut], delivery.token)
            client.release_batch(delivery.ids[cut:], delivery.token, random.choice([0, 30]))

    def fail() -> None:
        for one in client.pull("q", 2):
            client.fail(one.id, one.token, retry=random.random() < 0.7)

    steps: list[Callable[[], object]] = [push, pull, fail, lambda: world.advance(random.randint(1, 2_000))]
    steps += [lambda: client.cancel(job), lambda: client.promote(job), lambda: client.change_priority(job, 3)]
    steps += [lambda: client.retry_dead("q"), lambda: client.clean("q", State.COMPLETED, limit=3)]
    try:
        random.choice(steps)()
    except Refused:
        pass  # the job drawn is not in a state for it


@pytest.mark.parametrize("seed", range(5))
def test_stories_are_exactly_the_events_of_their_jobs(seed: int):
    random = Random(seed)
    with World(Settings()) as world:
        jobs: list[int] = []
        for _ in range(300):
            random_step(world, random, jobs)
        for job in jobs:
            assert told(world, job).events == all_of(world, job)
