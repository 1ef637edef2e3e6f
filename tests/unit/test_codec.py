"""Records to bytes and back, and what damage does to them."""

import struct
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.limits import Limits
from stoker.model.options import Options, Settings
from stoker.records import records as rec
from stoker.records.codec import LogRow, NewerRecord, UnreadableRecord, decode, encode, encode_row
from stoker.records.stored import StoredRun, sizes_of
from tests.golden.examples import RECORDS
from tests.soaking import drawing
from tests.unit.support import QUICK

numbers = st.integers(0, 2**53 - 1)
texts = st.text(max_size=6)
some_options = st.builds(
    Options,
    priority=st.integers(-(2**53) + 1, 2**53 - 1),
    tags=st.lists(texts, max_size=2).map(tuple),
    unique_key=st.none() | texts,
    lifo=st.booleans(),
)
sizes = numbers | st.lists(numbers, max_size=3)
runs = st.builds(rec.JobRun, numbers, st.integers(-9, 9), numbers, numbers, numbers, texts, sizes)

WITH_BODY = (rec.JobsPushed, rec.PayloadUpdated, rec.PartStaged)
"""Records whose payloads stand behind their head."""


def framed(head: bytes, body: bytes = b"") -> bytes:
    """A row with one record, made by hand."""
    rest = struct.pack("<II", len(head), len(body)) + head + body
    return struct.pack("<BI", rec.VERSION, crc32(rest, crc32(bytes(8)))) + rest


def head_of(row: bytes) -> bytes:
    length, _ = struct.unpack_from("<II", row, 5)
    return row[13 : 13 + length]


def body_of(row: bytes) -> bytes:
    return row[13 + len(head_of(row)) :]


by_kind = pytest.mark.parametrize("kind", rec.ALL, ids=lambda kind: kind.__name__)
by_example = pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)


def strategy_of(kind: type[rec.Record]) -> st.SearchStrategy[rec.Record]:
    """Values for every field, from its type; runs and options are drawn with care, to keep the examples small."""
    hints = msgspec.inspect.type_info(kind)
    assert isinstance(hints, msgspec.inspect.StructType)
    drawn = st.builds(kind, **{field.name: _drawn(field.type) for field in hints.fields})
    return drawn.map(_counted) if kind is rec.JobsPushed else drawn


def _counted(record: Any) -> Any:
    """As every push is recorded: with the sizes of its payloads."""
    return msgspec.structs.replace(record, sizes=sizes_of(record.payloads))


def _drawn(kind: Any) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any]
    match kind:
        case msgspec.inspect.IntType():
            found = st.integers(-(2**63), 2**63 - 1)
        case msgspec.inspect.StrType():
            found = texts
        case msgspec.inspect.BytesType():
            found = st.binary(max_size=6)
        case msgspec.inspect.BoolType():
            found = st.booleans()
        case msgspec.inspect.NoneType():
            found = st.none()
        case msgspec.inspect.LiteralType(values=values):
            found = st.sampled_from(values)
        case msgspec.inspect.UnionType(types=types):
            found = st.one_of(*map(_drawn, types))
        case msgspec.inspect.ListType(item_type=item):
            found = st.lists(_drawn(item), max_size=3)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            found = st.dictionaries(_drawn(key), _drawn(value), max_size=3)
        case msgspec.inspect.VarTupleType(item_type=item):
            found = st.lists(_drawn(item), max_size=3).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            found = st.tuples(*map(_drawn, items))
        case msgspec.inspect.StructType(cls=cls) if cls in (Settings, Limits):
            found = st.builds(cls)
        case msgspec.inspect.StructType(cls=rec.JobRun):
            found = runs
        case msgspec.inspect.EnumType(cls=cls):
            found = st.sampled_from(list(cls))
        case msgspec.inspect.FloatType():
            found = st.floats(allow_nan=False)
        case msgspec.inspect.StructType(cls=cls) if cls is Options:
            found = some_options
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            found = st.builds(cls, **{field.name: _drawn(field.type) for field in fields})
        case _:
            raise AssertionError(f"a record has a field of a new type: {kind}")
    return found


@by_kind
def test_every_record_comes_back_as_it_was(kind: type[rec.Record]):
    @drawing(10)
    @given(strategy_of(kind))
    def comes_back(record: rec.Record) -> None:
        again = decode(encode(record))
        assert type(again) is kind
        assert again == record

    comes_back()


@pytest.mark.parametrize(
    "record", [one for one in RECORDS if type(one) not in WITH_BODY], ids=lambda one: type(one).__name__
)
def test_fields_with_defaults_at_the_end_may_be_missing(record: rec.Record):
    """That is what makes adding a field possible: old records do not have it."""
    fields = msgspec.inspect.type_info(type(record)).fields  # type: ignore[attr-defined]
    needed = sum(field.required for field in fields)
    whole = msgspec.msgpack.decode(head_of(encode(record)))
    for length in range(needed, len(fields)):
        found = decode(framed(msgspec.msgpack.encode(whole[: 1 + length])))
        for place, field in enumerate(fields):
            expected = getattr(record, field.name) if place < length else field.default
            if expected is not msgspec.NODEFAULT:
                assert getattr(found, field.name) == expected


