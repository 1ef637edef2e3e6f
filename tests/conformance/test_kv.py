"""Key-value entries: small values under keys, for a time or until they are deleted."""

from typing import Any

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LimitExceeded, WrongState
from stoker.model.limits import DURATION_MS_MAX, Limits
from stoker.model.options import CODECS, Codec
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import OUT_OF_BOUNDS, all_events, check_refused, push

every_codec = pytest.mark.parametrize("codec", CODECS)


def fill(client: Client, *keys: str) -> None:
    client.kv_set_many([c.KvEntry(key, key.encode()) for key in keys])


def all_keys(client: Client, pattern: str = "*", limit: int = 1_000) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = client.kv_keys(pattern, after, limit)
        found += page.keys
        if page.next_after is None:
            return found
        assert len(page.keys) <= limit
        after = page.next_after


# --- setting and getting ---------------------------------------------------------------------------


@every_codec
def test_a_value_is_there_until_it_is_deleted(world: ContractWorld, codec: Codec):
    client = world.client
    client.kv_set("k", b"\x00\xff", codec=codec)
    world.advance(DURATION_MS_MAX)
    assert client.kv_get("k") == r.KvValue(True, b"\x00\xff", codec, 0)
    assert client.kv_delete("k") == 1
    assert client.kv_get("k") == r.KvValue(False)


def test_what_was_never_set_is_not_there(client: Client):
    assert client.kv_get("k") == r.KvValue(False)
    assert client.kv_get_many(["k"]) == [r.KvValue(False)]
    assert client.kv_exists(["k"]) == [False]
    assert client.kv_ttl("k").exists is False
    assert client.kv_expire("k", 5).exists is False
    assert client.kv_delete("k") == 0
    assert client.kv_keys() == r.KvKeyPage([])


def test_a_value_may_be_empty(client: Client):
    client.kv_set("k", b"")
    assert client.kv_get("k") == r.KvValue(True, b"")


def test_setting_again_replaces_everything(client: Client):
    client.kv_set("k", b"old", 50, codec="json")
    client.kv_set("k", b"new")
    assert client.kv_get("k") == r.KvValue(True, b"new", "bytes", 0)
    assert client.kv_keys().keys == ["k"]


@pytest.mark.parametrize("key", ["a b", "ä/ö?*[", "\U0001f600", "queue:1.x", "\n"])
def test_any_text_is_a_key(client: Client, key: str):
    client.kv_set(key, b"1")
    assert client.kv_get(key).value == b"1"
    assert client.kv_keys().keys == [key]


def test_many_are_got_in_the_order_asked_for(client: Client):
    fill(client, "a", "b")
    found = client.kv_get_many(["b", "none", "a", "b"])
    assert [entry.value for entry in found] == [b"b", b"", b"a", b"b"]
    assert [entry.exists for entry in found] == [True, False, True, True]


def test_many_are_set_at_once(world: ContractWorld):
    client = world.client
    entries = [c.KvEntry("a", b"1"), c.KvEntry("b", b"2", 100, "json"), c.KvEntry("c", b"3", codec="msgpack")]
    assert client.kv_set_many(entries) == 3
    assert client.kv_get_many(["a", "b", "c"]) == [
        r.KvValue(True, b"1"),
        r.KvValue(True, b"2", "json", world.now + 100),
        r.KvValue(True, b"3", "msgpack"),
    ]


def test_a_key_that_is_set_twice_at_once_keeps_the_last_value(client: Client):
    assert client.kv_set_many([c.KvEntry("a", b"1"), c.KvEntry("a", b"2")]) == 1
    assert client.kv_get("a").value == b"2"


def test_one_bad_entry_refuses_all(world: ContractWorld):
    client = world.client
    for bad in (c.KvEntry("", b""), c.KvEntry("b", b"", -1), c.KvEntry("b", b"", 0, "xml")):  # type: ignore[arg-type]
        check_refused(world, InvalidRequest, c.KvSetMany([c.KvEntry("a", b"1"), bad]))
    assert client.kv_keys().keys == []


