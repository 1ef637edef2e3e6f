"""Entries and patterns: the order of many keys, what a pattern costs, and what memory they take."""

import fnmatch
import random

import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.engine import kv
from stoker.engine import kv_entries as table
from stoker.engine.globs import Glob
from stoker.engine.kv_entries import Entries, Entry
from stoker.engine.shard import Shard
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, MemoryFull
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import NAME_PATTERN

# --- the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_keys_stay_in_order_whatever_comes_and_goes(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "BLOCK_KEYS_MAX", 4)
    chance, entries, expected = random.Random(seed), Entries(), set[str]()
    for _ in range(600):
        key = f"{chance.randrange(60):02}"
        if chance.random() < 0.55:
            assert (entries.put(key, Entry(b"")) is None) == (key not in expected)
            expected.add(key)
        else:
            assert (entries.pop(key) is None) == (key not in expected)
            expected.discard(key)
        start = f"{chance.randrange(60):02}"
        assert list(entries.keys_from(start)) == sorted(key for key in expected if key >= start)
        assert (len(entries), key in entries) == (len(expected), key in expected)
    assert list(entries.keys_from("")) == sorted(expected)


# --- patterns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_pattern_matches_what_the_shell_would_match(seed: int):
    chance = random.Random(seed)
    for _ in range(2_000):
        pattern = "".join(chance.choices("ab*?.", k=chance.randrange(7)))
        text = "".join(chance.choices("ab.", k=chance.randrange(7)))
        assert Glob(pattern).matches(text) == fnmatch.fnmatchcase(text, pattern), (pattern, text)


@pytest.mark.parametrize("pattern", ["*a" * 16 + "*b", "*a?" * 10 + "b", "?" * 16 + "*a" * 16 + "b"])
def test_no_pattern_takes_ages(pattern: str):
    """A comparison that goes back to try other ways would not end while anybody waits."""
    assert not Glob(pattern).matches("a" * 1024)


def test_a_line_break_is_a_character_like_any_other():
    assert Glob("a?b*").matches("a\nb\n")


def test_a_page_ends_when_it_has_looked_long_enough(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv, "WORK_MAX", 5 * kv.KEY_WORK)
    shard = Shard()
    for number in range(20):
        shard.execute("t", c.KvSet(f"{number:02}", b""), 1)
    found: list[str] = []
    pages, after = 0, None
    while pages == 0 or after is not None:
        page = shard.execute("t", c.KvKeys("*5", after), 1)
        found, pages, after = found + list(page.keys), pages + 1, page.next_after
    assert found == ["05", "15"]
    assert pages > 3


# --- memory --------------------------------------------------------------------------------------------


def test_entries_take_memory_while_they_are_there():
    shard = Shard()
    assert shard.index.bytes == 0
    shard.execute("t", c.KvSet("k", b"x" * 1_000), 1)
    assert 1_000 < shard.index.bytes < 2_000
    shard.execute("t", c.KvSet("k", b"x" * 9_000, 10), 2)
    assert 9_000 < shard.index.bytes < 10_000
    shard.execute("t", c.KvSet("l", b"x"), 2)
    shard.execute("t", c.KvDelete(["l"]), 2)
    shard.advance(12)
    assert shard.index.bytes == 0


def test_without_room_nothing_new_is_kept_and_what_is_there_can_be_deleted(tmp_path):
    small = LocalSettings(shards=1, memory_bytes_max=1 << 20, journal=JournalSettings(disk_reserve_bytes=4096))
    broker = open_sqlite(str(tmp_path / "data"), {}, small)
    for number in range(10):
        broker.execute("t", c.KvSet(f"k{number}", b"x" * 100_000))
    for command in (c.KvSet("l", b""), c.KvSetMany([c.KvEntry("l", b"")]), c.KvIncrement("n"), c.Push("q", b"")):
        with pytest.raises(MemoryFull):
            broker.execute("t", command)
    assert broker.execute("t", c.KvGet("k9")).exists
    assert broker.execute("t", c.KvExpire("k0", 60_000)).exists
    assert broker.execute("t", c.KvDelete([f"k{number}" for number in range(10)])).count == 10
    broker.runtime.memory.look()
    assert broker.execute("t", c.KvIncrement("n")).value == 1
    broker.close()


# --- the tenant of the process itself ------------------------------------------------------------------


def test_the_process_has_a_tenant_of_its_own(tmp_path):
    for number in range(2):
        broker = open_sqlite(str(tmp_path / "data"), {}, LocalSettings(shards=4))
        assert broker.execute_as_system(c.KvIncrement("opened")).value == number + 1
        assert broker.execute("default", c.KvGet("opened")) == r.KvValue(False)
        broker.close()


def test_nobody_becomes_the_system_by_its_name():
    assert NAME_PATTERN.fullmatch(SYSTEM_TENANT) is None
    broker = LocalBroker()
    broker.execute_as_system(c.Push("q", b""))
    for command in (c.KvGet("k"), c.Push("q", b""), c.Pull(["q"])):
        with pytest.raises(InvalidRequest):
            broker.execute(SYSTEM_TENANT, command)
    assert len(broker.execute_as_system(c.Pull(["q"]))) == 1
    broker.close()
