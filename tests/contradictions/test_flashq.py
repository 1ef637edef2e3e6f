"""flashQ: where its paper, its blog and its code contradict themselves or each other."""

import itertools
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

import stoker
from stoker.brokers.local import LocalSettings, open_seat
from stoker.client.sync import Client
from stoker.journal.postgres.schema import install
from stoker.journal.postgres.store import PostgresStore
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, Unavailable, Unknown, UnknownDependency
from stoker.model.limits import Limits
from stoker.model.options import Dependency, Options, Retention, Settings
from stoker.model.states import TRANSITIONS, State
from stoker.testing import World
from stoker.wire.frames import Frames, codec_of, framed
from tests.contradictions.support import STEADY, pulled, push, start
from tests.postgres_server import fresh_database, shared
from tests.served.on_loop import run, serving, until
from tests.waking.places import PLACES, Opened

ROOT = Path(__file__).parent.parent.parent


def test_f1_backoff_is_base_times_two_to_the_failures_before(world: World):
    """Four formulas in one section: the cap and the first delay differed by a factor of two."""
    push(world.client, max_attempts=5, backoff=STEADY)
    waits = []
    for _ in range(5):
        answer = world.client.fail(start(world.client).id)
        waits.append(answer.due - world.now if answer.state is State.DELAYED else answer.state)
        world.advance(8_000)
    assert waits == [1_000, 2_000, 4_000, 8_000, State.FAILED]


def test_f1_a_base_of_nothing_does_not_keep_an_old_due_time(world: World):
    """Backoff 0 left the job's old run_at in place."""
    job = push(world.client, delay_ms=500, backoff=stoker.Backoff(base_ms=0))
    world.advance(500)
    assert world.client.fail(start(world.client).id).state is State.WAITING
    assert pulled(world.client) == [job]


def test_f2_a_batch_over_the_limit_is_an_error_that_names_the_limit():
    """A batch of more than a thousand answered `ok` with no ids: it was thrown away in silence."""
    with World(limits=Limits(batch_jobs_max=1_000)) as world:
        with pytest.raises(LimitExceeded, match=r"1[_,]?000"):
            world.client.push_batch("q", [b"x"] * 1_001)
        assert world.client.get_counts("q").waiting == 0
        assert len(world.client.push_batch("q", [b"x"] * 1_000).ids) == 1_000


@pytest.mark.parametrize("lifo", list(itertools.product([False, True], repeat=4)))
def test_f3_the_order_of_lifo_and_fifo_jobs_is_total(lifo: tuple[bool, ...]):
    """Its comparator had cycles: 2 before 1, 3 before 2, 1 before 3."""
    with World() as world:
        ids = []
        for each in lifo:
            ids.append(push(world.client, lifo=each))
            world.advance(1)  # it also compared the time first, so that LIFO acted within a millisecond only
        newest_first = [job for job, each in zip(ids, lifo, strict=True) if each][::-1]
        oldest_first = [job for job, each in zip(ids, lifo, strict=True) if not each]
        assert pulled(world.client) == newest_first + oldest_first


def test_f4_a_delayed_high_priority_job_blocks_nobody(world: World):
    """One heap by priority: the not yet due job at its top ended the search."""
    late = push(world.client, priority=10, delay_ms=3_600_000)
    ready = [push(world.client) for _ in range(3)]
    assert pulled(world.client) == ready
    world.advance(3_600_000)
    assert pulled(world.client, count=1) == [late]


def test_f5_jobs_of_busy_groups_at_the_top_hide_nobody(world: World):
    """They were popped and pushed back, one by one, at every pull."""
    head = push(world.client, group_id="busy", priority=9)
    assert pulled(world.client) == [head]
    for _ in range(500):
        push(world.client, group_id="busy", priority=9)
    free = [push(world.client), push(world.client, group_id="other")]
    assert pulled(world.client) == free
    world.client.ack(head)
    assert pulled(world.client) == [head + 64]


