"""codeQ: where its queueing model contradicts itself or its code."""

import math
import sqlite3
from pathlib import Path

import pytest

import stoker
from stoker.brokers.local import LocalSettings
from stoker.engine.old_keys import OldKey
from stoker.journal.bloom_filters import FilterSettings, RotatingFilter
from stoker.journal.key_store import KeyStore
from stoker.journal.read_ahead import ReadAhead
from stoker.journal.sqlite import JournalSettings
from stoker.model.errors import Damaged, LostLease, NotFound
from stoker.model.options import Backoff, Options
from stoker.model.states import State
from stoker.testing import World
from tests.contradictions.support import STEADY, pulled, push, start

AT_ONCE = Backoff("fixed", 0, 0, "none")


class Always:
    """A filter that gives one answer, whatever it was told."""

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def add(self, key: str, now: int) -> None:
        pass

    def might_have(self, key: str, now: int) -> bool:
        return self._answer

    def mark(self, now: int) -> int:
        return 0

    def remembers(self, mark: int) -> bool:
        return False  # it has not seen every key, and does not say so

    def make_room(self, keys: int) -> None:
        pass


KEY = OldKey("t", "q", "custom_ids", "order-7", 10**12, 64)


@pytest.mark.parametrize("answer", [True, False])
def test_c1_a_filter_that_is_wrong_changes_no_answer(tmp_path: Path, answer: bool):
    """A filter that rotates earlier than keys expire says no to keys that are there; it was believed."""
    store = KeyStore(tmp_path / "keys.db", hint=Always(answer), cleanup=Always(answer))
    store.put_many([KEY], 0)
    store.fill(0, 10)
    assert store.find("t", "q", "custom_ids", "order-7", 0) == KEY
    assert store.find("t", "q", "custom_ids", "order-8", 0) is None
    store.close()


def test_c2_what_the_ghost_filter_says_loses_nothing():
    """A false positive dropped a live task instead of reading it."""

    class Row:
        size = 1

        def payloads(self, sequence: int) -> list[bytes]:
            return [b"alive"]

    ahead = ReadAhead(lambda shard, sequence: Row(), lambda shard, sequence: True)  # type: ignore[arg-type,return-value]
    ahead.ghosts = Always(True)  # type: ignore[assignment]
    ahead.expect(0, [5], [], 0)
    assert ahead.payloads(0, 5) == [b"alive"]
    ahead.close()


def test_c3_a_filter_takes_the_memory_that_its_error_rate_asks_for():
    """Two million keys at 1e-12 were said to fit into 8.6 MB; both buffers need 28.8 MB."""
    settings = FilterSettings()
    bits = math.log2(1 / settings.ghost_error_rate) / math.log(2)
    assert 57 < bits < 58
    small = RotatingFilter(20_000, settings.ghost_error_rate, 1_000)
    for number in range(20_000):
        small.add(str(number), 0)
    assert all(small.might_have(str(number), 0) for number in range(0, 20_000, 97))
    assert not any(small.might_have(f"new {number}", 0) for number in range(20_000))


def test_c4_what_the_cleanup_filter_misses_goes_with_the_full_pass(tmp_path: Path):
    """One in a hundred expired tasks was left for hours, because a filter said that it had been removed."""
    store = KeyStore(tmp_path / "keys.db", cleanup=Always(False))
    store.put_many([OldKey("t", "q", "custom_ids", str(number), 100, 64) for number in range(50)], 0)
    assert store.forget([OldKey("t", "q", "custom_ids", "1", 100, 64)], 50) == 0, "the hint says that it is not there"
    assert store.forget_expired(100, 1_000) == 50
    assert store.count() == 0
    store.close()


def test_c5_a_job_that_becomes_due_is_delivered_to_one_claimer(world: World):
    """The due ids were read first and moved later: two claimers moved the same ones."""
    ids = [push(world.client, delay_ms=100) for _ in range(50)]
    world.advance(100)
    halves = [pulled(world.client, count=30), pulled(world.client, count=30)]
    assert halves[0] + halves[1] == ids


@pytest.mark.parametrize("maximum", [1, 2, 5, 10])
def test_c6_max_attempts_is_the_number_of_deliveries(world: World, maximum: int):
    """Counted at the claim and again at the retry: 5 attempts were 3 executions, 10 were 5."""
    push(world.client, max_attempts=maximum)
    executions = 0
    for _ in range(20):
        for job in world.client.pull("q"):
            executions += 1
            assert job.attempt == executions
            world.client.fail(job.id, job.token, delay_ms=0)
    assert executions == maximum


def test_c7_every_lost_lease_is_seen_and_nobody_has_to_claim_for_it(world: World):
    """Leases were looked at only at a claim, and then a random sample of two hundred."""
    ids = list(world.client.push_batch("q", [b""] * 1_000, max_attempts=1).ids)
    assert pulled(world.client, count=1_000) == ids
    world.advance(30_000)
    counts = world.client.get_counts("q")
    assert (counts.active, counts.failed) == (0, 1_000)
    assert {event.at for event in world.client.read_events(kinds=["failed"]).events} == {world.now}