def test_deleting_counts_what_was_there(client: Client):
    fill(client, "a", "b", "c")
    assert client.kv_delete(["a", "none", "b", "a"]) == 2
    assert client.kv_keys().keys == ["c"]


def test_existence_is_told_key_by_key(client: Client):
    fill(client, "a", "c")
    assert client.kv_exists(["a", "b", "c", "a"]) == [True, False, True, True]


# --- time ------------------------------------------------------------------------------------------


def test_an_entry_expires_when_its_time_has_come(world: ContractWorld):
    client = world.client
    client.kv_set("k", b"1", 100)
    assert client.kv_get("k").expires_at == client.kv_ttl("k").expires_at == world.now + 100
    world.advance(99)
    assert client.kv_get("k").exists
    world.advance(1)
    assert client.kv_get("k") == r.KvValue(False)
    assert (client.kv_exists(["k"]), client.kv_keys().keys) == ([False], [])


def test_setting_again_starts_the_time_anew(world: ContractWorld):
    client = world.client
    client.kv_set("k", b"1", 100)
    world.advance(60)
    client.kv_set("k", b"2", 100)
    world.advance(60)
    assert client.kv_get("k").value == b"2"
    world.advance(40)
    assert not client.kv_get("k").exists


def test_setting_again_without_a_time_stays(world: ContractWorld):
    client = world.client
    client.kv_set("k", b"1", 100)
    client.kv_set("k", b"2")
    world.advance(1_000)
    assert client.kv_get("k").value == b"2"


def test_a_time_can_be_given_moved_and_taken_away(world: ContractWorld):
    client = world.client
    fill(client, "given", "moved", "stays")
    for key in ("moved", "stays"):
        client.kv_expire(key, 50)
    assert client.kv_expire("given", 100).expires_at == world.now + 100
    assert client.kv_expire("moved", 200).expires_at == world.now + 200
    assert client.kv_expire("stays", 0).expires_at == 0
    assert client.kv_ttl("stays").exists
    world.advance(100)
    assert client.kv_keys().keys == ["moved", "stays"]
    world.advance(100)
    assert client.kv_keys().keys == ["stays"]


def test_a_deleted_entry_leaves_no_time_behind(world: ContractWorld):
    client = world.client
    client.kv_set("k", b"1", 100)
    client.kv_delete("k")
    client.kv_set("k", b"2", 500)
    world.advance(100)
    assert client.kv_get("k").value == b"2"


def test_many_expire_at_one_moment(world: ContractWorld):
    client = world.client
    client.kv_set_many([c.KvEntry(f"k{n}", b"", 10 if n % 2 else 0) for n in range(6)])
    world.advance(10)
    assert client.kv_keys().keys == ["k0", "k2", "k4"]


# --- counting --------------------------------------------------------------------------------------


def test_counting_starts_at_0_and_is_written_as_json(client: Client):
    assert client.kv_increment("n") == 1
    assert client.kv_increment("n", -4) == -3
    assert client.kv_get("n") == r.KvValue(True, b"-3", "json")


@pytest.mark.parametrize(
    ("value", "codec", "after"),
    [(b"41", "bytes", b"42"), (b"41", "json", b"42"), (b"\x29", "msgpack", b"\x2a"), (b"-1", "bytes", b"0")],
)
def test_counting_keeps_the_codec(client: Client, value: bytes, codec: Codec, after: bytes):
    client.kv_set("n", value, codec=codec)
    client.kv_increment("n")
    assert client.kv_get("n") == r.KvValue(True, after, codec)


def test_counting_keeps_the_time_to_live(world: ContractWorld):
    client = world.client
    client.kv_set("n", b"1", 100)
    world.advance(60)
    client.kv_increment("n")
    assert client.kv_ttl("n").expires_at == world.now + 40
    world.advance(40)
    assert client.kv_increment("n") == 1


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        (b"", "bytes"),
        (b"x", "bytes"),
        (b" 1", "bytes"),
        (b"1.0", "bytes"),
        (b"007", "json"),
        (b"1.5", "json"),
        (b"true", "json"),
        (b'"1"', "json"),
        (b"null", "json"),
        (b"\xc1", "msgpack"),
        (b"\xc3", "msgpack"),
        (b"\xa11", "msgpack"),
        (b"", "msgpack"),
    ],
)
def test_what_is_no_whole_number_cannot_be_counted(world: ContractWorld, value: bytes, codec: Codec):
    world.client.kv_set("n", value, codec=codec)
    check_refused(world, WrongState, c.KvIncrement("n"))
    assert world.client.kv_get("n").value == value