@pytest.mark.parametrize("end", ["completed", "removed", "forgotten"])
def test_f6_a_completed_dependency_counts_however_it_is_kept(end: str):
    """Only ids in a bounded set of completed jobs counted: the others were waited for, for ever."""
    with World(Settings(retention=Retention(completed_count=1))) as world:
        first = push(world.client, remove_on_complete=end == "removed")
        before = push(world.client, "behind", depends_on=(Dependency(first),))
        world.client.ack(start(world.client).id)
        if end == "forgotten":
            for _ in range(5):
                push(world.client)
                world.client.ack(start(world.client).id)
        after = push(world.client, "behind", depends_on=(Dependency(first),))
        assert pulled(world.client, "behind") == [before, after]


@pytest.mark.parametrize("end", ["failed", "cancelled", "expired"])
def test_f6_a_dependency_that_ends_badly_is_an_end_too(world: World, end: str):
    """Failed, cancelled and expired jobs never came into that set."""
    first = push(world.client, ttl_ms=1_000)
    behind = push(world.client, "behind", depends_on=(Dependency(first),))
    if end == "failed":
        world.client.fail(start(world.client).id, retry=False)
    elif end == "cancelled":
        world.client.cancel(first)
    else:
        world.advance(1_000)
    view = world.client.get_job(behind)
    assert (view.state, view.reason) == (State.FAILED, "dependency_failed")


def test_f6_a_dependency_that_never_was_is_refused(world: World):
    """It was waited for, for ever."""
    with pytest.raises(UnknownDependency):
        push(world.client, depends_on=(Dependency(640_000),))


def test_f7_a_dependency_that_completes_while_the_push_is_decided_is_not_missed():
    """It was looked at before the lock was taken; a completion in between was nobody's business."""
    with stoker.connect("memory://") as client:
        for _ in range(100):
            first = push(client)
            token = start(client).token
            acking = threading.Thread(target=client.ack, args=(first, token))
            acking.start()
            behind = push(client, "behind", depends_on=(Dependency(first),))
            acking.join()
            assert pulled(client, "behind") == [behind]
            client.ack(behind)


def test_f9_changing_a_priority_again_and_again_leaves_one_place_in_the_order(world: World):
    """Every change left a dead entry in a heap that was never compacted."""
    client = world.client
    ids = [push(client) for _ in range(10)]
    for number in range(2_000):
        client.change_priority(ids[number % 10], number % 7)
    ready = world.broker.runtime.shards[0].tenants["default"].queues["q"].ready
    assert ready.size < 100
    for job in ids:
        client.change_priority(job, 0)
    assert pulled(client) == ids
    assert pulled(client) == []


def test_f11_what_is_due_happens_at_its_millisecond_not_at_a_sweep(world: World):
    """Sweeps of 100 ms, 500 ms, 1 s, 10 s or 60 s, depending on where one reads."""
    begin = world.now
    expired = push(world.client, ttl_ms=7)
    delayed = push(world.client, delay_ms=13)
    stalled = push(world.client, "other", lease_ms=17, max_attempts=1)
    behind = push(world.client, depends_on=(Dependency(stalled, "continue"),))
    start(world.client, "other")
    world.advance(100_000)
    at = {(event.job, str(event.kind)): event.at - begin for event in world.client.read_events().events}
    assert at[expired, "expired"] == 7
    assert at[delayed, "ready"] == 13
    assert at[stalled, "failed"] == at[behind, "unblocked"] == 17


def test_f12_the_oldest_ended_jobs_are_forgotten_first():
    """`Remove the oldest` went through a hash set: it removed whichever came."""
    with World(Settings(retention=Retention(completed_count=10))) as world:
        ended = [push(world.client) for _ in range(50)]
        random.Random(3).shuffle(ended)
        token = world.client.pull("q", 50).token
        for job in ended:
            world.client.ack(job, token)
        assert {view.id for view in world.client.browse("q").jobs} == set(ended[-10:])


