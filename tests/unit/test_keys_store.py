"""Keys that have left memory: the store, and an engine that behaves like one that keeps everything in memory."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from stoker.engine.audit import audit
from stoker.engine.old_keys import OldKey, keys_to_store, store_keys
from stoker.engine.parking import Parked
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.journal.bloom_filters import Hint, RotatingFilter
from stoker.journal.key_store import KeyStore
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Damaged, NewerFormat, Refused
from stoker.model.options import DeadLetterPolicy, Options, Settings
from stoker.records import records as rec
from tests.model.driver import WORDS, Driver
from tests.model.pair import LIMITS, SMALL, START, plain
from tests.soaking import SOAKS

T, Q = "acme", "mail"


class AlwaysYes:
    """A filter that is wrong about every new key."""

    def add(self, key: str, now: int) -> None: ...

    def might_have(self, key: str, now: int) -> bool:
        return True

    def mark(self, now: int) -> int:
        return 0

    def remembers(self, mark: int) -> bool:
        return True

    def make_room(self, keys: int) -> None: ...


class AlwaysNo(AlwaysYes):
    """A filter that forgets at once. It says so: one that claimed to have everything would be believed."""

    def might_have(self, key: str, now: int) -> bool:
        return False

    def remembers(self, mark: int) -> bool:
        return False


def real_filter() -> RotatingFilter:
    return RotatingFilter(1_000, 1e-9, 1_800_000)


def restless_filter() -> RotatingFilter:
    """So small and so short of memory that it rotates all the time."""
    return RotatingFilter(4, 0.1, 300)


HINTS: dict[str, Callable[[], Hint | None]] = {
    "real": real_filter,
    "restless": restless_filter,
    "yes": AlwaysYes,
    "no": AlwaysNo,
    "none": lambda: None,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def store(path: Path) -> Iterator[KeyStore]:
    found = KeyStore(path)
    yield found
    found.close()


def custom_id(key: str, job: int = 64, expires_at: int = 1_000, queue: str = Q) -> OldKey:
    return OldKey(T, queue, "custom_ids", key, expires_at, job)


REQUEST = OldKey(T, Q, "requests", "r", 1_000, 0, [(64, 2), (0, 1)], [(2, "invalid", "bad")], [(1, "custom_id")])


# --- the file --------------------------------------------------------------------------------------


def test_a_key_comes_back_as_it_was_put(store: KeyStore):
    assert store.put_many([custom_id("k"), REQUEST], 0) == [custom_id("k"), REQUEST]
    assert store.get(T, Q, "custom_ids", "k", 0) == custom_id("k")
    assert store.get(T, Q, "requests", "r", 0) == REQUEST


@pytest.mark.parametrize("key", ["", "\0", "a\0b", "clé", "🔑", "k" * 500])
def test_any_text_is_a_key(store: KeyStore, key: str):
    store.put_many([custom_id(key)], 0)
    assert store.get(T, Q, "custom_ids", key, 0) == custom_id(key)


def test_tenant_queue_and_kind_are_part_of_a_key(store: KeyStore):
    store.put_many([custom_id("k")], 0)
    assert store.get("zeta", Q, "custom_ids", "k", 0) is None
    assert store.get(T, "other", "custom_ids", "k", 0) is None
    assert store.get(T, Q, "requests", "k", 0) is None


def test_a_key_is_gone_at_the_moment_it_expires(store: KeyStore):
    store.put_many([custom_id("k", expires_at=500)], 0)
    assert store.get(T, Q, "custom_ids", "k", 499) is not None
    assert store.get(T, Q, "custom_ids", "k", 500) is None


def test_a_key_that_is_put_again_is_replaced(store: KeyStore):
    store.put_many([custom_id("k", job=64, expires_at=500)], 0)
    store.put_many([custom_id("k", job=128, expires_at=900)], 0)
    assert store.get(T, Q, "custom_ids", "k", 0) == custom_id("k", job=128, expires_at=900)
    assert store.count() == 1


def test_expired_keys_are_swept_out_step_by_step_the_oldest_first(store: KeyStore):
    store.put_many([custom_id(str(n), expires_at=n) for n in range(1, 11)], 0)
    assert store.forget_expired(7, 5) == 5
    assert [n for n in range(1, 11) if store.get(T, Q, "custom_ids", str(n), 0)] == [6, 7, 8, 9, 10]
    assert store.forget_expired(7, 5) == 2
    assert store.forget_expired(7, 5) == 0
    assert store.count() == 3


def test_look_ups_and_hits_are_counted(store: KeyStore):
    store.put_many([custom_id("k", expires_at=500)], 0)
    for now in (0, 600):
        store.find(T, Q, "custom_ids", "k", now)
    store.find(T, Q, "custom_ids", "other", 0)
    assert (store.lookups, store.hits) == (3, 1)


def test_what_was_put_is_there_after_the_process_has_died(path: Path):
    """Nothing is closed: the next owner finds only what is in the files."""
    first = KeyStore(path)
    first.put_many([custom_id("k")], 0)
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    again = KeyStore(copy)
    assert again.get(T, Q, "custom_ids", "k", 0) == custom_id("k")
    again.close()
    first.close()


def test_all_keys_are_put_or_none(store: KeyStore):
    broken = OldKey(T, Q, "custom_ids", "b", None, 64)  # type: ignore[arg-type]
    with pytest.raises(apsw.ConstraintError):
        store.put_many([custom_id("a"), broken], 0)
    assert store.count() == 0
    store.put_many([custom_id("a")], 0)
    assert store.count() == 1


def test_a_file_that_is_no_store_is_refused(path: Path):
    path.write_bytes(b"something else" * 1_000)
    with pytest.raises(Damaged):
        KeyStore(path)


def test_a_file_of_a_later_version_is_refused(path: Path):
    KeyStore(path).close()
    file = apsw.Connection(str(path))
    file.pragma("user_version", 99)
    file.close()
    with pytest.raises(NewerFormat):
        KeyStore(path)


# --- forgetting ------------------------------------------------------------------------------------


def test_the_keys_of_a_forgotten_queue_are_not_found_from_that_moment(store: KeyStore):
    store.put_many([custom_id("k"), custom_id("k", queue="other")], 0)
    store.forget_queue(T, Q)
    assert store.find(T, Q, "custom_ids", "k", 0) is None
    assert store.find(T, "other", "custom_ids", "k", 0) is not None
    assert store.count() == 2


def test_the_keys_of_a_forgotten_queue_leave_with_the_next_put(store: KeyStore):
    store.put_many([custom_id("k"), custom_id("k", queue="other")], 0)
    store.forget_queue(T, Q)
    store.put_many([], 0)
    assert store.count() == 1


def test_the_keys_of_a_forgotten_queue_leave_when_the_store_is_closed(path: Path):
    store = KeyStore(path)
    store.put_many([custom_id("k")], 0)
    store.forget_queue(T, Q)
    store.close()
    again = KeyStore(path)
    assert again.count() == 0
    again.close()


def test_keys_chosen_before_their_queue_was_forgotten_do_not_come_back(store: KeyStore):
    chosen = [custom_id("old"), custom_id("k", queue="other")]
    store.forget_queue(T, Q)
    assert store.put_many(chosen, 0) == chosen[1:]
    assert store.find(T, Q, "custom_ids", "old", 0) is None
    assert store.put_many([custom_id("new")], 0) == [custom_id("new")]
    assert store.find(T, Q, "custom_ids", "new", 0) == custom_id("new")


def test_a_key_that_was_never_put_costs_no_delete(path: Path):
    cleanup = real_filter()
    store = KeyStore(path, cleanup=cleanup)
    store.put_many([custom_id("a"), custom_id("b")], 0)
    assert store.forget([custom_id("a"), custom_id("never")], 0) == 1
    assert store.count() == 1
    forgetful = KeyStore(path.with_name("other.db"), cleanup=AlwaysNo())
    forgetful.put_many([custom_id("a", expires_at=5)], 0)
    assert forgetful.forget([custom_id("a", expires_at=5)], 0) == 0
    assert forgetful.forget_expired(5, 10) == 1, "what a hint has left behind goes when it expires"
    store.close()
    forgetful.close()


def test_a_key_that_was_replaced_is_not_forgotten_for_its_predecessor(store: KeyStore):
    store.put_many([custom_id("k", expires_at=900)], 0)
    assert store.forget([custom_id("k", expires_at=500)], 0) == 0
    assert store.count() == 1


# --- the filter before it --------------------------------------------------------------------------


def test_a_new_key_costs_no_look_up(path: Path):
    store = KeyStore(path, hint=real_filter())
    assert store.fill(0, 100)
    store.put_many([custom_id("old")], 0)
    assert not any(store.find(T, Q, "custom_ids", f"new {number}", 0) for number in range(500))
    assert store.lookups == 0
    assert store.find(T, Q, "custom_ids", "old", 0) == custom_id("old")
    assert (store.lookups, store.hits) == (1, 1)
    store.close()


def test_c1_a_filter_is_not_believed_before_it_has_heard_of_every_key(path: Path):
    first = KeyStore(path)
    first.put_many([custom_id(str(number)) for number in range(10)], 0)
    first.close()
    store = KeyStore(path, hint=real_filter())
    for _ in range(2):
        assert not store.fill(0, 4)
        assert store.find(T, Q, "custom_ids", "9", 0) is not None
    assert store.fill(0, 4)
    store.lookups = 0
    assert store.find(T, Q, "custom_ids", "new", 0) is None
    assert store.lookups == 0
    assert all(store.find(T, Q, "custom_ids", str(number), 0) for number in range(10))
    store.close()


def test_c1_a_filter_that_has_rotated_a_stored_key_out_is_not_believed(path: Path):
    """Thirty minutes of filter, a day of key: the key is found, filled again or not."""
    hint = RotatingFilter(100, 1e-9, 50)
    store = KeyStore(path, hint=hint)
    store.fill(0, 10)
    store.put_many([custom_id("k")], 0)
    assert not hint.might_have("acme\0mail\0custom_ids\0k", 100)
    assert store.find(T, Q, "custom_ids", "k", 100) is not None
    assert store.find(T, Q, "custom_ids", "new", 100) is None
    assert store.lookups == 2
    assert store.fill(100, 10)
    assert store.find(T, Q, "custom_ids", "new", 100) is None
    assert store.lookups == 2
    assert store.find(T, Q, "custom_ids", "k", 149) is not None
    store.close()


def test_a_filter_that_is_filled_after_each_rotation_counts_all_the_time(path: Path):
    store = KeyStore(path, hint=RotatingFilter(100, 1e-9, 50))
    store.fill(0, 10)
    store.put_many([custom_id(str(number)) for number in range(50)], 0)
    for now in range(0, 1_000, 10):
        store.fill(now, 20)
        assert store.find(T, Q, "custom_ids", "new", now) is None
        assert store.is_complete()
    assert store.lookups == 0
    assert all(store.find(T, Q, "custom_ids", str(number), 999) for number in range(50))
    store.close()


def test_a_store_that_outgrows_its_filter_gets_a_larger_one(path: Path):
    first = KeyStore(path)
    first.put_many([custom_id(str(number)) for number in range(1_000)], 0)
    first.close()
    hint = RotatingFilter(10, 1e-9, 50)
    store = KeyStore(path, hint=hint)
    assert store.fill(0, 2_000)
    assert hint.rotations == 0
    assert store.find(T, Q, "custom_ids", "new", 0) is None
    assert store.lookups == 0
    store.close()


def test_a_key_put_while_the_filter_is_being_filled_is_not_missed(path: Path):
    first = KeyStore(path)
    first.put_many([custom_id(f"m{number}") for number in range(6)], 0)
    first.close()
    store = KeyStore(path, hint=real_filter())
    store.fill(0, 3)
    store.put_many([custom_id("a")], 0)  # stands before those that were told
    while not store.fill(0, 3):
        pass
    assert store.find(T, Q, "custom_ids", "a", 0) is not None
    store.close()


def test_keys_are_found_while_another_thread_puts_some(path: Path):
    store = KeyStore(path, hint=restless_filter())
    store.put_many([custom_id("k")], 0)
    done = threading.Event()

    def put() -> None:
        for number in range(60):
            store.put_many([custom_id(f"{number}-{n}", expires_at=10_000) for n in range(5)], number * 50)
            store.fill(number * 50, 7)
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    missed = 0
    while not done.is_set():
        missed += store.find(T, Q, "custom_ids", "k", 999) is None
    thread.join()
    assert not missed
    assert store.count() == 301
    store.close()


# --- the engine with a store -----------------------------------------------------------------------


class Side:
    """A shard with a store, and a driver that moves keys."""

    def __init__(self, path: Path, hint: Hint | None = None, settings: Settings | None = None) -> None:
        self.path = path
        self.shard = Shard(settings=settings)
        self.store = self.shard.old_keys = KeyStore(path, hint=hint)
        self.now = 1_000

    def __call__(self, command: c.Command[Any]) -> Any:
        return self.shard.execute(T, command, self.now)

    def push(self, key: str, **options: Any) -> r.Pushed:
        reply: r.Pushed = self(c.Push(Q, b"", Options(custom_id=key, **{"custom_id_ttl_ms": 500, **options})))
        return reply

    def finish(self) -> None:
        delivery = self(c.Pull([Q], 100))
        self(c.Ack(list(delivery.ids), delivery.token))

    def move(self) -> int:
        """What the owner of a store does from time to time. Returns how many keys have left memory."""
        put = self.store.put_many(keys_to_store(self.shard, 1_000), self.now)
        changed = store_keys(self.shard, put, self.now)
        self.store.fill(self.now, 100)
        audit(self.shard)
        return len(put) - len(changed)

    def wait(self, ms: int) -> None:
        self.now += ms
        self.shard.advance(self.now)

    def keys(self) -> int:
        return sum(
            len(queue.custom_ids) + len(queue.requests)
            for tenant in self.shard.tenants.values()
            for queue in tenant.queues.values()
        )


@pytest.fixture
def side(path: Path) -> Iterator[Side]:
    found = Side(path, real_filter())
    found.store.fill(0, 1)
    yield found
    found.store.close()


def test_a_stored_custom_id_makes_a_push_a_duplicate(side: Side):
    first = side.push("k")
    side.finish()
    assert side.move() == 1
    assert side.keys() == 0
    again = side.push("k")
    assert (again.id, again.created, again.duplicate_by) == (first.id, False, "custom_id")


def test_the_id_of_a_live_job_stays_in_memory(side: Side):
    side.push("k")
    assert side.move() == 0
    assert side.keys() == 1


def test_a_stored_custom_id_is_new_after_its_time(side: Side):
    side.push("k")
    side.finish()
    side.move()
    side.wait(499)
    assert not side.push("k").created
    side.wait(1)
    assert side.push("k").created


def test_a_stored_request_answers_as_before(side: Side):
    side.push("k")
    side.finish()
    request = c.PushBatch(
        Q,
        [b"a", b"b", b"c"],
        each=[Options(), Options(custom_id="k"), Options(delay_ms=-1)],
        request_key="r",
    )
    first = side(request)
    assert (first.created, set(first.refused), set(first.duplicates)) == (1, {2}, {1})
    in_memory = side(request)
    assert side.move() == 2
    assert side(request) == in_memory
    side.wait(Settings().request_ttl_ms)
    assert side(request) != in_memory


def test_an_answer_without_jobs_survives_its_queue(side: Side):
    """A queue that only a refused request has named is forgotten when the answer leaves memory; the answer is not."""
    request = c.PushBatch("empty", [b"a"], each=[Options(delay_ms=-1)], request_key="r")
    first = side(request)
    assert side.move() == 1
    assert "empty" not in side.shard.tenants[T].queues
    assert side(request).refused == first.refused
    assert "empty" not in side.shard.tenants[T].queues
    assert side.store.hits == 1


def test_a_job_is_found_by_a_stored_custom_id_as_long_as_it_is_readable(side: Side):
    first = side.push("k")
    side.push("short", remove_on_complete=True)
    side.finish()
    assert side.move() == 2
    assert side(c.FindJob("k")).id == first.id
    assert side(c.FindJob("k", Q)).id == first.id
    with pytest.raises(Refused):
        side(c.FindJob("short"))


def test_a_dead_letter_whose_custom_id_another_job_took_stays_dead(side: Side):
    dead = side.push("k", custom_id_ttl_ms=10)
    side(c.Discard(dead.id))
    side.wait(10)
    side.push("k")
    side.finish()
    assert side.move() == 1
    assert side(c.RetryDead(Q, [dead.id])).refused == {dead.id: "wrong_state"}
    side.wait(500)
    assert side(c.RetryDead(Q, [dead.id])).ids == [dead.id]


@pytest.mark.parametrize("moved", [False, True])
def test_a_key_that_expires_when_a_dead_letter_is_retried_is_still_held(side: Side, moved: bool):
    """At equal times dead letters come before keys, wherever the key is."""
    policy = DeadLetterPolicy(auto_retry=True, auto_retry_interval_ms=600, auto_retries_max=1)
    side(c.SetQueuePolicy(Q, dead_letters=policy))
    dead = side.push("k", custom_id_ttl_ms=10)
    side(c.Discard(dead.id))
    side.wait(100)
    side.push("k")
    side.finish()
    if moved:
        assert side.move() == 1
    side.wait(500)
    assert side(c.GetJob(dead.id)).state == "failed"
    side.wait(1_000)
    assert side(c.GetJob(dead.id)).state == "waiting"


def test_a_revived_job_holds_its_custom_id_again(side: Side):
    dead = side.push("k")
    side(c.Discard(dead.id))
    assert side.move() == 1
    assert side(c.RetryDead(Q)).ids == [dead.id]
    side.wait(10_000)
    assert side.push("k").id == dead.id
    side.finish()
    side.wait(499)
    assert side.push("k").id == dead.id
    assert side.move() == 1
    assert side.push("k").id == dead.id
    side.wait(1)
    assert side.push("k").created


def test_obliterate_frees_stored_keys(side: Side):
    side.push("k")
    side.finish()
    request = c.PushBatch(Q, [b"a"], request_key="r")
    first = side(request)
    side.finish()
    side.move()
    side(c.Obliterate(Q))
    second = side.push("k")
    assert second.created
    assert side(request).ids != first.ids
    side.finish()
    assert side.move() == 0, "the store is emptied first"
    assert side.move() == 2
    assert side.push("k").id == second.id


def test_keys_that_change_while_they_are_written_stay_in_memory(side: Side):
    dead, gone = side.push("dead"), side.push("gone", custom_id_ttl_ms=5)
    side(c.Discard(dead.id))
    side(c.Discard(gone.id))
    put = side.store.put_many(keys_to_store(side.shard, 10), side.now)
    side(c.RetryDead(Q, [dead.id]))
    side.wait(5)
    assert store_keys(side.shard, put, side.now) == put
    assert side.store.forget(put, side.now) == 2
    assert side.push("dead").id == dead.id
    assert side.push("gone").created


def test_a_queue_that_is_obliterated_while_its_keys_are_written_keeps_none(side: Side):
    side.push("k")
    side.finish()
    chosen = keys_to_store(side.shard, 10)
    side(c.Obliterate(Q))
    assert store_keys(side.shard, side.store.put_many(chosen, side.now), side.now) == []
    assert side.push("k").created


def test_only_so_many_keys_as_were_asked_for_leave(side: Side):
    for number in range(10):
        side.push(str(number))
    side.finish()
    assert [key.key for key in keys_to_store(side.shard, 4)] == ["0", "1", "2", "3"]
    assert keys_to_store(side.shard, 4, expires_after=side.now + 500) == []


def test_each_queue_has_a_record_of_its_own(side: Side):
    side.push("k")
    side.finish()
    side(c.PushBatch("other", [b"a"], request_key="r"))
    side.shard.take_records()
    side.move()
    stored = [
        rec.KeysStored(side.now, T, Q, [("custom_ids", "k")]),
        rec.KeysStored(side.now, T, "other", [("requests", "r")]),
    ]
    assert side.shard.take_records() == stored


def test_new_keys_cost_the_engine_no_look_up(side: Side):
    for number in range(50):
        side.push(str(number))
    side.finish()
    side.move()
    for number in range(50, 100):
        assert side.push(str(number)).created
        assert side(c.PushBatch(Q, [b""], request_key=str(number))).created
    assert side.store.lookups == 0


def test_replay_asks_no_store(side: Side):
    side.push("k")
    side.finish()
    side.move()
    side.push("k")
    side(c.Obliterate(Q))
    before = side.store.lookups
    again = replay(side.shard.take_records())
    assert again.old_keys is None
    assert dump(again) == dump(side.shard)
    assert side.store.lookups == before


# --- nobody can tell the difference ----------------------------------------------------------------


class KeyDriver(Driver):
    """Random commands, most of them with keys that are remembered for a while."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.menu += [self.push, self.push_batch, self.settle] * 12

    def options(self, tenant: str, items: int = 0, number: int = 0) -> Options:
        options = super().options(tenant, items, number)
        if not self.chance(0.5):
            return options
        ttl_ms = self.random.choice((0, 20, 400, 3_000, 60_000))
        return msgspec.structs.replace(options, custom_id=self.random.choice(WORDS), custom_id_ttl_ms=ttl_ms)

    def push_batch(self) -> tuple[str, c.Command[Any]]:
        tenant, command = super().push_batch()
        request_key = self.random.choice(WORDS) if self.chance(0.6) else None
        return tenant, msgspec.structs.replace(command, request_key=request_key)


