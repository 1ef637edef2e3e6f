"""S4: a megabyte on the wire costs some megabytes of memory, in whatever field it stands."""

import os
import tracemalloc
from functools import cache
from typing import Any

import msgspec
import pytest

from stoker.model.errors import StokerError
from stoker.wire import flashq, native
from stoker.wire.flashq.spelling import _meant, meant
from stoker.wire.frames import Codec
from tests.security.test_hostile_bytes import answers_of, frame, refused, unharmed, witness
from tests.served.on_loop import run, serving

SOAKS = os.environ.get("STOKER_SOAK") == "1"
MEGABYTE = 1 << 20
PEAK_MAX = 48 * MEGABYTE
"""Untyped, it would be 64 to 256."""
ITEMS = [b"\x80", b"\x90", b"\x00", b"\xa0", b"\xc0", b"\x81\xa1x\x90", b"\x81\xa4data\xc0"]
TEXT_ITEMS = [b"{}", b"[]", b"0", b'""', b"null", b'{"data":0}', b'{"dependsOn":[]}']


@cache
def packed_array(item: bytes, first: bytes = b"") -> bytes:
    count = (MEGABYTE - len(first)) // len(item)
    return b"\xdd" + (count + bool(first)).to_bytes(4, "big") + first + item * count


def packed_map(item: bytes) -> bytes:
    keys = MEGABYTE // (5 + len(item))
    return b"\xdf" + keys.to_bytes(4, "big") + b"".join(b"\xa4%04x%b" % (n & 0xFFFF, item) for n in range(keys))