def test_f12_a_job_is_kept_as_long_as_it_asked(world: World):
    """Its own age and count were taken for the time to live of a result."""
    long, short = (push(world.client, keep_completed_age_ms=age) for age in (10_000_000, 1_000))
    world.client.ack_batch(pulled(world.client))
    world.advance(1_000)
    assert [view.id for view in world.client.browse("q").jobs] == [long]
    assert short != long


def test_f13_a_job_is_in_one_state_and_every_view_agrees(world: World):
    """Two enumerations of where a job can be, and a copy of its place in an index."""
    client = world.client
    jobs = [push(client), push(client, delay_ms=50), push(client, priority=9)]
    jobs.append(push(client, depends_on=(Dependency(jobs[0]),)))
    start(client)
    for job in jobs:
        state = client.get_state(job)
        assert job in [view.id for view in client.browse("q", state).jobs]
        assert sum(job in [view.id for view in client.browse("q", each).jobs] for each in State) == 1
        assert client.why(job).state is state
    counts = client.get_counts("q")
    assert [counts.active, counts.waiting, counts.delayed, counts.blocked] == [1, 1, 1, 1]


def test_f16_every_delivery_has_a_lease_and_a_lost_one_is_tried_again(world: World):
    """No timeout by default, and a stalled job went to the dead letters instead of back."""
    job = push(world.client, backoff=STEADY)
    assert start(world.client).lease_until == world.now + 30_000
    world.advance(30_000)
    assert world.client.get_state(job) is State.DELAYED
    world.advance(1_000)
    assert start(world.client).attempt == 2


@pytest.mark.parametrize("way", ["ack", "fail", "timeout"])
def test_f17_ack_fail_and_timeout_free_the_same_things(world: World, way: str):
    """Only an ack released slot, group and key; after a timeout the group was blocked for ever."""
    client = world.client
    client.set_concurrency("q", 1)
    job = push(client, group_id="g", unique_key="k", timeout_ms=1_000, max_attempts=1)
    token = start(client).token
    if way == "ack":
        client.ack(job, token)
    elif way == "fail":
        client.fail(job, token)
    else:
        world.advance(1_000)
    again = client.push("q", b"", group_id="g", unique_key="k")
    assert again.created
    assert pulled(client) == [again.id]


def test_f18_a_batch_of_acks_frees_slots_in_the_right_queues(world: World):
    """Acks were grouped by shard and kept one queue name for it: two queues released each other's slots."""
    client = world.client
    for queue in ("a", "b"):
        client.set_concurrency(queue, 2)
        for _ in range(4):
            push(client, queue)
    delivery = client.pull(["a", "b"], 10)
    of_a = [job.id for job in delivery if job.queue == "a"]
    of_b = [job.id for job in delivery if job.queue == "b"]
    assert client.ack_batch([*of_a, of_b[0]], delivery.token).count == 3
    assert [job.queue for job in client.pull(["a", "b"], 10)] == ["a", "a", "b"]


def test_f19_a_poll_of_an_empty_or_full_queue_takes_no_token(world: World):
    """The token was taken before anybody knew whether there was a job."""
    client = world.client
    client.set_rate_limit("q", 3, 60_000)
    client.set_concurrency("q", 1)
    for _ in range(10):
        assert pulled(client) == []
    for _ in range(3):
        job = push(client)
        assert pulled(client) == [job]
        push(client, delay_ms=3_600_000)
        assert pulled(client) == []
        client.ack(job)


def test_f19_burst_is_not_the_rate(world: World):
    """Capacity and refill were one number: up to twice as many jobs in the first second."""
    world.client.set_rate_limit("q", 10, 1_000, burst=1)
    for _ in range(30):
        push(world.client)
    started = 0
    for _ in range(1_000):
        started += len(world.client.pull("q", 10))
        world.advance(1)
    assert started == 10