def test_numbers_have_64_bits(world: ContractWorld):
    client = world.client
    assert client.kv_increment("n", 2**63 - 1) == 2**63 - 1
    check_refused(world, LimitExceeded, c.KvIncrement("n"))
    assert client.kv_increment("n", -(2**63)) == -1
    check_refused(world, InvalidRequest, c.KvIncrement("n", 2**63))


# --- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a", "ab", "abc", "b", "ba", "cab"]),
        ("a", ["a"]),
        ("a*", ["a", "ab", "abc"]),
        ("*a*", ["a", "ab", "abc", "ba", "cab"]),
        ("*b", ["ab", "b", "cab"]),
        ("?", ["a", "b"]),
        ("?b", ["ab"]),
        ("*?b", ["ab", "cab"]),
        ("a*c", ["abc"]),
        ("a?c", ["abc"]),
        ("?*?", ["ab", "abc", "ba", "cab"]),
        ("**b**", ["ab", "abc", "b", "ba", "cab"]),
        ("x*", []),
        ("", []),
        ("[ab]", []),
    ],
)
def test_keys_are_found_by_pattern_in_order(client: Client, pattern: str, expected: list[str]):
    fill(client, "b", "cab", "abc", "a", "ba", "ab")
    assert client.kv_keys(pattern) == r.KvKeyPage(expected)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("pattern", ["*", "a*", "*b*", "ab"])
def test_pages_bring_every_key_once(client: Client, pattern: str, limit: int):
    fill(client, "b", "cab", "abc", "a", "ba", "ab")
    assert all_keys(client, pattern, limit) == list(client.kv_keys(pattern).keys)


def test_a_page_that_is_exactly_full_is_the_last(client: Client):
    fill(client, "a", "b")
    assert client.kv_keys(limit=2) == r.KvKeyPage(["a", "b"], None)


def test_pages_go_on_behind_a_key_that_is_gone(client: Client):
    fill(client, "a", "b", "c")
    after = client.kv_keys(limit=2).next_after
    client.kv_delete("b")
    assert client.kv_keys(after=after).keys == ["c"]


def test_thousands_of_keys_stay_in_order(client: Client):
    """More than one page, and put in from all sides."""
    keys = [f"{n:04}" for n in range(5_000)]
    mixed = sorted(keys, key=lambda key: key[::-1])
    for start in range(0, len(mixed), 1_000):
        fill(client, *mixed[start : start + 1_000])
    assert all_keys(client, "*", 900) == keys
    assert all_keys(client, "1*7") == [key for key in keys if key.startswith("1") and key.endswith("7")]
    for start in range(0, len(keys), 1_000):
        client.kv_delete(keys[start : start + 999])
    assert all_keys(client) == keys[999::1_000]


# --- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        c.KvSet("", b""),
        c.KvSet("k", "text"),  # type: ignore[arg-type]
        c.KvSet("k", b"", -1),
        c.KvSet("k", b"", DURATION_MS_MAX + 1),
        c.KvSet("k", b"", 0, "xml"),  # type: ignore[arg-type]
        c.KvSet("\ud800", b""),
        c.KvSetMany([]),
        c.KvSetMany(["k"]),  # type: ignore[list-item]
        c.KvSetMany([c.KvEntry(1, b"")]),  # type: ignore[arg-type]
        c.KvGet(""),
        c.KvGet(None),  # type: ignore[arg-type]
        c.KvGetMany([]),
        c.KvGetMany("abc"),
        c.KvGetMany([1]),  # type: ignore[list-item]
        c.KvDelete([]),
        c.KvDelete([""]),
        c.KvExists([]),
        c.KvExists([""]),
        c.KvExpire("", 1),
        c.KvExpire("k", -1),
        c.KvTtl(""),
        c.KvKeys(limit=0),
        c.KvKeys(None),  # type: ignore[arg-type]
        c.KvIncrement(""),
        c.KvIncrement("k", 1.5),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_what_is_malformed_is_refused(world: ContractWorld, command: c.Command[Any]):
    check_refused(world, InvalidRequest, command)