class Mover:
    """Moves keys as the owner of a store does, with time for other things between choosing, putting and leaving."""

    def __init__(self, shard: Shard, path: Path, hint: Callable[[], Hint | None], chance: random.Random) -> None:
        self.shard, self.path, self.hint, self.chance = shard, path, hint, chance
        self.chosen: list[OldKey] | None = None
        self.put: list[OldKey] | None = None
        self.moved = self.hits = 0
        self.open()

    def open(self) -> None:
        self.store = self.shard.old_keys = KeyStore(self.path, hint=self.hint(), cleanup=restless_filter())

    def reopen(self) -> None:
        self.hits += self.store.hits
        self.store.close()
        self.chosen = self.put = None
        self.open()

    def step(self, now: int) -> None:
        at_once = self.chance.random() < 0.6
        if self.chosen is None:
            self.chosen = keys_to_store(self.shard, 5)
            if not at_once:
                return
        if self.put is None:
            self.put = self.store.put_many(self.chosen, now)
            if not at_once:
                return
        changed = store_keys(self.shard, self.put, now)
        self.moved += len(self.put) - len(changed)
        self.store.forget(changed, now)
        self.chosen = self.put = None
        self.store.fill(now, 3)
        if self.chance.random() < 0.02:
            self.store.forget_expired(now, 4)