def test_f19_a_waiter_sleeps_until_the_next_token():
    """Whoever waited for a rate limit slept until the end of its own wait, wherever a server kept the time."""

    def pulled_in_turn(opened: Opened) -> list[float]:
        with ExitStack() as stack:
            client = opened(stack).waiting
            client.set_rate_limit("q", 2, 500)
            client.push_batch("q", [b""] * 5)
            began = time.monotonic()
            return [pulled_at(client) - began for _ in range(5)]

    def pulled_at(client: Client) -> float:
        job = start(client, wait_ms=40_000)
        client.ack(job.id, job.token)
        return time.monotonic()

    with ThreadPoolExecutor(len(PLACES)) as pool:
        times = dict(zip(PLACES, pool.map(pulled_in_turn, PLACES.values()), strict=True))
    for place, found in times.items():
        assert found[-1] < 20, f"{place}: {found}"
        assert all(at >= 0.25 * (number - 1) - 0.01 for number, at in enumerate(found)), f"{place}: {found}"


@pytest.mark.parametrize("options", [Options(debounce_id="x"), Options(custom_id="x"), Options(unique_key="x")])
def test_f20_a_refused_push_leaves_nothing_behind(world: World, options: Options):
    """The debounce window opened and the custom id was taken before the push was refused."""
    with pytest.raises(UnknownDependency):
        world.client.push("q", b"", options, depends_on=(Dependency(640_000),))
    assert world.client.push("q", b"", options).created


def test_f20_a_duplicate_leaves_no_custom_id_that_points_nowhere(world: World):
    """Refused as a duplicate of its key, it had its custom id registered already."""
    push(world.client, unique_key="k")
    assert not world.client.push("q", b"", unique_key="k", custom_id="c").created
    fresh = world.client.push("q", b"", custom_id="c")
    assert fresh.created
    assert world.client.find_job("c").id == fresh.id


@pytest.mark.parametrize("name", ["grün", "очередь", "٣", "q²"])
def test_f21_names_are_ascii(world: World, name: str):
    """`Alphanumeric` meant every letter and digit of Unicode."""
    with pytest.raises(InvalidRequest):
        push(world.client, name)


def test_f21_names_are_as_long_in_bytes_as_in_characters(world: World):
    """The length was counted in bytes and complained about in characters."""
    assert push(world.client, "a" * 256)
    with pytest.raises(InvalidRequest, match="256"):
        push(world.client, "a" * 257)


def test_f22_a_payload_has_one_limit_on_every_way_in():
    """10 MB in the server, 1 MB in its clients, and a frame that no full batch fitted into."""
    with World(limits=Limits(payload_bytes_max=100)) as world:
        job = world.client.push("q", b"x" * 100).id
        too_long = b"x" * 101
        for command in (
            c.Push("q", too_long),
            c.PushBatch("q", [too_long], atomic=True),
            c.Stage("t", "s", "q", [too_long]),
            c.UpdatePayload(job, too_long),
        ):
            with pytest.raises(LimitExceeded):
                world.client.execute(command)
        assert world.client.push_batch("q", [too_long]).refused[0].code == "limit_exceeded"


def test_f23_the_number_of_attempts_has_one_default(world: World):
    """Infinite in the server, 3 in one client, which left out the 3, so that it became infinite."""
    for pushed in (
        world.client.push("q", b"").id,
        world.client.push("q", b"", max_attempts=3).id,
        world.client.push_batch("q", [b""]).ids[0],
        world.client.execute(c.Push("q", b"", Options())).id,
    ):
        states = [world.client.fail(start(world.client).id, delay_ms=0).state for _ in range(3)]
        assert states == [State.WAITING, State.WAITING, State.FAILED]
        assert world.client.get_job(pushed).options.max_attempts == 3


def test_f23_no_limit_is_said_by_0_and_kept(world: World):
    """0 meant infinite here and no retry there."""
    push(world.client, max_attempts=0)
    for _ in range(50):
        assert world.client.fail(start(world.client).id, delay_ms=0).state is State.WAITING