def test_c7_a_lease_that_has_not_ended_is_not_reclaimed(world: World):
    """A key without expiry was taken for an expired one."""
    job = push(world.client, lease_ms=10 * 365 * 86_400_000)
    start(world.client)
    world.advance(9 * 365 * 86_400_000)
    assert world.client.get_state(job) is State.ACTIVE
    assert pulled(world.client) == []


def test_c8_a_delivered_job_has_its_lease_at_once(world: World):
    """Pop, lease and status were three steps; a repair in between took the job away again."""
    job = push(world.client)
    delivered = start(world.client, worker="w")
    view = world.client.get_job(job)
    assert (view.state, view.lease_until, view.worker) == (State.ACTIVE, delivered.lease_until, "w")
    assert pulled(world.client) == []


def test_c9_a_worker_that_lost_and_regained_a_job_cannot_use_the_old_delivery(world: World):
    """The lease was known by the worker's name: an old attempt's result was taken for the new one's."""
    job = push(world.client, lease_ms=1_000, backoff=STEADY)
    old = start(world.client, worker="w").token
    world.advance(2_000)
    new = start(world.client, worker="w").token
    with pytest.raises(LostLease):
        world.client.ack(job, old, b"stale")
    world.client.ack(job, new, b"fresh")
    assert world.client.get_result(job) == b"fresh"


def test_c11_a_failure_for_good_and_an_exhausted_job_are_one_state_with_two_reasons(world: World):
    """FAILED meant a worker's verdict outside the dead letters, or exhausted retries in them."""
    verdict, exhausted = push(world.client), push(world.client, max_attempts=1)
    world.client.fail(start(world.client).id, retry=False)
    world.client.fail(start(world.client).id)
    dead = {view.id: (view.state, view.reason) for view in world.client.list_dead("q").jobs}
    assert dead == {
        verdict: (State.FAILED, "explicit_fail"),
        exhausted: (State.FAILED, "max_attempts_exceeded"),
    }


def test_c12_an_idempotency_key_is_the_tenants_and_the_queues_own(world: World):
    """The key was global: one tenant got another one's task."""
    ours, theirs = world.client_for("ours"), world.client_for("theirs")
    first = ours.push("q", b"secret", custom_id="k")
    assert theirs.push("q", b"", custom_id="k").created
    assert ours.push("other", b"", custom_id="k").created
    again = ours.push("q", b"", custom_id="k")
    assert (again.id, again.created, again.duplicate_by) == (first.id, False, "custom_id")


def test_c12_nobody_reads_a_foreign_job_by_its_id(world: World):
    """Reading by id did not ask for the tenant."""
    job = push(world.client_for("ours"))
    with pytest.raises(NotFound):
        world.client_for("theirs").get_job(job)


def test_c12_a_duplicate_is_known_as_long_as_its_job_lives(world: World):
    """After 24 hours a second task was made, whatever had become of the first."""
    job = push(world.client, custom_id="k", delay_ms=10 * 86_400_000)
    world.advance(9 * 86_400_000)
    assert world.client.push("q", b"", custom_id="k").id == job


def test_c13_dead_letters_have_an_order_and_a_time(world: World):
    """A set has neither: no oldest first, no purge by age."""
    ids = [push(world.client) for _ in range(3)]
    token = world.client.pull("q", 3).token
    times = []
    for job in (ids[1], ids[2], ids[0]):
        world.client.fail(job, token, retry=False)
        times.append(world.now)
        world.advance(1_000)
    dead = world.client.list_dead("q").jobs
    assert [view.id for view in dead] == [ids[1], ids[2], ids[0]]
    assert [view.dead.entered_at for view in dead if view.dead] == times
    assert list(world.client.clean("q", State.FAILED, age_ms=2_000)) == [ids[1], ids[2]]


def test_c14_time_is_counted_in_milliseconds(world: World):
    """Whole seconds: a job was up to a second early or late."""
    job = push(world.client, delay_ms=1_001)
    world.advance(1_000)
    assert pulled(world.client) == []
    world.advance(1)
    assert start(world.client, lease_ms=1_001).lease_until == world.now + 1_001
    world.advance(1_000)
    assert world.client.get_state(job) is State.ACTIVE
    world.advance(1)
    assert world.client.get_state(job) is not State.ACTIVE


def test_c16_a_job_claimed_the_moment_it_is_due_stays_with_its_worker(world: World):
    """The move wrote the whole task back after the claim: the worker's result was refused and the task ran again."""
    job = push(world.client, delay_ms=100)
    world.advance(100)
    delivered = start(world.client, worker="w")
    for _ in range(3):
        world.advance(10)
        world.client.get_stats()
    view = world.client.get_job(job)
    assert (view.state, view.worker, view.attempts) == (State.ACTIVE, "w", 1)
    world.client.ack(job, delivered.token)
    assert world.client.get_state(job) is State.COMPLETED