def outcome(shard: Shard, tenant: str, command: c.Command[Any], now: int) -> Any:
    try:
        reply = shard.execute(tenant, command, now)
    except Refused as error:
        return error.code
    return "parked" if isinstance(reply, Parked) else reply


def comparable(reply: Any) -> Any:
    return reply if isinstance(reply, str) else plain(reply)


@pytest.mark.parametrize(("seed", "hint"), list(enumerate(HINTS)))
def test_c1_nobody_can_tell_whether_old_keys_are_in_memory(path: Path, hint: str, seed: int):
    assert_alike(path, HINTS[hint], seed)


def assert_alike(
    path: Path, hint: Callable[[], Hint | None], seed: int, steps: int = 10_000 if SOAKS else 1_000
) -> None:
    """The same random commands to a shard that keeps its keys, and to one whose keys are moved all the time."""
    driver, chance = KeyDriver(seed), random.Random(seed)
    memory, stored = Shard(settings=SMALL, limits=LIMITS), Shard(settings=SMALL, limits=LIMITS)
    mover = Mover(stored, path, hint, chance)
    now, records = START, []
    for number in range(steps):
        passed, tenant, command = driver.draw()
        now += passed
        expected = outcome(memory, tenant, command, now)
        got = outcome(stored, tenant, command, now)
        assert comparable(got) == comparable(expected), f"step {number}: {command}"
        answers = [[comparable(reply) for _, reply in shard.take_effects()] for shard in (memory, stored)]
        assert answers[0] == answers[1], f"step {number}: {command}"
        driver.learn(tenant, command, expected)
        mover.step(now)
        records += stored.take_records()
        if number % 250 == 249:
            mover.reopen()
            audit(stored)
    assert mover.moved > steps // 40, "too few keys have left memory to say anything"
    assert mover.hits > steps // 80, "too few keys were found again to say anything"
    assert dump(replay(records, settings=SMALL, limits=LIMITS)) == dump(stored)
    mover.store.close()