@cache
def text_array(item: bytes, first: bytes = b"") -> bytes:
    items = [item] * (MEGABYTE // (len(item) + 1))
    return b"[" + b",".join([first, *items] if first else items) + b"]"


def request(cmd: str, fields: dict[str, bytes], codec: Codec) -> bytes:
    """A request with fields that are encoded already."""
    if codec == "json":
        return b'{"cmd":"%s",%s}' % (cmd.encode(), b",".join(b'"%s":%b' % (k.encode(), v) for k, v in fields.items()))
    encode = msgspec.msgpack.encode
    pairs = b"".join(encode(key) + value for key, value in {"cmd": encode(cmd), **fields}.items())
    return bytes([0x81 + len(fields)]) + pairs


def peak_of(act: Any) -> int:
    """How many bytes it takes at most; a refusal is fine."""
    tracemalloc.start()
    try:
        act()
    except StokerError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


HOLDERS = ("jobs", "children", "entries", "depends_on", "dependsOn", "Jobs", "tags", "ids", "tokens", "backoff", "data")
"""Fields with structure in them, and spellings of them; all the others stop at the first byte that is no text."""


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("cmd", ["PUSH", "PUSHB", "FLOW", "CRON", "KVMSET", "ACKB", "KVMGET", "SUBSCRIBE", "PULL"])
def test_a_megabyte_in_any_field_of_flashqs_dialect_stays_small(cmd: str, codec: Codec):
    """Other items in each field, and in the soak all of them in every field."""
    names = {*flashq.ROWS[cmd].request.__struct_fields__, *HOLDERS} - {"cmd", "reqId"}
    filler = {"queue": b'"q"', "data": b"0"} if codec == "json" else {"queue": b"\xa1q", "data": b"\0"}
    items = TEXT_ITEMS[:3] + TEXT_ITEMS[5:] if codec == "json" else ITEMS[:3] + ITEMS[5:]
    firsts = (b"", b"null" if codec == "json" else b"\xc0")
    cases = [(item, first) for first in firsts for item in items]
    for number, name in enumerate(sorted(names & {*HOLDERS, "events", "after", "keys", "queue", "options"}), len(cmd)):
        for item, first in cases if SOAKS else cases[number % 5 :: 4]:
            value = text_array(item, first) if codec == "json" else packed_array(item, first)
            whole = request(cmd, {**filler, name: value}, codec)
            peak = peak_of(lambda whole=whole: flashq.decode(whole, codec, cmd))
            assert peak < PEAK_MAX, (name, item, first, peak)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("name", sorted(native.COMMANDS))
def test_a_megabyte_in_any_field_of_our_own_dialect_stays_small(name: str, codec: Codec):
    items = (b"{}", b"[]") if codec == "json" else (b"\x80", b"\x90", b"\x00")
    for number, field in enumerate(native.COMMANDS[name].__struct_fields__, len(name)):
        for item in items if SOAKS else (items[number % len(items)],):
            value = text_array(item) if codec == "json" else packed_array(item)
            body = request("x", {field: value}, codec)
            envelope = native.Envelope(name, body=msgspec.Raw(body))
            peak = peak_of(lambda envelope=envelope: native.command_of(envelope, codec))
            assert peak < PEAK_MAX, (field, item, peak)


@pytest.mark.parametrize("first", [b"", b"\xc0"])
@pytest.mark.parametrize("cmd", ["push_batch", "stage"])
def test_options_of_a_million_jobs_are_counted_first(cmd: str, first: bytes):
    encode = msgspec.msgpack.encode
    fields = {"queue": encode("q"), "transaction": encode("t"), "stage": encode("s"), "payloads": b"\x90"}
    body = request("x", {**fields, "each": packed_array(b"\x80", first)}, "msgpack")
    envelope = native.Envelope(cmd, body=msgspec.Raw(body))
    peak = peak_of(lambda: native.command_of(envelope, "msgpack"))
    assert peak < PEAK_MAX


def test_untyped_the_same_megabyte_is_large():
    """The control: what is measured above would be seen."""
    peak = peak_of(lambda: msgspec.msgpack.decode(packed_array(b"\x90")))
    assert peak > PEAK_MAX


@pytest.mark.parametrize("cmd", ["PUSH", "PUSHB", "GETJOB", "push", "NOSUCH"])
def test_a_megabyte_of_fields_that_nobody_knows_stays_small(cmd: str):
    async def main() -> None:
        async with serving() as place:
            other = await witness(place)
            unknown = packed_map(b"\xc0")
            tracemalloc.start()
            try:
                text = b'{"cmd":"%s",' % cmd.encode() + b",".join(b'"%06d":0' % n for n in range(100_000)) + b"}"
                assert refused(await answers_of(place, text + b"\n"))
                packed = request(cmd, {"unknown": unknown, "x" * 60_000: b"\xc0"}, "msgpack")
                assert refused(await answers_of(place, frame(packed)))
                assert tracemalloc.get_traced_memory()[1] < PEAK_MAX
            finally:
                tracemalloc.stop()
            await unharmed(place, other)

    run(main)


def test_names_of_fields_are_not_kept():
    """A cache of spellings must not become one of whatever strangers send."""
    _meant.cache_clear()
    for number in range(100):
        assert meant("x" * 1_000_000 + str(number), flashq.ROWS["PUSH"].request) is None
    assert _meant.cache_info().currsize == 0
    assert meant("maxAttempts", flashq.ROWS["PUSH"].request) is not None


def test_payloads_with_structure_pass_through_without_being_built():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            tracemalloc.start()
            try:
                body = request("PUSH", {"queue": b"\xa1q", "data": packed_array(b"\x90")}, "msgpack")
                peer.writer.write(frame(body))
                assert (await peer.frame())["ok"]
                assert tracemalloc.get_traced_memory()[1] < 16 * MEGABYTE
            finally:
                tracemalloc.stop()

    run(main)


def test_large_batches_that_people_send_are_taken():
    """The control for the counting: a full batch with options and edges of its own."""
    jobs = [
        {"data": {"n": number, "text": "x" * 40}, "jobId": f"j{number}", "dependsOn": []} for number in range(10_000)
    ]
    for codec, module in (("json", msgspec.json), ("msgpack", msgspec.msgpack)):
        whole = module.encode({"cmd": "PUSHB", "queue": "q", "jobs": jobs})
        assert len(whole) > MEGABYTE // 2
        assert len(flashq.decode(whole, codec, "PUSHB").jobs) == 10_000  # type: ignore[arg-type, union-attr]
    each = [{"custom_id": f"j{number}", "depends_on": [{"id": 64}, {"id": 128}]} for number in range(10_000)]
    body = msgspec.msgpack.encode({"queue": "q", "payloads": [b""] * 10_000, "each": each})
    command: Any = native.command_of(native.Envelope("push_batch", body=msgspec.Raw(body)), "msgpack")
    assert len(command.each) == 10_000