@by_example
def test_fields_that_a_later_release_added_are_passed_over(record: rec.Record):
    data = encode(record)
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(head_of(data)), "new", {"x": 1}])
    assert decode(framed(longer, body_of(data))) == record


def test_payloads_stay_where_they_are_if_asked():
    pushed = rec.JobsPushed(1, "acme", "mail", 64, (b"one", b"three", b""), sizes=[3, 5, 0])
    row = LogRow(encode_row([rec.QueueObliterated(1, "acme", "mail"), pushed], 77), 40, 77)
    left = row.records(stored_from=2)[1]
    assert left == msgspec.structs.replace(pushed, payloads=StoredRun(41, 0, 3, [3, 5, 0]))
    assert row.records(stored_from=4)[1] == pushed
    assert row.payloads(41) == pushed.payloads


def test_a_row_in_a_wrong_place_is_unreadable():
    data = encode_row(RECORDS, 1 << 48 | 7)
    assert len(LogRow(data, 7, 1 << 48 | 7)) == len(RECORDS)
    for wrong in (7, 2 << 48 | 7, 1 << 48 | 8, 1 << 48 | 1 << 32 | 7):
        with pytest.raises(UnreadableRecord, match="checksum"):
            LogRow(data, 7, wrong)


# --- damage ----------------------------------------------------------------------------------------


@by_example
def test_a_record_that_was_cut_is_unreadable(record: rec.Record):
    whole = encode(record)
    for length in range(len(whole)):
        with pytest.raises(UnreadableRecord):
            decode(whole[:length])


@by_example
def test_bytes_behind_a_record_are_unreadable(record: rec.Record):
    with pytest.raises(UnreadableRecord):
        decode(encode(record) + b"\x00")


@QUICK
@given(st.sampled_from(RECORDS), st.data())
def test_damage_gives_a_record_or_unreadable_and_nothing_else(record: rec.Record, data: st.DataObject):
    damaged = bytearray(encode(record))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(damaged))
    except UnreadableRecord:
        pass


@QUICK
@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_a_record_or_unreadable_and_nothing_else(noise: bytes):
    for data in (noise, bytes([rec.VERSION]) + noise, bytes([rec.VERSION, 0x94, 21, 1]) + noise):
        try:
            decode(data)
        except UnreadableRecord:
            pass


@by_example
def test_any_one_byte_that_changes_is_noticed(record: rec.Record):
    whole = encode(record)
    for place in range(len(whole)):
        for value in (0x00, 0x7F, 0x80, 0xC0, 0xC1, 0xD9, 0xDD, 0xDF, 0xFF):
            if whole[place] != value:
                with pytest.raises(UnreadableRecord):
                    decode(whole[:place] + bytes([value]) + whole[place + 1 :])


def test_text_that_is_no_utf8_is_unreadable():
    head = head_of(encode(rec.QueueObliterated(1, "acme", "mail")))
    with pytest.raises(UnreadableRecord):
        decode(framed(head.replace(b"mail", b"m\xff\xfel")))


@pytest.mark.parametrize("nest", [b"\x91", b"\x81\x01", b"\x81"])
def test_deep_nesting_is_unreadable(nest: bytes):
    """A field that a later release may have added is passed over, but not into any depth."""
    head = head_of(encode(rec.QueueObliterated(1, "acme", "mail"))).replace(b"\x94", b"\x95", 1)
    with pytest.raises(UnreadableRecord):
        decode(framed(head + nest * 100_000 + b"\x01"))


def test_a_length_that_no_input_has_is_unreadable():
    """An array of four thousand million items is not made room for before its items are there."""
    head = head_of(encode(rec.KeysForgotten(1, "acme", "mail", [])))[:-1]
    with pytest.raises(UnreadableRecord):
        decode(framed(head + b"\xdd\xff\xff\xff\xff"))


@pytest.mark.parametrize("version", [rec.VERSION + 1, 127, 255])
def test_a_later_version_is_refused_by_its_number(version: int):
    data = bytes([version]) + encode(RECORDS[0])[1:]
    with pytest.raises(NewerRecord, match=f"version {version}, but this release reads up to {rec.VERSION}"):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x02"])
def test_nothing_at_all_is_unreadable(data: bytes):
    with pytest.raises(UnreadableRecord):
        decode(data)


def test_an_unknown_tag_is_unreadable():
    with pytest.raises(UnreadableRecord):
        decode(framed(msgspec.msgpack.encode([99, 1, "acme", "mail"])))


def test_every_record_stands_in_the_list_under_its_tag():
    assert {kind.__struct_config__.tag: kind for kind in rec.Record.__subclasses__()} == rec.BY_TAG
    assert set(rec.ALL) == set(rec.Record.__subclasses__())


def test_tags_are_without_gaps():
    assert list(rec.BY_TAG) == list(range(1, len(rec.ALL) + 1))