def test_f27_counters_are_what_a_recount_gives_and_never_negative(world: World):
    """They wrapped below zero, and the statistics went through every heap anyway."""
    client = world.client
    chance = random.Random(9)
    ids: list[int] = []
    for _ in range(300):
        ids.append(push(client, delay_ms=chance.choice([0, 0, 40]), ttl_ms=chance.choice([0, 90])))
        pulled(client, count=chance.randint(1, 3))
        some = chance.sample(ids, min(len(ids), 4))
        client.execute(chance.choice([c.Ack(some), c.Fail(some), c.Release(some)]))
        if chance.random() < 0.2:
            world.advance(chance.choice([1, 50, 40_000]))
        counts = client.get_counts("q")
        for state in State:
            recount = 0
            after = None
            while True:
                page = client.browse("q", state, after=after, limit=1_000)
                recount += len(page.jobs)
                after = page.next_after
                if after is None:
                    break
            assert getattr(counts, state) == recount


def test_f30_what_happened_to_a_job_is_one_ordered_story(world: World):
    """An ack could be written before the insert that it follows."""
    client = world.client
    for _ in range(20):
        push(client, max_attempts=2)
    for retry in (True, False):
        for job in pulled(client, count=20)[::2]:
            client.fail(job, delay_ms=0, retry=retry)
        client.ack_batch([view.id for view in client.browse("q", State.ACTIVE).jobs])
    states: dict[int, str] = {}
    steps = {
        "pushed": "waiting",
        "started": "active",
        "completed": "completed",
        "retrying": "waiting",
        "failed": "failed",
    }
    for event in client.read_events().events:
        before, after = states.get(event.job, "new"), steps.get(event.kind, str(event.kind))
        assert after in TRANSITIONS[before], f"{before} -> {after}"
        states[event.job] = after
    assert set(states.values()) == {"completed", "failed"}


LIVES = """
import json, os, signal, sys
import stoker
queue = stoker.connect(sys.argv[1])
"""