@pytest.mark.parametrize(
    ("limits", "fits", "over"),
    [
        (Limits(kv_key_chars_max=3), c.KvSet("abc", b""), c.KvSet("abcd", b"")),
        (Limits(kv_value_bytes_max=3), c.KvSet("k", b"123"), c.KvSet("k", b"1234")),
        (Limits(kv_batch_max=2), c.KvGetMany(["a"] * 2), c.KvGetMany(["a"] * 3)),
        (Limits(kv_wildcards_max=2), c.KvKeys("*a?"), c.KvKeys("*a?*")),
        (Limits(kv_keys_max=1_000), c.KvKeys(limit=1_000), c.KvKeys(limit=1_001)),
    ],
    ids=["key", "value", "batch", "wildcards", "keys"],
)
def test_limits_hold(make_world: MakeWorld, limits: Limits, fits: c.Command[Any], over: c.Command[Any]):
    world = make_world(limits=limits)
    world.client.execute(fits)
    check_refused(world, OUT_OF_BOUNDS, over)


def test_a_tenant_has_so_many_entries_and_no_more(make_world: MakeWorld):
    world = make_world(limits=Limits(kv_entries_per_tenant_max=2))
    fill(world.client, "a", "b")
    fill(world.client, "a", "b")
    fill(world.client_for("other"), "c", "d")
    check_refused(world, LimitExceeded, c.KvSet("c", b""))
    check_refused(world, LimitExceeded, c.KvIncrement("c"))
    world.client.kv_delete("a")
    fill(world.client, "c")
    assert world.client.kv_keys().keys == ["b", "c"]


# --- who sees them ---------------------------------------------------------------------------------


def test_tenants_have_entries_of_their_own(world: ContractWorld):
    mine, theirs = world.client, world.client_for("other")
    fill(mine, "a", "b")
    theirs.kv_set("a", b"theirs")
    assert theirs.kv_get_many(["a", "b"]) == [r.KvValue(True, b"theirs"), r.KvValue(False)]
    assert theirs.kv_keys().keys == ["a"]
    assert theirs.kv_delete(["a", "b"]) == 1
    assert theirs.kv_expire("b", 1).exists is False
    assert theirs.kv_increment("b") == 1
    assert mine.kv_get_many(["a", "b"]) == [r.KvValue(True, b"a"), r.KvValue(True, b"b")]


def test_entries_are_neither_queues_nor_jobs_nor_events(client: Client):
    before = all_events(client)
    fill(client, "a", "b")
    client.kv_delete("a")
    assert (client.list_queues(), client.browse().jobs, all_events(client)) == ([], [], before)
    push(client, "a")
    client.obliterate("a")
    assert client.kv_keys().keys == ["b"]


def test_all_entries_are_found_whatever_shards_there_are(make_world: MakeWorld):
    world = make_world(shards=4)
    for tenant in ("t1", "t2", "t3", "t4", "t5"):
        client = world.client_for(tenant)
        fill(client, *(f"{tenant}-{n}" for n in range(5)))
        client.kv_set("short", b"1", 10)
        assert client.kv_increment("n", 5) == 5
    world.advance(10)
    for tenant in ("t1", "t2", "t3", "t4", "t5"):
        assert world.client_for(tenant).kv_keys().keys == ["n", *(f"{tenant}-{n}" for n in range(5))]


@pytest.mark.parametrize("tenant", ["$system", "$kv"])
def test_no_client_can_name_the_tenant_of_the_system(world: ContractWorld, tenant: str):
    for command in (c.KvGet("k"), c.KvSet("k", b""), c.Push("q", b""), c.ListQueues()):
        check_refused(world, InvalidRequest, command, tenant)