def test_c15_a_job_that_cannot_be_read_is_told_and_kept(tmp_path: Path):
    """An entry that could not be read was taken out of its queue and put nowhere."""
    url = f"sqlite:///{tmp_path}/data?shards=1"
    with stoker.connect(url) as queue:
        ids = queue.push_batch("q", [b"a" * 50, b"b" * 50]).ids
    with stoker.connect(url):
        pass  # the first file is finished by the second owner
    file = tmp_path / "data" / "log-00000001.db"

    def write(data: bytes) -> None:
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE log SET data = ? WHERE position = 2", (data,))
        connection.close()

    with sqlite3.connect(file) as connection:
        (good,) = connection.execute("SELECT data FROM log WHERE position = 2").fetchone()
    connection.close()
    write(good[:-1] + b"!")
    with pytest.raises(Damaged, match=r"log-00000001\.db is damaged at shard 0 sequence 2"):
        stoker.connect(url)
    write(good)
    with stoker.connect(url) as queue:
        assert queue.pull("q", 2).ids == ids


class Scene:
    """A directory with jobs of which one has become unreadable, although nothing said so at the start."""

    def __init__(self, path: Path, delay_ms: int = 0) -> None:
        self.path = path
        options = Options(max_attempts=0, backoff=AT_ONCE, delay_ms=delay_ms)
        small = JournalSettings(checkpoint_process=False, wal_bytes_max=50_000)  # the next owner begins a new file
        self.settings = LocalSettings(shards=1, journal=small)
        with stoker.connect(self.url, settings=self.settings) as queue:
            self.bad = list(queue.push_batch("q", [b"damaged" * 5_000] * 2, options).ids)
            self.good = [queue.push("q", b"sound" * 5_000).id for _ in range(2)]
            self.last = list(queue.push_batch("q", [b"last" * 5_000] * 2).ids)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def damage(self) -> None:
        """The owner that has it open does not notice: payloads of batches are read when they are needed."""
        file = self.path / "log-00000001.db"
        with sqlite3.connect(file) as connection:
            rows = connection.execute("SELECT position, data FROM log").fetchall()
            ((position, data),) = [row for row in rows if b"damaged" in row[1]]
            broken = data.replace(b"damaged", b"DAMAGED", 1)
            connection.execute("UPDATE log SET data = ? WHERE position = ?", (broken, position))
        connection.close()


def test_c15_a_corrupt_job_is_put_aside_with_its_reason_and_the_others_go_on(tmp_path: Path):
    """An unreadable entry was lost silently, or kept the jobs around it from ever being delivered."""
    scene = Scene(tmp_path / "data")
    with stoker.connect(scene.url, settings=scene.settings) as queue:
        scene.damage()
        delivered = [job for _ in range(4) for job in queue.pull("q", 10)]
        assert sorted(job.id for job in delivered) == sorted(scene.good + scene.last)
        queue.ack_batch([job.id for job in delivered], [job.token for job in delivered])
        letters = queue.list_dead("q").jobs
        assert [job.id for job in letters] == scene.bad
        for job in letters:
            assert (job.state, job.reason, job.attempts) == (State.FAILED, "corrupt", 3)
            assert "is damaged at shard 0 sequence" in job.error
            assert [attempt.reason for attempt in job.history] == ["corrupt"] * 3
        assert queue.get_stats("q").counts.completed == 4


def test_c15_a_waiting_pull_survives_a_corrupt_job(tmp_path: Path):
    """The pull waits until the job is due, and is answered without it."""
    scene = Scene(tmp_path / "data", delay_ms=500)
    with stoker.connect(scene.url, settings=scene.settings) as queue:
        scene.damage()
        found = [job.id for _ in range(4) for job in queue.pull("q", 10, wait_ms=60_000)]
        assert sorted(found) == sorted(scene.good + scene.last)
        while queue.get_counts("q").failed < 2:
            assert queue.pull("q", 10, wait_ms=60_000).ids == []


def test_c15_a_claim_survives_a_corrupt_job(tmp_path: Path):
    """The pull that met it was answered with an error, and so was every pull after it."""
    scene = Scene(tmp_path / "data")
    with stoker.connect(scene.url, settings=scene.settings) as queue:
        scene.damage()
        delivery = queue.pull("q", 2, claim="mine")
        assert delivery.ids == []
        assert queue.pull("q", 2, claim="mine").ids == []
        found = [job.id for _ in range(4) for job in queue.pull("q", 2, wait_ms=10)]
        assert sorted(found) == sorted(scene.good + scene.last)
        assert queue.get_counts("q").failed == 2


def test_c15_a_corrupt_job_can_be_tried_again(tmp_path: Path):
    """What was taken out of its queue was nowhere, so nothing could bring it back."""
    scene = Scene(tmp_path / "data")
    with stoker.connect(scene.url, settings=scene.settings) as queue:
        scene.damage()
        for _ in range(4):
            queue.pull("q", 10)
        assert list(queue.retry_dead("q", reason="corrupt").ids) == scene.bad
        assert queue.get_counts("q").waiting == 2