FIRST_LIFE = (
    LIVES
    + """
queue.push("poison", b"", max_attempts=2, lease_ms=50)
queue.pull("poison")
held = queue.pull("work") if queue.push("work", b"held", lease_ms=600_000) else None
queue.push("keys", b"", unique_key="u", custom_id="c", debounce_id="d", debounce_ms=600_000)
queue.push("grouped", b"one", group_id="g")
queue.push("grouped", b"two", group_id="g")
queue.pull("grouped")
queue.push("later", b"", delay_ms=600_000)
first = queue.push("chain", b"")
queue.push("chain", b"", depends_on=(stoker.Dependency(first.id),))
done = queue.push("done", b"")
queue.ack(done.id, queue.pull("done").token, b"the result")
queue.pause("paused")
queue.set_rate_limit("limited", 1, per_ms=600_000)
queue.push_batch("limited", [b"", b""])
queue.pull("limited")
gone = queue.push("gone", b"", remove_on_complete=True)
queue.ack(gone.id, queue.pull("gone").token)
print(json.dumps({"held": held.ids[0], "token": held.token, "done": done.id, "gone": gone.id}), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
)

SECOND_LIFE = (
    LIVES
    + """
told = json.loads(sys.argv[2])
queue.ack(told["held"], told["token"])
duplicates = [
    queue.push("keys", b"", **key).duplicate_by
    for key in ({"unique_key": "u"}, {"custom_id": "c"}, {"debounce_id": "d", "debounce_ms": 600_000})
]
while queue.get_counts("poison").failed == 0:
    for job in queue.pull("poison", wait_ms=2_000):
        queue.fail(job.id, job.token)
print(json.dumps({
    "duplicates": duplicates,
    "group": len(queue.pull("grouped")),
    "later": queue.get_counts("later").delayed,
    "blocked": queue.get_counts("chain").blocked,
    "result": queue.get_job(told["done"]).result.decode(),
    "paused": queue.get_queue("paused").paused,
    "limited": len(queue.pull("limited")),
    "attempts": queue.list_dead("poison").jobs[0].attempts,
    "next": queue.push("gone", b"").id > told["gone"],
}))
queue.close()
"""
)


def live(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One life of a process: whatever another one left is all it knows."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


def test_f14_a_restart_restores_everything_that_decides_behaviour(tmp_path: Path):
    """Keys, groups, limits, pauses and results were not restored, active jobs cost no attempt, ids were given again."""
    url = f"sqlite:///{tmp_path}/data?shards=1"
    first = live(FIRST_LIFE, url)
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = live(SECOND_LIFE, url, first.stdout)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout) == {
        "duplicates": ["unique_key", "custom_id", "debounce_id"],
        "group": 0,
        "later": 1,
        "blocked": 1,
        "result": "the result",
        "paused": True,
        "limited": 0,
        "attempts": 2,
        "next": True,
    }


@pytest.mark.parametrize("level", ["commit", "fsync"])
def test_f15_what_was_answered_at_a_level_is_there_after_a_crash_that_it_covers(tmp_path: Path, level: str):
    """A push was answered before anything was written: with the process it could vanish."""
    url = f"sqlite:///{tmp_path}/data"
    code = f"""
for number in range(1_000):
    reply = queue.push("q", b"%d" % number, durability="{level}")
    assert reply.level == "{level}", reply
    print(reply.id, flush=True)
    if number == 50:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    first = live(LIVES + code, url)
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = live(LIVES + "print(json.dumps(list(queue.pull('q', 1_000).ids))); queue.close()", url)
    assert json.loads(second.stdout) == [int(line) for line in first.stdout.split()]


# --- the wire and the server -------------------------------------------------------------------------


def received(stream: bytes, most: int = 100) -> Frames:
    frames = Frames(bytearray(1_000), most)
    frames.space()[: len(stream)] = stream
    frames.received(len(stream))
    return frames


def test_f10_the_first_byte_tells_lines_from_frames():
    """JSON was said to be length-prefixed and yet told by its first byte: a `{` there is a length of 2 GB."""
    assert received(b'{"cmd":"PING"}\n').framing == "lines"
    assert received(framed(b'{"cmd":"PING"}', "lengths")).framing == "lengths"
    assert codec_of(b'{"cmd":"PING"}', "lengths") == "json"
    assert codec_of(b"\x81\xa3cmd\xa4PING", "lengths") == "msgpack"


def test_f10_lines_and_frames_have_the_same_limit():
    """Lines had none."""
    assert received(b"{" + b"x" * 99 + b"\n").failure is None
    assert received(framed(b"x" * 100, "lengths")).failure is None
    assert received(b"{" + b"x" * 100 + b"\n").failure is not None
    assert received(framed(b"x" * 101, "lengths")).failure is not None


LISTENERS = ("tcp", "http", "grpc", "unix")


@pytest.mark.parametrize("on", [{"tcp"}, {"http"}, {"grpc"}, {"unix"}, {"tcp", "unix"}, set(LISTENERS)], ids=sorted)
def test_f24_listeners_are_independent_of_each_other(on: set[str], tmp_path: Path):
    """A Unix socket took the place of TCP, though four ways in at once were promised."""
    where = {name: str(tmp_path / "socket") if name == "unix" else "127.0.0.1:0" for name in on}
    options = [f"--{name}={where.get(name, 'off')}" for name in LISTENERS]
    server = subprocess.Popen(
        [sys.executable, "-m", "stoker", "serve", *options], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert server.stdout is not None
        said = dict(server.stdout.readline().split() for _ in on)
        assert said.keys() == on
        for name, place in said.items():
            url = place if name == "http" else f"{name}://{place}"
            with stoker.connect(url) as client:
                assert client.push("q", name.encode()).id
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stdout.close()  # type: ignore[union-attr]


def test_f25_what_an_owner_of_jobs_does_after_it_was_replaced_is_refused():
    """A lock of a session decided who leads, and nothing fenced the leader before: both gave out the same jobs."""
    with fresh_database(shared()) as name:
        url = shared().url(name)
        install(url, 4, 1)
        settings = LocalSettings(shards=4)
        old = open_seat(url, 0, "old", "", settings)
        Client(old).push("q", b"1")
        assert isinstance(old.store, PostgresStore)
        new = open_seat(url, 0, "new", "", settings, instead_of=old.store.lease.taken.epoch)
        with pytest.raises((Unavailable, Unknown)):
            Client(old).pull("q")
        assert len(Client(new).pull("q", 9)) == 1
        new.close()
        old.close()


def test_f26_stopping_gives_out_no_more_jobs_and_counts_no_attempt():
    """A busy server never drained, because nothing stopped PULL; after 30 s jobs were abandoned."""

    async def main() -> None:
        async with serving() as place:
            worker, waiting = await place.peer(), await place.peer()
            job = (await worker.ask(cmd="PUSH", queue="q", data=1))["id"]
            assert (await worker.ask(cmd="PULL", queue="q"))["job"]["attempts"] == 1
            waiting.send(cmd="PULL", queue="q", timeout=60_000)
            await until(lambda: place.server.dispatcher.is_waiting)
            await place.server.dispatcher.stop_dispatching()
            assert (await waiting.line())["code"] == "shutting_down"
            assert (await waiting.ask(cmd="PULL", queue="q"))["code"] == "shutting_down"
            assert place.broker.hand_back_all() == 1
            view = place.broker.execute("default", c.GetJob(job))
            assert (view.state, view.attempts) == (State.WAITING, 0)

    run(main)


def test_f26_a_job_that_ends_while_the_server_stops_is_done():
    """Acks were still taken, but nobody waited for them in the end."""

    async def main() -> None:
        async with serving() as place:
            worker = await place.peer()
            job = (await worker.ask(cmd="PUSH", queue="q", data=1))["id"]
            await worker.ask(cmd="PULL", queue="q")
            await place.server.dispatcher.stop_dispatching()
            assert (await worker.ask(cmd="ACK", id=job))["ok"]
            assert place.broker.hand_back_all() == 0
            assert place.broker.execute("default", c.GetJob(job)).state is State.COMPLETED

    run(main)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("words", ["lock-free", "lock free", "wait-free", r"\bblazing", r"\d %? ?(x|times) faster"])
def test_f8_what_was_not_measured_is_not_claimed(words: str):
    """ "Lock-free" stood twelve times in a text whose code took locks, and a bound by arithmetic stood as a result."""
    assert len(PAGES) > 10
    assert [page.name for page in PAGES if re.search(words, page.read_text(), re.IGNORECASE)] == []


RATE = re.compile(r"\d[\d,.]* (?:k )?(?:jobs|pushes|events|rows)(?:/s| a second)\b|\d[\d,.]* times faster")
MEASURED = re.compile(r"python -m benchmarks|make bench|stoker bench")


def test_f28_a_page_with_figures_says_how_to_measure_them():
    """The abstract had 57 times where the table had 58, and neither said how to measure it again."""
    pages = {page: page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
    with_figures = {page for page, text in pages.items() if RATE.search(text)}
    assert len(with_figures) > 3
    assert [page.name for page in with_figures if not MEASURED.search(pages[page])] == []


def test_f29_no_codec_is_said_to_be_smaller_because_that_depends_on_the_payload():
    """ "3-5x faster, 40 % smaller" had no source: texts do not shrink, numbers do."""
    text, numbers = {"body": "dear ada, " * 50}, {"values": [number * 1_001 for number in range(100)]}

    def saved(value: object) -> float:
        return 1 - len(msgspec.msgpack.encode(value)) / len(msgspec.json.encode(value))

    assert abs(saved(text)) < 0.02
    assert saved(numbers) > 0.3
    claim = re.compile(r"(MessagePack|JSON)[^.|\n]{0,60}(faster|smaller|slower)", re.IGNORECASE)
    assert [page.name for page in PAGES if claim.search(page.read_text())] == []
